"""The watch of machine configs, against a simulated API server: who is told to look again, and who is not.

Where nobody should be told anything, one change follows, and only that is heard.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from activitykit import Innermost
from apiserver.simulated import NODES, STRATEGIC, Obj, World, new_world
from lifekit import eventually
from machine_configs.daemon import nodes
from machine_configs.kinds import config, config_pool, create, install_kinds, path
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ExecuteActivityInput

from activities.boundary import Boundary
from activities.deps import Deps
from activities.watch import configs as watch
from activities.watch.configs import ConfigWatchActivities
from resources.calls.machine_config import ConfigNews, ConfigsCursor, NodesNews, WatchConfigsInput
from resources.cluster.news import Reachability
from resources.machine_config.keys import MACHINE_CONFIG, MACHINE_CONFIG_POOL, SEED
from resources.machine_config.settings import MachineConfigSettings
from resources.settings import ClusterSettings, Settings

CONFIGS, WORKER, INFRA = "machineconfigs/demo", "machineconfigpool/demo/worker", "machineconfigpool/demo/infra"


class Ears:
    """Stands in place of Temporal's client: whose workflow has heard what."""

    def __init__(self) -> None:
        self.service_client = SimpleNamespace(config=SimpleNamespace(runtime=None))
        self.heard: list[tuple[str, str, Any]] = []
        self.full: set[str] = set()
        """Workflows that take no signals."""
        self.gone: set[str] = set()

    def get_workflow_handle(self, id: str) -> Any:
        async def signal(name: str, *arguments: Any, args: tuple[Any, ...] = ()) -> None:
            if id in self.full:
                raise RPCError("exceeded workflow execution limit for signals", RPCStatusCode.INVALID_ARGUMENT, b"")
            if id in self.gone:
                raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
            self.heard.append((id, name, *arguments, *args))

        return SimpleNamespace(signal=signal, id=id)

    def told(self) -> dict[str, list[str]]:
        """Whom it was told, since the last time that this was asked: kinds, or Nodes."""
        said: dict[str, list[str]] = {}
        for id, _, about in self.heard:
            if isinstance(about, ConfigNews):
                said.setdefault(id, []).extend(about.kinds)
            elif isinstance(about, NodesNews):
                said.setdefault(id, []).extend(about.nodes)
        self.heard = [h for h in self.heard if not isinstance(h[2], ConfigNews | NodesNews)]
        return {id: sorted(set(about)) for id, about in said.items()}

    def reachability(self) -> list[Reachability]:
        return [about for _, _, about in self.heard if isinstance(about, Reachability)]


class Watched:
    def __init__(self, world: World, ears: Ears, activities: ConfigWatchActivities) -> None:
        self.world, self.kube, self.ears, self.activities = world, world.kube, ears, activities
        self.heartbeat: tuple[Any, ...] = ()

    @contextlib.asynccontextmanager
    async def run(self, cursor: ConfigsCursor | None = None) -> AsyncIterator[asyncio.Task[ConfigsCursor]]:
        """The watch, which is asked to return at the end of the context."""
        environment = ActivityEnvironment()
        environment.info.__dict__.update(started_time=datetime.now(UTC), heartbeat_details=self.heartbeat)
        environment.on_heartbeat = lambda *details: setattr(self, "heartbeat", details)
        input = WatchConfigsInput(
            cluster="demo", workflow_id=CONFIGS, cursor=cursor or ConfigsCursor(), duration=timedelta(minutes=5)
        )
        call = ExecuteActivityInput(fn=self.activities.watch_configs, args=[input], executor=None, headers={})
        attempt = Boundary().intercept_activity(Innermost())
        task = asyncio.create_task(environment.run(attempt.execute_activity, call))
        try:
            yield task
        finally:
            environment.cancel()
            await asyncio.wait([task])

    async def told(self, *ids: str) -> dict[str, list[str]]:
        """What was told once these have all been told something."""
        said: dict[str, list[str]] = {}

        async def look() -> bool:
            for id, about in self.ears.told().items():
                said.setdefault(id, []).extend(about)
            return said.keys() >= set(ids)

        await eventually(look, what=f"{ids} told; so far {said}")
        return said

    async def annotate(self, node: str, **annotations: str) -> None:
        await self.kube.patch(f"{NODES}/{node}", {"metadata": {"annotations": annotations}})


@pytest.fixture
async def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    """A cluster that does not know the kinds."""
    monkeypatch.setattr(watch, "GATHER", 0.05)
    monkeypatch.setattr(watch, "AGAIN", 0.1)
    async with new_world() as world:
        (tmp_path / "kubeconfig").write_text(world.kube.kubeconfig())
        ears = Ears()
        configs = MachineConfigSettings(enabled=True)
        cluster = ClusterSettings(kubeconfig=tmp_path / "kubeconfig", machine_configs=configs)
        settings = Settings(clusters={"demo": cluster})
        deps = Deps(settings, ears)  # type: ignore[arg-type]
        try:
            yield Watched(world, ears, ConfigWatchActivities(deps))
        finally:
            await deps.close()


@pytest.fixture
async def watched(bare: Watched) -> Watched:
    """A cluster with two pools, a Node in each, and a MachineConfig."""
    await install_kinds(bare.kube)
    await create(bare.kube, config_pool("worker"), config_pool("infra"), config("50-mine"))
    await nodes(bare.kube, ["w-1"], "worker")
    await nodes(bare.kube, ["i-1"], "infra")
    return bare


async def test_at_first_all_are_told(watched: Watched) -> None:
    async with watched.run() as task:
        said = await watched.told(CONFIGS, WORKER, INFRA)
        assert said[CONFIGS] == ["machineconfigpools", "machineconfigs"]
        said = said if "w-1" in said[WORKER] and "i-1" in said[INFRA] else await watched.told(WORKER, INFRA)
        assert ("w-1" in said[WORKER], "i-1" in said[INFRA], "i-1" in said[WORKER]) == (True, True, False)
        assert [r.reachable for r in watched.ears.reachability()] == [True]
    assert task.result().of.keys() == {"nodes", *(k.plural for k in watch.CONFIG_KINDS)}


async def test_a_node_concerns_its_pool_alone_and_what_decides_nothing_is_no_news(watched: Watched) -> None:
    async with watched.run():
        await _quiet(watched)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        beat = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        await watched.kube.patch(f"{NODES}/w-1/status", {"status": {"conditions": [beat]}}, STRATEGIC)
        await watched.annotate("w-1", color="blue")
        await watched.kube.patch(f"{path(MACHINE_CONFIG_POOL, 'worker')}/status", {"status": {"machineCount": 1}})
        await watched.annotate("i-1", **{SEED.current: "rendered-infra-0"})
        assert await watched.told(INFRA) == {INFRA: ["i-1"]}


async def test_a_node_that_changes_pools_concerns_both(watched: Watched) -> None:
    async with watched.run():
        await _quiet(watched)
        labels = {"node-role.kubernetes.io/worker": None, "node-role.kubernetes.io/infra": ""}
        await watched.kube.patch(f"{NODES}/w-1", {"metadata": {"labels": labels}})
        assert await watched.told(WORKER, INFRA) == {WORKER: ["w-1"], INFRA: ["w-1"]}
        await watched.kube.delete(f"{NODES}/w-1")
        assert await watched.told(INFRA) == {INFRA: ["w-1"]}
        await nodes(watched.kube, ["w-2"], "worker")
        assert await watched.told(WORKER) == {WORKER: ["w-2"]}


async def test_a_node_of_no_pool_that_asks_for_a_drain_concerns_the_cluster(watched: Watched) -> None:
    await nodes(watched.kube, ["x-1"], "nobody")
    async with watched.run():
        await _quiet(watched)
        # One that is surely a pool's is the pool's alone; then one that is nobody's.
        await watched.annotate("w-1", **{SEED.desired_drain: "drain-v9"})
        assert await watched.told(WORKER) == {WORKER: ["w-1"]}
        await watched.annotate("x-1", **{SEED.desired_drain: "drain-v9"})
        assert await watched.told(CONFIGS) == {CONFIGS: ["x-1"]}
        # A pool that goes may leave one behind that asks.
        await watched.kube.delete(path(MACHINE_CONFIG_POOL, "worker"))
        await eventually(lambda: _asked(watched), what="the cluster hears that it may have another one")


async def _asked(watched: Watched) -> bool:
    return any(id == CONFIGS and name == "drains_asked" for id, name, *_ in watched.ears.heard)


async def test_a_config_concerns_who_renders_and_a_pool_concerns_all_pools(watched: Watched) -> None:
    """M-R09."""
    async with watched.run():
        await _quiet(watched)
        await watched.kube.patch(path(MACHINE_CONFIG, "50-mine"), {"spec": {"fips": True}})
        assert await watched.told(CONFIGS) == {CONFIGS: ["machineconfigs"]}
        await watched.kube.patch(path(MACHINE_CONFIG_POOL, "worker"), {"spec": {"paused": True}})
        said = await watched.told(CONFIGS, WORKER, INFRA)
        assert said == {CONFIGS: ["machineconfigpools"], WORKER: [], INFRA: []}
        await watched.kube.delete(path(MACHINE_CONFIG_POOL, "infra"))
        await watched.told(CONFIGS, WORKER, INFRA)
        await watched.annotate("i-1", **{SEED.current: "x"})  # nobody's by now, and its former pool hears of it
        await watched.annotate("w-1", **{SEED.current: "x"})
        assert (await watched.told(WORKER))[WORKER] == ["w-1"]


async def test_the_next_watch_goes_on_where_the_last_one_was(watched: Watched) -> None:
    async with watched.run() as task:
        await _quiet(watched)
    await watched.annotate("w-1", **{SEED.current: "rendered-worker-0"})
    watched.heartbeat = ()
    async with watched.run(task.result()):
        assert await watched.told(WORKER) == {WORKER: ["w-1"]}
    watched.heartbeat = ()
    await watched.kube.delete(f"{NODES}/w-1")
    async with watched.run(task.result()):  # it has been told of the Node: what it does not see any more is gone
        assert await watched.told(WORKER) == {WORKER: ["w-1"]}


async def test_an_attempt_that_failed_is_taken_up_and_tells_nothing_twice(watched: Watched) -> None:
    async with watched.run():
        await _quiet(watched)
    async with watched.run():  # the same input, and the last heartbeat
        await watched.annotate("w-1", **{SEED.current: "rendered-worker-0"})
        assert await watched.told(WORKER) == {WORKER: ["w-1"]}


async def test_a_change_that_could_not_be_told_is_told_later(watched: Watched) -> None:
    """It is behind the cursor only when it has been taken: also where the watch returns meanwhile."""
    async with watched.run() as task:
        await _quiet(watched)
        watched.ears.full = {WORKER}
        await watched.annotate("w-1", **{SEED.current: "rendered-worker-0"})
        await watched.annotate("i-1", **{SEED.current: "rendered-infra-0"})
        await watched.told(INFRA)
    assert WORKER not in watched.ears.told()
    watched.ears.full = set()
    watched.heartbeat = ()
    async with watched.run(task.result()):
        assert (await watched.told(WORKER))[WORKER] == ["w-1"]
        watched.ears.gone = {WORKER}  # a pool whose workflow is not begun yet holds up nobody
        await watched.annotate("w-1", **{SEED.current: "rendered-worker-1"})
        await watched.annotate("i-1", **{SEED.current: "rendered-infra-1"})
        assert (await watched.told(INFRA))[INFRA] == ["i-1"]


async def test_a_cluster_without_the_kinds_is_said_and_found_when_it_has_them(bare: Watched) -> None:
    async with bare.run():
        await eventually(_async(bare.ears.reachability), what="what is missing is said")
        said = bare.ears.reachability()[0]
        assert said.refused
        assert "its CustomResourceDefinition is not installed (deploy/crds)" in said.message
        await install_kinds(bare.kube)
        await create(bare.kube, config_pool("worker"))
        await bare.told(CONFIGS, WORKER)
        await eventually(_async(lambda: bare.ears.reachability()[-1].reachable), what="well again")


async def test_an_object_that_makes_no_sense_is_said_once_and_stops_nobody(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched.run():
        await _quiet(watched)
        read = watch.config_node

        def strict(node: Obj, *more: Any) -> Any:
            if node["metadata"]["name"] == "i-1":
                raise KeyError("what is this")
            return read(node, *more)

        monkeypatch.setattr(watch, "config_node", strict)
        for state in ("working", "done"):
            await watched.annotate("i-1", **{SEED.state: state})
        await watched.annotate("w-1", **{SEED.current: "rendered-worker-0"})
        assert (await watched.told(WORKER))[WORKER] == ["w-1"]
    notes = [about.message for _, name, about in watched.ears.heard if name == "note"]
    assert notes == ["nodes/i-1 cannot be read: KeyError: 'what is this'"]


def _async(call: Any) -> Any:
    async def look() -> Any:
        return call()

    return look


async def _quiet(watched: Watched) -> None:
    """Waits until all that was there at first has been told."""
    said: dict[str, list[str]] = {}

    async def look() -> bool:
        for id, about in watched.ears.told().items():
            said.setdefault(id, []).extend(about)
        return CONFIGS in said and "w-1" in said.get(WORKER, []) and "i-1" in said.get(INFRA, [])

    await eventually(look, what=f"all told; so far {said}")
