"""hostler doctor"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from resources.visible import visible_json, visible_lines
from starter.commands.blocks import command
from starter.commands.common import Reading, Session
from starter.outlet import Piece, say_painted, say_text

if TYPE_CHECKING:
    from starter.doctor.findings import Finding

STYLES = {"warning": "yellow", "problem": "red"}


class ReportForm(StrEnum):
    TEXT = "text"
    JSON = "json"


@command
def doctor(
    *,
    form: Annotated[ReportForm, typer.Option("-o", "--output", help="Output format.")] = ReportForm.TEXT,
    here: Reading,
) -> None:
    """Say what waits for a person, check everything that the settings refer to, and say what to do. Changes nothing.

    It lists machines, pools, rollouts and classes that somebody has to look after, and VMs that no workflow owns. It
    checks settings, Temporal, task queues and their workers, parked workflows, clusters (API, permissions, watch), the
    Secrets that classes name, clouds and clocks. Exit code 0: no problem, perhaps warnings; 1: at least one problem.
    """
    from starter.doctor.findings import Level

    found = asyncio.run(_examine(here))
    levels = Counter(f.level for f in found)
    if form is ReportForm.JSON:
        whole = {"problems": levels[Level.PROBLEM], "warnings": levels[Level.WARNING]}
        say_text(visible_json({**whole, "findings": [asdict(f) for f in found]}, indent=2))
    else:
        say_painted([*_page(found), [], [(_summary(found), "")]])
    if levels[Level.PROBLEM]:
        raise typer.Exit(1)


async def _examine(here: Session) -> list[Finding]:
    from starter.doctor.examination import examine
    from starter.output import Busy

    async with Busy("checking everything"):
        return await examine(here.file, here.cluster)


def _page(found: Sequence[Finding]) -> list[list[Piece]]:
    """A block for each subject, in order of appearance."""
    lines: list[list[Piece]] = []
    for subject in dict.fromkeys(f.subject for f in found):
        lines.append([(subject, "")])
        for f in found:
            if f.subject == subject:
                first, *rest = visible_lines(f.message) or [""]
                lines.append([("  ", ""), (f"{f.level:8} ", STYLES.get(f.level, "")), (first, "")])
                lines += [[(f"           {line}", "")] for line in rest]
                lines += [[(f"           → {f.remedy}", "")]] if f.remedy else []
    return lines


def _summary(found: Sequence[Finding]) -> str:
    """How many problems and warnings there are, and what waits on its own."""
    from starter.doctor.findings import Level

    levels = Counter(f.level for f in found)
    counted = [f"{n} {level}{'s' if n > 1 else ''}" for level in (Level.PROBLEM, Level.WARNING) if (n := levels[level])]
    waits = [f.message.partition(":")[0] for f in found if f.level is Level.WAITS]
    return f"{'; '.join([', '.join(counted) or 'All is well', *waits])}."
