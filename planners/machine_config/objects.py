"""Questions about objects of the API server, as the dicts that it gave, and new ones made of them.

Rendering reads and writes whole objects with fields that it does not know, so it works on dicts, and never changes one
that it was given.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pydantic import ValidationError

from resources.base import explained, read_time
from resources.machine_config.keys import (
    API,
    GENERATED_BY,
    MACHINE_CONFIG_POOL,
    RENDERED_PREFIX,
    ROLE_LABEL,
    ConfigKind,
)
from resources.selectors import LabelSelector
from resources.words import kube_time

Obj: TypeAlias = Mapping[str, Any]
_DIGITS = re.compile(r"[0-9]+")


def meta(obj: Obj) -> Mapping[str, Any]:
    found: Mapping[str, Any] = obj.get("metadata") or {}
    return found


def name_of(obj: Obj) -> str:
    return str(meta(obj).get("name") or "")


def uid_of(obj: Obj) -> str:
    return str(meta(obj).get("uid") or "")


def labels_of(obj: Obj) -> Mapping[str, str]:
    return meta(obj).get("labels") or {}


def annotations_of(obj: Obj) -> Mapping[str, str]:
    return meta(obj).get("annotations") or {}


def spec_of(obj: Obj) -> Mapping[str, Any]:
    return obj.get("spec") or {}


def status_of(obj: Obj) -> Mapping[str, Any]:
    return obj.get("status") or {}


def role_of(config: Obj) -> str:
    """The role of a MachineConfig; "" where it has none."""
    return labels_of(config).get(ROLE_LABEL, "")


def generation_of(obj: Obj) -> int:
    return int(meta(obj).get("generation") or 0)


def created_at(obj: Obj) -> datetime:
    return read_time(meta(obj).get("creationTimestamp")) or datetime.max.replace(tzinfo=UTC)


def is_deleting(obj: Obj) -> bool:
    return bool(meta(obj).get("deletionTimestamp"))


def is_generated(config: Obj) -> bool:
    """Whether a controller has made it, and no person."""
    return GENERATED_BY in annotations_of(config)


def owner_of(obj: Obj, kind: ConfigKind) -> Mapping[str, Any] | None:
    """The first owner of a kind of this API."""
    owners = meta(obj).get("ownerReferences") or ()
    return next((o for o in owners if o.get("kind") == kind.kind and _is_ours(o)), None)


def _is_ours(owner: Mapping[str, Any]) -> bool:
    return str(owner.get("apiVersion", "")).partition("/")[0] == API.partition("/")[0]


def is_rendered(config: Obj) -> bool:
    """Whether it is the merged config of a pool, which is never merged again, whatever a selector says."""
    return name_of(config).startswith(RENDERED_PREFIX) or owner_of(config, MACHINE_CONFIG_POOL) is not None


def owner_reference(owner: Obj, kind: ConfigKind) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": kind.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


# -- selectors --------------------------------------------------------------------------------------------------------


class ConfigSelectorError(ValueError):
    """A label selector cannot be read; the message says what to write."""


def selector_at(obj: Obj, field: str) -> LabelSelector | None:
    """The selector in a field of the spec; None where there is none, which selects nothing. Raises
    ConfigSelectorError."""
    given = spec_of(obj).get(field)
    if given is None:
        return None
    try:
        found = LabelSelector.model_validate(given)
    except ValidationError as e:
        raise ConfigSelectorError(f"spec.{field}: {explained(e)}") from None
    for n, expression in enumerate(found.match_expressions):
        at = f"spec.{field}.matchExpressions[{n}]"
        if expression.operator in ("In", "NotIn") and not expression.values:
            raise ConfigSelectorError(f"{at}.values: {expression.operator} needs at least one")
        if expression.operator in ("Exists", "DoesNotExist") and expression.values:
            raise ConfigSelectorError(f"{at}.values: {expression.operator} has none")
    return found


def selects_all(selector: LabelSelector | None) -> bool:
    """Whether it is `{}`, which in a Deployment would match everything and is always a slip."""
    return selector is not None and not selector.match_labels and not selector.match_expressions


def selected(selector: LabelSelector | None, objects: Iterable[Obj]) -> list[Obj]:
    """The objects that it selects; none of those without a selector, and none by an empty one."""
    if selector is None or selects_all(selector):
        return []
    return [o for o in objects if selector.matches(dict(labels_of(o)))]


# -- conditions -------------------------------------------------------------------------------------------------------


def condition(obj: Obj, type_: str) -> Mapping[str, Any] | None:
    return next((c for c in status_of(obj).get("conditions") or () if c.get("type") == type_), None)


def with_conditions(obj: Obj, wanted: Sequence[Mapping[str, str]], now: datetime) -> list[dict[str, Any]]:
    """The object's conditions with those of `wanted` (type, status, reason, message) set. The others stay, and so does
    the time since when a status is as it is."""
    found = [dict(c) for c in status_of(obj).get("conditions") or ()]
    for new in wanted:
        old = next((c for c in found if c.get("type") == new["type"]), None)
        since = old.get("lastTransitionTime") if old and old.get("status") == new["status"] else None
        full = {**new, "lastTransitionTime": since or kube_time(now)}
        if old is None:
            found.append(full)
        else:
            found[found.index(old)] = full
    return found


# -- versions ---------------------------------------------------------------------------------------------------------


def newer(one: str, than: str) -> bool:
    """Whether a version, such as 0.2.0, is newer than another. One that is not made of numbers is never newer."""
    first, second = (tuple(int(n) for n in _DIGITS.findall(v.partition("+")[0])) for v in (one, than))
    return bool(first) and bool(second) and first > second


# -- new objects ------------------------------------------------------------------------------------------------------


def copied(obj: Obj) -> dict[str, Any]:
    return copy.deepcopy(dict(obj))


def changed(
    obj: Obj, *, status: Mapping[str, Any] | None = None, spec: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A copy with fields of its spec or status set."""
    new = copied(obj)
    for part, fields in (("spec", spec), ("status", status)):
        if fields is not None:
            new[part] = {**(new.get(part) or {}), **copy.deepcopy(dict(fields))}
    return new
