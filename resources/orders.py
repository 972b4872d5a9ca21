"""Which of two messages is newer, where anybody may have sent one of them.

Facts and news carry an order by which the newest counts: a time, milliseconds since 1970, or a count that began at 0.
None of them is ever ahead of the server's clock. One that is would make its receiver deaf, forever, to everything that
really comes later. So a message with an order more than `AHEAD` ahead is refused (workflows/inbound.py), and a kept
order that lies ahead all the same blocks nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resources.base import Count, Instant, format_duration

AHEAD = timedelta(minutes=5)
"""How far the clocks of a Temporal server's hosts may differ."""
AT_ONCE = timedelta(seconds=1)
"""Messages sent within one millisecond are counted on from there."""


class _Ordering:
    """Marks a field by which the newest message counts."""


_ORDERING = _Ordering()
Order = Annotated[Count, _ORDERING]
"""Milliseconds since 1970, or a count that grows by one."""
OrderTime = Annotated[Instant, _ORDERING]
"""The server's time."""

Ordered = TypeVar("Ordered", int, datetime, tuple[int, int])


def in_ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def lies_ahead(order: int | datetime | tuple[int, int], now: datetime, by: timedelta = AT_ONCE) -> bool:
    """Whether nobody can have given this order by now."""
    if isinstance(order, datetime):
        return order > now + by
    return max(order if isinstance(order, tuple) else (order,)) > in_ms(now + by)


def is_newer(order: Ordered, known: Ordered, now: datetime) -> bool:
    """Whether the order is newer than the known one, which only counts if it does not lie ahead."""
    return order > known or lies_ahead(known, now)


def is_older(order: Ordered, known: Ordered, now: datetime) -> bool:
    return order < known and not lies_ahead(known, now)


def is_order(field: FieldInfo) -> bool:
    """Whether this field of a model says which message is newest."""
    return any(isinstance(m, _Ordering) for m in field.metadata)


def too_far_ahead(message: object, now: datetime) -> str:
    """Which of a message's orders lies too far ahead, in words; "" if none."""
    for path, order in _orders(message):
        if lies_ahead(order, now, AHEAD):
            value = order.isoformat() if isinstance(order, datetime) else order
            most = now + AHEAD
            most_words = f"{most:%Y-%m-%dT%H:%M:%SZ}" if isinstance(order, datetime) else str(in_ms(most))
            return (
                f"{path}: {value} is more than {format_duration(AHEAD)} in the future, and everything that follows "
                f"would count as older; give at most {most_words}"
            )
    return ""


def _orders(value: object, path: str = "") -> Iterator[tuple[str, int | datetime]]:
    """All orders in a value, as deep as the types of messages go."""
    if isinstance(value, list):
        for n, part in enumerate(value):
            yield from _orders(part, f"{path}.{n}")
    elif isinstance(value, BaseModel):
        for name, called, order in _fields(type(value)):
            found = getattr(value, name)
            if order:
                yield f"{path}.{called}".lstrip("."), found
            elif type(found) not in PLAIN:
                yield from _orders(found, f"{path}.{called}".lstrip("."))


PLAIN = {str, int, float, bool, type(None)}
"""The types of most fields: what has one of these holds nothing else. A sandbox's isinstance costs much more."""


@functools.cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, bool], ...]:
    """Each field: its name, what people call it, and whether it is an order."""
    return tuple((name, field.alias or name, is_order(field)) for name, field in model.model_fields.items())
