"""Flows of a pool and its rollouts. Boundaries are those of the activities that these two call: what their machines do
is struck in the machines' own flows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from lifekit import Stack, asked, end_running, eventually
from machine.classes import LiveClass
from machine.lives import knobs
from pools.lives import OTHER_IMAGE, Pool, killing, machine_handle, pool_spec

from faults.books import books_of
from faults.flow import Flow, flow, mark
from faults.invariants import Witness, check_i10, check_marks
from faults.pool_invariants import (
    Watched,
    check_ends,
    check_i2,
    check_i3,
    check_i4,
    check_i15,
    check_pool_i1,
    check_pool_i6,
    check_pool_i8,
    check_unmarked,
)
from faults.strike import arm
from planners.fleet import pace
from resources.machine.facts import VmFacts
from resources.machine.state import MachineState
from resources.names import SCALE_DOWN_DISABLED, UPDATES_AFTER_ANNOTATION, cluster_id, rollout_id
from resources.orders import in_ms
from resources.owner import Owner
from resources.pool.intents import PoolIntent, PoolSummary, VerdictIntent
from resources.pool.rollout import RolloutOutcome
from resources.pool.state import PoolState
from simulator.frame import FaultRule
from workflows.cluster import ClusterWorkflow
from workflows.machine import MachineWorkflow

POOLS: dict[str, Flow] = {}
OURS = ("MachineDeploymentWorkflow", "RolloutWorkflow")


ILL = {"healthTimeout": "5s"}
WELL = {"healthTimeout": "5m"}
"""A health timeout for flows in which no machine is to be repaired: on a busy machine a kubelet may be silent for
seconds."""
SOON = {"healthTimeout": "20s"}
"""A health timeout where machines die: the watch of the account says nothing of a VM that it never saw alive, and a
worker that was killed begins it late."""
CALM = 0.25
"""Seconds between two questions."""


class CalmPool(Pool):
    """A pool that is asked less often: asked as often as others, it would take more of the machine than the flow does,
    as many run side by side."""

    async def state(self) -> PoolState:
        await asyncio.sleep(CALM)
        return await super().state()

    async def summary(self) -> PoolSummary:
        await asyncio.sleep(CALM)
        return await super().summary()


@dataclass
class Live:
    """A pool of a class, watched from before its start."""

    of: LiveClass
    pool: Pool
    seen: Watched

    async def up(self, replicas: int, **spec: Any) -> None:
        """Starts it with this many machines, before anything is struck."""
        await self.pool.start(pool_spec(replicas, **{"machine": WELL, **spec}), self.of.wanted)
        await self.pool.rolled_out(replicas)
        await self.known()
        await settled(self.pool)
        self.seen.in_service()
        arm(self.pool.stack, *OURS)

    async def known(self) -> None:
        """Waits until class and cluster know the pool."""
        cluster = self.pool.stack.client.get_workflow_handle(cluster_id(self.pool.stack.cluster))

        async def pools() -> dict[str, Any]:
            return (await asked(cluster, ClusterWorkflow.describe)).pools

        await eventually(
            self.of.state, lambda s: Owner(name=self.pool.name).user in s.users, "the pool among the users"
        )
        await eventually(pools, lambda found: found.get(self.pool.name), "the pool among the cluster's")

    async def end(self, machines: int, ceiling: int, rollouts: int = 0) -> None:
        """The pool is deleted: nothing is left of the machines that it ever had, and nobody knows it any longer."""
        pool, seen, stack = self.pool, self.seen, self.pool.stack
        await settled(pool)
        await pool.delete()
        check_pool_i1(seen, machines)
        check_i2(seen, ceiling)
        check_pool_i6(seen)
        check_pool_i8(seen)
        stories = [rollout_id(stack.cluster, pool.name, revision) for revision in range(2, 2 + rollouts)]
        await check_ends(seen, [pool.handle.id, *stories])
        await eventually(self.of.state, lambda s: not s.users, "the class forgets the pool and its machines")
        cluster = await asked(stack.client.get_workflow_handle(cluster_id(stack.cluster)), ClusterWorkflow.describe)
        assert not cluster.pools, f"the cluster still knows {sorted(cluster.pools)}"


@asynccontextmanager
async def live(stack: Stack) -> AsyncIterator[Live]:
    """A class, and a pool of it that is not started yet, with a name that no other case on the simulator has."""
    of, pool = LiveClass(stack), CalmPool(stack, f"p{uuid.uuid4().hex[:6]}")
    await of.start()
    try:
        yield Live(of, pool, Watched(pool))
    finally:
        await end_running(stack)


def pool_flow(*about: str) -> Callable[[Callable[[Live], Awaitable[None]]], Flow]:
    def register(run: Callable[[Live], Awaitable[None]]) -> Flow:
        async def on_stack(stack: Stack) -> None:
            async with live(stack) as it:
                await run(it)

        on_stack.__name__ = run.__name__
        return flow(POOLS, *about)(on_stack)

    return register


async def settled(pool: Pool) -> PoolState:
    """Waits until nothing that the pool has begun is under way, or is to be tried again."""

    async def look() -> PoolState | None:
        described = await pool.handle.describe()
        state = await pool.state()
        marks = [name for name, member in state.members.items() if member.marks_due]
        failed = state.unstarted or marks or "check" in state.deadlines
        return None if failed or described.raw_description.pending_activities else state

    found = await eventually(look, what=f"pool {pool.name} settled")
    assert found is not None
    return found


@pool_flow(
    "ask_class",
    "find_members",
    "register_pool",
    "report_to_class",
    "start_machines",
    "start_machines 2",
    "tell_members",
    "forget_pool",
)
async def pool_life(it: Live) -> None:
    """The pool is started with plain JSON and no class: from nothing to two machines, and to nothing again."""
    pool = it.pool
    arm(pool.stack, *OURS)
    await start_by_hand(pool)
    await pool.rolled_out(2)
    await it.known()
    await it.end(machines=2, ceiling=3)


async def start_by_hand(pool: Pool) -> None:
    """Starts it with the few words that a person types in Temporal's web UI, and the tests' short waits."""
    stack = pool.stack
    spec = pool_spec(2, machine=WELL)
    await stack.client.start_workflow(
        "MachineDeploymentWorkflow",
        {
            "name": pool.name,
            "cluster": stack.cluster,
            "spec": spec.model_dump(mode="json", by_alias=True, exclude_unset=True),
            "queuePrefix": stack.settings.queue_prefix,
            "timings": stack.settings.timings.model_dump(mode="json", by_alias=True),
        },
        id=pool.handle.id,
        task_queue=stack.settings.queue_prefix,
    )
    stack.started[pool.name] = pool.handle


@pool_flow("tell_members")
async def pool_scaled_in(it: Live) -> None:
    """From two machines to one: one goes, and no VM is made for it."""
    await it.up(2)
    await it.pool.scale(1)
    await it.pool.rolled_out(1)
    check_i3(it.seen, 1)
    await it.end(machines=2, ceiling=3)


@pool_flow("mark_nodes", "start_rollout", "tell_members", "start_machines 2")
async def pool_rolled_out(it: Live) -> None:
    """The class gets another image: each of two machines is replaced, and there are never fewer."""
    await it.up(2)
    await it.of.apply(ami=OTHER_IMAGE)
    await it.pool.rolled_out(2, revision=2)
    result = await it.pool.result(2)
    check_i3(it.seen, 2)
    assert (result.outcome, result.counts.updated, result.counts.old) == (RolloutOutcome.COMPLETE, 2, 0)
    reasons = [step.reason for step in result.steps]
    assert (reasons.count("RolledOut"), reasons.count("Replaced")) == (2, 2)
    for machine in (await it.pool.machines()).values():
        assert machine.machine_class is not None
        assert machine.machine_class.provider_spec["ami"] == OTHER_IMAGE
    await it.end(machines=4, ceiling=3, rollouts=1)


@pool_flow("mark_nodes 2", "start_rollout 2")
async def rollout_undone(it: Live) -> None:
    """A bad image costs the surge and is undone: both machines are as they were, also for the person who uses them."""
    pool, stack = it.pool, it.pool.stack
    await it.up(2)
    old = await pool.machines()
    theirs = touched(stack, min(old.items())[1])
    knobs(stack, f"{pool.name}-*", never_joins=True)
    await it.of.apply(ami=OTHER_IMAGE)
    await pool.when(lambda s: s.revision == 2 and s.updated == 1, "a new machine")
    await vms(it, 3)
    await settled(pool)
    assert all(m.node_marked for n, m in (await pool.state()).members.items() if n in old)
    await pool.undo()
    await pool.rolled_out(2, revision=3)
    await settled(pool)  # the story of a rollout that replaces nobody may begin after its end
    assert (await pool.result(2)).outcome == RolloutOutcome.UNDONE
    assert (await pool.result(3)).outcome == RolloutOutcome.COMPLETE
    assert (await pool.machines()).keys() == old.keys()
    check_unmarked(pool, str(theirs.last.status.node_name))
    check_marks(stack, theirs)
    check_i10(stack, theirs)
    check_i3(it.seen, 2)
    await it.end(machines=3, ceiling=3, rollouts=2)


@pool_flow("work_out_windows", "look_at_pool", "await_templates")
async def pool_behind_gates(it: Live) -> None:
    """Windows that are always open, pools before that never were, and an approval: each is found out, whatever is
    struck, and then the rollout and a change of the template go as any other."""
    pool = it.pool
    await it.up(2)
    gates = {
        "maintenance": {"windows": [{"begin": "00:00", "end": "00:00"}]},
        "approval": {"required": True},
        "rollsAfter": {"pool": "nobody"},
    }
    await pool.apply(pool_spec(2, machine=WELL, **gates))
    await eventually(pool.state, lambda s: s.calendar is not None and s.calendar.openings, "its windows")
    await it.of.apply(ami=OTHER_IMAGE)
    await pool.waits("Approval")
    assert "approved" in await pool.ask("approve", VerdictIntent(id=uuid.uuid4().hex))
    await pool.rolled_out(2, revision=2)
    assert (await pool.result(2)).outcome == RolloutOutcome.COMPLETE
    hot = PoolIntent(
        spec=pool_spec(2, machine={**WELL, "drainTimeout": "7m"}, **gates),
        machine_class=(await pool.state()).machine_class,
        annotations={UPDATES_AFTER_ANNOTATION: "nobody"},
    )
    assert "hot update of 2 machines" in await pool.ask("apply", hot)
    await pool.when(lambda s: not s.template_pending, "all have the template")
    assert (await pool.state()).turn > 0
    check_i3(it.seen, 2)
    await it.end(machines=4, ceiling=3, rollouts=1)


def touched(stack: Stack, state: MachineState) -> Witness:
    """Sets a person's marks on a machine, and forbids autoscalers to remove its Node."""
    seen = Witness([state])
    stack.kubectl("annotate", "node", str(state.status.node_name), f"{SCALE_DOWN_DISABLED}=true")
    mark(stack, seen)
    return seen


async def vms(it: Live, count: int) -> None:
    """Waits until this many VMs were made."""

    async def made() -> int:
        return sum(map(len, it.seen.launches().values()))

    await eventually(made, lambda n: n == count, f"{count} VMs")


@pool_flow("tell_members", "tell_members 2")
async def pool_repaired(it: Live) -> None:
    """Both machines fall ill: one after the other is replaced, by permit, with one VM more though maxSurge is 0."""
    pool = it.pool
    await it.up(2, surge=0, unavailable=1, machine=ILL)
    old = sorted((await pool.state()).members)
    for name in old:
        knobs(pool.stack, name, unready=True)
    await eventually(pool.state, lambda s: not s.members.keys() & set(old), "both replaced")
    await pool.rolled_out(2)
    check_i4(it.seen, (await settled(pool)).journal, 1)
    await it.end(machines=4, ceiling=3)


@pool_flow("tell_members 2", "tell_members 4", "tell_members 5")
async def pool_with_one_slot(it: Live) -> None:
    """Both machines fail: one is preserved, whatever is struck, and the other one replaced. Then its slot is taken."""
    pool = it.pool
    await it.up(2, machine=ILL, autoPreserveFailedMax=1)
    old = sorted((await pool.state()).members)
    for name in old:
        knobs(pool.stack, name, unready=True)
    await eventually(pool.state, lambda s: len(s.members.keys() & set(old)) == 1, "one of them is replaced")
    await pool.when(lambda s: s.available == 1 and s.preserved == 1, "the other one is kept")
    (kept,) = [n for n, m in (await settled(pool)).members.items() if m.preserved_until is not None]
    assert kept in old
    await pool.apply(pool_spec(2, machine=WELL))
    await eventually(pool.state, lambda s: kept not in s.members, "its slot was taken")
    await pool.rolled_out(2)
    await it.end(machines=4, ceiling=3)


@pool_flow("tell_members", "start_machines 3")
async def pool_whose_vms_die(it: Live) -> None:
    """Each VM is terminated as soon as it can be described. The pool backs off and says so; once nobody does that any
    longer, a person lets it go on."""
    pool, lost = it.pool, pace.patience(2) + 1
    arm(pool.stack, *OURS)
    async with killing(pool):
        await pool.start(pool_spec(2, machine=SOON), it.of.wanted)

        async def look() -> tuple[int, PoolSummary]:
            check_i15(it.seen, 2, lost - 2)
            return touched_vms(it)[0], await pool.summary()

        # On a busy machine each loss takes its time: what is given up is a pool that neither makes a VM nor waits.
        made, found = await look()
        while not _brakes(found):
            made, found = await eventually(look, partial(_goes_on, made), "a further VM, or a wait")
        assert not found.rolled_out
        await settled(pool)
        check_i15(it.seen, 2, lost - 2)
    answer = await pool.ask("resume")
    assert "machines are created again" in answer, answer
    await pool.rolled_out(2)
    await it.known()
    check_i15(it.seen, 2, lost)
    await it.end(machines=len(it.seen.launches()), ceiling=3)


def _brakes(summary: PoolSummary) -> bool:
    """On a busy machine a VM may have joined before it is terminated: it has died young then."""
    return any(w.reason in pace.DEATHS for w in summary.waits)


def _goes_on(made: int, seen: tuple[int, PoolSummary]) -> bool:
    return seen[0] > made or _brakes(seen[1])


@pool_flow("look_at_vm 2", "look_at_node 2")
async def not_found_lies(it: Live) -> None:
    """A read by id does not find the VM of a Ready Node, and the watch of the account says so: a contradiction, which
    is reported. No VM is terminated or made for it."""
    pool, stack = it.pool, it.pool.stack
    await it.up(2)
    arm(stack, "MachineWorkflow")
    name, state = min((await pool.machines()).items())
    provider_id = str(state.status.provider_id)
    machine = machine_handle(stack, name)
    lie = FaultRule(
        service="ec2",
        operation="DescribeInstances",
        match=provider_id.rsplit("/", 1)[-1],
        code="InvalidInstanceID.NotFound",
        times=None,
    )
    frame = stack.simulator.simulator.frame
    stack.simulator.call(lambda: frame.faults.append(lie))
    try:
        news = VmFacts(epoch=in_ms(datetime.now(UTC)), seq=1, provider_id=provider_id, state="gone")
        await machine.signal(MachineWorkflow.observe_vm, news)

        async def contradicted() -> bool:
            seen: MachineState = await asked(machine, MachineWorkflow.describe)
            return any(h.reason == "VMContradiction" for h in seen.journal)

        async def decided() -> bool:
            return touched_vms(it) != (2, 0) or await contradicted()

        await eventually(decided, what="what becomes of it")
        check_i5_vms(it, 2)
    finally:
        stack.simulator.call(lambda: frame.faults.remove(lie))
    await eventually(lambda: asked(machine, MachineWorkflow.describe), lambda s: s.claim is None, "it is found again")
    check_i5_vms(it, 2)
    check_i3(it.seen, 2)
    await it.end(machines=2, ceiling=2)


def touched_vms(it: Live) -> tuple[int, int]:
    """How many VMs were made for the pool, and how many of them have ended."""
    uids = {uid for _, uid in it.seen.launches()}
    made = books_of(it.pool.stack).vms(lambda vm: vm.uid in uids)
    return len(made), sum(vm.ended is not None for vm in made.values())


def check_i5_vms(it: Live, vms: int) -> None:
    """Nothing is destroyed, nor replaced, while the truth is unknown."""
    made, ended = touched_vms(it)
    assert (made, ended) == (vms, 0), f"I5: {made} VMs were made and {ended} terminated, of a pool of {vms}"
