"""Fresh looks at Node, Lease and VM: no machine that has a VM becomes Failed because of a timer alone.

After an outage all timers fire at once, and what was known is old. So two looks are taken, `timings.confirm` apart, the
second at the deadline; when one of them cannot be taken, nothing is decided. The deadline `confirm` is the next look's.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.calls import Failure
from workflows.machine import claim, membership
from workflows.machine.entity import MachineEntity
from workflows.machine.looks import look, take_node

with workflow.unsafe.imports_passed_through():
    from planners.machine.claims import WELL, doubtful
    from planners.machine.health import Confirmation, Outcome, confirm, judge_joining
    from planners.machine.membership import wish_of
    from planners.waits import REASON
    from resources.calls.cloud import VmLook
    from resources.calls.cluster import NodeLook
    from resources.errors import PASSING
    from resources.fleet.member import PreserveWish
    from resources.machine.advice import GONE, has_vm
    from resources.machine.facts import VmFacts
    from resources.machine.preservation import PreservedBy
    from resources.machine.state import Deletion, Look, OperationState, OperationType

UNSETTLED = "unsettled"
"""The patch by which a machine that is healthy for a moment keeps its health clock and its first look until it has
settled."""
JOINING_TAKES = timedelta(minutes=5)
"""Time for our own steps at a node that a look found Ready: after an outage hundreds may wait for them."""


async def creation(machine: MachineEntity) -> None:
    """Looks at a machine that is not Running near its creation deadline: the second look that finds it so makes it
    Failed.

    What a look finds of the Node is news: after an outage it may have joined long ago, and joining goes on.
    """
    state = machine.s
    last = machine.due("creation")
    seen = await look(machine, diagnose=last, joining=state.suspicion is None)
    if seen is None:
        return
    if isinstance(seen.node, Failure):
        _cannot(machine, "the Node", seen.node)
        return
    if isinstance(seen.vm, Failure) and seen.vm.info.silent:
        _cannot(machine, "the VM", seen.vm)
        return
    machine.answers()
    if undecided(machine):
        machine.status.waiting_for = None
    take_node(machine, seen.node.node)
    vm = seen.vm if isinstance(seen.vm, VmLook) else VmLook(state="", message=_unread("the VM", seen.vm))
    first, now = state.suspicion, workflow.now()
    if first is None:
        state.suspicion = Look(time=now, node=seen.node, vm=vm)
    health = judge_joining(state.node, state.spec.node_conditions)
    if first is None or not last or (health.healthy and not _refused(machine) and now < first.time + JOINING_TAKES):
        machine.deadlines["confirm"] = max(machine.deadlines["creation"], now + state.timings.confirm)
        return
    machine.fail_creation(health, "; ".join(filter(None, (first.vm.joining, vm.message))))


def _refused(m: MachineEntity) -> bool:
    """Whether our own steps at a healthy Node are refused for good, and not only late."""
    trouble = m.s.trouble
    return trouble is not None and trouble.reason not in {REASON[c] for c in PASSING}


async def health(machine: MachineEntity) -> None:
    """Looks at an unhealthy machine near its health deadline: Failed when two looks agree and its pool, if any, permits
    it."""
    state = machine.s
    seen = await look(machine)
    if seen is None:
        return
    for what, answer in (("Node and Lease", seen.node), ("the VM", seen.vm)):
        if isinstance(answer, Failure):
            _cannot(machine, what, answer)
            return
    assert isinstance(seen.node, NodeLook)
    assert isinstance(seen.vm, VmLook)
    now = Look(time=workflow.now(), node=seen.node, vm=seen.vm)
    provider_id, deadline = machine.status.provider_id or "", machine.deadlines["health"]
    said = confirm(state.suspicion, now, provider_id, state.spec.node_conditions, deadline, state.timings)
    if said.outcome in (Outcome.WELL, Outcome.SETTLING) and not workflow.patched(UNSETTLED):
        said = replace(said, outcome=Outcome.WELL, compare=now)  # as it was: healthy for a moment was enough
        machine.deadlines.pop("confirm", None)
    take_node(machine, now.node.node)
    _take_vm(machine, now, said)
    match said.outcome:
        case Outcome.FAILED if membership.must_ask(machine, GONE if said.gone else ""):
            membership.ask(machine, said.message)
        case Outcome.FAILED:
            words = f"unhealthy for healthTimeout ({machine.health_timeout}): {said.message}"
            machine.fail(OperationType.HEALTH_CHECK, "HealthTimeout", words)
        case Outcome.WELL:
            assert said.compare is not None
            state.suspicion, state.healthy_since = (
                None,
                min(state.healthy_since or said.compare.time, said.compare.time),
            )
            machine.note_news("NotConfirmed", said.message)
        case _:
            _look_again(machine, said)


def _look_again(m: MachineEntity, said: Confirmation) -> None:
    assert said.look_again is not None
    m.s.suspicion = said.compare
    m.deadlines["confirm"] = said.look_again
    if said.outcome is Outcome.SETTLING:
        m.note_news("NotConfirmed", f"{said.message}; it must stay healthy")
        return
    m.note_news(said.reason, said.message)
    m.tell()
    m.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, said.message)
    m.waiting(said.reason, said.message, said.look_again)


async def repair(machine: MachineEntity) -> None:
    """Ends the machine because its pool wants it gone. A request made in the same instant as it failed is honoured: a
    fresh look at its Node decides."""
    state = machine.s
    if machine.status.preserve.expiry_time is None and has_vm(state):
        seen = await look(machine)
        if seen is None:
            return
        if isinstance(seen.node, Failure):
            await machine.back_off(seen.node)
            return
        take_node(machine, seen.node.node)
    intent, state.repair = state.repair, None
    if intent is None or state.deletion is not None:
        return
    p = machine.status.preserve
    preserved = p.expiry_time is not None or (p.granted is PreservedBy.AUTO and has_vm(state))
    if preserved or wish_of(state) is PreserveWish.ASKED:
        machine.note("RepairRefused", "it is preserved, or is to be preserved, by now; its pool is told")
        membership.tell(machine, again=True)
    else:
        state.deletion = Deletion(time=workflow.now(), requested_by=intent.requested_by, reason=intent.reason)


async def introduce(machine: MachineEntity) -> None:
    """Lets an adopted machine ask for its Node itself: the watch only tells changes, and only to those who were there
    before."""
    while machine.s.node is None and not machine.leaving:
        seen = await look(machine)
        if seen is None:
            return
        if isinstance(seen.node, Failure):
            await machine.back_off(seen.node)
            continue
        take_node(machine, seen.node.node)
        return


def _cannot(m: MachineEntity, what: str, failure: Failure) -> None:
    """Records that a look could not be taken. Nothing is decided on old news; the next look is a first one."""
    m.s.suspicion = None
    if failure.info.silent:
        m.silent(workflow.now())
    again = workflow.now() + m.wait_once(failure)
    m.deadlines["confirm"] = again
    words = f"{_unread(what, failure)}; nothing is decided on stale information{m.standing}"
    m.note_news("CannotConfirm", words)
    m.waiting("CannotConfirm", words, again)


def _unread(what: str, failure: Failure) -> str:
    return f"{what} cannot be read: {failure.words}"


def _take_vm(machine: MachineEntity, now: Look, said: Confirmation) -> None:
    """Takes the VM's state as believed news, unless a kubelet speaks against it, or has not yet had the time to."""
    former, state = machine.s.vm, now.vm.state
    if former is None and state in WELL:
        return
    order = former.order if former and former.state == state else (0, 0)  # as for a Node: looks.take_node
    facts = VmFacts(epoch=order[0], seq=order[1], provider_id=machine.status.provider_id or "", state=state)
    if said.outcome is Outcome.CONTRADICTED:
        claim.doubt(machine, facts, now)
    elif state != GONE or said.gone or not doubtful(machine.s, facts) or not workflow.patched(claim.CLAIMS):
        claim.believe(machine, facts)
    elif former is None or former.state != GONE:
        claim.raise_(machine, facts, now)


def undecided(m: MachineEntity) -> bool:
    """Whether the last look could not be taken: the machine waits for that until the next one."""
    waited = m.status.waiting_for
    return waited is not None and waited.reason == "CannotConfirm"


def arm(m: MachineEntity, deadline: datetime) -> None:
    """Sets the first look so early that the second one is at the deadline."""
    m.deadlines["confirm"] = deadline - m.s.timings.confirm
