"""The Node of a preserved machine, on the simulator and on a real API server, with people's edits in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from apiserver.simulated import NODES, KubeTarget, unique
from temporalio.testing import ActivityEnvironment

from activities.cluster.preserve import PreserveActivities
from activities.deps import Deps
from activities.kube.client import Kube
from resources.calls.cluster import PreserveInput
from resources.calls.machine import MachineRef
from resources.journal import Happening
from resources.names import (
    CORDON_ANNOTATION,
    PRESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
)

VM = "aws:///eu-west-1/i-1"
EVENTS = "/api/v1/namespaces/default/events"


class Keeper:
    """The activity, and a Node that our drain has cordoned and that somebody wants preserved."""

    def __init__(self, kube: KubeTarget, deps: Deps) -> None:
        self.kube, self.deps, self.name = kube, deps, unique("m")

    async def __call__(self, on: bool, **fields: Any) -> str:
        machine = MachineRef(cluster="demo", name=self.name, uid=self.name)
        input = PreserveInput(machine=machine, node_name=self.name, provider_id=VM, on=on, **fields)
        output = await ActivityEnvironment().run(PreserveActivities(self.deps).preserve_node, input)
        return output.value

    async def edit(self, spec: dict[str, Any] | None = None, **annotations: str | None) -> None:
        """Edits as kubectl writes: annotate, cordon."""
        await self.kube.patch(f"{NODES}/{self.name}", {"metadata": {"annotations": annotations}, "spec": spec or {}})

    async def seen(self) -> tuple[dict[str, str], bool]:
        found = await self.kube.get(f"{NODES}/{self.name}")
        # Controllers' own do not concern us.
        mine = (PRESERVE_ANNOTATION, CORDON_ANNOTATION, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY_PRESERVATION)
        annotations = found["metadata"]["annotations"]
        assert annotations["color"] == "blue"
        return {k: v for k, v in annotations.items() if k in mine}, found["spec"].get("unschedulable", False)

    def kept(self, words: str = "") -> dict[str, str]:
        return {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY_PRESERVATION: self.name + words}


@pytest.fixture
async def keeper(kube: KubeTarget, deps: Deps) -> AsyncIterator[Keeper]:
    keeper = Keeper(kube, deps)
    annotations = {"color": "blue", CORDON_ANNOTATION: keeper.name, PRESERVE_ANNOTATION: "when-failed"}
    metadata = {"name": keeper.name, "annotations": annotations}
    await kube.create(NODES, {"metadata": metadata, "spec": {"providerID": VM, "unschedulable": True}})
    yield keeper
    await kube.call("DELETE", f"{NODES}/{keeper.name}")


async def test_on_and_off_with_people_in_between(keeper: Keeper) -> None:
    asked, cordoned = {PRESERVE_ANNOTATION: "when-failed"}, {CORDON_ANNOTATION: keeper.name}
    story = [Happening(time=datetime(2031, 1, 1, tzinfo=UTC), reason="Preserved", message="until noon")]
    assert await keeper(True, story=story) == "when-failed"
    assert await keeper.seen() == (asked | cordoned | keeper.kept(), True)
    field = f"involvedObject.name={keeper.name}"
    told = (await keeper.kube.get(EVENTS, fieldSelector=field))["items"]
    assert [(e["reason"], e["message"]) for e in told] == [("Preserved", f"Machine {keeper.name}: until noon")]

    await keeper.edit(**{SCALE_DOWN_DISABLED: "false"})
    assert await keeper(True, uncordon=True) == "when-failed"
    assert await keeper.seen() == (asked | keeper.kept("=false"), False)

    await keeper.edit({"unschedulable": True})  # a person's: we no longer lift it
    assert await keeper(True, uncordon=True) == "when-failed"
    assert await keeper.seen() == (asked | keeper.kept("=false"), True)

    assert await keeper(False, clear="now") == "when-failed"
    assert await keeper.seen() == (asked | {SCALE_DOWN_DISABLED: "false"}, True)
    assert await keeper(False, clear="when-failed") == ""
    assert await keeper.seen() == ({SCALE_DOWN_DISABLED: "false"}, True)


async def test_who_asks_anew_when_it_ends_has_asked_anew(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do so between our read and our write: the write is refused, and what they ask for is neither removed nor
    missed."""
    await keeper(True)
    write = Kube.merge_patch

    async def first(self: Kube, path: str, body: dict[str, Any]) -> Any:
        monkeypatch.setattr(Kube, "merge_patch", write)
        await keeper.edit(**{PRESERVE_ANNOTATION: "now"})
        return await write(self, path, body)

    monkeypatch.setattr(Kube, "merge_patch", first)
    assert await keeper(False, clear="when-failed", uncordon=True) == "now"
    assert await keeper.seen() == ({PRESERVE_ANNOTATION: "now"}, False)
