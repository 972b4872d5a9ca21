"""The owner of a Node, and which Node counts where a VM has several. Pure: it is given what calls have read.

A Node is a VM's by its providerID. Names are reused (machine-controller-manager #633), so one without a providerID is a
machine's only if it is the very object, by uid, that the machine has known by its providerID before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from resources.base import EARLIEST, format_duration, read_time
from resources.clouds import provider_key
from resources.words import utc

Node = dict[str, Any]


class Whose(StrEnum):
    OURS = "ours"
    ANOTHERS = "another's"
    UNSURE = "unsure"
    """The Node has no providerID yet: until somebody gives it one, nobody can say."""


def whose(node: Node, provider_id: str | None, uid: str | None) -> Whose:
    """The owner of a Node that has the name of a machine's.

    `provider_id`: the machine's VM. `uid`: of the Node object that the machine knows as its own; empty: it knows none.
    """
    if provider_id_of(node):
        return Whose.OURS if is_of(node, provider_id) else Whose.ANOTHERS
    return Whose.OURS if uid and node["metadata"].get("uid") == uid else Whose.UNSURE


def provider_id_of(node: Node) -> str:
    return str((node.get("spec") or {}).get("providerID") or "")


def is_of(node: Node, provider_id: str | None) -> bool:
    theirs = provider_id_of(node)
    return bool(theirs and provider_id) and provider_key(theirs) == provider_key(provider_id or "")


def ready_status(node: Node) -> str:
    """Status of the condition Ready as it is: True, False, Unknown; "" when nobody has set it."""
    return str(ready_condition(node).get("status", ""))


def ready_condition(node: Node) -> dict[str, Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == "Ready"), {})


# -- several Nodes of one VM -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rival:
    """One of the Nodes that have a VM's providerID."""

    name: str
    uid: str
    created: datetime
    ready: bool
    silent: bool = False
    """Its kubelet's Lease has stopped. Unknown is not silent."""

    @classmethod
    def of(cls, node: Node, silent: bool = False) -> Rival:
        metadata = node["metadata"]
        created = read_time(metadata["creationTimestamp"]) or EARLIEST
        return cls(metadata["name"], metadata.get("uid", ""), created, ready_status(node) == "True", silent)


def the_one(rivals: Iterable[Rival], known: Collection[str]) -> Rival:
    """The one that counts: one that is Ready with a Lease that moves; then one that the machine knows (`known`: uids);
    then the newest. Times are whole seconds, so the name decides a tie.

    So an empty twin does not displace a Node that pods run on; and a kubelet that has registered under another hostname
    is followed when its former Node is not Ready, or that Node's Lease has stopped.
    """
    return max(rivals, key=lambda r: (r.ready and not r.silent, r.uid in known, r.created, r.name))


# -- a Node that nobody stands behind ----------------------------------------------------------------------------------


def alive(node: Node, renewed: datetime | None, now: datetime, silent_for: timedelta) -> str:
    """Why its kubelet cannot be taken for dead, in words; "" when it can. `renewed`: of its Lease.

    Two sources with clocks of their own must say so: the control plane, which writes Ready Unknown when a Lease stops,
    and the last time that anything of the Node was written.
    """
    name, ready = node["metadata"]["name"], ready_condition(node)
    if ready.get("status", "Unknown") != "Unknown":
        return f"node {name} says that Ready is {ready['status']}"
    written = (node["metadata"]["creationTimestamp"], ready.get("lastHeartbeatTime"), ready.get("lastTransitionTime"))
    last = max(t for t in [*map(read_time, written), renewed, EARLIEST] if t)
    if now - last < silent_for:
        return f"node {name} showed life at {utc(last)}, less than {format_duration(silent_for)} ago"
    return ""
