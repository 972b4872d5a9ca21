"""What the doctor finds: each part answers with findings, and something that cannot be found out is one too, never
silence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from resources.settings import SettingsError
from starter.sdk.errors import HostlerError

SKEW_WARNING, SKEW_PROBLEM = 5.0, 60.0
"""Seconds between two clocks. Deadlines are in Temporal's time, tokens expire by the cluster's, machines age by
both."""


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    subject: str
    """`temporal`, `queue hostler-drain-prod`, `cluster prod`, …"""
    level: Level
    message: str
    remedy: str = ""
    """What to do; empty where all is well, or where the message says it."""


Check = Callable[[], Awaitable[list[Finding]]]


def ok(subject: str, message: str) -> Finding:
    return Finding(subject, Level.OK, message)


def warning(subject: str, message: str, remedy: str = "") -> Finding:
    return Finding(subject, Level.WARNING, message, remedy)


def problem(subject: str, message: str, remedy: str = "") -> Finding:
    return Finding(subject, Level.PROBLEM, message, remedy)


async def attempt(subject: str, check: Check) -> list[Finding]:
    """Runs a check. One that fails is a finding itself, and holds up no other."""
    try:
        return await check()
    except (HostlerError, SettingsError) as e:
        return [problem(subject, str(e))]


# -- clocks -----------------------------------------------------------------------------------------------------------


def clock(subject: str, theirs: datetime, before: datetime, after: datetime, precision: timedelta) -> Finding:
    """`theirs` was read at some moment between `before` and `after` of the clock here, and is cut to `precision`.

    Skew counts only as far as it is certain.
    """
    behind = max(timedelta(0), before - theirs - precision)
    ahead = max(timedelta(0), theirs - after)
    skew = max(behind, ahead).total_seconds()
    if skew <= SKEW_WARNING:
        return ok(subject, "its clock agrees with this machine's within a few seconds")
    words = f"its clock is {skew:.0f} s {'behind' if behind > ahead else 'ahead of'} the one here"
    level = Level.WARNING if skew <= SKEW_PROBLEM else Level.PROBLEM
    return Finding(subject, level, words, "synchronize the clocks (NTP): deadlines and tokens depend on them")
