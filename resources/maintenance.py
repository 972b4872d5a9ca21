"""When what nobody waits for may be done: maintenance windows, as written and as spans of time, and freezes.

Windows are wall-clock times of a zone. What they come to in UTC depends on the rules of that zone, which change: an
activity works it out (`coming`), and a workflow keeps the answer, so that a replay decides by the same spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, model_validator

from resources.base import Duration, Instant, Manifest, Name, Text, Value, later
from resources.intents import Intent
from resources.words import by_whom, utc

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: tuple[Day, ...] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
COMING = 10
"""How many windows are known in advance."""
WINDOWS_MOST = 20
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?")
_OFFSET = re.compile(r"[+-](0[0-9]|1[0-4]):[0-5][0-9]")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_GARDENER = re.compile(r"([0-2][0-9])([0-5][0-9])([0-5][0-9])([+-][0-9]{2})([0-9]{2})")


def _day(value: Any) -> Any:
    """`Mon`, `monday` and the like."""
    whole = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    given = value.lower() if isinstance(value, str) else ""
    found = next((day for day, name in zip(DAYS, whole, strict=True) if given in (day.lower(), name)), None)
    if found is None:
        raise ValueError(f"not a day of the week; write {', '.join(DAYS)}")
    return found


def _clock(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError('not a time of day; write it in quotes, like "22:00"')  # YAML 1.1 reads 22:00 as 1320
    if not isinstance(value, str) or not _CLOCK.fullmatch(value):
        raise ValueError('not a time of day; write it like "22:00"')
    return value


def _zone_name(value: Any) -> Any:
    if not isinstance(value, str) or not (_ZONE.fullmatch(value) or _OFFSET.fullmatch(value)):
        raise ValueError("not a time zone; write a name like Europe/Berlin, or an offset like +01:00")
    return value


def zone(name: str) -> tzinfo:
    """The time zone. Raises ValueError where this host's time zone database does not have it."""
    if name == "UTC":
        return UTC
    if _OFFSET.fullmatch(name):
        span = timedelta(hours=int(name[1:3]), minutes=int(name[4:6]))
        return timezone(-span if name[0] == "-" else span)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"the time zone database does not have {name!r}; write a name like Europe/Berlin") from None


class Window(Manifest):
    """A maintenance window: wall-clock times of a time zone, on some days of the week."""

    days: list[Annotated[Day, BeforeValidator(_day)]] = Field(
        default_factory=lambda: list(DAYS), min_length=1, max_length=7
    )
    """The days on which it begins: Mon, Tue, Wed, Thu, Fri, Sat, Sun; without this field every day."""
    begin: Annotated[Name, BeforeValidator(_clock)]
    """When it begins, like "22:00"."""
    end: Annotated[Name, BeforeValidator(_clock)]
    """When it ends, like "04:00": on the next day where that is not after `begin`."""
    timezone: Annotated[Name, BeforeValidator(_zone_name)] = "UTC"
    """An IANA name like Europe/Berlin, whose summer time is followed, or an offset like +01:00."""

    @property
    def words(self) -> str:
        """`Mon, Sat 22:00-04:00 Europe/Berlin`."""
        days = "daily" if set(self.days) == set(DAYS) else ", ".join(sorted(set(self.days), key=DAYS.index))
        return f"{days} {self.begin}-{self.end} {self.timezone}"

    def on(self, day: date) -> Opening | None:
        """The window that begins on this day of its zone; None if none does. Raises ValueError for an unknown zone.

        A begin that the change to summer time skips is as much later; of a time that there is twice, the first
        counts."""
        if DAYS[day.weekday()] not in self.days:
            return None
        within = zone(self.timezone)
        begin, end = time.fromisoformat(self.begin), time.fromisoformat(self.end)
        last = day if end > begin else day + timedelta(days=1)
        from_, to = (datetime.combine(d, t, within).astimezone(UTC) for d, t in ((day, begin), (last, end)))
        if to <= from_:  # the hour that is skipped lies at its beginning
            to = from_ + (datetime.combine(last, end) - datetime.combine(day, begin))
        return Opening(begin=from_, end=to)


class Maintenance(Manifest):
    """When what nobody waits for may begin: rollouts and hot updates."""

    ALSO: ClassVar = ("timeWindow", "autoUpdate", "autoRotation", "confineSpecUpdateRollout")

    windows: list[Window] = Field(default_factory=list, max_length=WINDOWS_MOST)
    """Outside of these nothing voluntary begins; without any, it always may. A Shoot's `timeWindow` is one of them."""

    @model_validator(mode="before")
    @classmethod
    def gardeners(cls, data: Any) -> Any:
        """A Shoot's maintenance: its timeWindow (begin and end like 220000+0100) is a daily window. What else is there
        says what Gardener updates on its own, and Hostler updates nothing on its own."""
        if not isinstance(data, dict) or not set(cls.ALSO) & set(data):
            return data
        theirs = data.get("timeWindow")
        rest = {k: v for k, v in data.items() if k not in cls.ALSO}
        if theirs is None:
            return rest
        if rest.get("windows"):
            raise ValueError("timeWindow and windows: give one")
        return {**rest, "windows": [_of_gardener(theirs)]}


def _of_gardener(given: Any) -> dict[str, str]:
    ends = [given.get(name) for name in ("begin", "end")] if isinstance(given, dict) else []
    found = [_GARDENER.fullmatch(text) for text in ends if isinstance(text, str)]
    if len(found) != 2 or None in found:
        raise ValueError("timeWindow: write begin and end like 220000+0100")
    begin, end = (m.groups() for m in found if m is not None)
    if begin[3:] != end[3:]:
        raise ValueError("timeWindow: begin and end must have the same offset")
    offset = f"{begin[3]}:{begin[4]}"
    clocks = {
        name: f"{h}:{m}" + (f":{s}" if s != "00" else "")
        for name, (h, m, s, *_) in zip(("begin", "end"), (begin, end), strict=True)
    }
    return {**clocks, "timezone": "UTC" if offset in ("+00:00", "-00:00") else offset}


class Opening(Value):
    """A span in which what is voluntary may begin."""

    begin: Instant
    end: Instant


def is_open(openings: Iterable[Opening] | None, now: datetime) -> bool:
    """Whether one of them is on; where there are none at all (None), always."""
    return openings is None or any(o.begin <= now < o.end for o in openings)


class Calendar(Value):
    """What some windows come to."""

    windows: list[Window]
    openings: list[Opening] = Field(default_factory=list)
    """The next ones, in order; they do not touch each other."""
    problem: Text = ""
    """Why they cannot be told."""


class CalendarInput(Value):
    windows: list[Window]
    after: Instant


def coming(windows: Iterable[Window], after: datetime, count: int = COMING) -> list[Opening]:
    """The next openings that end after this time. Raises ValueError for an unknown zone."""
    first = after.date() - timedelta(days=2)  # one that began yesterday, in a zone that is a day behind
    days = [first + timedelta(days=n) for n in range(7 * (count + 1))]
    found = [opening for window in windows for day in days if (opening := window.on(day)) and opening.end > after]
    return joined(found)[:count]


def joined(openings: Iterable[Opening]) -> list[Opening]:
    """The openings in order, those that touch or overlap as one."""
    found: list[Opening] = []
    for opening in sorted(openings, key=lambda o: (o.begin, o.end)):
        if found and opening.begin <= found[-1].end:
            found[-1] = Opening(begin=found[-1].begin, end=max(found[-1].end, opening.end))
        else:
            found.append(opening)
    return found


class Freeze(Value):
    """Nothing voluntary begins, because a person wants it."""

    time: Instant
    until: Instant | None = None
    """When it ends on its own; None: when a person ends it."""
    requested_by: Text = ""
    reason: Text = ""

    def holds(self, now: datetime) -> bool:
        return self.until is None or now < self.until

    @property
    def words(self) -> str:
        """Words for since when, until when, by whom and why."""
        until = f" until {utc(self.until)}" if self.until else ""
        by = by_whom(self.requested_by, self.reason)
        return f"since {utc(self.time)}{until}{by}"


class FreezeIntent(Intent):
    """The intent `freeze`, of a pool and of a cluster."""

    span: Duration | None = Field(default=None, gt=timedelta(0))
    """For how long; None: until somebody ends it."""

    def begun(self, now: datetime) -> Freeze:
        until = later(now, self.span) if self.span is not None else None
        return Freeze(time=now, until=until, requested_by=self.requested_by, reason=self.reason)
