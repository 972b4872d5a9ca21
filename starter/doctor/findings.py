"""What the doctor finds: each part answers with findings, and something that cannot be found out is one too, never
silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from resources.settings import SettingsError
from starter.sdk.errors import HostlerError

SKEW_WARNING, SKEW_PROBLEM = 5.0, 60.0
"""Seconds between two clocks. Deadlines are in Temporal's time, tokens expire by the cluster's, machines age by
both."""


class Level(StrEnum):
    OK = "ok"
    WAITS = "waits"
    """Something waits, and continues on its own."""
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


DEADLINE = 20.0
"""Seconds that a check has. What it asks has a shorter patience of its own, and words of its own for it; this is for
many slow answers in a row."""


async def attempt(subject: str, check: Check) -> list[Finding]:
    """Runs a check. One that fails, or does not end, is a finding itself, and holds up no other."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await check()
    except TimeoutError:
        words = f"not known: the answers to this check did not come within {DEADLINE:g} s"
        return [problem(subject, words, "find out what is slow: the problems beside this one, and the worker's log")]
    except (HostlerError, SettingsError) as e:
        return [problem(subject, str(e))]


SHOWN = 5
"""Things of one kind that a finding names."""


def few(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many more there are; a stranger's newline begins none."""
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [*(" ".join(line.split()) for line in lines[:SHOWN]), *more]


_GRAVITY = (Level.OK, Level.WAITS, Level.WARNING, Level.PROBLEM)


def verdict(evidence: Sequence[Finding]) -> list[Finding]:
    """One finding about one thing that several looks were taken at: the worst counts. What is better is said after it,
    for it is part of the cause (a worker cannot reach what can be reached from here)."""
    worst = max(evidence, key=lambda f: _GRAVITY.index(f.level), default=None)
    if worst is None or worst.level is Level.OK:
        return list(evidence)
    bad = [f for f in evidence if f.level is worst.level]
    better = [f"although {f.message}" for f in evidence if f.level is not worst.level]
    remedies = dict.fromkeys(f.remedy for f in bad if f.remedy)
    return [replace(worst, message="\n".join([*(f.message for f in bad), *better]), remedy="; ".join(remedies))]


def by_gravity(found: Sequence[Finding]) -> list[Finding]:
    """What is wrong comes first, subject by subject; otherwise in order, in which a cause stands before what it
    causes."""
    worst: dict[str, int] = {}
    for f in found:
        worst[f.subject] = max(worst.get(f.subject, 0), _GRAVITY.index(f.level))
    subjects = list(worst)
    return sorted(found, key=lambda f: (-worst[f.subject], subjects.index(f.subject), -_GRAVITY.index(f.level)))


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
