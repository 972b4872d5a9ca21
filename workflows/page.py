"""What Temporal's web UI shows of a running workflow: the only path there, which takes nothing but Markdown."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from resources.markdown import Markdown


def show(page: Markdown) -> None:
    """Shows a page made of the pieces of resources/markdown.py, in which a stranger's text is only text."""
    workflow.set_current_details(page)


def bar(done: int, of: int, width: int = 20) -> str:
    """How much of the whole is done, as a bar of characters; all of it where there is nothing to do."""
    filled = width if of <= 0 else min(width, done * width // of)
    return "█" * filled + "░" * (width - filled)
