"""Whether the control plane lends a machine to a config pool, whose update restarts it: only while all others are ready
and nothing is being replaced, one at a time, and where its etcd is guarded, only while the others' members are a quorum
(I14)."""

from __future__ import annotations

from planners.control_plane import gates
from planners.control_plane.etcd import refusal_to_restart
from planners.control_plane.view import Observed
from planners.words import named, some


def refusal_to_lend(observed: Observed, machine: str) -> str:
    """Why the machine is not lent now, in words; "" where it is. A machine that is lent is not ready here."""
    if all(host.name != machine for host in observed.hosts):
        return f"{machine} is not a machine of the control plane"
    if (gate := gates.closed(observed)) is not None:
        return gate.message
    if observed.unseen:
        return observed.unseen
    others = [h for h in observed.hosts if h.name != machine]
    if leaving := [h.name for h in observed.hosts if h.leaving]:
        return f"a machine of the control plane is being replaced: {named(leaving)}"
    if away := [h.name for h in others if not h.ready]:
        return f"one machine of the control plane may be away at a time, and {named(away)} is not ready, or lent"
    if empty := [i for i, hosts in observed.indexes.items() if not hosts]:
        return f"index {empty[0]} has no machine"
    if observed.surge > 0:
        return f"{some(observed.surge)} more than replicas: a replacement is not over"
    if len(others) < observed.quorum:
        return f"without it {some(len(others), 'machine')} would be ready, and a quorum is {observed.quorum}"
    return refusal_to_restart(observed, machine) if observed.guarded else ""
