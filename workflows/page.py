"""What Temporal's web UI shows of a running workflow: the one way there, which takes nothing but Markdown."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from resources.markdown import Markdown


def show(page: Markdown) -> None:
    """Made of the pieces of resources/markdown.py, in which a text of strangers is a text."""
    workflow.set_current_details(page)
