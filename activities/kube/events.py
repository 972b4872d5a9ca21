"""A story as Kubernetes Events on the object that it is about, so that `kubectl describe` shows it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from temporalio import activity

from activities.kube.client import Kube, KubeError
from resources.calls.machine import MachineRef
from resources.journal import Happening
from resources.reasons import is_warning

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
        try:
            await kube.create(f"/api/v1/namespaces/{NAMESPACE}/events", _event(found, whose, happening))
        except KubeError as e:
            if e.status != 409:  # told before
                activity.logger.warning("Event %s not written: %s", happening.reason, e.message)


def _event(found: dict[str, Any], whose: str, happening: Happening) -> dict[str, Any]:
    metadata = found["metadata"]
    identity = f"{whose}/{happening.time.isoformat()}/{happening.reason}"
    time = happening.time.strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": metadata["name"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # The same happening has the same name, so that a retry does not tell it twice.
        "metadata": {"name": f"{metadata['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"},
        # The uid: kubectl describe looks Events up by it.
        "involvedObject": {**about, "uid": metadata["uid"]},
        "reason": happening.reason,
        "message": happening.message[:1024],
        "type": "Warning" if is_warning(happening.reason) else "Normal",
        "source": {"component": COMPONENT},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
