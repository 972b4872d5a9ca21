"""What has to be so before a control plane changes anything. A closed gate means Degraded: no machine is made, none is
marked for deletion. Each says how it is opened.

Source: OpenShift's validateClusterState; the first that is closed is the one that is told.
"""

from __future__ import annotations

from planners.control_plane.view import Host, Observed
from planners.fleet.steps import Wait
from planners.words import named, some
from resources.control_plane.spec import UpdateStrategy


def closed(observed: Observed) -> Wait | None:
    """The gate that is closed; None where all are open."""
    for gate in (_none_ready, _unmanaged, _excess_indexes, _excess_updated, _failed_replacement):
        if (wait := gate(observed)) is not None:
            return wait
    return None


def _none_ready(observed: Observed) -> Wait | None:
    if any(host.ready for host in observed.hosts):
        return None
    return Wait(
        "NoReadyMachines",
        "No control-plane machine is ready, so nothing is replaced: a new one could not join. Bring one back: look at "
        f"{named([h.name for h in observed.hosts]) or 'the cluster'}",
    )


def _unmanaged(observed: Observed) -> Wait | None:
    if not observed.unmanaged:
        return None
    return Wait(
        "UnmanagedNodes",
        f"{some(len(observed.unmanaged), 'node')} of the control plane belong to no machine of it: "
        f"{named(observed.unmanaged)}. Adopt their VMs (hostler adopt machine), or remove the nodes",
    )


def _excess_indexes(observed: Observed) -> Wait | None:
    indexes = {host.index for host in observed.hosts}
    if (excess := len(indexes) - observed.replicas) <= 0:
        return None
    return Wait(
        "ExcessIndexes",
        f"there are machines in {len(indexes)} indexes ({', '.join(map(str, sorted(indexes)))}), {excess} more than "
        f"the {observed.replicas} replicas. Delete the machines of an index that is not needed",
    )


def _excess_updated(observed: Observed) -> Wait | None:
    """RollingUpdate removes them on its own."""
    if observed.strategy is not UpdateStrategy.ON_DELETE:
        return None
    many = [i for i, hosts in observed.indexes.items() if sum(h.updated and h.ready for h in hosts) > 1]
    if not many:
        return None
    names = [h.name for i in many for h in observed.indexes[i] if h.updated]
    return Wait(
        "ExcessUpdatedReplicas",
        f"{some(len(many), 'index') if len(many) == 1 else f'{len(many)} indexes'} ({', '.join(map(str, many))}) have "
        f"more than one machine that is up to date: {named(names)}. With OnDelete nobody deletes them for you",
    )


def failed_replacements(hosts: tuple[Host, ...]) -> list[Host]:
    """Replacements that cannot become ready, of an index that waits for one."""
    return [h for h in hosts if h.pending and h.failure] if any(h.to_be_replaced for h in hosts) else []


def _failed_replacement(observed: Observed) -> Wait | None:
    failed = [h for hosts in observed.indexes.values() for h in failed_replacements(hosts)]
    if not failed:
        return None
    return Wait(
        "FailedReplacement",
        f"{some(len(failed), 'replacement')} cannot become ready: {failed[0].name}: {failed[0].failure}. Correct the "
        f"template, which replaces {named([h.name for h in failed])}, or delete it to try again",
    )
