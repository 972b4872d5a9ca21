"""The watch of nodes. Where nobody should be told anything, one change follows, and only that is seen."""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
import os
import random
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apiserver.simulated import NODES
from lifekit import eventually
from temporalio.common import SearchAttributePair
from temporalio.testing import WorkflowEnvironment
from watchkit import World, new_world, provider_id

import worker
from activities.watch import follow, twins
from activities.watch import nodes as watch
from activities.watch.nodes import ASK_EVERY
from activities.watch.told import Position
from resources import attributes
from resources.calls.cloud import InstancesOutput
from resources.calls.watch import Cursor
from resources.clouds import provider_key
from resources.cluster.accounts import Account
from resources.cluster.news import Reachability
from resources.cluster.state import ClusterState
from resources.intents import Intent
from resources.journal import Happening
from resources.machine.facts import NodeFacts
from resources.machine.manifest import SecretRef
from resources.machine.state import JOURNAL_LENGTH
from resources.names import INSTANCE_NOT_READY_TAINT, MACHINE_NAME_LABEL, PRESERVE_ANNOTATION, STARTUP_TAINTS
from resources.settings import load_settings
from starter.sdk.connection import connect
from workflows.cluster import ClusterWorkflow

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SIZE_LIMIT = 1 << 20  # bytes of the largest entity's state


@pytest.fixture
async def world(temporal: WorkflowEnvironment) -> AsyncIterator[World]:
    """A world that a worker in this process watches."""
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        yield world


# -- whose node it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("announced", "joined"),
    [("eu-west-1", "eu-west-1a"), ("eu-west-1a", "eu-west-1")],
    ids=["by region, joins by zone", "by zone, joins by region"],
)
async def test_a_node_announced_before_it_joins(world: World, announced: str, joined: str) -> None:
    await world.machine("m-1")
    await world.announce("m-1", provider_id("i-1", announced))
    await world.kube.create(NODES, {"metadata": {"name": "n-1"}, "spec": {"providerID": provider_id("i-1", joined)}})
    (first,) = await world.told("m-1", 1)
    assert (first.exists, first.name, first.provider_id, first.ready) == (
        True,
        "n-1",
        provider_id("i-1", joined),
        False,
    )
    assert first.reason == "the kubelet has not reported yet"
    await world.ready("n-1", True, "KubeletReady", "")
    _, second = await world.told("m-1", 2)
    assert second.ready
    assert second.order > first.order
    labels = (await world.kube.get(f"{NODES}/n-1"))["metadata"]["labels"]
    assert labels[MACHINE_NAME_LABEL] == "m-1"
    assert len(world.calls("patch nodes")) == 1  # the label, once


async def test_a_node_whose_machine_is_known_after_it_joined(world: World) -> None:
    """It is asked about again and again, with all unknown ones in one query, which leaves no history."""
    await world.machine("m-1")
    await world.node("n-1", "i-1")
    await world.node("n-2", "i-2")
    both = [provider_key(provider_id(vm)) for vm in ("i-1", "i-2")]
    await eventually(lambda: _asked(world, both), lambda times: len(times) >= 2, "two questions about both")
    before = await _history_at_rest(world)
    times = await eventually(lambda: _asked(world, both), lambda times: len(times) >= 5, "five questions about both")
    assert await _history_at_rest(world) == before
    assert times[-1] - times[-2] > ASK_EVERY / 2
    await world.announce("m-1", provider_id("i-1"))
    (told,) = await world.told("m-1", 1)
    assert told.ready
    await world.only_this_change("m-1", 1)


async def _history_at_rest(world: World) -> int:
    """The length of the history when no workflow task is under way: a busy machine may be late with an announcement's
    task."""

    async def look() -> int:
        described = await world.cluster.describe()
        return 0 if described.raw_description.HasField("pending_workflow_task") else described.history_length

    return await eventually(look, what="no pending workflow task")


async def _asked(world: World, keys: list[str]) -> list[float]:
    return [when for when, asked in world.spy.asked if asked == keys]


async def test_a_node_without_provider_id_is_nobodys(world: World) -> None:
    """A name alone may be a dead VM's."""
    await world.machine("m-1")
    await world.announce("m-1", provider_id("i-1"))
    await world.node("m-1", None)
    await world.patch("m-1", {"spec": {"providerID": provider_id("i-1")}})
    (told,) = await world.told("m-1", 1)  # written by the cloud-controller-manager
    assert told.provider_id == provider_id("i-1")


async def test_a_twin_that_is_not_ready_displaces_no_node_that_is(world: World) -> None:
    """An empty Node object has the VM's providerID: the machine hears of it, and still hears of its own."""
    await world.joined()
    await world.empty("twin", "i-1")
    seen = await world.told("m-1", 2)
    assert (seen[-1].name, seen[-1].ready, seen[-1].twins) == ("n-1", True, ["twin"])
    assert (await world.kube.get(f"{NODES}/twin"))["metadata"]["labels"][
        MACHINE_NAME_LABEL
    ] == "m-1"  # a drain finds it
    for n in range(3):
        await world.ready("twin", False, "KubeletNotReady", f"change {n * 'x'} of the twin")
    await world.only_this_change("m-1", 2)
    await world.delete("twin")
    seen = await world.told("m-1", 4)
    assert (seen[-1].exists, seen[-1].name, seen[-1].twins) == (True, "n-1", [])


async def test_a_kubelet_that_registers_under_another_name_takes_over(world: World) -> None:
    """Its former Node is no longer Ready. It does not come back when it flaps either."""
    await world.joined(node="old")
    await world.node("new", "i-1")
    seen = await world.told("m-1", 2)
    assert (seen[-1].name, seen[-1].twins) == ("old", ["new"])  # both are Ready: the one that the machine knows
    await world.ready("old", False, "NodeStatusUnknown", "Kubelet stopped posting node status")
    seen = await world.told("m-1", 3)
    assert (seen[-1].name, seen[-1].ready, seen[-1].twins) == ("new", True, ["old"])
    await world.ready("old", True, "KubeletReady", "once more")
    await world.patch("new", {"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
    seen = await world.told("m-1", 4)
    assert seen[-1].name == "new"
    await world.delete("new")
    seen = await world.told("m-1", 5)
    assert (seen[-1].exists, seen[-1].name, seen[-1].twins) == (True, "old", [])  # never "gone" in between
    await world.delete("old")
    assert not (await world.told("m-1", 6))[-1].exists


async def test_of_two_ready_nodes_the_one_whose_lease_moves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts, although the control plane has not written yet, or never will, that the former one's kubelet is
    silent."""
    monkeypatch.setattr(watch, "LEASES_EVERY", 0.1)
    monkeypatch.setattr(twins, "SILENT_AFTER", 2.0)
    await world.joined(node="old")
    for name in ("old", "new"):
        spec = {"holderIdentity": name, "renewTime": "2030-01-01T00:00:00.000000Z"}
        await world.kube.create(LEASES, {"metadata": {"name": name}, "spec": spec})
    await world.node("new", "i-1")
    await world.told("m-1", 2)

    async def beat() -> list[NodeFacts]:
        moved = {"spec": {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
        await world.kube.patch(f"{LEASES}/new", moved)
        return await world.facts("m-1")

    seen = await eventually(beat, lambda seen: len(seen) > 2, "the machine is told of the other one")
    assert (seen[-1].name, seen[-1].twins) == ("new", ["old"])


async def test_twins_that_were_there_before_the_watch(temporal: WorkflowEnvironment) -> None:
    """A Ready one counts, whichever is older; nobody is told of both."""
    async with new_world(temporal.client) as world:
        await world.machine("m-1")
        await world.node("ready", "i-1")
        await world.empty("twin", "i-1")
        await world.watch()
        await world.announce("m-1", provider_id("i-1"))
        async with world.worker():
            (told,) = await world.told("m-1", 1)
            assert (told.name, told.twins) == ("ready", ["twin"])
            await world.only_this_change("m-1", 1, "ready")


async def test_another_cluster_on_the_same_api(world: World) -> None:
    other = f"{world.name}-b"
    await world.watch(other)
    await world.joined()
    await world.machine("m-1", other)
    await world.announce("m-1", provider_id("i-2"), other)
    await world.node("n-2", "i-2")
    await eventually(lambda: world.facts("m-1", other))
    await world.only_this_change("m-1", 1, "n-1")
    await world.ready("n-2", False, "KubeletNotReady", "")
    seen = await eventually(lambda: world.facts("m-1", other), lambda seen: not seen[-1].ready)
    assert {f.name for f in seen} == {"n-2"}
    assert {f.name for f in await world.facts("m-1")} == {"n-1"}


# -- what is told ------------------------------------------------------------------------------------------------------


async def test_only_changes_are_told(world: World) -> None:
    await world.joined()
    lease = {"metadata": {"name": "n-1"}, "spec": {"holderIdentity": "n-1", "leaseDurationSeconds": 40}}
    await world.kube.create(LEASES, lease)
    for n in range(5):
        await world.kube.patch(f"{LEASES}/n-1", {"spec": {"leaseTransitions": n}})
        await world.ready("n-1", True, "KubeletReady", "kubelet is posting ready status")
        await world.patch("n-1", {"status": {"allocatable": {"memory": f"{n + 1}Gi"}}}, "/status")
        await world.patch("n-1", {"metadata": {"annotations": {"somebody": str(n)}}})
    await world.patch("n-1", {"spec": {"unschedulable": True}})  # what a drain of ours does is no news
    await world.only_this_change("m-1", 1)


async def test_numbers_in_the_kubelets_words_are_no_change(world: World) -> None:
    await world.joined()
    for words in ("last seen active 3m5.25s ago", "last seen active 13m15s ago"):
        await world.ready("n-1", False, "KubeletNotReady", f"PLEG is not healthy: pleg was {words}; threshold is 3m0s")
    await world.ready("n-1", False, "KubeletNotReady", "container runtime is down")
    seen = await world.told("m-1", 3)
    assert [f.reason.partition(" ago")[0] for f in seen[1:]] == [
        "KubeletNotReady: PLEG is not healthy: pleg was last seen active 3m5.25s",
        "KubeletNotReady: container runtime is down",
    ]


async def test_p41_a_startup_taint_that_goes_is_news_and_the_ready_taint_is_none(world: World) -> None:
    await world.joined()
    for before, keys in ((1, STARTUP_TAINTS), (2, STARTUP_TAINTS[:1]), (3, ())):
        mine = [{"key": k, "effect": "NoSchedule"} for k in (*keys, "example.com/theirs")]
        await world.kube.patch(f"{NODES}/n-1", {"spec": {"taints": mine}})
        seen = await world.told("m-1", before + 1)
        assert seen[-1].startup_taints == sorted(keys)
    ready = [{"key": k, "effect": "NoSchedule"} for k in (INSTANCE_NOT_READY_TAINT, "example.com/other")]
    await world.kube.patch(f"{NODES}/n-1", {"spec": {"taints": ready}})
    await world.only_this_change("m-1", 4)


async def test_a_deleted_node_is_told_once(world: World) -> None:
    await world.joined()
    await world.delete("n-1")
    seen = await world.told("m-1", 2)
    assert (seen[-1].exists, seen[-1].name) == (False, "n-1")
    await world.node("n-1", "i-1")  # it registers again
    seen = await eventually(lambda: world.facts("m-1"), lambda seen: seen[-1].ready)
    assert [f.exists for f in seen[:3]] == [True, False, True]
    assert seen[-1].uid != seen[0].uid
    await world.only_this_change("m-1", len(seen))


async def test_a_node_that_goes_while_its_owner_is_asked_for(world: World) -> None:
    """The answer comes too late: nobody is told of a node that is no longer there."""
    await world.machine("m-1")
    await world.node("n-1", "i-1")
    await eventually(lambda: _asked(world, [provider_key(provider_id("i-1"))]))
    world.spy.gate.clear()
    count = len(world.spy.asked)
    await world.announce("m-1", provider_id("i-1"))
    await eventually(lambda: _asked_since(world, count), what="an answer that is held back")
    await world.delete("n-1")
    gone = int((await world.kube.get(NODES))["metadata"]["resourceVersion"])
    await eventually(world.beat, lambda beat: int(beat["message"].rpartition(" ")[2]) >= gone, "the deletion seen")
    world.spy.gate.set()
    await world.node("n-1", "i-1")
    seen = await eventually(lambda: world.facts("m-1"), lambda seen: seen and seen[-1].ready)
    uid = (await world.kube.get(f"{NODES}/n-1"))["metadata"]["uid"]
    assert {f.uid for f in seen} == {uid}


async def _asked_since(world: World, count: int) -> int:
    return len(world.spy.asked) - count


async def test_a_machine_that_has_ended_is_no_error(world: World) -> None:
    await world.joined()
    await world.joined("m-2", "n-2", "i-2")
    ended = world.client.get_workflow_handle(f"machine/{world.name}/m-1")
    await ended.signal("end")
    await ended.result()
    await world.ready("n-1", False, "KubeletNotReady", "nobody hears this")
    await world.only_this_change("m-2", 1, "n-2")
    assert (await world.attempt()).attempt == 1


# -- going on ----------------------------------------------------------------------------------------------------------


async def test_a_failed_attempt_goes_on_where_it_was(world: World) -> None:
    """Its heartbeat knows what one attempt told; the next attempt tells what failed."""
    await world.joined()
    await world.joined("m-2", "n-2", "i-2")
    await eventually(world.beat, lambda beat: len(beat.get("changed", ())) == 2)
    world.spy.broken.add("observe")
    await world.only_this_change("m-1", 1)
    attempt = await world.attempt()
    assert attempt.attempt == 2
    assert "the test breaks this signal" in attempt.last_failure.message
    seen = await world.facts("m-1")
    assert seen[1].epoch > seen[0].epoch  # the newer attempt's word counts, whatever its sequence number
    await world.only_this_change("m-1", 2)
    assert len(await world.facts("m-2")) == 1


def _serve(settings_file: str, address: str) -> None:
    os.environ["TEMPORAL_ADDRESS"] = address

    async def run() -> None:
        settings = load_settings(Path(settings_file))
        async with worker.running(await connect(settings), settings):
            await asyncio.Event().wait()

    asyncio.run(run())


@pytest.mark.system
async def test_a_killed_worker_tells_nothing_twice(temporal: WorkflowEnvironment) -> None:
    async with new_world(temporal.client) as world:
        await world.watch()
        address = temporal.client.service_client.config.target_host
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(str(world.file), address), daemon=True
        )
        process.start()
        try:
            await world.joined()
            await world.joined("m-2", "n-2", "i-2")
            await world.joined("m-3", "n-3", "i-3")
            await eventually(world.beat, lambda beat: len(beat.get("changed", ())) == 3)
        finally:
            process.kill()
            await asyncio.to_thread(process.join)
        await world.ready("n-2", False, "KubeletNotReady", "while nobody looked")
        await world.delete("n-3")
        async with world.worker():
            assert (await world.told("m-2", 2))[-1].reason == "KubeletNotReady: while nobody looked"
            assert not (await world.told("m-3", 2))[-1].exists
            await world.only_this_change("m-1", 1)


async def test_a_name_given_to_another_vm_while_nobody_looked(temporal: WorkflowEnvironment) -> None:
    """A new VM got the dead one's address, and with it the node's name: the dead one's machine hears of it."""
    async with new_world(temporal.client) as world:
        await world.watch()
        async with world.worker():
            await world.joined()
        await world.delete("n-1")
        await world.machine("m-2")
        await world.announce("m-2", provider_id("i-2"))
        await world.node("n-1", "i-2")
        async with world.worker():
            assert (await world.told("m-2", 1))[-1].exists
            assert not (await world.told("m-1", 2))[-1].exists


async def test_a_new_run_tells_nothing_twice(world: World) -> None:
    """Heartbeats carry what changed since the start; the argument has the rest."""
    await world.joined()
    await world.joined("m-2", "n-2", "i-2")
    first = (await world.cluster.describe()).run_id
    await world.cluster.execute_update(ClusterWorkflow.renew_by_update, Intent(id="renew"))
    await eventually(lambda: _run(world), lambda now: now != first, "a new run")
    await world.only_this_change("m-1", 1)
    beat = await eventually(world.beat, lambda beat: beat["changed"])
    assert set(beat["changed"]) == {"n-1"}
    assert len(await world.facts("m-2")) == 1
    assert set((await world.state()).cursor.marks) == {"n-1", "n-2"}


async def test_a_watch_that_was_lost_with_all_that_it_knew(temporal: WorkflowEnvironment) -> None:
    """The cluster's workflow was ended from outside: machines that have a Node are told of it once more, even that it
    is gone."""
    async with new_world(temporal.client) as world:
        for machine, node in (("m-1", "n-1"), ("m-2", "n-2")):
            vm = SearchAttributePair(attributes.PROVIDER_ID, provider_id(f"i-{machine}"))
            await world.machine(machine, None, vm, SearchAttributePair(attributes.NODE, node))
        await world.node("n-2", "i-m-2")
        query = f"HostlerCluster = '{world.name}' AND HostlerNode IS NOT NULL"

        async def listed() -> int:
            return (await world.client.count_workflows(query)).count

        await eventually(listed, lambda n: n == 2, "both in the list")
        await world.watch()
        async with world.worker():
            (gone,) = await world.told("m-1", 1)
            assert (gone.exists, gone.name, gone.provider_id) == (False, "n-1", provider_key(provider_id("i-m-1")))
            (there,) = await world.told("m-2", 1)
            assert (there.exists, there.ready) == (True, True)
            await world.only_this_change("m-2", 1, "n-2")
            assert len(await world.facts("m-1")) == 1


async def _run(world: World) -> str | None:
    return (await world.cluster.describe()).run_id


# -- trouble with the API server ---------------------------------------------------------------------------------------


async def test_a_cut_in_the_middle_of_an_event(temporal: WorkflowEnvironment) -> None:
    async with new_world(temporal.client) as world:
        cut = world.fault("watch nodes", drop=True)
        async with world.worker():
            await world.watch()
            await world.joined()
            await world.only_this_change("m-1", len(await world.facts("m-1")))
        assert cut.hits == 1
        assert world.calls("watch nodes")[0].dropped
        assert len(world.calls("list nodes")) == 1  # it goes on where it was
        assert (await _api(world)).reachable
        assert [h.reason for h in (await world.state()).journal] == []


async def test_too_old_to_go_on(temporal: WorkflowEnvironment) -> None:
    """A history of two events, a watch that breaks and comes back late: 410, as after a compaction."""
    async with new_world(temporal.client, history=2) as world, world.worker():
        cut = world.fault("watch nodes", drop=True)
        late = world.fault("watch nodes", delay=1.0)
        await world.watch()
        await world.machine("m-1")
        await world.announce("m-1", provider_id("i-1"))
        await world.struck(cut)
        await world.node("n-1", "i-1")
        await world.struck(late)
        for n in range(5):
            await world.patch("n-1", {"metadata": {"annotations": {"somebody": str(n)}}})
        await world.told("m-1", 1)
        assert await _listed(world) == 2
        assert len(world.calls("watch nodes")) == 2  # one was cut, one refused; the third is open
        await world.only_this_change("m-1", 1)
        assert [h.reason for h in (await world.state()).journal] == []


async def _listed(world: World) -> int:
    return len(world.calls("list nodes"))


async def test_a_closed_port_and_back(world: World) -> None:
    await world.joined()
    began = datetime.now(UTC)
    world.door.shut()
    lost = await eventually(lambda: _api(world), lambda api: not api.reachable, "unreachable")
    assert "cannot be reached" in lost.message
    assert began - timedelta(seconds=1) < lost.time < datetime.now(UTC)
    details = (await world.cluster.describe()).raw_description
    await world.door.open()
    await _reachable_again(world)
    await world.only_this_change("m-1", 1)
    assert details.workflow_execution_info.status == 1  # running: trouble is told, it ends nothing


async def test_a_server_that_answers_503_and_recovers(temporal: WorkflowEnvironment) -> None:
    """What happens meanwhile is told afterwards, once."""
    async with new_world(temporal.client) as world, world.worker():
        cut = world.fault("watch nodes", drop=True)
        await world.watch()
        await world.machine("m-1")
        await world.announce("m-1", provider_id("i-1"))
        await world.struck(cut)
        for operation in ("list nodes", "watch nodes"):
            world.fault(operation, code="ServiceUnavailable", message="etcd has no leader", times=None)
        await world.node("n-1", "i-1")
        lost = await eventually(lambda: _api(world), lambda api: not api.reachable, "unreachable")
        assert lost.message == "etcd has no leader"
        assert await world.facts("m-1") == []
        world.frame.clear_faults()
        await _reachable_again(world)
        await world.told("m-1", 1)
        await world.only_this_change("m-1", 1)


async def _api(world: World) -> Reachability:
    api = (await eventually(world.state, lambda state: state.api)).api
    assert api is not None
    return api


async def _reachable_again(world: World) -> None:
    await eventually(lambda: _api(world), lambda api: api.reachable, "reachable again")
    lost, found = (await world.state()).journal
    assert (lost.reason, found.reason) == ("APIUnreachable", "APIReachable")
    assert re.match(r"the API server answers again, after [0-9]+s", found.message)


# -- size --------------------------------------------------------------------------------------------------------------


def _table(nodes: int) -> dict[str, str]:
    """Node to mark, with names as long and digests as random as in production."""
    chance = random.Random(7)
    letters = "bcdfghjklmnpqrstvwxz2456789"

    def row(n: int) -> tuple[str, str]:
        address = "-".join(str(chance.randrange(256)) for _ in range(3))
        machine = f"shoot--team--prod-worker-pool-a-z{n % 3}-7d9f4-{''.join(chance.choices(letters, k=5))}"
        mark = base64.b64encode(chance.randbytes(8)).decode()
        return f"ip-10-{address}-{n}.eu-central-1.compute.internal", f"{mark} {machine}"

    return dict(map(row, range(nodes)))


def test_the_state_of_twenty_thousand_machines_is_small() -> None:
    """With long names, a full journal, everything told, every VM stopped, and many pools and classes."""
    now, table = datetime.now(UTC), _table(20_000)
    chance = random.Random(8)
    vms = {f"aws:///eu-central-1/i-{chance.getrandbits(68):017x}": "stopped" for _ in range(20_000)}
    account = Account(provider="AWS", region="eu-central-1", secret_ref=SecretRef(name="cloud"))
    state = ClusterState(
        name="demo",
        cursor=Cursor.at("123456789", table),
        accounts={account.key: account},
        classes={f"shoot--team--prod-worker-pool-a-z1-{n:05}": [account.key] for n in range(500)},
        vms={account.key: InstancesOutput(told=vms)},
        pools={f"shoot--team--prod-worker-pool-{n:05}": now for n in range(500)},
        journal=[Happening(time=now, reason="WatchFailed", message="m" * 200)] * JOURNAL_LENGTH,
    )
    wire = state.model_dump_json(by_alias=True)
    assert len(wire) < SIZE_LIMIT
    back = ClusterState.model_validate_json(wire)
    assert back.cursor.marks == table
    assert back.vms[account.key].told == vms
    print(f" {len(wire) / (1 << 20):.2f} MiB", end="")


def test_the_heartbeat_of_twenty_thousand_nodes_is_small() -> None:
    """It covers a first list, which tells everybody, and nodes that change over and over; the next attempt knows it
    all."""
    table, cursor = _table(20_000), Cursor.at("1", {"old": "digest m-old", "gone": "digest m-gone"})
    position = Position(cursor, {})
    position.tell("gone", None)
    for node, mark in table.items():
        position.tell(node, mark)
    for turn in range(3):
        for node in list(table)[:5000]:
            position.tell(node, f"{turn} m")
    details = json.loads(json.dumps(position.details()))
    assert len(json.dumps(details)) < SIZE_LIMIT
    resumed = Position(cursor, details)
    assert resumed.told == position.told
    assert resumed.told.keys() == table.keys() | {"old"}
    resumed.tell("old", None)
    assert Position(cursor, resumed.details()).told.keys() == table.keys()


def test_a_cursor_and_a_heartbeat_of_an_older_worker_are_understood() -> None:
    cursor = Cursor.model_validate({"resourceVersion": "7", "told": {"n-1": "digest m-1", "n-2": "digest m-2"}})
    position = Position(cursor, {"message": "at resourceVersion 8", "changed": {"n-2": None, "n-3": "digest m-3"}})
    assert position.told == {"n-1": "digest m-1", "n-3": "digest m-3"}
    assert position.cursor().marks == position.told


async def test_a_bookmark_and_the_end_of_a_watch_are_no_event(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookmark has a version and no name. The server ends a watch in its time; it goes on where it was."""
    monkeypatch.setattr(follow, "SERVER_TIMEOUT", 3)  # a bookmark after one second, the end after three
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        await world.joined()
        opened = len(world.calls("watch nodes"))
        await eventually(lambda: _watched(world), lambda n: n >= opened + 2, "two watches that ended")
        assert (await world.attempt()).attempt == 1
        assert await _listed(world) == 1
        await world.only_this_change("m-1", 1)


async def _watched(world: World) -> int:
    return len(world.calls("watch nodes"))
