"""The task queues of an installation: who polls each, and what the server lets through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

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
    provider: str = ""
    """The cloud's name in the settings, of a cloud's queue."""
    accounts: tuple[str, ...] | None = None
    """Patterns of the accounts' keys, of a queue for some accounts of its cloud alone."""

    def takes(self, account: str) -> bool:
        """Whether it is this account's own. Secrets' names are lower-case, so case does not count."""
        return any(fnmatchcase(account.lower(), pattern.lower()) for pattern in self.accounts or ())


def queues(settings: Settings, clusters: Iterable[str]) -> Iterator[Queue]:
    """The queues that workers with these settings poll between them, for these of their clusters."""
    prefix = settings.queue_prefix
    yield Queue(names.workflow_queue(prefix), "workflows")
    for cluster in clusters:
        yield Queue(names.cluster_queue(cluster, prefix), "cluster")
        yield Queue(names.watch_queue(cluster, prefix), "watch")
        yield Queue(names.drain_queue(cluster, prefix), "drain")
    yield from cloud_queues(settings)


def cloud_queues(settings: Settings) -> Iterator[Queue]:
    """The queues of each cloud, first the one that its accounts share."""
    for provider, cloud in settings.clouds.items():
        each = cloud.calls_per_second_per_account
        shared = names.cloud_queue(provider, settings.queue_prefix)
        yield Queue(shared, "cloud", cloud.calls_per_second, each, provider)
        for own, queue in cloud.queues.items():
            name = names.cloud_queue(provider, settings.queue_prefix, own)
            yield Queue(name, "cloud", queue.calls_per_second, each, provider, tuple(queue.accounts))


class Routes:
    """Which task queue an account's calls go to."""

    def __init__(self, settings: Settings) -> None:
        self._own: dict[str, list[Queue]] = {}
        """Accounts' own queues, by the queue that all accounts of a cloud share."""
        for queue in cloud_queues(settings):
            if queue.accounts:
                shared = names.cloud_queue(queue.provider, settings.queue_prefix)
                self._own.setdefault(shared, []).append(queue)

    def __bool__(self) -> bool:
        return bool(self._own)

    def queue(self, shared: str, account: str) -> str:
        """The account's own queue where the settings give it one, else the one of all. `account` is Account.key."""
        return next((queue.name for queue in self._own.get(shared, ()) if queue.takes(account)), shared)
