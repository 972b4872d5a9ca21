"""The marks of a rollout on Nodes, on the simulator and on a real API server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from apiserver.simulated import NODES, KubeTarget
from temporalio.testing import ActivityEnvironment

from activities import boundary
from activities.cluster.marks import MarkActivities, marks_patch
from activities.deps import Deps
from activities.kube.client import Kube
from resources.fleet.membership import MarkNodesInput
from resources.names import MACHINE_NAME_LABEL, ROLLOUT_TAINT, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY

MARK = {"key": ROLLOUT_TAINT, "value": "True", "effect": "PreferNoSchedule"}
THEIRS = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


@pytest.fixture
async def nodes(kube: KubeTarget) -> AsyncIterator[list[str]]:
    """Three, each labelled as the machine of its name."""
    names = [f"m-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for name in names:
        metadata = {"name": name, "labels": {MACHINE_NAME_LABEL: name}, "annotations": {"color": "blue"}}
        await kube.create(NODES, {"metadata": metadata, "spec": {"taints": [THEIRS]}})
    yield names
    for name in names:
        await kube.call("DELETE", f"{NODES}/{name}")


async def mark(deps: Deps, machines: list[str], on: bool) -> None:
    async def once() -> None:
        boundary._progress.set({})
        input = MarkNodesInput(cluster="demo", pool="p", machines=machines, on=on)
        await MarkActivities(deps).mark_nodes(input)

    await ActivityEnvironment().run(once)


async def seen(kube: KubeTarget, name: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Taints and annotations, without what the API server and its controllers set."""
    node = await kube.get(f"{NODES}/{name}")
    taints = [t for t in node["spec"]["taints"] if not t["key"].startswith("node.kubernetes.io/")]
    mine = {k: v for k, v in node["metadata"]["annotations"].items() if "kubernetes.io" not in k or "autoscaler" in k}
    return taints, mine


async def test_marks_come_and_go(kube: KubeTarget, deps: Deps, nodes: list[str]) -> None:
    marked, other, third = nodes
    await mark(deps, [marked, other, "m-without-a-node"], on=True)
    ours = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY: "p"}
    for name in (marked, other):
        assert await seen(kube, name) == ([THEIRS, MARK], {"color": "blue"} | ours)
    assert await seen(kube, third) == ([THEIRS], {"color": "blue"})
    await mark(deps, [marked], on=False)
    assert await seen(kube, marked) == ([THEIRS], {"color": "blue"})
    assert await seen(kube, other) == ([THEIRS, MARK], {"color": "blue"} | ours)


async def test_a_node_that_somebody_else_has_written_is_read_again(
    kube: KubeTarget, deps: Deps, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A taint is set between our read and our write: the write is refused, and nothing of theirs is lost."""
    late = {"key": "late", "effect": "NoSchedule"}
    write = Kube.merge_patch

    async def first(self: Kube, path: str, body: dict[str, Any]) -> Any:
        monkeypatch.setattr(Kube, "merge_patch", write)
        await kube.patch(f"{NODES}/{nodes[0]}", {"spec": {"taints": [THEIRS, late]}})
        return await write(self, path, body)

    monkeypatch.setattr(Kube, "merge_patch", first)
    await mark(deps, nodes[:1], on=True)
    taints, _ = await seen(kube, nodes[0])
    assert taints == [THEIRS, late, MARK]


async def test_what_is_done_is_no_patch(kube: KubeTarget, deps: Deps, nodes: list[str]) -> None:
    await mark(deps, nodes[:1], on=True)
    node = await kube.get(f"{NODES}/{nodes[0]}")
    assert marks_patch(node, "p", on=True) == {}
    assert set(marks_patch(node, "p", on=False)) == {"spec", "metadata"}
