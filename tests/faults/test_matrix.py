"""Every activity boundary of every flow, under every kind of fault, with every invariant asked for.

`make test` runs a covering subset: every crash at every boundary of a whole life, and of the other flows every boundary
and every kind at least once. `make faults` runs all.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator

import pytest
from faultkit import CRASHES, KINDS, Fault, faulty_worker
from flows import FLOWS
from lifekit import Stack, new_stack, tenant
from temporalio.testing import WorkflowEnvironment

from simulator.frame import FaultRule

AT_ONCE = 3  # cases side by side, each with a worker process of its own
EVERYTHING = os.environ.get("HOSTLER_FAULTS") == "all"


@pytest.fixture
async def shared(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


async def boundaries(shared: Stack, name: str) -> list[str]:
    """The activities that a flow calls, in order, found by running it once undisturbed."""
    async with tenant(shared, new_cluster()) as stack:
        async with stack.worker():
            await FLOWS[name](stack)
        workflow_ids = [h.id for h in stack.started.values()] + [f"cluster/{stack.cluster}"]
        found: dict[str, None] = {}
        for workflow_id in workflow_ids:
            async for event in stack.client.get_workflow_handle(workflow_id).fetch_history_events():
                if event.HasField("activity_task_scheduled_event_attributes"):
                    found[event.activity_task_scheduled_event_attributes.activity_type.name] = None
        return list(found)


def new_cluster() -> str:
    return f"c{uuid.uuid4().hex[:6]}"


def cases(flow: str, found: list[str]) -> list[Fault]:
    if EVERYTHING:
        return [Fault(a, k) for a in found for k in KINDS]
    if flow == "whole life":
        diagonal = [Fault(a, KINDS[3 + i % 4]) for i, a in enumerate(found)]
        return [Fault(a, k) for a in found for k in CRASHES] + diagonal
    rows = max(len(found), len(KINDS))
    return [Fault(found[i % len(found)], KINDS[i % len(KINDS)]) for i in range(rows)]


async def case(shared: Stack, slots: asyncio.Semaphore, flow: str, fault: Fault) -> tuple[float, Exception | None]:
    async with slots, tenant(shared, new_cluster()) as stack:
        began = time.monotonic()
        try:
            async with faulty_worker(stack, fault) as marker:
                await FLOWS[flow](stack)
                assert marker.exists(), f"{fault} never struck"
        except Exception as e:
            return time.monotonic() - began, e
        return time.monotonic() - began, None


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(shared: Stack, flow: str) -> None:
    found = await boundaries(shared, flow)
    faults = cases(flow, found)
    slots = asyncio.Semaphore(AT_ONCE)
    began = time.monotonic()
    ended = await asyncio.gather(*(case(shared, slots, flow, fault) for fault in faults))
    for fault, (seconds, error) in zip(faults, ended, strict=True):
        print(f"{flow:22} {fault.activity:20} {fault.kind:14} {seconds:5.1f} s  {error or 'ok'}")
    print(f"{flow}: {len(faults)} cases of {len(found)} boundaries in {time.monotonic() - began:.0f} s")
    wrong = {str(fault): error for fault, (_, error) in zip(faults, ended, strict=True) if error}
    assert not wrong


def test_a_subset_covers_every_boundary_and_every_kind() -> None:
    if EVERYTHING:
        return
    for flow, found in (("whole life", ["a", "b", "c", "d"]), ("other", ["a", "b"]), ("other", list("abcdefghi"))):
        chosen = cases(flow, found)
        assert {f.activity for f in chosen} == set(found)
        assert {f.kind for f in chosen} == set(KINDS)


@pytest.mark.parametrize("flow", FLOWS)
async def test_reads_that_lag_behind(shared: Stack, flow: str) -> None:
    """Not found though it exists: new instances and their tags are unknown to reads for a while."""
    frame = shared.simulator.simulator.frame
    lag = frame.lag.model_copy(update={"describe_after_create": 1.0, "tags": 1.0})
    shared.simulator.call(lambda: setattr(frame, "lag", lag))
    async with tenant(shared, new_cluster()) as stack, stack.worker():
        await FLOWS[flow](stack)


SABOTAGE: list[tuple[str, str, Fault]] = [
    ("I1", "whole life", Fault("create_machine", "killed after")),
    ("I5", "whole life", Fault("watch_machine", "killed before")),
    ("I6", "whole life", Fault("delete_machine", "killed before")),
    ("I7", "never joins", Fault("watch_machine", "killed before")),
    ("I8", "whole life", Fault("update_machine", "killed before")),
    ("I10", "whole life", Fault("drain_node", "killed before")),
    ("I11", "delete during create", Fault("create_machine", "transient")),
]


@pytest.mark.parametrize(("invariant", "flow", "fault"), SABOTAGE, ids=[s[0] for s in SABOTAGE])
async def test_each_invariant_sees_its_saboteur(shared: Stack, invariant: str, flow: str, fault: Fault) -> None:
    if invariant == "I5":
        # A read that fails while the VM is well: what the saboteur takes for death.
        rule = FaultRule(service="ec2", operation="DescribeInstances", code="Unavailable", match="InstanceIds")
        shared.simulator.call(lambda: shared.simulator.simulator.frame.faults.append(rule))
    async with faulty_worker(shared, fault, invariant):
        with pytest.raises(AssertionError, match=f"{invariant}:"):
            await FLOWS[flow](shared)
