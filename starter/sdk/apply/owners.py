"""What applying a manifest of an owner of machines shares, whatever kind the owner is of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, TypeVar

from resources.fleet.state import FleetState
from resources.machine.manifest import ObjectMeta
from resources.machine.state import ClassSnapshot
from resources.owner import Owner
from starter.sdk.apply.classes import ClassPlan, own_annotations, same_content
from starter.sdk.connection import Connection
from starter.sdk.errors import Refused
from starter.sdk.results import Verb


class OwnerPlan(Protocol):
    """An owner that a manifest of the run describes: a frozen dataclass."""

    @property
    def of(self) -> ClassPlan: ...
    @property
    def note(self) -> str: ...
    @property
    def told(self) -> bool: ...
    @property
    def state(self) -> Any: ...
    @property
    def spec(self) -> Any: ...
    @property
    def manifest(self) -> Any: ...


PlanT = TypeVar("PlanT", bound=OwnerPlan)


def changed(plan: PlanT, state: FleetState, owner: Owner) -> PlanT:
    """The change of an owner. What only its class changes, the class tells it; all else is told here."""
    if metadata_of(plan.manifest.metadata) != {
        "namespace": state.namespace,
        "labels": state.labels,
        "annotations": state.annotations,
    } or _written(plan.spec) != _written(plan.state.spec):
        return plan
    has, of = state.machine_class, plan.of
    if has is not None and has.name == of.name and same_content(has, of.snapshot):
        return _quiet(plan, verb=Verb.UNCHANGED)
    if of.tells(owner.user):
        if not of.new_content:
            return _quiet(plan, verb=Verb.UNCHANGED)
        return _quiet(plan, note="; ".join(filter(None, ["its class tells it", plan.note])))
    return plan


def after(plan: OwnerPlan, owner: Owner) -> None:
    """Lets the class wait for an owner that takes its new content together with a changed spec."""
    of, state = plan.of, plan.state
    if plan.told and state is not None and of.new_content and of.tells(owner.user):
        of.after.append(owner.user)


def _quiet(plan: PlanT, **changes: Any) -> PlanT:
    made: PlanT = replace(plan, told=False, **changes)  # type: ignore[type-var]
    return made


def _written(spec: Any) -> Any:
    return spec.model_dump(mode="json", by_alias=True)


def metadata_of(meta: ObjectMeta) -> dict[str, Any]:
    """What an owner keeps of its manifest's metadata, in its state and in the intent that changes it."""
    return {"namespace": meta.namespace, "labels": meta.labels, "annotations": own_annotations(meta.annotations)}


def first_state(plan: OwnerPlan, here: Connection) -> dict[str, Any]:
    """What every owner of machines begins with."""
    return {
        **metadata_of(plan.manifest.metadata),
        "spec": plan.spec,
        "machine_class": plan.of.snapshot,
        "requested_by": here.requested_by,
        "queue_prefix": here.settings.queue_prefix,
        "timings": here.settings.timings,
    }


def class_for(plan: OwnerPlan) -> ClassSnapshot | None:
    """The class as the owner is asked, or told, about it."""
    return plan.of.for_user(plan.state.machine_class if plan.state else None)


def own_class(cluster: str, name: str, state: FleetState | None, words: str) -> ClassPlan:
    """The class that the owner has, of which nothing else is known. `words`: `the pool`. Raises Refused for any other
    class."""
    has = state.machine_class if state else None
    if has is not None and has.name == name:
        return ClassPlan(name, cluster, Verb.UNCHANGED, has)
    another = f"; {words} has another one ({has.name})" if has else ""
    raise Refused(
        f"class {name!r} is in none of the files and was not applied before{another}: add the MachineClass (-f)"
    )


def verdict(message: str) -> tuple[Verb, str]:
    """What an owner has answered: whether it changes, and the rest of its words."""
    verb = Verb.UNCHANGED if message == Verb.UNCHANGED else Verb.CONFIGURED
    return verb, message.removeprefix(verb).lstrip("; ")
