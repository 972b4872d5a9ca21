"""Pools, as machine-controller-manager's tests and the field cases have them: what the planner's tables do not show.

Lives on the simulators where Nodes or the cloud take part, else the real pool with stand-ins for its machines.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from lifekit import Stack, end_running, eventually
from machine.stubbed import Pool as Listening
from machine.stubs import Machines, classified, looked, phase, reason, state
from pools.lives import Pool as LivePool
from pools.lives import pool_class, pool_spec
from pools.workflow import SLOW, Pool, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from resources.manifests import ManifestError, load_manifests
from resources.names import MACHINE_NAME_LABEL, MARKED_ANNOTATION, PRIORITY_ANNOTATION
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.rollout import RolloutOutcome
from simulator.frame import FaultRule
from workflows.machine import MachineWorkflow

OTHER_IMAGE = "ami-0a1b2c3d4e5f60002"


@pytest_asyncio.fixture
async def pool(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    async with new_pool(temporal.client) as pool, pool.worker():
        yield pool


@pytest_asyncio.fixture
async def live(stack: Stack) -> AsyncIterator[LivePool]:
    yield LivePool(stack)
    await end_running(stack)


def node_of(pool: LivePool, machine: str) -> str:
    (node,) = [n for n in pool.nodes() if n["metadata"]["labels"][MACHINE_NAME_LABEL] == machine]
    return str(node["metadata"]["name"])


# -- replicas and order ------------------------------------------------------------------------------------------------


async def test_s07_a_machine_that_is_marked_on_its_node(live: LivePool) -> None:
    """It goes and is replaced without a change of replicas; the other one stays."""
    await live.start(pool_spec(2))
    await live.rolled_out(2)
    marked, stays = sorted((await live.state()).members)
    mark(live, marked)
    await eventually(live.state, lambda s: marked not in s.members, "it is gone")
    await live.rolled_out(2)
    assert stays in (await live.state()).members
    assert len(live.stack.launched()) == 3


def mark(pool: LivePool, machine: str) -> None:
    """Marks it as cluster-autoscaler's cloud provider does."""
    marks = (f"{PRIORITY_ANNOTATION}=1", f"{MARKED_ANNOTATION}=2026-01-01T00:00:00Z")
    pool.stack.kubectl("annotate", "node", node_of(pool, machine), *marks)


async def test_s11_a_deletion_that_cannot_be_told(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """The machine is not Terminating, the pool says so, and tells it again."""
    await pool.ready(spec(2))
    pool.calls.fail("tell_members", classified(ErrorClass.UNKNOWN, "the server says no"))
    await pool.scale(1)
    assert await pool.noted("PoolCallFailed") == "the server says no"
    (leaving,) = [n for n, m in (await pool.state()).members.items() if m.deleting]
    assert (await pool.members(Phase.TERMINATING), await pool.heard(leaving)) == ([], [])
    assert (await pool.summary()).machines == 2, "its VM counts"
    await temporal.fast_forward(pool.handle, 4 * 60)
    await pool.rolled_out(1)
    assert leaving not in await pool.members()
    assert len(pool.started()) == 2


# -- permits -----------------------------------------------------------------------------------------------------------


async def test_m09_a_pool_that_is_not_there(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Nobody gives the permit: the machine stays Unknown and says what it waits for; deleted, it goes."""
    nobody = Listening(machines, f"p{uuid.uuid4().hex[:8]}")
    handle = await nobody.running(health_timeout=timedelta(minutes=10))
    sick: dict[str, Any] = {"ready": False, "reason": "NodeStatusUnknown: Kubelet stopped posting node status."}
    await handle.signal(MachineWorkflow.observe, machines.facts(**sick))
    await phase(handle, Phase.UNKNOWN)
    machines.stubs.then("look_at_node", *[looked(**sick)] * 9)
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=1))
    waits = await reason(handle, "RepairPermit")
    assert waits.status.phase is Phase.UNKNOWN
    assert machines.stubs.called("drain_node") == []
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()


# -- rollouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [pytest.param("Recreate", id="U3"), pytest.param("Sideways", id="U6")])
def test_u03_u06_other_strategies_are_refused(strategy: str) -> None:
    manifest = {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {"name": "p1"},
        "spec": json.loads(pool_spec(3).model_dump_json(by_alias=True)) | {"strategy": {"type": strategy}},
    }
    with pytest.raises(ManifestError, match="write RollingUpdate or OnDelete"):
        load_manifests(json.dumps(manifest), "p1")
    manifest["spec"]["strategy"]["type"] = "OnDelete"
    assert load_manifests(json.dumps(manifest), "p1").pools[0].metadata.name == "p1"


async def test_tag_update_in_the_middle_of_a_rollout(pool: Pool) -> None:
    """There is no further revision and no further machine; what is made from then on has the tag from its birth."""
    await pool.ready(spec(2))
    await pool.class_changed(snapshot(2, image=2, habits=(SLOW,)))
    await pool.when(lambda s: any(m.revision == 2 for m in s.members.values()), "the first new one")
    await pool.class_changed(snapshot(3, image=2, team="b", habits=(SLOW,)))
    await pool.when(lambda s: s.machine_class and s.machine_class.generation == 3, "the tag")
    for count in (1, 2):
        new = await eventually(lambda: pool.members(revision=2), lambda n, c=count: len(n) == c, f"{count} new")
        await pool.be(*new, phase=Phase.RUNNING)
    await pool.rolled_out(2, revision=2)
    assert ((await pool.summary()).revision, len(pool.started())) == (2, 4)
    made = [(await pool.machine(n).query("describe"))["machineClass"] for n in pool.started()[2:]]
    assert [m["providerSpec"]["vmTags"]["team"] for m in made] == ["a", "b"]
    assert (await pool.result(2)).outcome is RolloutOutcome.COMPLETE


async def test_p15_labels_that_somebody_takes_off(live: LivePool) -> None:
    """A member is a member by its workflow, whatever its Node says: none is made in its place. When one more is wanted,
    only that one is made."""
    await live.start(pool_spec(3))
    await live.rolled_out(3)
    nodes = [n["metadata"]["name"] for n in live.nodes()]
    live.stack.kubectl("label", "node", *nodes, f"{MACHINE_NAME_LABEL}-", "app-")
    await live.scale(4)
    await live.rolled_out(4)
    assert len(live.stack.launched()) == 4
    assert live.vms() == {"running": 4}


async def test_p19_a_pool_that_starves_holds_up_no_other(stack: Stack) -> None:
    """Both must roll, and for one of them there is no capacity: the other finishes, and this one says what it waits
    for. Its old machines stay."""
    starving, other = LivePool(stack, "starving"), LivePool(stack, "other")
    rule = FaultRule(
        service="ec2", operation="RunInstances", match=OTHER_IMAGE, code="InsufficientInstanceCapacity", times=None
    )
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(rule))
    try:
        for pool in (starving, other):
            await pool.start(pool_spec(2, surge=2))
        for pool in (starving, other):
            await pool.rolled_out(2)
        await starving.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
        await starving.waits("OutOfCapacity")
        await other.apply(machine_class=pool_class(2, ami="ami-0a1b2c3d4e5f60004"))
        await other.rolled_out(2, revision=2)
        stands = await starving.waits("OutOfCapacity")
        assert (stands.available, stands.updated, stands.rolled_out) == (2, 1, False)
        await starving.undo()
        await starving.rolled_out(2, revision=3)
        assert len(stack.launched()) == 6
    finally:
        await end_running(stack)


async def test_p67_an_old_machine_that_never_joined(pool: Pool) -> None:
    """It goes first, and the rollout is complete; with no machines at all the next one is complete at once."""
    await pool.start(spec(2), machine_class=snapshot(habits=(SLOW,)))
    await pool.when(lambda s: len(s.members) == 2, "two on their way")
    joined, waits = await pool.members()
    await pool.be(joined, phase=Phase.RUNNING)
    await pool.class_changed(snapshot(2, image=2))
    await pool.rolled_out(2, revision=2)
    assert waits in (await pool.journal("ReplacedUnavailable"))[0]
    assert (await pool.result(2)).outcome is RolloutOutcome.COMPLETE
    await pool.scale(0)
    await pool.rolled_out(0)
    await pool.class_changed(snapshot(3, image=3))
    await pool.rolled_out(0, revision=3)
    assert len(pool.started()) == 4


async def test_p71_on_delete(pool: Pool) -> None:
    """Those that somebody deletes, two at a time, are replaced with the new revision; nothing else is touched."""
    on_delete = MachineDeploymentSpec.model_validate(
        {**spec(3).model_dump(by_alias=True, exclude_none=True), "strategy": {"type": "OnDelete"}}
    )
    await pool.ready(on_delete)
    old = await pool.members()
    await pool.apply(machine_class=snapshot(2, image=2))
    assert "3 machines" in await pool.waits("OnDelete")
    for name in old[:2]:
        await pool.machine(name).signal("delete", DeleteIntent(id="by-hand"))
    running = (Phase.RUNNING, 2)
    await pool.when(lambda s: [(m.phase, m.revision) for m in s.members.values()].count(running) == 2, "two new ones")
    assert await pool.members(revision=1) == old[2:]
    assert len(pool.started()) == 5
