"""What Hostler itself depends on, through its own code: tokens, node template, ready taint, drain and watch."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apiserver.simulated import NODES, PODS, KubeTarget
from machine.drains import BUDGETS, NODE, VM, Drain
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.cluster.node import NodeActivities
from activities.deps import Deps
from activities.drain.nodes import DrainActivities
from activities.kube.client import Kube
from activities.kube.tokens import ensure_token, revoke_tokens, token_id
from resources.calls.cluster import JoinInput, ReadyInput
from resources.calls.machine import MachineRef
from resources.journal import Happening
from resources.machine.manifest import NodeTemplate
from resources.names import CORDON_ANNOTATION, INSTANCE_NOT_READY_TAINT
from resources.settings import ClusterSettings, Settings

LATER = datetime(2031, 1, 1, tzinfo=UTC)


@pytest.fixture
async def deps(kube: KubeTarget, temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Deps]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kube.kubeconfig())
    deps = Deps(Settings(clusters={"demo": ClusterSettings(kubeconfig=kubeconfig)}), temporal.client)
    yield deps
    await deps.close()


@pytest.fixture
async def node(kube: KubeTarget) -> AsyncIterator[str]:
    """A Node with the ready taint and somebody else's."""
    taints = [{"key": k, "effect": "NoSchedule"} for k in (INSTANCE_NOT_READY_TAINT, "example.com/theirs")]
    name = f"n-{uuid.uuid4().hex[:8]}"
    await kube.create(NODES, {"metadata": {"name": name}, "spec": {"providerID": VM, "taints": taints}})
    yield name
    await kube.delete(f"{NODES}/{name}")


def machine() -> MachineRef:
    return MachineRef(cluster="demo", name="m-1", uid=str(uuid.uuid4()))


async def test_a_bootstrap_token_is_made_once_and_revoked(kube: KubeTarget, deps: Deps) -> None:
    api, ref = await deps.clusters.get("demo"), machine()
    first = await ensure_token(api, ref, 1, LATER)
    again = await ensure_token(api, ref, 1, LATER + timedelta(hours=1))
    assert again == first
    path = f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token_id(ref.uid, 1)}"
    assert (await kube.get(path))["type"] == "bootstrap.kubernetes.io/token"
    await revoke_tokens(api, ref, 1)
    assert (await kube.call("GET", path)).status == 404
    await revoke_tokens(api, ref, 1)


def template(**labels: str) -> NodeTemplate:
    taint = {"key": "example.com/ours", "effect": "NoSchedule"}
    return NodeTemplate.model_validate({"metadata": {"labels": labels}, "spec": {"taints": [taint]}})


async def test_node_template_ready_taint_and_story(kube: KubeTarget, deps: Deps, node: str) -> None:
    nodes, ref, first = NodeActivities(deps), machine(), template(a="1", b="1")
    story = [Happening(time=datetime.now(UTC), reason="VMCreated", message="i-1 created")]
    common: dict[str, Any] = {"machine": ref, "attempt": 1, "node_name": node, "provider_id": VM}
    await ActivityEnvironment().run(nodes.join_node, JoinInput(**common, node_template=first, story=story))
    second = JoinInput(**common, node_template=template(a="2"), last_applied=first, story=story)
    await ActivityEnvironment().run(nodes.join_node, second)
    ready = ReadyInput(machine=ref, node_name=node, provider_id=VM)
    assert (await ActivityEnvironment().run(nodes.remove_ready_taint, ready)).removed
    assert not (await ActivityEnvironment().run(nodes.remove_ready_taint, ready)).removed
    seen = await kube.get(f"{NODES}/{node}")
    assert seen["metadata"]["labels"].get("a") == "2"
    assert "b" not in seen["metadata"]["labels"]
    keys = {t["key"] for t in seen["spec"]["taints"]}
    assert {"example.com/theirs", "example.com/ours"} <= keys
    assert INSTANCE_NOT_READY_TAINT not in keys
    events = (await kube.get("/api/v1/namespaces/default/events"))["items"]
    told = [e["reason"] for e in events if e["involvedObject"].get("uid") == seen["metadata"]["uid"]]
    assert told.count("VMCreated") == 1  # by the same name, so a second telling changes nothing


@pytest.fixture
async def drain(kube: KubeTarget, deps: Deps) -> AsyncIterator[Drain]:
    await kube.create(NODES, {"metadata": {"name": NODE}, "spec": {"providerID": VM}})
    drain = Drain(SimpleNamespace(kube=kube, frame=None), DrainActivities(deps))  # type: ignore[arg-type]
    await drain.node()
    yield drain
    await drain.clean_up()
    await kube.delete(f"{NODES}/{NODE}")


async def test_drain(kube: KubeTarget, drain: Drain) -> None:
    await drain.pod("web-1", labels={"app": "web"})
    await drain.pod("job-1", phase="Succeeded")
    await drain.budget("web", {"matchLabels": {"app": "web"}}, allowed=0)
    words = await drain.waits()
    assert words == "0 of 1 pods gone; default/web-1 blocked by PDB web (0 disruptions allowed), force at 14:05 UTC"
    seen = await kube.get(f"{NODES}/{NODE}")
    assert seen["spec"]["unschedulable"] is True
    assert seen["metadata"]["annotations"][CORDON_ANNOTATION] == "m-1"
    await drain.budget("web", {"matchLabels": {"app": "web"}}, allowed=1)
    drain.later(5)
    assert await drain.waits() == "0 of 1 pods gone, force at 14:05 UTC"
    assert (await kube.get(f"{PODS}/web-1"))["metadata"]["deletionTimestamp"]
    await drain.stopped("web-1")
    assert (await drain.once()).pods == 1


async def test_drain_says_which_budgets_stand_in_the_way(drain: Drain) -> None:
    """First one that can never allow it; then several, which the API server does not name."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}}, currentHealthy=1, expectedPods=1)
    blocked = "default/web-1 blocked by PDB web (0 disruptions allowed), force at 14:05 UTC"
    words = await drain.waits()
    assert words.startswith(f"0 of 1 pods gone; {blocked}; PDB web is misconfigured: all its pods are healthy (1 of 1)")
    await drain.budget("other", {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, allowed=1)
    drain.later(5)
    blocked = "default/web-1 blocked by PDBs other and web, force at 14:05 UTC"
    words = await drain.waits()
    assert words == f"0 of 1 pods gone; {blocked}; the eviction API allows one PDB per pod: delete all but one"
    await drain.waits(force=True)
    assert (await drain.once(force=True)).pods == 1


async def test_drain_comes_again_when_the_api_server_says(kube: KubeTarget, drain: Drain) -> None:
    """No controller has seen the budget yet: Retry-After, 10 s."""
    await drain.pod("web-1", labels={"app": "web"})
    selector = {"matchLabels": {"app": "web"}}
    drain.made.append(f"{BUDGETS}/web")
    await kube.create(BUDGETS, {"metadata": {"name": "web"}, "spec": {"minAvailable": 0, "selector": selector}})
    words = await drain.waits()
    assert words.startswith("0 of 1 pods gone; default/web-1 blocked by PDB web (0 disruptions allowed)")
    await drain.budget("web", {}, allowed=1)
    drain.later(5)
    assert await drain.waits() == words
    assert "deletionTimestamp" not in (await kube.get(f"{PODS}/web-1"))["metadata"]
    drain.later(10)
    assert await drain.waits() == "0 of 1 pods gone, force at 14:05 UTC"
    assert (await kube.get(f"{PODS}/web-1"))["metadata"]["deletionTimestamp"]


async def test_drain_leaves_a_pod_alone_that_comes_back(kube: KubeTarget, drain: Drain) -> None:
    """It comes back by its own tolerations, after the second in which the drain began."""
    made = await drain.pod("web-1", tolerations=({"operator": "Exists"},))
    began = datetime.fromisoformat(made["metadata"]["creationTimestamp"]) - timedelta(seconds=1)
    assert (await drain.once(since=began)).left == ["default/web-1: came back: it tolerates the cordon"]
    assert "deletionTimestamp" not in (await kube.get(f"{PODS}/web-1"))["metadata"]
    drain.again()
    await drain.waits(since=began + timedelta(seconds=1.5))
    assert (await kube.get(f"{PODS}/web-1"))["metadata"]["deletionTimestamp"]


async def test_drain_moves_volumes_one_at_a_time(drain: Drain) -> None:
    for name in ("a", "b"):
        await drain.claim(name)
        await drain.attach(name)
    await drain.stateful("db-a", "a")
    await drain.stateful("db-b", "b", priority="system-node-critical")
    waits = "1 pod with volumes waits for default/db-b"
    assert await drain.waits() == f"0 of 2 pods gone; {waits}, force at 14:05 UTC"
    await drain.stopped("db-b")
    assert await drain.names() & {"db-a", "db-b"} == {"db-a"}  # among those of other tests
    assert "1 of 2 pods gone; waiting for volume pv-b of default/db-b to detach (until " in await drain.waits()
    await drain.detach("b")
    assert "waiting for volume pv-b of default/db-b to attach to another node (until " in await drain.waits()
    await drain.attach("b", node="n-2")
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05 UTC"
    await drain.waits(force=True)
    assert (await drain.once(force=True)).left == ["volume pv-a still attached"]
    assert await drain.attached() == {"pv-a"}  # until the VM is confirmed gone


async def test_watch(kube: KubeTarget, deps: Deps) -> None:
    """The watch starts from a list's version: it tells every change, in order."""
    api: Kube = await deps.clusters.get("demo")
    version = (await api.get("/api/v1/nodes"))["metadata"]["resourceVersion"]
    name = f"w-{uuid.uuid4().hex[:8]}"
    await kube.create(NODES, {"metadata": {"name": name}})
    await kube.patch(f"{NODES}/{name}", {"metadata": {"labels": {"x": "1"}}})
    await kube.delete(f"{NODES}/{name}")
    kinds: list[str] = []
    async with asyncio.timeout(30):
        async for event in api.watch("/api/v1/nodes", 20.0, resourceVersion=version, allowWatchBookmarks="true"):
            if event["object"]["metadata"].get("name") == name:
                kinds.append(event["type"])
            if event["type"] == "DELETED":
                break
    assert [kinds[0], kinds[-1]] == ["ADDED", "DELETED"]
    assert set(kinds[1:-1]) == {"MODIFIED"}
