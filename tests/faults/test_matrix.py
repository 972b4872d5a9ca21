"""A worker killed, and a reply lost, at every activity boundary of create and delete."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest
from canaries import assert_no_canary, canaries_of, texts_of
from faultkit import KINDS, Fault, Kind, check_i1, check_i5, check_i6, faulty_worker
from lifekit import Stack, new_stack, tenant
from temporalio.testing import WorkflowEnvironment

from resources.machine import Phase
from simulator.frame import FaultRule

CREATE = ("create_machine", "update_machine", "watch_machine", "join_node", "remove_ready_taint", "watch_nodes")
DELETE = ("drain_node", "delete_machine", "forget_machine")
AT_ONCE = 3  # cases side by side, each with a worker process of its own


@pytest.fixture
async def shared(temporal: WorkflowEnvironment):
    async with new_stack(temporal.client) as stack:
        yield stack


async def one_life(stack: Stack, fault: Fault, sabotage: str | None = None) -> None:
    """From birth to the end under one fault; every invariant is asked for in the middle and after."""
    canaries = await canaries_of(stack)
    async with faulty_worker(stack, fault, sabotage) as marker:
        handle = await stack.create("m-1")
        state = await stack.phase(Phase.RUNNING)
        check_i1(stack, state)
        check_i5(stack, state)
        await stack.delete()
        assert marker.exists(), f"{fault} never struck"
    check_i1(stack, state)
    check_i6(stack, state.uid)
    assert_no_canary(canaries, await texts_of(stack.client, handle.id))


async def case(shared: Stack, slots: asyncio.Semaphore, fault: Fault) -> tuple[Fault, float, BaseException | None]:
    async with slots, tenant(shared, f"c{uuid.uuid4().hex[:6]}") as stack:
        began = time.monotonic()
        try:
            await one_life(stack, fault)
        except Exception as e:
            return fault, time.monotonic() - began, e
        return fault, time.monotonic() - began, None


@pytest.mark.parametrize("kind", KINDS)
async def test_every_boundary(shared: Stack, kind: Kind) -> None:
    slots = asyncio.Semaphore(AT_ONCE)
    ended = await asyncio.gather(*(case(shared, slots, Fault(name, kind)) for name in (*CREATE, *DELETE)))
    for fault, seconds, error in ended:
        print(f"{fault.activity:20} {fault.kind:14} {seconds:5.1f} s  {error or 'ok'}")
    wrong = {f"{fault.activity} {fault.kind}": error for fault, _, error in ended if error}
    assert not wrong


async def test_the_boundaries_are_all_there_are(shared: Stack) -> None:
    """A new activity of the flow must be struck too: the list is compared with what a life really calls."""
    async with shared.worker():
        handle = await shared.create()
        await shared.phase(Phase.RUNNING)
        await shared.delete()
    called = set()
    for workflow_id in (handle.id, f"cluster/{shared.cluster}"):
        async for event in shared.client.get_workflow_handle(workflow_id).fetch_history_events():
            if event.HasField("activity_task_scheduled_event_attributes"):
                called.add(event.activity_task_scheduled_event_attributes.activity_type.name)
    assert called == {*CREATE, *DELETE}


@pytest.mark.parametrize(
    ("invariant", "fault"),
    [
        ("I1", Fault("create_machine", "killed after")),
        ("I5", Fault("watch_machine", "killed before")),
        ("I6", Fault("delete_machine", "killed before")),
        ("I11", Fault("create_machine", "killed before")),
    ],
)
async def test_each_invariant_sees_its_saboteur(shared: Stack, invariant: str, fault: Fault) -> None:
    if invariant == "I5":
        rule = FaultRule(service="ec2", operation="DescribeInstances", code="Unavailable", match="InstanceIds")
        shared.simulator.call(lambda: shared.simulator.simulator.frame.faults.append(rule))
    with pytest.raises(AssertionError, match=invariant):
        await one_life_of_saboteur(shared, fault, invariant)


async def one_life_of_saboteur(stack: Stack, fault: Fault, invariant: str) -> None:
    """Like `one_life`, but what the saboteur breaks may keep the machine from ever running."""
    canaries = await canaries_of(stack)
    async with faulty_worker(stack, fault, invariant):
        handle = await stack.create("m-1")
        if invariant == "I11":
            await stack.reason("InvalidSpec")
        elif invariant == "I5":
            await stack.phase(Phase.FAILED)
        else:
            await stack.phase(Phase.RUNNING)
        state = await stack.state()
        check_i1(stack, state)
        check_i5(stack, state)
        assert_no_canary(canaries, await texts_of(stack.client, handle.id))
        await stack.delete()
    check_i6(stack, state.uid)
