"""What `hostler get` prints: rows of a table, or objects; once, or whenever they change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from starter.outlet import say, say_text

INTERVAL = 2.0
"""Seconds between two looks of `-w`."""
AGE = "AGE"
OF = "CLUSTER"
"""The first column under -A."""


class Form(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True)
class Row:
    key: tuple[str, ...]
    """What the row is, for `-o name`: kind, cluster where there may be several, name."""
    cells: dict[str, str]
    moments: dict[str, datetime | None] = field(default_factory=dict)
    """For columns that show a remaining time: the time of the end itself, which does not change."""

    def facts(self) -> dict[str, object]:
        """What makes a new line under -w: everything except remaining times."""
        return {k: self.moments.get(k, v) for k, v in self.cells.items() if k != AGE}


async def print_objects(objects: Sequence[dict[str, Any]], form: Form, *, single: bool) -> None:
    from starter.output import dump

    say_text(dump(objects, form, single=single and bool(objects)))


async def print_rows(
    columns: tuple[str, ...],
    state: str,
    fetch: Callable[[], Awaitable[list[Row]]],
    form: Form,
    watch: bool,
    nothing: str,
) -> None:
    """`state` is the column that says Gone under -w."""
    from starter.output import Table

    table = Table(columns)

    def show(rows: list[Row], header: bool) -> None:
        if form is Form.NAME:
            lines = ["/".join(r.key) for r in rows]
        else:
            lines = table.lines([[r.cells[c] for c in columns] for r in rows], header=header)
        say(*lines)

    rows = await fetch()
    if not rows:
        say(nothing, err=True)
    if rows or watch:
        show(rows, header=True)
    seen = {r.key: r for r in rows}
    while watch:
        await asyncio.sleep(INTERVAL)
        seen = await _changes(fetch, state, seen, show)


async def _changes(
    fetch: Callable[[], Awaitable[list[Row]]],
    state: str,
    seen: dict[tuple[str, ...], Row],
    show: Callable[[list[Row], bool], None],
) -> dict[tuple[str, ...], Row]:
    """Prints what is new, changed or gone since `seen`, and answers with what is there now."""
    from starter.sdk.errors import NotFound
    from starter.sdk.patience import patiently

    try:
        now = {r.key: r for r in await patiently(fetch)}
    except NotFound:
        now = {}  # the one that was named is gone
    changed = [r for key, r in now.items() if key not in seen or r.facts() != seen[key].facts()]
    gone = [Row(key, {**r.cells, state: "Gone"}) for key, r in seen.items() if key not in now]
    if changed or gone:
        show(changed + gone, False)
    return now
