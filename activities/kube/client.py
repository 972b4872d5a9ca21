"""The Kubernetes API as activities use it: raw JSON through the real client (`kubernetes.aio`).

Raw because a typed object drops the fields that the client does not know, and costs five times the CPU per node.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient

from activities.kube.credentialplugin import CredentialsError
from activities.kube.kubeconfig import Access
from activities.kube.patience import patiently
from resources.base import cut, waited
from resources.errors import ErrorClass
from resources.names import is_segment
from resources.settings import ClusterSettings, Settings
from resources.words import cause

Object = dict[str, Any]

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
CALL_TIMEOUT = 20.0  # seconds for one request that is no watch, until its answer is read to the end
LIVEZ = "/livez"
"""The path is small, exempt from the server's own throttling, and open to anybody with credentials."""

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
    """The API server refused, or could not be reached (status 0). Credentials that cannot be had count as 401."""

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float | None = None, fields: Sequence[str] = ()
    ) -> None:
        super().__init__(cut(message))
        self.status = status
        self.reason = reason
        self.message = cut(message)
        self.retry_after = None if retry_after is None else waited(retry_after)
        self.fields = tuple(fields)
        """The fields that are wrong: the message may quote their values."""

    @property
    def error_class(self) -> ErrorClass:
        return _CLASS_OF_STATUS.get(self.status, ErrorClass.TRANSIENT)

    @property
    def refused(self) -> bool:
        """The server answers, and does not accept our credentials."""
        return self.status in (401, 403)

    @property
    def busy(self) -> bool:
        """The server answers, and asks to come again later."""
        return self.status == 429 or (self.status == 503 and self.retry_after is not None)

    @property
    def silent(self) -> bool:
        """No answer, or one that says that nothing can be known: a proxy without a server, a server without storage."""
        return self.status == 0 or (self.status >= 500 and not self.busy)

    @property
    def locked_out(self) -> bool:
        """Nothing can be known from it: it is silent, or does not know us at all (the watch of Nodes says so too)."""
        return self.silent or self.status == 401


class Kube:
    """One API server. Methods raise KubeError; paths are as in the API reference, without the host."""

    def __init__(self, name: str, access: Access) -> None:
        self.name = name
        self._access = access

    @classmethod
    def of(cls, settings: Settings, name: str, *, interactive: bool = False) -> Kube:
        """The API server of that name in the settings; nothing is asked yet. `interactive`: a plugin may ask the person
        at this terminal. Raises SettingsError, with the known names, for another one."""
        cluster = settings.cluster(name)
        kubeconfig = str(settings.path(cluster.kubeconfig)) if cluster.kubeconfig else None
        return cls(name, Access(name, cluster, kubeconfig, interactive=interactive))

    @classmethod
    async def connect(cls, name: str, settings: ClusterSettings, kubeconfig: str | None) -> Kube:
        """Connects by in-cluster access, else by kubeconfig (a path; None: the usual places) and context."""
        kube = cls(name, Access(name, settings, kubeconfig))
        await kube.ready()
        return kube

    async def ready(self) -> None:
        """Raises SettingsError where the settings lead to no credentials, KubeError where a plugin gives none."""
        await self._client()

    async def close(self) -> None:
        await self._access.close()

    @property
    def server(self) -> str:
        """Its address, once it is ready."""
        return self._access.server

    async def version(self) -> tuple[Object, datetime | None]:
        """The answer of /version, and the server's clock (RFC 9110: whole seconds), where the answer has it."""
        response, data = await self._answer("GET", "/version")
        date = response.headers.get("Date")
        return json.loads(data), parsedate_to_datetime(date) if date else None

    async def alive(self, patience: float, path: str = LIVEZ) -> None:
        """Returns when the server has answered a small read, on a connection of its own: kept connections may be dead
        while the server is well. `patience`: seconds in which the event loop has turns."""
        for again in (True, False):
            api, version = await self._client()
            try:
                answer, data = await patiently(self._read_alone(api, path), patience)
            except (TimeoutError, aiohttp.ClientError, OSError) as e:
                raise self._unreachable(e, f"no answer within {patience:g} s") from None
            if answer.status == 401 and again and await self._renew(version):
                continue
            if answer.status >= 300:
                raise _error(answer, data)
            return

    @staticmethod
    async def _read_alone(api: ApiClient, path: str) -> tuple[aiohttp.ClientResponse, bytes]:
        configuration = api.configuration
        token = configuration.api_key.get("BearerToken")
        connector = aiohttp.TCPConnector(ssl=api.rest_client.ssl_context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, trust_env=True) as session,
            session.get(
                configuration.host + path,
                headers={"Authorization": token} if token else {},
                proxy=configuration.proxy,
                server_hostname=configuration.tls_server_name,
            ) as answer,
        ):
            return answer, await answer.read()

    async def get(self, path: str, **query: str) -> Object:
        return await self._json("GET", path, query)

    async def find(self, path: str, **query: str) -> Object | None:
        """Like `get`, but None when there is no such object."""
        try:
            return await self.get(path, **query)
        except KubeError as e:
            if e.status == 404:
                return None
            raise

    async def create(self, path: str, body: Object) -> Object:
        return await self._json("POST", path, {}, body)

    async def merge_patch(self, path: str, body: Object, **query: str) -> Object:
        """A body that carries metadata.resourceVersion is refused with 409 when the object has changed since."""
        return await self._json("PATCH", path, query, body, MERGE_PATCH)

    async def apply(
        self, path: str, body: Object, manager: str, *, force: bool = False, dry_run: bool = False
    ) -> Object:
        """Server-side apply: what `manager` applied before and does not any more is removed, if nobody else has it.
        Raises KubeError 409 where others have a field at another value, unless it is forced."""
        query = {
            "fieldManager": manager,
            **({"force": "true"} if force else {}),
            **({"dryRun": "All"} if dry_run else {}),
        }
        return await self._json("PATCH", path, query, body, APPLY_PATCH)

    async def delete(self, path: str, body: Object | None = None) -> bool:
        """False when there is no such object."""
        try:
            await self._json("DELETE", path, {}, body)
        except KubeError as e:
            if e.status == 404:
                return False
            raise
        return True

    async def delete_this(self, path: str, found: Object, **options: Any) -> bool:
        """Deletes the very object that was read. False when it is gone, even where another one of its name has come
        since."""
        try:
            return await self.delete(path, {**options, "preconditions": {"uid": found["metadata"]["uid"]}})
        except KubeError as e:
            if e.status != 409:
                raise
            return False

    async def watch(self, path: str, read_timeout: float, **query: str) -> AsyncIterator[Object]:
        """Events `{"type": …, "object": …}` until the server ends the watch. It outlives the credentials it began with.

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
            raise KubeError(0, "Unreachable", f"the watch of {self.name} broke: {cause(e)}") from None
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
        _, data = await self._answer(method, path, query, body, content_type)
        result: Object = json.loads(data) if data else {}
        return result

    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str | None = None,
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """An answer that is no refusal, read to its end."""
        response = await self._call(method, path, query or {}, body, content_type, CALL_TIMEOUT)
        try:
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError) as e:
            raise self._unreachable(e) from None
        if response.status >= 300:
            raise _error(response, data)
        return response, data

    async def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str | None, timeout: Any
    ) -> aiohttp.ClientResponse:
        """The answer, whatever it says; after a 401, the answer to a second request, if there are other credentials
        now."""
        for again in (True, False):
            api, version = await self._client()
            request = await api.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": content_type or "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
            try:
                response: aiohttp.ClientResponse = (await api.call_api(*request, _request_timeout=timeout)).response
            except aiohttp.ClientSSLError as e:  # the server's authority may have been replaced
                if not (again and await self._renew(version, plugin=False)):
                    raise self._unreachable(e) from None
            except (TimeoutError, aiohttp.ClientError, OSError) as e:
                raise self._unreachable(e) from None
            else:
                if not (response.status == 401 and again and await self._renew(version)):
                    return response
                response.close()
        raise AssertionError("unreachable: the second try returns or raises")

    async def _client(self) -> tuple[ApiClient, int]:
        try:
            return await self._access.client(), self._access.version
        except CredentialsError as e:
            raise _no_credentials(e) from None

    async def _renew(self, version: int, plugin: bool = True) -> bool:
        try:
            return await self._access.renew(version, plugin=plugin)
        except CredentialsError as e:
            raise _no_credentials(e) from None

    def _unreachable(self, e: BaseException, why: str = "") -> KubeError:
        words = why if why and not str(e) else cause(e)
        return KubeError(0, "Unreachable", f"the API server of {self.name} cannot be reached: {words}")


def _no_credentials(e: CredentialsError) -> KubeError:
    return KubeError(401, "NoCredentials", str(e))


def _error(response: aiohttp.ClientResponse, data: bytes) -> KubeError:
    try:
        status = json.loads(data)
    except (ValueError, RecursionError):
        status = None
    status = status if isinstance(status, dict) else {}  # a proxy answers as it likes
    after = response.headers.get("Retry-After")
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return KubeError(
        response.status,
        str(status.get("reason") or response.reason or ""),
        str(status.get("message") or f"HTTP {response.status}"),
        float(after) if after and after.isdecimal() else None,
        [str(c["field"]) for c in (causes if isinstance(causes, list) else ()) if isinstance(c, dict) and "field" in c],
    )


def segment(name: str) -> str:
    """A name as part of a path. Raises KubeError for one that no object can have, before anything is asked."""
    if not is_segment(name):
        raise KubeError(400, "BadRequest", f"not a valid name for an object: {name[:300]!r}")
    return quote(name, safe="")


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{segment(name)}"


def secret_path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/secrets" + (f"/{segment(name)}" if name else "")


class ApiServers:
    """The API servers that this worker knows by name, connected on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[str, Kube] = {}

    async def get(self, name: str) -> Kube:
        """Returns the API server of that name. Raises SettingsError with the known names when the cluster is not in the
        settings, and otherwise what Kube.ready raises."""
        if name not in self._open:
            self._open[name] = Kube.of(self._settings, name)
        await self._open[name].ready()
        return self._open[name]

    async def close(self) -> None:
        for kube in self._open.values():
            await kube.close()
