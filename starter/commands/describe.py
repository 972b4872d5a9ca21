"""hostler describe, hostler events"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import classes
from starter.commands.common import (
    CLASS,
    CLUSTER,
    MACHINE,
    ClusterOption,
    KindArgument,
    MachineArgument,
    NameArgument,
    SettingsOption,
    one,
    session,
)

if TYPE_CHECKING:
    from resources.machine import MachineState
    from resources.messages import Happening, Reachability
    from starter.client import HostlerClient
    from starter.results import ClassDescription, ClusterDescription, Description, Event, PendingActivity

RECENT = 10
"""Journal entries that `describe` shows; `events` has them all."""
INTERVAL = 1.0
"""Seconds between two looks of `events -w`."""


def describe(
    ctx: typer.Context,
    kind: KindArgument,
    name: NameArgument = None,
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
) -> None:
    """Tell everything of a machine, class or cluster: what it is, what it waits for and why, and what happened to it.

    Without a worker it says so and tells what Temporal has; of a machine that is gone, what is left of it.
    """
    which, asked = one(kind, name, (MACHINE, CLASS, CLUSTER))

    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy(f"asking {which} {asked}") as busy:
            if which == CLUSTER:
                lines = cluster_page(await client.clusters.describe(asked), datetime.now(UTC))
            elif which == CLASS:
                lines = class_page(await client.classes.describe(asked), datetime.now(UTC))
            else:
                lines = page(await client.describe(asked), datetime.now(UTC))
            busy.echo("\n".join(lines))

    session(ctx, cluster, settings).run(body)


def page(found: Description, now: datetime) -> list[str]:
    """The whole answer, as lines."""
    from starter.output import fields

    lines = fields(_head(found, now))
    if found.no_answer:
        lines += ["", f"No answer: {found.no_answer}.", "What follows is what Temporal knows without a worker."]
    if found.life.running and found.life.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.life.task_attempt}); the web UI shows where."]
    if found.result is not None or found.failure:
        lines += _left(found)
    if found.state is not None and not found.no_answer:
        lines += _status(found.state, now)
    lines += _pending(found.life.pending, now)
    lines += _journal(found.state.journal if found.state else found.result.journal if found.result else [], now)
    if found.web:
        lines += ["", f"Web UI: {found.web}"]
    return lines


def _journal(journal: Sequence[Happening], now: datetime) -> list[str]:
    if not journal:
        return []
    rows = [(f"{_age(now, h.time)}", h.reason, h.message) for h in journal[-RECENT:]]
    return ["", "Journal:", *_table(("AGE", "REASON", "MESSAGE"), rows)]


def class_page(found: ClassDescription, now: datetime) -> list[str]:
    """The whole answer for a class, as lines."""
    journal = found.state.journal if found.state else []
    lines = [*classes.about(found, now), *_pending(found.pending, now), *_journal(journal, now)]
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines


def cluster_page(found: ClusterDescription, now: datetime) -> list[str]:
    """The whole answer for a cluster, as lines."""
    from starter.output import fields, moment

    summary, state = found.summary, found.state
    pairs = [
        ("Name", summary.name),
        ("Phase", summary.phase),
        ("Machines", str(summary.machines)),
        ("In settings", "yes" if summary.configured else "no: nothing here says how to reach its API"),
        ("Ended", moment(found.ended, now)),
    ]
    if state is not None:
        pairs += [
            ("API server", _reachability(state.api, "APIUnreachable", summary.name, now)),
            *(
                (f"Cloud {account}", _reachability(cloud, "CloudUnreachable", summary.name, now))
                for account, cloud in sorted(state.clouds.items())
            ),
            ("VMs known", str(len(state.machines))),
            ("Nodes told of", str(len(state.cursor.told))),
        ]
    lines = fields(pairs)
    if found.no_answer:
        lines += ["", f"No answer: {found.no_answer}.", "What is above is what Temporal knows without a worker."]
    if found.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.task_attempt}); the web UI shows where."]
    if state is not None and state.parked:
        lines += [
            "",
            f"Stands still: {state.parked}",
            f"Once a fixed worker runs: hostler renew cluster {summary.name}",
        ]
    lines += _pending(found.pending, now) + _journal(state.journal if state else [], now)
    if found.web:
        lines += ["", f"Web UI: {found.web}"]
    return lines


def _reachability(news: Reachability | None, reason: str, cluster: str, now: datetime) -> str:
    """`reason`: of one that cannot be reached."""
    from resources.reasons import next_step
    from starter.output import moment

    if news is None:
        return "not known yet"
    if news.reachable:
        return f"answers\nsince {moment(news.time, now)}"
    words = f"cannot be reached: {news.message}\nsince {moment(news.time, now)}"
    return f"{words}\nwhat can be done: {next_step(reason, cluster)}"


def _head(found: Description, now: datetime) -> list[tuple[str, str]]:
    from starter.output import moment

    summary, state = found.life.summary, found.state
    asked = state if state is not None and not found.no_answer else None
    phase = (asked.status.phase if asked else summary.phase) if found.life.running else "(gone)"
    if summary.phase.startswith(f"{phase}:"):
        phase = summary.phase  # Running:Preserved
    snapshot = state.machine_class if state else None
    machine_class = f"{snapshot.name}, generation {snapshot.generation}" if snapshot else summary.machine_class
    created = state.created if state and state.created else summary.created
    return [
        ("Name", summary.name),
        ("Cluster", summary.cluster),
        ("Phase", str(phase)),
        ("Reason", summary.reason if found.life.running else ""),
        ("Class", machine_class),
        ("Node", (asked.status.node_name if asked else None) or summary.node),
        ("Provider ID", (asked.status.provider_id if asked else None) or summary.provider_id),
        ("Addresses", ", ".join(asked.status.addresses) if asked else ""),
        ("Labels", "\n".join(f"{k}={v}" for k, v in sorted(state.labels.items())) if state else ""),
        ("UID", state.uid if state else found.result.uid if found.result else ""),
        ("Created", moment(created, now)),
        ("Deadline", moment(summary.deadline, now) if found.no_answer else ""),
        ("Ended", moment(found.life.closed, now)),
    ]


def _status(state: MachineState, now: datetime) -> list[str]:
    """What only the workflow knows."""
    from resources.reasons import next_step
    from starter.output import fields, moment

    status, lines = state.status, []
    if (last := status.last_operation) is not None:
        code = f", {last.error_code}" if last.error_code else ""
        pairs = [
            (
                "Last operation",
                f"{last.type} {last.state}{code}, {moment(last.time, now)}\n{last.description}".rstrip(),
            ),
        ]
        lines += ["", *fields(pairs)]
    if (waiting := status.waiting_for) is not None:
        pairs = [
            ("Reason", waiting.reason),
            ("Message", waiting.message),
            ("Since", moment(waiting.since, now)),
            ("Next try", moment(waiting.next_try, now)),
            ("What can be done", next_step(waiting.reason, state.cluster, state.name)),
        ]
        lines += ["", "Waiting for:", *fields(pairs, 2)]
    if state.parked:
        lines += ["", f"Stands still: {state.parked}", f"Once a fixed worker runs: hostler renew machine {state.name}"]
    if (deletion := state.deletion) is not None:
        by = f" by {deletion.requested_by}" if deletion.requested_by else ""
        why = f": {deletion.reason}" if deletion.reason else ""
        lines += [
            "",
            f"Deletion: asked{by}, {moment(deletion.time, now)}{', with force' if deletion.force else ''}{why}",
        ]
    if status.conditions:
        rows = [(c.type, c.reason, _age(now, c.since), c.message) for c in status.conditions]
        lines += ["", "Conditions:", *_table(("TYPE", "REASON", "SINCE", "MESSAGE"), rows), *_advice(state)]
    if status.deadlines:
        due = sorted(status.deadlines.items(), key=lambda d: d[1])
        lines += ["", "Deadlines:", *fields([(name, moment(time, now)) for name, time in due], 2)]
    if status.kept:
        lines += ["", "Kept:", *(f"  {k}" for k in status.kept)]
    return lines


def _advice(state: MachineState) -> list[str]:
    """What can be done about conditions that do not go by themselves; the wait has its own line."""
    from resources.reasons import next_step, nothing_to_do

    waiting = state.status.waiting_for
    shown = [
        c
        for c in state.status.conditions
        if not nothing_to_do(c.reason) and not (waiting and waiting.reason == c.reason)
    ]
    return [f"  What can be done about {c.reason}: {next_step(c.reason, state.cluster, state.name)}" for c in shown]


def _pending(pending: tuple[PendingActivity, ...], now: datetime) -> list[str]:
    from starter.output import relative

    if not pending:
        return []
    rows = [
        (
            p.type,
            str(p.attempt),
            "running" if p.running else relative(p.next_try, now) or "waits",
            p.last_failure or "-",
        )
        for p in pending
    ]
    return ["", "Pending activities:", *_table(("ACTIVITY", "ATTEMPT", "NEXT TRY", "LAST FAILURE"), rows)]


def _left(found: Description) -> list[str]:
    from resources.reasons import next_step

    summary, result = found.life.summary, found.result
    if result is None:
        lines = ["", f"Ended: {found.failure}."]
        if found.life.status == "TERMINATED":
            lines.append(f"What can be done: {next_step('Terminated', summary.cluster, summary.name)}")
        return lines
    if not result.kept:
        return ["", "Nothing is left of it."]
    return ["", "Kept, because its spec says so:", *(f"  {k}" for k in result.kept)]


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from starter.output import Table

    return [f"  {line}" for line in Table(header).lines(rows)]


def _age(now: datetime, time: datetime) -> str:
    from starter.output import age

    return age(now - time)


def events(
    ctx: typer.Context,
    kind: MachineArgument,
    name: NameArgument = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on until the machine is gone, or Ctrl-C.")] = False,
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
) -> None:
    """Tell a machine's story: its journal, merged with the histories that Temporal still has, in time order."""
    machine = one(kind, name)[1]

    async def body(client: HostlerClient) -> None:
        from starter.output import Table

        table = Table(("TIME", "REASON", "MESSAGE"))
        told: set[Event] = set()
        while True:
            gone = not (await client.life(machine)).running  # before the story, so that its end is in it
            news = [e for e in await client.events(machine) if e not in told]
            rows = [(f"{e.time:%Y-%m-%d %H:%M:%S}Z", e.reason, e.message) for e in news]
            for line in table.lines(rows, header=not told) if news else []:
                typer.echo(line)
            told.update(news)
            if gone or not watch:
                return
            await asyncio.sleep(INTERVAL)

    session(ctx, cluster, settings).run(body)
