"""Which machines are told next about a template change that needs no new machine: node template, timeouts.

Only so many are told at a time (hostler.io/update-concurrency), like the users of a class: a wrong taint must not reach
all Nodes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from resources.fleet.member import Member
from resources.machine.manifest import MachineTemplate
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec

PATIENCE = timedelta(minutes=2)
"""How long a told machine may be silent before it no longer holds up the others, and is told again."""


def gone_back_to(template: MachineTemplate, spec: MachineDeploymentSpec) -> MachineTemplate:
    """A former revision's template, for the pool as it is now. Its machinePreserveTimeout is a field of the pool, which
    an undo leaves as it is, so machines that have it from there keep it; a template's own timeout comes back."""
    timeout = spec.machine_preserve_timeout
    if spec.template.spec.machine_preserve_timeout != timeout:
        return template
    machine = template.spec.model_copy(update={"machine_preserve_timeout": timeout})
    return template.model_copy(update={"spec": machine})


def pending(members: Mapping[str, Member], generation: int) -> list[str]:
    """Machines that have not taken it, and stay; a Failed one takes nothing more."""
    return sorted(
        n for n, m in members.items() if m.template < generation and not m.leaving and m.phase is not Phase.FAILED
    )


def to_tell(
    members: Mapping[str, Member], told: Mapping[str, datetime], generation: int, limit: int, now: datetime
) -> list[str]:
    """The machines to tell now. `told`: when those that have not taken this generation were told of it. Those never
    told come first, then the longest silent."""
    waiting = pending(members, generation)
    at_work = [n for n in waiting if n in told and now < told[n] + PATIENCE]
    others = sorted((n for n in waiting if n not in at_work), key=lambda n: (n in told, told.get(n, now), n))
    return others[: max(0, limit - len(at_work))]


def next_look(
    members: Mapping[str, Member], told: Mapping[str, datetime], generation: int, now: datetime
) -> datetime | None:
    """When the first of those at work will have been silent for too long, if that time is still to come."""
    ends = (told[n] + PATIENCE for n in pending(members, generation) if n in told)
    return min((end for end in ends if end > now), default=None)
