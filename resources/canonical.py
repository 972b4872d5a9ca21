"""The one form in which all specs that mean the same are equal. Specs are compared and hashed in it.

It holds only what somebody has asked for, so a release that adds an optional field changes no spec that lacks it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python


class Empty(Enum):
    """A mark on a field whose empty value asks for something different from no value at all."""

    COUNTS = "counts"


def canonical(given: BaseModel) -> dict[str, Any]:
    """The fields that ask for something, as JSON by alias: not those at their default, nor an empty text, list or table
    where no value is the default (unless the field is marked with `Empty.COUNTS`), nor unknown ones."""
    found: dict[str, Any] = {}
    defaults = _defaults(type(given))
    for name, field in type(given).model_fields.items():
        value, default = getattr(given, name), defaults[name]
        if value == default:
            continue
        plain = _plain(value)
        if default is None and plain in ("", [], {}) and Empty.COUNTS not in field.metadata:
            continue
        found[field.alias or name] = plain
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return canonical(value)
    return [_plain(item) for item in value] if isinstance(value, list) else to_jsonable_python(value)


def lasting(message: BaseModel, always: Collection[str], never: Collection[str] = ()) -> str:
    """A message as JSON, for a digest that outlives a release: the fields that were `always` in it, and all others that
    say something, so that a release with one more field is no news. `never`: what is not in the digest."""
    defaults = _defaults(type(message)).items()
    silent = {name for name, default in defaults if name not in always and getattr(message, name) == default}
    return message.model_dump_json(exclude={*never, *silent})


@functools.cache
def _defaults(kind: type[BaseModel]) -> Mapping[str, Any]:
    """The defaults of its fields, to compare with. To ask a field for its own takes longer than a digest."""
    return {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
