"""Custom resources over the Kubernetes API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from apiserver.simulated import MERGE, STRATEGIC, KubeTarget, Obj, definition, unique
from kubernetes.aio.client import ApiClient, CustomObjectsApi

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Machines:
    def __init__(self, kube: KubeTarget, group: str) -> None:
        self.kube = kube
        self.group = group
        self.path = f"/apis/{group}/v1/namespaces/default/machines"

    def body(self, name: str, **spec: Any) -> Obj:
        return {"apiVersion": f"{self.group}/v1", "kind": "Machine", "metadata": {"name": name}, "spec": spec}

    async def make(self, **spec: Any) -> str:
        name = unique("m")
        await self.kube.create(self.path, self.body(name, **spec))
        return name


async def established(kube: KubeTarget, name: str) -> None:
    """A watch, not a poll: the condition may be there at once or in a moment."""
    query = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": "20"}
    async for event in kube.watch(DEFINITIONS, **query):
        conditions = event["object"].get("status", {}).get("conditions") or ()
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return
    raise AssertionError(f"{name} was not established")


@pytest.fixture(scope="module")
async def machines(kube: KubeTarget) -> AsyncIterator[Machines]:
    group = f"{unique('t')}.example.com"
    await kube.create(DEFINITIONS, definition(group))
    await established(kube, f"machines.{group}")
    yield Machines(kube, group)
    await kube.delete(f"{DEFINITIONS}/machines.{group}")


async def test_a_definition_is_served_and_discovered(machines: Machines, kube_client: ApiClient) -> None:
    name, api = unique("m"), CustomObjectsApi(kube_client)
    body = machines.body(name, replicas=1)
    made: Any = await api.create_namespaced_custom_object(machines.group, "v1", "default", "machines", body)
    assert made["metadata"]["uid"]
    listed: Any = await api.list_namespaced_custom_object(machines.group, "v1", "default", "machines")
    assert listed["kind"] == "MachineList"
    item = next(m for m in listed["items"] if m["metadata"]["name"] == name)
    assert item["kind"] == "Machine"
    resources = (await machines.kube.get(f"/apis/{machines.group}/v1"))["resources"]
    assert {r["name"] for r in resources} == {"machines", "machines/status", "machines/scale"}


async def test_objects_are_defaulted_and_pruned(machines: Machines) -> None:
    body = machines.body(unique("m"), replicas=1, junk=1, free={"kept": True})
    body["status"] = {"phase": "not by create"}
    answer = await machines.kube.call("POST", machines.path, body)
    assert answer.ok()["spec"] == {"replicas": 1, "class": "standard", "free": {"kept": True}}
    assert "status" not in answer.body
    assert 'unknown field "spec.junk"' in answer.headers["Warning"].replace("\\", "")
    body["metadata"]["name"] = unique("m")
    strict = await machines.kube.call("POST", machines.path, body, fieldValidation="Strict")
    assert strict.reason == "400 BadRequest"
    assert 'unknown field "spec.junk"' in strict.message


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"replicas": -1}, "spec.replicas in body should be greater than or equal to 0"),
        ({"replicas": "one"}, "spec.replicas in body must be of type integer"),
        ({}, "spec.replicas: Required value"),
        ({"replicas": 1, "mode": "c"}, 'spec.mode: Unsupported value: "c": supported values: "a", "b"'),
        ({"replicas": 1, "budget": True}, "spec.budget"),
    ],
)
async def test_objects_are_validated(machines: Machines, spec: Obj, said: str) -> None:
    answer = await machines.kube.call("POST", machines.path, machines.body(unique("m"), **spec))
    assert answer.reason == "422 Invalid"
    assert said in answer.message
    assert (await machines.kube.call("POST", machines.path, machines.body(unique("m"), replicas=0))).status == 201


async def test_generation_counts_changes_of_the_spec_only(machines: Machines) -> None:
    path = f"{machines.path}/{await machines.make(replicas=1)}"
    generations = []
    for patch in ({"spec": {"replicas": 2}}, {"metadata": {"labels": {"a": "b"}}}, {"spec": {"replicas": 2}}):
        generations.append((await machines.kube.patch(path, patch))["metadata"]["generation"])
    generations.append(
        (await machines.kube.patch(f"{path}/status", {"status": {"phase": "x"}}))["metadata"]["generation"]
    )
    assert generations == [2, 2, 2, 2]


async def test_status_and_spec_are_written_apart(machines: Machines) -> None:
    path = f"{machines.path}/{await machines.make(replicas=1)}"
    main = await machines.kube.patch(path, {"status": {"phase": "main"}})
    assert "status" not in main
    patch = {"status": {"phase": "status"}, "spec": {"replicas": 9}, "metadata": {"labels": {"a": "b"}}}
    status = await machines.kube.patch(f"{path}/status", patch)
    assert status["status"] == {"phase": "status"}
    assert status["spec"]["replicas"] == 1
    assert "labels" not in status["metadata"]


async def test_a_put_needs_the_version_it_was_read_at(machines: Machines) -> None:
    path = f"{machines.path}/{await machines.make(replicas=1)}"
    old = await machines.kube.get(path)
    await machines.kube.patch(path, {"spec": {"replicas": 5}})
    assert (await machines.kube.call("PUT", path, old)).reason == "409 Conflict"
    del old["metadata"]["resourceVersion"]
    assert (await machines.kube.call("PUT", path, old)).reason == "422 Invalid"


async def test_custom_objects_know_no_strategic_merge_patch(machines: Machines) -> None:
    path = f"{machines.path}/{await machines.make(replicas=1)}"
    answer = await machines.kube.call("PATCH", path, {"spec": {"replicas": 2}}, content_type=STRATEGIC)
    assert answer.reason == "415 UnsupportedMediaType"
    assert (await machines.kube.call("PATCH", path, {"spec": {"replicas": 2}}, content_type=MERGE)).status == 200


async def test_the_scale_subresource_reads_and_writes_replicas(machines: Machines) -> None:
    path = f"{machines.path}/{await machines.make(replicas=5)}"
    scale = await machines.kube.get(f"{path}/scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 5)
    scale["spec"]["replicas"] = 7
    assert (await machines.kube.call("PUT", f"{path}/scale", scale)).ok()["spec"]["replicas"] == 7
    assert (await machines.kube.get(path))["spec"]["replicas"] == 7
    scale["spec"]["replicas"] = 8
    assert (await machines.kube.call("PUT", f"{path}/scale", scale)).reason == "409 Conflict"


async def test_custom_objects_are_watched(machines: Machines) -> None:
    name = await machines.make(replicas=1)
    events = await machines.kube.watched(machines.path, fieldSelector=f"metadata.name={name}")
    assert [(e["type"], e["object"]["kind"]) for e in events] == [("ADDED", "Machine")]


async def test_a_watch_from_before_the_servers_memory_is_410(machines: Machines) -> None:
    """A real server remembers what has happened since it began to follow a kind: for a kind defined just now, version 1
    is not among that.

    That etcd was compacted does not matter to it, neither for watches nor for lists: both come from its memory.
    """
    await machines.make(replicas=1)
    (event,) = await machines.kube.watched(machines.path, resourceVersion="1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")
    version = (await machines.kube.get(machines.path))["metadata"]["resourceVersion"]
    name = await machines.make(replicas=1)
    (event,) = await machines.kube.watched(machines.path, resourceVersion=version)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)


async def test_printer_columns_make_the_table(machines: Machines) -> None:
    name = await machines.make(replicas=1)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = (await machines.kube.call("GET", f"{machines.path}/{name}", accept=accept)).ok()
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Class"]
    assert table["rows"][0]["cells"] == [name, "standard"]


async def test_a_definition_named_wrongly_or_without_a_schema_is_refused(kube: KubeTarget) -> None:
    wrong = definition("names.example.com")
    wrong["metadata"]["name"] = "other.names.example.com"
    assert (await kube.call("POST", DEFINITIONS, wrong)).reason == "422 Invalid"
    bare = definition("bare.example.com")
    del bare["spec"]["versions"][0]["schema"]
    assert (await kube.call("POST", DEFINITIONS, bare)).reason == "422 Invalid"
