"""What all models share: camelCase on the wire, snake_case in Python, durations as Kubernetes writes them, and bounded
types, so that no message can make a state that is too large, or that the next run cannot decode.

There are two kinds. Types that *refuse* are for what people and programs write and can correct: `Name`, `Key`,
`Duration`, `Moment`, `Document`. Types that *cut* are for what must be taken whatever it says, because it is a fact, or
because an older worker has written it: `Text`, `Instant`, `Span`, `Count`. A state has refusing types only where an
older worker cannot have written anything longer that worked.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from resources.redact import hide_secrets

T = TypeVar("T")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_LONGEST_TEXT = 100
"""The most characters of a duration as written: no sensible one comes near."""


class Model(BaseModel):
    """State and messages. Unknown fields are ignored: an older worker may read what a newer one wrote.

    A model's validator is made when it is first needed: a command that lists machines needs hardly any of them. A
    worker makes them all before its first task (`build_models`)."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, defer_build=True)


def build_models(base: type[BaseModel] = Model) -> None:
    """Makes the validators of all models that are imported, where that has not been done."""
    for model in base.__subclasses__():
        if not model.__pydantic_complete__:
            model.model_rebuild()
        build_models(model)


class Value(Model):
    """A model that is a value: frozen, comparable, hashable by content where its fields are."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


def explained(error: ValidationError) -> str:
    """What is wrong, and where, in one line. The input is not quoted: it may be long, or a secret."""
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {fault_words(e['type'], e['msg'])}" for e in found)


_BOUNDS = {
    "Input should be greater than or equal to": "must be at least",
    "Input should be greater than": "must be more than",
    "Input should be less than or equal to": "must be at most",
    "Input should be less than": "must be less than",
}


def fault_words(kind: str, message: str) -> str:
    """Words for one of pydantic's errors: its message, or what to write instead."""
    if kind.startswith("time_delta"):
        return "not a duration; write it like 20m, 1h30m or 90s"
    if kind.startswith("datetime"):
        return "not a time; write it like 2026-01-31T12:00:00Z"
    if message.startswith("Input should be a valid dictionary"):
        return "not a mapping: write fields, each as `name: value`"
    for pydantics, ours in _BOUNDS.items():
        if message.startswith(pydantics):
            return f"{ours}{message.removeprefix(pydantics)}"
    return message.removeprefix("Value error, ")


# -- texts ------------------------------------------------------------------------------------------------------------

NAME_MOST = 253
"""Characters; also the limit of a Kubernetes name."""
KEY_MOST = 1000
"""Characters; also the limit of a workflow's id at Temporal."""
WORD_MOST = 200
FEW = 100
"""The most entries of a list or table of facts."""
TEXT_MOST = 1000
"""Bytes, as JSON writes it: a character usually takes one, and at most six. A state keeps some hundred texts, and so
stays below 1 MiB."""


def cut(text: str, most: int = TEXT_MOST) -> str:
    """The text, or its beginning with "…" and how much is missing: never more than `most` bytes as JSON.

    Half a character (a lone surrogate, which JSON may carry and UTF-8 cannot) becomes "?"."""
    if text.isascii() and text.isprintable() and len(text) <= most // 2:
        return text  # as nearly all texts do
    head = text[:most]
    head = head if head.isascii() else head.encode(errors="replace").decode()
    if len(text) <= most and _bytes(head) <= most:
        return head
    kept = min(len(head), most - 40)  # for the words below
    while kept and (over := _bytes(head[:kept]) - (most - 40)) > 0:
        kept -= -(-over // 6)  # no character takes more, so this never cuts too much
    return f"{head[:kept]}… ({len(text) - kept} characters more)"


def _bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


Name = Annotated[str, Field(max_length=NAME_MOST)]
"""A name of something, as Kubernetes or a cloud has it. Refuses."""
Key = Annotated[str, Field(max_length=KEY_MOST)]
"""An identifier that is not a name: a providerID, a workflow's id, an account's key, a token. Refuses."""
Text = Annotated[str, AfterValidator(cut)]
"""Words for people, and facts in others' words. Cuts."""
Said = Annotated[str, AfterValidator(hide_secrets), AfterValidator(cut)]
"""What an unknown person or program says in its own words, with what looks like a secret hidden, as on a console.
Cuts."""
Word = Annotated[str, AfterValidator(partial(cut, most=WORD_MOST))]
"""Usually one of a known set: a reason in CamelCase, a status, an address. Cuts."""


def few(texts: list[str], most: int = FEW) -> list[str]:
    """The list, or its beginning and how many entries are missing."""
    return texts if len(texts) <= most else [*texts[: most - 1], f"… ({len(texts) - most + 1} more)"]


def few_of(table: dict[str, T]) -> dict[str, T]:
    """The table, or its first entries by name."""
    return table if len(table) <= FEW else {k: table[k] for k in sorted(table)[:FEW]}


Texts = Annotated[list[Text], AfterValidator(partial(few, most=FEW))]
Words = Annotated[list[Word], AfterValidator(partial(few, most=FEW))]
Facts = Annotated[dict[Word, Text], AfterValidator(few_of)]
"""What somebody else says, by name. All three cut."""
Packing = Annotated[str, Field(max_length=2**21)]
"""A packed table (resources/packed.py). Refuses what Temporal would refuse."""
Labels = Annotated[dict[Key, Name], Field(max_length=200)]
"""The labels of an object. Refuses."""

# -- numbers ----------------------------------------------------------------------------------------------------------

COUNT_MOST = 2**53
"""The largest number that every reader of JSON can count to."""
DAY = 86400.0


def _within(value: int) -> int:
    if -COUNT_MOST <= value <= COUNT_MOST:
        return value
    if not -(2**63) <= value < 2**63:
        raise ValueError("a number of more than 64 bits")
    return min(max(value, -COUNT_MOST), COUNT_MOST)


Count = Annotated[int, AfterValidator(_within)]
"""A whole number. One of more than 64 bits is refused; one beyond `COUNT_MOST` is cut to it, so that it can be
incremented once more, and decoded."""


def waited(value: float) -> float:
    """The seconds that somebody asks us to wait, at most a day."""
    return min(max(value, 0.0), DAY)


Seconds = Annotated[float, Field(allow_inf_nan=False), AfterValidator(waited)]
"""How long somebody asks us to wait; cut to a day."""

# -- other people's JSON ----------------------------------------------------------------------------------------------

DOCUMENT_MOST = 65536
"""Bytes of all keys and texts as JSON writes them; each value counts 8 more."""
DEPTH_MOST = 32


def bounded(value: Any, most: int = DOCUMENT_MOST) -> Any:
    """The value, if it is within bounds: `most` bytes as JSON writes it. Raises ValueError without quoting it."""
    size, todo = 0, [(value, 1)]
    while todo:
        item, depth = todo.pop()
        if depth > DEPTH_MOST:
            raise ValueError(f"nested deeper than {DEPTH_MOST} levels")
        kind = type(item)  # isinstance costs ten times as much in the sandbox, and most are of these types themselves
        if kind is str or isinstance(item, str):
            if not item.isascii() and any("\ud800" <= c <= "\udfff" for c in item):
                raise ValueError("half a character (a lone surrogate)")
            size += len(item) if (item.isascii() and item.isprintable()) or len(item) > most else _bytes(item)
        elif kind is dict or isinstance(item, dict):
            if not all(type(k) is str or isinstance(k, str) for k in item):
                raise ValueError("a key that is not text; write it in quotes")
            todo += [(k, depth) for k in item]
            todo += [(v, depth + 1) for v in item.values()]
        elif kind is list or isinstance(item, list | tuple):
            todo += [(v, depth + 1) for v in item]
        elif item is None or kind is bool:
            pass
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{item} is not a number in JSON")
        elif isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise ValueError("a number of more than 64 bits")
        elif not isinstance(item, int | float | date):
            raise ValueError(f"a {kind.__name__}, which JSON does not support; write it as text, in quotes")
        size += 8
        if size > most:
            raise ValueError(f"more than {most} bytes")
    return value


Document = Annotated[dict[str, Any], AfterValidator(bounded)]
"""JSON whose fields somebody else defines, such as a provider spec: bounded in size and depth. Refuses."""
Unknown = Annotated[Any, AfterValidator(bounded)]
"""The value of an unknown field: bounded like a document. Refuses."""
Annotations = Annotated[dict[str, str], AfterValidator(bounded)]
"""The annotations of a manifest, bounded together like a document. Refuses."""


class Manifest(Model):
    """What a person writes. Unknown fields are kept: a state holds what an older worker took; whoever writes one now is
    told (resources/unknown.py)."""

    ALSO: ClassVar[tuple[str, ...]] = ()
    """Names that a validator of the model reads, beside its fields."""
    OPEN: ClassVar[bool] = False
    """Whether somebody else defines further fields of it."""
    __pydantic_extra__: dict[str, Unknown]
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


# -- durations --------------------------------------------------------------------------------------------------------

LONGEST = timedelta(days=3650)
"""The longest duration, ten years: longer than any machine's life. Added to any valid time (`LATEST`), no sum leaves
the years that Python, Temporal (which counts nanoseconds in 64 bits, to 2262) and JSON have."""
LONGEST_SECONDS = int(LONGEST.total_seconds())


def parse_duration(value: Any) -> Any:
    """Parses `20m`, `1h30m`, `90s` (Go's time.ParseDuration, as Kubernetes writes durations) to a timedelta.

    Other types are left to pydantic. Raises ValueError with the accepted form.
    """
    if not isinstance(value, str):
        return value
    if len(value) > _LONGEST_TEXT:
        raise ValueError(f"{len(value)} characters are not a duration; write it like 20m, 1h30m or 90s")
    if value.startswith(("P", "-P")):
        return value
    text = value.strip()
    if text == "0":
        return timedelta(0)
    parts = _PART.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{value!r} is not a duration; write it like 20m, 1h30m or 90s")
    try:
        return timedelta(seconds=sum(float(n) * _UNITS[u] for n, u in parts))
    except OverflowError:
        return timedelta.max


def sensible(value: timedelta) -> timedelta:
    """The value, if it is within bounds. Raises ValueError with what to write."""
    if value > LONGEST:
        raise ValueError(f"longer than {format_duration(LONGEST)}, ten years; write it like 20m, 1h30m or 90s")
    if value < timedelta(0):
        raise ValueError("negative; write it like 20m, 1h30m or 90s")
    return value


def seconds(value: float) -> timedelta:
    """The duration of a number that somebody else has written; within `LONGEST`."""
    try:
        return shortened(timedelta(seconds=value))
    except OverflowError:
        return LONGEST if value > 0 else timedelta(0)


def shortened(value: timedelta) -> timedelta:
    """The duration, cut to 0 and `LONGEST`."""
    return min(max(value, timedelta(0)), LONGEST)


def whole_seconds(value: timedelta) -> timedelta:
    """The duration, rounded, for words; 0 where clocks differ and it would be negative."""
    return timedelta(seconds=max(0, round(value.total_seconds())))


def format_duration(value: timedelta) -> str:
    """The shortest exact form that `parse_duration` reads back: `20m`, `1h30m`, `1.5s`."""
    seconds = value.total_seconds()
    if seconds == 0:
        return "0s"
    hours, rest = divmod(round(seconds * 1e6), 3_600_000_000)
    minutes, micros = divmod(rest, 60_000_000)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    if micros:
        text += f"{micros / 1e6:.6f}".rstrip("0").rstrip(".") + "s"
    return text


_as_text = PlainSerializer(format_duration, return_type=str)
Duration = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(sensible), _as_text]
"""A span of time that a person has written, as Kubernetes does: `20m`. Refuses."""
Span = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(shortened), _as_text]
"""A span that one program tells another, or itself. Cuts."""

# -- times ------------------------------------------------------------------------------------------------------------

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
"""The earliest time, so that milliseconds since 1970 are never few enough to be mistaken for seconds."""
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""The latest time: Temporal's search attributes end in 2262."""


def with_zone(value: datetime) -> datetime:
    """The time, with UTC where it has no zone."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def is_sensible(time: datetime) -> bool:
    """Whether it is between `EARLIEST` and `LATEST`."""
    return EARLIEST <= time <= LATEST


def read_time(text: object) -> datetime | None:
    """A time (RFC 3339) as somebody else has written it, such as a Node's annotation; without a zone it is UTC. None if
    it is not a time, or not one that anybody means."""
    try:
        time = with_zone(datetime.fromisoformat(text.strip())) if isinstance(text, str) and len(text) < 100 else None
    except ValueError:
        return None
    return time if time is not None and is_sensible(time) else None


def _readable(value: datetime) -> datetime:
    value = with_zone(value)
    if not is_sensible(value):
        raise ValueError(f"{value.isoformat()} is not between {EARLIEST.year} and {LATEST.year}")
    return value


def within_times(value: datetime) -> datetime:
    """The time, cut to `EARLIEST` and `LATEST`, with a zone."""
    return min(max(with_zone(value), EARLIEST), LATEST)


def later(time: datetime, span: timedelta) -> datetime:
    """`time + span`, at most `LATEST` and at least `EARLIEST`, whatever the span is."""
    try:
        return within_times(time + span)
    except OverflowError:
        return LATEST if span > timedelta(0) else EARLIEST


Moment = Annotated[datetime, AfterValidator(_readable)]
"""A point in time that a person may have typed. Refuses."""
Instant = Annotated[datetime, AfterValidator(within_times)]
"""A point in time. Cuts."""
