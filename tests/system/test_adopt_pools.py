"""Pools' machines that have lost their workflow: with their VM or without, they come back or are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from histories.recorded import forgotten
from lifekit import Stack, end_running, eventually, examples, hostler
from machine.lives import client_of, fault, knobs, mend
from pools.lives import Crowd, Pool, machine_handle, pool_spec

from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase
from resources.orphans import OwnedVm
from resources.pool.intents import PoolSummary
from starter.commands.adopt import told
from starter.sdk.errors import Refused
from starter.sdk.ownerless import is_its
from starter.sdk.owners import refuse_too_early
from starter.sdk.results import Life, MachineSummary


@pytest_asyncio.fixture
async def pool(stack: Stack) -> AsyncIterator[Pool]:
    yield Pool(stack)
    await end_running(stack)


async def lost(pool: Pool, known: bool = True) -> tuple[str, MachineState]:
    """One of the pool's machines, whose workflow somebody has ended, or of which nobody knows any longer. The pool does
    not hear of it."""
    name, state = min((await pool.machines()).items())
    handle = machine_handle(pool.stack, name)
    await (handle.terminate("by mistake") if known else forgotten(pool.stack.client, handle.id))
    pool.stack.started[name] = machine_handle(pool.stack, name)  # an adopted one is the test's to end, too
    return name, state


async def missed(pool: Pool) -> PoolSummary:
    """The pool misses it when it next tells it something; a look at all of them comes only every half hour."""
    await pool.apply(pool.spec.model_copy(update={"template": _later(pool)}))
    return await pool.waits("MemberLost")


def _later(pool: Pool) -> Any:
    template = pool.spec.template
    longer = template.spec.model_copy(update={"drain_timeout": template.spec.drain_timeout + timedelta(seconds=1)})
    return template.model_copy(update={"spec": longer})


async def vm_deleted(pool: Pool, state: MachineState) -> None:
    """Deletes the VM by hand, at the cloud, and waits until nothing lists it any longer."""
    assert state.status.provider_id is not None
    instance = state.status.provider_id.rsplit("/", 1)[-1]
    await asyncio.to_thread(pool.stack.ec2().terminate_instances, InstanceIds=[instance])

    async def left() -> list[str]:
        listed = await asyncio.to_thread(pool.instances)
        vms = [i for r in listed for i in r["Instances"] if i["State"]["Name"] != "terminated"]
        return [i["InstanceId"] for i in vms]

    await eventually(left, lambda ids: instance not in ids, f"{instance} is gone")


async def adopt(pool: Pool, name: str) -> list[str]:
    return told(await client_of(pool.stack).adopt(name))


async def users(pool: Pool) -> set[str]:
    state = await client_of(pool.stack).classes.current(pool.machine_class.name)
    assert state is not None
    return set(state.users)


def well(replicas: int, name: str, kept: bool) -> Any:
    """There are as many machines as wanted, and nothing is waited for; the one that was lost is among them, or is
    not."""

    def done(state: Any) -> bool:
        running = [n for n, m in state.members.items() if m.phase is Phase.RUNNING]
        return len(state.members) == len(running) == replicas and (name in running) is kept and not state.waits

    return done


async def test_it_comes_back(pool: Pool) -> None:
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    name, before = await lost(pool)
    waits = {w.reason: w.message for w in (await missed(pool)).waits}
    remedy = f"to take them over: hostler adopt machine {name} --cluster demo"
    assert waits["MemberLost"].endswith(f"{name} (TERMINATED); {remedy}")
    said = await hostler(pool.stack, "adopt", "machine", name)
    assert said.splitlines()[0] == f"machine/{name} adopted: {before.status.provider_id} (running), uid {before.uid}"
    await eventually(pool.state, well(2, name, kept=True), "the pool is whole again")
    # What it was told while nobody heard it reaches it now, and not by the next repetition in 2 minutes.
    after = await eventually(lambda: pool.stack.state(name), lambda s: s.template == 2, "the template")
    assert (after.uid, after.pool, after.revision) == (before.uid, "p1", before.revision)
    assert len(pool.stack.launched()) == 2
    await pool.delete()
    assert pool.vms() == {}


async def test_one_that_was_being_repaired_is_judged_anew(pool: Pool) -> None:
    """Its deletion is not taken over, so its pool decides again: it has another machine by now, and one goes."""
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    name = min((await pool.state()).members)
    fault(pool.stack, operation="TerminateInstances", code="UnauthorizedOperation", times=None)
    knobs(pool.stack, f"{name}*", unready=True)
    ends = await eventually(pool.state, lambda s: s.members[name].phase is Phase.TERMINATING, "it is being deleted")
    assert ends.members[name].repair
    await eventually(lambda: asyncio.to_thread(pool.stack.calls, "TerminateInstances"))
    pool.stack.started[name] = machine_handle(pool.stack, name)
    await machine_handle(pool.stack, name).terminate("by mistake")
    mend(pool.stack)
    await adopt(pool, name)

    def whole(s: Any) -> bool:
        return [m.phase for m in s.members.values()] == [Phase.RUNNING] * 2 and not s.waits

    after = await eventually(pool.state, whole, "as many as wanted")
    assert any(f"machine {name} is " in h.message for h in after.journal if h.reason == "RepairRefused")
    assert pool.vms() == {"running": 2}
    await pool.delete()
    assert pool.vms() == {}


async def test_one_that_the_server_has_forgotten_comes_back(pool: Pool) -> None:
    """Its pool knows what it was made from."""
    await pool.start(pool_spec(1))
    await pool.rolled_out(1)
    name, before = await lost(pool, known=False)
    await missed(pool)
    said = await adopt(pool, name)
    assert said == [
        f"machine/{name} adopted: {before.status.provider_id} (running), uid {before.uid}",
        f"machine/{name}: spec and class are those of pool p1 in revision 1",
        f"machine/{name}: it checks its VM and Node now; to wait for it: hostler wait machine {name}",
    ]
    await eventually(pool.state, well(1, name, kept=True), "the pool is whole again")
    after = (await pool.machines())[name]
    assert (after.uid, after.pool, after.revision, after.labels) == (before.uid, "p1", 1, before.labels)
    assert len(pool.stack.launched()) == 1
    await pool.delete()
    assert pool.stack.leftovers(before.uid) == {}


async def test_one_without_its_vm_is_replaced(pool: Pool) -> None:
    """Its own look by id finds no VM; what else was made for it is deleted."""
    crowd = Crowd(pool.stack, pool.name)
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    name, before = await lost(pool)
    await vm_deleted(pool, before)
    await missed(pool)
    assert len(pool.stack.launched()) == 2, "it counts until somebody has looked"
    said = await adopt(pool, name)
    assert said[0] == f"machine/{name} adopted: {before.status.provider_id} (not listed), uid {before.uid}"
    assert any("if the VM is gone, pool p1 replaces it" in line for line in said)
    await eventually(pool.state, well(2, name, kept=False), "another one in its place")
    assert len(pool.stack.launched()) == 3
    assert pool.stack.leftovers(before.uid) == {}
    assert name not in {n["metadata"]["labels"]["node.gardener.cloud/machine-name"] for n in pool.nodes()}
    assert (crowd.most, crowd.twins) == (2, set())
    await pool.delete()


async def test_one_of_which_nothing_is_known_or_left_is_replaced(pool: Pool) -> None:
    """Its class no longer counts it either, or could never be deleted."""
    await client_of(pool.stack).apply(*examples().classes)
    await pool.start(pool_spec(1))
    await pool.rolled_out(1)
    name, before = await lost(pool, known=False)
    assert name in await users(pool)
    await vm_deleted(pool, before)
    await missed(pool)
    fault(pool.stack, operation="DescribeInstances", code="UnauthorizedOperation", times=None)
    with pytest.raises(Refused, match="cannot be listed"):
        await adopt(pool, name)
    mend(pool.stack)
    assert name in (await pool.state()).members
    said = await adopt(pool, name)
    assert said[0] == f"machine/{name}: it has no VM any longer; pool p1 is told and makes another if it needs one"
    assert f"tagged hostler.io/machine={name}" in said[1]
    state = await eventually(pool.state, well(1, name, kept=False), "another one in its place")
    assert len(pool.stack.launched()) == 2
    assert await users(pool) == {"pool/p1", *state.members}
    with pytest.raises(Refused, match="nothing is recorded about machine"):
        await adopt(pool, name)  # the pool no longer counts it
    await pool.delete()


async def test_a_pool_that_is_deleted_ends(pool: Pool) -> None:
    """One lost machine still has its VM and hears of its deletion when it is back; the other one no longer has any."""
    await pool.start(pool_spec(3))
    await pool.rolled_out(3)
    (without, first), (alive, second) = await lost(pool), await lost_too(pool)
    await vm_deleted(pool, first)
    await pool.ask("delete", DeleteIntent())
    waits = await pool.when(lambda s: s.deleted and s.machines == 2 and s.waits, "two phantoms are left")
    assert {w.reason for w in waits.waits} == {"MemberLost"}
    for name in (without, alive):
        assert (await adopt(pool, name))[0].startswith(f"machine/{name} adopted")
    await asyncio.wait_for(pool.handle.result(), 60)
    assert pool.vms() == {}
    assert pool.stack.leftovers(first.uid) == pool.stack.leftovers(second.uid) == {}


async def lost_too(pool: Pool) -> tuple[str, MachineState]:
    """Another machine, of those that answer as before."""
    name = max((await pool.state()).members)
    state: MachineState = await machine_handle(pool.stack, name).query("describe", result_type=MachineState)
    await machine_handle(pool.stack, name).terminate("by mistake, too")
    pool.stack.started[name] = machine_handle(pool.stack, name)
    return name, state


async def test_one_that_never_had_a_vm(pool: Pool) -> None:
    """Its pool is told nothing while a create call may be under way; then it is told, and makes another."""
    brief = pool.stack.settings.timings.model_copy(update={"call_timeout": timedelta(seconds=5)})
    pool.stack.settings = pool.stack.settings.model_copy(update={"timings": brief})
    fault(pool.stack, operation="RunInstances", code="InsufficientInstanceCapacity", times=None)
    await pool.start(pool_spec(1))

    async def members() -> dict[str, Any]:
        return dict((await pool.state()).members)

    (name,) = await eventually(members)
    handle = machine_handle(pool.stack, name)
    await eventually(lambda: asyncio.to_thread(pool.stack.calls, "RunInstances"))
    pool.stack.started[name] = handle
    await handle.terminate("by mistake")
    ended = (await handle.describe()).close_time
    assert ended is not None
    mend(pool.stack)

    refusals: list[str] = []

    async def adopted() -> list[str]:
        try:
            return await adopt(pool, name)
        except Refused as e:
            refusals.append(str(e))
            return []

    said = await eventually(adopted)
    assert datetime.now(UTC) >= ended + brief.call_timeout + brief.consistency
    assert said[0] == f"machine/{name}: it has no VM any longer; pool p1 is told and makes another if it needs one"
    assert all(f"machine {name} has no VM, but its workflow has only been ended" in r for r in refusals)
    await eventually(pool.state, well(1, name, kept=False), "another one in its place")
    assert len(pool.stack.launched()) == 1
    await pool.delete()


# -- without a server -------------------------------------------------------------------------------------------------

ENDED = datetime(2026, 3, 1, 14, 5, tzinfo=UTC)
ID = "aws:///eu-west-1/i-1"
LIFE = Life(
    summary=MachineSummary(name="p1-a-b", cluster="demo", created=ENDED, provider_id=ID),
    status="TERMINATED",
    run_id="r",
    first_run_id="r",
    task_queue="q",
    closed=ENDED,
)
FORMER = MachineState.model_validate({"name": "p1-a-b", "uid": "u1", "spec": {"class": {"name": "c"}}})


def test_until_when_nothing_is_told() -> None:
    """It takes a create call of a minute, and a minute in which the cloud may not show what it has made."""
    with pytest.raises(Refused, match=r"only been ended since 2026-03-01 14:05:00 UTC, .*: try again at 14:07:00 UTC"):
        refuse_too_early("p1-a-b", LIFE, FORMER, ENDED + timedelta(seconds=119))
    refuse_too_early("p1-a-b", LIFE, FORMER, ENDED + timedelta(seconds=120))


@pytest.mark.parametrize(
    ("fields", "its"),
    [
        pytest.param({"machine": "p1-a-b", "uid": "u9"}, True, id="its name"),
        pytest.param({"machine": "p1-a-c", "uid": "u1", "providerID": ID}, False, id="another name"),
        pytest.param({"uid": "u1"}, True, id="no name and its uid"),
        pytest.param({"uid": "u2"}, False, id="no name and another uid"),
        pytest.param({"providerID": "aws:///eu-west-1a/i-1"}, True, id="no tag but its id"),
        pytest.param({}, False, id="no tag and another id"),
    ],
)
def test_whose_vm_it_is(fields: dict[str, str], its: bool) -> None:
    """A VM that has lost its tags must not be taken for none: the pool would be told that nothing is left."""
    found = {"providerID": "aws:///eu-west-1/i-2", "machine": "", "uid": "", "state": "running", "account": "a"}
    vm = OwnedVm.model_validate(found | fields)
    assert is_its(vm, "p1-a-b", FORMER, LIFE) is its
    assert is_its(vm, "p1-a-b", None, None) is (vm.machine == "p1-a-b")
