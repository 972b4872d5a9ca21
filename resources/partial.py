"""The part of a manifest that can be read, where some of its fields are wrong: so that the others are judged too, and a
person hears of all that is wrong at once."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

ROUNDS = 6
"""A field that is left out may be one that must be there, which stands for something that must have fields."""


@dataclass
class Partial:
    """What was read, and the paths of what was left out or made up for that."""

    model: BaseModel | None = None
    touched: set[tuple[str | int, ...]] = field(default_factory=set)

    def judges(self, path: str) -> bool:
        """Whether what is said of this path is about what was written."""
        return not any(f"{path}.".startswith(f"{written(loc)}.") for loc in self.touched)


def written(loc: Sequence[str | int]) -> str:
    """`blockDevices[0].ebs.iops`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).lstrip(".")


def readable(model: type[M], given: Any) -> Partial:
    """Reads it without the fields that are wrong, and with stand-ins for those that must be there."""
    found, rest = Partial(), deepcopy(given) if isinstance(given, dict) else {}
    for _ in range(ROUNDS):
        try:
            found.model = model.model_validate(rest)
            return found
        except ValidationError as e:
            for error in e.errors(include_url=False, include_context=False):
                _mend(model, rest, error["loc"], error["type"] == "missing", found)
    return found


def _mend(
    model: type[BaseModel], rest: dict[str, Any], loc: tuple[str | int, ...], missing: bool, into: Partial
) -> None:
    if not loc:  # fields that do not fit together: what must be there is read alone
        required = {f.alias or name for name, f in model.model_fields.items() if f.is_required()}
        for optional in rest.keys() - required:
            del rest[optional]
        return
    here: Any = rest
    for n, step in enumerate(loc[:-1]):
        below = here.get(step) if isinstance(here, dict) else here[step] if _has(here, step) else None
        if not isinstance(below, dict | list):
            loc = loc[: n + 1]  # the rest is pydantic's name for one of several types
            break
        here = below
    key: Any = loc[-1]
    again = loc in into.touched
    into.touched.add(loc)
    if isinstance(here, dict):
        here.pop(key, None)
        if missing:
            here[key] = "x" if again else {}
    elif _has(here, key):
        del here[key]


def _has(found: Any, step: str | int) -> bool:
    return isinstance(found, list) and isinstance(step, int) and step < len(found)
