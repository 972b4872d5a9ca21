"""What `hostler explain` says of a field: it comes from the pydantic models themselves, so that it cannot be wrong.

Types, defaults and constraints are the models'; the words are the docstrings under their attributes, read from the
source; resources.effects knows what a change of a provider spec's field does to a machine that runs.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, SecretStr
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from resources.base import LONGEST, format_duration, sensible
from resources.clouds import PROVIDERS, Provider
from resources.clouds.openshift import Becomes, Fate, OpenShiftSpec, fate_of
from resources.control_plane import translation
from resources.control_plane.manifest import API as OPENSHIFT_API
from resources.control_plane.manifest import MACHINE_TYPE
from resources.docstrings import field_words, model_words
from resources.effects import Effect, effects
from resources.machine.state import Status
from resources.machine_config.keys import API as MACHINE_CONFIG_API
from resources.machine_config.objects import CONFIG_MODELS
from resources.manifests import KINDS
from resources.names import API_VERSION, OWN_API_VERSION
from resources.settings import Settings
from starter.sdk.errors import NotFound, Refused
from starter.sdk.spelling import did_you_mean

PARTS: dict[tuple[str, str], Callable[[Provider], type[BaseModel] | None]] = {
    ("MachineClass", "providerSpec"): lambda p: p.spec,
    ("WorkerPool", "spec.providerConfig"): lambda p: p.workers.config if p.workers else None,
    ("WorkerPool", "spec.infrastructure"): lambda p: p.workers.infrastructure if p.workers else None,
    (
        "ControlPlaneMachineSet",
        f"spec.template.{MACHINE_TYPE}.{translation.PROVIDER_SPEC}",
    ): lambda p: p.openshift,
    ("Infrastructure", "spec"): lambda p: p.workers.infrastructure if p.workers else None,
}
"""What depends on the cloud, by kind and path, and its model."""
STATUS = "status"
ROOTS: dict[str, type[BaseModel]] = {**KINDS, "Settings": Settings}
VERSIONS = {
    **dict.fromkeys(("Machine", "MachineClass", "MachineDeployment"), API_VERSION),
    **dict.fromkeys(("WorkerPool", "Infrastructure"), OWN_API_VERSION),
    "ControlPlaneMachineSet": OPENSHIFT_API,
    **dict.fromkeys(CONFIG_MODELS, MACHINE_CONFIG_API),
    "Secret": "v1",
}
ALIASES = {
    "machines": "Machine",
    **dict.fromkeys(("mc", "machineconfigs"), "MachineConfig"),
    **dict.fromkeys(("mcp", "machineconfigpools", "machinepool"), "MachineConfigPool"),
    "kubeletconfigs": "KubeletConfig",
    "controllerconfigs": "ControllerConfig",
    **dict.fromkeys(("mcc", "class", "classes", "machineclasses"), "MachineClass"),
    **dict.fromkeys(("mcd", "pool", "pools", "machinedeployments"), "MachineDeployment"),
    **dict.fromkeys(("wp", "workerpools"), "WorkerPool"),
    **dict.fromkeys(("cpms", "controlplane", "controlplanes", "controlplanemachinesets"), "ControlPlaneMachineSet"),
    "secrets": "Secret",
}
_SCALARS = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    timedelta: "duration",
    datetime: "time",
    Path: "path",
    SecretStr: "string",
}
_BOUNDS = {Ge: ("ge", "at least"), Gt: ("gt", "more than"), Le: ("le", "at most"), Lt: ("lt", "less than")}


@dataclass(frozen=True)
class Field:
    """One field, or the kind itself, whose `name` and `path` are empty."""

    name: str
    path: str
    """The path as one types it: `providerSpec.blockDevices.ebs.iops`."""
    type_name: str
    """`string`, `[]BlockDevice`, `map[string]string`, …"""
    model: type[BaseModel] | None
    """The model, where there are fields below it."""
    required: bool = False
    default: str = ""
    constraints: tuple[str, ...] = ()
    description: str = ""
    effects: tuple[Effect, ...] = ()
    """What a change does, in a provider spec and a pool; several where the fields below it differ."""
    mark: Effect | None = None
    """It also counts for what is below it, where that has no mark of its own."""
    kind: str = ""
    """The kind that it belongs to."""
    of_cloud: bool = False
    """Whether it, or what it is below, depends on the cloud."""


@dataclass(frozen=True)
class Explained:
    kind: str
    version: str
    provider: str
    """The provider whose fields are meant; empty where there are several and it makes no difference."""
    field: Field
    fields: tuple[Field, ...]
    """The fields below it, in the model's order."""


def explain(path: str, provider: str | None = None) -> Explained:
    """The field of `machineclass.providerSpec.blockDevices.ebs`, and so on.

    Raises NotFound for a kind or field that does not exist, Refused for a provider that has no driver.
    """
    word, *steps = path.split(".")
    kind = _kind(word)
    within = _within(kind, steps, provider)
    here = Field("", "", "Object", ROOTS[kind], description=model_words(ROOTS[kind]), kind=kind)
    for step in steps:
        below = {f.name: f for f in fields_of(here, within)}
        if step not in below:
            raise NotFound(_unknown_field(kind, here, step, list(below)))
        here = below[step]
    below_it = tuple(fields_of(here, within))
    return Explained(kind, VERSIONS.get(kind, ""), within, here, below_it)


def fields_of(parent: Field, provider: str) -> Iterator[Field]:
    """The fields below `parent`; where they depend on the cloud, those of the provider's model."""
    if parent.model is None:
        return
    top = not parent.path
    for name, info in parent.model.model_fields.items():
        alias = info.alias or to_camel(name)
        path = alias if top else f"{parent.path}.{alias}"
        if (parent.kind, path) in PARTS:
            yield _of_cloud(parent, alias, path, info, provider)
        elif not (top and parent.model is Settings and alias == "file"):  # not written in the file: it names the file
            yield _field(parent, name, alias, path, info, provider)
    if top and parent.model is KINDS["Machine"]:
        yield Field(STATUS, STATUS, "Status", Status, description=f"{model_words(Status)} It is output only.")


def _of_cloud(parent: Field, alias: str, path: str, info: FieldInfo, provider: str) -> Field:
    model = PARTS[parent.kind, path](PROVIDERS[provider]) if provider else None
    if model is None:
        words = f"Its fields depend on the provider: give --provider with one of {', '.join(sorted(PROVIDERS))}."
        return Field(alias, path, "Object", None, required=info.is_required(), description=words, kind=parent.kind)
    theirs = issubclass(model, OpenShiftSpec)  # each of its fields says what becomes of it
    return Field(
        alias,
        path,
        model.__name__,
        model,
        required=info.is_required(),
        description=model_words(model),
        effects=_effects(provider, "") if theirs else _marked(Effect.HASH, model),
        mark=None if theirs else Effect.HASH,
        of_cloud=True,
        kind=parent.kind,
    )


def _field(parent: Field, name: str, alias: str, path: str, info: FieldInfo, provider: str) -> Field:
    type_, model = _type(info.annotation)
    words = (field_words(parent.model).get(name) if parent.model else "") or (model_words(model) if model else "")
    becomes = fate_of(info.metadata)
    if becomes is not None:
        words = f"{words} {becomes}".strip()
    mark = next((m for m in info.metadata if isinstance(m, Effect)), parent.mark)
    return Field(
        alias,
        path,
        type_,
        model,
        required=info.is_required(),
        default=_default(info),
        constraints=tuple(_constraints(info)),
        description=words,
        effects=_marked(mark, model) if becomes is None else _effects_there(provider, becomes),
        mark=mark,
        of_cloud=parent.of_cloud,
        kind=parent.kind,
    )


# -- finding the way --------------------------------------------------------------------------------------------------


def _kind(word: str) -> str:
    spelled = {kind.lower(): kind for kind in ROOTS} | ALIASES
    kind = spelled.get(word.lower())
    if kind is None:
        hint = did_you_mean(word, ROOTS)
        raise NotFound(f"{word!r} is not a kind that can be explained; the kinds are {', '.join(sorted(ROOTS))}{hint}")
    return kind


def _within(kind: str, steps: Sequence[str], provider: str | None) -> str:
    """The provider whose spec is meant; if not given, the only one there is. Empty: there are several, and none is
    needed."""
    known = {name.lower(): name for name in PROVIDERS}
    if provider is None:
        path = ".".join(steps)
        for part in (at for of, at in PARTS if of == kind and f"{path}.".startswith(f"{at}.")):
            if len(known) > 1:
                raise Refused(f"which {part}? Give --provider with one of {', '.join(sorted(PROVIDERS))}")
        return "" if len(known) > 1 else next(iter(PROVIDERS))
    if provider.lower() not in known:
        hint = did_you_mean(provider, PROVIDERS)
        raise Refused(f"provider {provider!r} has no driver; there are drivers for {', '.join(sorted(known))}{hint}")
    return known[provider.lower()]


def _unknown_field(kind: str, parent: Field, step: str, known: Sequence[str]) -> str:
    where = f"{kind}.{parent.path}" if parent.path else kind
    if not known:
        return f"{where} is of type {parent.type_name}: it has no field {step!r}"
    return f"{where} has no field {step!r}; it has {', '.join(known)}{did_you_mean(step, known)}"


# -- reading the models -----------------------------------------------------------------------------------------------


def _type(annotation: Any) -> tuple[str, type[BaseModel] | None]:
    """How the type is written, and the model inside it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (Union, types.UnionType):
        options = dict.fromkeys(_type(a) for a in arguments if a is not type(None))
        return "|".join(name for name, _ in options), next((m for _, m in options if m), None)
    if origin in (list, tuple, set, frozenset):
        name, model = _type(arguments[0])
        return f"[]{name}", model
    if origin is dict:
        name, model = _type(arguments[1])
        return f"map[{_type(arguments[0])[0]}]{name}", model
    if origin is Literal:
        return _SCALARS[type(arguments[0])], None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.__name__, annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "string", None
    return _SCALARS.get(annotation, "any"), None


def _default(info: FieldInfo) -> str:
    """The default as it is written in YAML; empty where there is none worth showing."""
    if info.is_required() or len(_choices(info.annotation)) == 1:
        return ""
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, timedelta):
        return format_duration(value)
    if value is None or isinstance(value, BaseModel) or value in ([], {}, ""):
        return ""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _constraints(info: FieldInfo) -> Iterator[str]:
    if values := _choices(info.annotation):
        yield f"one of {', '.join(values)}" if len(values) > 1 else f"always {values[0]}"
    for mark in info.metadata:
        for kind, (attribute, words) in _BOUNDS.items():
            if isinstance(mark, kind):
                bound = getattr(mark, attribute)
                yield f"{words} {format_duration(bound) if isinstance(bound, timedelta) else bound}"
        if isinstance(mark, AfterValidator) and mark.func is sensible:
            yield f"at most {format_duration(LONGEST)}"
        if isinstance(mark, MinLen):
            yield "not empty" if mark.min_length == 1 else f"at least {mark.min_length} long"
        if isinstance(mark, MaxLen):
            yield f"at most {mark.max_length} long"


def _choices(annotation: Any) -> list[str]:
    """The values of a Literal or an enumeration, also inside a list or an optional type."""
    if typing.get_origin(annotation) is Literal:
        return [str(a) for a in typing.get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    if typing.get_origin(annotation) is dict:
        return []
    return [value for a in typing.get_args(annotation) for value in _choices(a)]


@cache
def _effect_of(provider: str) -> dict[str, Effect]:
    """The effect of a provider spec's fields by the path as one types it: `blockDevices.ebs.iops`."""
    return {path.replace("[]", ""): effect for path, effect in effects(PROVIDERS[provider].spec)}


def _effects(provider: str, path: str) -> tuple[Effect, ...]:
    """The effects of a provider spec's field, or of all that are below it, each once."""
    every = _effect_of(provider).items()
    found = {effect for leaf, effect in every if not path or leaf == path or leaf.startswith(f"{path}.")}
    return tuple(effect for effect in Effect if effect in found)


def _effects_there(provider: str, becomes: Fate) -> tuple[Effect, ...]:
    """The effects of what a field of OpenShift's becomes."""
    paths = re.sub(r"\[\d*\]", "", becomes.path).split(", ") if isinstance(becomes, Becomes) and provider else []
    found = {effect for path in paths for effect in _effects(provider, path)}
    return tuple(effect for effect in Effect if effect in found)


def _marked(mark: Effect | None, model: type[BaseModel] | None) -> tuple[Effect, ...]:
    """The effects of a field that is marked, or below one that is: its own, or those of all that are below it."""
    found = {mark} if model is None else {e for _, e in effects(model, inherited=mark)} if mark else set()
    return tuple(effect for effect in Effect if effect in found)


def effect_words(effect: Effect) -> str:
    """What an effect means, as resources.effects says it."""
    return field_words(Effect)[effect.name]
