"""Resets of every entity, at its tasks and at the boundaries of its runs: it finds again what was made.

`HOSTLER_FAULTS=all` takes more places of each run.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from faults.books import books_of
from faults.flow import new_name
from faults.invariants import Witness, check_i6, check_one_at_a_time, check_ready
from faults.matrix import EVERYTHING, side_by_side
from faults.pool_flows import Live, live, settled
from faults.pool_invariants import check_i2, check_pool_i1, check_pool_i6
from histories.recorded import reset, reset_machine, run_of
from lifekit import Stack, asked, eventually, new_stack, result_of
from machine.lives import knobs
from pools.lives import OTHER_IMAGE
from temporalio import workflow
from temporalio.testing import WorkflowEnvironment

from drivers.aws import instances
from resources.intents import Intent
from resources.machine.hooks import HookIntent
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.manifest import LifecycleHooks
from resources.machine.state import MachineState, Phase
from resources.names import TAG_MACHINE, TAG_UID, cluster_id, rollout_id
from resources.owner import Owner
from resources.pool.rollout import RolloutOutcome
from starter.sdk.intents import ask
from workflows.cluster import ClusterWorkflow
from workflows.machine import MachineWorkflow

SHARES = tuple(i / 11 for i in range(12)) if EVERYTHING else (0.0, 0.5, 1.0)
"""Where in a run to reset: its first workflow task, one in the middle, its last."""
MIDDLE = pytest.mark.parametrize("shares", [(0.5,), pytest.param((0.0, 1.0), marks=pytest.mark.exhaustive)], ids=str)
"""A task in the middle of a run; its first and its last are variations."""
Life = Callable[[Stack, str], Awaitable[MachineState]]
Case = Callable[[Stack], Awaitable[None]]


@pytest.fixture
async def shared(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


async def all_well(shared: Stack, cases: dict[str, Case]) -> None:
    """Runs all side by side, each with a worker of its own."""

    async def one(stack: Stack, case: Case) -> None:
        async with stack.worker():
            await case(stack)

    ended = await side_by_side(shared, {name: partial(one, case=case) for name, case in cases.items()})
    assert not {name: (error, error.__cause__) for name, error in ended.items() if error is not None}


# -- machines ---------------------------------------------------------------------------------------------------------


async def running(stack: Stack, name: str) -> MachineState:
    await stack.create(name)
    return await stack.phase(Phase.RUNNING, name)


async def never_joins(stack: Stack, name: str) -> MachineState:
    knobs(stack, name, never_joins=True)
    await stack.create(name)
    return await eventually(lambda: stack.state(name), lambda s: s.post_start_done, "its VM")


async def failed(stack: Stack, name: str) -> MachineState:
    knobs(stack, name, never_joins=True)
    await stack.create(name, creation_timeout=timedelta(seconds=5))
    return await stack.phase(Phase.FAILED, name)


async def held_before_its_end(stack: Stack, name: str) -> MachineState:
    """The machine is drained, and its VM waits for a hook."""
    hooks = LifecycleHooks.model_validate({"preTerminate": [{"name": "Backup", "owner": "test"}]})
    await stack.create(name, lifecycle_hooks=hooks)
    await stack.phase(Phase.RUNNING, name)
    await tell(stack, name, "delete", DeleteIntent())
    return await stack.reason("PreTerminateHook", name)


async def tell(stack: Stack, name: str, what: str, intent: Intent) -> None:
    """Tells, as the command line does: a `renew` that came again with a reset may end the run just now."""
    given = intent.model_copy(update={"id": str(uuid.uuid4()), "requested_by": "test"})
    await ask(stack.started[name], what, given)


async def machine_case(stack: Stack, life: Life, share: float) -> None:
    """One machine is reset and is what it was; deleted, it leaves nothing."""
    name = new_name()
    books_of(stack)  # they count from now on
    before = await life(stack, name)
    await reset_machine(stack, name, share)
    if before.deletion is None:
        after = await eventually(
            lambda: stack.state(name),
            lambda s: s.status.phase == before.status.phase and s.status.provider_id,
            f"{before.status.phase} again",
        )
    else:
        after = await stack.reason("PreTerminateHook", name)
        await tell(stack, name, "hook", HookIntent(name="Backup", remove=True))
    await same(stack, name, before, after)


async def same(stack: Stack, name: str, before: MachineState, after: MachineState) -> None:
    """Checks that it has the uid, the VM and the Node that it had; and then its end."""
    assert (after.uid, after.status.provider_id) == (before.uid, before.status.provider_id)
    seen = Witness([after])
    if after.status.phase == Phase.RUNNING:
        assert after.status.node_name == before.status.node_name
        check_ready(stack, seen)
    await tell(stack, name, "delete", DeleteIntent())
    await result_of(stack.started[name])
    check_one_at_a_time(stack, name)
    check_i6(stack, seen)
    if before.joined:
        drained = [c for c in stack.calls("patch nodes", "kubernetes") if _cordons(c.request, before)]
        assert drained, "I12: its Node was not drained before the VM went"


def _cordons(request: dict[str, Any], machine: MachineState) -> bool:
    spec = (request.get("body") or {}).get("spec") or {}
    return str(request["path"]).endswith(f"/{machine.status.node_name}") and spec.get("unschedulable") is True


LIVES: dict[str, Life] = {f.__name__: f for f in (running, never_joins, failed, held_before_its_end)}
USUAL = ("running",)  # one that is held before its end is among those reset at the boundaries of its runs


@pytest.mark.parametrize(
    "life", [pytest.param(life, marks=[] if life in USUAL else [pytest.mark.exhaustive]) for life in LIVES]
)
async def test_workflow_reset_of_a_machine(shared: Stack, life: str) -> None:
    await all_well(
        shared, {f"{life} {share:.2f}": partial(machine_case, life=LIVES[life], share=share) for share in SHARES}
    )


async def of_a_former_run(stack: Stack, run: int, share: float) -> None:
    """A machine in its second run is reset to a task of its first or second."""
    name = new_name()
    books_of(stack)  # they count from now on
    before = await running(stack, name)
    await tell(stack, name, "renew", Intent())
    await run_of(stack.client, stack.started[name].id, 1)
    await reset_machine(stack, name, share, await run_of(stack.client, stack.started[name].id, run))
    after = await stack.phase(Phase.RUNNING, name)
    await same(stack, name, before, after)


async def deleted_at_its_first_task(stack: Stack) -> None:
    """The deletion comes again with the reset, before anything else is known: the VM is found, drained and deleted."""
    name = new_name()
    books_of(stack)  # they count from now on
    before = await held_before_its_end(stack, name)
    await reset_machine(stack, name, 0.0)
    again = await stack.reason("PreTerminateHook", name)
    assert (again.status.provider_id, again.status.node_name) == (before.status.provider_id, before.status.node_name)
    await tell(stack, name, "hook", HookIntent(name="Backup", remove=True))
    await same(stack, name, before, again)


async def a_new_life(stack: Stack) -> None:
    """`recreate` gives another uid, and a reset of the second life leaves it the second's."""
    name = new_name()
    books_of(stack)  # they count from now on
    first = await running(stack, name)
    await tell(stack, name, "recreate", RecreateIntent())
    second = await eventually(
        lambda: stack.state(name), lambda s: s.uid != first.uid and s.status.phase == Phase.RUNNING, "the second life"
    )
    await reset_machine(stack, name, 0.0)
    after = await stack.phase(Phase.RUNNING, name)
    await same(stack, name, second, after)


async def test_workflow_reset_at_the_boundaries_of_its_runs(shared: Stack) -> None:
    cases: dict[str, Case] = {"a new life": a_new_life, "deleted at its first task": deleted_at_its_first_task}
    for run, share in ((0, 1.0), (1, 0.0)):
        cases[f"run {run} at {share}"] = partial(of_a_former_run, run=run, share=share)
    await all_well(shared, cases)


@pytest.mark.exhaustive  # of the boundary between its runs: their other ends
async def test_workflow_reset_at_the_other_ends_of_its_runs(shared: Stack) -> None:
    ends = ((0, 0.0), (1, 1.0))
    await all_well(shared, {f"run {run}": partial(of_a_former_run, run=run, share=share) for run, share in ends})


async def its_vm_is_gone(stack: Stack, delete: bool) -> None:
    """Somebody has deleted its VM, and EC2 no longer shows it. Reset to where it knew none, the machine is Failed, or
    its deletion comes again; no second VM is made, and its Node goes."""
    name = new_name()
    before = await running(stack, name)
    vm = before.status.provider_id.rpartition("/")[2]
    stack.simulator.call(lambda: stack.cloud.kill(vm))
    if delete:
        await stack.started[name].signal("delete", DeleteIntent(id="before", requested_by="test"))
        await result_of(stack.started[name])
    await reset_machine(stack, name, 0.0)
    if not delete:
        after = await stack.phase(Phase.FAILED, name)
        assert (after.uid, after.status.provider_id) == (before.uid, before.status.provider_id)
        failure = next(c for c in after.status.conditions if c.type == "Failed")
        assert failure.reason == "VMGone", failure
        await tell(stack, name, "delete", DeleteIntent())
    result = await result_of(stack.started[name])
    assert result.provider_id == before.status.provider_id
    calls = [c for c in stack.calls("RunInstances") if {"Key": TAG_MACHINE, "Value": name} in _tags(c.request)]
    assert {i for c in calls for i in c.result.get("instanceIds", ())} == {vm}, calls
    assert f"node/{before.status.node_name}" not in stack.kubectl("get", "nodes", "-o", "name").split()


async def test_workflow_reset_of_a_machine_whose_vm_is_gone(shared: Stack) -> None:
    """P80."""
    shared.cloud.settings.terminated_visible = 0.5
    await all_well(shared, {f"deleted: {given}": partial(its_vm_is_gone, delete=given) for given in (False, True)})


def by_chance(self: MachineWorkflow) -> str:
    """Random uids, as they were made before; the sandbox of users passes our modules through."""
    return str(workflow.uuid4())


async def test_the_belt_a_uid_by_chance_is_found_by_the_name(shared: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older machines have such a uid, and another one after a reset: their VM is adopted, because a run of theirs that
    the reset cut off made it. Without the look by name a second one is made."""
    monkeypatch.setattr(MachineWorkflow, "_own_uid", by_chance)
    cases = {f"{share}": partial(machine_case, life=running, share=share) for share in (0.0, 1.0)}
    await all_well(shared, {**cases, "deleted": deleted_at_its_first_task})

    def by_uid_alone(ec2: Any, machine: Any) -> Any:
        return instances.by_uid(ec2, machine.uid)

    monkeypatch.setattr(instances, "by_name", by_uid_alone)
    with pytest.raises(AssertionError, match="AssertionError"):
        await all_well(shared, {"saboteur": partial(machine_case, life=running, share=0.0)})
    uids = [t["Value"] for c in shared.calls("RunInstances") for t in _tags(c.request) if t["Key"] == TAG_UID]
    assert len(uids) == 3 + 2


def _tags(request: dict[str, Any]) -> list[dict[str, str]]:
    return next(s["Tags"] for s in request["TagSpecifications"] if s["ResourceType"] == "instance")


# -- pools, classes, clusters, rollouts --------------------------------------------------------------------------------


async def scaled_pool(it: Live, share: float) -> None:
    """A pool that was scaled since then: it finds the machines that it has made, and makes no others."""
    pool, stack = it.pool, it.pool.stack
    await it.up(2)
    await pool.scale(3)
    await pool.rolled_out(3)
    await settled(pool)
    names = (await pool.state()).members.keys()
    await reset(stack.client, pool.handle.id, share)
    await pool.rolled_out(3)
    assert (await settled(pool)).members.keys() == names
    await pool.delete()
    check_i2(it.seen, 3)
    check_pool_i1(it.seen, 3)
    check_pool_i6(it.seen)


async def renewed_pool(it: Live, run: int) -> None:
    """A pool in its second run, with a machine that was made in it."""
    pool, stack = it.pool, it.pool.stack
    await it.up(1)
    await pool.ask("renew")
    await run_of(stack.client, pool.handle.id, 1)
    await pool.scale(2)
    await pool.rolled_out(2)
    await settled(pool)
    await reset(stack.client, pool.handle.id, 0.0, await run_of(stack.client, pool.handle.id, run))
    await pool.rolled_out(2)
    await settled(pool)
    await pool.delete()
    check_i2(it.seen, 2)
    check_pool_i1(it.seen, 2)
    check_pool_i6(it.seen)


async def others(it: Live, share: float) -> None:
    """The class, the cluster and the story of a paused rollout: they know again what they knew."""
    pool, stack = it.pool, it.pool.stack
    await it.up(1)
    await pool.ask("pause")
    await it.of.apply(ami=OTHER_IMAGE)
    story = rollout_id(stack.cluster, pool.name, 2)
    await eventually(pool.state, lambda s: 2 in s.stories and s.stories[2].started, "the second revision's story")
    await eventually(lambda: pool.rollout(2), lambda s: s.news_at, "its first news")
    for id in (it.of.handle.id, cluster_id(stack.cluster), story):
        await reset(stack.client, id, share)
    cluster = stack.client.get_workflow_handle(cluster_id(stack.cluster))

    async def known() -> Any:
        state = await asked(cluster, ClusterWorkflow.describe)
        return state.pools.get(pool.name)

    await eventually(it.of.state, lambda s: Owner(name=pool.name).user in s.users and len(s.users) == 2, "its users")
    await eventually(known, what="the pool among the cluster's")
    await pool.ask("resume")
    await pool.rolled_out(1, revision=2)
    assert (await pool.result(2)).outcome == RolloutOutcome.COMPLETE
    await it.end(machines=2, ceiling=2, rollouts=0)


def of_pool(case: Callable[..., Awaitable[None]], **given: Any) -> Case:
    async def on_stack(stack: Stack) -> None:
        async with live(stack) as it:
            await case(it, **given)

    return on_stack


@MIDDLE
async def test_workflow_reset_of_a_pool(shared: Stack, shares: tuple[float, ...]) -> None:
    cases = {f"scaled {share:.2f}": of_pool(scaled_pool, share=share) for share in shares}
    run = 0 if 0.5 in shares else 1
    await all_well(shared, {**cases, f"renewed {run}": of_pool(renewed_pool, run=run)})


@MIDDLE
async def test_workflow_reset_of_a_class_a_cluster_and_a_rollout(shared: Stack, shares: tuple[float, ...]) -> None:
    await all_well(shared, {f"{share:.2f}": of_pool(others, share=share) for share in shares})
