"""The task queues of an installation: who polls each, and what the server lets through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from resources import names
from resources.settings import Role, Settings


@dataclass(frozen=True)
class Queue:
    name: str
    role: Role
    """The role of the workers that poll it."""
    per_second: float | None = None
    """Activities a second, all together. None: no limit."""
    per_account: float | None = None
    """Activities a second for each cloud account, as the settings want it."""


def queues(settings: Settings, clusters: Iterable[str]) -> Iterator[Queue]:
    """The queues that workers with these settings poll between them, for these of their clusters."""
    prefix = settings.queue_prefix
    yield Queue(names.workflow_queue(prefix), "workflows")
    for cluster in clusters:
        yield Queue(names.cluster_queue(cluster, prefix), "cluster")
        yield Queue(names.watch_queue(cluster, prefix), "watch")
        yield Queue(names.drain_queue(cluster, prefix), "drain")
    for provider, cloud in settings.clouds.items():
        name = names.cloud_queue(provider, prefix)
        yield Queue(name, "cloud", cloud.calls_per_second, cloud.calls_per_second_per_account)
