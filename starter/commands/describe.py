"""hostler describe"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import (
    candidates,
    classes,
    clusters,
    config_pool_page,
    control_plane_page,
    machine_configs,
    pool_page,
    worker_pools,
)
from starter.commands.blocks import command
from starter.commands.common import NamesArgument, Reading, Session, named, one, target, targets
from starter.commands.kinds import (
    CLASS,
    CLUSTER,
    CONFIG_OBJECTS,
    CONFIG_POOL,
    CONTROL_PLANE,
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE,
    POOL,
    WORKER_POOL,
)

if TYPE_CHECKING:
    from resources.journal import Happening
    from resources.machine.state import MachineState, UpdateTrouble, WaitingFor
    from starter.sdk.client import HostlerClient
    from starter.sdk.control_plane.results import ControlPlaneDescription
    from starter.sdk.machine_config.results import ConfigPoolDescription
    from starter.sdk.pools.results import PoolDescription
    from starter.sdk.results import ClassDescription, ClusterDescription, Description, PendingActivity

KINDS = (MACHINE, POOL, WORKER_POOL, CONTROL_PLANE, CLASS, CLUSTER, CONFIG_POOL, *CONFIG_OBJECTS)
RECENT = 10
"""Journal entries that `describe` shows; `events` has them all."""
ABOVE = "as above"
"""Stands instead of a message that is already under *Waiting for*: a page is one screen."""


@command
def describe(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="machine, pool, workerpool, controlplane, class, cluster, mcp, mc, kubeletconfig or controllerconfig; "
            "also machine/NAME.",
            autocompletion=candidates.kinds(
                *(MACHINE, "pool", WORKER_POOL, "controlplane", "class", CLUSTER, "mcp", "mc"),
                *(KUBELET_CONFIG, CONTROLLER_CONFIG),
            ),
        ),
    ],
    names: NamesArgument = None,
    here: Reading,
) -> None:
    """Show everything about machines, pools, worker pools, the control plane, classes, config pools (mcp), machine
    configs (mc, kubeletconfig, controllerconfig) or a cluster: what each is, what it waits for and why, and what
    happened to it.

    Without a worker it says so and shows what Temporal knows; for a machine that is gone, what is left of it. `describe
    cluster` without NAME shows the default cluster.
    """
    wanted = [described(here, kind, None)] if not names and "/" not in kind else _each(kind, names or [])

    async def body(client: HostlerClient | None) -> None:
        from starter.output import Busy
        from starter.sdk.errors import NotFound

        missing, shown = [], False
        for which, asked in wanted:
            async with Busy(f"asking {which} {asked}") as busy:
                try:
                    lines = await _page(here, client, which, asked)
                except NotFound as e:
                    missing.append(str(e))
                    continue
                busy.say(*([""] if shown else []), *lines)
                shown = True
        if missing:
            raise NotFound("\n".join(missing))

    if {which for which, _ in wanted} <= {*CONFIG_OBJECTS}:  # the cluster's API alone is asked, as by `get`
        asyncio.run(body(None))
    else:
        here.run(body)


def _each(kind: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Kind and name of each. Raises a usage error."""
    kinds = targets(kind, names, KINDS)
    return [(which, name) for which, of in kinds for name in named(which, of)]


async def _page(here: Session, client: HostlerClient | None, which: str, asked: str) -> list[str]:
    if client is None or which in CONFIG_OBJECTS:
        return await machine_configs.page_of(which, here, asked, datetime.now(UTC))
    if which == CLUSTER:
        return cluster_page(await client.clusters.describe(asked), datetime.now(UTC))
    if which == POOL:
        return pool_lines(await client.pools.describe(asked), datetime.now(UTC))
    if which == WORKER_POOL:
        return await worker_pools.page(client, asked, datetime.now(UTC))
    if which == CONTROL_PLANE:
        return control_plane_lines(await client.control_planes.describe(asked), datetime.now(UTC))
    if which == CONFIG_POOL:
        return config_pool_lines(await client.config_pools.describe(asked), datetime.now(UTC))
    if which == CLASS:
        of = await client.classes.describe(asked)
        return class_page(of, datetime.now(UTC), await classes.secrets(client.connection.settings, of))
    return page(await client.describe(asked), datetime.now(UTC))


def described(here: Session, kind: str, name: str | None) -> tuple[str, str]:
    """Kind and name; the default cluster needs no name."""
    if target(kind, [name], KINDS) == (CLUSTER, []):
        return CLUSTER, here.cluster or here.settings.default_cluster
    return one(kind, name, KINDS)


def page(found: Description, now: datetime) -> list[str]:
    """The whole answer, as lines."""
    from starter.output import fields, unanswered

    lines = fields(_head(found, now))
    if found.no_answer:
        lines += unanswered(found.no_answer, "The following is what Temporal knows without a worker.")
    if found.life.running and found.life.task_attempt > 1:
        lines += [
            "",
            f"The workflow's own code fails (attempt {found.life.task_attempt}); the web UI shows the failure.",
        ]
    if found.result is not None or found.failure:
        lines += _left(found)
    waiting = None
    if found.state is not None and not found.no_answer:
        waiting = found.state.status.waiting_for if found.life.running else None
        lines += _status(found.state, waiting, found, now)
    lines += _pending(found.life.pending, now, above=waiting is not None)
    journal = found.state.journal if found.state else found.result.journal if found.result else []
    lines += _journal(journal, now, waiting)
    if found.web:
        lines += ["", f"Web UI: {found.web}"]
    return lines


def _journal(journal: Sequence[Happening], now: datetime, waiting: WaitingFor | None = None) -> list[str]:
    if not journal:
        return []
    rows = [(_age(now, h.time), h.reason, _once(h.message, waiting)) for h in journal[-RECENT:]]
    return ["", "Journal:", *_table(("AGE", "REASON", "MESSAGE"), rows)]


def pool_lines(found: PoolDescription, now: datetime) -> list[str]:
    """The whole answer for a pool, as lines."""
    journal = found.state.journal if found.state and not found.no_answer else []
    lines = [*pool_page.about(found, now), *_pending(found.pending, now), *_journal(journal, now)]
    lines += pool_page.commands(found)
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines


def control_plane_lines(found: ControlPlaneDescription, now: datetime) -> list[str]:
    """The whole answer for a control plane, as lines."""
    journal = found.state.journal if found.state and not found.no_answer else []
    lines = [*control_plane_page.about(found, now), *_pending(found.pending, now), *_journal(journal, now)]
    lines += control_plane_page.commands(found)
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines


def config_pool_lines(found: ConfigPoolDescription, now: datetime) -> list[str]:
    """The whole answer for a config pool, as lines."""
    journal = found.state.journal if found.state else []
    lines = [*config_pool_page.about(found, now), *_pending(found.pending, now), *_journal(journal, now)]
    lines += config_pool_page.commands(found)
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines


def class_page(found: ClassDescription, now: datetime, secrets: Sequence[str] = ()) -> list[str]:
    """The whole answer for a class, as lines. `secrets`: what is wrong with those that it names."""
    journal = found.state.journal if found.state else []
    lines = [*classes.about(found, now), *secrets, *_pending(found.pending, now), *_journal(journal, now)]
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines


def cluster_page(found: ClusterDescription, now: datetime) -> list[str]:
    """The whole answer for a cluster, as lines."""
    journal = found.state.journal if found.state else []
    lines = [*clusters.about(found, now), *_pending(found.pending, now), *_journal(journal, now)]
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines


def _head(found: Description, now: datetime) -> list[tuple[str, str]]:
    from resources.machine.advice import carried
    from starter.output import moment

    summary, state = found.life.summary, found.state
    asked = state if state is not None and not found.no_answer else None
    phase = asked.status.shown_phase if asked else summary.phase
    if not found.life.running:
        phase = f"{phase}, when its workflow ended" if found.failure and phase else "(gone)"
    snapshot = state.machine_class if state else None
    machine_class = snapshot.words if snapshot else summary.machine_class
    created = state.created if state and state.created else summary.created
    return [
        ("Name", summary.name),
        ("Cluster", summary.cluster),
        ("Phase", phase),
        ("Reason", summary.reason if found.no_answer else ""),
        _owner(state, summary.pool),
        ("Class", machine_class),
        ("VM carries", carried(asked) if asked else ""),
        ("Node", _node(asked) if asked else summary.node),
        ("Provider ID", (asked.status.provider_id if asked else None) or summary.provider_id),
        ("Addresses", ", ".join(asked.status.addresses) if asked else ""),
        ("Labels", "\n".join(f"{k}={v}" for k, v in sorted(state.labels.items())) if state else ""),
        ("UID", state.uid if state else found.result.uid if found.result else ""),
        ("Created", moment(created, now)),
        ("Deadline", moment(summary.deadline, now) if found.no_answer else ""),
        ("Preserved until", moment(summary.preserved_until, now) if found.no_answer else ""),
        ("Ended", moment(found.life.closed, now)),
    ]


def _owner(state: MachineState | None, listed: str) -> tuple[str, str]:
    """`Pool: demo, revision 2`; without a worker, what HostlerPool says."""
    from resources.owner import Owner

    owner = state.owner if state else Owner.read(listed) if listed else None
    revision = f", revision {state.revision}" if state else ""
    return (owner.word.capitalize(), f"{owner.name}{revision}") if owner else ("Pool", "")


def _node(state: MachineState) -> str:
    """The node. Until it joins, its name is what the cloud has promised."""
    name = state.status.node_name
    there = state.joined or (state.node is not None and state.node.exists)
    return f"{name} (expected, not joined)" if name and not there else name or ""


def _status(state: MachineState, waiting: WaitingFor | None, found: Description, now: datetime) -> list[str]:
    """What only the workflow knows. A machine that has ended waits for nothing."""
    from starter.commands import preserved
    from starter.commands.hook import hook_lines
    from starter.output import fields, moment

    status, life, lines = state.status, found.life, []
    held = found.held.reason if found.held else ""
    if waiting is not None:
        lines += ["", "Waiting for:", *fields(_waiting(state, waiting, life.pending, now, held), 2)]
    if found.held is not None:
        words = f"{state.owner} waits: {found.held.reason}, {moment(found.held.since, now)}\n{found.held.message}"
        lines += ["", *fields([("Not replaced", words)])]
    if (last := status.last_operation) is not None:
        code = f", {last.error_code}" if last.error_code else ""
        words = f"{last.type} {last.state}{code}, {moment(last.time, now)}"
        more = "" if _said(last.description, waiting) else last.description
        lines += ["", *fields([("Last operation", f"{words}\n{more}".rstrip())])]
    lines += preserved.section(state, now) if life.running else []
    lines += _hot_update(status.update_trouble, waiting, now) if life.running else []
    if state.parked:
        lines += ["", f"Parked: {state.parked}", f"Once a fixed worker runs: hostler renew machine {state.name}"]
    if (deletion := state.deletion) is not None:
        by = f" by {deletion.requested_by}" if deletion.requested_by else ""
        why = f": {deletion.reason}" if deletion.reason else ""
        lines += [
            "",
            f"Deletion: requested{by}, {moment(deletion.time, now)}{', with force' if deletion.force else ''}{why}",
        ]
    lines += hook_lines(state, now) if life.running else []
    if status.conditions:
        trouble = status.update_trouble
        rows = [
            (
                c.type,
                c.reason,
                _age(now, c.since),
                ABOVE if trouble and c.message == trouble.message else _once(c.message, waiting),
            )
            for c in status.conditions
        ]
        lines += ["", "Conditions:", *_table(("TYPE", "REASON", "SINCE", "MESSAGE"), rows)]
        lines += _advice(state, held) if life.running else []
    if life.running and (times := _times(status.deadlines, waiting, now)):
        lines += ["", "Times:", *fields(times, 2)]
    if status.kept:
        lines += ["", "Kept:", *(f"  {k}" for k in status.kept)]
    return lines


def _hot_update(trouble: UpdateTrouble | None, waiting: WaitingFor | None, now: datetime) -> list[str]:
    """A hot update that has failed: why, and what became of each resource."""
    from starter.output import fields, moment

    if trouble is None:
        return []
    pairs = [
        ("Reason", trouble.reason),
        ("Message", _once(trouble.message, waiting)),
        ("Since", moment(trouble.since, now)),
        ("Tried", moment(trouble.time, now)),
        ("Next try", moment(trouble.next_try, now) or "when the class changes"),
    ]
    rows = [(r.id, r.kind, ", ".join(r.changed), r.error_words) for r in trouble.resources]
    table = _table(("RESOURCE", "KIND", "CHANGED", "ERROR"), rows) if rows else []
    return ["", "Hot update:", *fields(pairs, 2), *table]


def _waiting(
    state: MachineState, waiting: WaitingFor, pending: tuple[PendingActivity, ...], now: datetime, held: str
) -> list[tuple[str, str]]:
    from starter.output import moment

    return [
        ("Reason", waiting.reason),
        ("Message", waiting.message),
        ("Seen last", "\n".join(p.last_failure for p in pending if p.last_failure and not p.aside)),
        ("Since", moment(waiting.since, now)),
        ("Next try", moment(waiting.next_try, now)),
        ("What can be done", _step(state, waiting.reason, held)),
    ]


def _times(deadlines: dict[str, datetime], waiting: WaitingFor | None, now: datetime) -> list[tuple[str, str]]:
    """What comes when, soonest first; the next try of a wait has a line there."""
    from resources.reasons import TIMES
    from starter.output import moment

    said = waiting.next_try if waiting else None
    due = sorted((time, name) for name, time in deadlines.items() if name not in ("retry", "update") or time != said)
    return [(TIMES.get(name, name), moment(time, now)) for time, name in due]


def _once(message: str, waiting: WaitingFor | None) -> str:
    return ABOVE if _said(message, waiting) else message


def _said(message: str, waiting: WaitingFor | None) -> bool:
    """Whether the wait's message begins with this one; the wait's goes on with what comes next."""
    return waiting is not None and bool(message) and waiting.message.startswith(message)


def _advice(state: MachineState, held: str) -> list[str]:
    """What can be done about conditions that do not go away on their own; the wait has its own line."""
    from resources.reasons import nothing_to_do

    waiting = state.status.waiting_for
    shown = [
        c
        for c in state.status.conditions
        if not nothing_to_do(c.reason)
        and not (waiting and waiting.reason == c.reason)
        and not (c.type == "Failed" and _said(c.message, waiting))
    ]
    return [f"  What can be done about {c.reason}: {_step(state, c.reason, held)}" for c in shown]


def _step(state: MachineState, reason: str, held: str) -> str:
    from resources.machine.advice import step

    return step(state, reason, page=MACHINE, held=held)


def _pending(pending: tuple[PendingActivity, ...], now: datetime, above: bool = False) -> list[str]:
    """`above`: what they said last is already under *Waiting for*."""
    from starter.output import relative

    shown = [p for p in pending if not p.aside or p.last_failure]
    if not shown:
        return []
    rows = [
        (
            p.type,
            str(p.attempt),
            "running" if p.running else relative(p.next_try, now) or "waits",
            ABOVE if above and p.last_failure and not p.aside else p.last_failure or "-",
        )
        for p in shown
    ]
    return ["", "Pending activities:", *_table(("ACTIVITY", "ATTEMPT", "NEXT TRY", "SEEN LAST"), rows)]


def _left(found: Description) -> list[str]:
    from resources.owner import Owner
    from resources.reasons import Situation, next_step

    summary, result = found.life.summary, found.result
    if result is None:
        reason = {"TERMINATED": "Terminated", "FAILED": "WorkflowFailed"}.get(found.life.status)
        lines = ["", f"{found.failure[:1].upper()}{found.failure[1:]}."]
        at = Situation(Owner.words(summary.pool))
        todo = next_step(reason, summary.cluster, summary.name, at=at) if reason else ""
        return [*lines, f"What can be done: {todo}"] if todo else lines
    if not result.kept:
        return ["", "Nothing is left."]
    return ["", "Kept, because its spec says so:", *(f"  {k}" for k in result.kept)]


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from starter.output import Table

    return [f"  {line}" for line in Table(header).lines(rows)]


def _age(now: datetime, time: datetime) -> str:
    from starter.output import age

    return age(now - time)
