"""A flow of the fault matrix that is about the drain: pods with volumes, and what a pass must remember for the next."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

from faultkit import arm
from flowkit import Flow, flow, new_name, running
from invariants import check_drained_once, check_i1, check_i6, check_i11
from lifekit import Stack, eventually

from resources.names import machine_id
from simulator.controllers.storage import DETACH_ANNOTATION

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
    await asyncio.to_thread(stack.kubectl, "create", "-f", str(file))
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
    listed = await asyncio.to_thread(stack.kubectl, "get", "volumeattachments", "-o", "json")
    return sorted(
        a["spec"]["source"]["persistentVolumeName"]
        for a in json.loads(listed)["items"]
        if a["spec"]["nodeName"] == node and a["status"]["attached"]
    )


def attachment(stack: Stack, volume: str) -> str:
    """The attachment's name."""
    bodies = [c.request["body"] for c in stack.calls("create volumeattachments", "kubernetes")]
    return str(next(b["metadata"]["name"] for b in bodies if b["spec"]["source"]["persistentVolumeName"] == volume))
