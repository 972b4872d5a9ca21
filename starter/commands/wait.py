"""hostler wait"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.common import (
    ClusterOption,
    KindArgument,
    NameArgument,
    SettingsOption,
    one_machine,
    session,
    span,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from starter.client import HostlerClient
    from starter.results import Life


def wait(
    ctx: typer.Context,
    kind: KindArgument,
    name: NameArgument = None,
    until: Annotated[
        str, typer.Option("--for", help="phase=Running (or another phase), or deleted.")
    ] = "phase=Running",
    timeout: Annotated[
        str, typer.Option("--timeout", help="Give up after so long (20m, 1h30m): exit code 124.")
    ] = "20m",
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
) -> None:
    """Wait until a machine is in a phase, or gone.

    Exit code 0: reached; 1: it ended otherwise, or cannot come there any more; 124: not in time.
    """
    machine = one_machine(kind, name)
    goal = parse_goal(until)
    limit = span(timeout)

    async def body(client: HostlerClient) -> None:
        await wait_for(client, machine, goal, limit)

    session(ctx, cluster, settings).run(body)


def parse_goal(text: str) -> str:
    """`phase=Running` to Running, `deleted` (and kubectl's `delete`) to deleted. Raises a usage error."""
    from resources.machine import Phase

    if text in ("delete", "deleted"):
        return "deleted"
    word, _, value = text.partition("=")
    phase = next((p for p in Phase if p.value.lower() == value.lower()), None)
    if word != "phase" or phase is None:
        raise typer.BadParameter(f"--for={text}: write deleted, or phase= and one of {', '.join(Phase)}")
    return phase


async def wait_for(
    client: HostlerClient, machine: str, goal: str, limit: timedelta | None, cluster: str | None = None
) -> None:
    """Waits, with progress, and prints the end as kubectl does."""
    from starter.output import Busy

    async with Busy(f"machine/{machine}: waiting") as busy:

        async def progress(life: Life) -> None:
            busy.text = f"machine/{machine}: {_where(life)}"

        await client.wait(machine, goal, timeout=limit, progress=progress, cluster=cluster)
        busy.echo(f"machine/{machine} {'deleted' if goal == 'deleted' else f'is {goal}'}")


def _where(life: Life) -> str:
    """Phase, reason, and what the activities that do not get on say."""
    words = life.summary.phase + (f" ({life.summary.reason})" if life.summary.reason else "")
    blocked = [f"{p.type}, attempt {p.attempt}: {p.last_failure}" for p in life.pending if p.last_failure]
    return "; ".join([words, *blocked])
