"""Preservation as HostlerClient sees it: what is asked of a machine, and in which words.

await hostler.preserve("m1", lasts=timedelta(hours=8), reason="the kubelet dies at night")
await hostler.extend("m1", until=datetime(2026, 12, 1, 18, tzinfo=UTC))
await hostler.release("m1")
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from resources.base import LONGEST, format_duration, is_sensible
from resources.machine.preservation import ExtendIntent, Preservation, PreserveIntent, PreserveValue
from resources.words import utc
from starter.sdk.errors import Refused

VALUES = tuple(map(str, PreserveValue))
FORM = "write it like 2026-12-01T18:00:00Z or 2026-12-01T18:00+01:00"


def preserve_intent(
    value: PreserveValue, lasts: timedelta | None, until: datetime | None, by: Mapping[str, Any]
) -> PreserveIntent:
    """Makes the intent. `by`: as in `Connection.by`. Raises Refused for an invalid time."""
    if value is PreserveValue.FALSE and (lasts or until):
        raise Refused("`never` takes no time: leave it out")
    lasts, until = _end(lasts, until)
    return PreserveIntent(**by, value=value, lasts=lasts, until=until)


def extend_intent(lasts: timedelta | None, until: datetime | None, by: Mapping[str, Any]) -> ExtendIntent:
    """Makes the intent, as above. Raises Refused for an invalid time."""
    lasts, until = _end(lasts, until)
    if lasts is None and until is None:
        raise Refused("give a duration from now, or an end time")
    return ExtendIntent(**by, lasts=lasts, until=until)


def words(intent: PreserveIntent | ExtendIntent) -> str:
    """`, when-failed, for 8h`: what the intent is about, for a story."""
    value = f", {intent.value}" if isinstance(intent, PreserveIntent) and intent.value is not PreserveValue.NOW else ""
    return value + span(intent.lasts, intent.until)


def span(lasts: timedelta | None, until: datetime | None) -> str:
    """`, for 8h`, `, until 2026-12-01 18:00:00 UTC`, or nothing."""
    if until is not None:
        return f", until {utc(until)}"
    return f", for {format_duration(lasts)}" if lasts is not None else ""


def parse_time(text: str) -> datetime:
    """A moment from the command line: RFC 3339, also with a blank for the T, without seconds, or with ` UTC` as the
    pages print it. Raises ValueError with the accepted form."""
    try:
        time = datetime.fromisoformat(
            text.strip().removesuffix(" UTC") + ("Z" if text.strip().endswith(" UTC") else "")
        )
    except ValueError:
        raise ValueError(f"{text!r} is not a time; {FORM}") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone, and the worker's may be another; {FORM}")
    return time


def value_of(p: Preservation) -> str:
    """The value that counts: the Node's, else the machine's own."""
    return on_node(p) or (str(p.own.value) if p.own else "")


def on_node(p: Preservation) -> str:
    """The Node's value. An invalid one changes nothing."""
    return p.node_value if not p.node_value or p.node_value in VALUES else p.last


def _end(lasts: timedelta | None, until: datetime | None) -> tuple[timedelta | None, datetime | None]:
    """One of the two ends, or neither, as it goes into an intent. A zone is needed: workers are not where people
    are."""
    if lasts is not None and until is not None:
        raise Refused("give either a duration or an end time")
    if lasts is not None and lasts <= timedelta(0):
        raise Refused("the duration must be longer than 0; to end a preservation, release the machine")
    if lasts is not None and lasts > LONGEST:
        raise Refused(f"a preservation can last at most {LONGEST.days} days: give a shorter time, and extend it later")
    if until is not None:
        if until.tzinfo is None:
            raise Refused(f"{until.isoformat()} has no time zone; {FORM}")
        if not is_sensible(until):
            raise Refused(f"{until.isoformat()} is not a time that can be stored; {FORM}")
        until = until.astimezone(UTC)
        if until <= datetime.now(UTC):
            raise Refused(f"{utc(until)} is in the past: give a later time, or release it")
    return lasts, until
