"""Which machine goes first when some must go.

Sources: machine-controller-manager's ActiveMachines (controller_utils.go), design *Deletion order*; Kubernetes'
proportional scaling (deployment_util.go, GetProportion) while a rollout runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from resources.fleet.member import Member, Vm
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase

_NEVER = datetime.max.replace(tzinfo=UTC)
_PHASE_RANK = {
    Phase.TERMINATING: 0,
    Phase.FAILED: 1,
    Phase.CRASH_LOOP_BACK_OFF: 2,
    Phase.UNKNOWN: 3,
    Phase.PENDING: 4,
    Phase.RUNNING: 5,
}

DeletionKey = tuple[bool, bool, datetime, int, datetime, int, datetime, str]


def preserved(member: Member, now: datetime) -> bool:
    """Whether it is preserved or about to be. A machine whose slot was taken, or whose VM is gone, no longer is."""
    until = member.preserved_until
    there = member.vm is not Vm.GONE
    return there and not member.released and (bool(member.granted) or (until is not None and now < until))


def deletion_key(name: str, member: Member, now: datetime) -> DeletionKey:
    """Smaller goes first: not preserved before preserved, auto-preserved before asked-for, earlier expiry, lower
    priority, marked for deletion first and the earlier mark, without a VM, phase, older, and finally the name, so that
    the order does not depend on the order of the members."""
    kept = preserved(member, now)
    return (
        kept,
        kept and PreservedBy.AUTO not in (member.granted, member.preserved_by),
        member.preserved_until if kept and member.preserved_until else _NEVER,
        member.priority,
        member.marked or _NEVER,
        -1 if member.vm is Vm.GONE else _PHASE_RANK[member.phase],
        member.created,
        name,
    )


def in_deletion_order(members: Mapping[str, Member], now: datetime) -> list[str]:
    return sorted(members, key=lambda name: deletion_key(name, members[name], now))


def proportional(sizes: Mapping[int, int], remove: int) -> dict[int, int]:
    """How many of each revision go when a pool becomes smaller during a rollout, so that old and new keep their ratio
    (MCM U9, U10): a person who lowers the replicas decides nothing about the rollout. The largest revision bears what
    rounding leaves over."""
    total = sum(sizes.values())
    left = min(remove, total)
    kept = total - left
    order = sorted(sizes, key=lambda revision: (-sizes[revision], -revision))
    parts: dict[int, int] = {}
    for revision in order:
        fair = sizes[revision] - (2 * sizes[revision] * kept + total) // (2 * total)  # rounded half up
        parts[revision] = min(left, fair)
        left -= parts[revision]
    for revision in order:
        more = min(left, sizes[revision] - parts[revision])
        parts[revision] += more
        left -= more
    return parts
