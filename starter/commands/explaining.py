"""What `hostler explain` says of a field: it comes from the pydantic models themselves, so that it cannot be wrong.

Types, defaults and constraints are the models'; the words are the docstrings under their attributes, read from the
source; resources.effects knows what a change of a provider spec's field does to a machine that runs.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
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
from resources.clouds import PROVIDERS
from resources.effects import Effect, effects
from resources.machine.state import Status
from resources.manifests import KINDS
from resources.names import API_VERSION
from resources.settings import Settings
from starter.sdk.errors import NotFound, Refused
from starter.sdk.spelling import did_you_mean

PROVIDER_SPEC = "providerSpec"
STATUS = "status"
ROOTS: dict[str, type[BaseModel]] = {**KINDS, "Settings": Settings}
VERSIONS = {"Machine": API_VERSION, "MachineClass": API_VERSION, "MachineDeployment": API_VERSION, "Secret": "v1"}
ALIASES = {
    **dict.fromkeys(("mc", "machines"), "Machine"),
    **dict.fromkeys(("mcc", "class", "classes", "machineclasses"), "MachineClass"),
    **dict.fromkeys(("mcd", "pool", "pools", "machinedeployments"), "MachineDeployment"),
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
    """In a pool: it also counts for what is below it, where that has no mark of its own."""


@dataclass(frozen=True)
class Explained:
    kind: str
    version: str
    provider: str
    """The provider whose provider spec is meant; empty where there are several and it makes no difference."""
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
    here = Field("", "", "Object", ROOTS[kind], description=_words(ROOTS[kind]))
    for step in steps:
        below = {f.name: f for f in fields_of(here, within)}
        if step not in below:
            raise NotFound(_unknown_field(kind, here, step, list(below)))
        here = below[step]
    below_it = tuple(fields_of(here, within))
    return Explained(kind, VERSIONS.get(kind, ""), within, here, below_it)


def fields_of(parent: Field, provider: str) -> Iterator[Field]:
    """The fields below `parent`; below a MachineClass's providerSpec, those of the provider's model."""
    if parent.model is None:
        return
    top = not parent.path
    for name, info in parent.model.model_fields.items():
        alias = info.alias or to_camel(name)
        path = alias if top else f"{parent.path}.{alias}"
        if top and alias == PROVIDER_SPEC:
            yield _provider_spec(info, provider)
        elif not (top and parent.model is Settings and alias == "file"):  # not written in the file: it names the file
            yield _field(parent, name, alias, path, info, provider)
    if top and parent.model is KINDS["Machine"]:
        yield Field(STATUS, STATUS, "Status", Status, description=f"{_words(Status)} It is output only.")


def _provider_spec(info: FieldInfo, provider: str) -> Field:
    if not provider:
        words = f"Its fields depend on the provider: give --provider with one of {', '.join(sorted(PROVIDERS))}."
        return Field(PROVIDER_SPEC, PROVIDER_SPEC, "Object", None, required=info.is_required(), description=words)
    model = PROVIDERS[provider].spec
    return Field(
        PROVIDER_SPEC,
        PROVIDER_SPEC,
        model.__name__,
        model,
        required=info.is_required(),
        description=_words(model),
        effects=_effects(provider, PROVIDER_SPEC),
    )


def _field(parent: Field, name: str, alias: str, path: str, info: FieldInfo, provider: str) -> Field:
    type_, model = _type(info.annotation)
    words = (_docstrings(parent.model).get(name) if parent.model else "") or (_words(model) if model else "")
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
        effects=_effects(provider, path) if path.startswith(f"{PROVIDER_SPEC}.") else _marked(mark, model),
        mark=mark,
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
        if len(known) > 1 and kind == "MachineClass" and PROVIDER_SPEC in steps:
            raise Refused(f"which providerSpec? Give --provider with one of {', '.join(sorted(PROVIDERS))}")
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
    """The effect by the path as one types it: `blockDevices.ebs.iops`."""
    return {path.replace("[]", ""): effect for path, effect in effects(PROVIDERS[provider].spec)}


def _effects(provider: str, path: str) -> tuple[Effect, ...]:
    """The effects of the field, or of all that are below it, each once."""
    inner = path.removeprefix(PROVIDER_SPEC).lstrip(".")
    every = _effect_of(provider).items()
    found = {effect for leaf, effect in every if not inner or leaf == inner or leaf.startswith(f"{inner}.")}
    return tuple(effect for effect in Effect if effect in found)


def _marked(mark: Effect | None, model: type[BaseModel] | None) -> tuple[Effect, ...]:
    """The effects of a field that is marked, or below one that is: its own, or those of all that are below it."""
    found = {mark} if model is None else {e for _, e in effects(model, inherited=mark)} if mark else set()
    return tuple(effect for effect in Effect if effect in found)


def effect_words(effect: Effect) -> str:
    """What an effect means, as resources.effects says it."""
    return _docstrings(Effect)[effect.name]


def _words(model: type[BaseModel]) -> str:
    """A model's own docstring, not an inherited one."""
    return inspect.cleandoc(model.__dict__.get("__doc__") or "").partition("\n\n")[0].replace("\n", " ")


@cache
def _docstrings(owner: type) -> dict[str, str]:
    """The words under each attribute of a class, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] == "resources":
            found |= dict(_own_docstrings(base))
    return found


def _own_docstrings(owner: type) -> Iterator[tuple[str, str]]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if (
            isinstance(target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            yield target.id, " ".join(str(following.value.value).split())
