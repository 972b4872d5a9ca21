"""Label selectors as kubectl takes them (apimachinery, labels.Parse): `pool=demo,zone!=a`, `zone in (a, b)`, `gpu`,
`!gpu`.

Not taken: `key>1` and `key<1`, which the API knows for node affinity only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

LONGEST = 1000
"""Characters; by the API server's own rules for keys and values, any sensible selector is shorter."""
_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_COMPARED = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_PRESENT = re.compile(rf"(!?)\s*({_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")  # not between the parentheses of a set


class SelectorError(ValueError):
    """The message says which part is wrong and how it is written."""


class Operator(StrEnum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"


@dataclass(frozen=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """`!=` and `notin` hold for labels without the key, as at the API server."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.ABSENT:
                return self.key not in labels


@dataclass(frozen=True)
class Selector:
    """All requirements together."""

    text: str
    """As it was typed; the API server takes the same."""
    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(r.holds(labels) for r in self.requirements)

    def __str__(self) -> str:
        return self.text


def parse(text: str) -> Selector:
    """Raises SelectorError, also for an empty one: a selector that a script has lost must not mean everything."""
    if len(text) > LONGEST:
        raise SelectorError(f"a label selector of {len(text)} characters; at most {LONGEST} are allowed")
    return Selector(text, tuple(_requirement(part.strip()) for part in _COMMA.split(text)))


def _requirement(part: str) -> Requirement:
    if m := _COMPARED.fullmatch(part):
        operator = Operator.NOT_IN if m[2] == "!=" else Operator.IN
        return Requirement(m[1], operator, frozenset([m[3]]))
    if m := _SET.fullmatch(part):
        values = [v.strip() for v in m[3].split(",")]
        if all(re.fullmatch(_VALUE, v) for v in values):
            return Requirement(m[1], Operator(m[2]), frozenset(values))
    elif m := _PRESENT.fullmatch(part):
        return Requirement(m[2], Operator.ABSENT if m[1] else Operator.EXISTS)
    raise SelectorError(
        f"{part!r} is not a label selector: write key=value, key!=value, key in (a, b), key notin (a, b), key or "
        "!key, several with a comma between"
    )
