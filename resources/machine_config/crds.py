"""The CustomResourceDefinitions of machine configs, made of the models in `objects.py`: a structural schema each, so
that the API server refuses what no reader of ours could take, and drops what nobody would read.

`make crds` writes them into deploy/crds; simulators take them from here.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Union

from annotated_types import MaxLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resources.docstrings import field_words, model_words
from resources.machine_config.keys import GENERATED_BY, GROUP, VERSION, ConfigKind
from resources.machine_config.objects import (
    CONFIG_MODELS,
    ConfigObject,
    ControllerConfig,
    KubeletConfig,
    MachineConfig,
    MachineConfigPool,
    MachineConfigPoolSpec,
    MachineSetRef,
)
from resources.selectors import LabelSelector

Schema = dict[str, Any]

_ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_SERVERS = ("apiVersion", "kind", "metadata")
"""Fields that are the API server's own: no schema may say more of them."""
_CHOSEN_BY = ("machineSelector", "nodeSelector", "machineSetRef")
ATOMIC: Schema = {"x-kubernetes-map-type": "atomic"}
PERCENT = "^(100|[1-9]?[0-9])%$"
MORE: dict[tuple[type[BaseModel], str], Schema] = {
    (MachineConfigPoolSpec, "max_unavailable"): {"minimum": 0, "pattern": PERCENT},
    # One of the three takes another's place as a whole, and a selector is never merged of two writers' (upstream too).
    (LabelSelector, ""): ATOMIC,
    (MachineSetRef, ""): ATOMIC,
    (MachineConfigPoolSpec, ""): {
        "not": {"anyOf": [{"required": [a, b]} for n, a in enumerate(_CHOSEN_BY) for b in _CHOSEN_BY[n + 1 :]]}
    },
}
"""What the types do not say, by model and field; "" is the model itself."""


def _column(name: str, path: str, of_type: str = "string", words: str = "") -> dict[str, str]:
    return {"name": name, "type": of_type, "jsonPath": path, **({"description": words} if words else {})}


def _condition(name: str) -> str:
    return f'.status.conditions[?(@.type=="{name}")].status'


AGE = _column("Age", ".metadata.creationTimestamp", "date")
COLUMNS: dict[type[ConfigObject], list[dict[str, str]]] = {
    MachineConfig: [
        _column("GeneratedByController", f".metadata.annotations.{GENERATED_BY.replace('.', chr(92) + '.')}"),
        _column("IgnitionVersion", ".spec.config.ignition.version"),
        AGE,
    ],
    MachineConfigPool: [
        _column("Config", ".status.configuration.name"),
        _column("Updated", _condition("Updated"), words="When all the machines in the pool are updated."),
        _column("Updating", _condition("Updating"), words="When at least one of them is not, and the pool goes on."),
        _column("Degraded", _condition("Degraded"), words="When the pool cannot continue on its own."),
        _column("MachineCount", ".status.machineCount", "number"),
        _column("ReadyMachineCount", ".status.readyMachineCount", "number"),
        _column("UpdatedMachineCount", ".status.updatedMachineCount", "number"),
        _column("DegradedMachineCount", ".status.degradedMachineCount", "number"),
        AGE,
    ],
    KubeletConfig: [AGE],
    ControllerConfig: [AGE],
}
"""As upstream prints them."""


def definitions() -> list[dict[str, Any]]:
    """All of them, as manifests."""
    return [_definition(model) for model in CONFIG_MODELS.values()]


def _definition(model: type[ConfigObject]) -> dict[str, Any]:
    of: ConfigKind = model.KIND
    names: dict[str, Any] = {
        "kind": of.kind,
        "listKind": f"{of.kind}List",
        "plural": of.plural,
        "singular": of.singular,
        **({"shortNames": list(of.short)} if of.short else {}),
    }
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": COLUMNS[model],
        "schema": {"openAPIV3Schema": _whole(model)},
        **({"subresources": {"status": {}}} if "status" in model.model_fields else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": of.crd},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _whole(model: type[ConfigObject]) -> Schema:
    own = dict(_properties(model))
    servers = {name: {"type": "object" if name == "metadata" else "string"} for name in _SERVERS}
    return {
        "description": model_words(model),
        "type": "object",
        "required": ["spec"],
        "properties": {**servers, **{name: schema for name, schema in own.items() if name not in _SERVERS}},
    }


def _object(model: type[BaseModel]) -> Schema:
    required = [info.alias or name for name, info in model.model_fields.items() if info.is_required()]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": dict(_properties(model)),
        **(_ANYTHING if getattr(model, "OPEN", False) else {}),
        **MORE.get((model, ""), {}),
    }


def _properties(model: type[BaseModel]) -> Iterator[tuple[str, Schema]]:
    words = field_words(model)
    for name, info in model.model_fields.items():
        schema = _of_type(_annotated(info))
        said = words.get(name) or _words_of_model(info.annotation)
        yield (
            info.alias or name,
            {**({"description": said} if said else {}), **schema, **MORE.get((model, name), {})},
        )


def _annotated(info: FieldInfo) -> Any:
    """The type of a field with its marks, from which pydantic has taken them."""
    return typing.Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def _words_of_model(annotation: Any) -> str:
    options = [a for a in (typing.get_args(annotation) or (annotation,)) if a is not type(None)]
    inner = options[0] if len(options) == 1 else None
    return model_words(inner) if isinstance(inner, type) and issubclass(inner, BaseModel) else ""


def _of_type(hint: Any) -> Schema:
    """The schema of a type. Raises TypeError for one that no model of ours has had yet."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return {**_of_type(arguments[0]), **_bounds(arguments)}
    if origin in (Union, types.UnionType):
        return _of_options([_of_type(a) for a in arguments if a is not type(None)])
    if origin is list:
        return {"type": "array", "items": _of_type(arguments[0])}
    if origin is dict:
        below = _of_type(arguments[1])
        return {"type": "object", **(_ANYTHING if below == _ANYTHING else {"additionalProperties": below})}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _object(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [str(member.value) for member in hint]}
    return dict(_SCALARS[hint])


_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    Any: _ANYTHING,
}


def _bounds(arguments: tuple[Any, ...]) -> Schema:
    """The longest text that a reader takes; what a reader cuts has no bound."""
    marks = [*arguments[1:], *(m for a in arguments[1:] for m in getattr(a, "metadata", ()))]
    most = next((m.max_length for m in marks if isinstance(m, MaxLen)), None)
    return {"maxLength": most} if most is not None and typing.get_origin(arguments[0]) is None else {}


def _of_options(options: list[Schema]) -> Schema:
    kinds = [o.get("type") for o in options]
    if kinds == ["integer", "string"]:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if len(options) != 1:
        raise TypeError(f"no schema for one of {kinds}")
    return options[0]
