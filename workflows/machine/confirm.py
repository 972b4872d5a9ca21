"""Fresh looks at Node, Lease and VM: no machine that has a VM is Failed on the word of a timer alone.

After an outage all timers fire at once, and what was known is old. So two looks are taken, `timings.confirm` apart, the
second at the deadline; when one of them cannot be taken, nothing is decided. The deadline `confirm` is the next look's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Failure, Urgency, failure_of
from workflows.machine import membership
from workflows.machine.entity import MachineEntity, describe_failure

with workflow.unsafe.imports_passed_through():
    from activities.machine import MachineActivities
    from activities.node import NodeActivities
    from planners.health import WELL, Outcome, confirm, judge_joining
    from planners.membership import has_vm, keep_of
    from planners.waits import REASON, wait_after
    from resources.errors import PASSING
    from resources.machine import Deletion, Look, OperationState, OperationType
    from resources.messages import LookInput, NodeFacts, NodeLook, VmFacts, VmLook, VmLookInput
    from resources.names import cluster_queue
    from resources.pool import Keep
    from resources.preservation import PreservedBy

T = TypeVar("T")
JOINING_TAKES = timedelta(minutes=5)
"""For our own steps at a node that a look found Ready: after an outage hundreds may wait for them."""


@dataclass(frozen=True)
class Seen:
    """What the looks answered, or why they did not."""

    node: NodeLook | Failure
    vm: VmLook | Failure


async def creation(m: MachineEntity) -> None:
    """A machine that is not Running near its creation deadline: the second look that finds it so makes it Failed.

    What a look finds of the Node is news: after an outage it may have joined long ago, and joining goes on.
    """
    s = m.s
    last = m.due("creation")
    seen = await _look(m, diagnose=last, joining=s.suspicion is None)
    if seen is None:
        return
    if isinstance(seen.node, Failure):
        _cannot(m, "the Node", seen.node)
        return
    if undecided(m):
        m.status.waiting_for = None
    _take_node(m, seen.node.node)
    vm = seen.vm if isinstance(seen.vm, VmLook) else VmLook(state="", message=_unread("the VM", seen.vm))
    first, now = s.suspicion, workflow.now()
    if first is None:
        s.suspicion = Look(time=now, node=seen.node, vm=vm)
    health = judge_joining(s.node, s.spec.node_conditions)
    if first is None or not last or (health.healthy and not _refused(m) and now < first.time + JOINING_TAKES):
        m.deadlines["confirm"] = max(m.deadlines["creation"], now + s.timings.confirm)
        return
    m.fail_creation("; ".join(filter(None, (health.message, first.vm.joining, vm.message))))


def _refused(m: MachineEntity) -> bool:
    """Our own steps at a Node that is well are refused for good, and not only late."""
    trouble = m.s.trouble
    return trouble is not None and trouble.reason not in {REASON[c] for c in PASSING}


async def health(m: MachineEntity) -> None:
    """An unhealthy machine near its health deadline: Failed when two looks agree, and its pool permits it, where it has
    one."""
    s = m.s
    seen = await _look(m)
    if seen is None:
        return
    for what, answer in (("Node and Lease", seen.node), ("the VM", seen.vm)):
        if isinstance(answer, Failure):
            _cannot(m, what, answer)
            return
    assert isinstance(seen.node, NodeLook)
    assert isinstance(seen.vm, VmLook)
    look = Look(time=workflow.now(), node=seen.node, vm=seen.vm)
    provider_id, deadline = m.status.provider_id or "", m.deadlines["health"]
    said = confirm(s.suspicion, look, provider_id, s.spec.node_conditions, deadline, s.timings)
    _take_node(m, look.node.node)
    _take_vm(m, provider_id, look.vm)
    if said.outcome == Outcome.FAILED and membership.must_ask(m, look.vm.state):
        membership.ask(m, said.message)
    elif said.outcome == Outcome.FAILED:
        words = f"unhealthy for healthTimeout ({m.health_timeout}): {said.message}"
        m.fail(OperationType.HEALTH_CHECK, "HealthTimeout", words)
    elif said.outcome == Outcome.WELL:
        s.suspicion = None
        m.deadlines.pop("confirm", None)
        m.note_news("NotConfirmed", said.message)
    else:
        s.suspicion = look
        assert said.look_again is not None
        m.deadlines["confirm"] = said.look_again
        m.note_news(said.reason, said.message)
        m.tell()
        m.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, said.message)
        m.waiting(said.reason, said.message, said.look_again)


async def repair(m: MachineEntity) -> None:
    """Its pool wants it gone. A request that was made in the same instant as it failed is honoured: a fresh look at its
    Node decides."""
    s = m.s
    if m.status.preserve.expiry_time is None and has_vm(s):
        seen = await _look(m)
        if seen is None:
            return
        if isinstance(seen.node, Failure):
            await m.back_off(seen.node)
            return
        _take_node(m, seen.node.node)
    intent, s.repair = s.repair, None
    if intent is None or s.deletion is not None:
        return
    p = m.status.preserve
    kept = p.expiry_time is not None or (p.granted is PreservedBy.AUTO and has_vm(s))
    if kept or keep_of(s) is Keep.ASKED:
        m.note("RepairRefused", "it is preserved, or is to be, by now; its pool is told so")
        membership.tell(m, again=True)
    else:
        s.deletion = Deletion(time=workflow.now(), requested_by=intent.requested_by, reason=intent.reason)


async def introduce(m: MachineEntity) -> None:
    """An adopted machine asks for its Node itself: the watch tells changes only, to whoever was there before."""
    while m.s.node is None and not m.leaving:
        seen = await _look(m)
        if seen is None:
            return
        if isinstance(seen.node, Failure):
            await m.back_off(seen.node)
            continue
        _take_node(m, seen.node.node)
        return


async def _look(m: MachineEntity, diagnose: bool = False, joining: bool = False) -> Seen | None:
    """Both looks side by side. None when a deletion was asked for meanwhile."""
    s = m.s
    why: dict[str, Any] = {}
    if joining and s.attempt is not None:
        why = {"attempt": s.attempt.number, "node_name": m.status.node_name, "deadline": m.deadlines["creation"]}
    name = m.status.node_name
    node = m.start(
        NodeActivities.look_at_node,
        LookInput(
            machine=m.ref,
            node_name=s.node.name if s.node else name,
            provider_id=m.status.provider_id or "",
            node_uid=s.joined_uid or "",
        ),
        queue=cluster_queue(s.cluster, s.queue_prefix),
        summary=f"fresh look at node {name or 'of this VM'} and its Lease",
    )
    vm = m.start(
        MachineActivities.look_at_vm,
        VmLookInput(target=m.target(), diagnose=diagnose, **why),
        queue=m.cloud,
        summary=f"fresh look at {m.status.provider_id}",
        urgency=Urgency.POLL,
    )
    leaving, deletion = m.leaving, s.deletion
    await m.beside(lambda: (node.done() and vm.done()) or m.leaving != leaving or s.deletion != deletion)
    if not (node.done() and vm.done()):
        m.drop(node)
        m.drop(vm)
        return None
    seen = Seen(await _answer(node), await _answer(vm))
    if isinstance(seen.vm, VmLook):
        s.account_id = seen.vm.account_id or s.account_id
    return seen


async def _answer(handle: workflow.ActivityHandle[T]) -> T | Failure:
    try:
        return await handle
    except ActivityError as e:
        return failure_of(e)


def _cannot(m: MachineEntity, what: str, failure: Failure) -> None:
    """Nothing is decided on old news; the next look is a first one."""
    m.s.suspicion = None
    again = workflow.now() + wait_after(failure.info, m.s.timings)
    m.deadlines["confirm"] = again
    words = f"{_unread(what, failure)}; nothing is decided on old news"
    m.note_news("CannotConfirm", words)
    m.waiting("CannotConfirm", words, again)


def _unread(what: str, failure: Failure) -> str:
    return f"{what} cannot be read: {describe_failure(failure)}"


def _take_node(m: MachineEntity, facts: NodeFacts) -> None:
    """As news of the same moment as the newest that the watch told, so that whatever it tells next is newer."""
    former = m.s.node
    if not facts.exists and former is None:
        return
    if former is not None:
        name = facts.name or former.name
        twins = sorted({former.name, *former.twins} - {name}) if former.twins else []  # a look tells of one Node
        facts = facts.model_copy(update={"epoch": former.epoch, "seq": former.seq, "name": name, "twins": twins})
    membership.take_node(m, facts)


def _take_vm(m: MachineEntity, provider_id: str, look: VmLook) -> None:
    former = m.s.vm
    if former is None and look.state in WELL:
        return
    order = (former.epoch, former.seq) if former else (0, 0)
    m.s.vm = VmFacts(epoch=order[0], seq=order[1], provider_id=provider_id, state=look.state)


def undecided(m: MachineEntity) -> bool:
    """Whether the last look could not be taken: that is what the machine waits for, until the next one."""
    waited = m.status.waiting_for
    return waited is not None and waited.reason == "CannotConfirm"


def arm(m: MachineEntity, deadline: datetime) -> None:
    """The first look comes so early that the second one is at the deadline."""
    m.deadlines["confirm"] = deadline - m.s.timings.confirm
