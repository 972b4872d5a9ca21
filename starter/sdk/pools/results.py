"""What the SDK answers with about pools and their rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resources.names import API_VERSION, CLUSTER_ANNOTATION
from resources.pool.intents import PoolSummary
from resources.pool.rollout import RolloutResult, RolloutState
from resources.pool.state import PoolState
from starter.sdk.results import Json, MachineSummary, PendingActivity


@dataclass(frozen=True)
class PoolListed:
    """A pool as search attributes show it, and its own numbers where a worker gave them."""

    name: str
    cluster: str
    created: datetime
    phase: str = ""
    """Ready, Scaling, Rolling, Stopped (a rollout that a person must look at), Paused, Hibernated, Deleting, Parked."""
    reason: str = ""
    machine_class: str = ""
    summary: PoolSummary | None = None


@dataclass(frozen=True)
class PoolDescription:
    """Everything that is known of one pool."""

    listed: PoolListed
    status: str
    """RUNNING, COMPLETED, TERMINATED, …"""
    state: PoolState | None = None
    """The state from its workflow, even one that was ended from outside; for one that runs without a worker, from its
    history: what was asked for, not what became of it."""
    no_answer: str = ""
    """Why the workflow could not be asked."""
    failure: str = ""
    """How it ended, when not on its own."""
    ended: datetime | None = None
    run_id: str = ""
    first_run_id: str = ""
    """The same for one life, however often it continued as new."""
    task_attempt: int = 1
    """Over 1: the workflow's own code fails, and is tried again."""
    pending: tuple[PendingActivity, ...] = ()
    machines: int = 0
    """The number of machines, by visibility."""
    unwell: tuple[MachineSummary, ...] = ()
    """Some of its machines that are not Running, by visibility; for a pool that has ended, some of all that are
    left."""
    web: str | None = None
    """Its page in Temporal's web UI."""

    @property
    def running(self) -> bool:
        return self.status == "RUNNING"

    @property
    def summary(self) -> PoolSummary | None:
        """The pool's own numbers."""
        return self.listed.summary


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
        "creationTimestamp": state.created.isoformat() if state.created else None,
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
