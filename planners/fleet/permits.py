"""Which machines count as ill and as repairs, whose turn it is to be repaired, and when no repair begins.

Sources: design *Repair budget*; machine-controller-manager's permits (tryMarkingMachineFailed, M1-M9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from planners.fleet.pace import backing_off
from planners.fleet.steps import Wait
from resources.fleet.member import Member, Permit, Trouble, Vm
from resources.fleet.revision import Pace
from resources.machine.state import Phase
from resources.words import utc


def lost_its_vm(member: Member) -> bool:
    """Whether it had been Running, or somebody else is deleting it."""
    return member.vm is Vm.GONE and member.trouble in (Trouble.GONE, Trouble.NONE)


def put_aside(member: Member) -> bool:
    """Whether it is kept for a look, and drained: no repair waits for that to end."""
    return member.stays and member.drained


def ill(member: Member) -> bool:
    """Whether it is unhealthy. A machine kept for a look has been judged before (mcm.md §5); one that was never Running
    has served nobody."""
    failed = member.phase is Phase.FAILED and member.trouble is Trouble.HEALTH and not put_aside(member)
    return member.phase is Phase.UNKNOWN or lost_its_vm(member) or failed


def repaired(member: Member) -> bool:
    """Whether its repair is under way: until the cloud has confirmed that the VM is gone; where it was gone before,
    until nothing is left of the machine (I4)."""
    if member.vm is Vm.GONE:
        return member.leaving and member.permit is Permit.GRANTED and lost_its_vm(member)
    if put_aside(member):
        return False
    granted = member.permit is Permit.GRANTED and member.phase is not Phase.RUNNING
    return granted or (member.trouble is Trouble.HEALTH and member.phase is Phase.FAILED)


def asking(members: Mapping[str, Member]) -> list[str]:
    """Those that ask for the permit to be Failed."""
    ill = (Phase.UNKNOWN, Phase.FAILED)
    return [n for n, m in members.items() if m.permit is Permit.ASKED and m.phase in ill]


def in_turn(
    members: Mapping[str, Member], names: Iterable[str], under_way: int, budget: int
) -> tuple[list[str], list[str]]:
    """Those whose turn it is, and the rest: as many as the budget has left, the longest ill first."""
    first = sorted(names, key=lambda n: (members[n].since, n))
    room = max(0, budget - under_way)
    return first[:room], first[room:]


def resting(pace: Pace, now: datetime) -> Wait | None:
    """Why no repair begins now, though one might: a storm is barely over, or replacements die young."""
    if backing_off(pace, now):
        return Wait(pace.reason, f"No repair begins before {utc(pace.until)}: {pace.message}")
    if pace.repairs_from is not None and now < pace.repairs_from:
        words = "too many machines were unhealthy until recently, and the others may still recover"
        return Wait("RepairsRest", f"No repair begins before {utc(pace.repairs_from)}: {words}")
    return None
