"""What a change of a field does to running machines (seed 002: `updatable`)."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Union

from pydantic import BaseModel


class Effect(StrEnum):
    HOT = "hot"
    """Updatable: changed in place, no machine is replaced."""
    HASH = "hash"
    """Not updatable: the field is part of the class hash, so a change replaces machines. This is the default."""
    POST_START = "post-start"
    """Applied once after the start, never hot: a change replaces machines like `hash`."""
    POOL = "pool"
    """Controls the pool; no machine is changed or replaced because of it."""
    NONE = "none"
    """Accepted for compatibility and ignored."""


def effects(model: type[BaseModel], prefix: str = "", inherited: Effect | None = None) -> Iterator[tuple[str, Effect]]:
    """Path and effect of every leaf field; list items are written `[]`. A mark on a field covers everything below
    it."""
    for name, field in model.model_fields.items():
        marked = next((m for m in field.metadata if isinstance(m, Effect)), None) or inherited
        path = f"{prefix}{field.alias or name}"
        inner, suffix = inner_model(field.annotation)
        if inner is not None:
            yield from effects(inner, f"{path}{suffix}.", marked)
        else:
            yield path, marked or Effect.HASH


def inner_model(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model inside `X | None` or `list[X]`, and how the paths of its fields go on. A list of words is one
    field."""
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType):
        for option in typing.get_args(annotation):
            model, suffix = inner_model(option)
            if model is not None:
                return model, suffix
        return None, ""
    if origin is list:
        model, _ = inner_model(typing.get_args(annotation)[0])
        return model, "[]" if model is not None else ""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    return None, ""
