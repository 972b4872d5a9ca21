"""A small client of a cluster's API: reads Nodes, reads and writes Secrets. Raw JSON, so that nothing is dropped."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import quote

import aiohttp

from activities.kube.credentialplugin import CredentialsError
from activities.kube.kubeconfig import Access
from resources.names import is_segment
from resources.settings import Settings, SettingsError
from starter.sdk.errors import HostlerError, Unreachable
from starter.sdk.results import Json

PAGE = 500
"""Objects in one answer of a list, as in kubectl."""
CALL_TIMEOUT = 30.0
MERGE_PATCH = "application/merge-patch+json"


class KubeError(HostlerError):
    """The API server refused. `code` is its HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Right:
    """What an account may do to a resource: in a namespace, or (empty) in all of them and on resources without one."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {what}" + (f" in {self.namespace}" if self.namespace else "")


class KubeClient:
    """One cluster's API server; made by `connect_cluster`."""

    def __init__(self, access: Access, host: str, cluster: str) -> None:
        self._access = access
        self.host = host
        self._cluster = cluster

    async def version(self) -> tuple[Json, datetime | None]:
        """The answer of /version, and the server's clock (RFC 9110: whole seconds), where the answer has it."""
        answer, content = await self._send("GET", "/version")
        date = answer.response.headers.get("Date")
        return cast(Json, json.loads(content)), parsedate_to_datetime(date) if date else None

    async def may(self, right: Right) -> bool:
        """Whether this account has the right, by a SelfSubjectAccessReview."""
        asked = {f: getattr(right, f) for f in ("verb", "resource", "group", "subresource", "namespace")}
        body: Json = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in asked.items() if v}},
        }
        review = await self._call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool(review["status"].get("allowed"))

    async def nodes(self, labels: str | None = None) -> list[Json]:
        """Every Node, or those that a label selector matches, in pages."""
        nodes: list[Json] = []
        first = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        query = first
        while True:
            page = await self._call("GET", "/api/v1/nodes", query=query)
            nodes += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return nodes
            query = {**first, "continue": token}

    async def node(self, name: str) -> Json:
        return await self._call("GET", f"/api/v1/nodes/{_segment(name)}")

    async def secret(self, namespace: str, name: str) -> Json | None:
        """The Secret; None when there is none."""
        try:
            return await self._call("GET", f"{_secrets(namespace)}/{_segment(name)}", private=True)
        except KubeError as e:
            if e.code == 404:
                return None
            raise

    async def create_secret(self, namespace: str, body: Json) -> Json:
        return await self._call("POST", _secrets(namespace), body=body, private=True)

    async def patch_secret(self, namespace: str, name: str, patch: Json) -> Json:
        """Merges a patch into the Secret: what the patch does not name stays."""
        path = f"{_secrets(namespace)}/{_segment(name)}"
        return await self._call("PATCH", path, body=patch, content_type=MERGE_PATCH, private=True)

    async def _call(self, method: str, path: str, **options: Any) -> Json:
        _, content = await self._send(method, path, **options)
        return cast(Json, json.loads(content))

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        private: bool = False,
    ) -> tuple[Any, bytes]:
        """Sends a request. `private`: the server's message may quote what was sent, so only its reason is shown."""
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body is not None else {})
        version = self._access.version
        try:
            answer, content = await self._once(method, path, query, headers, body)
            if answer.status == 401 and await self._access.renew(version):  # a watching command outlives a token
                answer, content = await self._once(method, path, query, headers, body)
        except CredentialsError as e:
            raise HostlerError(str(e)) from None
        if answer.status >= 400:
            raise KubeError(
                answer.status, f"cluster {self._cluster}: {method} {path}: {_reason(content, answer, private)}"
            )
        return answer, content

    async def _once(
        self, method: str, path: str, query: dict[str, str] | None, headers: dict[str, str], body: Json | None
    ) -> tuple[Any, bytes]:
        api = await self._access.client()
        request = await api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=dict(headers),
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await api.call_api(*request, _request_timeout=CALL_TIMEOUT)
            return answer, await answer.response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise Unreachable(
                f"cluster {self._cluster}: its API at {self.host} does not answer: {e or type(e).__name__}"
            ) from e


def _segment(name: str) -> str:
    """Raises HostlerError for a name that no object can have."""
    if not is_segment(name):
        raise HostlerError(f"not a valid name for an object: {name!r}")
    return quote(name, safe="")


def _secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/secrets"


def _reason(content: bytes, answer: Any, private: bool) -> str:
    """The server's Status in one line."""
    try:
        status = json.loads(content)
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        fields = ", ".join(str(c.get("field")) for c in (status.get("details") or {}).get("causes") or [])
    except (ValueError, AttributeError):
        reason, message, fields = str(answer.reason), "", ""
    if private:
        message = f"wrong fields: {fields}" if fields else ""
    return f"{answer.status} {reason}" + (f": {message}" if message else "")


@asynccontextmanager
async def connect_cluster(settings: Settings, name: str) -> AsyncIterator[KubeClient]:
    """Connects to the API of a cluster in the settings: in-cluster access, else a kubeconfig (default: kubectl's own).

    Raises SettingsError for an unknown cluster, HostlerError for a kubeconfig that does not work.
    """
    cluster = settings.cluster(name)
    kubeconfig = str(settings.path(cluster.kubeconfig)) if cluster.kubeconfig else None
    access = Access(name, cluster, kubeconfig, interactive=sys.stdin.isatty())
    try:
        api = await access.client()
    except (SettingsError, CredentialsError) as e:
        raise HostlerError(f"{e}: check clusters.{name}.kubeconfig in the settings") from None
    try:
        yield KubeClient(access, api.configuration.host, name)
    finally:
        await access.close()
