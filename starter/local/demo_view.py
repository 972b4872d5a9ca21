"""How the demo shows a life: a live table on a terminal, lines of what changed anywhere else."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from resources.journal import Happening
from resources.machine.state import MachineState
from starter.outlet import say
from starter.screen import words

JOURNAL_LINES = 6


class DemoView(Protocol):
    def say(self, line: str) -> None: ...

    def show(self, state: MachineState, note: str = "") -> None:
        """Shows the machine as it is now. `note`: why this is old news, when it is."""

    def running(self) -> AbstractContextManager[object]:
        """The context in which `show` is visible."""


def view(console: Console) -> DemoView:
    return DemoTable(console) if console.is_terminal else DemoLines()


class Stopwatch:
    """Minutes and seconds since the demo began."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __str__(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes:02}:{seconds:02}"


def waiting(state: MachineState) -> str:
    wait = state.status.waiting_for
    return f"{wait.reason}: {wait.message}" if wait else ""


class DemoLines:
    """The view for pipes and CI, which prints a line when it is news."""

    def __init__(self) -> None:
        self._clock = Stopwatch()
        self._shown = ""
        self._told: set[Happening] = set()

    def say(self, line: str) -> None:
        say(f"[{self._clock}] {line}" if line else "")

    def show(self, state: MachineState, note: str = "") -> None:
        for happening in state.journal:
            if happening not in self._told:
                self._told.add(happening)
                self.say(f"  {state.name}: {happening.reason}: {happening.message}")
        now = " — ".join(filter(None, [f"{state.name} is {state.status.phase}", waiting(state), note]))
        if now != self._shown:
            self._shown = now
            self.say(now)

    def running(self) -> AbstractContextManager[object]:
        return nullcontext()


class DemoTable:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = Stopwatch()
        self._live = Live(console=console, refresh_per_second=8)

    def say(self, line: str) -> None:
        self._console.print(words((f"[{self._clock}] ", "dim"), line) if line else "")

    def show(self, state: MachineState, note: str = "") -> None:
        self._live.update(table(state, note, datetime.now(UTC)))

    def running(self) -> AbstractContextManager[object]:
        return self._live


_COLOURS = {"Running": "green", "Pending": "yellow", "Terminating": "magenta"}


def table(state: MachineState, note: str, now: datetime) -> RenderableType:
    """One row for the machine, and its latest journal entries below."""
    rows = Table(expand=True)
    for heading in ("machine", "phase", "waiting for", "since"):
        rows.add_column(heading)
    wait = state.status.waiting_for
    phase = words(state.status.phase, style=_COLOURS.get(state.status.phase, "red"))
    rows.add_row(
        words(state.name),
        phase,
        words(note or waiting(state)),
        f"{(now - wait.since).total_seconds():.0f} s" if wait else "",
    )
    journal = Table.grid(padding=(0, 2))
    for happening in state.journal[-JOURNAL_LINES:]:
        at = words(f"{happening.time:%H:%M:%S}", style="dim")
        journal.add_row(at, words(happening.reason), words(happening.message))
    return Group(rows, Panel(journal, title="journal", title_align="left"))
