"""A Kubernetes API under test: the simulator or a real server, through the official client and as plain JSON."""

from __future__ import annotations

import contextlib
import json
import ssl
import tempfile
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from kubernetes.aio import client as kubernetes_client

from simulator.frame import Frame
from simulator.kube import KubeApi

Obj = dict[str, Any]

ADMIN_TOKEN = "an-admin-token-for-tests"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str | None:
        """`409 Conflict` of a Status error; None for anything else."""
        is_status = isinstance(self.body, dict) and self.body.get("kind") == "Status"
        return f"{self.status} {self.body.get('reason')}" if is_status else None

    @property
    def message(self) -> str:
        return str(self.body.get("message"))

    def ok(self) -> Any:
        assert self.status < 300, (self.status, self.body)
        return self.body


@dataclass
class KubeTarget:
    """What a test needs of an API server. A real one is plugged in by its URL, token and CA file."""

    url: str
    token: str
    ca_file: Path
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    def client(self, token: str | None = None) -> kubernetes_client.ApiClient:
        """The official asyncio client; the caller closes it."""
        config = kubernetes_client.Configuration(host=self.url, ssl_ca_cert=str(self.ca_file))
        config.api_key = {"authorization": f"Bearer {token or self.token}"}
        return kubernetes_client.ApiClient(config)

    def kubeconfig(self) -> str:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        return str(yaml.safe_dump(config))

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0))
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def headers(self, token: str | None = None, **more: str) -> dict[str, str]:
        wanted = self.token if token is None else token
        return {**({"Authorization": f"Bearer {wanted}"} if wanted else {}), **more}

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        token: str | None = None,
        **query: str,
    ) -> Answer:
        """One call in plain JSON. An empty `token` sends none."""
        headers = self.headers(token, Accept=accept)
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = content_type
        async with self.session.request(method, self.url + path, params=query, data=data, headers=headers) as response:
            text = await response.read()
            try:
                parsed = json.loads(text)
            except ValueError:
                parsed = text.decode(errors="replace")
            return Answer(response.status, parsed, dict(response.headers))

    async def get(self, path: str, **query: str) -> Any:
        return (await self.call("GET", path, **query)).ok()

    async def create(self, path: str, body: Obj) -> Any:
        return (await self.call("POST", path, body)).ok()

    async def patch(self, path: str, body: Any, content_type: str = MERGE) -> Any:
        return (await self.call("PATCH", path, body, content_type=content_type)).ok()

    async def delete(self, path: str, **query: str) -> Any:
        return (await self.call("DELETE", path, **query)).ok()

    async def watch(self, path: str, *, token: str | None = None, **query: str) -> AsyncIterator[Obj]:
        """The events of one watch, until the server ends it."""
        params = {"watch": "1", **query}
        async with self.session.get(self.url + path, params=params, headers=self.headers(token)) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                yield json.loads(line)

    async def watched(self, path: str, **query: str) -> list[Obj]:
        """All events of a watch that lasts a second."""
        return [event async for event in self.watch(path, timeoutSeconds="1", **query)]


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def node(name: str, **labels: str) -> Obj:
    spec = {"providerID": f"aws:///zone/{name}", "taints": [{"key": "a", "effect": "NoSchedule"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}


def pod(name: str, node_name: str | None = None, **labels: str) -> Obj:
    spec: Obj = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
    if node_name:
        spec["nodeName"] = node_name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def definition(group: str) -> Obj:
    spec = {
        "type": "object",
        "required": ["replicas"],
        "properties": {
            "replicas": {"type": "integer", "minimum": 0},
            "class": {"type": "string", "default": "standard"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "budget": {"x-kubernetes-int-or-string": True},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": paths},
        "additionalPrinterColumns": [{"name": "Class", "type": "string", "jsonPath": ".spec.class"}],
    }
    names = {"plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"machines.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def make_node(kube: KubeTarget, **labels: str) -> str:
    name = unique("n")
    await kube.create(NODES, node(name, **labels))
    return name


async def make_pod(kube: KubeTarget, node_name: str | None = None, **labels: str) -> str:
    name = unique("p")
    await kube.create(PODS, pod(name, node_name, **labels))
    return name


@contextlib.asynccontextmanager
async def serving(api: KubeApi) -> AsyncIterator[KubeTarget]:
    """The simulated API server on a free port."""
    runner = web.AppRunner(api.app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    with tempfile.TemporaryDirectory() as folder:
        ca_file = Path(folder) / "ca.pem"
        ca_file.write_text(api.ca_pem)
        target: KubeTarget | None = None
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=api.ssl_context()).start()
            target = KubeTarget(f"https://127.0.0.1:{runner.addresses[0][1]}", ADMIN_TOKEN, ca_file)
            yield target
        finally:
            await runner.cleanup()
            if target is not None:
                await target.close()


@contextlib.asynccontextmanager
async def simulated() -> AsyncIterator[KubeTarget]:
    async with serving(KubeApi(Frame(), admin_token=ADMIN_TOKEN)) as target:
        yield target
