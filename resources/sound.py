"""What can be kept: values that are written and read back as the same, and that can be calculated with.

A value may fit its type and still not come back from its own JSON (a NaN), or come back and break code that calculates
with it: an instant without a zone, or one in the year 1 or 9999, whose UTC does not exist. The boundary of workflows
checks this before anything is taken into a state (workflows/inbound.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from resources.base import fault_words

EARLIEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2900, 1, 1, tzinfo=UTC)
"""Instants in between, plus or minus LONGEST, exist in every zone."""
LONGEST = timedelta(days=366 * 100)
COUNTS = range(-(2**63), 2**63)
"""Whole numbers that other languages and databases also have."""
WORDS = 300
"""The most characters of a refusal: it is quoted in a journal, which keeps 50 lines."""
NAMED = 3
"""How many faults of one value are named; correcting them reveals the rest."""


def short(text: str, limit: int = WORDS) -> str:
    """The text, cut to so many characters where it has more, with how many there were."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def fault(value: Any, hint: Any) -> str:
    """Why a value of this type cannot be kept, in words; "" if it can. Never quotes the value itself."""
    try:
        same = _adapter(hint).validate_json(to_json(value)) == value
    except ValidationError as e:
        return read_words(e)
    except Exception as e:  # there is no list of what cannot be written
        return f"cannot be written: {short(f'{type(e).__name__}: {e}')}"
    if not same:
        return "does not survive being written and read again"
    return next(_extremes(value), "")


def unreadable(value: Any, hint: Any) -> str:
    """Like `fault`, but only for reading: for a state, whose parts were judged as they came."""
    try:
        _adapter(hint).validate_json(to_json(value))
    except ValidationError as e:
        return read_words(e)
    except Exception as e:
        return f"cannot be written: {short(f'{type(e).__name__}: {e}')}"
    return ""


def read_words(error: ValidationError) -> str:
    """What does not fit, by its path. The input is not quoted: it may be long, and nobody knows what is in it."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = [(".".join(map(str, e["loc"])), fault_words(e["type"], e["msg"])) for e in found[:NAMED]]
    lines = [": ".join(filter(None, words)) for words in said]
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return short("; ".join(lines) + more)


@functools.lru_cache(maxsize=256)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def _extremes(value: Any) -> Iterator[str]:
    """Without recursion, because the sender chooses how deep a value is."""
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, found = left.pop()
        if isinstance(found, str | bool | None):
            continue
        if words := _extreme(found):
            yield f"{path}: {words}" if path else words
        else:
            left += [(f"{path}.{name}" if path else str(name), part) for name, part in _parts(found)]


def _extreme(value: object) -> str:
    match value:
        case datetime() if value.tzinfo is None:
            return "a time needs a time zone, like 2026-01-01T12:00:00Z"
        case datetime() if not EARLIEST <= value <= LATEST:
            return f"not a time between the years {EARLIEST.year} and {LATEST.year}"
        case timedelta() if abs(value) > LONGEST:
            return "a duration is at most 100 years"
        case int() if value not in COUNTS:
            return "not a number of at most 64 bits"
    return ""


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, BaseModel):
        return [*value.__dict__.items(), *(value.__pydantic_extra__ or {}).items()]
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    return ()
