"""PriorityClasses, and the admission plugin Priority, which writes a pod's priority (plugin/pkg/admission/priority)."""

from __future__ import annotations

from collections.abc import Callable

from simulator.kube.errors import FieldErrors, bad_request, forbidden
from simulator.kube.objects import Obj
from simulator.kube.resources import PODS, PRIORITY_CLASSES, Resource

Find = Callable[[Resource, str, str], Obj | None]

SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that a server makes itself when it starts."""
_HIGHEST = 1_000_000_000


def classes() -> list[Obj]:
    return [{"metadata": {"name": name}, "value": value} for name, value in SYSTEM.items()]


def prepare(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    name, value = obj["metadata"]["name"], obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if obj.get("globalDefault"):
        raise bad_request(
            "the simulator does not emulate a PriorityClass with globalDefault: true; name it in the pods"
        )
    if name.startswith("system-") and name not in SYSTEM:
        errors.forbidden("metadata.name", "priority class names with 'system-' prefix are reserved for system use only")
    if name not in SYSTEM and value > _HIGHEST:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}")
    if old is not None and value != old["value"]:
        errors.forbidden("value", "may not be changed in an update.")


def assign(find: Find, pod: Obj) -> None:
    """Assigns the priority on a pod's creation. Raises 403 for a class that does not exist, and for a number other than
    the class's."""
    spec = pod["spec"] = pod.get("spec") or {}
    named = spec.get("priorityClassName")
    found = find(PRIORITY_CLASSES, "", named) if named else {}
    if found is None:
        raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {named} was found")
    value = found.get("value", 0)
    if spec.get("priority") not in (None, value):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, pod["metadata"]["name"], why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))
