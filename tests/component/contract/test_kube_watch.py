"""Watches over the Kubernetes API: order, history, selectors, and how they begin and end."""

from __future__ import annotations

import asyncio

from apiserver.simulated import NODES, PODS, KubeTarget, Obj, make_node, make_pod, unique
from kubernetes.aio import watch
from kubernetes.aio.client import ApiClient, CoreV1Api

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def version_of(kube: KubeTarget) -> str:
    return str((await kube.get(NODES))["metadata"]["resourceVersion"])


def told(events: list[Obj], name: str) -> list[str]:
    return [e["type"] for e in events if e["object"]["metadata"].get("name") == name]


async def test_a_watch_tells_every_write_in_order(kube: KubeTarget) -> None:
    since, name = await version_of(kube), await make_node(kube)
    seen: list[Obj] = []
    async with asyncio.timeout(20):
        async for event in kube.watch(NODES, resourceVersion=since, timeoutSeconds="30"):
            if event["object"]["metadata"]["name"] != name:
                continue
            seen.append(event)
            # The first event is history, those that follow are told while the watch is open.
            if event["type"] == "ADDED":
                await kube.patch(f"{NODES}/{name}", {"metadata": {"labels": {"w": "1"}}})
            elif event["type"] == "MODIFIED":
                await kube.delete(f"{NODES}/{name}")
            else:
                break
    assert [e["type"] for e in seen] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in seen]
    assert versions == sorted(set(versions))
    assert seen[2]["object"]["metadata"]["labels"] == {"w": "1"}


async def test_a_watch_replays_what_happened_since_its_version(kube: KubeTarget) -> None:
    since, name = await version_of(kube), await make_node(kube)
    await kube.delete(f"{NODES}/{name}")
    assert told(await kube.watched(NODES, resourceVersion=since), name) == ["ADDED", "DELETED"]
    later = await version_of(kube)
    other = await make_node(kube)
    events = await kube.watched(NODES, resourceVersion=later)
    assert told(events, name) == []
    assert told(events, other) == ["ADDED"]


async def test_a_watch_without_a_version_first_tells_what_exists(kube: KubeTarget) -> None:
    group = unique("g")
    names = {await make_node(kube, group=group) for _ in range(3)}
    for version in ({}, {"resourceVersion": "0"}):
        events = await kube.watched(NODES, labelSelector=f"group={group}", **version)
        assert {e["type"] for e in events} == {"ADDED"}
        assert {e["object"]["metadata"]["name"] for e in events} == names


async def test_an_object_that_leaves_the_selector_is_deleted_to_the_watcher(kube: KubeTarget) -> None:
    group = unique("g")
    name = await make_node(kube, group=group)
    since = await version_of(kube)
    await kube.patch(f"{NODES}/{name}", {"metadata": {"labels": {"group": "off"}}})
    await kube.patch(f"{NODES}/{name}", {"metadata": {"labels": {"group": group}}})
    events = await kube.watched(NODES, resourceVersion=since, labelSelector=f"group={group}")
    assert told(events, name) == ["DELETED", "ADDED"]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions[0] < versions[1]


async def test_a_pod_enters_the_watch_of_its_node_when_it_is_bound(kube: KubeTarget) -> None:
    place, name = unique("n"), await make_pod(kube)
    since = await version_of(kube)
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": place}}
    await kube.create(f"{PODS}/{name}/binding", body)
    events = await kube.watched("/api/v1/pods", resourceVersion=since, fieldSelector=f"spec.nodeName={place}")
    assert told(events, name) == ["ADDED"]
    assert len(events) == 1


async def test_one_object_can_be_watched_by_name(kube: KubeTarget) -> None:
    since, name, _ = await version_of(kube), await make_node(kube), await make_node(kube)
    events = await kube.watched(NODES, resourceVersion=since, fieldSelector=f"metadata.name={name}")
    assert [e["object"]["metadata"]["name"] for e in events] == [name]


async def test_initial_events_end_with_a_bookmark(kube: KubeTarget) -> None:
    group = unique("g")
    await make_node(kube, group=group)
    events = await kube.watched(
        NODES,
        labelSelector=f"group={group}",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert [e["type"] for e in events[:2]] == ["ADDED", "BOOKMARK"]
    meta = events[1]["object"]["metadata"]
    assert meta["annotations"][INITIAL_EVENTS_END] == "true"
    assert int(meta["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])
    assert "name" not in meta
    assert events[1]["object"]["kind"] == "Node"
    refused = await kube.call("GET", NODES, watch="1", sendInitialEvents="true")
    assert refused.reason == "422 Invalid"


async def test_a_watch_from_the_future_says_nothing_and_a_list_refuses(kube: KubeTarget) -> None:
    """The trap of an etcd that was restored from a backup: such a watch is silent, even about what happens now."""
    future = str(int(await version_of(kube)) + 1_000_000)

    async def follow(version: str) -> list[Obj]:
        return [event async for event in kube.watch(NODES, resourceVersion=version, timeoutSeconds="2")]

    silent, other = asyncio.create_task(follow(future)), asyncio.create_task(follow(await version_of(kube)))
    name = await make_node(kube)
    assert told(await other, name) == ["ADDED"]
    assert await silent == []
    listed = await kube.call("GET", NODES, resourceVersion=future)
    assert listed.reason == "504 Timeout"
    assert "Too large resource version" in listed.message


async def test_the_official_client_watches(kube: KubeTarget, kube_client: ApiClient) -> None:
    group = unique("g")
    name = await make_node(kube, group=group)
    stream = watch.Watch().stream(CoreV1Api(kube_client).list_node, timeout_seconds=1, label_selector=f"group={group}")
    assert [(e["type"], e["object"].metadata.name) async for e in stream] == [("ADDED", name)]
