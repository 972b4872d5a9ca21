"""The pieces that several pages of `hostler describe` have: tables, the journal, what is pending, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resources.journal import Happening
    from resources.machine.state import WaitingFor
    from starter.sdk.results import PendingActivity

RECENT = 10
"""Journal entries that `describe` shows; `events` has them all."""
ABOVE = "as above"
"""Stands instead of a message that is already under *Waiting for*: a page is one screen."""


def table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A table with its title; nothing where there are no rows."""
    return ["", title, *columns(header, rows)] if rows else []


def columns(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A table within something that has a title already."""
    from starter.output import Table

    return [f"  {line}" for line in Table(header).lines(rows)] if rows else []


def next_steps(shown: Sequence[tuple[str, str]]) -> list[str]:
    """Commands with what each does."""
    width = max(len(command) for command, _ in shown) + 3
    return ["", "Next steps:", *(f"  {command.ljust(width)}# {words}" for command, words in shown)]


def journal_lines(journal: Sequence[Happening], now: datetime, waiting: WaitingFor | None = None) -> list[str]:
    """The newest entries. `waiting`: the wait that the page shows already."""
    from starter.output import age

    rows = [(age(now - h.time), h.reason, once(h.message, waiting)) for h in journal[-RECENT:]]
    return table("Journal:", ("AGE", "REASON", "MESSAGE"), rows)


def pending_lines(pending: tuple[PendingActivity, ...], now: datetime, above: bool = False) -> list[str]:
    """`above`: what they said last is already under *Waiting for*."""
    from starter.output import relative

    shown = [p for p in pending if not p.aside or p.last_failure]
    rows = [
        (
            p.type,
            str(p.attempt),
            "running" if p.running else relative(p.next_try, now) or "waits",
            ABOVE if above and p.last_failure and not p.aside else p.last_failure or "-",
        )
        for p in shown
    ]
    return table("Pending activities:", ("ACTIVITY", "ATTEMPT", "NEXT TRY", "SEEN LAST"), rows)


def once(message: str, waiting: WaitingFor | None) -> str:
    """The message, or that it is above."""
    return ABOVE if said(message, waiting) else message


def said(message: str, waiting: WaitingFor | None) -> bool:
    """Whether the wait's message begins with this one; the wait's goes on with what comes next."""
    return waiting is not None and bool(message) and waiting.message.startswith(message)
