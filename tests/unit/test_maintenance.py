"""resources/maintenance: what windows come to in UTC, over the changes of clocks, and which are refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from resources.maintenance import DAYS, Calendar, Maintenance, Opening, Window, coming, is_open

BERLIN = "Europe/Berlin"


def spans(found: list[Opening]) -> list[str]:
    return [f"{o.begin:%m-%d %H:%M} {o.end:%m-%d %H:%M}" for o in found]


def day(month: int, number: int, hour: int = 0, year: int = 2026) -> datetime:
    return datetime(year, month, number, hour, tzinfo=UTC)


TABLE: list[tuple[str, dict[str, Any], datetime, list[str]]] = [
    (
        "every day, in UTC",
        {"begin": "22:00", "end": "23:30"},
        day(1, 1),
        ["01-01 22:00 01-01 23:30", "01-02 22:00 01-02 23:30"],
    ),
    (
        "over midnight, and it is on",
        {"begin": "22:00", "end": "04:00"},
        day(1, 2, 1),
        ["01-01 22:00 01-02 04:00", "01-02 22:00 01-03 04:00"],
    ),
    (
        "one that ends now is over",
        {"begin": "22:00", "end": "04:00"},
        day(1, 2, 4),
        ["01-02 22:00 01-03 04:00", "01-03 22:00 01-04 04:00"],
    ),
    (
        "on some days",
        {"days": ["sunday", "Wed"], "begin": "01:00", "end": "02:00"},
        day(1, 1),
        ["01-04 01:00 01-04 02:00", "01-07 01:00 01-07 02:00"],
    ),
    (
        "clocks go forward in the window: an hour less",
        {"days": ["Sat"], "begin": "22:00", "end": "04:00", "timezone": BERLIN},
        day(3, 27),
        ["03-28 21:00 03-29 02:00", "04-04 20:00 04-05 02:00"],
    ),
    (
        "clocks go back in the window: an hour more",
        {"days": ["Sat"], "begin": "22:00", "end": "04:00", "timezone": BERLIN},
        day(10, 23),
        ["10-24 20:00 10-25 03:00", "10-31 21:00 11-01 03:00"],
    ),
    (
        "a begin that is skipped is as much later",
        {"days": ["Sun"], "begin": "02:30", "end": "05:00", "timezone": BERLIN},
        day(3, 28),
        ["03-29 01:30 03-29 03:00", "04-05 00:30 04-05 03:00"],
    ),
    (
        "a window that is skipped keeps its length",
        {"days": ["Sun"], "begin": "02:30", "end": "03:15", "timezone": BERLIN},
        day(3, 28),
        ["03-29 01:30 03-29 02:15", "04-05 00:30 04-05 01:15"],
    ),
    (
        "of a time that there is twice the first counts",
        {"days": ["Sun"], "begin": "01:00", "end": "02:30", "timezone": BERLIN},
        day(10, 24),
        ["10-24 23:00 10-25 00:30", "11-01 00:00 11-01 01:30"],
    ),
    (
        "in a zone that is a day ahead",
        {"days": ["Mon"], "begin": "00:00", "end": "01:00", "timezone": "Pacific/Kiritimati"},
        day(1, 1),
        ["01-04 10:00 01-04 11:00", "01-11 10:00 01-11 11:00"],
    ),
    (
        "and in one that is a day behind",
        {"days": ["Sun"], "begin": "23:00", "end": "23:30", "timezone": "Pacific/Pago_Pago"},
        day(1, 5, 10),
        ["01-05 10:00 01-05 10:30", "01-12 10:00 01-12 10:30"],
    ),
    ("a whole day", {"days": ["Mon"], "begin": "00:00", "end": "00:00"}, day(1, 1), ["01-05 00:00 01-06 00:00"]),
]


@pytest.mark.parametrize(("given", "after", "expected"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_what_a_window_comes_to(given: dict[str, Any], after: datetime, expected: list[str]) -> None:
    assert spans(coming([Window.model_validate(given)], after, len(expected))) == expected


def test_windows_that_touch_are_one() -> None:
    windows = [
        Window(begin="22:00", end="00:00"),
        Window(begin="00:00", end="02:00"),
        Window(begin="01:00", end="03:00"),
    ]
    assert spans(coming(windows, day(1, 1, 12), 1)) == ["01-01 22:00 01-02 03:00"]
    assert coming([], day(1, 1)) == []


@pytest.mark.parametrize("name", [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC", "+05:30"])
@given(minute=st.integers(0, 7 * 24 * 60), begin=st.times(), end=st.times(), week=st.integers(0, 104))
def test_every_minute_of_a_week_is_in_one_or_in_none(name: str, minute: int, begin: Any, end: Any, week: int) -> None:
    """The openings are in order and apart, end after the time given, and none is missing: the day of each is one on
    which the window begins."""
    window = Window(days=["Tue", "Sat"], begin=f"{begin:%H:%M}", end=f"{end:%H:%M}", timezone=name)
    after = day(1, 1) + timedelta(weeks=week, minutes=minute)
    found = coming([window], after)
    assert len(found) == 10
    assert all(o.begin < o.end for o in found)
    assert all(a.end < b.begin for a, b in itertools.pairwise(found))
    assert found[0].end > after
    assert found[0].begin - after < timedelta(days=4, hours=2)
    assert is_open(found, after) == (found[0].begin <= after)


def test_what_is_refused_says_what_to_write() -> None:
    for wrong, words in (
        ({"begin": "22:00"}, "Field required"),
        ({"begin": "25:00", "end": "04:00"}, 'write it like "22:00"'),
        ({"begin": 1320, "end": "04:00"}, "in quotes"),
        ({"begin": "22:00", "end": "04:00", "days": ["Someday"]}, ", ".join(DAYS)),
        ({"begin": "22:00", "end": "04:00", "days": []}, "at least 1"),
        ({"begin": "22:00", "end": "04:00", "timezone": "../etc/passwd"}, "Europe/Berlin"),
    ):
        with pytest.raises(ValidationError, match=words):
            Window.model_validate(wrong)
    with pytest.raises(ValueError, match="Europe/Berlin"):
        coming([Window(begin="22:00", end="04:00", timezone="Europe/Atlantis")], day(1, 1))


def test_a_shoots_time_window_is_a_daily_one() -> None:
    """Gardener's field (spec.maintenance), with what else stands there: that says what Gardener updates on its own."""
    theirs = {
        "timeWindow": {"begin": "220000+0100", "end": "230030+0100"},
        "autoUpdate": {"kubernetesVersion": True, "machineImageVersion": True},
    }
    (window,) = Maintenance.model_validate(theirs).windows
    assert window == Window(begin="22:00", end="23:00:30", timezone="+01:00")
    assert spans(coming([window], day(1, 1), 1)) == ["01-01 21:00 01-01 22:00"]
    assert Maintenance.model_validate({"autoUpdate": {}}) == Maintenance()
    for wrong in (
        {"begin": "220000+0100"},
        {"begin": "220000+0100", "end": "230000+0200"},
        {"begin": "22", "end": "23"},
    ):
        with pytest.raises(ValidationError, match="timeWindow"):
            Maintenance.model_validate({"timeWindow": wrong})
    with pytest.raises(ValidationError, match="give one"):
        Maintenance.model_validate({**theirs, "windows": [{"begin": "01:00", "end": "02:00"}]})


def test_ten_windows_are_small() -> None:
    windows = [Window(begin="22:00", end="04:00", timezone=BERLIN)]
    assert len(Calendar(windows=windows, openings=coming(windows, day(1, 1))).model_dump_json()) < 900
