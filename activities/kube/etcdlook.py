"""A look at the etcd of a control plane: its members, how each one is, and whose machine it runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from activities.kube.client import Kube, Object
from activities.kube.etcd import Etcd, EtcdError, Reply, all_of, first_of
from activities.kube.looks import every_node
from resources.control_plane.etcd import EtcdMember, EtcdView
from resources.names import CONTROL_PLANE_LABELS, MACHINE_NAME_LABEL

CLIENT_PORT = 2379
NO_LEADER = "etcdserver: no leader"
"""What a member says of itself where nobody leads: that is no fault of it."""


@dataclass(frozen=True)
class EtcdSeen:
    view: EtcdView
    urls: Mapping[str, str]
    """Where each healthy member is asked, by its id."""


async def look(etcd: Etcd, urls: list[str], nodes: list[Object], seen: EtcdView | None) -> EtcdSeen:
    """Looks at every member: the list that a quorum agrees on, or else what one remembers; and how each one is."""
    listed, quorate, trouble = await _list(etcd, urls)
    if listed is None:
        known = seen.members if seen is not None else []
        return EtcdSeen(EtcdView(members=known, quorate=False, trouble=trouble), {})
    asked = {str(m["ID"]): (m.get("clientURLs") or [""])[0] for m in listed}
    answers = dict(zip(asked, await all_of(_status(etcd, url) for url in asked.values()), strict=True))
    leader = _leader(answers.values())
    whose = owners(listed, nodes, seen)
    members = [
        EtcdMember(
            id=id,
            name=m.get("name") or "",
            machine=whose[id][0],
            node=whose[id][1],
            leader=id == leader,
            learner=bool(m.get("isLearner")),
            trouble=_trouble(answers[id], leader),
        )
        for id, m in zip(asked, listed, strict=True)
    ]
    return EtcdSeen(
        EtcdView(members=members, quorate=quorate and bool(leader)), {m.id: asked[m.id] for m in members if m.healthy}
    )


async def _list(etcd: Etcd, urls: list[str]) -> tuple[list[Reply] | None, bool, str]:
    """The members, whether a quorum agrees on them, and why there are none."""
    if not urls:
        return None, False, "no Node of the control plane has an InternalIP, and the settings name no endpoints"
    try:
        return await first_of(etcd.members(url, agreed=True) for url in urls), True, ""
    except EtcdError:
        pass
    try:
        return await first_of(etcd.members(url, agreed=False) for url in urls), False, ""
    except EtcdError as e:
        return None, False, e.message


async def _status(etcd: Etcd, url: str) -> Reply:
    if not url:
        raise EtcdError("it has not started")
    return await etcd.status(url)


def _leader(answers: Iterable[Reply | EtcdError]) -> str:
    """The leader that most members follow; "" where there is none."""
    said = [str(a.get("leader") or "0") for a in answers if not isinstance(a, EtcdError)]
    followed = Counter(leader for leader in said if leader != "0")
    return followed.most_common(1)[0][0] if followed else ""


def _trouble(answer: Reply | EtcdError, leader: str) -> str:
    if isinstance(answer, EtcdError):
        return answer.message
    if errors := [str(e) for e in answer.get("errors") or () if leader or e != NO_LEADER]:
        return ", ".join(errors)  # an alarm: out of space, a broken store
    return "" if str(answer.get("leader") or "0") == (leader or "0") else "it does not follow the leader of the others"


# -- whose a member is ------------------------------------------------------------------------------------------------


async def control_plane_nodes(kube: Kube) -> list[Object]:
    """The Nodes with the role of the control plane, which no kubelet can give itself (NodeRestriction)."""
    found: dict[str, Object] = {}
    for label in CONTROL_PLANE_LABELS:
        async for node in every_node(kube, labelSelector=label):
            found[node["metadata"]["name"]] = node
    return list(found.values())


def endpoints(nodes: Iterable[Object]) -> list[str]:
    """Where kubeadm has etcd serve clients."""
    internal = [a["address"] for n in nodes for a in _addresses(n) if a.get("type") == "InternalIP"]
    return [f"https://{f'[{a}]' if ':' in a else a}:{CLIENT_PORT}" for a in internal if _is_ip(a)]


def owners(members: Iterable[Reply], nodes: list[Object], seen: EtcdView | None) -> dict[str, tuple[str, str]]:
    """The machine that each member runs on and that machine's Node, by the member's id; "" where there is none.

    The Node has an address of the member, or else its name, as kubeadm names members. A member never moves to another
    machine: what was known of it holds when the Node is gone, and when a new VM has got the address.
    """
    known = {m.id: m.machine for m in seen.members} if seen is not None else {}
    at = {a["address"]: n["metadata"] for n in nodes for a in _addresses(n)}
    named = {n["metadata"]["name"]: n["metadata"] for n in nodes}
    found: dict[str, tuple[str, str]] = {}
    for member in members:
        urls = [*(member.get("peerURLs") or ()), *(member.get("clientURLs") or ())]
        node = next((at[host] for url in urls if (host := urlsplit(url).hostname) in at), None)
        node = node or named.get(member.get("name") or "") or {"name": ""}
        here = str((node.get("labels") or {}).get(MACHINE_NAME_LABEL, ""))
        machine = known.get(id := str(member["ID"])) or here
        found[id] = machine, node["name"] if machine == here else ""
    return found


def _addresses(node: Object) -> list[dict[str, str]]:
    return (node.get("status") or {}).get("addresses") or []


def _is_ip(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False
