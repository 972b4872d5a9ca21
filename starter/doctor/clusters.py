"""The doctor's questions to the API servers of clusters, and to the source of secrets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from activities.kube.client import Kube, KubeError
from resources.cluster.accounts import Account
from resources.cluster.news import Reachability
from resources.names import TAG_INSTALLATION
from resources.orphans import SweepReport
from resources.settings import Settings, SettingsError
from starter.doctor.findings import Finding, attempt, clock, ok, problem, warning
from starter.output import moment
from starter.sdk import orphans
from starter.sdk.clusters import Clusters
from starter.sdk.errors import HostlerError
from starter.sdk.kube import connect_cluster
from starter.sdk.results import PendingActivity
from starter.sdk.spelling import counted


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


# See README.md, What a cluster needs.
RIGHTS = (
    *(Right(verb, "nodes") for verb in ("get", "list", "watch", "patch", "delete")),
    *(Right(verb, "pods") for verb in ("list", "delete")),
    Right("create", "pods", subresource="eviction"),
    Right("list", "poddisruptionbudgets", group="policy"),
    *(Right("get", kind) for kind in ("persistentvolumeclaims", "persistentvolumes")),
    *(Right(verb, "volumeattachments", group="storage.k8s.io") for verb in ("list", "delete")),
    *(Right(verb, "secrets", namespace="kube-system") for verb in ("get", "create", "patch", "delete")),
    Right("get", "leases", group="coordination.k8s.io", namespace="kube-node-lease"),
    Right("create", "events"),
)
GRANT = "grant these permissions to the worker's account (README, What a cluster needs)"


async def examine(settings: Settings, name: str, clusters: Clusters | None) -> list[Finding]:
    """Examines a cluster. `clusters` is None where Temporal cannot be asked."""
    subject = f"cluster {name}"
    found = await attempt(subject, partial(_api, settings, name, subject))
    if clusters is not None:
        found += await attempt(subject, partial(_watch, clusters, name, subject))
    return found


async def _api(settings: Settings, name: str, subject: str) -> list[Finding]:
    async with connect_cluster(settings, name) as kube:
        before = datetime.now(UTC)
        version, date = await kube.version()
        after = datetime.now(UTC)
        found = [
            ok(subject, f"its API at {kube.server} answers: Kubernetes {version.get('gitVersion', '(no version)')}")
        ]
        if date is not None:
            found.append(clock(subject, date, before, after, timedelta(seconds=1)))  # HTTP dates are whole seconds
        found.append(await _rights(kube, subject, RIGHTS, "do all that a worker does in a cluster"))
    return found


async def _rights(kube: Kube, subject: str, rights: Sequence[Right], what: str) -> Finding:
    """The rights of the account that these settings use; a worker with other settings has its own."""
    try:
        allowed = await asyncio.gather(*(_may(kube, right) for right in rights))
    except KubeError as e:
        if e.status == 0:
            raise
        return warning(subject, f"its permissions cannot be checked: {e}")
    missing = [str(right) for right, may in zip(rights, allowed, strict=True) if not may]
    if missing:
        return problem(subject, f"the account of these settings may not {', '.join(missing)}", GRANT)
    return ok(subject, f"the account of these settings may {what}")


async def _may(kube: Kube, right: Right) -> bool:
    """Whether this account has the right, by a SelfSubjectAccessReview."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {k: v for k, v in asdict(right).items() if v}},
    }
    answer = await kube.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"].get("allowed"))


# -- the watch --------------------------------------------------------------------------------------------------------


async def _watch(clusters: Clusters, name: str, subject: str) -> list[Finding]:
    """What Hostler's own watch of the cluster says."""
    found, now = await clusters.describe(name), datetime.now(UTC)
    state, machines = found.state, found.summary.machines
    if found.no_answer:
        return [problem(subject, f"its watch does not answer: {found.no_answer}", "see the task queues")]
    if state is None:
        if machines:
            words = f"it is not watched, although it has {counted(machines)}"
            return [problem(subject, words, "apply one of its machines again: that starts the watch")]
        return [ok(subject, "it is not watched yet: it has no machines, and the first one starts the watch")]
    if state.parked:
        again = f"with a fixed worker: hostler renew cluster {name}"
        return [problem(subject, f"its watch is parked: {state.parked}", again)]
    words = f"watched, with {counted(machines)}"
    if state.api is not None and not state.api.reachable:
        since = f"since {moment(state.api.began, now)}"
        what = "is refused by the API" if state.api.refused else "cannot reach the API"
        return [problem(subject, f"its watch {what} {since}: {state.api.message}", "see the worker's log")]
    since = (
        f"; the API has answered it since {moment(state.api.time, now)}"
        if state.api
        else "; its watch has not reported yet"
    )
    return [
        ok(subject, words + since),
        *_troubles(found.pending, subject),
        *_clouds(state.clouds, subject, now),
        *await _installations(clusters, name, list(state.accounts.values()), subject),
    ]


def _troubles(pending: Sequence[PendingActivity], subject: str) -> Iterator[Finding]:
    for p in pending:
        if p.last_failure and not p.waits and not p.running:
            yield warning(subject, f"{p.type} fails (attempt {p.attempt}): {p.last_failure}", "see the worker's log")


def _clouds(clouds: Mapping[str, Reachability], subject: str, now: datetime) -> Iterator[Finding]:
    """What the watches of its cloud accounts say."""
    for account, it in sorted(clouds.items()):
        if not it.reachable:
            words = f"its watch cannot reach the cloud {account} since {moment(it.began, now)}: {it.message}"
            yield problem(subject, words, "check the credentials and the worker's log")


async def _installations(clusters: Clusters, name: str, accounts: Sequence[Account], subject: str) -> list[Finding]:
    """Whether another Hostler has a cluster of this name in the same accounts, and which VMs do not say whose they
    are."""
    try:
        report = await orphans.sweep(clusters.connection, name, accounts) if accounts else SweepReport()
    except HostlerError as e:
        return [warning(subject, f"the owners of the VMs in its accounts are not known: {e}", "see the task queues")]
    found = []
    for key, count in sorted(report.others.items()):
        words = f"another installation has a cluster with this name in {key}: {vms(count)}"
        found.append(warning(subject, words, "rename one of the two (docs/adopt.md, Two installations)"))
    if report.untagged:
        words = f"{vms(report.untagged)} without the tag {TAG_INSTALLATION}, created before there was this tag"
        found.append(
            warning(subject, words, "nothing: it is added when a tag of their class changes, or with an adoption")
        )
    return found


def vms(count: int) -> str:
    return f"{count} VM{'s' if count != 1 else ''}"


# -- secrets ----------------------------------------------------------------------------------------------------------


async def secrets(settings: Settings) -> list[Finding]:
    """Whether the source can be read; no secret is read."""
    source = settings.secrets
    if source.source == "environment":
        return [ok("secrets", "from the worker's environment, which only the worker sees")]
    if source.source == "directory":
        return [_directory(settings)]
    name = source.cluster or settings.default_cluster
    namespaces = sorted({n for c in settings.clusters.values() for n in c.namespaces} or {"default"})
    rights = [Right("get", "secrets", namespace=n) for n in namespaces]
    try:
        async with connect_cluster(settings, name) as kube:
            what = (
                f"read Secrets of cluster {name} in namespace{'s' if len(rights) > 1 else ''} {', '.join(namespaces)}"
            )
            return [await _rights(kube, "secrets", rights, what)]
    except SettingsError as e:
        return [problem("secrets", f"from cluster {name}: {e}", "set secrets.cluster to one of them")]


def _directory(settings: Settings) -> Finding:
    if settings.secrets.directory is None:
        return problem("secrets", "secrets.source is directory, but secrets.directory is not set", "set it")
    folder = settings.path(settings.secrets.directory)
    if not folder.is_dir():
        return problem(
            "secrets",
            f"{folder}: there is no such directory on this machine",
            "create it, or correct secrets.directory",
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        return problem("secrets", f"{folder} cannot be read", "let the account that runs the worker read its files")
    return ok("secrets", f"from {folder}, which can be read here")
