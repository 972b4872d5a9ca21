"""The disruption controller: the status of PodDisruptionBudgets, on which evictions are judged.

It follows pkg/controller/disruption of Kubernetes.
"""

from __future__ import annotations

from datetime import UTC, datetime

from simulator.client import KubeClient, Obj, timestamp
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import (
    condition,
    controller_of,
    is_deleting,
    is_true,
    labels_of,
    matches,
    status_differs,
)

DELETION_TIMEOUT = 120.0  # seconds after which an eviction that was allowed no longer counts as under way


class SyncFailed(Exception):
    """The budget cannot be computed; nothing may be disrupted until it can."""


class Disruption(Controller):
    def __init__(
        self,
        client: KubeClient,
        budgets: Informer,
        pods: Informer,
        replicasets: Informer,
        deployments: Informer,
        *,
        resync: float,
    ) -> None:
        super().__init__(client, (budgets, pods, replicasets, deployments), resync)
        self._budgets = budgets
        self._pods = pods
        self._replicasets = replicasets
        self._deployments = deployments

    async def sync(self) -> float | None:
        for budget in self._budgets:
            if is_deleting(budget):
                continue
            status = self._status(budget)
            if not status_differs(budget, status):
                continue
            meta = budget["metadata"]
            # With the version that was read: an eviction counts itself in the same status, and none may be lost.
            body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
            written = await self.attempt(
                self.client.patch("poddisruptionbudgets", meta["name"], body, meta["namespace"], sub="status")
            )
            if written is not None:
                self._budgets.remember(written)
        return None

    def _status(self, budget: Obj) -> Obj:
        meta, spec = budget["metadata"], budget["spec"]
        pods = [
            pod
            for pod in self._pods
            if pod["metadata"]["namespace"] == meta["namespace"] and matches(spec.get("selector"), labels_of(pod))
        ]
        try:
            expected, desired = self._expectation(spec, pods)
        except SyncFailed as e:
            found = _allowed_condition(budget, "False", "SyncFailed", str(e))
            return {"disruptionsAllowed": 0, "observedGeneration": meta["generation"], "conditions": [found]}
        disrupted, dropped = _disrupted(budget, pods)
        healthy = sum(
            1
            for pod in pods
            if not is_deleting(pod) and pod["metadata"]["name"] not in disrupted and is_true(pod, "Ready")
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        words = ("True", "SufficientPods", "") if allowed > 0 else ("False", "InsufficientPods", "")
        status: Obj = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": meta["generation"],
            "conditions": [_allowed_condition(budget, *words)],
        }
        if dropped:
            status["disruptedPods"] = {**disrupted, **dict.fromkeys(dropped)}  # None removes them in a merge patch
        return status

    def _expectation(self, spec: Obj, pods: list[Obj]) -> tuple[int, int]:
        """(expectedPods, desiredHealthy). Counts take the pods there are; percentages, and maxUnavailable, the scale
        of the pods' controllers: pods that are missing count there too."""
        if spec.get("maxUnavailable") is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - _scaled(spec["maxUnavailable"], expected))
        least = spec.get("minAvailable", 1)
        if isinstance(least, int):
            return len(pods), least
        expected = self._scale(pods)
        return expected, _scaled(least, expected)

    def _scale(self, pods: list[Obj]) -> int:
        """The replicas of all controllers of these pods; a pod without a controller does not count."""
        scales: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                continue
            namespace = pod["metadata"]["namespace"]
            owner = self._replicasets.get(reference["name"], namespace) if reference["kind"] == "ReplicaSet" else None
            if owner is None or owner["metadata"]["uid"] != reference["uid"]:
                raise SyncFailed(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            above = controller_of(owner)
            if above is not None and above["kind"] == "Deployment":
                owner = self._deployments.get(above["name"], namespace) or owner
            scales[owner["metadata"]["uid"]] = int(owner["spec"].get("replicas", 1))
        return sum(scales.values())


def _disrupted(budget: Obj, pods: list[Obj]) -> tuple[dict[str, str], list[str]]:
    """Evictions that are under way (pod name to the time they were allowed), and the names that no longer are:
    the pod is gone, is being deleted, or was not deleted within DELETION_TIMEOUT after all."""
    noted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    living = {pod["metadata"]["name"] for pod in pods if not is_deleting(pod)}
    now = datetime.now(UTC)
    valid = {
        name: time
        for name, time in noted.items()
        if name in living and (now - datetime.fromisoformat(time)).total_seconds() < DELETION_TIMEOUT
    }
    return valid, sorted(noted.keys() - valid.keys())


def _scaled(value: int | str, total: int) -> int:
    """A count, or a percentage of `total` rounded up (intstr.GetScaledValueFromIntOrPercent with roundUp)."""
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isdigit():
        raise SyncFailed(f"invalid value for IntOrString: invalid type: string is not a percentage: {value!r}")
    return -(-int(value[:-1]) * total // 100)


def _allowed_condition(budget: Obj, status: str, reason: str, message: str) -> Obj:
    old = condition(budget, "DisruptionAllowed")
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": budget["metadata"]["generation"],
        "lastTransitionTime": old["lastTransitionTime"] if old and old["status"] == status else timestamp(),
    }
