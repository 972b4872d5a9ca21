"""What only the simulated API server has: its faults, journal and state, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from apiserver.simulated import (
    ADMIN_TOKEN,
    DEFINITIONS,
    LEASES,
    MERGE,
    NODES,
    PODS,
    SECRETS,
    TOKEN_SECRET,
    KubeTarget,
    World,
    definition,
    new_world,
    node,
    pod,
    serving,
    unique,
)

from simulator.frame import FaultRule, Frame
from simulator.kube import KubeApi


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made


@pytest.fixture
def kube(world: World) -> KubeTarget:
    return world.kube


# -- faults ------------------------------------------------------------------------------------------------------------


async def test_a_fault_answers_with_its_reason_status_and_headers(world: World) -> None:
    await world.kube.create(NODES, node("n1"))
    for code, status in (("TooManyRequests", 429), ("InternalError", 500), ("Conflict", 409), ("Timeout", 504)):
        headers = {"Retry-After": "7"}
        world.frame.faults.append(
            FaultRule(service="kubernetes", operation="patch nodes", code=code, message="m", headers=headers)
        )
        answer = await world.kube.call("PATCH", f"{NODES}/n1", {}, content_type=MERGE)
        assert answer.reason == f"{status} {code}"
        assert (answer.message, answer.headers["Retry-After"]) == ("m", "7")
        assert answer.body["details"]["retryAfterSeconds"] == 7
        assert world.last("patch nodes").error == code
    assert (await world.kube.call("PATCH", f"{NODES}/n1", {}, content_type=MERGE)).status == 200


async def test_a_fault_strikes_what_matches_path_or_body(world: World) -> None:
    rule = FaultRule(operation="create nodes", match='"name": "n2"', code="ServiceUnavailable", status=529, times=None)
    world.frame.faults.append(rule)
    assert (await world.kube.call("POST", NODES, node("n1"))).status == 201
    assert (await world.kube.call("POST", NODES, node("n2"))).status == 529
    assert (await world.kube.call("GET", f"{NODES}/n2")).reason == "404 NotFound"


async def test_a_delayed_call_is_done_after_its_delay(world: World) -> None:
    world.frame.faults.append(FaultRule(operation="create nodes", delay=0.3))
    slow = asyncio.create_task(world.kube.create(NODES, node("slow")))
    for _ in range(1000):  # the rule is used up when the slow call has come in
        if not world.frame.faults:
            break
        await world.kube.get("/version")
    assert world.frame.faults == []
    assert (await world.kube.call("GET", f"{NODES}/slow")).reason == "404 NotFound"
    await slow
    assert (await world.kube.call("GET", f"{NODES}/slow")).status == 200


async def test_a_lost_reply_leaves_its_effect(world: World) -> None:
    world.frame.faults.append(FaultRule(operation="create nodes", drop=True))
    with pytest.raises(aiohttp.ClientError):
        await world.kube.create(NODES, node("n1"))
    assert (await world.kube.get(f"{NODES}/n1"))["metadata"]["name"] == "n1"
    call = world.last("create nodes")
    assert (call.dropped, call.status, call.result["name"]) == (True, 201, "n1")


async def read_into(received: list[bytes], response: aiohttp.ClientResponse) -> None:
    async for chunk in response.content.iter_any():
        received.append(chunk)


async def test_a_cut_watch_ends_in_the_middle_of_an_event(world: World) -> None:
    world.frame.faults.append(FaultRule(operation="watch nodes", drop=True))
    received: list[bytes] = []
    url, headers = world.kube.url + NODES, world.kube.headers()
    async with world.kube.session.get(url, params={"watch": "1"}, headers=headers) as response:
        assert response.status == 200
        await world.kube.create(NODES, node("n1"))
        with pytest.raises(aiohttp.ClientError):
            await read_into(received, response)
    event = b"".join(received)
    assert event.startswith(b'{"type":"ADDED","object":{"kind":"Node"')
    assert not event.endswith(b"\n")
    assert world.last("watch nodes").dropped


# -- journal -----------------------------------------------------------------------------------------------------------


async def test_the_journal_tells_what_was_done_by_whom(world: World) -> None:
    made = await world.kube.create(NODES, node("n1"))
    await world.kube.call("POST", NODES, node("n1"))
    await world.kube.get(NODES, labelSelector="a=b")
    first, second, third = world.frame.calls(service="kubernetes")[-3:]
    assert (first.operation, first.caller, first.status, first.mutating) == ("create nodes", "admin", 201, True)
    assert first.request["path"] == NODES
    assert first.request["body"]["spec"]["providerID"] == "aws:///zone/n1"
    assert first.result == {"name": "n1", "resourceVersion": made["metadata"]["resourceVersion"]}
    assert (second.error, second.status) == ("AlreadyExists", 409)
    assert (third.operation, third.request["query"], third.mutating) == ("list nodes", {"labelSelector": "a=b"}, False)


async def test_heartbeats_leave_only_their_size(world: World) -> None:
    await world.kube.create(NODES, node("n1"))
    await world.kube.patch(f"{NODES}/n1/status", {"status": {"conditions": []}})
    await world.kube.create(LEASES, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}})
    for operation in ("patch nodes/status", "create leases"):
        assert set(world.last(operation).request["body"]) == {"bytes"}


async def test_no_secret_or_token_is_in_the_journal(world: World) -> None:
    kube, canary = world.kube, "canary-of-a-secret"
    encoded = base64.b64encode(canary.encode()).decode()
    token = await world.kubelet("n1")
    await kube.call("GET", f"{NODES}/n1", token=token)
    path, applied = f"{SECRETS}/s", {"last-applied": canary}
    await kube.create(SECRETS, {"metadata": {"name": "s", "annotations": applied}, "stringData": {"key": canary}})
    await kube.patch(path, {"data": {"key": encoded}})
    await kube.patch(path, [{"op": "add", "path": "/data/k2", "value": encoded}], "application/json-patch+json")
    await kube.call("PUT", path, {"metadata": {"name": "s"}, "data": {"key": canary + "!"}})
    await kube.call("POST", SECRETS, canary.encode())
    await kube.delete(path)
    text = json.dumps([c.model_dump(mode="json") for c in world.frame.calls()])
    for secret in (canary, encoded, TOKEN_SECRET, token, ADMIN_TOKEN):
        assert secret not in text
    assert world.frame.calls(operation="create secrets")[1].request["body"]["stringData"] == {"key": "<redacted>"}


# -- watches -----------------------------------------------------------------------------------------------------------


async def test_a_version_older_than_the_history_is_410_in_the_stream() -> None:
    async with serving(KubeApi(Frame(), admin_token=ADMIN_TOKEN, history=3)) as kube:
        for i in range(5):
            await kube.create(NODES, node(f"n{i}"))
        since = int((await kube.get(f"{NODES}/n0"))["metadata"]["resourceVersion"])
        (event,) = await kube.watched(NODES, resourceVersion=str(since))
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {since} (")
        events = await kube.watched(NODES, resourceVersion=str(since + 1))
        assert [e["object"]["metadata"]["name"] for e in events] == ["n2", "n3", "n4"]


async def test_a_watch_ends_with_a_bookmark_of_the_latest_version(kube: KubeTarget) -> None:
    since = (await kube.get(NODES))["metadata"]["resourceVersion"]
    await kube.create(PODS, pod("p"))
    latest = (await kube.get(NODES))["metadata"]["resourceVersion"]
    query = {"resourceVersion": since, "timeoutSeconds": "3"}
    events = [e async for e in kube.watch(NODES, allowWatchBookmarks="true", **query)]
    assert [(e["type"], e["object"]["metadata"]["resourceVersion"]) for e in events] == [("BOOKMARK", latest)]


async def test_shutdown_ends_open_watches() -> None:
    async with serving(KubeApi(Frame(), admin_token=ADMIN_TOKEN)) as kube:
        opened = asyncio.Event()

        async def follow() -> int:
            count = 0
            async for _ in kube.watch("/api/v1/namespaces"):
                count += 1
                opened.set()
            return count

        following = asyncio.create_task(follow())
        await opened.wait()
    assert await following == 4


# -- state -------------------------------------------------------------------------------------------------------------


async def test_state_outlives_a_restart(world: World) -> None:
    kube, token = world.kube, await world.kubelet("n1")
    await kube.create(NODES, node("n1", a="b"))
    await kube.create(DEFINITIONS, definition("state.example.com"))
    machines = "/apis/state.example.com/v1/namespaces/default/machines"
    machine = {"apiVersion": "state.example.com/v1", "kind": "Machine", "metadata": {"name": "m"}}
    await kube.create(machines, {**machine, "spec": {"replicas": 1}})
    before = await kube.get(NODES)
    state = json.loads(json.dumps(world.api.dump()))
    assert token not in json.dumps(state["tokens"])

    again = KubeApi(Frame(), admin_token=ADMIN_TOKEN)
    again.load(state)
    assert again.ca_pem == world.api.ca_pem
    async with serving(again) as restarted:
        after = await restarted.get(NODES)
        assert after["items"] == before["items"]
        version = int(before["metadata"]["resourceVersion"])
        assert int(after["metadata"]["resourceVersion"]) > version
        assert (await restarted.get(f"{machines}/m"))["spec"]["replicas"] == 1
        assert (await restarted.call("GET", f"{NODES}/n1", token=token)).status == 200
        (event,) = await restarted.watched(NODES, resourceVersion=str(version))
        assert event["object"]["code"] == 410
        events = await restarted.watched(NODES, resourceVersion=after["metadata"]["resourceVersion"])
        assert events == []
        await restarted.patch(f"{NODES}/n1", {"metadata": {"labels": {"a": "c"}}})
        events = await restarted.watched(NODES, resourceVersion=after["metadata"]["resourceVersion"])
        assert [e["type"] for e in events] == ["MODIFIED"]


# -- deletion that takes others along ----------------------------------------------------------------------------------


async def test_a_namespace_goes_with_its_content(kube: KubeTarget) -> None:
    space, config = "/api/v1/namespaces/team", {"metadata": {"name": "c"}}
    await kube.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await kube.create(f"{space}/configmaps", config)
    await kube.create(f"{space}/pods", pod("p", "n1"))
    terminating = await kube.delete(space)
    assert terminating["status"]["phase"] == "Terminating"
    assert (await kube.call("GET", f"{space}/configmaps/c")).reason == "404 NotFound"
    refused = await kube.call("POST", f"{space}/configmaps", config)
    assert refused.reason == "403 Forbidden"
    assert "because it is being terminated" in refused.message
    await kube.delete(f"{space}/pods/p", gracePeriodSeconds="0")
    assert (await kube.call("GET", space)).reason == "404 NotFound"
    assert (await kube.call("DELETE", "/api/v1/namespaces/default")).reason == "403 Forbidden"


async def test_a_definition_goes_with_its_objects(kube: KubeTarget) -> None:
    group = "gone.example.com"
    await kube.create(DEFINITIONS, definition(group))
    machines = f"/apis/{group}/v1/namespaces/default/machines"
    meta = {"name": "m", "finalizers": ["example.com/hold"]}
    body = {"apiVersion": f"{group}/v1", "kind": "Machine", "metadata": meta, "spec": {"replicas": 1}}
    await kube.create(machines, body)
    assert (await kube.delete(f"{DEFINITIONS}/machines.{group}"))["metadata"]["deletionTimestamp"]
    await kube.patch(f"{machines}/m", {"metadata": {"finalizers": None}})
    assert (await kube.call("GET", f"{DEFINITIONS}/machines.{group}")).reason == "404 NotFound"
    assert (await kube.call("GET", machines)).reason == "404 NotFound"


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_other_encodings_and_server_side_apply_are_refused(kube: KubeTarget) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    assert (await kube.call("POST", NODES, b"k8s\0", content_type=protobuf)).reason == "415 UnsupportedMediaType"
    assert (await kube.call("GET", NODES, accept=protobuf)).reason == "406 NotAcceptable"
    assert (await kube.call("GET", NODES, accept=f"{protobuf},application/json")).status == 200
    for name in (unique("n"), unique("n")):
        apply = await kube.call("PATCH", f"{NODES}/{name}", b"{}", content_type="application/apply-patch+yaml")
        assert apply.reason == "415 UnsupportedMediaType"
        assert "emulates server-side apply of custom resources only" in apply.message
        await kube.create(NODES, node(name))


async def test_cascades_that_are_not_emulated_are_refused(kube: KubeTarget) -> None:
    await kube.create(NODES, node("n1"))
    for options in ({"propagationPolicy": "Foreground"}, {"orphanDependents": True}, {"unheardOf": 1}):
        assert (await kube.call("DELETE", f"{NODES}/n1", options)).reason == "400 BadRequest"
    assert (await kube.call("DELETE", f"{NODES}/n1", {"propagationPolicy": "Background"})).status == 200


async def test_definitions_beyond_the_emulation_are_refused(kube: KubeTarget) -> None:
    cel, versions, hook = (definition(f"{name}.example.com") for name in ("cel", "versions", "hook"))
    schema = cel["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "true"}]
    versions["spec"]["versions"].append({**versions["spec"]["versions"][0], "name": "v2", "storage": False})
    hook["spec"]["conversion"] = {"strategy": "Webhook"}
    for body, said in ((cel, "CEL"), (versions, "exactly one version"), (hook, "conversion webhooks")):
        answer = await kube.call("POST", DEFINITIONS, body)
        assert answer.reason == "422 Invalid"
        assert said in answer.message
    assert (await kube.call("POST", DEFINITIONS, definition("fine.example.com"))).status == 201


async def test_fields_of_the_wrong_type_are_a_bad_request(kube: KubeTarget) -> None:
    for body in (
        {**node("n1"), "spec": {"taints": "none"}},
        {**node("n1"), "spec": "x"},
        {**node("n1"), "metadata": {"name": "n1", "labels": {"a": 1}}},
        {**node("n1"), "metadata": "x"},
        ["a list"],
    ):
        assert (await kube.call("POST", NODES, body)).reason == "400 BadRequest", body
    assert (await kube.call("POST", NODES, node("n1"))).status == 201


async def test_a_mistake_of_the_server_is_a_status_and_in_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("simulator.kube.registry.admission.admit", broken)
    answer = await world.kube.call("POST", NODES, node("n1"))
    assert answer.reason == "500 InternalError"
    assert "broken on purpose" in caplog.text
    assert world.last("create nodes").error == "InternalError"
