"""What the SDK answers with about pools and their rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resources.names import API_VERSION, CLUSTER_ANNOTATION
from resources.pool.intents import PoolSummary
from resources.pool.rollout import RolloutResult, RolloutState
from resources.pool.state import PoolState
from starter.sdk.fleet.results import FleetDescription, FleetListed
from starter.sdk.results import Json, PendingActivity, timestamp

PoolListed = FleetListed[PoolSummary]
PoolDescription = FleetDescription[PoolState, PoolSummary]


@dataclass(frozen=True)
class RolloutListed:
    """A rollout's story as search attributes show it, and its own account where there is one."""

    pool: str
    cluster: str
    revision: int
    phase: str
    """Rolling, Paused, Stopped; its outcome for one that has ended; Temporal's status for one that was ended from
    outside."""
    began: datetime
    ended: datetime | None = None
    reason: str = ""
    state: RolloutState | None = None
    """The state of one that runs, where a worker answers."""
    result: RolloutResult | None = None
    """The result of one that came to its own end."""


@dataclass(frozen=True)
class RolloutDescription:
    """Everything that is known of one rollout."""

    listed: RolloutListed
    no_answer: str = ""
    """Why the story of a running one cannot be told."""
    failure: str = ""
    """How its workflow ended, when not on its own."""
    pending: tuple[PendingActivity, ...] = ()
    web: str | None = None
    """Its page in Temporal's web UI."""

    @property
    def running(self) -> bool:
        return self.listed.ended is None


def pool_manifest(state: PoolState, summary: PoolSummary | None = None) -> Json:
    """The pool as a manifest with its status: what `hostler get -o yaml` prints and `hostler apply` takes back."""
    metadata: Json = {
        "name": state.name,
        "namespace": state.namespace,
        "labels": state.labels,
        "annotations": {**state.annotations, CLUSTER_ANNOTATION: state.cluster},
        "creationTimestamp": timestamp(state.created),
    }
    status: Json = {}
    if summary is not None:
        status = {
            "replicas": summary.machines,
            "updatedReplicas": summary.updated,
            "availableReplicas": summary.available,
            "unhealthyReplicas": summary.unhealthy,
            "revision": summary.revision,
            "rolledOut": summary.rolled_out,
            "waits": [w.model_dump(mode="json", by_alias=True) for w in summary.waits],
        }
    return {
        "apiVersion": API_VERSION,
        "kind": "MachineDeployment",
        "metadata": {k: v for k, v in metadata.items() if v},
        "spec": state.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        "status": status,
    }
