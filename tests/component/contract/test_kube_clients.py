"""The rest of what clients do: server-side apply, the dynamic client, the informer, deleting a collection."""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest
from apiserver.simulated import NODES, KubeTarget, Obj
from kubernetes import client as sync_client
from kubernetes.dynamic import DynamicClient
from kubernetes.informer import SharedInformer

APPLY = "application/apply-patch+yaml"


def official(kube: KubeTarget) -> sync_client.ApiClient:
    configuration = sync_client.Configuration(host=kube.url)
    configuration.ssl_ca_cert = str(kube.ca_file)
    configuration.api_key = {"authorization": f"Bearer {kube.token}"}
    configuration.retries = False
    return sync_client.ApiClient(configuration)


async def apply(
    kube: KubeTarget, name: str, manager: str, labels: dict[str, str], force: bool = False
) -> tuple[int, Obj]:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    query = {"fieldManager": manager, **({"force": "true"} if force else {})}
    answer = await kube.call("PATCH", f"{NODES}/{name}", body, content_type=APPLY, **query)
    return answer.status, answer.body


async def test_server_side_apply(kube: KubeTarget, request: pytest.FixtureRequest) -> None:
    """The simulator refuses it with a message; a real server tracks who owns which field."""
    name = f"ssa-{uuid.uuid4().hex[:6]}"
    status, body = await apply(kube, name, "a", {"k": "1", "j": "1"})
    if request.node.callspec.params["kube"] == "simulator":
        assert status == 415
        assert "server-side apply" in body["message"]
        return
    assert status == 201
    assert next((m["manager"], m["operation"]) for m in body["metadata"]["managedFields"]) == ("a", "Apply")
    assert (await apply(kube, name, "b", {"k": "2"}))[0] == 409
    status, body = await apply(kube, name, "b", {"k": "2"}, force=True)
    assert (status, body["metadata"]["labels"]["k"]) == (200, "2")
    _, body = await apply(kube, name, "a", {"k": "2"}, force=True)
    assert "j" not in body["metadata"]["labels"]  # the owner dropped it
    await kube.delete(f"{NODES}/{name}")


async def test_the_dynamic_client_finds_its_way_by_discovery(kube: KubeTarget) -> None:
    name = f"dyn-{uuid.uuid4().hex[:6]}"
    await kube.create(NODES, {"metadata": {"name": name}})

    def look() -> str:
        with official(kube) as api:
            nodes = DynamicClient(api).resources.get(api_version="v1", kind="Node")
            return str(nodes.get(name=name).metadata.name)

    assert await asyncio.to_thread(look) == name
    await kube.delete(f"{NODES}/{name}")


async def test_the_informer_sees_what_comes_and_goes(kube: KubeTarget) -> None:
    name = f"inf-{uuid.uuid4().hex[:6]}"
    seen: list[tuple[str, str]] = []
    news = threading.Event()

    def note(kind: str) -> object:
        def handler(node: sync_client.V1Node) -> None:
            if node.metadata.name == name:
                seen.append((kind, name))
                news.set()

        return handler

    def wait(kind: str) -> bool:
        while (kind, name) not in seen:
            news.clear()
            if (kind, name) not in seen and not news.wait(30):
                return False
        return True

    api = official(kube)
    informer = SharedInformer(list_func=sync_client.CoreV1Api(api).list_node)
    for kind in ("ADDED", "DELETED"):
        informer.add_event_handler(kind, note(kind))
    informer.start()
    try:
        await kube.create(NODES, {"metadata": {"name": name}})
        assert await asyncio.to_thread(wait, "ADDED")
        await kube.delete(f"{NODES}/{name}")
        assert await asyncio.to_thread(wait, "DELETED")
    finally:
        await asyncio.to_thread(informer.stop)
        api.close()
    assert [kind for kind, _ in seen] == ["ADDED", "DELETED"]


async def test_a_collection_is_deleted_by_label(kube: KubeTarget) -> None:
    path, mark = "/api/v1/namespaces/default/configmaps", uuid.uuid4().hex[:6]
    for n in range(2):
        await kube.create(path, {"metadata": {"name": f"c{n}-{mark}", "labels": {"mark": mark}}, "data": {"a": "b"}})
    await kube.create(path, {"metadata": {"name": f"other-{mark}"}})
    await kube.delete(path, labelSelector=f"mark={mark}")
    names = {c["metadata"]["name"] for c in (await kube.get(path))["items"]}
    assert not {n for n in names if n.startswith(("c0", "c1")) and n.endswith(mark)}
    assert f"other-{mark}" in names
