"""Values of a manifest that have another type than their field, though pydantic would read them: `paused: "yes"`,
`replicas: "3"`, `drainTimeout: 300`.

They are judged in what was written, as an API server does, which takes none of them: the models go on reading them, for
a state or a stored spec may hold what an older release took.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel

from resources.effects import inner_model


def mistyped(model: type[BaseModel], given: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Path and words for each of them. What a model refuses on its own is not among them."""
    if not isinstance(given, Mapping):
        return
    for name, info in model.model_fields.items():
        for spelled in dict.fromkeys((info.alias or name, name)):
            if spelled in given:
                yield from _value(info.annotation, given[spelled], f"{prefix}{spelled}")


def _value(annotation: Any, given: Any, path: str) -> Iterator[tuple[str, str]]:
    below, _ = inner_model(annotation)
    if below is not None:
        for n, item in enumerate(given if isinstance(given, list) else [given]):
            yield from mistyped(below, item, f"{path}[{n}]." if isinstance(given, list) else f"{path}.")
    elif words := _wrong(_options(annotation), given):
        yield path, words


def _options(annotation: Any) -> list[Any]:
    """The plain types that a field may have."""
    if typing.get_origin(annotation) is Annotated:
        return _options(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [t for option in typing.get_args(annotation) for t in _options(option)]
    return [annotation]


def _wrong(options: list[Any], given: Any) -> str:
    """What to write instead of a value that none of the types has; "" where one has it, or pydantic judges it."""
    if any(o is str or o is Any or typing.get_origin(o) is Literal or _is(o, Enum) for o in options):
        return ""
    if bool in options and not isinstance(given, bool) and isinstance(given, str | int | float):
        return "write true or false, without quotes"
    if int in options and isinstance(given, bool | str | float) and float not in options:
        return "not a whole number; write it without quotes, like 3"
    if float in options and isinstance(given, bool | str):
        return "not a number; write it without quotes, like 1.5"
    if timedelta in options and isinstance(given, int | float) and not isinstance(given, bool):
        return f"a number has no unit; write {given:g}s, or like 20m or 1h30m"
    return ""


def _is(option: Any, kind: type) -> bool:
    return isinstance(option, type) and issubclass(option, kind)
