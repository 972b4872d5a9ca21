"""A cluster's API for the entry points: the client that the activities use, with its errors in words for people."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from activities.kube.client import Kube, KubeError
from resources.settings import Settings, SettingsError
from starter.sdk.errors import HostlerError, Unreachable

T = TypeVar("T")

PATIENCE = 8.0
"""Seconds that an API server has for an answer."""


async def soon(kube: Kube, answer: Awaitable[T]) -> T:
    """The answer. Raises Unreachable where it does not come soon: a server that hangs must not hold up a person, or the
    rest of a report, for as long as a worker would wait."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await answer
    except TimeoutError:
        words = f"its API at {kube.server} does not answer: nothing came within {PATIENCE:g} s"
        raise Unreachable(f"cluster {kube.name}: {words}") from None


@asynccontextmanager
async def connect_cluster(settings: Settings, name: str) -> AsyncIterator[Kube]:
    """Connects to the API of a cluster in the settings: in-cluster access, else a kubeconfig (default: kubectl's own).

    Raises SettingsError for an unknown cluster, HostlerError for a kubeconfig that does not work, and what `explained`
    raises for what the body leaves of KubeErrors.
    """
    kube = Kube.of(settings, name, interactive=sys.stdin.isatty())
    try:
        try:
            await kube.ready()
        except (SettingsError, KubeError) as e:
            raise HostlerError(str(e)) from None
        with explained(kube):
            yield kube
    finally:
        await kube.close()


@contextmanager
def explained(kube: Kube) -> Iterator[None]:
    """Raises Unreachable where the API server does not answer, or only with errors of its own (5xx), and HostlerError
    for what it refuses."""
    try:
        yield
    except KubeError as e:
        if e.status == 0:
            raise Unreachable(f"cluster {kube.name}: its API at {kube.server} does not answer: {e}") from e
        if e.status >= 500:
            words = f"its API at {kube.server} answers with errors: {e.status} {e.reason}: {e}"
            raise Unreachable(f"cluster {kube.name}: {words}") from e
        raise HostlerError(f"cluster {kube.name}: {e.status} {e.reason}: {e}") from e
