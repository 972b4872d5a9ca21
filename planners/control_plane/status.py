"""What a control plane says of itself, counted by index: upstream's sums can say that all is done while an old machine
lives, or wait for no machine at all (reference: OpenShift's status.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from planners.control_plane import gates
from planners.control_plane.view import Host, Observed
from planners.words import named
from resources.control_plane.spec import State
from resources.control_plane.state import SetCondition
from resources.machine.state import Phase

GRACE = timedelta(minutes=20)
"""How long the Node of a Running machine may be NotReady: a reboot is no reason to count it out. Upstream's
unreadyNodeGracePeriod."""


def is_ready(phase: Phase, node_ready: bool, not_ready_since: datetime | None, now: datetime) -> bool:
    """Whether a machine counts as ready: Running with its Node Ready, or NotReady for less than GRACE; and while it is
    being deleted as long as its Node is Ready. `not_ready_since` None: nobody knows since when."""
    if phase is Phase.TERMINATING:
        return node_ready
    if phase not in (Phase.RUNNING, Phase.UNKNOWN):
        return False
    return node_ready or (not_ready_since is not None and now - not_ready_since < GRACE)


@dataclass(frozen=True)
class HeadCount:
    replicas: int
    ready: int
    updated: int
    """Ready and as asked for, those that leave left out."""
    unavailable: int
    """How many indexes have no ready machine."""
    conditions: tuple[SetCondition, ...]
    """Available, Degraded, Progressing."""


def done(hosts: tuple[Host, ...]) -> bool:
    """Whether an index has one machine, which is ready and as asked for, and nothing else."""
    return len(hosts) == 1 and hosts[0].updated and hosts[0].ready


def complete(observed: Observed) -> bool:
    return not observed.deleted and all(done(hosts) for hosts in observed.indexes.values())


def status(observed: Observed) -> HeadCount:
    updated = sum(h.updated and h.ready for h in observed.hosts)
    unavailable = sum(not any(h.ready for h in hosts) for hosts in observed.indexes.values())
    ready = sum(h.ready for h in observed.hosts)
    conditions = (_available(unavailable), _degraded(observed), _progressing(observed))
    return HeadCount(len(observed.hosts), ready, updated, unavailable, conditions)


def _available(unavailable: int) -> SetCondition:
    if unavailable:
        return SetCondition(
            type="Available",
            status=False,
            reason="UnavailableReplicas",
            message=f"Missing {unavailable} available replica(s)",
        )
    return SetCondition(type="Available", status=True, reason="AllReplicasAvailable")


def _degraded(observed: Observed) -> SetCondition:
    if (gate := gates.closed(observed)) is not None:
        return SetCondition(type="Degraded", status=True, reason=gate.reason, message=gate.message)
    return SetCondition(type="Degraded", status=False, reason="AsExpected")


def _progressing(observed: Observed) -> SetCondition:
    if gates.closed(observed) is not None and observed.state is State.ACTIVE:
        return SetCondition(type="Progressing", status=False, reason="OperatorDegraded")
    waiting = [hosts for hosts in observed.indexes.values() if not any(h.updated and h.ready for h in hosts)]
    if waiting:
        words = f"Observed {len(waiting)} replica(s) in need of update"
        return SetCondition(type="Progressing", status=True, reason="NeedsUpdateReplicas", message=words)
    extra = [h.name for hosts in observed.indexes.values() for h in _beside_the_one(hosts)]
    if extra:
        words = f"Waiting for {len(extra)} old replica(s) to be removed: {named(extra)}"
        return SetCondition(type="Progressing", status=True, reason="ExcessReplicas", message=words)
    return SetCondition(type="Progressing", status=False, reason="AllReplicasUpdated")


def _beside_the_one(hosts: tuple[Host, ...]) -> list[Host]:
    """The machines of an index beside the newest that is ready and as asked for."""
    one = [h for h in hosts if h.updated and h.ready][-1]
    return [h for h in hosts if h is not one]
