"""The plan of a control plane: one pure function, used by its workflow, by `--dry-run` and by tests.

A plan that is carried out and made again comes to nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from planners.control_plane import gates, holds, on_delete, rolling
from planners.control_plane.status import complete
from planners.control_plane.view import Host, Observed, going
from planners.fleet import pace
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, LiftHold, Plan, Step, Wait
from planners.words import named
from resources.control_plane.spec import State, UpdateStrategy
from resources.machine.placement import Placement
from resources.machine.preservation import PreservedBy

WORSE = ("BelowQuorum", "EtcdQuorumLost", "EtcdQuorumAtRisk", "EtcdTrouble")
"""Waits that are worse than a pause: a person must look, whoever paused it."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do now, why, and what is waited for. Total: every state of a control plane has a plan."""
    lifted, held = holds.lift(observed)
    what = {True: "is drained, and kept", False: "goes"}
    steps: list[Step] = [LiftHold((h.name,), "HoldLifted", f"{h.name} {what[h.wanted]}: {why}") for h, why in lifted]
    if observed.deleted:
        return Plan(tuple(steps), tuple(held))
    if granted := observed.granting:
        words = f"Preserving {named(granted)}, which failed and is drained: somebody asked for it"
        steps.append(GrantPreservation(granted, PreservedBy.ASKED, "PreservedOnRequest", words))
    changes, waits = _what_else(observed, held, now)
    if observed.preserved:
        words = f"Failed and kept for inspection, beside the machine that takes its place: {named(observed.preserved)}"
        waits = [*waits, Wait("FailedPreserved", words)]
    made = Plan((*steps, *changes), tuple(dict.fromkeys(waits)))
    return replace(made, next_look=_next_look(observed, now), complete=complete(observed))


def _what_else(observed: Observed, held: list[Wait], now: datetime) -> tuple[list[Step], list[Wait]]:
    """The changes beyond holds, and all waits, the one that stops most first."""
    if observed.state is State.INACTIVE:
        return [], [*held, Wait("Inactive", "it only looks on: make spec.state Active to let it replace machines")]
    if (gate := gates.closed(observed)) is not None:
        return [], [gate, *held]
    if observed.unseen:
        return [], [Wait("Unreachable", f"{observed.unseen}; nothing is replaced on old news"), *held]
    if observed.lent:
        words = f"{named(observed.lent)} is lent to a config pool: nothing is replaced until it is back"
        return [], [Wait("MachinesLent", words), *held]
    steps, waits = _changes(observed, now, at_once=bool(observed.paused) and observed.worst_first)
    if observed.paused and steps:
        would = "; ".join(s.message for s in steps)
        reason = "RolloutPaused" if observed.paused_alone else "ClusterPaused"
        paused = Wait(reason, f"{observed.paused}. Otherwise: {would}")
        worse = [w for w in (*held, *waits) if observed.worst_first and w.reason in WORSE]
        return [], [*worse, paused, *(w for w in (*held, *waits) if w not in worse)]
    return steps, [*held, *waits]


def _changes(observed: Observed, now: datetime, at_once: bool = False) -> tuple[list[Step], list[Wait]]:
    """What would change, and what is waited for. `at_once`: whatever the pace of creations, which is no reason while
    none is made anyway."""
    deletions, waits = _deletions(observed)
    due = [(i, f"index {i} is empty") for i, hosts in observed.indexes.items() if not hosts]
    if observed.strategy is UpdateStrategy.ON_DELETE:
        due += on_delete.due(observed)
        waits += on_delete.waits(observed)
    elif due:  # an empty index comes first
        may = max(0, rolling.MAX_SURGE - observed.surge)
        due, later = due[:may], due[may:]
        waits += [rolling.surge_used(observed, index) for index, _ in later[:1]]
    elif not deletions:
        found = rolling.due(observed)
        if isinstance(found, Wait):
            waits.append(found)
        elif found is not None and observed.frozen:
            waits.append(Wait("Frozen", f"Frozen {observed.frozen}: no replacement begins for index {found[0]}"))
        elif found is not None:
            due.append(found)
    creations, slowed = _creations(observed, due, len(due) if at_once else _may_create(observed, now))
    return [*deletions, *creations], [*waits, *slowed]


def _deletions(observed: Observed) -> tuple[list[Step], list[Wait]]:
    """At most one machine is marked for deletion: an unhealthy one that asks, or, rolling, one that is replaced."""
    if observed.strategy is UpdateStrategy.ROLLING_UPDATE:
        found = rolling.victim(observed)
        if isinstance(found, Wait):
            return [], [found]
        if found is not None:
            host, why = found
            return [Delete((host.name,), "Replaced", f"{host.name} is deleted: {why}")], []
    ill = sorted((h for h in observed.hosts if h.asks and not h.leaving), key=lambda h: (h.index, h.name))
    if not ill:
        return [], []
    return _repair(observed, ill[0])


def _repair(observed: Observed, host: Host) -> tuple[list[Step], list[Wait]]:
    """An unhealthy machine is marked for deletion, and goes when its index has a ready replacement. One at a time, and
    only while the others are a quorum: where they are none, a person decides."""
    if first := going(observed):
        words = f"{host.name} is unhealthy; {first[0].name} goes first, one control-plane machine at a time"
        return [], [Wait("ControlPlaneLeaving", words)]
    if observed.serving - host.ready < observed.quorum:
        words = (
            f"{host.name} is unhealthy, and the other ready machines are no quorum of {observed.replicas}: a person "
            "has to judge what is left of etcd; hostler delete machine replaces one"
        )
        return [], [Wait("BelowQuorum", words)]
    if host.wanted:
        words = (
            f"{host.name} is unhealthy and becomes Failed: it is replaced, and kept, as somebody asked to preserve it"
        )
        return [GrantPermit((host.name,), "RepairGranted", words)], []
    message = f"{host.name} is deleted: it is unhealthy"
    return [Delete((host.name,), "Unhealthy", message, repair=True, permitted=True)], []


def _coming(observed: Observed) -> int:
    return sum(h.pending and not h.joined for h in observed.hosts)


def _may_create(observed: Observed, now: datetime) -> int:
    return pace.allowance(pace.of(observed.pace, observed.revision), _coming(observed), now)


def _creations(observed: Observed, due: list[tuple[int, str]], may: int) -> tuple[list[Step], list[Wait]]:
    speed = pace.of(observed.pace, observed.revision)
    steps: list[Step] = [
        Create(
            1,
            observed.revision,
            "IndexFilled",
            f"a machine is created for index {index}: {why}",
            Placement(index=index, failure_domain=observed.domains.get(index, "")),
        )
        for index, why in due[:may]
    ]
    if not due[may:]:
        return steps, []
    rest = named([str(index) for index, _ in due[may:]])
    words = speed.message or f"{_coming(observed) + len(steps)} on their way"
    return steps, [Wait(speed.reason or "SlowStart", f"index {rest} waits for a machine: {words}")]


def _next_look(observed: Observed, now: datetime) -> datetime | None:
    times = (observed.pace.until, *(host.ready_until for host in observed.hosts))
    return min((t for t in times if t is not None and t > now), default=None)
