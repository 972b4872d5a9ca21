"""The watch of nodes in a bad network, with a busy server, and with clocks that are wrong.

Each test ends with one change of a node's health: the machine hears of it, and of nothing else.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import watchkit
from apiserver.simulated import NODES
from lifekit import eventually
from temporalio.testing import WorkflowEnvironment
from watchkit import SilentDoor, World, new_world, provider_id

import activities.kube.client
import activities.watch.follow
import activities.watch.nodes
from activities.watch.labels import BACK_OFF
from resources.machine.facts import NodeFacts
from resources.names import MACHINE_NAME_LABEL
from simulator.frame import Call

SILENCE = 1.5  # seconds without a byte, after which the watch of these tests takes its connection for dead
PATIENCE = 1.0  # seconds that a call of these tests may take
LATER = 2  # seconds of Retry-After
SLOW = 1.5  # seconds that a slow server takes; longer than the heartbeat timeout
SKEW = timedelta(minutes=5)
WELL = ("KubeletReady", "kubelet is posting ready status")


@pytest.fixture
async def impatient(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world behind a door that can go silent, with an API server that remembers two events and a watch that soon
    loses patience."""
    monkeypatch.setattr(watchkit, "Door", SilentDoor)
    monkeypatch.setattr(activities.watch.follow, "READ_TIMEOUT", SILENCE)
    async with new_world(temporal.client, history=2) as world, world.worker():
        await world.watch()
        yield world


# -- half-open connections ---------------------------------------------------------------------------------------------


async def test_a_silent_connection_is_given_up_and_what_it_kept_back_is_told(impatient: World) -> None:
    world = impatient
    await world.watched()
    world.silent_door.silence()
    await world.ready("n-1", True, *WELL)
    seen = await world.told("m-1", 3)
    assert seen[-1].ready
    await world.only_this_change("m-1", 3)
    await world.undisturbed()


async def test_history_lost_behind_a_silent_connection(impatient: World) -> None:
    """It was compacted meanwhile: the next watch is HTTP 200 with one ERROR event, 410; the list tells what was
    missed."""
    world = impatient
    await world.joined("m-2", "n-2", "i-2")
    await world.watched()
    lists = len(world.calls("list nodes"))
    await world.machine("m-3")
    await world.announce("m-3", provider_id("i-3"))
    world.silent_door.silence()
    await world.delete("n-2")
    await world.node("n-3", "i-3")
    for n in range(5):
        await world.patch("n-1", {"metadata": {"annotations": {"somebody": str(n)}}})
    assert not (await world.told("m-2", 2))[-1].exists
    assert (await world.told("m-3", 1))[-1].ready
    assert len(world.calls("list nodes")) > lists
    await world.only_this_change("m-1", 2)
    await world.only_this_change("m-3", 1, "n-3")
    await world.undisturbed()
    assert len(await world.facts("m-2")) == 2


async def test_a_server_behind_which_everything_is_silent(impatient: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are accepted and carry nothing: this is reported, after the patience with one call."""
    world = impatient
    monkeypatch.setattr(activities.kube.client, "CALL_TIMEOUT", PATIENCE)
    await world.watched()
    world.silent_door.silent = True
    world.silent_door.silence()
    await eventually(world.reachable, lambda reachable: reachable is False, "unreachable")
    await world.ready("n-1", True, *WELL)
    assert len(await world.facts("m-1")) == 2
    world.silent_door.silent = False
    assert (await world.told("m-1", 3))[-1].ready
    await eventually(world.reachable, lambda reachable: reachable is True, "reachable")
    await world.only_this_change("m-1", 3)
    assert await world.reasons() == ["APIUnreachable", "APIReachable"]
    assert (await world.attempt()).attempt == 1


# -- a server that is busy ---------------------------------------------------------------------------------------------


async def _gap(world: World, operation: str) -> float:
    """Refuses the first call; returns the seconds until the next."""
    world.fault(operation, code="TooManyRequests", headers={"Retry-After": str(LATER)})
    following = world.fault(operation)  # it only counts: a watch is in the journal when it has ended
    await world.watch()
    await world.struck(following)
    refused = world.calls(operation)[0]
    assert (refused.error, refused.status) == ("TooManyRequests", 429)
    return time.time() - refused.time


async def test_a_list_refused_for_a_while(temporal: WorkflowEnvironment) -> None:
    """429: it is not asked again before Retry-After has passed."""
    async with new_world(temporal.client) as world, world.worker():
        assert await _gap(world, "list nodes") >= LATER
        await world.joined()
        await world.only_this_change("m-1", 1)
        await world.undisturbed()  # it answers


async def test_a_list_refused_for_long(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of nodes is old by then, and it does not matter who is to blame."""
    monkeypatch.setattr(activities.watch.follow, "BUSY_FOR", 0.5)
    async with new_world(temporal.client) as world, world.worker():
        world.fault("list nodes", code="TooManyRequests", headers={"Retry-After": "1"}, times=2)
        await world.watch()
        await world.joined()
        await world.only_this_change("m-1", 1)
        assert await world.reasons() == ["APIUnreachable", "APIReachable"]


async def test_a_watch_refused_for_a_while(temporal: WorkflowEnvironment) -> None:
    """429: the busy server is not asked for a whole list instead; the watch goes on where it was."""
    async with new_world(temporal.client) as world, world.worker():
        assert await _gap(world, "watch nodes") >= LATER
        await world.joined()
        await world.only_this_change("m-1", 1)
        assert len(world.calls("list nodes")) == 1
        await world.undisturbed()


async def test_a_label_refused_again_and_again(temporal: WorkflowEnvironment) -> None:
    """A busy server refuses it: it is tried again, though the node no longer changes, and nobody is blamed."""
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        await world.joined("m-2", "n-2", "i-2")
        await world.only_this_change("m-2", 1, "n-2")  # the watch is open
        since = world.frame.calls()[-1].n
        world.fault("patch nodes", code="TooManyRequests", times=2)
        await world.joined()
        await world.only_this_change("m-1", 1)
        labels = await eventually(lambda: _labels(world, since), lambda calls: len(calls) == 3, "three tries")
        assert [c.error for c in labels] == ["TooManyRequests", "TooManyRequests", None]
        assert labels[2].time - labels[1].time > BACK_OFF
        await world.undisturbed()


async def _labels(world: World, since: int) -> list[Call]:
    return world.frame.calls("kubernetes", "patch nodes", since)


async def test_a_node_that_cannot_be_written_is_its_machines_trouble_alone(temporal: WorkflowEnvironment) -> None:
    """A webhook fails for one node: its machine is told of the node all the same, and of the failure; the others do not
    notice."""
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        refuse = world.fault(
            "patch nodes", match="n-1", code="InternalError", message="failed calling webhook", times=None
        )
        await world.joined()
        await world.joined("m-2", "n-2", "i-2")
        told = await eventually(lambda: world.facts("m-1"), lambda facts: facts[-1].unwritable, "it is said")
        assert [(f.ready, f.unwritable) for f in told] == [(True, ""), (True, "failed calling webhook")]
        await world.only_this_change("m-2", 1, "n-2")
        await world.ready("n-1", False, "KubeletNotReady", "it is still heard")
        assert (await world.told("m-1", 3))[-1].reason == "KubeletNotReady: it is still heard"
        words = "node n-1 cannot be written; it is tried again: failed calling webhook"
        assert [(h.reason, h.message) for h in (await world.state()).journal] == [("NodeUnwritable", words)]
        assert await world.reachable() is True
        assert (await world.attempt()).attempt == 1
        assert refuse.hits == 2
        world.frame.clear_faults()
        assert (await world.told("m-1", 4))[-1].unwritable == ""  # the next try succeeded
        assert (await world.kube.get(f"{NODES}/n-1"))["metadata"]["labels"][MACHINE_NAME_LABEL] == "m-1"


async def test_a_machine_that_takes_no_signal_is_its_own_trouble(temporal: WorkflowEnvironment) -> None:
    """Its workflow is full: the watch of all the others goes on, and it is told again."""
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        await world.joined("m-2", "n-2", "i-2")
        world.spy.full.add("m-1")
        await world.machine("m-1")
        await world.announce("m-1", provider_id("i-1"))
        await world.node("n-1", "i-1")
        await eventually(world.reasons, lambda seen: seen == ["MachineDeaf"], "it is said")
        await world.only_this_change("m-2", 1, "n-2")
        assert (await world.attempt()).attempt == 1
        world.spy.full.clear()
        await world.ready("n-1", False, "KubeletNotReady", "news")
        assert (await world.told("m-1", 1))[-1].reason == "KubeletNotReady: news"


async def test_a_node_that_cannot_be_read_is_passed_over(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server of the future may send one. It is reported once, and the others are told."""
    whole = activities.watch.nodes.project

    def project(node: dict[str, Any], epoch: int, seq: int, twins: Iterable[str] = ()) -> NodeFacts:
        if node["metadata"]["name"] == "n-1":
            node = {**node, "status": {"conditions": [{"status": "True"}]}}
        return whole(node, epoch, seq, twins)

    monkeypatch.setattr(activities.watch.nodes, "project", project)
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        await world.machine("m-1")
        await world.announce("m-1", provider_id("i-1"))
        await world.node("n-1", "i-1")
        await eventually(world.reasons, lambda seen: seen == ["NodeUnreadable"], "it is said")
        await world.ready("n-1", False, "KubeletNotReady", "nobody hears this")
        await world.joined("m-2", "n-2", "i-2")
        await world.only_this_change("m-2", 1, "n-2")
        assert await world.reasons() == ["NodeUnreadable"]
        assert await world.facts("m-1") == []
        assert (await world.attempt()).attempt == 1


async def test_a_slow_server(temporal: WorkflowEnvironment) -> None:
    """It is slower than the heartbeat timeout, which is no sign of a dead worker."""
    async with new_world(temporal.client) as world, world.worker():
        slow = [world.fault(f"{verb} nodes", delay=SLOW) for verb in ("list", "watch", "patch")]
        await world.watch()
        await world.machine("m-1")
        await world.announce("m-1", provider_id("i-1"))
        await world.struck(slow[1])
        node = {"metadata": {"name": "n-1"}, "spec": {"providerID": provider_id("i-1")}}
        await world.kube.create(NODES, node)
        await world.told("m-1", 1)
        assert [rule.hits for rule in slow] == [1, 1, 1]
        await world.only_this_change("m-1", 1)
        await world.undisturbed()


async def test_a_list_that_takes_too_long(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activities.kube.client, "CALL_TIMEOUT", PATIENCE)
    async with new_world(temporal.client) as world, world.worker():
        slow = world.fault("list nodes", delay=3 * PATIENCE)
        await world.watch()
        await world.joined()
        await world.only_this_change("m-1", 1)
        assert slow.hits == 1
        assert await world.reasons() == ["APIUnreachable", "APIReachable"]
        assert (await world.attempt()).attempt == 1


# -- clocks ------------------------------------------------------------------------------------------------------------


async def _report(world: World, node: str, clock: datetime, ready: bool = True, reason: str = WELL[0]) -> None:
    """A kubelet's report with a clock of its own."""
    stamp = clock.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Ready",
        "status": str(ready),
        "reason": reason,
        "message": WELL[1],
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }
    await world.patch(node, {"status": {"conditions": [condition]}}, "/status")


@pytest.mark.parametrize("skew", [SKEW, -SKEW], ids=["ahead", "behind"])
async def test_a_node_whose_clock_is_wrong(temporal: WorkflowEnvironment, skew: timedelta) -> None:
    """Neither its reports nor the moment when its clock is set right are news; its health is."""
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        await world.joined()
        now = datetime.now(UTC)
        for second in range(3):
            await _report(world, "n-1", now + skew + timedelta(seconds=second))
        await _report(world, "n-1", now)
        await _report(world, "n-1", now + skew)
        await _report(world, "n-1", now + skew, ready=False, reason="KubeletNotReady")
        first, second_told = await world.told("m-1", 2)
        assert not second_told.ready
        assert second_told.order > first.order
        await _report(world, "n-1", now - skew)
        third = (await world.told("m-1", 3))[-1]
        assert third.ready
        assert third.order > second_told.order  # by the watch's own order, whatever the node's clock says
        await world.only_this_change("m-1", 3)
