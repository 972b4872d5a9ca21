"""A control plane in a few words, for tables of its planner.

A machine is written U (up to date), O (outdated), P (up to date, not ready yet), each with n (not ready), d (marked for
deletion, and held), g (leaving, its hold lifted), f (it has failed), a (it asks for repair), w (somebody wants to
keep it), ! (its deletion is forced). Oldest first; replicas are 3 and the strategy is RollingUpdate where nothing else
is said.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from planners.control_plane.view import Host, Observed
from resources.control_plane.spec import UpdateStrategy
from resources.fleet.revision import Pace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WIDE = Pace(revision=1, window=100)


def host(index: int, number: int, word: str) -> Host:
    kind, marks = word[0], word[1:]
    ready = kind != "P" and "n" not in marks
    return Host(
        name=f"cp-{word}{number}-{index}",
        index=index,
        created=NOW + timedelta(seconds=number),
        ready=ready,
        outdated="instance type" if kind == "O" else "",
        leaving="d" in marks or "g" in marks,
        held="d" in marks,
        joined=kind != "P",
        failure="no capacity" if "f" in marks else "",
        asks="a" in marks,
        forced="!" in marks,
        wanted="w" in marks,
    )


def observed(indexes: dict[int, str], **more: Any) -> Observed:
    hosts = tuple(
        host(index, number, word) for index, words in indexes.items() for number, word in enumerate(words.split())
    )
    given = {"replicas": 3, "strategy": UpdateStrategy.ROLLING_UPDATE, "pace": WIDE, **more}
    return Observed(hosts=hosts, **given)
