"""Rendering, and the look at a pool, on any API server: the examples become rendered configs, and stay so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from activitykit import once
from apiserver.simulated import NODES, KubeTarget, Obj
from machine_configs.daemon import nodes
from machine_configs.kinds import config, config_pool, create, examples, install_kinds, path, remove_all
from temporalio.exceptions import ApplicationError

from activities.cluster.config_nodes import ConfigNodeActivities
from activities.cluster.configs import ConfigRenderActivities, Rendering
from activities.deps import Deps
from activities.kube.client import KubeError
from resources.calls.machine_config import PoolStatusInput, PoolStatusOutput, ReadPoolInput, SyncInput, SyncOutput
from resources.journal import Happening
from resources.machine_config.keys import MACHINE_CONFIG, MACHINE_CONFIG_POOL, SEED, ConfigKind
from resources.machine_config.settings import MachineConfigSettings
from resources.machine_config.view import ConfigPoolView

EVENTS = "/api/v1/namespaces/default/events"


class Renders:
    def __init__(self, kube: KubeTarget, deps: Deps) -> None:
        self.kube, self.deps = kube, deps

    async def __call__(self) -> SyncOutput:
        return await once(ConfigRenderActivities(self.deps).sync_configs, SyncInput(cluster="demo"))

    async def target(self, pool: str = "worker") -> str:
        return str((await self.get(MACHINE_CONFIG_POOL, pool))["spec"]["configuration"]["name"])

    async def get(self, kind: ConfigKind, name: str) -> Obj:
        found: Obj = await self.kube.get(path(kind, name))
        return found

    async def names(self, prefix: str = "") -> list[str]:
        found = (await self.kube.get(path(MACHINE_CONFIG)))["items"]
        return sorted(c["metadata"]["name"] for c in found if c["metadata"]["name"].startswith(prefix))

    async def look(self, pool: str = "worker") -> ConfigPoolView:
        activities = ConfigNodeActivities(self.deps)
        return await once(activities.read_config_pool, ReadPoolInput(cluster="demo", pool=pool))

    async def status(self, uid: str, status: Obj, **more: Any) -> PoolStatusOutput:
        input = PoolStatusInput(cluster="demo", pool="worker", uid=uid, status=status, **more)
        return await once(ConfigNodeActivities(self.deps).write_pool_status, input)

    async def events(self, reason: str) -> list[Obj]:
        return [e for e in (await self.kube.get(EVENTS))["items"] if e.get("reason") == reason]


@pytest.fixture
async def renders(kube: KubeTarget, deps: Deps) -> AsyncIterator[Renders]:
    await install_kinds(kube)
    yield Renders(kube, deps)
    await remove_all(kube)
    for node in (await kube.get(NODES))["items"]:
        await kube.call("DELETE", f"{NODES}/{node['metadata']['name']}")


async def test_the_examples_are_rendered_and_then_nothing_more_is_written(renders: Renders) -> None:
    await create(renders.kube, *examples())
    done = await renders()
    assert (done.troubles, done.again) == ([], None)
    pools = {p.name: p.target for p in done.pools}
    assert all(target.startswith(f"rendered-{name}-") for name, target in pools.items())
    assert set(pools.values()) <= set(await renders.names("rendered-"))
    pool = await renders.get(MACHINE_CONFIG_POOL, "worker")
    assert pool["status"]["currentMachineConfig"] == pools["worker"] == await renders.target()
    assert await renders.events("RenderedConfigGenerated")
    assert (await renders()).written == []


async def test_what_people_change_of_ours_is_restored_before_anything_is_rendered(renders: Renders) -> None:
    """Seed 004: TemplateController overwrites any user changes of its objects. No pool gets another config for it."""
    await create(renders.kube, *examples())
    await renders()
    before = await renders.target()
    await renders.kube.patch(path(MACHINE_CONFIG, "00-worker"), {"spec": {"kernelArguments": ["quiet"]}})
    await renders.kube.delete(path(MACHINE_CONFIG, "01-worker-kubelet"))
    await renders.kube.patch(path(MACHINE_CONFIG, before), {"spec": {"fips": True}})
    done = await renders()
    assert {w.partition(":")[0] for w in done.written} >= {
        "MachineConfig/00-worker",
        "MachineConfig/01-worker-kubelet",
        f"MachineConfig/{before}",
    }
    assert await renders.target() == before
    assert not (await renders.get(MACHINE_CONFIG, before))["spec"].get("fips")


async def test_a_change_of_a_person_becomes_the_pools_next_config(renders: Renders) -> None:
    await create(renders.kube, *examples())
    await renders()
    before = await renders.target()
    await create(renders.kube, config("50-mine"))
    await renders()
    after = await renders.target()
    assert after != before
    pool = await renders.get(MACHINE_CONFIG_POOL, "worker")
    assert "50-mine" in [s["name"] for s in pool["spec"]["configuration"]["source"]]
    await renders.kube.delete(path(MACHINE_CONFIG, "50-mine"))
    await renders()
    assert await renders.target() == before


async def test_a_config_that_makes_no_sense_is_said_and_others_go_on(renders: Renders) -> None:
    await create(renders.kube, *examples())
    await renders()
    before = await renders.target()
    bad = config("50-mine", config={"ignition": {"version": "9.9.9"}})
    await create(renders.kube, bad, config("50-other", "infra"))
    done = await renders()
    why = {t.about: t.message for t in done.troubles}
    assert "50-mine" in why["MachineConfigPool/worker"]
    assert await renders.target() == before
    conditions = {c["type"]: c for c in (await renders.get(MACHINE_CONFIG_POOL, "worker"))["status"]["conditions"]}
    assert conditions["RenderDegraded"]["status"] == "True"


async def test_what_the_server_refuses_is_that_objects_trouble(
    renders: Renders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rendered config that is too large for etcd, for example. Its pool keeps the config that it has."""
    await create(renders.kube, *examples())
    await renders()
    before = await renders.target()
    make = Rendering._make

    async def refuse(self: Rendering, change: Any) -> None:
        if change.name.startswith("rendered-worker-"):
            raise KubeError(413, "RequestEntityTooLarge", "etcdserver: request is too large")
        await make(self, change)

    monkeypatch.setattr(Rendering, "_make", refuse)
    await create(renders.kube, config("50-mine"))
    done = await renders()
    refused = [t for t in done.troubles if t.reason == "Refused"]
    assert [t.message for t in refused] == ["the API server refuses it: etcdserver: request is too large"]
    assert refused[0].about.startswith("MachineConfig/rendered-worker-")
    assert await renders.target() == before
    monkeypatch.undo()
    assert (await renders()).troubles == []
    assert await renders.target() != before


# -- a look at a pool, and its status ----------------------------------------------------------------------------------


async def test_a_look_at_a_pool_is_about_its_nodes(renders: Renders) -> None:
    await create(renders.kube, config_pool("worker"), config_pool("infra"), config("00-base"))
    await renders()
    await nodes(renders.kube, ["n-1", "n-2"], "worker")
    await nodes(renders.kube, ["n-3"], "infra")
    mine = {SEED.current: "rendered-worker-0", SEED.desired: "rendered-worker-0", SEED.state: "done"}
    await renders.kube.patch(f"{NODES}/n-1", {"metadata": {"annotations": mine}})
    view = await renders.look()
    assert view.pool is not None
    assert view.pool.target == await renders.target()
    assert (view.counts.machines, view.counts.ready, view.counts.candidates) == (2, 2, 2)
    assert {n.name: n.current for n in view.nodes} == {"n-1": "rendered-worker-0", "n-2": ""}
    assert view.version > 0
    assert (await renders.look("gone")).pool is None


async def test_i17_what_a_kubelet_writes_on_its_node_is_cut_and_stops_no_look(renders: Renders) -> None:
    """Annotations of 200 KiB, which a kubelet may write on its own Node."""
    await create(renders.kube, config_pool("worker"), config("00-base"))
    await renders()
    await nodes(renders.kube, ["n-1", "n-2"], "worker")
    long = "x" * 40_000
    hostile = {getattr(SEED, field): long for field in ("current", "state", "reason", "desired_drain", "last_drain")}
    await renders.kube.patch(f"{NODES}/n-1", {"metadata": {"annotations": hostile}})
    view = await renders.look()
    sent = view.model_dump_json(by_alias=True)
    assert len(sent) < 20_000
    assert ConfigPoolView.model_validate_json(sent) == view
    assert {n.name for n in view.nodes} == {"n-1", "n-2"}


async def test_the_status_is_written_where_it_differs_and_others_conditions_stay(renders: Renders) -> None:
    """M-U15."""
    await create(renders.kube, config_pool("worker"), config("00-base"))
    await renders()
    pool = await renders.get(MACHINE_CONFIG_POOL, "worker")
    uid = pool["metadata"]["uid"]
    story = [Happening(time=datetime.now(UTC), reason="ConfigRolloutBegan", message="node n-1 begins")]
    updating = {"type": "Updating", "status": "True", "reason": "NodesUpdating", "message": "1 of 2"}
    status = {"machineCount": 2, "updatingMachines": 0, "conditions": [updating]}
    assert (await renders.status(uid, status, story=story)).written
    found = (await renders.get(MACHINE_CONFIG_POOL, "worker"))["status"]
    by_type = {c["type"]: c for c in found["conditions"]}
    assert by_type.keys() == {"RenderDegraded", "Updating"}
    assert (found["machineCount"], found["currentMachineConfig"]) == (2, await renders.target())
    event = (await renders.events("ConfigRolloutBegan"))[0]
    assert event["involvedObject"]["uid"] == uid
    assert not (await renders.status(uid, status)).written
    changed = {**status, "conditions": [{**updating, "message": "2 of 2"}]}
    assert (await renders.status(uid, changed)).written
    after = (await renders.get(MACHINE_CONFIG_POOL, "worker"))["status"]["conditions"]
    since = next(c for c in after if c["type"] == "Updating")["lastTransitionTime"]
    assert since == by_type["Updating"]["lastTransitionTime"]
    assert (await renders.status("another-uid", status)).gone


# -- the setting -------------------------------------------------------------------------------------------------------


async def test_a_cluster_without_the_setting_is_left_alone(renders: Renders) -> None:
    """Somebody has started the workflow by hand."""
    await create(renders.kube, config_pool("worker"), config("00-base"))
    cluster = renders.deps.settings.clusters["demo"].model_copy(update={"machine_configs": MachineConfigSettings()})
    renders.deps.settings = renders.deps.settings.model_copy(update={"clusters": {"demo": cluster}})
    with pytest.raises(ApplicationError, match=r"set clusters\.demo\.machineConfigs\.enabled to true"):
        await renders()
    with pytest.raises(ApplicationError, match="are off in this worker's settings"):
        await renders.status("uid", {"machineCount": 1})
    assert await renders.names() == ["00-base"]
