"""A Node that its VM would have been mistaken for: its machine is Failed because of it, and the next one shall not
be."""

from __future__ import annotations

from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from activities.cluster.node import NodeActivities
    from resources.calls.cloud import VmLookInput
    from resources.calls.cluster import StaleNodeInput
    from resources.calls.machine import StaleNode
    from resources.machine.advice import GONE
    from resources.names import cluster_queue

T = TypeVar("T")

NOBODY = "there was no answer in time"


async def clear(machine: MachineEntity) -> None:
    """Removes the Node if it is provably nobody's: the account in which this machine's VM was just made has no VM with
    its id, and its kubelet has been silent for healthTimeout. This is asked once; a Node that fails the proof stays,
    and the journal says so."""
    state = machine.s
    if state.stale is None:
        return
    machine.deadlines["stale"] = workflow.now() + 2 * state.timings.call_timeout
    try:
        why = await _remove(machine, state.stale)
    except ActivityError as e:
        why = failure_of(e).words
    if why:
        words = f"node {state.stale.name} stays, and each new VM that gets its name is deleted: {why}"
        machine.note("StaleNodeStays", f"{words}; `kubectl delete node {state.stale.name}` if it has no VM")
    state.stale = None
    machine.deadlines.pop("stale", None)


async def _remove(machine: MachineEntity, stale: StaleNode) -> str:
    """Removes the Node; returns why it stays, or "" when it is gone. Raises ActivityError."""
    if not stale.provider_id:
        return "it has no providerID, so it is not known which VM it belongs to"
    machine.waiting(
        "StaleNode", f"checking whether node {stale.name} still has a VM: {stale.provider_id} and its Lease"
    )
    vm = machine.start(
        MachineActivities.look_at_vm,
        VmLookInput(target=machine.target().model_copy(update={"provider_id": stale.provider_id})),
        queue=machine.cloud,
        summary=f"look for the VM of node {stale.name}",
        urgency=Urgency.POLL,
    )
    look = await _answer(machine, vm)
    if look is None or look.state != GONE:
        return f"{stale.provider_id} is {look.state}" if look else NOBODY
    node = machine.start(
        NodeActivities.remove_stale_node,
        StaleNodeInput(machine=machine.ref, node=stale, silent_for=machine.s.spec.health_timeout),
        queue=cluster_queue(machine.s.cluster, machine.s.queue_prefix),
        summary=f"remove node {stale.name} if it has no VM",
    )
    output = await _answer(machine, node)
    if output is None or not output.removed:
        return output.message if output else NOBODY
    words = output.message or f"{stale.provider_id} does not exist, and its kubelet was silent"
    machine.note("StaleNodeRemoved", f"node {stale.name} had no VM and was removed: {words}")
    return ""


async def _answer(m: MachineEntity, handle: workflow.ActivityHandle[T]) -> T | None:
    """The answer; None where nobody answers in time: the machine's own end is not held up for it."""
    await m.beside(handle.done, "stale")
    if handle.done():
        return await m.answer(handle)
    m.drop(handle)
    return None
