"""What stands in the way of an eviction, in words. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Budget = dict[str, Any]

VIOLATES = "disruption budget"
"""What the API server says when a budget refuses (429), and not when it only asks to come later (also 429)."""
SEVERAL = "more than one PodDisruptionBudget"
_WORDS_LIMIT = 300


def refusal(status: int, message: str, budgets: Sequence[Budget]) -> tuple[str, str]:
    """Why a pod is not evicted, and what to do about it ("" where nothing is known). `budgets`: those that select the
    pod.

    The API server does not reliably name them: not at all where there are several.
    """
    names = [b["metadata"]["name"] for b in budgets]
    if status == 500 and SEVERAL in message:
        several = f"PDBs {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "several PDBs"
        return f"blocked by {several}", "the eviction API allows one PDB per pod: delete all but one"
    if status == 429 and VIOLATES in message and budgets:
        allowed = (budgets[0].get("status") or {}).get("disruptionsAllowed", 0)
        return f"blocked by PDB {names[0]} ({allowed} disruptions allowed)", _advice(budgets[0])
    if status == 429 and VIOLATES not in message:
        return "blocked: the API server asks to try again later", ""
    # Or the pod's own trouble: a broken webhook, a namespace that is being deleted.
    return f"blocked: {message[:_WORDS_LIMIT]}", ""


def misconfigured(budget: Budget) -> bool:
    """Whether the budget allows nothing although all of its pods are well, so that waiting does not help (MCM,
    isMisconfiguredPdb)."""
    status = budget.get("status") or {}
    expected: int = status.get("expectedPods", 0)
    return bool(
        status.get("observedGeneration") == budget["metadata"].get("generation")
        and expected > 0
        and status.get("currentHealthy", 0) >= expected
        and not status.get("disruptedPods")
        and status.get("disruptionsAllowed", 0) == 0
    )


def _advice(budget: Budget) -> str:
    if not misconfigured(budget):
        return ""
    name, pods = budget["metadata"]["name"], budget["status"]["expectedPods"]
    return (
        f"PDB {name} is misconfigured: all its pods are healthy ({pods} of {pods}), and still none may be evicted; "
        "lower its minAvailable, raise its maxUnavailable or add pods"
    )


def selects(budget: Budget, labels: dict[str, str]) -> bool:
    """Whether a label selector of policy/v1 matches: a missing one selects nothing, an empty one everything."""
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in wanted.items()) and all(
        _holds(e["operator"], labels.get(e["key"]), e.get("values") or ())
        for e in selector.get("matchExpressions") or ()
    )


def _holds(operator: str, value: str | None, values: Sequence[str]) -> bool:
    match operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "NotIn":
            return value not in values
        case _:
            return value in values
