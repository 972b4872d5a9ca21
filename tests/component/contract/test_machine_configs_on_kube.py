"""What machine configs do to Nodes, on any API server: targets, taints, drains that a Node's daemon asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from activitykit import once
from apiserver.simulated import NODES, PODS, KubeTarget, Obj, make_pod, unique
from lifekit import eventually
from machine_configs.daemon import daemons
from temporalio.exceptions import ApplicationError

from activities.cluster.config_nodes import ConfigNodeActivities
from activities.deps import Deps
from activities.drain.configs import ConfigDrainActivities
from resources.calls.machine_config import (
    ConfigDrainInput,
    ConfigDrainOutput,
    NodeRef,
    TaintInput,
    TargetInput,
    TargetNode,
    TargetOutput,
)
from resources.errors import NOT_YET
from resources.machine_config.keys import DRAINED_BY_CONFIG, HISTORIC_DESIRED, SEED, TODAY
from resources.names import CORDON_ANNOTATION

OLD, NEW, OTHER = "rendered-worker-0", "rendered-worker-1", "rendered-worker-2"
TAINT = {"key": "UpdateInProgress", "effect": "PreferNoSchedule"}


class Bench:
    def __init__(self, kube: KubeTarget, deps: Deps) -> None:
        self.kube = kube
        self.nodes = ConfigNodeActivities(deps)
        self.drains = ConfigDrainActivities(deps)
        self.made: list[str] = []

    async def node(self, *taints: Obj, unschedulable: bool = False, **annotations: str) -> NodeRef:
        body: Obj = {"metadata": {"name": unique("n"), "annotations": {"color": "blue", **annotations}}, "spec": {}}
        body["spec"] = {"taints": list(taints), "unschedulable": unschedulable}
        made = await self.kube.create(NODES, body)
        self.made.append(made["metadata"]["name"])
        return NodeRef(name=made["metadata"]["name"], uid=made["metadata"]["uid"])

    async def annotate(self, node: NodeRef, **annotations: str | None) -> None:
        await self.patch(node, {"metadata": {"annotations": annotations}})

    async def patch(self, node: NodeRef, body: Obj) -> None:
        await self.kube.patch(f"{NODES}/{node.name}", body)

    async def seen(self, node: NodeRef) -> dict[str, str]:
        """Its annotations without the one that is nobody's business here; and whether it is cordoned."""
        found = await self.kube.get(f"{NODES}/{node.name}")
        annotations: dict[str, str] = found["metadata"]["annotations"]
        assert annotations.pop("color") == "blue"
        return annotations | ({"cordoned": "yes"} if found["spec"].get("unschedulable") else {})

    async def taints(self, node: NodeRef) -> list[Obj]:
        found = (await self.kube.get(f"{NODES}/{node.name}"))["spec"].get("taints") or []
        return [t for t in found if not t["key"].startswith("node.kubernetes.io/")]

    async def version(self, node: NodeRef) -> str:
        return str((await self.kube.get(f"{NODES}/{node.name}"))["metadata"]["resourceVersion"])

    # -- the activities

    async def target(self, *nodes: NodeRef, was: str = OLD, config: str = NEW) -> TargetOutput:
        wanted = [TargetNode(name=n.name, uid=n.uid, was=was) for n in nodes]
        input = TargetInput(cluster="demo", pool="worker", config=config, nodes=wanted)
        return await once(self.nodes.target_config_nodes, input)

    async def drain(self, node: NodeRef, request: str = f"drain-{NEW}") -> ConfigDrainOutput:
        return await self._answer(self.drains.drain_for_config, node, request)

    async def uncordon(self, node: NodeRef, request: str = f"uncordon-{NEW}") -> ConfigDrainOutput:
        return await self._answer(self.drains.uncordon_for_config, node, request)

    async def waits(self, node: NodeRef) -> str:
        """The words of a pass that finds that the drain is not over."""
        with pytest.raises(ApplicationError) as caught:
            await self.drain(node)
        assert caught.value.type == NOT_YET, caught.value
        return caught.value.message

    async def _answer(self, activity: Any, node: NodeRef, request: str) -> ConfigDrainOutput:
        input = ConfigDrainInput(
            cluster="demo", pool="worker", node=node, request=request, poll=timedelta(milliseconds=10)
        )
        output: ConfigDrainOutput = await once(activity, input)
        return output


@pytest.fixture
async def bench(kube: KubeTarget, deps: Deps) -> AsyncIterator[Bench]:
    bench = Bench(kube, deps)
    yield bench
    for name in bench.made:
        await kube.call("DELETE", f"{NODES}/{name}")


# -- targets -----------------------------------------------------------------------------------------------------------


async def test_a_node_is_targeted_once_and_nothing_else_of_it_changes(bench: Bench) -> None:
    """M-U01: also one that has only the current config, or no annotation at all."""
    node = await bench.node(**{SEED.current: OLD, SEED.desired: OLD, SEED.state: "done"})
    young, bare = await bench.node(**{SEED.current: OLD}), await bench.node()
    answer = await bench.target(node)
    assert (answer.targeted, answer.gone, answer.refused) == ([node.name], [], {})
    assert (await bench.target(young, bare, was="")).targeted == [young.name, bare.name]
    assert await bench.seen(node) == {SEED.current: OLD, SEED.desired: NEW, SEED.state: "done"}
    assert await bench.seen(bare) == {SEED.desired: NEW}
    before = await bench.version(node)
    assert (await bench.target(node)).targeted == [node.name]  # a repetition after a lost answer
    assert await bench.version(node) == before


async def test_a_daemon_is_answered_in_its_own_words_and_historic_ones_are_only_read(bench: Bench) -> None:
    today = await bench.node(**{TODAY.current: OLD, TODAY.desired: OLD})
    historic = await bench.node(**{HISTORIC_DESIRED: OLD})
    assert (await bench.target(today, historic)).targeted == [today.name, historic.name]
    assert (await bench.seen(today))[TODAY.desired] == NEW
    assert await bench.seen(historic) == {HISTORIC_DESIRED: OLD, SEED.desired: NEW}


async def test_a_call_that_comes_too_late_changes_nothing(bench: Bench) -> None:
    """An attempt that was given up may still be on its way when its Node has got another config, or is another Node."""
    moved = await bench.node(**{SEED.current: OLD, SEED.desired: OTHER})
    other = NodeRef(name=(await bench.node(**{SEED.desired: OLD})).name, uid="a-former-one")
    gone = NodeRef(name="never-there", uid="u")
    answer = await bench.target(moved, other, gone)
    assert answer.targeted == []
    assert answer.gone == [other.name, gone.name]
    assert answer.refused == {moved.name: f"it is to have {OTHER} by now, and not {OLD}"}
    assert (await bench.seen(moved))[SEED.desired] == OTHER


async def test_targets_and_kubelets_write_at_the_same_time(bench: Bench) -> None:
    """A conflict is read again; the annotation of the other writer stays."""
    node = await bench.node(**{SEED.current: OLD, SEED.desired: OLD})
    writes = [bench.annotate(node, **{f"n{n}": "1"}) for n in range(4)]
    answer, *_ = await asyncio.gather(bench.target(node), *writes)
    assert answer.targeted == [node.name]
    assert (await bench.seen(node)).keys() >= {"n0", "n1", "n2", "n3"}


# -- taints ------------------------------------------------------------------------------------------------------------


async def test_the_taint_comes_and_goes_and_others_stay(bench: Bench) -> None:
    """M-U07."""
    dummy = {"key": "dummy", "effect": "NoSchedule"}
    node, gone = await bench.node(dummy), NodeRef(name="never-there", uid="u")
    for _ in range(2):
        await once(bench.nodes.set_update_taints, TaintInput(cluster="demo", on=[node, gone]))
        assert await bench.taints(node) == [dummy, TAINT]
    for _ in range(2):
        await once(bench.nodes.set_update_taints, TaintInput(cluster="demo", off=[node, gone]))
        assert await bench.taints(node) == [dummy]


# -- drains ------------------------------------------------------------------------------------------------------------


async def test_a_drain_that_a_daemon_asked_for_is_answered_when_the_pods_are_gone(bench: Bench) -> None:
    """M-U23, B39."""
    node = await bench.node(**{SEED.current: OLD, SEED.desired: NEW, SEED.desired_drain: f"drain-{NEW}"})
    name = await make_pod(bench.kube, node.name)
    assert "0 of 1 pods gone" in await bench.waits(node) or "1 pods gone" in await bench.waits(node)
    assert (await bench.seen(node))["cordoned"]
    assert SEED.last_drain not in await bench.seen(node)
    await bench.kube.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert (await bench.drain(node)).answered
    seen = await bench.seen(node)
    assert (seen[SEED.last_drain], seen[DRAINED_BY_CONFIG]) == (f"drain-{NEW}", NEW)
    before = await bench.version(node)
    assert (await bench.drain(node)).answered
    assert await bench.version(node) == before
    await bench.annotate(node, **{SEED.desired_drain: f"uncordon-{NEW}"})
    assert (await bench.drain(node)).superseded
    assert (await bench.uncordon(node)).answered
    seen = await bench.seen(node)
    assert seen == {
        SEED.current: OLD,
        SEED.desired: NEW,
        SEED.desired_drain: f"uncordon-{NEW}",
        SEED.last_drain: f"uncordon-{NEW}",
    }
    assert (await bench.uncordon(node)).answered


async def test_b41_who_uncordons_during_a_drain_gets_a_cordon_again_and_no_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await bench.node(**{SEED.current: OLD, SEED.desired: NEW, SEED.desired_drain: f"drain-{NEW}"})
    answer = bench.drains._answer

    async def late(*arguments: Any) -> ConfigDrainOutput:
        """A person is faster than the last write of the pass."""
        await bench.patch(node, {"spec": {"unschedulable": None}})
        return await answer(*arguments)

    monkeypatch.setattr(bench.drains, "_answer", late)
    assert f"somebody uncordoned node {node.name} during its drain" in await bench.waits(node)
    monkeypatch.setattr(bench.drains, "_answer", answer)
    assert "cordoned" not in await bench.seen(node)
    assert (await bench.drain(node)).answered
    assert (await bench.seen(node))["cordoned"]


@pytest.mark.parametrize("whose", [{}, {CORDON_ANNOTATION: "m-1"}], ids=["a person's", "a machine's"])
async def test_i10_a_cordon_of_somebody_else_survives(bench: Bench, whose: dict[str, str]) -> None:
    asked = {SEED.current: OLD, SEED.desired: NEW, SEED.desired_drain: f"drain-{NEW}"}
    node = await bench.node(unschedulable=True, **asked, **whose)
    assert (await bench.drain(node)).answered
    await bench.annotate(node, **{SEED.desired_drain: f"uncordon-{NEW}"})
    assert (await bench.uncordon(node)).answered
    assert (await bench.seen(node))["cordoned"]
    assert (await bench.seen(node))[SEED.last_drain] == f"uncordon-{NEW}"


async def test_a_machine_that_is_drained_meanwhile_keeps_its_cordon(bench: Bench) -> None:
    """Its own drain began while the Node was cordoned for a config: the end of that one is not the end of this one."""
    node = await bench.node(**{SEED.current: OLD, SEED.desired: NEW, SEED.desired_drain: f"drain-{NEW}"})
    assert (await bench.drain(node)).answered
    await bench.annotate(node, **{CORDON_ANNOTATION: "m-1", SEED.desired_drain: f"uncordon-{NEW}"})
    assert (await bench.uncordon(node)).answered
    seen = await bench.seen(node)
    assert seen["cordoned"]
    assert DRAINED_BY_CONFIG not in seen


async def test_a_node_that_is_gone_needs_no_drain(bench: Bench) -> None:
    there = await bench.node(**{SEED.desired_drain: f"drain-{NEW}"})
    for node in (NodeRef(name="never-there", uid="u"), NodeRef(name=there.name, uid="a-former-one")):
        assert (await bench.drain(node)).gone
        assert (await bench.uncordon(node)).gone
    assert "cordoned" not in await bench.seen(there)


async def test_the_reference_daemon_goes_through_a_drain_and_reports(bench: Bench) -> None:
    """The kit itself: what the whole proofs stand on."""
    async with daemons(bench.kube, OLD) as running:
        running.usual.drains = True
        node = await bench.node()
        await eventually(lambda: bench.seen(node), lambda s: s.get(SEED.state) == "done", "installed")
        running.knob(node.name, degrades={OTHER})
        await bench.target(node)
        await eventually(lambda: bench.seen(node), lambda s: s.get(SEED.desired_drain), "asked for a drain")
        assert (await bench.drain(node)).answered
        await eventually(lambda: bench.seen(node), lambda s: s[SEED.desired_drain] == f"uncordon-{NEW}", "changed")
        assert (await bench.uncordon(node)).answered
        done = await eventually(lambda: bench.seen(node), lambda s: s[SEED.state] == "done", "done")
        assert (done[SEED.current], running.named(node.name).applied) == (NEW, [NEW])
        await bench.target(node, was=NEW, config=OTHER)
        await eventually(lambda: bench.seen(node), lambda s: s[SEED.desired_drain] == f"drain-{OTHER}", "asks again")
        assert (await bench.drain(node, f"drain-{OTHER}")).answered
        failed = await eventually(lambda: bench.seen(node), lambda s: s[SEED.state] == "degraded", "degraded")
        assert OTHER in failed[SEED.reason]
