"""The eviction subresource: a deletion that asks the disruption budgets first.

Upstream: pkg/registry/core/pod/storage/eviction.go. Budgets are judged by their status, which the disruption controller
writes; the server only counts down.
"""

from __future__ import annotations

from typing import Any

from simulator.kube.errors import ApiError, bad_request, forbidden, too_many_requests
from simulator.kube.objects import Obj, condition, dig, now, set_condition
from simulator.kube.registry import Options, Registry
from simulator.kube.resources import DISRUPTION_BUDGETS, PODS
from simulator.kube.selectors import matches_label_selector
from simulator.kube.store import Item

_MAX_DISRUPTED_PODS = 2000
_RETRY_AFTER = 10  # seconds, while the controller has not yet seen the budget


def evict(registry: Registry, pod: Item, body: Any, options: Options) -> None:
    """Raises 429 when a budget forbids it, 500 when the pod has several budgets."""
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise bad_request("the body of an eviction must be an Eviction of policy/v1")
    if (body.get("metadata") or {}).get("name") != pod.name:
        raise bad_request("name in URL does not match name in Eviction object")
    delete_options = body.get("deleteOptions") or {}
    if delete_options.get("dryRun"):
        options.dry_run = True
    if not _ignores_budgets(pod.obj):
        _ask_budget(registry, pod, options)
    if not options.dry_run:
        message = "Eviction API: evicting"
        pod = registry.modify(
            PODS, pod, lambda o: set_condition(o, "DisruptionTarget", "True", "EvictionByEvictionAPI", message), options
        )
    registry.delete(PODS, pod, {k: v for k, v in delete_options.items() if v is not None}, options)


def _ignores_budgets(pod: Obj) -> bool:
    """Whether the pod runs nothing, or is going already, and so disrupts nobody."""
    phase = dig(pod, "status.phase")
    return phase in ("Pending", "Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _ask_budget(registry: Registry, pod: Item, options: Options) -> None:
    namespace, labels = pod.obj["metadata"]["namespace"], pod.obj["metadata"].get("labels") or {}
    budgets = [
        item
        for item in registry.store[DISRUPTION_BUDGETS].in_namespace(namespace)
        if matches_label_selector(item.obj["spec"].get("selector"), labels)
    ]
    if len(budgets) > 1:
        raise ApiError(
            500,
            "",  # a real server gives no reason either
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    if not budgets:
        return
    budget = budgets[0]
    if not _is_ready(pod.obj):
        policy = budget.obj["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        status = budget.obj["status"]
        if policy == "AlwaysAllow" or (status["currentHealthy"] >= status["desiredHealthy"] > 0):
            return
    _count_down(registry, pod, budget, options)


def _is_ready(pod: Obj) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def _count_down(registry: Registry, pod: Item, budget: Item, options: Options) -> None:
    name, meta, status = budget.name, budget.obj["metadata"], budget.obj["status"]
    violated = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < meta["generation"]:
        why = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(violated, [{"reason": "DisruptionBudget", "message": why}], _RETRY_AFTER)
    if status["disruptionsAllowed"] < 0:
        raise forbidden(DISRUPTION_BUDGETS, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED_PODS:
        raise forbidden(
            DISRUPTION_BUDGETS, name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if status["disruptionsAllowed"] == 0:
        needs, has = status["desiredHealthy"], status["currentHealthy"]
        why = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        raise too_many_requests(violated, [{"reason": "DisruptionBudget", "message": why}])

    def disrupt(obj: Obj) -> None:
        # Counted here, in the step that decides: a second eviction must not use the same allowance before the
        # controller has seen the first.
        obj["status"]["disruptionsAllowed"] -= 1
        obj["status"].setdefault("disruptedPods", {})[pod.name] = now()

    registry.modify(DISRUPTION_BUDGETS, budget, disrupt, options)
