"""RollingUpdate: one index at a time, its replacement first.

Source: seed 001's chart, with what OpenShift adds to it (a roll-back removes what never became ready; of several
up-to-date machines the oldest goes) and without what it lacks: a victim always leaves a ready machine in its index that
stays, and the set keeps its quorum. Upstream lets two indexes move in one pass (C-R17, C-R19, C-R23); the seed's text
does not.
"""

from __future__ import annotations

from planners.control_plane.view import Host, Observed, going, replacement, stays_ready
from planners.fleet.steps import Wait
from planners.words import some

MAX_SURGE = 1


def victim(observed: Observed) -> tuple[Host, str] | Wait | None:
    """The machine to mark for deletion now, and why; or why it has to wait."""
    found = next((v for hosts in observed.indexes.values() if (v := _victim_of(hosts)) is not None), None)
    if found is None:
        return None
    host, why = found
    if first := going(observed):
        return Wait(
            "ControlPlaneLeaving",
            f"{host.name} is to go next: {why}; one control-plane machine leaves at a time, and {first[0].name} does",
        )
    if host.ready and observed.serving - 1 < observed.quorum:
        return Wait("BelowQuorum", below_quorum(observed, host))
    return host, why


def below_quorum(observed: Observed, host: Host) -> str:
    return (
        f"{host.name} stays: without it {some(observed.serving - 1, 'machine')} would be ready, and a quorum of "
        f"{observed.replicas} is {observed.quorum}"
    )


def _victim_of(hosts: tuple[Host, ...]) -> tuple[Host, str] | None:
    """The machine of an index that may go. A sole machine never does."""
    staying = [h for h in hosts if not h.leaving]
    outdated = [h for h in staying if h.outdated]
    new = replacement(hosts)
    if outdated and new is not None and new.ready:
        return outdated[0], f"its replacement {new.name} is ready"
    for host in sorted(outdated, key=lambda h: h.ready):
        if stays_ready(hosts, host):
            # Also one of two that are ready: the template was changed once more before the first one was gone.
            return host, f"it is outdated{'' if host.ready else ' and not ready'}, and its index has a ready machine"
    updated = [h for h in staying if h.updated and h.ready]
    if len(updated) > 1:
        return updated[0], f"{updated[-1].name} is up to date too, and an index needs one machine"
    return None


def due(observed: Observed) -> tuple[int, str] | Wait | None:
    """The index that gets a replacement now, and why; or why it has to wait. Empty indexes are not its matter."""
    wanting = [i for i, hosts in observed.indexes.items() if hosts and _wants(hosts)]
    busy = {i: words for i, hosts in observed.indexes.items() if (words := _busy(hosts))}
    if not wanting:
        return next((Wait("ReplacementComing", words) for words in busy.values()), None)
    index = min(wanting, key=lambda i: _order(i, observed.indexes[i]))
    if busy:
        return Wait("ReplacementComing", f"index {index} is next; {next(iter(busy.values()))}")
    if observed.surge >= MAX_SURGE:
        return surge_used(observed, index)
    return index, _why(observed.indexes[index])


def surge_used(observed: Observed, index: int) -> Wait:
    count, most = len(observed.hosts), observed.replicas + MAX_SURGE
    return Wait("SurgeUsed", f"index {index} is next; there are {count} machines, and at most {most} at a time")


def _wants(hosts: tuple[Host, ...]) -> bool:
    return any(h.to_be_replaced for h in hosts) and replacement(hosts) is None


def _busy(hosts: tuple[Host, ...]) -> str:
    """What an index is in the middle of; "" where it rests. An index that only wants a replacement rests."""
    new = replacement(hosts)
    old = [h for h in hosts if h is not new]
    if new is not None and not new.ready:
        return f"{new.name} is not ready"
    if new is not None and old:
        return f"{old[0].name} is still there beside {new.name}"
    return ""


def _order(index: int, hosts: tuple[Host, ...]) -> tuple[bool, bool, int]:
    """What a person deleted first, then what is not ready: neither makes the set weaker. Then by index."""
    return not any(h.leaving for h in hosts), any(h.ready for h in hosts), index


def _why(hosts: tuple[Host, ...]) -> str:
    gone = next((h for h in hosts if h.leaving), None)
    return f"{gone.name} is being deleted" if gone else f"{hosts[0].name} is outdated: {hosts[0].outdated}"
