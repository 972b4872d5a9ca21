"""How things look: tables as kubectl prints them, YAML and JSON, ages, and progress while something takes long."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import yaml

from resources.documents import reads_as_text
from resources.visible import is_visible, visible, visible_json, visible_lines
from resources.words import utc
from starter.outlet import Piece, say

if TYPE_CHECKING:
    from rich.status import Status

GAP = 3
YEAR = 365
"""Days, as kubectl reckons."""
NONE = "<none>"
"""What kubectl shows for an empty column, so that columns can be cut out by number."""
PATIENCE = 1.0
"""Seconds of silence that nobody minds."""
LINE_EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def age(span: timedelta) -> str:
    """The age as kubectl shows it (apimachinery, duration.HumanDuration): 45s, 5m20s, 37m, 3h5m, 47h, 5d3h, 400d,
    2y35d, 8y."""
    seconds = max(0, int(span.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * YEAR:
        return f"{days}d"
    return _two(days // YEAR, "y", days % YEAR, "d") if days < 8 * YEAR else f"{days // YEAR}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}" + (f"{small}{small_unit}" if small else "")


def moment(time: datetime | None, now: datetime) -> str:
    """The time, absolute and relative: `2026-03-01 14:05:00 UTC (in 12m)`."""
    if time is None:
        return ""
    return f"{utc(time)} ({relative(time, now)})"


def relative(time: datetime | None, now: datetime) -> str:
    if time is None:
        return ""
    return f"in {age(time - now)}" if time > now else f"{age(now - time)} ago"


@dataclass
class Table:
    """Left-aligned columns. Widths only grow, so that rows printed later (`-w`) stay under their headers."""

    header: Sequence[str]
    widths: list[int] = field(default_factory=list)

    def lines(self, rows: Sequence[Sequence[str]], *, header: bool = True) -> list[str]:
        styled = [[(cell, "") for cell in row] for row in rows]
        return ["".join(text for text, _ in line).rstrip() for line in self.pieces(styled, header=header)]

    def pieces(self, rows: Sequence[Sequence[Piece]], *, header: bool = True) -> list[list[Piece]]:
        """Like `lines`, for cells that have a style."""
        filled = [[(_filled(cell), style) for cell, style in row] for row in rows]
        shown = [[(name, "") for name in self.header], *filled]
        wide = [max(len(row[i][0]) for row in shown) for i in range(len(self.header))]
        self.widths = [max(a, b) for a, b in zip(wide, self.widths or wide, strict=True)]
        return [self._padded(row) for row in (shown if header else filled)]

    def _padded(self, row: Sequence[Piece]) -> list[Piece]:
        *before, (last, style) = row
        return [*((c.ljust(w + GAP), s) for (c, s), w in zip(before, self.widths, strict=False)), (last, style)]


def _filled(cell: str) -> str:
    """The cell as wide as it will look: a row is one line."""
    return " ".join(visible_lines(cell)) or NONE


def fitting(header: Sequence[str], rows: Sequence[Sequence[str]], drop: Sequence[int], width: int | None) -> list[int]:
    """The columns that fit into `width`, by index, and all without one: those with the greatest `drop` go first, and
    those with 0 never."""
    wide = [max(len(_filled(row[i])) for row in [header, *rows]) for i in range(len(header))]
    kept = list(range(len(header)))
    while width is not None and sum(wide[i] + GAP for i in kept) - GAP > width:
        last = max(kept, key=lambda i: (drop[i], i))
        if not drop[last]:
            break
        kept.remove(last)
    return kept


def dump(objects: Sequence[dict[str, Any]], form: str, *, single: bool) -> str:
    """YAML or JSON; several objects are a List, as kubectl prints them. It hides nothing, and parses to the true
    values."""
    made = whole(objects, single=single)
    return visible_json(made, indent=4) if form == "json" else _yaml(made)


def whole(objects: Sequence[dict[str, Any]], *, single: bool) -> dict[str, Any]:
    """One object, or a List."""
    return objects[0] if single else {"apiVersion": "v1", "kind": "List", "items": list(objects)}


class _Dumper(yaml.SafeDumper):
    """A dumper that puts texts which hide something in double quotes, where YAML has escapes for them, and in single
    ones what Kubernetes would read as something else than text."""

    def text(self, value: str) -> yaml.ScalarNode:
        plain = None if reads_as_text(value) else "'"
        style = plain if is_visible(value, keep="\n") else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _Dumper.text)


def _yaml(value: Any) -> str:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return visible(text.rstrip(), keep="\n")


def fields(pairs: Iterable[tuple[str, str]], indent: int = 0) -> list[str]:
    """`Label:   value`, one a line, without what is empty; further lines of a value stand below its first."""
    shown = [(f"{visible(label)}:", value) for label, value in pairs if value]
    width = max((len(label) for label, _ in shown), default=0) + 2
    lines = []
    for label, value in shown:
        first, *rest = visible_lines(value)
        lines.append(" " * indent + label.ljust(width) + first)
        lines += [" " * (indent + width) + line for line in rest]
    return lines


def unanswered(why: str, instead: str) -> list[str]:
    """What a page says of a workflow that does not answer; `instead`: what the page shows in its place."""
    todo = "What can be done: `hostler doctor` names the worker that is silent, and says what to do with it."
    return ["", f"No answer: {why.rstrip('.')}.", todo, instead]


class Busy:
    """Says on stderr what is waited for, when it takes longer than a second: a spinner on a terminal, else plain lines.

    `text` may be changed at any time; `say` prints lines of output around the spinner.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._status: Status | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._show())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def say(self, *lines: str) -> None:
        if self._status is not None:
            self._status.stop()
        say(*lines)
        if self._status is not None:
            self._status.start()

    async def _show(self) -> None:
        await asyncio.sleep(PATIENCE)
        if not sys.stderr.isatty():
            while True:
                say(self.text, err=True)
                await asyncio.sleep(LINE_EVERY)
        from starter.screen import screen, words  # rich takes longer to import than a quick command needs at all

        with screen(err=True).status("") as status:
            self._status = status
            try:
                while True:
                    status.update(words(self.text))
                    await asyncio.sleep(0.2)
            finally:
                self._status = None
