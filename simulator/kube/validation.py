"""What holds for the metadata of every object: names, labels, annotations, finalizers, owners.

Rules and texts: k8s.io/apimachinery pkg/util/validation and pkg/api/validation.
"""

from __future__ import annotations

import re
from typing import Any

from simulator.kube.errors import FieldErrors, bad_request
from simulator.kube.objects import Obj
from simulator.kube.resources import NAMESPACES, Resource

_LABEL_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL_NAME)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL_NAME}(\.{_LABEL_NAME})*")
_QUALIFIED_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
ANNOTATIONS_LIMIT = 256 * 1024

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def subdomain_problem(text: str) -> str | None:
    """Why it is not the name of a Node, say; None when it is one."""
    return None if is_subdomain(text) else _SUBDOMAIN_RULE


def qualified_name_problem(key: str) -> str | None:
    """Why a label or annotation key is not a qualified name; None when it is one."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    return None if _QUALIFIED_PART.fullmatch(name) else _QUALIFIED_RULE


def label_value_problem(value: str) -> str | None:
    if len(value) > 63:
        return "must be no more than 63 characters"
    return None if _LABEL_VALUE.fullmatch(value) else _VALUE_RULE


def check_shape(resource: Resource, obj: Any) -> None:
    """The parts every decoder relies on. Raises 400 for an object of another type than the path says."""
    if not isinstance(obj, dict):
        raise bad_request("the object provided is unrecognized (must be of type object)")
    for name, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        given = obj.get(name)
        if given is None and resource.custom is not None:
            raise bad_request(f"Object '{name[0].upper()}{name[1:]}' is missing in the request body")
        if given not in (None, expected):
            what = "API version" if name == "apiVersion" else "kind"
            raise bad_request(f"the {what} in the data ({given}) does not match the expected {what} ({expected})")
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    for name in ("labels", "annotations"):
        part = meta.get(name)
        if part is not None and (not isinstance(part, dict) or not all(isinstance(v, str) for v in part.values())):
            raise bad_request(f"metadata.{name} must be a map of strings to strings")
    for name in ("spec", "status"):
        if resource.custom is None and not isinstance(obj.get(name, {}), dict | None):
            raise bad_request(f"{name} must be an object")


def check_metadata(resource: Resource, obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    meta = obj["metadata"]
    _check_name(resource, meta["name"], errors)
    for key, value in (meta.get("labels") or {}).items():
        if problem := qualified_name_problem(key):
            errors.invalid("metadata.labels", key, problem)
        if problem := label_value_problem(value):
            errors.invalid("metadata.labels", value, problem)
    annotations = meta.get("annotations") or {}
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            errors.invalid("metadata.annotations", key, problem)
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > ANNOTATIONS_LIMIT:
        errors.invalid("metadata.annotations", "", f"must have at most {ANNOTATIONS_LIMIT} bytes")
    for i, owner in enumerate(meta.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                errors.invalid(f"metadata.ownerReferences[{i}].{field}", "", f"{field} must not be empty")
    _check_finalizers(meta, old, errors)


def _check_name(resource: Resource, name: str, errors: FieldErrors) -> None:
    if resource.id == NAMESPACES.id:
        if len(name) > 63:
            errors.invalid("metadata.name", name, "must be no more than 63 characters")
        elif not _DNS_LABEL.fullmatch(name):
            errors.invalid("metadata.name", name, _LABEL_RULE)
    elif not is_subdomain(name):
        errors.invalid("metadata.name", name, _SUBDOMAIN_RULE)


def _check_finalizers(meta: Obj, old: Obj | None, errors: FieldErrors) -> None:
    finalizers = meta.get("finalizers") or []
    for finalizer in finalizers:
        if problem := qualified_name_problem(finalizer):
            errors.invalid("metadata.finalizers", finalizer, problem)
    if old is None or not old["metadata"].get("deletionTimestamp"):
        return
    new = [f for f in finalizers if f not in (old["metadata"].get("finalizers") or ())]
    if new:
        listed = ", ".join(f'"{f}"' for f in new)
        errors.forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )
