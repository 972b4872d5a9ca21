"""What Hostler itself rests on, through its own code: tokens, node template, ready taint, drain and watch."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drainkit import NODE, VM, Drain
from kube_wire import NODES, PODS, KubeTarget
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.deps import Deps
from activities.drain import DrainActivities
from activities.kube import Kube
from activities.node import NodeActivities
from activities.tokens import ensure_token, revoke_tokens, token_id
from resources.manifests import NodeTemplate
from resources.messages import Happening, JoinInput, MachineRef, ReadyInput
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
    """A Node with the ready taint and one of somebody else."""
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
    deeds, ref, first = NodeActivities(deps), machine(), template(a="1", b="1")
    story = [Happening(time=datetime.now(UTC), reason="VMCreated", message="i-1 created")]
    common: dict[str, Any] = {"machine": ref, "attempt": 1, "node_name": node}
    await ActivityEnvironment().run(deeds.join_node, JoinInput(**common, node_template=first, story=story))
    second = JoinInput(**common, node_template=template(a="2"), last_applied=first, story=story)
    await ActivityEnvironment().run(deeds.join_node, second)
    ready = ReadyInput(machine=ref, node_name=node)
    assert (await ActivityEnvironment().run(deeds.remove_ready_taint, ready)).removed
    assert not (await ActivityEnvironment().run(deeds.remove_ready_taint, ready)).removed
    seen = await kube.get(f"{NODES}/{node}")
    assert seen["metadata"]["labels"].get("a") == "2"
    assert "b" not in seen["metadata"]["labels"]
    keys = {t["key"] for t in seen["spec"]["taints"]}
    assert {"example.com/theirs", "example.com/ours"} <= keys
    assert INSTANCE_NOT_READY_TAINT not in keys
    events = (await kube.get("/api/v1/namespaces/default/events"))["items"]
    told = [e["reason"] for e in events if e["involvedObject"].get("uid") == seen["metadata"]["uid"]]
    assert told.count("VMCreated") == 1  # by the same name, so a second telling changes nothing


async def test_drain(kube: KubeTarget, deps: Deps) -> None:
    await kube.create(NODES, {"metadata": {"name": NODE}, "spec": {"providerID": VM}})
    try:
        drain = Drain(SimpleNamespace(kube=kube, frame=None), DrainActivities(deps))  # type: ignore[arg-type]
        await drain.node()
        await drain.pod("web-1", labels={"app": "web"})
        await drain.pod("job-1", phase="Succeeded")
        await drain.budget("web", {"matchLabels": {"app": "web"}}, allowed=0)
        words = await drain.waits()
        assert words.startswith("0 of 1 pods gone; default/web-1 blocked by PDB web (0 disruptions allowed), force at ")
        seen = await kube.get(f"{NODES}/{NODE}")
        assert seen["spec"]["unschedulable"] is True
        assert seen["metadata"]["annotations"][CORDON_ANNOTATION] == "m-1"
        await drain.budget("web", {"matchLabels": {"app": "web"}}, allowed=1)
        assert (await drain.waits()).startswith("0 of 1 pods gone, force at ")
        assert (await kube.get(f"{PODS}/web-1"))["metadata"]["deletionTimestamp"]
        await drain.stopped("web-1")
        assert (await drain.once()).pods == 1
    finally:
        for path in (f"{PODS}/web-1", f"{PODS}/job-1"):
            await kube.call("DELETE", path, {"gracePeriodSeconds": 0})
        await kube.call("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
        await kube.delete(f"{NODES}/{NODE}")


async def test_watch(kube: KubeTarget, deps: Deps) -> None:
    """From a list's version on: every change, in order."""
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
