"""What arrives is bounded: every field of every model either refuses what is too much, or cuts it."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, Literal, Union

import pytest
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

import resources
from resources.base import (
    COUNT_MOST,
    DAY,
    DEPTH_MOST,
    EARLIEST,
    FEW,
    KEY_MOST,
    LATEST,
    LONGEST,
    TEXT_MOST,
    Count,
    Document,
    Duration,
    Facts,
    Instant,
    Moment,
    Span,
    Text,
    Texts,
    cut,
    later,
    parse_duration,
    read_time,
    seconds,
)

OURS = {"resources.settings", "resources.machine_config.settings", "resources.reasons", "resources.reasons.reason"}
"""An operator's own file, and our own words: they do not arrive."""
FAR = timezone(-timedelta(hours=14))
EXTREME: dict[Any, list[tuple[Any, Any]]] = {
    str: [("x" * 3_000_000, lambda v: len(v) <= KEY_MOST)],
    int: [(10**30, None), (2**63 - 1, lambda v: v <= COUNT_MOST), (-(2**63), lambda v: v >= -COUNT_MOST)],
    float: [(1e308, lambda v: v <= DAY), (float("nan"), None)],
    timedelta: [(timedelta.max, lambda v: v <= LONGEST), (timedelta.min, lambda v: v >= timedelta(0))],
    datetime: [
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=FAR), lambda v: v == LATEST),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), lambda v: v == EARLIEST),
        (datetime(2026, 1, 1), lambda v: v.tzinfo is not None),
    ],
    Any: [({"x": "x" * 3_000_000}, None)],
}
"""What no field may accept as it is, by type, and what may become of it; None: it is refused."""


def models() -> Iterator[type]:
    """Pydantic models, and the tuples that travel in them."""
    for found in pkgutil.walk_packages(resources.__path__, "resources."):
        if found.name in OURS:
            continue
        for member in vars(importlib.import_module(found.name)).values():
            if not isinstance(member, type) or member.__module__ != found.name:
                continue
            if issubclass(member, BaseModel) or (issubclass(member, tuple) and hasattr(member, "_fields")):
                yield member


@functools.cache  # hundreds of fields have a few types
def takes_too_much(hint: Any) -> bool:
    """Whether some value that the type describes has no bound."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inside = arguments[0]
        if inside in EXTREME:
            return not all(bounded(hint, *case) for case in EXTREME[inside])
        whole = {"x": "x" * 3_000_000} if typing.get_origin(inside) is dict else None
        return takes_too_much(inside) and (whole is None or not bounded(hint, whole, None))
    if hint in EXTREME:
        return True
    if origin in (Union, types.UnionType, list, dict, tuple, set):
        return any(takes_too_much(a) for a in arguments if a not in (None, type(None), Ellipsis))
    if origin is Literal or hint in (bool, SecretStr, type(None)):
        return False
    return not (isinstance(hint, type) and issubclass(hint, BaseModel | Enum | tuple))


def bounded(hint: Any, value: Any, within: Any) -> bool:
    try:
        found = TypeAdapter(hint).validate_python(value)
    except ValidationError:
        return True
    return within is not None and bool(within(found))


def test_every_field_is_bounded() -> None:
    found, every = [], list(models())
    assert len(every) > 400
    for model in every:
        own = model.model_fields if issubclass(model, BaseModel) else model._fields  # type: ignore[attr-defined]
        hints = {n: h for n, h in typing.get_type_hints(model, include_extras=True).items() if n in own}
        found += [f"{model.__name__}.{name}" for name, hint in hints.items() if takes_too_much(hint)]
    assert found == []


def test_one_without_a_bound_is_found() -> None:
    assert takes_too_much(str)
    assert takes_too_much(dict[str, Any])
    assert takes_too_much(list[int] | None)
    assert not takes_too_much(Text)
    assert not takes_too_much(dict[Text, Document] | None)


def of(hint: Any, value: Any) -> Any:
    return TypeAdapter(hint).validate_python(value)


# -- texts ------------------------------------------------------------------------------------------------------------


def test_a_text_is_cut_and_says_how_much() -> None:
    found = of(Text, "y" * 240_000)
    assert len(found) <= TEXT_MOST
    kept, _, words = found.partition("…")
    assert words == f" ({240_000 - len(kept)} characters more)"
    assert of(Text, found) == found, "it is not cut again at the next run"
    assert of(Text, "y" * TEXT_MOST) == "y" * TEXT_MOST


def test_half_a_character_can_be_written() -> None:
    assert of(Text, "a\ud800").encode() == b"a?"
    assert cut("é\udfff" * 2) == "é?é?"


def test_lists_and_tables_are_cut() -> None:
    assert of(Texts, ["a"] * 1000) == ["a"] * (FEW - 1) + [f"… ({1000 - FEW + 1} more)"]
    assert of(Texts, of(Texts, ["a"] * 1000)) == of(Texts, ["a"] * 1000)
    assert len(of(Facts, {str(i): "x" for i in range(1000)})) == FEW


# -- numbers and JSON --------------------------------------------------------------------------------------------------


def test_one_more_can_be_counted_and_decoded() -> None:
    most = of(Count, 2**63 - 1)
    assert of(Count, most + 1) == most
    with pytest.raises(ValidationError, match="64 bits"):
        of(Count, 2**63)


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": "x" * 70_000}, "more than 65536 bytes"),
        ({"a": [["x" * 100] * 100] * 100}, "more than 65536 bytes"),
        (deep(DEPTH_MOST + 1), "deeper than 32"),
        ({"a": 10**300}, "64 bits"),
        ({"a": float("inf")}, "not a number in JSON"),
        ({"a": {1: 2}}, "a key that is not text"),
        ({"a": ["\ud800"]}, "half a character"),
    ],
)
def test_a_document_is_bounded(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        of(Document, value)
    assert of(Document, deep(DEPTH_MOST)) == deep(DEPTH_MOST)


# -- durations and times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["80000000h", "9" * 400 + "h", "1" * 4000, "P999999999D", "-P1D", "99999999999999h"])
def test_a_duration_that_nobody_means(text: str) -> None:
    with pytest.raises(ValidationError):
        of(Duration, text)


def test_a_long_duration_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="4001 characters are not a duration"):
        parse_duration("1" * 4000 + "h")


def test_a_span_is_cut() -> None:
    assert of(Span, "80000000h") == LONGEST
    assert of(Span, "-PT5S") == timedelta(0)
    assert seconds(1e300) == seconds(float(10**20)) == LONGEST
    assert seconds(-1e300) == timedelta(0)


def test_sums_of_times_saturate() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert later(now, timedelta(hours=1)) == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert later(now, timedelta.max) == LATEST
    assert later(now, timedelta.min) == EARLIEST
    assert later(LATEST, LONGEST) == LATEST


def test_an_instant_is_cut_and_a_moment_refused() -> None:
    far = "9999-12-31T23:59:59-14:00"
    assert of(Instant, far) == LATEST
    assert of(Instant, "2026-01-01T00:00:00") == of(Moment, "2026-01-01T00:00:00") == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValidationError, match="is not between 2000 and 2200"):
        of(Moment, far)


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "soon", "", "2026-01-01" * 1000, None, 5]
)
def test_a_time_that_nobody_means(text: object) -> None:
    assert read_time(text) is None
    assert read_time(" 2026-01-01T00:00:00Z ") == datetime(2026, 1, 1, tzinfo=UTC)
