"""ClusterWorkflow and its pools: what they are told and when, and a person's pause. The pools are stand-ins that keep
what they hear; nobody serves the watches."""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lifekit import eventually
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.announce import owner_of
from activities.temporal.members import MemberActivities
from activities.temporal.uses import UsesActivities
from activities.watch.lost import Lost
from planners.cluster.accounts import classes_only_of, used_by
from planners.cluster.news import news_of, to_search, untold
from resources import attributes as at
from resources.calls.cloud import InstancesOutput, VmsTold
from resources.calls.watch import Cursor, WatchInput
from resources.cluster.accounts import Account, AccountUse
from resources.cluster.news import CloudReachability, ClusterNews, Reachability
from resources.cluster.state import ClusterState, Ended, Pause
from resources.fleet.member import Member
from resources.fleet.revision import Revision
from resources.intents import Answer, Intent
from resources.machine.manifest import MachineTemplate, SecretRef
from resources.machine.state import ClassSnapshot
from resources.maintenance import FreezeIntent
from resources.names import class_id, cluster_id, machine_id, pool_id, watch_queue
from resources.owner import OwnerRef
from resources.pool.state import PoolState
from resources.settings import ClusterSettings, Settings
from workflows.cluster import ClusterWorkflow
from workflows.cluster.words import details, gap_words

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
ACCOUNT = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="a"))
OTHER = ACCOUNT.model_copy(update={"scope": "eu-central-1"})
DOWN = Reachability(reachable=False, message="connection refused", time=NOON)
ENDED = Ended(time=NOON, how="TERMINATED")
UP = Reachability(reachable=True, time=NOON + timedelta(minutes=2))


@workflow.defn(name="MachineDeploymentWorkflow")
class DeafPool:
    def __init__(self) -> None:
        self.news: list[ClusterNews] = []
        self.ended: list[str] = []
        self.over = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.over)

    @workflow.signal
    def cluster_news(self, news: ClusterNews) -> None:
        self.news.append(news)

    @workflow.signal
    def member_ended(self, name: str) -> None:
        self.ended.append(name)

    @workflow.signal
    def stop(self) -> None:
        self.over = True

    @workflow.query
    def lost(self) -> list[str]:
        return self.ended

    @workflow.query
    def heard(self) -> list[ClusterNews]:
        return self.news


@workflow.defn(name="MachineClassWorkflow")
class StillClass:
    @workflow.init
    def __init__(self, made: ClassSnapshot) -> None:
        self.made = made

    @workflow.run
    async def run(self, made: ClassSnapshot) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def snapshot(self) -> ClassSnapshot:
        return self.made


@workflow.defn(name="MachineWorkflow")
class DeafMachine:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


class Cluster:
    """One of a test's own, on a task queue of its own."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(cluster_id(name))
        self.deps = Deps(Settings(queue_prefix=name), client)

    def worker(self, strict: bool = False) -> Worker:
        return Worker(
            self.client,
            task_queue=self.name,
            workflows=[ClusterWorkflow],
            activities=[
                MemberActivities(self.deps).find_pools,
                UsesActivities(self.deps).find_uses,
                UsesActivities(self.deps).find_left,
            ],
            workflow_runner=worker.sandbox(strict),
            interceptors=[Boundary()],
        )

    def pools_worker(self) -> Worker:
        queue = f"{self.name}-pools"
        runner = UnsandboxedWorkflowRunner()
        return Worker(self.client, task_queue=queue, workflows=[DeafPool, DeafMachine], workflow_runner=runner)

    async def start(self, **fields: Any) -> None:
        state = ClusterState(name=self.name, queue_prefix=self.name, heartbeat=timedelta(seconds=1))
        await self.client.start_workflow(
            ClusterWorkflow.run, state.model_copy(update=fields), id=self.handle.id, task_queue=self.name
        )

    async def pool(self, name: str, *, registers: bool = True) -> WorkflowHandle[Any, Any]:
        handle = await self.client.start_workflow(
            DeafPool.run,
            id=pool_id(self.name, name),
            task_queue=f"{self.name}-pools",
            search_attributes=TypedSearchAttributes([SearchAttributePair(at.CLUSTER, self.name)]),
        )
        if registers:
            await self.handle.signal(ClusterWorkflow.register_pool, name)
        return handle

    async def machine(self, name: str, machine_class: str, pool: str = "") -> WorkflowHandle[Any, Any]:
        """A running machine that visibility knows; one of a pool is on the task queue of a worker that looks for lost
        ones."""
        said = [SearchAttributePair(at.CLUSTER, self.name), SearchAttributePair(at.CLASS, machine_class)]
        handle = await self.client.start_workflow(
            DeafMachine.run,
            id=machine_id(self.name, name),
            task_queue=self.name if pool else f"{self.name}-pools",
            search_attributes=TypedSearchAttributes([*said, SearchAttributePair(at.POOL, pool)] if pool else said),
        )

        async def visible() -> int:
            return (await self.client.count_workflows(f"WorkflowId = '{handle.id}'")).count

        await eventually(visible, lambda n: n == 1, f"{name} in the list")
        return handle

    async def use(self, machine_class: str, account: Account) -> None:
        await self.handle.signal(ClusterWorkflow.use_account, AccountUse(machine_class=machine_class, account=account))

    async def silent(self, account: Account) -> None:
        news = CloudReachability(account=account.key, reachable=False, message="not authorized", time=NOON)
        await self.handle.signal(ClusterWorkflow.cloud_reachability, news)

    async def heard(self, name: str) -> list[tuple[bool, bool]]:
        """What each news said: whether all could be seen, and whether the cluster was paused."""
        return [(n.reachable, n.paused) for n in await self.news(name)]

    async def news(self, name: str) -> list[ClusterNews]:
        found: list[ClusterNews] = await self.client.get_workflow_handle(pool_id(self.name, name)).query(DeafPool.heard)
        return found

    @contextlib.asynccontextmanager
    async def classes(self, **accounts: Account) -> AsyncIterator[None]:
        """Their workflows, which answer for their accounts."""
        queue = f"{self.name}-classes"
        runner = UnsandboxedWorkflowRunner()
        async with Worker(self.client, task_queue=queue, workflows=[StillClass], workflow_runner=runner):
            for name, account in accounts.items():
                spec = {"region": account.scope}
                made = ClassSnapshot(name=name, provider="AWS", provider_spec=spec, secret_ref=account.secret_ref)
                id = class_id(self.name, name)
                await self.client.start_workflow(StillClass.run, made, id=id, task_queue=queue)
            yield

    async def until_heard(self, name: str, *wanted: tuple[bool, bool]) -> None:
        await eventually(lambda: self.heard(name), lambda heard: heard == list(wanted), f"{name}: {wanted}")

    async def listed(self, query: str, number: int, what: str) -> None:
        """Waits until so many workflows are in a list, which lags."""

        async def count() -> int:
            return (await self.client.count_workflows(query)).count

        await eventually(count, lambda n: n == number, what)

    async def state(self) -> ClusterState:
        found: ClusterState = await self.handle.query(ClusterWorkflow.describe)
        return found

    async def ask(self, update: Any, id: str = "", **fields: Any) -> str:
        intent = Intent(id=id or uuid.uuid4().hex, **fields)
        answer: Answer = await self.handle.execute_update(update, intent)
        return answer.message

    async def journal(self) -> list[tuple[str, str]]:
        return [(h.reason, h.message) for h in (await self.state()).journal]

    def lost(self) -> Lost:
        """The look of a worker whose settings have the cluster."""
        self.deps.settings = Settings(queue_prefix=self.name, clusters={self.name: ClusterSettings()})
        return Lost(self.deps)

    async def scheduled(self) -> list[str]:
        return [
            event.activity_task_scheduled_event_attributes.activity_type.name
            async for event in self.handle.fetch_history_events()
            if event.HasField("activity_task_scheduled_event_attributes")
        ]

    async def phase(self) -> str | None:
        return (await self.handle.describe()).typed_search_attributes.get(at.PHASE)

    async def end(self) -> None:
        await self.deps.close()
        handles = [self.handle]
        async for found in self.client.list_workflows(
            f"TaskQueue IN ('{self.name}', '{self.name}-pools', '{self.name}-classes')"
        ):
            handles.append(self.client.get_workflow_handle(found.id))
        for handle in handles:
            with contextlib.suppress(RPCError):
                await handle.terminate("the test is over")


@pytest.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Cluster]:
    """A cluster without a worker."""
    cluster = Cluster(temporal.client, f"c{uuid.uuid4().hex[:8]}")
    async with cluster.pools_worker():
        try:
            yield cluster
        finally:
            await cluster.end()


@pytest.fixture
async def cluster(idle: Cluster) -> AsyncIterator[Cluster]:
    async with idle.worker():
        await idle.start(searched=True, looked=True)
        yield idle


WELL, UNSEEN, PAUSED = (True, False), (False, False), (True, True)

# -- news -------------------------------------------------------------------------------------------------------------


async def test_a_pool_is_told_at_once_and_at_each_change(cluster: Cluster) -> None:
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    await cluster.handle.signal(ClusterWorkflow.reachability, DOWN)
    await cluster.until_heard("p", WELL, UNSEEN)
    await cluster.pool("q")  # and one that comes now hears the present state
    await cluster.until_heard("q", UNSEEN)
    await cluster.handle.signal(ClusterWorkflow.reachability, DOWN)  # no change: nobody hears of it
    await cluster.handle.signal(ClusterWorkflow.reachability, UP)
    await cluster.until_heard("p", WELL, UNSEEN, WELL)
    await cluster.until_heard("q", UNSEEN, WELL)
    news = await cluster.news("p")
    assert news[1].message == "the API server: connection refused"
    assert [n.time for n in news] == sorted({n.time for n in news})
    assert (await cluster.news("q"))[0] == news[1]


async def test_an_account_that_cannot_be_listed_is_told_by_the_classes_that_it_concerns(cluster: Cluster) -> None:
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    await cluster.use("big", ACCOUNT)
    await cluster.use("small", OTHER)
    await cluster.silent(ACCOUNT)
    await cluster.until_heard("p", WELL, UNSEEN)
    words = f"{ACCOUNT.key}: not authorized"
    (_, news) = await cluster.news("p")
    assert (news.message, news.silent) == (words, {"big": words})
    assert news.trouble(["big", "other"]) == words
    assert news.trouble(["small"]) == ""

    async def reason() -> str | None:
        return (await cluster.handle.describe()).typed_search_attributes.get(at.REASON)

    await eventually(reason, lambda r: r == "CloudUnreachable", "the reason in lists")
    assert await cluster.phase() == "Watching", "its Nodes are watched all the same"
    again = CloudReachability(account=ACCOUNT.key, reachable=True, time=NOON + timedelta(minutes=1))
    await cluster.handle.signal(ClusterWorkflow.cloud_reachability, again)
    await eventually(reason, lambda r: r is None, "it answers again")


async def test_two_pools_with_two_accounts(cluster: Cluster) -> None:
    """One key is revoked: the pool whose machines are there no longer sees anything, the other one goes on. A pool
    whose class has moved still has machines of the former one."""
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    await cluster.use("big", ACCOUNT)
    await cluster.use("small", OTHER)
    await cluster.silent(ACCOUNT)
    await cluster.until_heard("p", WELL, UNSEEN)
    (_, news) = await cluster.news("p")
    pools = {name: _pool(name, news) for name in ("big", "small")}
    assert {name: pool.unseen for name, pool in pools.items()} == {"big": f"{ACCOUNT.key}: not authorized", "small": ""}
    moving = pools["small"]
    moving.revisions = [_revision(1, "big"), _revision(2, "small")]
    assert moving.unseen == ""
    moving.members = {"m": Member(revision=1, created=NOON, since=NOON)}
    assert moving.unseen == f"{ACCOUNT.key}: not authorized"
    await cluster.handle.signal(ClusterWorkflow.reachability, DOWN)  # the API server concerns everybody
    await cluster.until_heard("p", WELL, UNSEEN, UNSEEN)
    assert _pool("small", (await cluster.news("p"))[-1]).unseen == "the API server: connection refused"


def _template(machine_class: str) -> dict[str, Any]:
    return {"spec": {"class": {"name": machine_class}}}


def _pool(machine_class: str, news: ClusterNews) -> PoolState:
    spec = {"replicas": 1, "template": _template(machine_class)}
    return PoolState.model_validate({"name": "p", "spec": spec, "news": news})


def _revision(counter: int, machine_class: str) -> Revision:
    made = ClassSnapshot(name=machine_class, provider="AWS", provider_spec={}, secret_ref=SecretRef(name="a"))
    template = MachineTemplate.model_validate(_template(machine_class))
    return Revision(counter=counter, machine_class=made, hash="h", template=template, created=NOON)


async def test_whoever_makes_a_vm_reads_in_which_account_the_others_are(idle: Cluster) -> None:
    """It is known without a worker, in each run; and no longer for an account without VMs, or that no class has."""

    async def owner(account: Account) -> str:
        return await owner_of(idle.deps, idle.name, account)

    async def known(*expected: str) -> None:
        async def owners() -> tuple[str, ...]:
            return await owner(ACCOUNT), await owner(OTHER)

        await eventually(owners, lambda found: found == expected, f"owners {expected}")

    assert await owner(ACCOUNT) == ""
    async with idle.worker():
        await idle.start(searched=True, looked=True)
        await idle.use("big", ACCOUNT)
        await idle.use("small", OTHER)
        for account, told in ((ACCOUNT, "1"), (OTHER, "2")):
            await idle.handle.signal(ClusterWorkflow.vms_told, VmsTold(account=account.key, owner=told))
        await known("1", "2")
        run = (await idle.handle.describe()).run_id
        await idle.handle.execute_update("renew", Intent(id="r"), id="r")

        async def renewed() -> bool:
            return (await idle.handle.describe()).run_id != run

        await eventually(renewed, what="a new run")
        await known("1", "2")
        await idle.handle.signal(ClusterWorkflow.vms_told, VmsTold(account=OTHER.key, owner=""))
        await known("1", "")
    assert await owner(ACCOUNT) == "1"


async def test_an_account_that_its_class_has_left_holds_up_nobody(cluster: Cluster) -> None:
    """The class has another Secret, and the old key is revoked: nobody will ever say that it answers again."""
    moved = ACCOUNT.model_copy(update={"secret_ref": SecretRef(name="b")})
    await cluster.machine("m", "big")
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    await cluster.use("big", ACCOUNT)
    await cluster.silent(ACCOUNT)
    await cluster.until_heard("p", WELL, UNSEEN)
    await cluster.use("big", moved)
    await cluster.until_heard("p", WELL, UNSEEN, WELL)
    await cluster.silent(ACCOUNT)  # the last word of its watch comes late
    state = await cluster.state()
    assert (list(state.accounts), state.classes, state.clouds) == ([moved.key], {"big": [moved.key]}, {})
    await cluster.silent(moved)
    await cluster.until_heard("p", WELL, UNSEEN, WELL, UNSEEN)
    assert (await cluster.news("p"))[-1].silent == {"big": f"{moved.key}: not authorized"}


async def test_an_account_that_nobody_uses_any_more_is_forgotten(idle: Cluster) -> None:
    """Not at once: visibility may lack a class's machines only because it lags."""
    await idle.machine("m", "big")
    async with idle.worker():
        await idle.start(searched=True, looked=True, watch_duration=timedelta(seconds=1))
        await idle.use("big", ACCOUNT)
        await idle.use("gone", OTHER)
        await eventually(idle.state, lambda s: "gone" in s.unused, "it is in doubt")
        state = await eventually(idle.state, lambda s: list(s.accounts) == [ACCOUNT.key], "it is forgotten")
        assert state.classes == {"big": [ACCOUNT.key]}
        assert ("AccountForgotten", f"{OTHER.key}: no class uses it any longer") in await idle.journal()


async def test_a_cluster_of_an_older_worker_learns_whose_its_accounts_are(idle: Cluster) -> None:
    """It knows machines, and accounts without their users: these concern every pool until each class is known."""
    await idle.machine("m", "big")
    silent = {ACCOUNT.key: Reachability(reachable=False, message="no", time=NOON)}
    old = {"machines": {"aws/i-1": "m"}, "accounts": {ACCOUNT.key: ACCOUNT}, "clouds": silent}
    await idle.start(searched=True, **old)
    async with idle.worker(), idle.classes(big=OTHER):
        await eventually(idle.state, lambda s: s.classes == {"big": [OTHER.key]}, "its class is known")
        state = await idle.state()
        assert (state.machines, list(state.accounts), state.clouds) == ({}, [OTHER.key], {})


async def test_a_pool_that_is_forgotten_hears_nothing_more(cluster: Cluster) -> None:
    for name in ("p", "q"):
        await cluster.pool(name)
        await cluster.until_heard(name, WELL)
    await cluster.handle.signal(ClusterWorkflow.forget_pool, "p")
    await cluster.ask(ClusterWorkflow.pause)
    await cluster.until_heard("q", WELL, PAUSED)
    assert await cluster.heard("p") == [WELL]
    assert list((await cluster.state()).pools) == ["q"]


async def test_a_pool_that_was_ended_from_outside_is_found_out(cluster: Cluster) -> None:
    dead = await cluster.pool("dead")
    await cluster.pool("p")
    await cluster.until_heard("dead", WELL)
    await cluster.until_heard("p", WELL)
    await dead.terminate()
    await cluster.ask(ClusterWorkflow.pause)
    await cluster.until_heard("p", WELL, PAUSED)
    await eventually(cluster.state, lambda s: list(s.pools) == ["p"], "only p")
    words = "pool dead has no running workflow, although it was not deleted"
    assert ("PoolMissing", words) in await cluster.journal()


async def test_a_pool_that_registers_again_is_told_again(cluster: Cluster) -> None:
    """A new life of its name knows nothing yet."""
    former = await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    await former.terminate()
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    assert "PoolMissing" not in dict(await cluster.journal())


async def test_a_new_run_tells_all_once_more_and_so_finds_those_that_are_no_more(cluster: Cluster) -> None:
    dead = await cluster.pool("dead")
    await cluster.pool("p")
    for name in ("dead", "p"):
        await cluster.until_heard(name, WELL)
    await dead.terminate()
    first = (await cluster.handle.describe()).run_id
    await cluster.ask(ClusterWorkflow.renew_by_update)
    await cluster.until_heard("p", WELL, WELL)
    assert (await cluster.handle.describe()).run_id != first
    await eventually(cluster.state, lambda s: list(s.pools) == ["p"], "only p")
    told = await cluster.news("p")
    assert told[0] == told[1]


# -- pools of a former workflow ---------------------------------------------------------------------------------------


async def test_pools_that_were_there_before_are_found_when_there_is_something_to_tell(idle: Cluster) -> None:
    await idle.pool("old", registers=False)

    await idle.listed(f"HostlerCluster='{idle.name}'", 1, "the pool in the list")
    async with idle.worker():
        await idle.start()
        await eventually(idle.phase, lambda p: p == "Watching", "the watch")
        await idle.use("big", ACCOUNT)
        assert (await idle.state()).pools == {}
        names = sorted(await idle.scheduled())
        assert names == ["find_uses", "watch_instances", "watch_nodes"]  # a cluster without pools looks for none
        await idle.ask(ClusterWorkflow.pause)
        await idle.until_heard("old", PAUSED)
        await idle.ask(ClusterWorkflow.resume)
        await idle.until_heard("old", PAUSED, WELL)
        assert sorted(await idle.scheduled()) == ["find_pools", *names]


async def test_a_pool_that_registers_brings_the_others_back(idle: Cluster) -> None:
    await idle.pool("old", registers=False)

    await idle.listed(f"HostlerCluster='{idle.name}'", 1, "the pool in the list")
    async with idle.worker():
        await idle.start()
        await idle.pool("new")
        for name in ("new", "old"):
            await idle.until_heard(name, WELL)


# -- the pause --------------------------------------------------------------------------------------------------------


async def test_a_pause_is_told_and_seen_until_it_is_over(cluster: Cluster) -> None:
    for name in ("p", "q"):
        await cluster.pool(name)
        await cluster.until_heard(name, WELL)
    answer = await cluster.ask(ClusterWorkflow.pause, id="i-1", requested_by="alice", reason="a storm")
    goes_on = f"hostler resume cluster {cluster.name}"
    assert answer == f"cluster {cluster.name} is paused: its 2 pools do nothing until {goes_on}"
    for name in ("p", "q"):
        assert await cluster.heard(name) == [WELL, PAUSED]  # an answer is true when it is given
    news = (await cluster.news("p"))[-1]
    assert (news.paused_by, news.reason, news.reachable) == ("alice", "a storm", True)
    await eventually(cluster.phase, lambda p: p == "Paused", "the phase")
    state = await cluster.state()
    assert state.pause is not None
    since = f"since {state.pause.time:%Y-%m-%d %H:%M:%S} UTC by alice: a storm"
    assert f"**Paused** {since}. To resume: `{goes_on}`" in details(state)
    assert "- Pools: p, q" in details(state)

    assert await cluster.ask(ClusterWorkflow.pause, id="i-1") == answer  # the same intent once more
    assert await cluster.ask(ClusterWorkflow.pause) == f"cluster {cluster.name} is paused already, {since}"
    assert await cluster.ask(ClusterWorkflow.resume, requested_by="bob") == f"cluster {cluster.name} is resumed"
    assert await cluster.heard("p") == [WELL, PAUSED, WELL]
    await eventually(cluster.phase, lambda p: p == "Watching", "the phase")
    assert await cluster.ask(ClusterWorkflow.resume) == f"cluster {cluster.name} is not paused"
    paused, resumed = await cluster.journal()
    assert paused == ("Paused", since)
    assert resumed[0] == "Resumed"
    assert re.fullmatch(r"after [0-9]+s by bob", resumed[1])


async def test_a_pause_waits_for_pools_that_it_finds_only_now(idle: Cluster) -> None:
    """They belong to a former workflow of the cluster: they are paused no less than those that it knows."""
    await idle.pool("old", registers=False)

    await idle.listed(f"HostlerCluster='{idle.name}'", 1, "the pool in the list")
    async with idle.worker():
        await idle.start()
        answer = await idle.ask(ClusterWorkflow.pause)
        assert await idle.heard("old") == [PAUSED]
        assert (
            answer == f"cluster {idle.name} is paused: its pool does nothing until hostler resume cluster {idle.name}"
        )


async def test_who_has_not_heard_of_a_pause_is_named(idle: Cluster) -> None:
    """A parked pool tells nobody anything."""
    async with idle.worker():
        await idle.start(searched=True, looked=True, parked="KeyError: 'x'", pools={"p": None})
        answer = await idle.ask(ClusterWorkflow.pause)
        assert answer.endswith("; not told yet: 1 pool (p); it is tried again until it succeeds")
        assert (await idle.state()).pause is not None


async def test_a_pause_without_a_worker_is_kept(idle: Cluster) -> None:
    await idle.start(searched=True)
    await idle.handle.signal("pause", Intent(id="i-1", requested_by="alice"))
    await idle.handle.signal("pause", Intent(id="i-1", requested_by="alice"))
    await idle.pool("p")
    async with idle.worker(strict=True):  # for all tests of a cluster
        await idle.until_heard("p", PAUSED)
        assert [reason for reason, _ in await idle.journal()] == ["Paused"]
        await idle.handle.signal("resume", Intent())
        await idle.until_heard("p", PAUSED, WELL)


async def test_a_pause_outlives_a_new_run(cluster: Cluster) -> None:
    await cluster.ask(ClusterWorkflow.pause, requested_by="alice")
    first = (await cluster.handle.describe()).run_id
    await cluster.ask(ClusterWorkflow.renew_by_update)

    async def run_id() -> str | None:
        return (await cluster.handle.describe()).run_id

    await eventually(run_id, lambda run: run != first, "a new run")
    await cluster.pool("p")
    await cluster.until_heard("p", PAUSED)
    await eventually(cluster.phase, lambda p: p == "Paused", "the phase")


async def test_what_cannot_be_reached_is_shown_before_a_pause(cluster: Cluster) -> None:
    await cluster.ask(ClusterWorkflow.pause)
    await cluster.handle.signal(ClusterWorkflow.reachability, DOWN)
    await eventually(cluster.phase, lambda p: p == "APIUnreachable", "the phase")
    found = (await cluster.handle.describe()).typed_search_attributes
    assert found.get(at.REASON) == "APIUnreachable", "as pools and machines give one"
    page = details(await cluster.state())
    for words in (
        "**Paused** since",
        "What can be done: Restore access to it; `hostler doctor`",
        f"{DOWN.message} (since ",
    ):
        assert words in page


# -- ended from outside ------------------------------------------------------------------------------------------------


async def test_a_cluster_that_somebody_terminates_is_begun_again(idle: Cluster) -> None:
    """It is paused as before, its pools are told, and its journal shows the gap. One that a person has removed is not
    begun again, nor one of which nothing is left."""
    lost = idle.lost()
    async with idle.worker():
        await idle.start(searched=True, looked=True)
        await idle.ask(ClusterWorkflow.pause, requested_by="alice", reason="a storm")
        assert await lost.clusters() == []
        await idle.handle.terminate("by mistake")
        assert await lost.clusters() == []  # no machine and no pool: nobody needs it
        await idle.pool("p", registers=False)
        await eventually(lost.clusters, lambda again: again == [idle.name], "the pool in the list")
        await idle.until_heard("p", PAUSED)
        assert await lost.clusters() == []
        state = await idle.state()
        assert state.pause is not None
        assert (state.pause.requested_by, state.pause.reason, state.api) == ("alice", "a storm", None)
        assert state.ended is not None
        (back,) = [h.message for h in state.journal if h.reason == "BackAgain"]
        assert back.startswith(f"somebody ended the workflow at {state.ended.time:%Y-%m-%d %H:%M:%S} UTC (TERM")


async def test_a_cluster_that_was_terminated_before_it_took_its_last_news(idle: Cluster) -> None:
    """No worker was there: the news counts all the same, in a run for which no worker could still answer. What is known
    of an account that no class uses is forgotten: nobody would ever say that it answers again."""
    await idle.pool("p", registers=False)
    await idle.machine("m-1", "big")
    async with idle.worker():
        await idle.start(searched=True, looked=True)
        await idle.ask(ClusterWorkflow.pause)
        await idle.ask(ClusterWorkflow.resume)
    await idle.handle.signal("pause", Intent(id="p", requested_by="alice"))
    await idle.handle.signal("pause", args=["nonsense"])
    await idle.handle.signal(ClusterWorkflow.reachability, DOWN)
    await idle.silent(ACCOUNT)
    await idle.silent(OTHER)
    await idle.handle.terminate("by mistake")
    lost = idle.lost()
    await eventually(lost.clusters, lambda again: again == [idle.name], "the pool in the list")
    async with idle.classes(big=ACCOUNT), idle.worker():
        state = await eventually(idle.state, lambda s: s.looked, "a look at the classes")
        assert state.pause is not None
        assert (state.pause.requested_by, state.api, list(state.clouds)) == ("alice", DOWN, [ACCOUNT.key])
        assert state.ended is not None
        assert not state.ended.unread


async def test_a_pool_hears_soon_of_its_machine_that_somebody_terminates(idle: Cluster) -> None:
    """Each is told once, and none that came to its own end or runs."""
    pool, lost = await idle.pool("p", registers=False), idle.lost()
    ended, gone, _ = [await idle.machine(name, "big", "p") for name in ("m-1", "m-2", "m-3")]
    alone = await idle.machine("m-4", "big")
    for handle in (ended, alone):
        await handle.terminate("by mistake")
    await gone.cancel()  # nobody serves it: it goes on
    await eventually(lost.machines, lambda told: told == ["m-1"], "m-1 in the list")
    assert await lost.machines() == []
    assert await pool.query(DeafPool.lost) == ["m-1"]


async def test_whoever_begins_it_first_keeps_its_pause(idle: Cluster) -> None:
    """A new machine or pool may be sooner than the look of a worker."""
    async with idle.worker():
        await idle.start(searched=True, looked=True)
        await idle.ask(ClusterWorkflow.pause)
        await idle.handle.terminate("by mistake")
        await idle.pool("p", registers=False)
        await MemberActivities(idle.deps).register_pool(OwnerRef(cluster=idle.name, name="p"))
        await idle.until_heard("p", PAUSED)


# -- the end ----------------------------------------------------------------------------------------------------------


async def test_a_cluster_with_pools_or_machines_is_not_removed(cluster: Cluster) -> None:
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await cluster.ask(ClusterWorkflow.remove)
    words = f"cluster {cluster.name} still has 1 pool (p); delete them first"
    assert caught.value.cause.message == words  # type: ignore[attr-defined]
    await cluster.client.get_workflow_handle(pool_id(cluster.name, "p")).signal(DeafPool.stop)
    await cluster.handle.signal(ClusterWorkflow.forget_pool, "p")

    def runs(workflow_id: str) -> str:
        return f"WorkflowId='{workflow_id}' AND ExecutionStatus='Running'"

    await cluster.listed(runs(pool_id(cluster.name, "p")), 0, "a list without the pool")
    machine = await cluster.machine("m", "big")  # the cluster has never heard of it
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await cluster.ask(ClusterWorkflow.remove)
    words = f"cluster {cluster.name} still has 1 machine (m); delete them first"
    assert caught.value.cause.message == words  # type: ignore[attr-defined]
    await cluster.handle.signal("remove", Intent(id="i-1"))
    refused = ("Refused", words)
    await eventually(cluster.journal, lambda j: j.count(refused) == 2, "both refusals")
    await machine.terminate()
    await cluster.listed(runs(machine.id), 0, "a list without the machine")
    await cluster.ask(ClusterWorkflow.remove)
    await cluster.handle.result()


async def test_who_comes_while_the_watches_return_keeps_it(idle: Cluster) -> None:
    """The removal is granted, the watch of nodes has been asked to return, and takes its time."""
    returns = asyncio.Event()

    @activity.defn(name="watch_nodes")
    async def watch(input: WatchInput) -> Cursor:
        while True:
            activity.heartbeat()
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                await returns.wait()
                return Cursor()

    queue = watch_queue(idle.name, idle.name)
    async with idle.worker(), Worker(idle.client, task_queue=queue, activities=[watch]):
        await idle.start(searched=True, looked=True)
        removal = await idle.handle.start_update(
            ClusterWorkflow.remove, Intent(id="i-1"), wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )
        await removal.result()
        await eventually(lambda: _cancels(idle), what="the watch is asked to return")
        await idle.use("big", ACCOUNT)
        returns.set()
        kept = ("Refused", f"cluster {idle.name} is not removed: class big was added at the same time")
        await eventually(idle.journal, lambda j: kept in j, "it is kept")
        await eventually(lambda: _watched(idle), lambda n: n == 2, "a new watch")
        await idle.pool("p")
        await idle.until_heard("p", WELL)
        assert list((await idle.state()).accounts) == [ACCOUNT.key]


async def _cancels(cluster: Cluster) -> bool:
    return any(
        [
            e.HasField("activity_task_cancel_requested_event_attributes")
            async for e in cluster.handle.fetch_history_events()
        ]
    )


async def _watched(cluster: Cluster) -> int:
    return (await cluster.scheduled()).count("watch_nodes")


async def test_who_comes_while_it_is_removed_keeps_it(idle: Cluster) -> None:
    """Both came before a worker did: otherwise the pool would have a cluster that nobody watches."""
    await idle.start(searched=True, looked=True)
    await idle.handle.signal("remove", Intent(id="i-1"))
    await idle.pool("p")
    async with idle.worker():
        await idle.until_heard("p", WELL)
        assert await idle.journal() == [
            ("Refused", f"cluster {idle.name} is not removed: pool p was added at the same time")
        ]
        await idle.client.get_workflow_handle(pool_id(idle.name, "p")).signal(DeafPool.stop)
        await idle.handle.signal(ClusterWorkflow.forget_pool, "p")

        async def removed() -> bool:
            with contextlib.suppress(WorkflowUpdateFailedError):  # until visibility knows the end of the pool
                await idle.ask(ClusterWorkflow.remove)
                return True
            return False

        await eventually(removed, what="its removal")
        await idle.handle.result()


# -- what is told, as a function --------------------------------------------------------------------------------------


def given(**fields: Any) -> ClusterState:
    known = ClusterState(name="c", accounts={ACCOUNT.key: ACCOUNT}, classes={"big": [ACCOUNT.key]})
    return known.model_copy(update=fields)


def test_what_a_new_workflow_knows_of_one_that_was_ended_from_outside() -> None:
    """What was said stays, what was seen is looked at again; machines have heard of an outage, and must hear of its
    end."""
    former = given(
        api=DOWN, clouds={ACCOUNT.key: DOWN, OTHER.key: UP}, pools={"p": NOON}, pause=Pause(time=NOON), looked=True
    )
    former.cursor = Cursor.at("7", {"n-1": "digest m-1"})
    former.vms = {ACCOUNT.key: InstancesOutput(told={"aws:///eu-west-1/i-1": "stopped"})}
    now = given(classes={}, accounts={}).after(former, ENDED)
    assert (now.pause, now.pools, now.classes) == (former.pause, {"p": None}, former.classes)
    assert (now.api, list(now.clouds), now.cursor, now.vms, now.looked) == (DOWN, [ACCOUNT.key], Cursor(), {}, False)
    assert given().after(given(api=UP), ENDED).api is None
    assert now.ended == ENDED
    unread = given().after(None, ENDED).ended
    assert unread is not None
    assert gap_words(unread, NOON + timedelta(seconds=42)) == (
        "somebody ended the workflow at 2031-01-01 12:00:00 UTC (TERMINATED); it runs again after 42s: every "
        "machine gets the current state of its Node and VM; its earlier state could not be read: if the cluster was "
        "paused, it no longer is"
    )
    assert classes_only_of(former, ACCOUNT.key) == ["big"]
    former.classes["big"] = [ACCOUNT.key, OTHER.key]  # which of its machines are in which is not known
    assert classes_only_of(former, ACCOUNT.key) == []


def test_news_keep_their_time_until_something_changes() -> None:
    s = given()
    s.news = news_of(s, NOON)
    assert s.news == ClusterNews(time=NOON, silent={})
    assert news_of(s, NOON + timedelta(hours=1)) is s.news
    s.pause = Pause(time=NOON, requested_by="alice", reason="a storm")
    later = NOON + timedelta(hours=1)
    assert news_of(s, later) == ClusterNews(paused=True, paused_by="alice", reason="a storm", silent={}, time=later)


def test_news_are_newer_than_the_last_whatever_the_clock_says() -> None:
    s = given(pause=Pause(time=NOON))
    s.news = ClusterNews(time=NOON)
    assert news_of(s, NOON - timedelta(minutes=1)).time > NOON


def test_everything_that_does_not_answer_is_named() -> None:
    clouds = {a.key: Reachability(reachable=False, message="no", time=NOON) for a in (ACCOUNT, OTHER)}
    news = news_of(given(api=DOWN, clouds=clouds), NOON)
    assert (news.reachable, news.message) == (False, f"the API server: connection refused; {ACCOUNT.key}: no")
    assert news.silent == {"": "the API server: connection refused", "big": f"{ACCOUNT.key}: no"}
    answers = {ACCOUNT.key: clouds[ACCOUNT.key].model_copy(update={"reachable": True})}
    assert news_of(given(api=UP, clouds=clouds | answers), NOON).reachable  # nobody lists the other account
    nobodys = news_of(given(clouds=clouds, classes={}), NOON)
    assert nobodys.trouble(["other"]) == f"{ACCOUNT.key}: no"  # whose it is is not known: it concerns everybody


def test_news_of_an_older_worker_concern_everybody() -> None:
    assert ClusterNews(reachable=False, message="no", time=NOON).trouble(["big"]) == "no"
    assert ClusterNews(time=NOON).trouble(["big"]) == ""


def test_a_class_has_one_secret_and_perhaps_several_regions() -> None:
    """Machines are looked after with their class's newest Secret, wherever they were made."""
    moved = SecretRef(name="b")
    s = given(accounts={a.key: a for a in (ACCOUNT, OTHER)}, classes={"big": [ACCOUNT.key, OTHER.key]})
    now = OTHER.model_copy(update={"secret_ref": moved})
    found = used_by(s, AccountUse(machine_class="big", account=now))
    assert found == [ACCOUNT.model_copy(update={"secret_ref": moved}), now]
    assert used_by(s, AccountUse(machine_class="small", account=now)) == [now]


def test_who_has_not_heard_the_newest_is_told() -> None:
    s = given(pools={"a": NOON, "b": None}, news=ClusterNews(time=NOON, silent={}))
    assert untold(s, NOON + timedelta(hours=1)) == ["b"]
    s.pause = Pause(time=NOON)
    assert untold(s, NOON + timedelta(hours=1)) == ["a", "b"]
    assert untold(given(pause=Pause(time=NOON)), NOON) == []


@pytest.mark.parametrize(
    ("fields", "searched"),
    [
        ({}, False),
        ({"pools": {"a": None}}, True),
        ({"pause": Pause(time=NOON)}, True),
        ({"api": DOWN}, True),
        ({"ended": ENDED}, True),
    ],
    ids=["nothing to tell", "a pool", "a pause", "out of reach", "the one before was ended from outside"],
)
def test_pools_are_looked_for_once_there_is_something_to_tell(fields: dict[str, Any], searched: bool) -> None:
    assert to_search(given(**fields)) is searched
    assert not to_search(given(**fields, searched=True))


# -- the freeze -------------------------------------------------------------------------------------------------------


async def test_a_freeze_is_told_and_ends_in_time(cluster: Cluster) -> None:
    """Pools hear who has frozen them and until when; at its end they hear that it is over, and so does the page."""
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    intent = FreezeIntent(id="f-1", requested_by="alice", reason="sale", span=timedelta(seconds=3))
    answer: Answer = await cluster.handle.execute_update(ClusterWorkflow.freeze, intent)
    assert "its pool begins no rollout and no hot update" in answer.message
    told = (await cluster.news("p"))[-1].freeze
    assert told is not None
    assert (told.requested_by, told.reason) == ("alice", "sale")
    assert told.until == told.time + timedelta(seconds=3)
    assert f"**Frozen** {told.words}" in details(await cluster.state())

    async def last() -> bool:
        return (await cluster.news("p"))[-1].freeze is None

    await eventually(last, bool, "the end of the freeze")
    assert (await cluster.state()).freeze is None
    assert [reason for reason, _ in await cluster.journal()] == ["FreezeBegan", "FreezeEnded"]
    assert await cluster.ask(ClusterWorkflow.unfreeze) == f"cluster {cluster.name} is not frozen"


async def test_a_freeze_without_an_end_is_ended_by_a_person(cluster: Cluster) -> None:
    await cluster.pool("p")
    await cluster.until_heard("p", WELL)
    await cluster.handle.execute_update(ClusterWorkflow.freeze, FreezeIntent(id="f-1", requested_by="alice"))
    assert (await cluster.news("p"))[-1].freeze
    assert await cluster.ask(ClusterWorkflow.unfreeze) == f"cluster {cluster.name} is no longer frozen"
    assert (await cluster.news("p"))[-1].freeze is None


def test_a_cluster_that_was_ended_keeps_its_freeze() -> None:
    state = ClusterState(name="c")
    state = state.told("freeze", FreezeIntent(requested_by="alice", span=timedelta(hours=1)), NOON)
    assert state.freeze is not None
    assert state.freeze.until == NOON + timedelta(hours=1)
    assert ClusterState(name="c").after(state, ENDED).freeze == state.freeze
    assert state.told("resume", Intent(), NOON).freeze == state.freeze, "it is not the pause that is over"
    assert state.told("unfreeze", Intent(), NOON).freeze is None
