"""The cloud's word against a VM that has a Node: fresh looks weigh it before it counts (planners/machine/claims.py).

This goes on beside everything else that the machine does, as hot updates do. What is believed is `state.vm`, for
everything that asks whether there is a VM; until then the claim stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

from workflows.calls import Failure
from workflows.machine import membership
from workflows.machine.entity import MachineEntity
from workflows.machine.looks import Seen, begin, overtaken, seen, take_node

with workflow.unsafe.imports_passed_through():
    from planners.machine.claims import CONTRADICTION, Belief, claim_of, due, weigh
    from planners.machine.health import contradiction
    from resources.base import format_duration
    from resources.machine.advice import GONE
    from resources.machine.facts import VmFacts
    from resources.machine.state import Look, VmClaim

CLAIMS = "vm-claims"
"""The patch by which the news that a VM is gone is weighed before it is believed."""
STANDSTILL = "lease-stands-still"
"""The patch by which a look that comes early does not begin the wait for the Lease again: two looks in turn, one at its
time and one because the Node had fallen ill, put each other off forever."""


# -- what is said -----------------------------------------------------------------------------------------------------


def raise_(machine: MachineEntity, facts: VmFacts, look: Look | None = None) -> None:
    """Records a claim, from the account's watch or from a read of our own, whose look is then the first. While the VM
    is being deleted the machine waits for just this, and afterwards knows it: nobody weighs it, and nothing is said."""
    state = machine.s
    if state.claim is not None:
        state.claim = state.claim.model_copy(update={"facts": facts})
        return
    state.claim = claim_of(facts, workflow.now(), look, state.timings.lease if look else timedelta(0))
    if machine.deleting or state.vm_gone:
        return
    said = (
        f"the cloud does not find {facts.provider_id}"
        if facts.state == GONE
        else f"{facts.provider_id} is {facts.state}"
    )
    apart = format_duration(state.timings.lease)
    machine.note_news(
        "VMNotFound", f"{said}; two looks at its kubelet's Lease, {apart} apart, decide whether that is true"
    )


def doubt(m: MachineEntity, facts: VmFacts, look: Look) -> None:
    """Demotes belief to a claim: a look has seen that the kubelet lives."""
    m.s.vm = None
    raise_(m, facts, look)
    _contradicted(m, look)


def believe(m: MachineEntity, facts: VmFacts) -> None:
    m.s.vm = facts
    _over(m)


def _over(m: MachineEntity) -> None:
    m.s.claim = None
    m.deadlines.pop("claim", None)
    m.drop_condition(CONTRADICTION)


# -- weighing ---------------------------------------------------------------------------------------------------------


def keep_up(machine: MachineEntity) -> bool:
    """Takes the looks that are over and begins those that are due, without waiting for either. Returns whether the
    claim is believed now: the pool is told, whatever the machine is doing."""
    state = machine.s
    if machine.weighing is not None and machine.weighing.over:
        looking, machine.weighing = machine.weighing, None
        if state.claim is not None and _weighed(
            machine, state.claim, seen(machine, looking), overtaken(machine, looking)
        ):
            return True
    if state.claim is None or machine.weighing is not None:
        machine.deadlines.pop("claim", None)
    elif due(state, workflow.now()):
        machine.deadlines.pop("claim", None)
        machine.weighing = begin(machine)
    else:
        machine.deadlines["claim"] = state.claim.next  # a phase that ends clears the table
    return False


def calls(m: MachineEntity) -> bool:
    """Whether `keep_up` has something to do."""
    return due(m.s, workflow.now()) if m.weighing is None else m.weighing.over


async def weighed(m: MachineEntity, unless: Callable[[], bool]) -> bool:
    """Whether the claim is believed, as soon as that is known: until then there is nothing else to do."""
    while not keep_up(m):
        if m.s.claim is None or m.s.claim.moved or unless() or m.due(m.last_call):
            return False
        await m.until(lambda: calls(m) or unless(), "claim", m.last_call)
    return True


def _weighed(machine: MachineEntity, claim: VmClaim, now: Seen, overtaken: bool) -> bool:
    state, time = machine.s, workflow.now()
    for what, answer in (("Node and Lease", now.node), ("the VM", now.vm)):
        if isinstance(answer, Failure):
            again = time + machine.wait_once(answer)
            state.claim = claim.model_copy(update={"look": None, "moved": 0, "next": again})
            words = f"{what} cannot be read: {answer.words}; nothing is decided on stale information"
            machine.note_news("CannotConfirm", words)
            return False
    assert not isinstance(now.node, Failure)
    assert not isinstance(now.vm, Failure)
    look = Look(time=time, node=now.node, vm=now.vm)
    if not overtaken:
        take_node(machine, look.node.node)
    said = weigh(claim.look, look, claim.moved, state.timings)
    compare = said.compare
    if compare is not None and compare.time != time and not workflow.patched(STANDSTILL):
        compare = look
    state.claim = claim.model_copy(update={"look": compare, "moved": said.moved, "next": said.look_again or time})
    facts = claim.facts.model_copy(update={"state": look.vm.state})
    if facts != claim.facts:  # the order starts afresh, as for a Node: looks.take_node
        facts = facts.model_copy(update={"epoch": 0, "seq": 0})
    match said.belief:
        case Belief.BELIEVED:
            believe(machine, facts)
            membership.tell(machine)
            return True
        case Belief.REFUTED:
            _over(machine)
            if state.vm is not None:
                state.vm = facts
            machine.note(
                "VMFound", f"{facts.provider_id} is {facts.state}: a fresh look has found it, so it was not gone"
            )
        case Belief.CONTRADICTED:
            _contradicted(machine, look)
    return False


def _contradicted(m: MachineEntity, look: Look) -> None:
    """Tells a contradiction once; its condition stays to be read."""
    known = any(c.type == CONTRADICTION for c in m.status.conditions)
    words = f"{contradiction(m.status.provider_id or '', look)}; nothing is done on the cloud's word alone"
    m.condition(CONTRADICTION, "VMContradiction", words)
    if not known:
        m.note("VMContradiction", words)
        m.tell()
