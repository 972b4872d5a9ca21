"""The watches of a large cluster, of one that continues as new, and of several clusters served by one worker."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import boto3
import pytest
import watchkit
from clouds import drivers as driver_clouds
from clouds.drivers import AwsCloud, Given
from lifekit import eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, ListWorkflowsInput, OutboundInterceptor, SignalWorkflowInput, WorkflowHandle
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.testing import WorkflowEnvironment
from watchkit import Door, World, new_world, provider_id

import worker
from activities.deps import Deps
from activities.temporal.announce import use_account
from activities.watch.labels import AT_ONCE as LABELS_AT_ONCE
from resources import attributes
from resources.cluster.accounts import Account, AccountUse
from resources.cluster.state import ClusterState
from resources.converter import data_converter
from resources.intents import Intent
from resources.machine.facts import NodeFacts, VmFacts
from resources.machine.manifest import SecretRef
from resources.names import cluster_id, machine_id
from resources.settings import CloudSettings, ClusterSettings, SecretsSettings
from workflows.cluster import ClusterWorkflow

T = TypeVar("T")

NODE_COUNT = 500
ROUNDS = 3
CLASSES = 200
USES = 2000
WAVES = 2
AT_ONCE = 40
ACCOUNT = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="cloud"))


async def at_once(work: Callable[[T], Awaitable[object]], items: Iterable[T], limit: int = AT_ONCE) -> None:
    """Runs them concurrently, with a bound."""
    slots = asyncio.Semaphore(limit)

    async def one(item: T) -> None:
        async with slots:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))


# -- two thousand nodes ------------------------------------------------------------------------------------------------


class Ear(ClientInterceptor):
    """Hears what each machine is told, and knows which VM belongs to it. Thousands of machines need no workflow each:
    those that are not `real` are told in vain, as far as the watch knows with success."""

    def __init__(self, cluster: str, machines: dict[str, str], *real: str) -> None:
        self.cluster, self.machines, self.real = cluster, machines, real
        self.heard: list[tuple[str, NodeFacts]] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        ear = self

        class Out(OutboundInterceptor):
            def list_workflows(self, input: ListWorkflowsInput) -> Any:
                ids = re.findall("'(aws:[^']+)'", input.query or "")
                return ear.known(ids) if ids else super().list_workflows(input)

            async def signal_workflow(self, input: SignalWorkflowInput) -> None:
                machine = input.id.rpartition("/")[2]
                if input.signal == "observe":
                    ear.heard.append((machine, input.args[0]))
                if input.signal != "observe" or machine in ear.real:
                    await super().signal_workflow(input)

        return Out(next)

    async def known(self, ids: list[str]) -> AsyncIterator[Any]:
        """The machines, as visibility would answer."""
        for vm in ids:
            pair = SearchAttributePair(attributes.PROVIDER_ID, vm)
            id = machine_id(self.cluster, self.machines[vm])
            yield SimpleNamespace(id=id, typed_search_attributes=TypedSearchAttributes([pair]))


class CountingDoor(Door):
    """Knows how many connections were open at once."""

    peak = 0

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # type: ignore[override]
        self.peak = max(self.peak, len(self.pipes) // 2)
        await super()._copy(reader, writer)


async def _beat(world: World, number: int) -> None:
    """A kubelet's report in which only the time differs."""
    await world.ready(f"n-{number}", True, "KubeletReady", "kubelet is posting ready status")


async def test_one_change_among_hundreds_of_nodes(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watchkit, "Door", CountingDoor)
    everybody = range(NODE_COUNT)
    async with new_world(temporal.client) as world:
        machines = {provider_id(f"i-{n}"): f"m-{n}" for n in everybody}
        ear = Ear(world.name, machines, "m-7")
        config: dict[str, Any] = {**world.client.config(), "interceptors": [world.spy, ear]}
        world.client = Client(**config)
        await world.machine("m-7")
        await at_once(lambda n: world.node(f"n-{n}", f"i-{n}"), everybody)
        await _begin(world, timedelta(seconds=10))
        async with world.worker():
            await world.told("m-7", 1)

            async def told() -> set[str]:
                return {machine for machine, _ in ear.heard}

            await eventually(told, lambda names: len(names) == NODE_COUNT, "every machine told")
            assert len(ear.heard) == NODE_COUNT

            async def labelled() -> int:
                return len(world.calls("patch nodes"))

            await eventually(labelled, lambda n: n >= NODE_COUNT, "every label")
            assert await labelled() == NODE_COUNT  # each one once
            assert isinstance(world.door, CountingDoor)
            assert 1 < world.door.peak <= LABELS_AT_ONCE + 2  # the watch, and one that is being closed
            ear.heard.clear()
            began = time.monotonic()
            for _ in range(ROUNDS):
                await at_once(lambda n: _beat(world, n), everybody)
            await world.only_this_change("m-7", 1, "n-7")
            took = time.monotonic() - began
            assert [machine for machine, _ in ear.heard] == ["m-7"]
            assert len(world.calls("list nodes")) == 1  # all of it came by the watch
            assert (await world.attempt()).attempt == 1
    with capsys.disabled():
        print(f" {took / (ROUNDS * NODE_COUNT) * 1e3:.2f} ms per heartbeat, written and watched", end="")


# -- continue-as-new under both watches --------------------------------------------------------------------------------


class Sky:
    """A simulated cloud beside a world; its account is watched as well."""

    def __init__(self, world: World, cloud: AwsCloud) -> None:
        self.world, self.cloud = world, cloud
        self.ec2 = boto3.client(
            "ec2",
            endpoint_url=cloud.endpoint,
            region_name=ACCOUNT.scope,
            aws_access_key_id=cloud.secret["accessKeyID"].get_secret_value(),
            aws_secret_access_key=cloud.secret["secretAccessKey"].get_secret_value(),
        )

    async def vm(self, machine: str) -> str:
        """Its id: a VM with our tags, announced with its account, and a node that has joined."""
        given: Given = driver_clouds.machine(self.cloud, machine, self.world.name)
        made = await asyncio.to_thread(self.cloud.driver.create_machine, given.creation())
        vm = made.provider_id.rpartition("/")[2]
        await self.world.machine(machine)
        await self.world.announce(machine, made.provider_id)
        await _use(self.world, "c")
        await self.world.node(f"node-of-{machine}", vm)
        await self.world.told(machine, 1)
        return vm

    async def stop(self, vm: str) -> None:
        await asyncio.to_thread(self.ec2.stop_instances, InstanceIds=[vm])

    async def start(self, vm: str) -> None:
        await asyncio.to_thread(self.ec2.start_instances, InstanceIds=[vm])

    async def listed(self) -> None:
        """Waits for a look at the account that began after this call."""
        since = driver_clouds.mark(self.cloud)

        async def look() -> int:
            return len(driver_clouds.calls(self.cloud, "DescribeInstances", since))

        await eventually(look, lambda count: count >= 2, "a look at the account")

    async def states(self, machine: str) -> list[str]:
        """What it was told of its VM, in order: its history has every signal."""
        handle = self.world.client.get_workflow_handle(f"machine/{self.world.name}/{machine}")
        return [f.state for f in await _signals(handle, "observe_vm", VmFacts)]

    async def told(self, machine: str, *states: str) -> None:
        """All that it was told of its VM, once it is that much; more is an error."""
        seen = await eventually(lambda: self.states(machine), lambda seen: len(seen) >= len(states), str(states))
        assert tuple(seen) == states


async def _signals(handle: WorkflowHandle[Any, Any], name: str, kind: type[T]) -> list[T]:
    decoded: list[T] = []
    async for event in handle.fetch_history_events():
        attributes = event.workflow_execution_signaled_event_attributes
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED and attributes.signal_name == name:
            decoded += await data_converter.decode(attributes.input.payloads, [kind])
    return decoded


@contextlib.asynccontextmanager
async def under(temporal: WorkflowEnvironment) -> AsyncIterator[Sky]:
    """A world with a cloud; a worker serves both watches."""
    async with new_world(temporal.client) as world:
        with driver_clouds.aws() as cloud:
            root = world.file.parent
            _write_secret(root / "default" / ACCOUNT.secret_ref.name, cloud)
            world.settings = world.settings.model_copy(
                update={
                    "clouds": {"aws": CloudSettings(endpoint=cloud.endpoint)},
                    "secrets": SecretsSettings(source="directory", directory=root),
                    "worker": world.settings.worker.model_copy(update={"roles": ["watch", "cloud"]}),
                }
            )
            await _begin(world, timedelta(seconds=3))  # a watch that a busy machine lets time out returns no cursor
            async with world.worker():
                yield Sky(world, cloud)


def _write_secret(folder: Path, cloud: AwsCloud) -> None:
    folder.mkdir(parents=True)
    for key, value in cloud.secret.items():
        (folder / key).write_text(value.get_secret_value())


async def _begin(world: World, heartbeat: timedelta) -> None:
    state = ClusterState.of(world.name, world.settings.queue_prefix, world.settings.timings)
    world.started.append(
        await world.client.start_workflow(
            ClusterWorkflow.run,
            state.model_copy(update={"looked": True, "heartbeat": heartbeat}),
            id=cluster_id(world.name),
            task_queue=world.settings.queue_prefix,
        )
    )


async def _run(world: World) -> str | None:
    return (await world.cluster.describe()).run_id


async def _renew(world: World, name: str) -> None:
    """Begins a new run, with both watches in it."""
    first = await _run(world)
    await world.cluster.execute_update(ClusterWorkflow.renew_by_update, Intent(id=name))
    await eventually(lambda: _run(world), lambda now: now != first, "a new run")


async def test_both_watches_go_on_in_a_new_run(temporal: WorkflowEnvironment) -> None:
    """What was told before is not told again, and good news after bad is told although another run told the bad."""
    async with under(temporal) as sky:
        world = sky.world
        sick, well = await sky.vm("m-sick"), await sky.vm("m-well")
        await sky.stop(sick)
        await sky.told("m-sick", "stopped")
        # The next run would tell it once more if this one ended before the cluster has it too.
        await eventually(lambda: _kept(world), lambda told: list(told.values()) == ["stopped"], "it is kept")
        version = int((await world.state()).cursor.resource_version or 0)
        await _renew(world, "first")
        assert int((await world.state()).cursor.resource_version) > version
        await sky.listed()
        await sky.told("m-sick", "stopped")
        await sky.start(sick)
        await sky.told("m-sick", "stopped", "running")
        await sky.stop(well)
        await sky.told("m-well", "stopped")
        await world.only_this_change("m-sick", 1, "node-of-m-sick")
        await world.only_this_change("m-well", 1, "node-of-m-well")


async def test_changes_made_while_a_new_run_begins(temporal: WorkflowEnvironment) -> None:
    """They are made three times in a row; each is told, in order. A signal that is cut off by the change of runs may
    come twice."""
    async with under(temporal) as sky:
        world = sky.world
        vm = await sky.vm("m-1")

        async def news() -> tuple[str, list[str]]:
            return (await world.facts("m-1"))[-1].reason, (await sky.states("m-1"))[-1:]

        turns = (("Once", sky.stop, "stopped"), ("Twice", sky.start, "running"), ("Thrice", sky.stop, "stopped"))
        for reason, change, state in turns:
            await asyncio.gather(
                _renew(world, reason), world.ready("node-of-m-1", False, reason, "changed"), change(vm)
            )
            assert await eventually(news, (f"{reason}: changed", [state]).__eq__, f"{reason}, {state}")
        reasons = [f.reason for f in await world.facts("m-1")]
        assert list(dict.fromkeys(reasons)) == ["", "Once: changed", "Twice: changed", "Thrice: changed"]
        await world.only_this_change("m-1", len(reasons), "node-of-m-1")


async def test_a_look_at_the_account_that_fails_half_way(temporal: WorkflowEnvironment) -> None:
    """What was told before the call that failed is known to the next look and to the next run."""
    async with under(temporal) as sky:
        world = sky.world
        stopped, lost = await sky.vm("m-stopped"), await sky.vm("m-lost")
        await sky.listed()
        broken = driver_clouds.fault(sky.cloud, "DescribeInstances", "InternalError", match=lost, times=None)
        await asyncio.gather(sky.stop(stopped), asyncio.to_thread(sky.ec2.terminate_instances, InstanceIds=[lost]))
        await sky.told("m-stopped", "stopped")
        await eventually(lambda: _reasons(world), lambda seen: seen == ["CloudUnreachable"], "unreachable")
        await eventually(lambda: _kept(world), lambda told: list(told.values()) == ["stopped"], "it is kept")
        assert broken.hits
        assert await sky.states("m-lost") == []  # one listing is a suspicion; nobody could look again
        sky.cloud.do(sky.cloud.frame.clear_faults)
        await sky.told("m-lost", "gone")
        assert await _reasons(world) == ["CloudUnreachable", "CloudReachable"]
        await _renew(world, "afterwards")
        await sky.start(stopped)
        await sky.told("m-stopped", "stopped", "running")
        await eventually(lambda: _kept(world), lambda told: not told, "nothing bad is left")


async def _reasons(world: World) -> list[str]:
    return [h.reason for h in (await world.state()).journal]


async def _kept(world: World) -> dict[str, str]:
    """What the cluster keeps for the next watch of the account."""
    kept = (await world.state()).vms.get(ACCOUNT.key)
    return kept.told if kept else {}


# -- a flood of messages -----------------------------------------------------------------------------------------------


async def test_a_flood_of_messages(temporal: WorkflowEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    """Many runs follow each other under both watches, and no class is lost."""
    names = [f"class-{n % CLASSES}" for n in range(USES)]
    async with under(temporal) as sky:
        world = sky.world
        vm = await sky.vm("m-1")
        runs = [await _run(world)]
        began = time.monotonic()
        for wave in range(WAVES):
            await at_once(lambda name: _use(world, name), names[wave::WAVES])
            # In a flood Temporal refuses to end a run: each task that would do it has unseen signals behind it.
            await eventually(lambda: _run(world), lambda now: now not in runs, "a new run")
            runs.append(await _run(world))
        took = time.monotonic() - began
        await _renew(world, "last")
        state = await world.state()
        assert state.classes == {name: [ACCOUNT.key] for name in ("c", *names)}
        assert list(state.accounts) == [ACCOUNT.key]
        assert await sky.states("m-1") == []
        await sky.stop(vm)
        await sky.told("m-1", "stopped")
        await world.only_this_change("m-1", 1, "node-of-m-1")
        assert await _reasons(world) == []
    with capsys.disabled():
        print(f" {took / USES * 1e3:.1f} ms per message", end="")


async def _use(world: World, machine_class: str) -> None:
    await world.cluster.signal(ClusterWorkflow.use_account, AccountUse(machine_class=machine_class, account=ACCOUNT))


async def test_a_thousand_machines_of_a_class_are_one_message(temporal: WorkflowEnvironment) -> None:
    """However many create activities say it; a new life of the cluster's workflow hears it again."""
    async with new_world(temporal.client) as world:
        deps = Deps(world.settings, world.client)
        use = AccountUse(machine_class="c", account=ACCOUNT)
        moved = AccountUse(machine_class="c", account=ACCOUNT.model_copy(update={"secret_ref": SecretRef(name="b")}))
        await use_account(deps, world.name, use, start=False)  # nobody is there, and nobody is started
        await at_once(lambda u: use_account(deps, world.name, u), [use])
        world.started.append(world.cluster)
        await at_once(lambda u: use_account(deps, world.name, u), [use] * 1000)
        assert len(await _signals(world.cluster, "use_account", AccountUse)) == 1
        await use_account(deps, world.name, moved)
        assert await _signals(world.cluster, "use_account", AccountUse) == [use, moved]
        await world.cluster.terminate()
        await use_account(deps, world.name, moved)
        assert await _signals(world.cluster, "use_account", AccountUse) == [moved]
        await deps.close()


# -- a cluster's workflow that was ended from outside ------------------------------------------------------------------


async def test_what_a_terminated_workflow_knew_is_found_again(temporal: WorkflowEnvironment) -> None:
    """Machines were there before: they are told that their Nodes become NotReady, and their VMs are looked at."""
    async with under(temporal) as sky:
        world = sky.world
        vms = [await sky.vm(f"m-{n}") for n in range(2)]
        await world.cluster.terminate()
        # As the next starter would start it: it is told of nobody and nothing.
        state = ClusterState.of(world.name, world.settings.queue_prefix, world.settings.timings)
        await world.client.start_workflow(
            ClusterWorkflow.run, state, id=cluster_id(world.name), task_queue=world.settings.queue_prefix
        )
        for n in range(2):
            before = len(await world.facts(f"m-{n}"))
            await world.ready(f"node-of-m-{n}", False, "KubeletNotReady", "a storm")
            seen = await eventually(
                lambda n=n: world.facts(f"m-{n}"), lambda f, b=before: len(f) > b and not f[-1].ready
            )
            assert seen[-1].reason == "KubeletNotReady: a storm"
        found = await eventually(world.state, lambda s: s.classes == {"c": [ACCOUNT.key]}, "its class and account")
        assert list(found.accounts) == [ACCOUNT.key]
        await sky.stop(vms[0])
        await sky.told("m-0", "stopped")


# -- two clusters ------------------------------------------------------------------------------------------------------


async def test_one_worker_for_two_clusters(temporal: WorkflowEnvironment) -> None:
    """Two API servers, and in both of them a machine, a node and a VM of the same names."""
    async with new_world(temporal.client) as one, new_world(temporal.client) as two:
        clusters = {one.name: one.settings.clusters[one.name]}
        kubeconfig = two.settings.path(Path("kubeconfig"))
        clusters[two.name] = ClusterSettings(kubeconfig=kubeconfig)
        one.settings = two.settings = one.settings.model_copy(update={"clusters": clusters})
        async with worker.running(one.client, one.settings):
            for world in (one, two):
                await world.watch()
                await world.joined()
            await one.ready("n-1", False, "KubeletNotReady", "of the first")
            assert (await one.told("m-1", 2))[-1].reason == "KubeletNotReady: of the first"
            await two.delete("n-1")
            assert not (await two.told("m-1", 2))[-1].exists
            await two.joined("m-2", "n-2", "i-2")
            await one.only_this_change("m-1", 2)
            await two.only_this_change("m-2", 1, "n-2")
            assert len(await two.facts("m-1")) == 2
            # An attempt that a busy machine gives up lists again: how often is no matter here.
            assert all(world.calls("list nodes") for world in (one, two))
            uids = [{f.uid for f in await world.facts("m-1") if f.exists} for world in (one, two)]
            assert [len(u) for u in uids] == [1, 1]
            assert uids[0] != uids[1]
