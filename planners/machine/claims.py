"""When the cloud's word against a VM whose kubelet may live is believed, and when it is a contradiction.

A read by id that finds nothing is no proof: the credentials may open another account by now, a region may answer from
an old replica, a policy may hide the VM. A kubelet renews its Lease every 10 s while it lives, and it lives on its VM.
So a Lease that moves speaks against the cloud, and one that stands still is what a VM that is gone looks like. Only
*whether* it moves counts, since node clocks may be wrong (field case P37).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from resources.machine.advice import GONE
from resources.machine.facts import VmFacts
from resources.machine.state import Look, MachineState, VmClaim
from resources.timings import Timings

CONTRADICTION = "VMContradiction"
"""The condition of a machine whose VM the cloud does not find, or says to be off, while its kubelet lives."""
WELL = ("pending", "running")
RAREST = timedelta(minutes=5)
"""The longest wait between two looks at a contradiction that lasts."""


class Belief(StrEnum):
    BELIEVED = "believed"
    REFUTED = "refuted"
    """The cloud now says otherwise."""
    CONTRADICTED = "contradicted"
    """The kubelet lives: nothing is done on the cloud's word."""
    UNSURE = "unsure"
    """One look says nothing about whether a Lease moves; a second one does."""


@dataclass(frozen=True)
class Weighed:
    belief: Belief
    compare: Look | None = None
    """What the next look is compared with; None where none is needed."""
    look_again: datetime | None = None
    moved: int = 0
    """How many looks in a row saw the Lease move."""


def has_node(s: MachineState) -> bool:
    """Whether a kubelet of this VM was ever seen. Without one, nobody can contradict the cloud."""
    return s.joined or (s.node is not None and s.node.exists)


def doubtful(s: MachineState, facts: VmFacts) -> bool:
    """Whether news of the VM must be weighed first. The news that a VM which was seen is stopped or terminating only
    makes the machine Unknown; the news that there is none has it replaced at once."""
    return facts.state == GONE and has_node(s)


def newest(s: MachineState) -> VmFacts | None:
    """The last word of the account's watch, believed or not."""
    return s.claim.facts if s.claim is not None else s.vm


def kubelet_lives(before: Look, look: Look) -> bool:
    """Whether the Lease has moved between two looks."""
    renewed = look.node.lease_renewed
    return renewed is not None and renewed != before.node.lease_renewed


def weigh(before: Look | None, look: Look, moved: int, timings: Timings) -> Weighed:
    """Weighs a claim by a fresh look at Node, Lease and VM. `moved`: how many looks in a row have seen the Lease move
    so far. Looks become rarer until the Node falls ill."""
    if look.vm.state in WELL:
        return Weighed(Belief.REFUTED)
    if not look.node.node.exists:
        return Weighed(Belief.BELIEVED)
    if before is None:
        return Weighed(Belief.UNSURE, look, look.time + timings.lease)
    if kubelet_lives(before, look):
        falls_ill = before.node.node.ready and not look.node.node.ready
        moved = 1 if falls_ill else moved + 1
        rarer = max(timings.lease, min(timings.lease * (1 << min(moved - 1, 10)), RAREST))
        return Weighed(Belief.CONTRADICTED, look, look.time + rarer, moved)
    if look.time < before.time + timings.lease:
        still = look.model_copy(update={"time": before.time})  # the Lease has stood still since then
        return Weighed(Belief.UNSURE, still, before.time + timings.lease)
    return Weighed(Belief.BELIEVED)


def due(s: MachineState, now: datetime) -> bool:
    """Whether it is time for a look: as planned, or because the watch says that the Node is no longer Ready."""
    claim = s.claim
    if claim is None:
        return False
    was_ready = claim.look is not None and claim.look.node.node.ready
    fell_ill = was_ready and s.node is not None and not (s.node.exists and s.node.ready)
    return claim.next <= now or fell_ill


def claim_of(facts: VmFacts, now: datetime, look: Look | None = None, again: timedelta = timedelta(0)) -> VmClaim:
    return VmClaim(facts=facts, since=now, look=look, next=now + again)
