"""Whole lives of a control plane on each cloud, with an operator of etcd that holds its machines; a quorum is asserted
at every change of a Node (I14), and by the operator of its members."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from etcd.operator import etcd_operator
from faults.control_plane_flows import LiveControlPlane
from faults.pool_invariants import Watched
from lifekit import Stack, eventually, new_stack
from temporalio.testing import WorkflowEnvironment

from resources.control_plane.summary import ControlPlaneSummary

BIGGER: dict[str, dict[str, Any]] = {
    "aws": {"machineType": "m5.xlarge"},
    "azure": {"hardwareProfile": {"vmSize": "Standard_D4s_v5"}},
    "gcp": {"machineType": "n2-standard-4"},
}


async def begun(stack: Stack, replicas: int, **spec: Any) -> tuple[LiveControlPlane, Watched]:
    """A set over machines that were made by hand, and a watch of its Nodes."""
    cp = LiveControlPlane(stack, f"c{uuid.uuid4().hex[:6]}")
    cp.hands = [f"{cp.name}-hand{index}-{index}" for index in range(replicas)]
    seen = Watched(cp)  # type: ignore[arg-type]  # it has what Watched asks of a pool
    await cp.by_hand()
    await cp.start(replicas=replicas, **spec)
    await complete(cp, replicas, 1)
    seen.in_service()
    return cp, seen


async def complete(cp: LiveControlPlane, machines: int, revision: int, *without: str) -> ControlPlaneSummary:
    def done(s: ControlPlaneSummary) -> bool:
        gone = not any(h.name in without for i in s.indexes for h in i.hosts)
        return gone and s.rolled_out and s.machines == machines and s.revision >= revision and not s.template_pending

    return await eventually(cp.summary, done, f"{machines} machines of revision {revision}", within=240)


async def bigger(cp: LiveControlPlane) -> None:
    changed = BIGGER[cp.stack.home]
    if cp.stack.home == "azure":
        changed = {"properties": {**cp.of.wanted.provider_spec["properties"], **changed}}
    await cp.of.apply(**changed)


def check_quorum(seen: Watched, replicas: int) -> None:
    counts, quorum = seen.in_service(), replicas // 2 + 1
    assert len(counts) > replicas, "its Nodes were seen"
    assert min(counts) >= quorum, f"I14: in service {counts}, a quorum is {quorum}"


@pytest.mark.parametrize(
    ("home", "replicas"),
    [
        pytest.param("aws", 3, marks=pytest.mark.core),
        pytest.param("azure", 3, marks=pytest.mark.exhaustive),
        pytest.param("gcp", 3, marks=pytest.mark.exhaustive),
        pytest.param("aws", 5, marks=pytest.mark.exhaustive),
    ],
)
async def test_vertical_scaling(temporal: WorkflowEnvironment, home: str, replicas: int) -> None:
    """A bigger machine for each index, one after the other: no machine is drained while its member of etcd votes."""
    async with new_stack(temporal.client, home=home) as stack, stack.worker():
        cp, seen = await begun(stack, replicas)
        async with etcd_operator(cp, replicas) as operator:
            await eventually(lambda: _members(operator), lambda n: n == replicas, "each machine has a member")
            await bigger(cp)
            summary = await complete(cp, replicas, 2, *cp.hands)
            assert operator.removed == cp.hands, "index by index"
            assert sorted(operator.members) == sorted(h.name for i in summary.indexes for h in i.hosts)
            assert operator.fewest == replicas, "a member was there before the other went"
        check_quorum(seen, replicas)


async def _members(operator: Any) -> int:
    return len(operator.members)


async def test_two_deletions_at_once(temporal: WorkflowEnvironment) -> None:
    """OnDelete: both are replaced at once; their members go one after the other."""
    async with new_stack(temporal.client) as stack, stack.worker():
        cp, seen = await begun(stack, 3, strategy="OnDelete")
        async with etcd_operator(cp, 3) as operator:
            await eventually(lambda: _members(operator), lambda n: n == 3, "each machine has a member")
            await asyncio.gather(*map(cp.delete, cp.hands[:2]))
            await complete(cp, 3, 1, *cp.hands[:2])
            assert sorted(operator.removed) == cp.hands[:2]
            assert operator.fewest == 3
        check_quorum(seen, 3)


async def test_a_broken_template_is_taken_back(temporal: WorkflowEnvironment) -> None:
    """The cloud has no such machine: going back removes the replacement that never came, and nothing else."""
    async with new_stack(temporal.client) as stack, stack.worker():
        cp, seen = await begun(stack, 3)
        async with etcd_operator(cp, 3) as operator:
            await eventually(lambda: _members(operator), lambda n: n == 3, "each machine has a member")
            await cp.of.apply(machineType="no.such-type")
            await eventually(cp.state, lambda s: len(s.members) == 4, "a replacement that gets no VM")
            await cp.of.apply(machineType=cp.of.wanted.provider_spec["machineType"])
            summary = await complete(cp, 3, 2)
            assert sorted(h.name for i in summary.indexes for h in i.hosts) == cp.hands
            assert operator.removed == []
        check_quorum(seen, 3)
