"""A VM with several Nodes, and a Node that nobody can attribute: every pod that would go with the VM is evicted first
(I12), and no pods are evicted for a name alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from apiserver.simulated import NODES, Obj
from machine.drains import NODE, VM, Drain, new_drain
from temporalio.testing import WorkflowEnvironment

from resources.calls.drain import DrainOutput
from resources.names import CORDON_ANNOTATION, MACHINE_NAME_LABEL

TWIN = "twin"
ANOTHER_OBJECT = "another"
LABELS = {MACHINE_NAME_LABEL: "m-1"}


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    """A drain; the watch has labelled both Nodes."""
    async with new_drain(temporal.client, tmp_path) as drain:
        await drain.kube.patch(f"{NODES}/{NODE}", {"metadata": {"labels": LABELS}})
        await drain.kube.create(NODES, {"metadata": {"name": TWIN, "labels": LABELS}, "spec": {"providerID": VM}})
        yield drain


async def node(drain: Drain, name: str) -> Obj:
    found: Obj = await drain.kube.get(f"{NODES}/{name}")
    return found


@pytest.mark.parametrize("named", [NODE, TWIN])
async def test_every_node_of_the_vm_is_drained(drain: Drain, named: str) -> None:
    """They are, whichever of them the machine takes for its own."""
    await drain.pod("real")
    await drain.pod("other", node=TWIN)
    await drain.pod("elsewhere", node="n-2")
    assert await drain.waits(node_name=named) == "0 of 2 pods gone, force at 14:05 UTC"
    assert sorted(drain.evicted()) == ["other", "real"]
    for name in (NODE, TWIN):
        found = await node(drain, name)
        assert (found["spec"]["unschedulable"], found["metadata"]["annotations"]) == (True, {CORDON_ANNOTATION: "m-1"})
    for name in ("real", "other"):
        await drain.stopped(name)
    killed = len(drain.calls("delete pods"))
    assert await drain.once(node_name=named) == DrainOutput(pods=2)
    assert len(drain.calls("list nodes")) == 1  # twins are looked for once
    assert len(drain.calls("delete pods")) == killed
    assert await drain.names() == {"elsewhere"}


async def test_a_dead_twin_shortens_nothing(drain: Drain) -> None:
    """One living kubelet can confirm that pods have stopped: they keep their grace periods."""
    changed = (drain.now - timedelta(minutes=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ill = {"type": "Ready", "status": "Unknown", "lastTransitionTime": changed}
    await drain.kube.patch(f"{NODES}/{TWIN}/status", {"status": {"conditions": [ill]}})
    await drain.pod("real", grace=3600)
    await drain.waits(node_name=TWIN)
    await drain.node("Unknown", timedelta(minutes=6))
    await drain.pod("late", grace=3600)
    await drain.waits(node_name=TWIN)
    graces = [c.request["body"]["deleteOptions"].get("gracePeriodSeconds") for c in drain.calls("create pods/eviction")]
    assert (drain.evicted(), graces) == (["real", "late"], [None, 1])


async def test_force_strikes_all_of_them(drain: Drain) -> None:
    await drain.pod("real")
    await drain.pod("other", node=TWIN)
    await drain.waits(force=True)
    assert sorted(drain.evicted()) == ["other", "real"]
    assert await drain.names() == set()


async def test_volumes_of_all_of_them_are_waited_for_and_freed(drain: Drain) -> None:
    for name, where in (("a", NODE), ("b", TWIN)):
        await drain.claim(name)
        await drain.attach(name, node=where)
    assert "waiting for volume pv-a and 1 more to detach" in await drain.waits()
    await drain.forget()
    left = {n["metadata"]["name"] for n in (await drain.kube.get(NODES))["items"]}
    assert (left, len(drain.calls("delete volumeattachments"))) == (set(), 2)


async def test_a_twin_is_remembered_by_the_next_pass_and_looked_for_after_a_crash(drain: Drain) -> None:
    await drain.pod("other", node=TWIN)
    await drain.waits()
    await drain.kube.patch(f"{NODES}/{TWIN}", {"metadata": {"labels": {MACHINE_NAME_LABEL: None}}})
    await drain.pod("more", node=TWIN)
    await drain.waits()
    assert drain.evicted() == ["other", "more"]
    await drain.kube.patch(f"{NODES}/{TWIN}", {"metadata": {"labels": LABELS}})
    drain.heartbeat = ()
    await drain.pod("yet-more", node=TWIN)
    await drain.waits()
    assert drain.evicted() == ["other", "more", "yet-more"]


async def test_a_copied_label_is_no_twin(drain: Drain) -> None:
    other = {"metadata": {"name": "theirs", "labels": LABELS}, "spec": {"providerID": "aws:///eu-west-1/i-2"}}
    await drain.kube.create(NODES, other)
    await drain.pod("theirs-1", node="theirs")
    await drain.pod("real")
    await drain.waits()
    assert drain.evicted() == ["real"]
    await drain.forget()
    assert {n["metadata"]["name"] for n in (await drain.kube.get(NODES))["items"]} == {"theirs"}


# -- nobody knows whose ------------------------------------------------------------------------------------------------


async def registered_anew(drain: Drain) -> None:
    """A Node registered again under the name of one that has joined: by its own kubelet, or by one at a reused address.
    Its providerID is still to come."""
    for name in (NODE, TWIN):
        await drain.kube.delete(f"{NODES}/{name}")
    await drain.kube.create(NODES, {"metadata": {"name": NODE}})
    await drain.pod("whose")


async def test_a_node_without_provider_id_is_waited_for_and_not_drained(drain: Drain) -> None:
    await registered_anew(drain)
    words = await drain.waits(node_uid=ANOTHER_OBJECT)
    assert words.startswith("node n-1 has no providerID and is not the object that joined, so it is not known whether")
    assert words.endswith("(or kubelet --provider-id), not for longer than 14:05 UTC")
    assert (drain.evicted(), "unschedulable" in (await node(drain, NODE)).get("spec", {})) == ([], False)
    await drain.kube.patch(f"{NODES}/{NODE}", {"spec": {"providerID": VM}})
    assert await drain.waits(node_uid=ANOTHER_OBJECT) == "0 of 1 pods gone, force at 14:05 UTC"
    assert drain.evicted() == ["whose"]


async def test_the_object_that_joined_is_drained_by_its_uid(drain: Drain) -> None:
    await registered_anew(drain)
    uid = (await node(drain, NODE))["metadata"]["uid"]
    assert await drain.waits(node_uid=uid) == "0 of 1 pods gone, force at 14:05 UTC"
    assert drain.evicted() == ["whose"]


@pytest.mark.parametrize("how", ["force", "dead"])
async def test_it_ends_with_the_deadline_or_when_the_vm_does_not_run(drain: Drain, how: str) -> None:
    """Its name is reported as left, its pods are left alone: the address of a dead VM may have another one's Node."""
    await registered_anew(drain)
    output = await drain.once(node_uid=ANOTHER_OBJECT, **{how: True})
    assert output == DrainOutput(left=["node n-1: the VM that it belongs to is not known"])
    assert await drain.names() == {"whose"}
    assert (drain.evicted(), "unschedulable" in (await node(drain, NODE)).get("spec", {})) == ([], False)
