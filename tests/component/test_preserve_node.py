"""The Node of a preserved machine: what is written on it and taken off again, against a simulated API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from activitykit import CLUSTER, Attempts, NoServer
from apiserver.simulated import NODES, Obj, new_world

from activities.cluster.marks import MarkActivities
from activities.cluster.preserve import PreserveActivities
from activities.deps import Deps
from activities.kube.events import NAMESPACE
from activities.kube.rewrite import CONFLICTS
from resources.calls.cluster import PreserveInput
from resources.calls.machine import MachineRef
from resources.fleet.membership import MarkNodesInput
from resources.journal import Happening
from resources.names import (
    CORDON_ANNOTATION,
    MACHINE_NAME_LABEL,
    PRESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
)
from resources.settings import ClusterSettings, Settings
from simulator.frame import FaultRule

VM, OTHER_VM = "aws:///eu-west-1/i-1", "aws:///eu-west-1/i-2"
MACHINE = MachineRef(cluster=CLUSTER, name="m-1", uid="0b5d3a4e-8f53-4b8e-9d0a-6f6f3c1f4a11")
KEPT = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY_PRESERVATION: "m-1"}
CORDON = {CORDON_ANNOTATION: "m-1"}


class Keeper:
    """The activity, and the Node n-1."""

    def __init__(self, attempts: Attempts) -> None:
        self.attempts, self.kube = attempts, attempts.world.kube
        self.activities = PreserveActivities(attempts.deps)

    async def preserve(self, on: bool = True, provider_id: str | None = VM, **fields: Any) -> str:
        """The annotation `preserve` that the activity answers with."""
        input = PreserveInput(machine=MACHINE, node_name="n-1", provider_id=provider_id, on=on, **fields)
        return (await self.attempts.attempt(self.activities.preserve_node, input)).value

    async def node(self, vm: str = VM, unschedulable: bool = False, **annotations: str) -> None:
        labels = {MACHINE_NAME_LABEL: "m-1"}
        await self.attempts.node("n-1", vm, labels=labels, annotations={"color": "blue"} | annotations)
        if unschedulable:
            await self.patch({"spec": {"unschedulable": True}})

    async def patch(self, body: Obj) -> None:
        """Patches as a person does."""
        await self.kube.patch(f"{NODES}/n-1", body)

    async def annotate(self, **annotations: str | None) -> None:
        await self.patch({"metadata": {"annotations": annotations}})

    async def seen(self) -> tuple[dict[str, str], bool]:
        """Annotations, without the one that does not concern us; and whether it is cordoned."""
        found = await self.kube.get(f"{NODES}/n-1")
        assert found["metadata"]["annotations"].pop("color") == "blue"
        return found["metadata"]["annotations"], bool(found["spec"].get("unschedulable"))

    def writes(self) -> list[Obj]:
        """Our writes: those of a person do not carry a version."""
        bodies = (c.request["body"] for c in self.attempts.world.frame.calls(operation="patch nodes"))
        return [b for b in bodies if "resourceVersion" in b.get("metadata", {})]

    def fault(self, operation: str, **rule: Any) -> FaultRule:
        made = FaultRule(operation=operation, **rule)
        self.attempts.world.frame.faults.append(made)
        return made


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    async with new_world() as world:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(world.kube.kubeconfig())
        client = NoServer()
        settings = Settings(clusters={CLUSTER: ClusterSettings(kubeconfig=kubeconfig)})
        deps = Deps(settings, client)  # type: ignore[arg-type]
        try:
            yield Keeper(Attempts(world, None, deps, client))  # type: ignore[arg-type]
        finally:
            await deps.close()


# -- on and off -------------------------------------------------------------------------------------------------------


async def test_it_comes_and_goes_and_leaves_everything_else(keeper: Keeper) -> None:
    await keeper.node()
    assert await keeper.preserve() == ""
    assert await keeper.seen() == (KEPT, False)
    assert await keeper.preserve(on=False) == ""
    assert await keeper.seen() == ({}, False)


async def test_what_is_as_it_should_be_is_not_written_again(keeper: Keeper) -> None:
    await keeper.node(unschedulable=True)
    await keeper.preserve(on=False, clear="now", uncordon=True)
    assert keeper.writes() == []
    await keeper.preserve()
    await keeper.preserve(uncordon=True)
    assert len(keeper.writes()) == 1


async def test_the_value_that_a_person_has_set_is_told_and_stays(keeper: Keeper) -> None:
    await keeper.node(**{PRESERVE_ANNOTATION: "now"})
    assert await keeper.preserve() == "now"
    assert await keeper.seen() == (KEPT | {PRESERVE_ANNOTATION: "now"}, False)
    assert await keeper.preserve(on=False) == "now"
    assert await keeper.seen() == ({PRESERVE_ANNOTATION: "now"}, False)


async def test_the_value_that_it_ends_is_removed_and_another_stays(keeper: Keeper) -> None:
    """Somebody who asks again at the moment when it ends has made a new request."""
    await keeper.node(**{PRESERVE_ANNOTATION: "now"})
    await keeper.preserve()
    assert await keeper.preserve(on=False, clear="when-failed") == "now"
    assert await keeper.seen() == ({PRESERVE_ANNOTATION: "now"}, False)
    assert await keeper.preserve(on=False, clear="now") == ""
    assert await keeper.seen() == ({}, False)


async def test_a_request_that_is_withdrawn_leaves_a_rollouts_protection(keeper: Keeper) -> None:
    await keeper.node(**{PRESERVE_ANNOTATION: "when-failed"})
    marks = MarkActivities(keeper.attempts.deps)
    mark = MarkNodesInput(cluster=CLUSTER, pool="p", machines=["m-1"], on=True)
    await keeper.attempts.attempt(marks.mark_nodes, mark)
    by_rollout = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY: "p"}
    assert await keeper.preserve(on=False, clear="when-failed") == ""
    assert (await keeper.seen())[0] == by_rollout


# -- the cordon -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cordon", "lifted"),
    [(CORDON, True), ({}, False), ({CORDON_ANNOTATION: "m-2"}, False)],
    ids=["of our drain", "a person's", "of another machine"],
)
async def test_only_the_cordon_of_our_own_drain_is_lifted(keeper: Keeper, cordon: dict[str, str], lifted: bool) -> None:
    await keeper.node(unschedulable=True, **cordon)
    await keeper.preserve()
    assert await keeper.seen() == (KEPT | cordon, True)
    await keeper.preserve(uncordon=True)
    assert await keeper.seen() == (KEPT, False) if lifted else (KEPT | cordon, True)


async def test_a_cordon_that_a_person_has_lifted_before_leaves_only_its_marker(keeper: Keeper) -> None:
    await keeper.node(**CORDON)
    await keeper.preserve(on=False, uncordon=True)
    assert await keeper.seen() == ({}, False)
    assert "spec" not in keeper.writes()[-1]


# -- trouble ----------------------------------------------------------------------------------------------------------


async def test_a_node_of_another_vm_has_nothing_to_change(keeper: Keeper) -> None:
    """A dead VM's name was reused."""
    theirs = {PRESERVE_ANNOTATION: "now"} | CORDON
    await keeper.node(vm=OTHER_VM, unschedulable=True, **theirs)
    assert await keeper.preserve(clear="now", uncordon=True, story=[said("Preserved")]) == ""
    assert await keeper.seen() == (theirs, True)
    assert await events(keeper) == []
    assert await keeper.preserve(provider_id="aws:///eu-west-1a/i-2", clear="now", uncordon=True) == ""
    assert await keeper.seen() == (KEPT, False)


async def test_a_node_that_is_not_there_has_nothing_to_change(keeper: Keeper) -> None:
    assert await keeper.preserve(story=[said("Preserved")]) == ""
    await keeper.node(**{PRESERVE_ANNOTATION: "now"})
    keeper.fault("patch nodes", code="NotFound")  # gone since it was looked at
    assert await keeper.preserve(story=[said("Preserved")]) == ""
    keeper.fault("patch nodes", code="Conflict")
    keeper.fault("get nodes")  # the first look finds it
    keeper.fault("get nodes", code="NotFound")
    assert await keeper.preserve(story=[said("Preserved")]) == ""
    assert await keeper.seen() == ({PRESERVE_ANNOTATION: "now"}, False)
    assert await events(keeper) == []
    assert await keeper.preserve() == "now"


async def test_who_writes_at_the_same_time_is_read_again(keeper: Keeper) -> None:
    await keeper.node()
    keeper.fault("patch nodes", code="Conflict", times=CONFLICTS - 1)
    await keeper.preserve()
    assert await keeper.seen() == (KEPT, False)
    keeper.fault("patch nodes", code="Conflict", times=CONFLICTS)
    failure = await keeper.attempts.fails(
        keeper.activities.preserve_node, PreserveInput(machine=MACHINE, node_name="n-1", provider_id=VM, on=False)
    )
    assert failure.type == "conflict"
    await keeper.preserve(on=False)
    assert await keeper.seen() == ({}, False)


async def test_a_rollout_and_a_preservation_that_begin_together_both_hold(keeper: Keeper) -> None:
    """Both have read the Node before either writes it: the slower one is refused, and reads again."""
    await keeper.node()
    slow = keeper.fault("patch nodes", delay=0.3, times=2)
    marks, mark = (
        MarkActivities(keeper.attempts.deps),
        MarkNodesInput(cluster=CLUSTER, pool="p", machines=["m-1"], on=True),
    )
    await asyncio.gather(keeper.preserve(), keeper.attempts.attempt(marks.mark_nodes, mark))
    assert slow.hits == 2
    assert await keeper.seen() == (KEPT | {SCALE_DOWN_DISABLED_BY: "p"}, False)


# -- the story --------------------------------------------------------------------------------------------------------


def said(reason: str) -> Happening:
    return Happening(time=datetime(2031, 1, 1, 12, tzinfo=UTC), reason=reason, message="until 12:00 UTC")


async def events(keeper: Keeper) -> list[tuple[str, str]]:
    found = (await keeper.kube.get(f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
    return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == "n-1"]


async def test_the_story_is_told_once_also_where_nothing_is_to_be_written(keeper: Keeper) -> None:
    await keeper.node(**KEPT)
    for _ in range(2):
        await keeper.preserve(story=[said("Preserved")])
    assert await events(keeper) == [("Preserved", "Machine m-1: until 12:00 UTC")]
    assert keeper.writes() == []
