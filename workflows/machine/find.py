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
    from planners.machine.creation import plan_attempt
    from resources.calls.cloud import FindInput, FoundVm
    from resources.calls.cluster import LookInput
    from resources.clouds import provider_key
    from resources.machine.advice import GONE
    from resources.machine.facts import VmFacts
    from resources.names import cluster_queue


async def find(machine: MachineEntity) -> None:
    """Ends with the VM's id and Node recorded, if there are any, so that the machine ends like any other."""
    state = machine.s
    terminate.begin(machine)
    if state.attempt is None and state.machine_class is not None and workflow.patched("look-before-end"):
        found = await _find_vm(machine)
        if found.provider_id:
            _record(machine, found)
        if found.provider_id and not found.gone:
            # As in a drain, until somebody insists: what runs there is not known.
            await find_node(machine, lambda: state.deletion is not None and state.deletion.force)
    node = state.node
    if node is None or state.joined or not node.exists or node.not_ready_taint or machine.status.provider_id is None:
        return
    # It takes work, so it must be drained, whatever is remembered of its join.
    if provider_key(node.provider_id) == provider_key(machine.status.provider_id) and workflow.patched(
        "joined-after-all"
    ):
        machine.status.node_name, state.joined, state.joined_uid = node.name, True, node.uid


async def _find_vm(machine: MachineEntity) -> FoundVm:
    while True:
        machine.waiting("FindingVM", "it is being deleted and has no VM on record: looking for one with its tags")
        handle = machine.start(
            MachineActivities.find_machine,
            FindInput(target=machine.target(), takes=machine.s.takes),
            queue=machine.cloud,
            summary="look for its VM",
        )
        try:
            return await machine.answer(handle, repeats=True)
        except ActivityError as e:
            await machine.back_off(failure_of(e))


def _record(machine: MachineEntity, found: FoundVm) -> None:
    state = machine.s
    assert found.provider_id is not None
    state.uid = found.uid or state.uid
    state.attempt = plan_attempt(None, False, machine.snapshot, state.uid, workflow.now())
    state.made = workflow.now()
    machine.status.provider_id = found.provider_id
    machine.status.node_name = found.node_name or None
    machine.status.addresses = found.addresses
    state.account_id = found.account_id or state.account_id
    if found.gone:
        state.vm = VmFacts(epoch=0, seq=0, provider_id=found.provider_id, state=GONE)
        machine.note("VMGone", f"{found.provider_id}, which this machine had before its workflow was reset, is gone")
        return
    machine.note("VMAdopted", f"{found.provider_id} was found by its tags, and is deleted with the machine")


async def find_node(machine: MachineEntity, unless: Callable[[], bool]) -> None:
    """Takes a fresh look at the Node of a VM that was found, and waits for an API server that does not answer."""
    while not unless():
        handle = machine.start(
            NodeActivities.look_at_node,
            LookInput(
                machine=machine.ref, node_name=machine.status.node_name, provider_id=machine.status.provider_id or ""
            ),
            queue=cluster_queue(machine.s.cluster, machine.s.queue_prefix),
            summary="look for its Node",
        )
        try:
            look = await machine.answer(handle)
        except ActivityError as e:
            await machine.back_off(failure_of(e), unless)
            continue
        if look.node.exists:
            machine.s.node = look.node
        return
