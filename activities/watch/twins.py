"""Whether the kubelets behind a VM's Nodes live: a watch of Nodes reads the Leases of those that have a twin, and no
others."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from activities.kube.client import Kube, KubeError
from activities.kube.looks import lease_renewed

LEASES_EVERY = 10.0  # seconds: a kubelet that lives has renewed its Lease in between
SILENT_AFTER = 40.0  # seconds without a renewal: a Lease lasts this long (kubelet's nodeLeaseDurationSeconds)


class Leases:
    """The Leases of Nodes. Of their time only one thing is used, that it moves: node clocks may be wrong."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self._seen: dict[str, tuple[datetime | None, float]] = {}
        """Node uid to renewTime, and when it was first seen so."""

    async def silent(self, node: dict[str, Any]) -> bool:
        """Whether the Node's Lease has not moved for as long as a Lease lasts. False where nobody knows: one that was
        never looked at before, or that may not be read. Raises KubeError."""
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        try:
            renewed, now = await lease_renewed(self.kube, name), time.monotonic()
        except KubeError as e:
            if e.status != 403:
                raise
            return False
        former, since = self._seen.get(uid, (None, now))
        if uid not in self._seen or former != renewed:
            self._seen[uid] = renewed, now
            return False
        return now - since > SILENT_AFTER
