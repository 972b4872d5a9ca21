"""Flows of one machine: birth, drain and preservation."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

from lifekit import Stack, eventually, result_of
from machine.lives import knobs

from faults.flow import Flow, flow, mark, new_name, running
from faults.invariants import (
    Witness,
    check_drained_once,
    check_i1,
    check_i5,
    check_i6,
    check_i7,
    check_i8,
    check_i9,
    check_i10,
    check_i11,
    check_marks,
    check_ready,
    fired,
)
from faults.strike import arm
from resources.machine.preservation import ExtendIntent, PreserveIntent, PreserveValue
from resources.machine.state import MachineState, Phase
from resources.names import PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, machine_id
from simulator.controllers.storage import DETACH_ANNOTATION
from simulator.frame import FaultRule

CREATION_TIMEOUT = timedelta(seconds=20)

BIRTHS: dict[str, Flow] = {}


@flow(BIRTHS)
async def whole_life(stack: Stack) -> None:
    """Create, post-start, join, ready; a user's marks on node and VM; drain, delete, forget."""
    name = new_name()
    arm(stack)
    handle = await stack.create(name)
    seen = Witness([await stack.born(name)])
    check_i1(stack, seen)
    check_i5(stack, seen)
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    check_ready(stack, seen)
    mark(stack, seen)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i8(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, handle.id)


@flow(BIRTHS)
async def delete_during_create(stack: Stack) -> None:
    """The deletion comes while the VM's creation is slow (field case P05)."""
    name = new_name()
    made = stack.provider.simulation
    slow = FaultRule(service=made.service, operation=made.create, delay=1.0, times=1, match=name)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(slow))
    arm(stack, "MachineWorkflow")  # the cluster's watches may begin when the machine is gone already
    handle = await stack.create(name)
    seen = Witness([await eventually(lambda: stack.state(name), lambda s: bool(s.uid and s.attempt))])

    async def called() -> bool:
        """Finished calls, including one that came to an error of its own."""
        return slow.hits > 0 or (await stack.state(name)).create_failures > 0

    await eventually(called, what="the create call")
    result = await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    assert result.uid == seen.last.uid
    await check_i11(stack, handle.id)


@flow(BIRTHS)
async def never_joins(stack: Stack) -> None:
    """The VM runs, no node comes: Failed exactly at the creation deadline, and deletable."""
    name = new_name()
    knobs(stack, name, never_joins=True)
    arm(stack)
    handle = await stack.create(name, creation_timeout=CREATION_TIMEOUT)
    failed = await fired(stack, name)
    seen = Witness([failed])
    assert failed.created is not None
    check_i7(failed.journal, "CreationTimeout", failed.created + CREATION_TIMEOUT)
    check_i1(stack, seen)
    check_i5(stack, seen)
    await stack.delete(name)
    check_i6(stack, seen)
    await check_i11(stack, handle.id)


# -- a flow of the fault matrix that is about the drain ---------------------------------------------------------------

DRAINS: dict[str, Flow] = {}


@flow(DRAINS, "drain_node")
async def volumes_moved(stack: Stack) -> None:
    """Whatever happens to a pass, each pod is evicted once, and the second when the first one's volume is detached."""
    name = new_name()
    seen = await running(stack, name, drain_timeout=timedelta(hours=1))
    names = [f"{letter}-{name}" for letter in "abc"]
    node = str(seen.last.status.node_name)
    file = stack.settings_file.with_name("databases.json")
    items = [item for one in names for item in database(one, node)]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    await stack.kubectl_beside("create", "-f", str(file))
    await eventually(lambda: attached(stack, node), lambda found: found == names, "three volumes attached")
    arm(stack)
    result = await stack.delete(name)
    calls = stack.calls("*", "kubernetes")
    evicted = [c for c in calls if c.operation == "create pods/eviction" and not c.error and name in c.request["path"]]
    assert [c.request["path"].split("/")[6] for c in evicted] == names, "drain: each once, in order"
    detached = {c.request["path"].rsplit("/")[-1]: c.n for c in calls if c.operation == "delete volumeattachments"}
    for one, following in zip(names, evicted[1:], strict=False):
        assert detached[attachment(stack, one)] < following.n, f"drain: {following.request['path']} went too early"
    deleted = [c for c in calls if c.operation == "delete pods" and name in c.request["path"]]
    assert all(c.caller.startswith("system:") for c in deleted), "drain: deleted, though not by force"
    assert "not waited for" not in next(h.message for h in result.journal if h.reason == "Drained")
    check_drained_once(result.journal)
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


def database(name: str, node: str) -> list[dict[str, Any]]:
    """A pod on the node with a volume of its own, which takes a moment to detach."""
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    disk = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {DETACH_ANNOTATION: "1"}},
            "spec": {**modes, **disk, "claimRef": {"namespace": "default", "name": name}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {**modes, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**spec, "terminationGracePeriodSeconds": 1},
        },
    ]


async def attached(stack: Stack, node: str) -> list[str]:
    listed = await stack.kubectl_beside("get", "volumeattachments", "-o", "json")
    return sorted(
        a["spec"]["source"]["persistentVolumeName"]
        for a in json.loads(listed)["items"]
        if a["spec"]["nodeName"] == node and a["status"]["attached"]
    )


def attachment(stack: Stack, volume: str) -> str:
    """The attachment's name."""
    bodies = [c.request["body"] for c in stack.calls("create volumeattachments", "kubernetes")]
    return str(next(b["metadata"]["name"] for b in bodies if b["spec"]["source"]["persistentVolumeName"] == volume))


# -- flows of the fault matrix that are about preservation ------------------------------------------------------------

TIMEOUT = timedelta(hours=1)
"""What is kept stays so until the flow has seen it: a window of seconds passes unseen on a busy machine."""
SOON = timedelta(seconds=3)
HEALTH_TIMEOUT = timedelta(seconds=4)

PRESERVED: dict[str, Flow] = {}


@flow(PRESERVED, "preserve_node", "preserve_node 2")
async def preserved_by_annotation(stack: Stack) -> None:
    """Running and annotated with `now`: protected from cluster-autoscaler until its end, and then as before. Its end is
    moved, so that it comes when all is seen."""
    name = new_name()
    seen = await running(stack, name, machine_preserve_timeout=TIMEOUT)
    mark(stack, seen)
    arm(stack)
    node = str(seen.last.status.node_name)
    await stack.kubectl_beside("annotate", "node", node, f"{PRESERVE_ANNOTATION}=now")
    kept = await preserved(stack, name)
    assert kept.status.shown_phase == "Running:Preserved"
    assert (kept.status.preserve.since, kept.status.preserve.expiry_time) == from_now(kept)
    await eventually(lambda: on_node(stack, node), lambda a: a.get(SCALE_DOWN_DISABLED) == "true", "it is protected")
    expiry = await ends_soon(stack, name)
    ended = await eventually(lambda: stack.state(name), lambda s: s.status.preserve.expiry_time is None, "the end")
    check_i7(ended.journal, "PreserveExpired", expiry)
    assert ended.status.phase is Phase.RUNNING
    await eventually(
        lambda: on_node(stack, node), lambda a: not {SCALE_DOWN_DISABLED, PRESERVE_ANNOTATION} & a.keys(), "all is gone"
    )
    check_marks(stack, seen)
    await stack.delete(name)
    await the_end(stack, seen)


@flow(PRESERVED, "drain_node", "preserve_node", "preserve_node 2", "drain_node 2")
async def preserved_when_it_failed(stack: Stack) -> None:
    """Preservation is asked for beforehand; the machine is drained once when it fails, kept until its end, which is
    moved when all is seen, then deleted on its own."""
    name = new_name()
    seen = await running(
        stack, name, machine_preserve_timeout=TIMEOUT, health_timeout=HEALTH_TIMEOUT, drain_timeout=timedelta(seconds=2)
    )
    mark(stack, seen)
    arm(stack)
    asked = PreserveIntent(id=f"keep-{name}", requested_by="test", value=PreserveValue.WHEN_FAILED)
    await stack.started[name].signal("preserve", asked)
    knobs(stack, name, dies_after=0.0)
    kept = await preserved(stack, name)
    seen.states.append(kept)
    assert kept.status.shown_phase == "Failed:Preserved"
    check_marks(stack, seen)
    assert (kept.status.preserve.since, kept.status.preserve.expiry_time) == from_now(kept)
    expiry = await ends_soon(stack, name)
    result = await result_of(stack.started[name])
    check_i9(result.journal, expiry)
    check_i7(result.journal, "PreserveExpired", expiry)
    check_drained_once(result.journal)
    await the_end(stack, seen)


@flow(PRESERVED, "preserve_node", "preserve_node 2")
async def preserved_and_well_again(stack: Stack) -> None:
    """Failed:Preserved, well again: Running:Preserved with the same expiry, and the cordon of the drain is lifted."""
    name = new_name()
    seen = await running(stack, name, machine_preserve_timeout=TIMEOUT, health_timeout=HEALTH_TIMEOUT)
    arm(stack)
    asked = PreserveIntent(id=f"keep-{name}", requested_by="test", value=PreserveValue.WHEN_FAILED)
    await stack.started[name].signal("preserve", asked)
    knobs(stack, name, unready=True)
    failed = await preserved(stack, name)
    assert failed.status.shown_phase == "Failed:Preserved"
    knobs(stack, name, unready=False)
    well = await stack.phase(Phase.RUNNING, name)
    assert well.status.preserve.expiry_time == failed.status.preserve.expiry_time
    node = str(well.status.node_name)
    await eventually(lambda: spec_of(stack, node), lambda s: not s.get("unschedulable"), "our cordon is lifted")
    seen.states.append(well)
    await stack.delete(name)
    await the_end(stack, seen)


async def preserved(stack: Stack, name: str) -> MachineState:
    return await eventually(lambda: stack.state(name), lambda s: s.status.preserve.expiry_time, f"{name} preserved")


def from_now(kept: MachineState) -> tuple[datetime, datetime]:
    """When its preservation began, and when it should end."""
    (began,) = (h.time for h in kept.journal if h.reason == "Preserved")
    return began, began + TIMEOUT


async def ends_soon(stack: Stack, name: str) -> datetime:
    """Moves the end of its preservation; returns when it is."""
    intent = ExtendIntent(id=str(uuid.uuid4()), requested_by="test", lasts=SOON)
    await stack.started[name].execute_update("extend", intent, id=intent.id)
    journal = (await stack.state(name)).journal
    return next(h.time for h in journal if h.reason == "PreservationMoved") + SOON


async def the_end(stack: Stack, seen: Witness) -> None:
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, seen.last.name))


async def on_node(stack: Stack, node: str) -> dict[str, str]:
    return dict((await _node(stack, node))["metadata"].get("annotations") or {})


async def spec_of(stack: Stack, node: str) -> dict[str, Any]:
    return dict((await _node(stack, node)).get("spec") or {})


async def _node(stack: Stack, node: str) -> Any:
    return json.loads(await stack.kubectl_beside("get", "node", node, "-o", "json"))
