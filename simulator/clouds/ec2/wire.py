"""The EC2 query protocol: form parameters in, XML out, both by the shapes of botocore's service model.

One decoder and one encoder serve every operation, so that an answer cannot hold a member that an SDK does not know.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

import botocore.session

from simulator.clouds.ec2.errors import Ec2Error

Params = dict[str, Any]
"""Decoded parameters of a call, by the member names of the service model."""
Row = dict[str, Any]
"""One structure of an answer, by the member names of the service model."""

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
PROTOCOL_FIELDS = frozenset({"Action", "Version"})


@functools.cache
def model(service: str = "ec2") -> Any:
    """botocore's service model; loading it takes some tenths of a second, hence once a process."""
    return botocore.session.get_session().get_service_model(service)


@functools.cache
def operation(name: str) -> Any:
    return model().operation_model(name)


# ---------------------------------------------------------------------------------------------------------- in


def decode(action: str, form: Iterable[tuple[str, str]]) -> Params:
    """Typed parameters of a call from its form.

    Raises UnknownParameter, MissingParameter or InvalidParameterValue, as EC2 does.
    """
    tree = _tree((k, v) for k, v in form if k not in PROTOCOL_FIELDS)
    params: Params = _decode(operation(action).input_shape, tree, "")
    return params


def _tree(form: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`Filter.1.Value.1=x` as nested dictionaries."""
    root: dict[str, Any] = {}
    for name, value in form:
        *path, leaf = name.split(".")
        branch = root
        for part in path:
            deeper = branch.setdefault(part, {})
            if not isinstance(deeper, dict):
                raise Ec2Error("InvalidParameterCombination", f"The parameter {name} is both a value and a structure")
            branch = deeper
        branch[leaf] = value
    return root


def _query_name(member_name: str, member: Any) -> str:
    """How EC2 calls a member in a query: `queryName`, or its name with a capital initial (as botocore)."""
    serialization = member.serialization
    if "queryName" in serialization:
        return str(serialization["queryName"])
    name = str(serialization.get("name", member_name))
    return name[:1].upper() + name[1:]


def _decode(shape: Any, value: Any, path: str) -> Any:
    match shape.type_name:
        case "structure":
            return _decode_structure(shape, value, path)
        case "list":
            if not isinstance(value, dict):
                raise Ec2Error("InvalidParameterValue", f"The parameter {path} must be a list")
            keys = sorted((k for k in value if k.isdigit()), key=int)
            if len(keys) != len(value):
                raise Ec2Error("UnknownParameter", f"The parameter {path} has members that are not list indices")
            return [_decode(shape.member, value[k], path) for k in keys]
        case _:
            return _decode_scalar(shape, value, path)


def _decode_structure(shape: Any, value: Any, path: str) -> Params:
    if not isinstance(value, dict):
        raise Ec2Error("InvalidParameterValue", f"The parameter {path} must be a structure")
    rest = dict(value)
    decoded: Params = {}
    for name, member in shape.members.items():
        key = _query_name(name, member)
        if key in rest:
            decoded[name] = _decode(member, rest.pop(key), f"{path}.{name}" if path else name)
        elif name in shape.required_members:
            raise Ec2Error("MissingParameter", f"The request must contain the parameter {path}{'.' * bool(path)}{name}")
    if rest:
        raise Ec2Error("UnknownParameter", f"The parameter {next(iter(rest))} is not recognized")
    return decoded


def _decode_scalar(shape: Any, value: Any, path: str) -> Any:
    invalid = Ec2Error("InvalidParameterValue", f"Invalid value '{value}' for {path}.")
    if not isinstance(value, str):
        raise invalid
    try:
        match shape.type_name:
            case "integer" | "long":
                return int(value)
            case "float" | "double":
                return float(value)
            case "boolean":
                return {"true": True, "false": False}[value.lower()]
    except (ValueError, KeyError):
        raise invalid from None
    allowed = getattr(shape, "enum", None)
    if allowed and value not in allowed:
        raise invalid
    return value


def field_paths(params: Params, prefix: str = "") -> set[str]:
    """Every field that a call sets, as dotted member names without list indices."""
    paths: set[str] = set()
    for name, value in params.items():
        path = f"{prefix}{name}"
        for item in value if isinstance(value, list) else [value]:
            paths |= field_paths(item, f"{path}.") if isinstance(item, dict) else {path}
    return paths


# --------------------------------------------------------------------------------------------------------- out


def answer(action: str, result: Row, request_id: str) -> str:
    shape = operation(action).output_shape
    body = encode(shape, result) if shape is not None and shape.members else "<return>true</return>"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>{request_id}</requestId>{body}</{action}Response>"
    )


def error_answer(error: Ec2Error, request_id: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        f"</Error></Errors><RequestID>{request_id}</RequestID></Response>"
    )


def encode(shape: Any, value: Any) -> str:
    """XML of a value; members that are None are left out. A member unknown to the shape is our mistake: KeyError."""
    match shape.type_name:
        case "structure":
            members = shape.members
            return "".join(_element(members[n], n, v) for n, v in value.items() if v is not None)
        case "list":
            name = shape.member.serialization.get("name", "item")
            return "".join(f"<{name}>{encode(shape.member, v)}</{name}>" for v in value)
        case "boolean":
            return "true" if value else "false"
        case "timestamp":
            return timestamp(value)
        case _:
            return escape(str(value))


def _element(shape: Any, name: str, value: Any) -> str:
    tag = shape.serialization.get("name", name)
    return f"<{tag}>{encode(shape, value)}</{tag}>"


def timestamp(epoch: float) -> str:
    """Seconds since the epoch as EC2 writes times: whole seconds, UTC."""
    return datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
