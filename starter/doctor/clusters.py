"""The doctor's questions to the API servers of clusters, and to Hostler's own watch of each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from activities.kube.client import Kube, KubeError
from resources.cluster.accounts import Account
from resources.cluster.news import Reachability
from resources.cluster.state import ClusterState
from resources.names import TAG_INSTALLATION
from resources.orphans import Orphan, SweepReport
from resources.reasons import Situation, next_step
from resources.rights import CONFIG_NEEDS, Need, Right, needs
from resources.settings import Settings
from resources.words import utc
from starter.doctor.findings import Finding, Level, attempt, clock, few, ok, problem, verdict, warning
from starter.output import moment
from starter.sdk import orphans
from starter.sdk.clusters import Clusters
from starter.sdk.errors import HostlerError
from starter.sdk.kube import connect_cluster, soon
from starter.sdk.results import PendingActivity
from starter.sdk.spelling import counted

T = TypeVar("T")


HERE = Situation(page="doctor")
GRANT_CONFIGS = "kubectl apply -f deploy/rbac/machine-configs.yaml: it has the role {}"
GRANT = "bind the role {} of deploy/rbac to it (docs/production.md, Rights in the clusters)"

SWEEP_PATIENCE = 10.0
"""Seconds for the search for VMs without an owner: a cloud that hangs must not hold up the report."""
FOR_CONFIGS = {need.granted_by for need in CONFIG_NEEDS}


async def examine(settings: Settings, name: str, clusters: Clusters | None, served: bool) -> list[Finding]:
    """Examines a cluster: its API from here, and what its watch says; one verdict on each thing. `clusters` is None
    where Temporal cannot be asked; `served`: whether a worker runs workflows. Accounts of clouds that the watch speaks
    of have the subject `cloud …`."""
    subject = f"cluster {name}"
    seen = ApiSeen()
    found = await attempt(subject, partial(_api, settings, name, subject, seen))
    if not seen.api:  # it could not even be asked
        seen.api, found = found, []
    if clusters is not None:
        found += await attempt(subject, partial(_watch, clusters, name, subject, seen, served))
    return [*verdict(seen.api), *found]


@dataclass
class ApiSeen:
    """What is said of the API itself, from here and by the watch."""

    api: list[Finding] = field(default_factory=list)


async def _api(settings: Settings, name: str, subject: str, seen: ApiSeen) -> list[Finding]:
    """What the API says to us. It is not asked where a worker of these settings does not ask it either."""
    wanted = [need for role in settings.worker.roles for need in needs(role)]
    if settings.cluster(name).machine_configs.enabled:
        wanted += [need for role in settings.worker.roles for need in needs(role, feature="machineConfigs")]
    if not wanted:
        words = f"a worker with the role {', '.join(settings.worker.roles)} asks nothing of its API"
        seen.api.append(ok(subject, words))
        return []
    async with connect_cluster(settings, name) as kube:
        before = datetime.now(UTC)
        version, date = await soon(kube, kube.version())
        after = datetime.now(UTC)
        release = version.get("gitVersion", "(no version)")
        try:
            named = ", ".join(dict.fromkeys(need.role for need in wanted))
            what = f"do all that a worker does in a cluster (roles {named})"
            rights = await rights_of(kube, subject, wanted, what)
        except KubeError as e:
            if not e.status:
                raise
            words = f"its API at {kube.server} answers with errors: {e.status} {e.reason}: {e}"
            seen.api.append(problem(subject, words, "look at the API server's own log, and at its storage"))
            return []
        seen.api.append(ok(subject, f"its API at {kube.server} answers: Kubernetes {release}"))
    clocks = [clock(subject, date, before, after, timedelta(seconds=1))] if date else []  # HTTP dates: whole seconds
    return [*clocks, *rights]


async def rights_of(kube: Kube, subject: str, wanted: Sequence[Need], what: str) -> list[Finding]:
    """The rights of the account that these settings use, role by role; a worker with other settings has its own."""
    rights = list(dict.fromkeys(right for need in wanted for right in need.rights))
    try:
        allowed = await soon(kube, asyncio.gather(*(_may(kube, right) for right in rights)))
    except KubeError as e:
        if e.silent:
            raise
        return [warning(subject, f"its permissions cannot be checked: {e}")]
    lacking = {right for right, may in zip(rights, allowed, strict=True) if not may}
    return list(_lacking(subject, wanted, lacking)) or [ok(subject, f"the account of these settings may {what}")]


def _lacking(subject: str, wanted: Sequence[Need], lacking: Collection[Right]) -> Iterator[Finding]:
    """What will not work, and for want of which rights: a finding for each role."""
    for role, granted_by in dict.fromkeys((need.role, need.granted_by) for need in wanted):
        why: dict[str, list[str]] = {}
        for need in wanted:
            missing = [str(right) for right in need.rights if right in lacking]
            if need.granted_by == granted_by and missing:
                why.setdefault(need.purpose, []).extend(missing)
        if why:
            words = f"with the account of these settings, a worker with the role {role} cannot"
            lines = [f"{purpose}: it may not {', '.join(missing)}" for purpose, missing in why.items()]
            remedy = GRANT_CONFIGS if granted_by in FOR_CONFIGS else GRANT
            yield problem(subject, "\n".join([words, *lines]), remedy.format(granted_by))


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


async def _watch(clusters: Clusters, name: str, subject: str, seen: ApiSeen, served: bool) -> list[Finding]:
    """What Hostler's own watch of the cluster says."""
    found, now = await clusters.describe(name), datetime.now(UTC)
    state, machines = found.state, found.summary.machines
    if found.no_answer:
        words = f"its watch does not answer: {found.no_answer}"
        if not served:  # which is a problem of its own
            return [warning(subject, words, "run a worker: hostler worker; it answers then")]
        return [problem(subject, words, "read the log of the worker, and end it if it hangs")]
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
        what = "is refused by the API" if state.api.refused else "cannot reach the API"
        words = f"its watch {what} since {moment(state.api.began, now)}: {state.api.message}"
        seen.api.append(problem(subject, words, next_step(_reason(state.api), name, name, at=HERE)))
        return _paused(state, subject, name)
    answered = (
        f"; the API has answered it since {moment(state.api.time, now)}"
        if state.api
        else "; its watch has not reported yet"
    )
    seen.api.append(ok(subject, words + answered))
    return [
        *_paused(state, subject, name),
        *_troubles(found.pending, subject),
        *_clouds(state.clouds, name, now),
        *await _installations(clusters, name, list(state.accounts.values()), subject),
    ]


def _troubles(pending: Sequence[PendingActivity], subject: str) -> Iterator[Finding]:
    for p in pending:
        if p.last_failure and not p.waits and not p.running:
            yield warning(subject, f"{p.type} fails (attempt {p.attempt}): {p.last_failure}", "see the worker's log")


def _reason(news: Reachability) -> str:
    return "APIRefused" if news.refused else "APIUnreachable"


def _paused(state: ClusterState, subject: str, name: str) -> list[Finding]:
    if state.pause is None:
        return []
    words = f"it is paused {state.pause.words}: its pools create, delete and replace no machines"
    return [warning(subject, words, f"hostler resume cluster {name}")]


def _clouds(clouds: Mapping[str, Reachability], name: str, now: datetime) -> Iterator[Finding]:
    """What the watches of its cloud accounts say."""
    for account, it in sorted(clouds.items()):
        if not it.reachable:
            words = f"the watch of cluster {name} cannot list account {account} since {moment(it.began, now)}: "
            do = next_step(it.cloud_reason, name, name, at=HERE)
            yield problem(f"cloud {provider_of(account)}", words + it.message, do)


def provider_of(account: str) -> str:
    """The provider as the settings write it, from Account.key."""
    return account.partition("/")[0].lower()


async def _installations(clusters: Clusters, name: str, accounts: Sequence[Account], subject: str) -> list[Finding]:
    """Whether another Hostler has a cluster of this name in the same accounts, and which VMs do not say whose they
    are."""
    report = SweepReport()
    try:
        if accounts:
            report = await orphans.sweep(clusters.connection, name, accounts, SWEEP_PATIENCE)
    except HostlerError as e:
        words = f"the owners of the VMs in its accounts are not known: {e}"
        longer = f"hostler get orphans --cluster {name} waits longer"
        return [warning(subject, words, f"see the task queues and the clouds; {longer}")]
    found = [*_orphans(name, report, subject)]
    for key, count in sorted(report.others.items()):
        words = f"another installation has a cluster with this name in {key}: {vms(count)}"
        found.append(warning(subject, words, "rename one of the two (docs/adopt.md, Two installations)"))
    if report.untagged:
        words = f"{vms(report.untagged)} without the tag {TAG_INSTALLATION}, created before there was this tag"
        found.append(
            warning(subject, words, "nothing: it is added when a tag of their class changes, or with an adoption")
        )
    return found


def _orphans(name: str, report: SweepReport, subject: str) -> Iterator[Finding]:
    """VMs that nothing manages, and accounts of which nobody knows."""
    every = f"hostler get orphans --cluster {name}"
    if orphans := sorted(report.orphans, key=lambda o: (o.doubtful, o.vm.machine)):
        first = orphans[0].vm.machine or "NAME"
        lines = [f"{o.vm.provider_id}, machine {o.vm.machine or 'unknown'}{_closed(o)}" for o in orphans]
        words = f"{vms(len(lines))} that no running workflow owns"
        adopt = f"hostler adopt machine {first} --cluster {name}, or delete it in the cloud; {every} shows all"
        yield Finding(subject, _gravity(orphans), "\n".join([words, *few(lines)]), adopt)
    for key, why in sorted(report.unread.items()):
        yield warning(subject, f"whether VMs of account {key} have an owner is not known: {why}", every)


def _gravity(orphans: Sequence[Orphan]) -> Level:
    return Level.WARNING if all(o.doubtful for o in orphans) else Level.PROBLEM


def _closed(orphan: Orphan) -> str:
    if not orphan.workflow:
        return ", which never had a workflow here"
    return f", whose workflow ended at {utc(orphan.closed)} ({orphan.workflow})"


def vms(count: int) -> str:
    return f"{count} VM{'s' if count != 1 else ''}"
