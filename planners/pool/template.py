"""Which machines are told next of a template that changed in what needs no new machine: node template, timeouts.

So many at a time (hostler.io/update-concurrency), like the users of a class: a wrong taint must not reach all Nodes at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from resources.machine import Phase
from resources.machine_deployment import MachineDeploymentSpec, MachineTemplate
from resources.member import Member

PATIENCE = timedelta(minutes=2)
"""A machine that was told and says nothing for so long does not hold up the others, and is told again."""


def gone_back_to(template: MachineTemplate, spec: MachineDeploymentSpec) -> MachineTemplate:
    """A former revision's, for the pool as it is now. Its machinePreserveTimeout is a field of the pool, which an undo
    leaves as it is, so machines that have it from there keep it; where the template has one of its own, that is back.
    """
    timeout = spec.machine_preserve_timeout
    if spec.template.spec.machine_preserve_timeout != timeout:
        return template
    machine = template.spec.model_copy(update={"machine_preserve_timeout": timeout})
    return template.model_copy(update={"spec": machine})


def pending(members: Mapping[str, Member], generation: int) -> list[str]:
    """Machines that have not taken it, and stay; one that Failed takes nothing any more."""
    return sorted(
        n for n, m in members.items() if m.template < generation and not m.leaving and m.phase is not Phase.FAILED
    )


def to_tell(
    members: Mapping[str, Member], told: Mapping[str, datetime], generation: int, limit: int, now: datetime
) -> list[str]:
    """`told`: when those were told of this generation that have not taken it. Those never told first, then the longest
    silent."""
    waiting = pending(members, generation)
    at_work = [n for n in waiting if n in told and now < told[n] + PATIENCE]
    others = sorted((n for n in waiting if n not in at_work), key=lambda n: (n in told, told.get(n, now), n))
    return others[: max(0, limit - len(at_work))]


def next_look(
    members: Mapping[str, Member], told: Mapping[str, datetime], generation: int, now: datetime
) -> datetime | None:
    """When the first of those at work will have been silent for too long: what has passed is to come no more."""
    ends = (told[n] + PATIENCE for n in pending(members, generation) if n in told)
    return min((end for end in ends if end > now), default=None)
