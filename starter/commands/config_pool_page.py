"""hostler describe mcp: which node has which config, who blocks, and what can be done, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from starter.commands.page import next_steps

if TYPE_CHECKING:
    from resources.fleet.state import FleetWait
    from resources.machine_config.node import ConfigNode
    from starter.sdk.machine_config.results import ConfigPoolDescription

NODES = 30
"""Nodes that have a line of their own: first those of which there is something to say."""
SOURCES = 10
NODE_COLUMNS = ("NODE", "ZONE", "CURRENT", "DESIRED", "STATE", "READY", "WHAT")


def about(found: ConfigPoolDescription, now: datetime) -> list[str]:
    """The lines that only a config pool has."""
    from starter.output import fields, unanswered

    lines = fields(_head(found, now))
    if found.unseen:
        lines += ["", f"Not seen: {found.unseen}.", f"This is what Hostler knew{_when(found, now)}."]
    elif found.no_answer:
        lines += unanswered(found.no_answer, "The following is what the cluster's API says.")
    elif not found.running and not found.attended:
        lines += ["", *_verdict(found)]
    if found.state is not None and found.state.parked:
        again = f"hostler renew mcp {found.name} --cluster {found.cluster}"
        lines += ["", f"Parked: {found.state.parked}", f"Once a fixed worker runs: {again}"]
    return [*lines, *_trouble(found), *waits(found, now), *nodes(found), *_drains(found, now), *_loans(found, now)]


def _head(found: ConfigPoolDescription, now: datetime) -> list[tuple[str, str]]:
    from starter.output import moment
    from starter.sdk.machine_config.results import numbers

    spec, status = found.pool.spec, found.pool.status
    sources = [s.name for s in spec.configuration.source]
    more = [f"and {len(sources) - SOURCES} more"] if len(sources) > SOURCES else []
    before = status.configuration.name
    return [
        ("Name", found.name),
        ("Cluster", found.cluster),
        ("Config", found.target or "none yet"),
        ("Made of", "\n".join([*sources[:SOURCES], *more])),
        ("All had last", before if before != found.target else ""),
        ("Nodes", numbers(found)),
        ("Chosen by", "" if found.unseen else ", ".join(spec.chosen_by) or "nothing: it has no nodes"),
        ("Max unavailable", _most(found)),
        ("Paused", "yes" if spec.paused else ""),
        ("Rendering", found.renders),
        ("Created", moment(found.pool.metadata.creation_timestamp, now)),
    ]


def _most(found: ConfigPoolDescription) -> str:
    given = found.pool.spec.max_unavailable
    written = "1 (the default)" if given is None else str(given)
    most = found.state.most if found.state is not None else 0
    return f"{written}: {most} of {len(found.nodes)} nodes" if most and isinstance(given, str) else written


def _when(found: ConfigPoolDescription, now: datetime) -> str:
    from starter.output import moment

    seen = found.state.seen if found.state is not None else None
    return f" at its last look, {moment(seen, now)}" if seen is not None else ""


def _verdict(found: ConfigPoolDescription) -> list[str]:
    from starter.sdk.machine_config.results import judge

    words = judge(found).words
    return [words] if words else []


def _trouble(found: ConfigPoolDescription) -> list[str]:
    """What cannot be rendered, and whose nodes several pools select."""
    from starter.sdk.machine_config.results import render_trouble

    lines = [f"Not rendered: {trouble}"] if (trouble := render_trouble(found)) else []
    lines += [f"Nobody's, for several pools select it: {words}" for words in found.contested]
    return ["", *lines] if lines else []


def waits(found: ConfigPoolDescription, now: datetime) -> list[str]:
    """What it waits for, since when, and what can be done."""
    return [line for wait in found.waits for line in _wait(found, wait, now)]


def _wait(found: ConfigPoolDescription, wait: FleetWait, now: datetime) -> list[str]:
    from resources.reasons import next_step
    from starter.output import fields, moment

    pairs = [
        ("Reason", wait.reason),
        ("Message", wait.message),
        ("Since", moment(wait.since, now)),
        ("What can be done", next_step(wait.reason, found.cluster, found.name, kind="mcp")),
    ]
    return ["", "Waiting for:", *fields(pairs, 2)]


def nodes(found: ConfigPoolDescription) -> list[str]:
    """Who is where: those of which there is something to say, then the others as far as there is room."""
    from starter.output import Table
    from starter.sdk.machine_config.results import words_of

    if found.unseen:
        return []
    if not found.nodes:
        return ["", "No node belongs to it."]
    told = [n for n in found.nodes if words_of(n, found.target)]
    shown = [*told, *(n for n in found.nodes if n not in told)][:NODES]
    rows = [_row(n, found) for n in shown]
    more = len(found.nodes) - len(shown)
    lines = [f"  {line}" for line in Table(NODE_COLUMNS).lines(rows)]
    return ["", "Nodes:", *lines, *([f"  and {more} more"] if more else [])]


def _row(n: ConfigNode, found: ConfigPoolDescription) -> tuple[str, ...]:
    from starter.sdk.machine_config.results import words_of

    desired = n.desired if n.desired != n.current else ""
    return (n.name, n.zone, n.current, desired, n.state, "yes" if n.ready else "no", words_of(n, found.target))


def _drains(found: ConfigPoolDescription, now: datetime) -> list[str]:
    from starter.output import Table, age

    if found.state is None or not found.state.drains:
        return []
    rows = [(name, d.wish, age(now - d.since), d.blocker) for name, d in sorted(found.state.drains.items())]
    return ["", "Drains:", *(f"  {line}" for line in Table(("NODE", "ASKED FOR", "AGE", "BLOCKED BY")).lines(rows))]


def _loans(found: ConfigPoolDescription, now: datetime) -> list[str]:
    from starter.output import Table, age

    if found.state is None or not found.state.loans:
        return []
    rows = [
        (machine, loan.owner, age(now - loan.asked), "yes" if loan.granted else "no", loan.refused)
        for machine, loan in sorted(found.state.loans.items())
    ]
    heads = ("MACHINE", "OWNER", "ASKED", "LENT", "REFUSED")
    return ["", "Borrowed from their owners:", *(f"  {line}" for line in Table(heads).lines(rows))]


def commands(found: ConfigPoolDescription) -> list[str]:
    """Commands to go on with, ready to be copied."""
    of = f"mcp/{found.name} --cluster {found.cluster}"
    shown: Sequence[tuple[str, str]] = [
        (f"hostler rollout status {of}", "follow the rollout"),
        (f"hostler rollout resume {of}", "let it go on")
        if found.pool.spec.paused
        else (f"hostler rollout pause {of}", "hold it up"),
        (f"hostler rollout history {of}", "list the configs that its nodes were given, and what became of that"),
    ]
    before = found.pool.status.configuration.name
    if found.target and before and before != found.target:
        shown = [*shown, (f"hostler mc diff {before} {found.target} --cluster {found.cluster}", "what changes")]
    return next_steps(shown)
