"""What can be kept, and what is said about what cannot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from resources.base import Value
from resources.sound import WORDS, fault, read_words, short, unreadable


class Held(Value):
    at: datetime | None = None
    lasts: timedelta | None = None
    count: int = 0
    part: float = 0.0
    more: dict[str, Any] = Field(default_factory=dict)
    held: list[Held] = Field(default_factory=list)


NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        Held(),
        Held(at=NOW, lasts=timedelta(hours=1, microseconds=1), count=2**63 - 1, more={"a": [1, {"b": None}]}),
        Held(held=[Held(at=datetime(1970, 1, 1, tzinfo=UTC)), Held(count=-(2**63))]),
    ],
)
def test_what_can_be_kept(value: Held) -> None:
    assert fault(value, Held) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Held(at=datetime(2026, 1, 1)), "at: a time needs a time zone"),
        (
            Held(held=[Held(at=TypeAdapter(datetime).validate_python("0001-01-01T00:00:00+14:00"))]),
            "held.0.at: not a time",
        ),
        (
            Held(at=TypeAdapter(datetime).validate_python("9999-12-31T23:59:59-14:00")),
            "at: not a time between the years",
        ),
        (Held(lasts=timedelta(days=366 * 101)), "lasts: a duration is at most 100 years"),
        (Held(lasts=-timedelta(days=366 * 101)), "lasts: a duration is at most 100 years"),
        (Held(count=2**63), "count: not a number of at most 64 bits"),
        (Held(more={"a": [{"b": 10**30}]}), "more.a.0.b: not a number of at most 64 bits"),
        (Held(part=float("nan")), "part: "),
    ],
)
def test_what_cannot_be(value: Held, words: str) -> None:
    assert fault(value, Held).startswith(words)


def test_none_and_bytes_are_no_models() -> None:
    """What the SDK makes of a payload without a value, and of one of bytes, whatever the type."""
    assert fault(None, Held) == "Input should be an object"
    assert fault(b"abc", str) == "does not survive being written and read again"


def test_a_state_that_cannot_be_read_again() -> None:
    assert unreadable(Held(at=NOW), Held) == ""
    assert unreadable(Held.model_construct(at="soon"), Held).startswith("at: not a time; write it like ")


def test_the_words_are_short_and_quote_nothing() -> None:
    secret = "hunter2" * 1000
    with pytest.raises(ValidationError) as raised:
        Held.model_validate({"count": secret, "at": secret, "lasts": secret, "part": secret})
    words = read_words(raised.value)
    assert "hunter2" not in words
    assert words.endswith("; and 1 more")
    assert len(short("x" * 5000)) <= WORDS + len("… (5000 characters)")
