"""Label and field selectors: from query strings, and the LabelSelector objects inside specs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.kube.errors import bad_request
from simulator.kube.objects import Obj, dig
from simulator.kube.resources import EVENTS, Resource

Labels = dict[str, str]
Requirement = Callable[[Labels], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_COMPARED = re.compile(rf"^({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})$")
_PRESENT = re.compile(rf"^(!?)\s*({_KEY})$")
_COMMA = re.compile(r",(?![^(]*\))")  # not inside the parentheses of a set
_FIELD_TERM = re.compile(r"^([\w.]+)(==|!=|=)(.*)$")


def _in_set(key: str, values: set[str], wanted: bool) -> Requirement:
    return lambda labels: (labels.get(key) in values) is wanted


def _ordered(key: str, operator: str, bound: str) -> Requirement:
    def holds(labels: Labels) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > int(bound) if operator == ">" else value < int(bound)

    return holds


def _label_term(term: str) -> Requirement:
    if m := _SET.match(term):
        return _in_set(m[1], {v.strip() for v in m[3].split(",")}, m[2] == "in")
    if m := _COMPARED.match(term):
        key, operator, value = m.groups()
        if operator in "<>":
            if not value.isdigit():
                raise bad_request(f"unable to parse requirement: {value!r} is not an integer")
            return _ordered(key, operator, value)
        return _in_set(key, {value}, operator != "!=")
    if m := _PRESENT.match(term):
        absent, key = bool(m[1]), m[2]
        return lambda labels: (key not in labels) is absent
    raise bad_request(f"unable to parse requirement: found {term!r}, expected a label selector such as key=value")


@dataclass(frozen=True)
class Selector:
    """What a list or watch asks for. `matches` is called for every object, so it is made of prepared closures."""

    namespace: str = ""
    name: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[Callable[[Obj], bool], ...] = ()
    exact: dict[str, str] = field(default_factory=dict)
    """Fields that must equal one value, for the index of watchers and the node authorizer."""

    @property
    def everything(self) -> bool:
        """Whether neither labels nor fields narrow the choice."""
        return not self.labels and not self.fields

    def matches(self, obj: Obj) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if self.name and meta["name"] != self.name:
            return False
        if self.labels:
            labels = meta.get("labels") or {}
            if not all(holds(labels) for holds in self.labels):
                return False
        return all(holds(obj) for holds in self.fields)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a labelSelector parameter. Raises 400 for what Kubernetes' grammar does not know."""
    return tuple(_label_term(term.strip()) for term in _COMMA.split(text)) if text.strip() else ()


def _field_text(resource: Resource, obj: Obj, name: str, default: str) -> str:
    if resource.id == EVENTS.id and name == "source":
        value: Any = dig(obj, "source.component") or obj.get("reportingComponent")
    else:
        value = dig(obj, name)
    if value is None:
        return default
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def parse(resource: Resource, *, namespace: str = "", name: str = "", labels: str = "", fields: str = "") -> Selector:
    """The selector of a request. Raises 400 for a field that cannot be selected by."""
    tests: list[Callable[[Obj], bool]] = []
    exact = {"metadata.name": name} if name else {}
    known = {"metadata.name": "", "metadata.namespace": "", **resource.fields}
    for term in filter(None, fields.split(",")):
        m = _FIELD_TERM.match(term)
        if m is None:
            raise bad_request(f"invalid field selector {fields!r}: can't understand {term!r}")
        path, operator, value = m.groups()
        if path not in known:
            raise bad_request(
                f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match label selector '
                f'"{labels}", field selector "{fields}": field label not supported: {path}'
            )
        wanted = operator != "!="
        if wanted:
            exact[path] = value
        tests.append(_field_test(resource, path, value, known[path], wanted))
    return Selector(namespace, name, parse_labels(labels), tuple(tests), exact)


def _field_test(resource: Resource, path: str, value: str, default: str, wanted: bool) -> Callable[[Obj], bool]:
    return lambda obj: (_field_text(resource, obj, path, default) == value) is wanted


def matches_label_selector(selector: Obj | None, labels: Labels) -> bool:
    """Whether a LabelSelector object chooses these labels: null chooses nothing, the empty one everything."""
    if selector is None:
        return False
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(e, labels) for e in selector.get("matchExpressions") or ())


def _expression(expression: Obj, labels: Labels) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise bad_request(f'"{operator}" is not a valid label selector operator')
