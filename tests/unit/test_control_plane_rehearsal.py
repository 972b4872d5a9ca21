"""What `--dry-run` says of a control plane: the plans to come, in their order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from planners.control_plane.rehearsal import rehearsed
from planners.control_plane.view import Host, Observed
from resources.control_plane.spec import UpdateStrategy
from resources.fleet.revision import Pace

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(*hosts: Host, **more: Any) -> tuple[list[str], list[str]]:
    """The steps' messages up to their colon, and the reasons of what it ends up waiting for."""
    given = {"replicas": 3, "strategy": UpdateStrategy.ROLLING_UPDATE, "pace": Pace(revision=1), **more}
    plans = list(rehearsed(Observed(hosts=hosts, **given), NOW))
    return [s.message.partition(":")[0] for p in plans for s in p.steps], [w.reason for w in plans[-1].waits]


def host(index: int, **more: Any) -> Host:
    return Host(f"cp-{index}", index, NOW - timedelta(days=1), **more)


def test_each_index_in_turn_and_its_replacement_first() -> None:
    outdated = [host(i, outdated="instanceType") for i in range(3)]
    assert told(*outdated) == (
        [
            "a machine is created for index 0",
            "cp-0 is deleted",
            "cp-0 goes",
            "a machine is created for index 1",
            "cp-1 is deleted",
            "cp-1 goes",
            "a machine is created for index 2",
            "cp-2 is deleted",
            "cp-2 goes",
        ],
        [],
    )


def test_an_update_that_is_half_done_goes_on_where_it_is() -> None:
    """One replacement is on its way, and is foreseen to arrive."""
    coming = Host("cp-new-1", 1, NOW, ready=False, joined=False)
    steps, waits = told(host(0), host(1, outdated="image"), coming, host(2))
    assert (steps, waits) == (["cp-1 is deleted", "cp-1 goes"], [])


def test_a_person_who_deletes_one_sees_what_comes_of_it() -> None:
    steps, waits = told(host(0), host(1, leaving=True, held=True), host(2), strategy=UpdateStrategy.ON_DELETE)
    assert (steps, waits) == (["a machine is created for index 1", "cp-1 goes"], [])


def test_what_stops_it_is_what_it_ends_with() -> None:
    steps, waits = told(*[host(i, outdated="image") for i in range(3)], strategy=UpdateStrategy.ON_DELETE)
    assert (steps, waits) == ([], ["DeleteToReplace"])
    broken = Host("cp-bad-0", 0, NOW, ready=False, joined=False, failure="no such image")
    steps, waits = told(host(0, outdated="image"), broken, host(1), host(2))
    assert (steps, waits) == ([], ["FailedReplacement"]), "a failure is not wished away"
