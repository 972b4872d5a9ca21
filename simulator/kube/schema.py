"""Structural schemas of custom resources: defaulting, pruning and validation, in the order of a real server.

Validation covers the OpenAPI v3 keywords a CustomResourceDefinition may use; CEL rules are refused in `crds`.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from simulator.kube.errors import FieldErrors
from simulator.kube.objects import Obj, parse_time

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def prune(value: Any, schema: Obj, path: str = "") -> list[str]:
    """Remove in place what the schema does not name; answers the paths of what went."""
    gone: list[str] = []
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for i, entry in enumerate(value):
                gone += prune(entry, items, f"{path}[{i}]")
        return gone
    if not isinstance(value, dict):
        return gone
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in list(value):
        if name in properties:
            gone += prune(value[name], properties[name], _join(path, name))
        elif isinstance(more, dict):
            gone += prune(value[name], more, _join(path, name))
        elif schema.get(_EMBEDDED) and name in ("apiVersion", "kind", "metadata"):
            continue
        elif not more and not schema.get(_PRESERVE):
            del value[name]
            gone.append(_join(path, name))
    return gone


def apply_defaults(value: Any, schema: Obj) -> None:
    """Fill in defaults in place; a null where null is not allowed counts as absent when there is a default."""
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for entry in value:
                apply_defaults(entry, items)
        return
    if not isinstance(value, dict):
        return
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, sub in properties.items():
        absent = name not in value or (value[name] is None and not sub.get("nullable"))
        if absent and "default" in sub:
            value[name] = copy.deepcopy(sub["default"])
    for name, part in value.items():
        sub = properties.get(name, more)
        if isinstance(sub, dict):
            apply_defaults(part, sub)


def _is_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    return next(name for name in ("boolean", "string", "object", "array", "integer", "number") if _is_type(value, name))


def validate(value: Any, schema: Obj, path: str, errors: FieldErrors) -> None:
    """Collect everything in `value` that the schema forbids."""
    if value is None and schema.get("nullable"):
        return
    expected = schema.get("type")
    if schema.get(_INT_OR_STRING):
        if not _is_type(value, "integer") and not isinstance(value, str):
            errors.invalid(path, _type_name(value), f"{path} in body must be of type integer or string")
            return
    elif expected and not _is_type(value, expected):
        given = _type_name(value)
        errors.invalid(path, given, f'{path} in body must be of type {expected}: "{given}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        errors.unsupported(path, value, schema["enum"])
    if isinstance(value, str):
        _validate_string(value, schema, path, errors)
    elif isinstance(value, dict):
        _validate_object(value, schema, path, errors)
    elif isinstance(value, list):
        _validate_array(value, schema, path, errors)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _validate_number(value, schema, path, errors)
    _validate_junctors(value, schema, path, errors)


def _validate_number(value: float, schema: Obj, path: str, errors: FieldErrors) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        errors.invalid(path, value, f"{path} in body should be {word} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        errors.invalid(path, value, f"{path} in body should be {word} {high}")
    if (step := schema.get("multipleOf")) and value % step:
        errors.invalid(path, value, f"{path} in body should be a multiple of {step}")


def _validate_string(value: str, schema: Obj, path: str, errors: FieldErrors) -> None:
    if len(value) < schema.get("minLength", 0):
        errors.invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if len(value) > schema.get("maxLength", len(value)):
        errors.invalid(path, value, f"{path} in body should be at most {schema['maxLength']} chars long")
    if (pattern := schema.get("pattern")) and not re.search(pattern, value):
        errors.invalid(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time":
        try:
            parse_time(value)
        except ValueError:
            errors.invalid(path, value, f'{path} in body must be of type date-time: "{value}"')


def _validate_object(value: Obj, schema: Obj, path: str, errors: FieldErrors) -> None:
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            errors.required(_join(path, name))
    if len(value) < schema.get("minProperties", 0):
        errors.invalid(path, len(value), f"{path} in body should have at least {schema['minProperties']} properties")
    if len(value) > schema.get("maxProperties", len(value)):
        errors.invalid(path, len(value), f"{path} in body should have at most {schema['maxProperties']} properties")
    for name, part in value.items():
        sub = properties.get(name, more)
        if isinstance(sub, dict):
            validate(part, sub, _join(path, name), errors)


def _validate_array(value: list[Any], schema: Obj, path: str, errors: FieldErrors) -> None:
    if len(value) < schema.get("minItems", 0):
        errors.invalid(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    if len(value) > schema.get("maxItems", len(value)):
        errors.invalid(path, len(value), f"{path} in body should have at most {schema['maxItems']} items")
    kind = schema.get("x-kubernetes-list-type")
    seen: list[Any] = []
    for i, entry in enumerate(value):
        if isinstance(schema.get("items"), dict):
            validate(entry, schema["items"], f"{path}[{i}]", errors)
        if kind == "map" and isinstance(entry, dict):
            identity: Any = {k: entry.get(k) for k in schema.get("x-kubernetes-list-map-keys") or ()}
        elif kind == "set":
            identity = entry
        else:
            continue
        if identity in seen:
            errors.duplicate(f"{path}[{i}]", identity)
        seen.append(identity)


def _fits(value: Any, schema: Obj, path: str) -> bool:
    tried = FieldErrors()
    validate(value, schema, path, tried)
    return not tried


def _validate_junctors(value: Any, schema: Obj, path: str, errors: FieldErrors) -> None:
    """A real server names no field where a combination of schemas is not met."""
    for sub in schema.get("allOf") or ():
        validate(value, sub, path, errors)
    any_of = None if schema.get(_INT_OR_STRING) else schema.get("anyOf")
    if any_of and not any(_fits(value, sub, path) for sub in any_of):
        errors.invalid("<nil>", "", f'"{path}" must validate at least one schema (anyOf)')
    if (one_of := schema.get("oneOf")) and sum(_fits(value, sub, path) for sub in one_of) != 1:
        errors.invalid("<nil>", "", f'"{path}" must validate one and only one schema (oneOf)')
    if "not" in schema and _fits(value, schema["not"], path):
        errors.invalid("<nil>", "", f'"{path}" must not validate the schema (not)')
