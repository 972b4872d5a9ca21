"""A cluster's API for the entry points: the client that the activities use, with its errors in words for people."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from activities.kube.client import Kube, KubeError
from resources.settings import Settings, SettingsError
from starter.sdk.errors import HostlerError, Unreachable


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
            raise HostlerError(f"{e}: check clusters.{name}.kubeconfig in the settings") from None
        with explained(kube):
            yield kube
    finally:
        await kube.close()


@contextmanager
def explained(kube: Kube) -> Iterator[None]:
    """Raises Unreachable where the API server does not answer, and HostlerError for what it refuses."""
    try:
        yield
    except KubeError as e:
        if e.status == 0:
            raise Unreachable(f"cluster {kube.name}: its API at {kube.server} does not answer: {e}") from e
        raise HostlerError(f"cluster {kube.name}: {e.status} {e.reason}: {e}") from e
