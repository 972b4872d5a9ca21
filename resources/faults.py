"""What is wrong with a value that somebody has written, in words that say what to write instead.

pydantic's own words are about Python ("Input should be a valid integer", "greater than 0:00:00"); these are about the
field. The input is never quoted: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from resources.base import fault_words, format_duration
from resources.spelling import did_you_mean

_NOT = {
    "int": "not a whole number",
    "float": "not a number",
    "bool": "write true or false",
    "string": "not a text: put it in quotes",
    "path": "not a path",
    "list": "not a list: write it like [a, b]",
    "dict": "not a mapping: write fields, each as `name: value`",
    "model": "not a mapping: write fields, each as `name: value`",
}
"""Words by how pydantic's types of errors begin: `int_type`, `int_parsing`, `model_attributes_type`."""
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


def faults(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path of each wrong field, as one writes it in YAML, and what is wrong with it."""
    for e in error.errors(include_url=False, include_input=False):
        path = tuple(str(step) for step in e["loc"])
        yield tuple(_written(model, path)), words(e, fields_of(model, path[:-1]))


def words(fault: ErrorDetails, known: Sequence[str] = ()) -> str:
    """`known`: the fields that may stand where an unknown one does."""
    kind, context = fault["type"], fault.get("ctx") or {}
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"there is no such field{did_you_mean(str(fault['loc'][-1]), known) or _few(known)}"
    if kind in ("literal_error", "enum"):
        return f"write {str(context.get('expected', '')).replace(chr(39), '')}"
    if kind == "string_pattern_mismatch":
        return f"has other characters than it may have (it must match {context['pattern']})"
    if kind in _BOUNDS:
        key, said = _BOUNDS[kind]
        return f"{said} {_bound(context[key])}"
    return _NOT.get(kind.partition("_")[0]) or fault_words(kind, fault["msg"])


def _bound(value: Any) -> str:
    """pydantic gives the bound of a duration as Python writes it: `datetime.timedelta(seconds=60)`."""
    if span := re.fullmatch(r"datetime\.timedelta\((?:days=(\d+))?(?:, )?(?:seconds=(\d+)|0)?\)", str(value)):
        return format_duration(timedelta(days=int(span[1] or 0), seconds=int(span[2] or 0)))
    return str(value)


def _few(known: Sequence[str]) -> str:
    return f"; there are {', '.join(known)}" if known else ""


def fields_of(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The fields of what is at `path`, as one writes them; none where that is not a mapping with known fields."""
    found = _at(model, path)
    return [f.alias or to_camel(name) for name, f in found.model_fields.items()] if found else []


def _written(model: type[BaseModel], path: Sequence[str]) -> Iterator[str]:
    """A field by its name in Python becomes the one of the file; a key of a table stays."""
    for i, step in enumerate(path):
        found = _at(model, path[:i])
        if step != "[key]":  # pydantic's mark of a table's key that is wrong itself
            yield to_camel(step) if found is not None and step in found.model_fields else step


def _at(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """The model of what is at `path`."""
    found: Any = model
    for step in path:
        if isinstance(found, type) and issubclass(found, BaseModel):
            fields = found.model_fields
            by_alias = {f.alias: f for f in fields.values()}
            field = fields.get(step) or by_alias.get(step)
            found = field.annotation if field else None
        else:  # a table's key, or a list's index: what its values are
            found = next(reversed(get_args(found)), None)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None
