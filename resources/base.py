"""What all models share: camelCase on the wire, snake_case in Python, durations as Kubernetes writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")


class Model(BaseModel):
    """State and messages. Unknown fields are ignored: an older worker may read what a newer one wrote."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Value(Model):
    """A model that is a value: frozen, comparable, hashable by content where its fields are."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class Manifest(Model):
    """What a person writes. Unknown fields are kept, so that the loader can warn about them with their path."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


def parse_duration(value: Any) -> Any:
    """`20m`, `1h30m`, `90s` (Go's time.ParseDuration, as Kubernetes writes durations) to a timedelta.

    Other types are left to pydantic. Raises ValueError with the accepted form.
    """
    if not isinstance(value, str) or value.startswith(("P", "-P")):
        return value
    text = value.strip()
    if text == "0":
        return timedelta(0)
    parts = _PART.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{value!r} is not a duration; write it like 20m, 1h30m or 90s")
    return timedelta(seconds=sum(float(n) * _UNITS[u] for n, u in parts))


def whole_seconds(value: timedelta) -> timedelta:
    """Rounded, for words."""
    return timedelta(seconds=round(value.total_seconds()))


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


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str)]
"""A span of time, written as Kubernetes does: `20m`."""


def with_zone(value: datetime) -> datetime:
    """A time without a zone is UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


Moment = Annotated[datetime, AfterValidator(with_zone)]
"""A point in time that a person may have typed."""
