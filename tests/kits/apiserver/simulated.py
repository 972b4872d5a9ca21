"""A simulated API server without controllers, its wire, and kubeconfigs whose credentials rotate."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes.aio import client as kubernetes_client

from apiserver.certificates import client_certificate
from simulator.frame import Call, Frame
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


# -- a simulated API server of a test's own ---------------------------------------------------------------------------

SECRETS = "/api/v1/namespaces/kube-system/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"
TOKEN = f"{TOKEN_ID}.{TOKEN_SECRET}"
BEGIN, END = "-----BEGIN HOSTLER BEARER TOKEN-----\n", "\n-----END HOSTLER BEARER TOKEN-----\n"


class World:
    def __init__(self, frame: Frame, api: KubeApi, kube: KubeTarget) -> None:
        self.frame = frame
        self.api = api
        self.kube = kube

    def last(self, operation: str) -> Call:
        return self.frame.calls(operation=operation)[-1]

    async def kubelet(self, name: str) -> str:
        """The token of a kubelet that joined as it should."""
        await bootstrap_secret(self.kube)
        made = await self.kube.call("POST", REQUESTS, signing_request(name), token=TOKEN)
        certificate = (await self.kube.get(f"{REQUESTS}/{made.ok()['metadata']['name']}"))["status"]["certificate"]
        return issued(certificate)


@contextlib.asynccontextmanager
async def new_world() -> AsyncIterator[World]:
    frame = Frame()
    api = KubeApi(frame, admin_token=ADMIN_TOKEN)
    async with serving(api) as kube:
        yield World(frame, api, kube)


async def bootstrap_secret(kube: KubeTarget, kind: str = "bootstrap.kubernetes.io/token", **data: str) -> None:
    name = f"bootstrap-token-{TOKEN_ID}"
    content = {"token-id": TOKEN_ID, "token-secret": TOKEN_SECRET, "usage-bootstrap-authentication": "true", **data}
    await kube.call("DELETE", f"{SECRETS}/{name}")
    await kube.create(SECRETS, {"metadata": {"name": name}, "type": kind, "stringData": content})


def signing_request(name: str, *, organization: str = "system:nodes", usages: tuple[str, ...] = ()) -> Obj:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    pem = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    return {
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": list(usages or ("digital signature", "client auth")),
        },
    }


def issued(certificate: str) -> str:
    block = base64.b64decode(certificate).decode()
    assert block.startswith(BEGIN)
    assert block.endswith(END)
    return block.removeprefix(BEGIN).removesuffix(END)


# -- kubeconfigs whose credentials rotate -----------------------------------------------------------------------------

VERSION = "client.authentication.k8s.io/v1"

PLUGIN = """\
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[1])
with (here / "asked").open("a") as asked:
    asked.write(os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
exec(compile((here / "does").read_text(), "does", "exec"))
"""


def write_kubeconfig(file: Path, kube: KubeTarget, user: dict[str, Any], **cluster: Any) -> Path:
    config = yaml.safe_load(kube.kubeconfig())
    config["users"][0]["user"] = user
    config["clusters"][0]["cluster"] |= cluster
    file.write_text(yaml.safe_dump(config))
    return file


class Plugin:
    """A credential plugin as a program; what it does can be changed while it is in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "plugin.py"
        self._script.write_text(PLUGIN)

    def user(self, **more: Any) -> dict[str, Any]:
        arguments = [str(self._script), str(self.folder)]
        # Without what a test environment's Python imports at its start: a plugin that is slow to begin tests nothing.
        program = {"command": sys.executable, "args": ["-I", "-S", *arguments], "interactiveMode": "Never"}
        return {"exec": {"apiVersion": VERSION, **program, **more}}

    def does(self, code: str) -> None:
        (self.folder / "does").write_text(code)

    def gives(self, expires: datetime | None = None, version: str = VERSION, **status: str) -> None:
        if expires is not None:
            status["expirationTimestamp"] = expires.isoformat().replace("+00:00", "Z")
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        self.does(f"print({json.dumps(answer)!r})")

    @property
    def asked(self) -> list[dict[str, Any]]:
        """What it was asked at each run."""
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def new_certificate(ca_file: Path, name: str) -> tuple[str, str]:
    """A client's certificate with its key, as PEM. The authority's key, ca.key, lies beside its certificate."""
    authority = x509.load_pem_x509_certificate(ca_file.read_bytes())
    ca_key = serialization.load_pem_private_key(ca_file.with_name("ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = client_certificate(subject, key.public_key(), authority, ca_key)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return (
        certificate.public_bytes(encoding).decode(),
        key.private_bytes(encoding, form, serialization.NoEncryption()).decode(),
    )
