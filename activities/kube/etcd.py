"""etcd's own API as activities use it: the JSON gateway of the v3 API, over TLS with a client certificate.

Source: etcd's api/etcdserverpb/rpc.proto; every server has the gateway unless it runs with --enable-grpc-gateway=false.
docs/dependencies.md says why no client library is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from resources.base import cut
from resources.errors import ErrorClass
from resources.settings import EtcdSettings, SettingsError
from resources.words import cause

Reply = dict[str, Any]
T = TypeVar("T")

CALL_TIMEOUT = 5.0  # seconds; etcd itself gives a request up after 5 s and two elections
_CLASS_OF_CODE = {
    3: ErrorClass.INVALID,
    5: ErrorClass.NOT_FOUND,
    7: ErrorClass.AUTH,
    9: ErrorClass.CONFLICT,
    12: ErrorClass.INVALID,
    16: ErrorClass.AUTH,
}
"""Classes by gRPC code, which the gateway passes on. All others pass: there is no leader, or no quorum."""


class EtcdError(Exception):
    """etcd refused, or could not be reached."""

    def __init__(self, message: str, error_class: ErrorClass = ErrorClass.TRANSIENT) -> None:
        super().__init__(cut(message))
        self.message = cut(message)
        self.error_class = error_class


class Etcd:
    """The members of one etcd. Methods take the client URL of the member that is asked, and raise EtcdError."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def members(self, url: str, *, agreed: bool) -> list[Reply]:
        """The list of members. `agreed`: as a quorum knows it now, which a learner does not tell; otherwise as this
        member remembers it."""
        answer = await self._call(url, "cluster/member/list", linearizable=agreed)
        members: list[Reply] = answer.get("members") or []
        return members

    async def status(self, url: str) -> Reply:
        """What the member says of itself."""
        return await self._call(url, "maintenance/status")

    async def move_leader(self, url: str, to: str) -> None:
        """Makes another member the leader; only the leader, who is asked, can."""
        await self._call(url, "maintenance/transfer-leadership", targetID=to)

    async def remove(self, url: str, member: str) -> None:
        await self._call(url, "cluster/member/remove", ID=member)

    async def _call(self, url: str, method: str, **body: object) -> Reply:
        try:
            # A redirect would lead the certificate elsewhere.
            request = self._session.post(f"{url.rstrip('/')}/v3/{method}", json=body, allow_redirects=False)
            async with request as response:
                status, data = response.status, await response.read()
        except TimeoutError:
            raise EtcdError(f"{url}: no answer within {CALL_TIMEOUT:g} s") from None
        except aiohttp.ClientConnectorCertificateError as e:  # its name or its authority is another one
            raise EtcdError(f"{url}: {cause(e.certificate_error)}", ErrorClass.AUTH) from None
        except aiohttp.ClientConnectorError as e:
            raise EtcdError(f"{url}: {e.os_error.strerror or cause(e.os_error)}") from None
        except (aiohttp.ClientError, OSError, ValueError) as e:
            raise EtcdError(f"{url}: {cause(e)}") from None
        answer = _json(data)
        if status >= 300:
            code = answer.get("code")
            words = str(answer.get("message") or answer.get("error") or f"HTTP {status}")
            known = _CLASS_OF_CODE.get(code, ErrorClass.TRANSIENT) if isinstance(code, int) else ErrorClass.INVALID
            raise EtcdError(f"{url}: {words}", known)
        return answer


def _json(data: bytes) -> Reply:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


@contextlib.asynccontextmanager
async def connected(settings: EtcdSettings, path: Callable[[Path], Path]) -> AsyncIterator[Etcd]:
    """Connections to an etcd, with the certificates as they are now. `path`: Settings.path. Raises SettingsError."""
    try:
        tls = ssl.create_default_context(cafile=str(path(settings.authority)))
        tls.load_cert_chain(path(settings.certificate), path(settings.key), password=lambda: "")
    except (OSError, ValueError) as e:  # ssl's own errors are OSErrors; none quotes a file's content
        files = f"{settings.authority}, {settings.certificate}, {settings.key}"
        raise SettingsError(f"the etcd of the settings: one of {files} cannot be used: {cause(e)}") from None
    connector = aiohttp.TCPConnector(ssl=tls)
    timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Etcd(session)


async def all_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T | EtcdError]:
    """Makes calls side by side; the answers in their order, or why there is none."""

    async def made(call: Coroutine[Any, Any, T]) -> T | EtcdError:
        try:
            return await call
        except EtcdError as e:
            return e

    return list(await asyncio.gather(*map(made, calls)))


async def first_of(calls: Iterable[Coroutine[Any, Any, T]]) -> T:
    """Makes the same call of several members, and returns the first answer. Raises EtcdError, with what each of them
    said, where there is none."""
    tasks = [asyncio.create_task(call) for call in calls]
    failures: list[str] = []
    try:
        for call in asyncio.as_completed(tasks):
            try:
                return await call
            except EtcdError as e:
                failures.append(e.message)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    raise EtcdError("; ".join(sorted(failures)))
