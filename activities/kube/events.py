"""A story as Kubernetes Events on the object that it is about, so that `kubectl describe` shows it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from temporalio import activity

from activities.kube.client import Kube, KubeError
from resources.calls.machine import MachineRef
from resources.journal import Happening
from resources.reasons import is_warning
from resources.words import kube_time

NAMESPACE = "default"
"""Where Events of objects without a namespace are, and where kubectl looks for a Node's."""
COMPONENT = "hostler"


async def tell(kube: Kube, node: dict[str, Any], machine: MachineRef, story: Iterable[Happening]) -> None:
    """Writes one Event for each happening at the machine's Node, once. An Event that cannot be written holds nothing
    up: it is only a story."""
    told = (h.model_copy(update={"message": f"Machine {machine.name}: {h.message}"}) for h in story)
    await tell_of(kube, {"apiVersion": "v1", "kind": "Node", **node}, machine.uid, told)


async def tell_of(kube: Kube, found: dict[str, Any], whose: str, story: Iterable[Happening]) -> None:
    """Likewise for an object without a namespace. `whose`: two happenings at the same time are the same only if this
    and their reasons are."""
    for happening in story:
        time, reason = happening.time, happening.reason
        identity = f"{whose}/{time.isoformat()}/{reason}"
        await _write(kube, _event(found, identity, time, reason, happening.message, is_warning(reason)))


async def tell_as(
    kube: Kube, found: dict[str, Any], time: datetime, reason: str, message: str, *, warning: bool
) -> None:
    """One Event that is in no story. It has the same name where the same is said in the same hour."""
    hour = time.replace(minute=0, second=0, microsecond=0)
    identity = f"{found['metadata']['uid']}/{hour.isoformat()}/{reason}/{message}"
    await _write(kube, _event(found, identity, time, reason, message, warning))


async def _write(kube: Kube, event: dict[str, Any]) -> None:
    try:
        await kube.create(f"/api/v1/namespaces/{NAMESPACE}/events", event)
    except KubeError as e:
        if e.status != 409:  # told before
            activity.logger.warning("Event %s not written: %s", event["reason"], e.message)


def _event(
    found: dict[str, Any], identity: str, at: datetime, reason: str, message: str, warning: bool
) -> dict[str, Any]:
    metadata, time = found["metadata"], kube_time(at)
    about = {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": metadata["name"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # The same happening has the same name, so that a retry does not tell it twice.
        "metadata": {"name": f"{metadata['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"},
        # The uid: kubectl describe looks Events up by it.
        "involvedObject": {**about, "uid": metadata["uid"]},
        "reason": reason,
        "message": message[:1024],
        "type": "Warning" if warning else "Normal",
        "source": {"component": COMPONENT},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
