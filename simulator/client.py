"""A thin asynchronous Kubernetes REST client: plain dictionaries in and out, no typed models.

The simulated kubelets and controllers use it; it speaks to the simulated API server and to a real one alike. Many
clients (one per kubelet) share one connection pool.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml

from resources.words import cause, kube_time

Obj = dict[str, Any]
"""A Kubernetes object, list or Status as decoded JSON."""

CONNECTIONS = 32  # for all calls but watches
REQUEST_TIMEOUT = 30.0  # seconds for any call but a watch
WATCH_SECONDS = (240, 480)  # how long one watch is asked to last; spread, so that not all of them end together

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
PatchType = Literal["merge", "strategic", "json"]

_GROUPS = {
    "api/v1": (
        "namespaces",
        "nodes",
        "pods",
        "secrets",
        "events",
        "persistentvolumes",
        "persistentvolumeclaims",
    ),
    "apis/apps/v1": ("deployments", "replicasets", "daemonsets"),
    "apis/policy/v1": ("poddisruptionbudgets",),
    "apis/coordination.k8s.io/v1": ("leases",),
    "apis/certificates.k8s.io/v1": ("certificatesigningrequests",),
    "apis/storage.k8s.io/v1": ("volumeattachments",),
    "apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "apis/machineconfiguration.openshift.io/v1": ("machineconfigs", "machineconfigpools"),
}
_PREFIX = {plural: prefix for prefix, plurals in _GROUPS.items() for plural in plurals}


class CallError(Exception):
    """An answer that is not a success, or no answer at all (status 0, reason Unreachable)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """409: another writer was faster, or the object exists already."""
        return self.status == 409


@dataclass(frozen=True)
class WatchEvent:
    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK; an ERROR event is raised as `CallError` instead."""
    object: Obj


class ConnectionPool:
    """The connections of many clients, to be made in the loop that uses them, and closed by its maker.

    Calls share few connections: a TLS connection costs half a megabyte in one process with its server. A watch keeps
    one for itself, so watches have a pool of their own, without a limit: with a limit heartbeats would starve.
    """

    def __init__(self) -> None:
        self.calls = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60))
        self.watches = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        await self.calls.close()
        await self.watches.close()


class KubeClient:
    """One identity (a bearer token or a client certificate, or none) at one API server, over a shared pool."""

    def __init__(
        self,
        pool: ConnectionPool,
        server: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        user_agent: str = "simulator",
    ) -> None:
        self._pool = pool
        self.server = server.rstrip("/")
        self._tls: ssl.SSLContext | bool = True if tls is None else tls
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    async def get(self, resource: str, name: str, namespace: str | None = None) -> Obj:
        return await self.request("GET", object_path(resource, name, namespace))

    async def list(self, resource: str, namespace: str | None = None, **params: str) -> Obj:
        """The whole list object; `params` are query parameters such as fieldSelector."""
        return await self.request("GET", object_path(resource, None, namespace), params=params)

    async def create(self, resource: str, body: Obj, namespace: str | None = None) -> Obj:
        return await self.request("POST", object_path(resource, None, namespace), body=body)

    async def update(self, resource: str, body: Obj, sub: str | None = None) -> Obj:
        meta = body["metadata"]
        return await self.request("PUT", object_path(resource, meta["name"], meta.get("namespace"), sub), body=body)

    async def patch(
        self,
        resource: str,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        sub: str | None = None,
        kind: PatchType = "merge",
    ) -> Obj:
        path = object_path(resource, name, namespace, sub)
        return await self.request("PATCH", path, body=body, content_type=PATCH_TYPES[kind])

    async def delete(
        self,
        resource: str,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace: int | None = None,
    ) -> Obj:
        """Deletes an object; with `uid` only that very object, never a namesake that took its place meanwhile."""
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self.request("DELETE", object_path(resource, name, namespace), body=options)

    async def bind(self, pod: Obj, node: str) -> Obj:
        meta = pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.request("POST", object_path("pods", meta["name"], meta["namespace"], "binding"), body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Obj:
        """One call. Raises `CallError` for every answer but 2xx, and when there is no answer within REQUEST_TIMEOUT."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": content_type}
        try:
            async with self._pool.calls.request(
                method,
                f"{self.server}/{path}",
                data=data,
                params=params,
                headers=headers,
                ssl=self._tls,
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
            ) as response:
                text = await response.read()
                if response.status >= 300:
                    raise _error(response.status, text)
                return dict(json.loads(text))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
            raise CallError(0, "Unreachable", f"{self.server}: {cause(e)}") from None

    async def watch(
        self, resource: str, resource_version: str, namespace: str | None = None, **params: str
    ) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version` until the server ends the watch; then the iterator ends.

        Raises `CallError` with status 410 when the version is too old (list again), and with status 0 when the
        connection breaks; a half-written event is thrown away.
        """
        seconds = random.randint(*WATCH_SECONDS)
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            **params,
        }
        # The read timeout outlives the watch itself: it strikes only a half-open connection.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT, sock_read=seconds + REQUEST_TIMEOUT)
        url = f"{self.server}/{object_path(resource, None, namespace)}"
        try:
            async with self._pool.watches.get(
                url, params=query, headers=self._headers, ssl=self._tls, timeout=timeout
            ) as response:
                if response.status >= 300:
                    raise _error(response.status, await response.read())
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield _event(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
            raise CallError(0, "Unreachable", f"{self.server}: {cause(e)}") from None


def object_path(resource: str, name: str | None = None, namespace: str | None = None, sub: str | None = None) -> str:
    """The path of a collection (`name` None), an object, or its subresource; KeyError for a resource not used here."""
    parts = [_PREFIX[resource]]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts += [part for part in (resource, name, sub) if part is not None]
    return "/".join(parts)


def from_kubeconfig(pool: ConnectionPool, text: str, *, user_agent: str) -> KubeClient:
    """The client of a kubeconfig's current context: token or client certificate, all of it inline.

    Raises ValueError for a kubeconfig that names files or an exec plugin: nothing here reads them.
    """
    context, cluster, user = _current(text)
    if "token" not in user and "client-certificate-data" not in user:
        raise ValueError(f"kubeconfig user {context['user']!r} has neither token nor client-certificate-data")
    tls = None
    if cluster["server"].startswith("https:"):
        tls = server_trust(_authority(cluster))
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if "client-certificate-data" in user:
            present_certificate(
                tls,
                base64.b64decode(user["client-certificate-data"]).decode(),
                base64.b64decode(user["client-key-data"]).decode(),
            )
    return KubeClient(pool, cluster["server"], token=user.get("token"), tls=tls, user_agent=user_agent)


def server_of(text: str) -> tuple[str, str | None]:
    """URL and CA (PEM; None: the system's) of a kubeconfig's current cluster.

    Raises ValueError where it names a CA file, or wants no verification: kubelets always verify their server.
    """
    _, cluster, _ = _current(text)
    if cluster.get("insecure-skip-tls-verify"):
        raise ValueError(f"kubeconfig cluster at {cluster['server']} has insecure-skip-tls-verify")
    return cluster["server"], _authority(cluster)


def server_trust(ca_pem: str | None) -> ssl.SSLContext:
    """A context that trusts exactly this CA; the system's CAs when there is none."""
    return ssl.create_default_context(cadata=ca_pem)


def present_certificate(tls: ssl.SSLContext, certificate_pem: str, key_pem: str) -> None:
    """Makes `tls` present this client certificate. OpenSSL loads it from files only; they exist for that moment."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:  # created with mode 0700
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_text(certificate_pem)
        key.write_text(key_pem)
        tls.load_cert_chain(certificate, key)


def timestamp() -> str:
    """Now as Kubernetes' Time: whole seconds, UTC."""
    return kube_time(datetime.now(UTC))


def micro_timestamp() -> str:
    """Now as MicroTime, always with six digits, never .000000: Kubernetes clients print such a time without its
    fraction when they write the object back, and a real API server refuses that."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond or 1).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _current(text: str) -> tuple[Obj, Obj, Obj]:
    """A kubeconfig's current context, its cluster and its user. Raises ValueError for what is no kubeconfig."""
    try:
        config = yaml.safe_load(text)
        context = _named(config, "context", config["current-context"])
        return context, _named(config, "cluster", context["cluster"]), _named(config, "user", context["user"])
    except (yaml.YAMLError, KeyError, TypeError) as e:
        # The problem's kind only: the text around it may be a token.
        raise ValueError(f"this is not a kubeconfig with a current context ({type(e).__name__})") from None


def _authority(cluster: Obj) -> str | None:
    if "certificate-authority" in cluster:
        raise ValueError("kubeconfig names a certificate-authority file: certificate-authority-data is read only")
    data = cluster.get("certificate-authority-data")
    return base64.b64decode(data).decode() if data else None


def _named(config: Obj, kind: str, name: str) -> Obj:
    for entry in config[kind + "s"]:
        if entry["name"] == name:
            return dict(entry[kind])
    raise ValueError(f"kubeconfig has no {kind} named {name!r}")


def _event(line: bytes) -> WatchEvent:
    event = json.loads(line)
    if event["type"] == "ERROR":
        status = event["object"]
        raise CallError(int(status.get("code", 500)), str(status.get("reason", "")), str(status.get("message", "")))
    return WatchEvent(event["type"], event["object"])


def _error(status: int, text: bytes) -> CallError:
    try:
        body = json.loads(text)
        return CallError(status, str(body.get("reason", "")), str(body.get("message", "")))
    except (ValueError, AttributeError):
        return CallError(status, "", text.decode(errors="replace")[:200])
