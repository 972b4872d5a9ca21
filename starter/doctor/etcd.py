"""The doctor's questions about an etcd that a control plane's guard looks after: whether it can be reached by these
settings, and how its members are. What a worker says of it is a wait of the control plane (waiting.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from activities.kube.etcd import EtcdError, all_of, connected
from activities.kube.etcdlook import EtcdSeen, control_plane_nodes, endpoints, look
from resources.names import MACHINE_NAME_LABEL
from resources.owner import CONTROL_PLANE
from resources.settings import EtcdSettings, Settings
from starter.doctor.findings import Finding, attempt, ok, problem, warning
from starter.sdk.client import HostlerClient
from starter.sdk.kube import connect_cluster, soon

PAGE = "docs/control-plane.md, etcd"
ROLE = "cluster"
"""The role of the worker that looks at etcd."""


async def examine(settings: Settings, name: str, client: HostlerClient) -> list[Finding]:
    """Examines the etcd of a cluster whose control plane guards it; nothing is said of any other."""
    plane = await client.control_planes.current(CONTROL_PLANE.only or "", cluster=name)
    if plane is None or not plane.spec.etcd_guard:
        return []
    subject, reached = f"etcd of {name}", settings.cluster(name).etcd
    if ROLE not in settings.worker.roles:
        words = "its guard is on; only a worker with the role cluster looks at it, which these settings are not for"
        return [ok(subject, words)]
    if reached is None:
        words = f"its guard is on, and these settings have no clusters.{name}.etcd: no machine of the set is replaced"
        return [problem(subject, words, f"name a client certificate, its key and etcd's authority there ({PAGE})")]
    if unread := list(_unread(settings, reached)):
        words = f"its guard is on, and files of clusters.{name}.etcd cannot be read: {'; '.join(unread)}"
        return [problem(subject, words, f"mount them where a worker with the role cluster runs ({PAGE})")]
    return await attempt(subject, partial(_tried, settings, name, subject, reached))


def _unread(settings: Settings, reached: EtcdSettings) -> Iterator[str]:
    for key in ("certificate", "key", "authority"):
        path = settings.path(getattr(reached, key))
        try:
            with path.open("rb"):
                pass
        except OSError as e:
            yield f"{key}: {path}: {e.strerror}"


@dataclass(frozen=True)
class Tried:
    silent: list[str]
    """What those of the endpoints said that did not answer."""
    seen: EtcdSeen


async def _tried(settings: Settings, name: str, subject: str, reached: EtcdSettings) -> list[Finding]:
    """What etcd answers from here, with the certificate of these settings. Raises HostlerError, SettingsError."""
    async with connect_cluster(settings, name) as kube:
        nodes = await soon(kube, control_plane_nodes(kube))
    urls = reached.endpoints or endpoints(nodes)
    async with connected(reached, settings.path) as etcd:
        answers = await all_of(etcd.status(url) for url in urls)
        seen = await look(etcd, urls, nodes, None)
    silent = [answer.message for answer in answers if isinstance(answer, EtcdError)]
    return list(_said(subject, urls, Tried(silent, seen)))


def _said(subject: str, urls: Sequence[str], tried: Tried) -> Iterator[Finding]:
    view, silent = tried.seen.view, tried.silent
    if view.trouble:
        todo = (
            "compare clusters.<name>.etcd with etcd: its client URLs, its authority, a certificate that this one signed"
        )
        yield problem(subject, f"no member answers: {view.trouble}", f"{todo} ({PAGE})")
        return
    ill = [f"{m.called} ({m.trouble})" for m in view.voters if not m.healthy]
    if not view.quorate:
        words = f"it has no quorum: {len(view.voters) - len(ill)} of {len(view.voters)} voting members answer"
        todo = "start the others, or restore etcd from a snapshot: until then no machine of the set goes"
        yield problem(subject, "; ".join([words, *ill]), todo)
        return
    if ill:
        todo = "start it, or delete its machine: hostler delete machine NAME"
        yield problem(subject, f"members that vote are not healthy: {', '.join(ill)}", todo)
    elif silent:
        words = f"its members are well, and some of its endpoints do not answer: {'; '.join(silent)}"
        yield warning(subject, words, "correct endpoints in the settings, or leave them out: Nodes have the addresses")
    if strays := [m.called for m in view.members if not m.machine]:
        words = f"members of no machine that is known: {', '.join(strays)}; the guard removes none of them"
        todo = f"compare the Nodes' addresses and their label {MACHINE_NAME_LABEL}, or adopt the VMs: hostler adopt"
        yield warning(subject, words, todo)
    if not (ill or silent or strays):
        yield ok(subject, f"{len(view.voters)} members vote, and all are healthy; asked at {', '.join(urls)}")
