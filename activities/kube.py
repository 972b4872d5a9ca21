"""The Kubernetes API as activities use it: raw JSON through the real client (`kubernetes.aio`).

Raw because a typed object drops the fields that the client does not know, and costs five times the CPU per node.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client as k8s
from kubernetes.aio import config as k8s_config

from resources.errors import ErrorClass
from resources.settings import ClusterSettings, Settings, SettingsError

Object = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
CALL_TIMEOUT = 20.0  # seconds, of one request that is no watch

_CLASS_OF_STATUS = {
    400: ErrorClass.INVALID,
    401: ErrorClass.AUTH,
    403: ErrorClass.AUTH,
    404: ErrorClass.NOT_FOUND,
    409: ErrorClass.CONFLICT,
    410: ErrorClass.CONFLICT,
    422: ErrorClass.INVALID,
    429: ErrorClass.THROTTLED,
}


class KubeError(Exception):
    """The API server refused, or could not be reached (status 0)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def error_class(self) -> ErrorClass:
        return _CLASS_OF_STATUS.get(self.status, ErrorClass.TRANSIENT)


class Kube:
    """One API server. Methods raise KubeError; paths are as in the API reference, without the host."""

    def __init__(self, name: str, api: Any) -> None:
        self.name = name
        self._api = api

    @classmethod
    async def connect(cls, name: str, settings: ClusterSettings, kubeconfig: str | None) -> Kube:
        """By in-cluster access, else by kubeconfig (a path; None: the usual places) and context."""
        configuration = k8s.Configuration()
        try:
            if settings.in_cluster:
                k8s_config.load_incluster_config(client_configuration=configuration)
            else:
                await k8s_config.load_kube_config(kubeconfig, settings.context, configuration, persist_config=False)
        except (k8s_config.ConfigException, OSError, ValueError) as e:
            where = "in-cluster access" if settings.in_cluster else f"kubeconfig {kubeconfig or '(default)'}"
            raise SettingsError(f"cluster {name}: {where}: {e}") from None
        # The workflow waits. None, not False: that counts as 0 attempts, which the client never reaches on a 5xx.
        configuration.retries = None
        configuration.connection_pool_maxsize = 0  # no limit: the activity slots are one
        return cls(name, k8s.ApiClient(configuration))

    async def close(self) -> None:
        await self._api.close()

    async def get(self, path: str, **query: str) -> Object:
        return await self._json("GET", path, query)

    async def find(self, path: str, **query: str) -> Object | None:
        """Like `get`, None when there is no such object."""
        try:
            return await self.get(path, **query)
        except KubeError as e:
            if e.status == 404:
                return None
            raise

    async def create(self, path: str, body: Object) -> Object:
        return await self._json("POST", path, {}, body)

    async def merge_patch(self, path: str, body: Object) -> Object:
        """A body that carries metadata.resourceVersion is refused with 409 when the object has changed since."""
        return await self._json("PATCH", path, {}, body, MERGE_PATCH)

    async def delete(self, path: str, body: Object | None = None) -> bool:
        """False when there is no such object."""
        try:
            await self._json("DELETE", path, {}, body)
        except KubeError as e:
            if e.status == 404:
                return False
            raise
        return True

    async def watch(self, path: str, read_timeout: float, **query: str) -> AsyncIterator[Object]:
        """Events `{"type": …, "object": …}` until the server ends the watch.

        Raises KubeError: 410 when the resourceVersion is too old; status 0 when nothing came for `read_timeout`
        seconds (a half-open connection looks like that) or the connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_TIMEOUT, sock_read=read_timeout)
        response = await self._call("GET", path, {**query, "watch": "true"}, None, None, timeout)
        try:
            if response.status >= 300:
                raise _error(response, await response.read())
            async for line in response.content:
                if line.strip():
                    event = json.loads(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object", {})
                        raise KubeError(
                            int(status.get("code", 500)), status.get("reason", ""), status.get("message", "")
                        )
                    yield event
        except (aiohttp.ClientError, TimeoutError, ValueError) as e:
            # ValueError: the connection was cut in the middle of an event
            raise KubeError(0, "Unreachable", f"the watch of {self.name} broke: {e or type(e).__name__}") from None
        finally:
            response.close()

    async def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        content_type: str | None = None,
    ) -> Object:
        response = await self._call(method, path, query, body, content_type, CALL_TIMEOUT)
        try:
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError) as e:
            raise self._unreachable(e) from None
        if response.status >= 300:
            raise _error(response, data)
        result: Object = json.loads(data) if data else {}
        return result

    async def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str | None, timeout: Any
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        request = await self._api.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(*request, _request_timeout=timeout)
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            raise self._unreachable(e) from None
        response: aiohttp.ClientResponse = answer.response
        return response

    def _unreachable(self, e: BaseException) -> KubeError:
        return KubeError(0, "Unreachable", f"the API server of {self.name} cannot be reached: {e or type(e).__name__}")


def _error(response: aiohttp.ClientResponse, data: bytes) -> KubeError:
    try:
        status = json.loads(data)
    except ValueError:
        status = {}
    after = response.headers.get("Retry-After")
    return KubeError(
        response.status,
        status.get("reason") or response.reason or "",
        status.get("message") or f"HTTP {response.status}",
        float(after) if after and after.isdigit() else None,
    )


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name)}"


def secret_path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/secrets" + (f"/{quote(name)}" if name else "")


class Clusters:
    """The API servers that this worker knows by name, connected on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[str, asyncio.Task[Kube]] = {}

    async def get(self, name: str) -> Kube:
        """Raises SettingsError with the known names when the cluster is not in the settings."""
        settings = self._settings.cluster(name)
        task = self._open.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            path = str(self._settings.path(settings.kubeconfig)) if settings.kubeconfig else None
            task = self._open[name] = asyncio.create_task(Kube.connect(name, settings, path))
        return await asyncio.shield(task)

    async def close(self) -> None:
        for task in self._open.values():
            if task.done() and not task.cancelled() and not task.exception():
                await task.result().close()
