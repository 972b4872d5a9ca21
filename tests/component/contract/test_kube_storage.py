"""Volumes, their claims and attachments, and the priority of pods: what a drain reads to move pods with volumes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from apiserver.simulated import NODES, PODS, KubeTarget, Obj, pod, unique
from lifekit import eventually

VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CSI = "ebs.csi.aws.com"


def volume(name: str, **spec: Any) -> Obj:
    usual = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    disk = {"csi": {"driver": CSI, "volumeHandle": f"vol-{name}"}}
    return {"metadata": {"name": name}, "spec": {**usual, **disk, **spec}}


def claim(name: str, **spec: Any) -> Obj:
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    return {"metadata": {"name": name}, "spec": {**usual, **spec}}


def attachment(name: str, volume: str, node: str) -> Obj:
    spec = {"attacher": CSI, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def made(kube: KubeTarget) -> AsyncIterator[list[str]]:
    """Paths of what a test makes, removed afterwards even if protected."""
    paths: list[str] = []
    yield paths
    for path in paths:
        await kube.call("DELETE", path, {"gracePeriodSeconds": 0})
        if (await kube.call("GET", path)).status == 200:
            await kube.patch(path, {"metadata": {"finalizers": None}})


async def test_a_volume_is_completed_and_protected(kube: KubeTarget, made: list[str]) -> None:
    name = unique("pv")
    seen = await kube.create(VOLUMES, volume(name))
    made.append(f"{VOLUMES}/{name}")
    assert seen["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert seen["status"]["phase"] == "Pending"
    spec = seen["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["volumeMode"]) == ("Retain", "Filesystem")
    other = {"spec": {"csi": {"driver": CSI, "volumeHandle": "vol-other"}}}
    answer = await kube.call("PATCH", f"{VOLUMES}/{name}", other, content_type="application/merge-patch+json")
    assert answer.reason == "422 Invalid"
    assert "is immutable after creation" in answer.message


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"accessModes": []}, "spec.accessModes: Required value"),
        ({"capacity": None}, "spec.capacity: Required value"),
        ({"csi": None}, "must specify a volume type"),
        ({"hostPath": {"path": "/data"}}, "may not specify more than 1 volume type"),
    ],
    ids=["modes", "capacity", "no source", "two sources"],
)
async def test_a_volume_that_is_refused(kube: KubeTarget, spec: Obj, why: str) -> None:
    answer = await kube.call("POST", VOLUMES, volume(unique("pv"), **spec))
    assert answer.reason == "422 Invalid"
    assert why in answer.message


async def test_a_claim_is_bound_once_and_protected(kube: KubeTarget, made: list[str]) -> None:
    name = unique("c")
    path = f"{CLAIMS}/{name}"
    seen = await kube.create(CLAIMS, claim(name))
    made.append(path)
    assert seen["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert (seen["status"]["phase"], seen["spec"]["volumeMode"]) == ("Pending", "Filesystem")
    assert (await kube.patch(path, {"spec": {"volumeName": "pv-1"}}))["spec"]["volumeName"] == "pv-1"
    answer = await kube.call(
        "PATCH", path, {"spec": {"volumeName": "pv-2"}}, content_type="application/merge-patch+json"
    )
    assert answer.reason == "422 Invalid"
    assert "spec is immutable after creation" in answer.message
    assert (await kube.delete(path))["metadata"]["deletionTimestamp"]
    assert (await kube.get(path))["metadata"]["deletionTimestamp"]  # until its protector lets it go


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"accessModes": []}, "at least 1 access mode is required"),
        ({"resources": {}}, "spec.resources[storage]: Required value"),
    ],
    ids=["modes", "size"],
)
async def test_a_claim_that_is_refused(kube: KubeTarget, spec: Obj, why: str) -> None:
    answer = await kube.call("POST", CLAIMS, claim(unique("c"), **spec))
    assert answer.reason == "422 Invalid"
    assert why in answer.message


async def test_an_attachment_says_when_it_is_attached(kube: KubeTarget, made: list[str]) -> None:
    """Its status is written apart, its spec never again, and it needs neither its volume nor its node to exist."""
    name = unique("csi")
    path = f"{ATTACHMENTS}/{name}"
    seen = await kube.create(ATTACHMENTS, attachment(name, "pv-1", "n-1") | {"status": {"attached": True}})
    made.append(path)
    assert seen["status"] == {"attached": False}
    await kube.patch(path, {"status": {"attached": True}})
    assert (await kube.get(path))["status"] == {"attached": False}
    await kube.patch(f"{path}/status", {"status": {"attached": True}})
    assert (await kube.get(path))["status"] == {"attached": True}
    answer = await kube.call("PATCH", path, {"spec": {"nodeName": "n-2"}}, content_type="application/merge-patch+json")
    assert answer.reason == "422 Invalid"
    assert "field is immutable" in answer.message
    listed = (await kube.get(ATTACHMENTS))["items"]
    assert [a["spec"]["nodeName"] for a in listed if a["metadata"]["name"] == name] == ["n-1"]


async def test_an_attachment_is_held_by_its_attacher(kube: KubeTarget, made: list[str]) -> None:
    """A deletion asks; the CSI driver's attacher detaches, and then lets it go."""
    name = unique("csi")
    path = f"{ATTACHMENTS}/{name}"
    body = attachment(name, "pv-1", "n-1")
    body["metadata"]["finalizers"] = ["external-attacher/ebs-csi-aws-com"]
    uid = (await kube.create(ATTACHMENTS, body))["metadata"]["uid"]
    made.append(path)
    other = {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}
    assert (await kube.call("DELETE", path, other)).reason == "409 Conflict"
    assert (await kube.call("DELETE", path, {"preconditions": {"uid": uid}})).ok()["metadata"]["deletionTimestamp"]
    await kube.patch(path, {"metadata": {"finalizers": None}})
    assert (await kube.call("GET", path)).reason == "404 NotFound"


@pytest.mark.parametrize(
    ("missing", "why"),
    [("attacher", "Required value"), ("nodeName", 'Invalid value: ""'), ("source", "Required value")],
    ids=["attacher", "node", "source"],
)
async def test_an_attachment_that_is_refused(kube: KubeTarget, missing: str, why: str) -> None:
    body = attachment(unique("csi"), "pv-1", "n-1")
    body["spec"][missing] = {} if missing == "source" else ""
    answer = await kube.call("POST", ATTACHMENTS, body)
    assert answer.reason == "422 Invalid"
    assert f"spec.{missing}: {why}" in answer.message


async def test_a_nodes_attached_volumes_are_its_status(kube: KubeTarget, made: list[str]) -> None:
    name = unique("n")
    await kube.create(NODES, {"metadata": {"name": name}})
    made.append(f"{NODES}/{name}")
    volumes = [{"name": f"kubernetes.io/csi/{CSI}^vol-1", "devicePath": ""}]
    await kube.patch(f"{NODES}/{name}/status", {"status": {"volumesAttached": volumes}})
    assert (await kube.get(f"{NODES}/{name}"))["status"]["volumesAttached"] == volumes


# -- priority ----------------------------------------------------------------------------------------------------------


async def test_a_pods_priority_is_that_of_its_class(kube: KubeTarget, made: list[str]) -> None:
    name = unique("important")
    await kube.create(PRIORITIES, {"metadata": {"name": name}, "value": 1000})
    made.append(f"{PRIORITIES}/{name}")
    for named, value in ((None, 0), (name, 1000), ("system-node-critical", 2000001000)):
        body = pod(unique("p"), unique("n"))
        body["spec"] |= {"priorityClassName": named} if named else {}
        # A real server's admission learns of a class a moment after it was made.
        answer = await eventually(lambda body=body: kube.call("POST", PODS, body), lambda a: a.status != 403)
        seen = answer.ok()
        made.append(f"{PODS}/{body['metadata']['name']}")
        assert (seen["spec"]["priority"], seen["spec"]["preemptionPolicy"]) == (value, "PreemptLowerPriority")


async def test_a_pods_priority_is_no_number_of_its_own(kube: KubeTarget) -> None:
    for spec, why in (
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec"),
        ({"priorityClassName": "nobody-knows"}, "no PriorityClass with name nobody-knows was found"),
    ):
        body = pod(unique("p"), unique("n"))
        body["spec"] |= spec
        answer = await kube.call("POST", PODS, body)
        assert answer.reason == "403 Forbidden"
        assert why in answer.message


async def test_a_priority_class_never_changes_its_value(kube: KubeTarget, made: list[str]) -> None:
    name = unique("important")
    seen = await kube.create(PRIORITIES, {"metadata": {"name": name}, "value": 1000})
    made.append(f"{PRIORITIES}/{name}")
    assert seen["preemptionPolicy"] == "PreemptLowerPriority"
    more = {"value": 1001}
    answer = await kube.call("PATCH", f"{PRIORITIES}/{name}", more, content_type="application/merge-patch+json")
    assert answer.reason == "422 Invalid"
    for body in (
        {"metadata": {"name": unique("system-mine")}, "value": 1},
        {"metadata": {"name": unique("huge")}, "value": 1_000_000_001},
    ):
        assert (await kube.call("POST", PRIORITIES, body)).reason == "422 Invalid"
