"""What the SDK answers with about a control plane, and how its update stands."""

from __future__ import annotations

from typing import Any

from resources.control_plane.expansion import manifest_of
from resources.control_plane.state import ControlPlaneState, SetCondition
from resources.control_plane.summary import ControlPlaneSummary
from resources.fleet.state import FleetWait
from resources.machine.manifest import ObjectMeta
from resources.names import CLUSTER_ANNOTATION
from resources.reasons import next_step
from starter.sdk.fleet.results import FleetDescription, FleetListed
from starter.sdk.fleet.waiting import RolloutVerdict, Stand
from starter.sdk.results import Json, since, timestamp

ControlPlaneListed = FleetListed[ControlPlaneSummary]
ControlPlaneDescription = FleetDescription[ControlPlaneState, ControlPlaneSummary]

A_PERSON = ("Inactive", "RolloutPaused", "ClusterPaused", "DeleteToReplace", "BelowQuorum")
"""Waits that only a person ends, besides those of the closed gates, which make it Degraded."""


def judge(found: ControlPlaneDescription) -> RolloutVerdict:
    """Done, continuing on its own, or stopped until a person acts."""
    of, s = f"the control plane of cluster {found.listed.cluster}", found.summary
    if not found.running:
        return RolloutVerdict(Stand.STANDS, f"{of} is gone{since(found.ended)}; its machines stay")
    if s is None:
        return RolloutVerdict(Stand.GOING, f"{of} cannot be asked: {found.no_answer}")
    if s.deleted:
        return RolloutVerdict(Stand.STANDS, f"{of} is being deleted; its machines stay")
    if s.parked:
        return RolloutVerdict(Stand.STANDS, _stopped(s, "InternalError", s.parked))
    if s.rolled_out:
        words = f"{of} is rolled out: revision {s.revision}, {s.ready} of {s.replicas} machines ready"
        return RolloutVerdict(Stand.DONE, words)
    if (held := held_by(s)) is not None:
        return RolloutVerdict(Stand.STANDS, _stopped(s, held.reason, held.message))
    return RolloutVerdict(Stand.GOING, "")


def held_by(s: ControlPlaneSummary) -> FleetWait | None:
    """The wait that only a person ends: a closed gate's, else the first of A_PERSON. A machine that is on its way, or
    is drained, is waited for first: what a person then has to do may look otherwise."""
    if (degraded := s.degraded) is not None:
        return next((w for w in s.waits if w.reason == degraded.reason), None)
    moving = any((h.leaving and not h.held) or not (h.ready or h.outdated) for i in s.indexes for h in i.hosts)
    return None if moving else next((w for w in s.waits if w.reason in A_PERSON), None)


def _stopped(s: ControlPlaneSummary, reason: str, message: str) -> str:
    todo = next_step(reason, s.cluster, s.name, "controlplane")
    return f"the control plane of cluster {s.cluster} is blocked: {reason}: {message}\nwhat can be done: {todo}"


def numbers(s: ControlPlaneSummary) -> str:
    """`revision 3: 1 of 3 indexes done, 3 ready (quorum 2), 4 machines`."""
    done = sum(i.done for i in s.indexes)
    count = f"{s.machines} machine{'s' if s.machines != 1 else ''}"
    return f"revision {s.revision}: {done} of {s.replicas} indexes done, {s.ready} ready (quorum {s.quorum}), {count}"


def where(found: ControlPlaneDescription) -> str:
    """How far it is and what it waits for, in one line."""
    if not found.running:
        return f"its workflow has ended{since(found.ended)}"
    if (s := found.summary) is None:
        return f"{found.listed.phase}; its numbers are not known: {found.no_answer}"
    waits = [f"index {i.index} waits for {i.waits}" for i in s.indexes if not i.done]
    return "; ".join([numbers(s), *waits, *(f"{w.reason}: {w.message}" for w in s.waits)])


# -- as a manifest ----------------------------------------------------------------------------------------------------


def control_plane_manifest(state: ControlPlaneState, summary: ControlPlaneSummary | None = None) -> Json:
    """The control plane as a manifest with its status, which has OpenShift's fields and ours: what `hostler get -o
    yaml` prints and `hostler apply` takes back."""
    of = state.machine_class or (state.revisions[-1].machine_class if state.revisions else None)
    spec = state.spec if of else state.spec.model_copy(update={"failure_domains": {}})
    annotations = {**state.annotations, CLUSTER_ANNOTATION: state.cluster}
    meta = ObjectMeta(name=state.name, namespace=state.namespace, labels=state.labels, annotations=annotations)
    made: Json = manifest_of(spec, of.provider if of else "", meta).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    made["metadata"] = {k: v for k, v in made["metadata"].items() if v}
    if (created := timestamp(state.created)) is not None:
        made["metadata"]["creationTimestamp"] = created
    return made | {"status": _status(summary) if summary is not None else {}}


def _status(s: ControlPlaneSummary) -> Json:
    return {
        "replicas": s.machines,
        "readyReplicas": s.ready,
        "updatedReplicas": s.updated,
        "unavailableReplicas": s.unavailable,
        "revision": s.revision,
        "rolledOut": s.rolled_out,
        "quorum": s.quorum,
        "conditions": [_condition(c) for c in s.conditions],
        "indexes": [_plain(i) for i in s.indexes],
        "waits": [_plain(w) for w in s.waits],
    }


def _condition(c: SetCondition) -> Json:
    """A condition as Kubernetes writes it."""
    found = {"type": c.type, "status": str(c.status), "reason": c.reason, "message": c.message}
    return {k: v for k, v in {**found, "lastTransitionTime": timestamp(c.since)}.items() if v}


def _plain(value: Any) -> Json:
    found: Json = value.model_dump(mode="json", by_alias=True)
    return {k: v for k, v in found.items() if v not in ("", None)}
