"""Looks, before a machine that knows no VM ends, whether there is one: a reset loses what was known, and leaves the
VM."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of
from workflows.machine import terminate
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from activities.cluster.node import NodeActivities
    from planners.machine.claims import GONE
    from planners.machine.creation import plan_attempt
    from resources.calls.cloud import FindInput, FoundVm
    from resources.calls.cluster import LookInput
    from resources.clouds import provider_key
    from resources.machine.facts import VmFacts
    from resources.names import cluster_queue


async def find(m: MachineEntity) -> None:
    """Ends with the VM's id and Node recorded, if there are any, so that the machine ends like any other."""
    s = m.s
    terminate.begin(m)
    if s.attempt is None and s.machine_class is not None and workflow.patched("look-before-end"):
        found = await _find_vm(m)
        if found.provider_id:
            _record(m, found)
        if found.provider_id and not found.gone:
            # As in a drain, until somebody insists: what runs there is not known.
            await find_node(m, lambda: s.deletion is not None and s.deletion.force)
    node = s.node
    if node is None or s.joined or not node.exists or node.not_ready_taint or m.status.provider_id is None:
        return
    # It takes work, so it must be drained, whatever is remembered of its join.
    if provider_key(node.provider_id) == provider_key(m.status.provider_id) and workflow.patched("joined-after-all"):
        m.status.node_name, s.joined, s.joined_uid = node.name, True, node.uid


async def _find_vm(m: MachineEntity) -> FoundVm:
    while True:
        m.waiting("FindingVM", "it is being deleted and has no VM on record: looking for one with its tags")
        handle = m.start(
            MachineActivities.find_machine,
            FindInput(target=m.target(), takes=m.s.takes),
            queue=m.cloud,
            summary="look for its VM",
        )
        try:
            return await m.answer(handle, repeats=True)
        except ActivityError as e:
            await m.back_off(failure_of(e))


def _record(m: MachineEntity, found: FoundVm) -> None:
    s = m.s
    assert found.provider_id is not None
    s.uid = found.uid or s.uid
    s.attempt = plan_attempt(None, False, m.snapshot, s.uid, workflow.now())
    s.made = workflow.now()
    m.status.provider_id = found.provider_id
    m.status.node_name = found.node_name or None
    m.status.addresses = found.addresses
    s.account_id = found.account_id or s.account_id
    if found.gone:
        s.vm = VmFacts(epoch=0, seq=0, provider_id=found.provider_id, state=GONE)
        m.note("VMGone", f"{found.provider_id}, which this machine had before its workflow was reset, is gone")
        return
    m.note("VMAdopted", f"{found.provider_id} was found by its tags, and is deleted with the machine")


async def find_node(m: MachineEntity, unless: Callable[[], bool]) -> None:
    """Takes a fresh look at the Node of a VM that was found, and waits for an API server that does not answer."""
    while not unless():
        handle = m.start(
            NodeActivities.look_at_node,
            LookInput(machine=m.ref, node_name=m.status.node_name, provider_id=m.status.provider_id or ""),
            queue=cluster_queue(m.s.cluster, m.s.queue_prefix),
            summary="look for its Node",
        )
        try:
            look = await m.answer(handle)
        except ActivityError as e:
            await m.back_off(failure_of(e), unless)
            continue
        if look.node.exists:
            m.s.node = look.node
        return
