"""A machine's story as Kubernetes Events on its Node, so that `kubectl describe node` shows it."""

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
    """Writes one Event for each happening, once. An Event that cannot be written holds nothing up: it is only a
    story."""
    for happening in story:
        try:
            await kube.create(f"/api/v1/namespaces/{NAMESPACE}/events", _event(node, machine, happening))
        except KubeError as e:
            if e.status != 409:  # told before
                activity.logger.warning("Event %s not written: %s", happening.reason, e.message)


def _event(node: dict[str, Any], machine: MachineRef, happening: Happening) -> dict[str, Any]:
    metadata = node["metadata"]
    identity = f"{machine.uid}/{happening.time.isoformat()}/{happening.reason}"
    time = happening.time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # The same happening has the same name, so that a retry does not tell it twice.
        "metadata": {"name": f"{metadata['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"},
        # The uid: kubectl describe looks Events up by it.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]},
        "reason": happening.reason,
        "message": f"Machine {machine.name}: {happening.message}"[:1024],
        "type": "Warning" if is_warning(happening.reason) else "Normal",
        "source": {"component": COMPONENT},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
