"""The state of a pool's rollout: one look judged, counted, and shown on a page, in lines, on a terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from entitykit import waits_for
from rich.console import Console
from typer import BadParameter

from planners.fleet import steps
from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.machine.state import Phase
from resources.pool.intents import PoolSummary
from resources.pool.rollout import RolloutState
from resources.pool.state import Rollout
from resources.reasons import next_step
from starter.commands.kinds import CONTROL_PLANE, POOL
from starter.commands.rollout import owners, some_pools
from starter.commands.rollout_view import RolloutLines, page, picture
from starter.sdk.fleet.trouble import MachineTrouble
from starter.sdk.fleet.waiting import Stand
from starter.sdk.pools.results import PoolDescription, PoolListed, RolloutDescription, RolloutListed
from starter.sdk.pools.rollout_status import HELD, LOST, RolloutLook, counts, judge, numbers, unwell_of
from starter.sdk.results import MachineSummary

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def wait(reason: str, message: str = "words") -> FleetWait:
    return FleetWait(reason=reason, message=message, since=NOW - timedelta(minutes=12))


def summary(*waits: str, **fields: Any) -> PoolSummary:
    """A pool of 20 in a rollout of revision 3: 12 are new, of which 10 are Running; 9 are old, of which 8 run."""
    rollout = Rollout(revision=3, began=NOW - timedelta(hours=1), progress_at=NOW, old_left=9)
    usual: dict[str, Any] = {
        "name": "p1",
        "cluster": "prod",
        "machine_class": "c1",
        "replicas": 20,
        "revision": 3,
        "machines": 21,
        "updated": 12,
        "available": 18,
        "phases": [(2, Phase.RUNNING, 8), (2, Phase.TERMINATING, 1), (3, Phase.PENDING, 2), (3, Phase.RUNNING, 10)],
        "rollout": rollout,
        "waits": [wait(w) for w in waits],
    }
    return PoolSummary.model_validate(usual | fields)


def pool(found: PoolSummary | None, status: str = "RUNNING", **fields: Any) -> PoolDescription:
    return PoolDescription(PoolListed("p1", "prod", NOW, summary=found), status, **fields)


def look(found: PoolSummary | None, *steps: Happening, **fields: Any) -> RolloutLook:
    """A look, with the story that goes with it."""
    state = RolloutState(pool="p1", cluster="prod", revision=3, steps=list(steps), **fields)
    story = RolloutListed("p1", "prod", 3, "Rolling", NOW - timedelta(hours=1), state=state)
    described = pool(found)
    return RolloutLook(described, judge(described), RolloutDescription(story))


def step(number: int) -> Happening:
    return Happening(time=NOW + timedelta(seconds=number), reason="Replaced", message=f"step {number}")


NO_MORE_HOPE = [(2, Phase.RUNNING, 20), (3, Phase.FAILED, 1)]
OVER = [(2, Phase.UNKNOWN, 1), (3, Phase.RUNNING, 19)]
JUDGED: dict[str, tuple[PoolDescription, Stand, str]] = {
    "goes on": (pool(summary("NewMachinesNotReady")), Stand.GOING, ""),
    "nothing is said": (pool(summary()), Stand.GOING, ""),
    "a storm goes by": (pool(summary("TooManyUnhealthy")), Stand.GOING, ""),
    "no capacity": (pool(summary("OutOfCapacity")), Stand.GOING, ""),
    "nobody answers": (pool(None, no_answer="nobody polls q"), Stand.GOING, "cannot be asked: nobody polls q"),
    "done": (pool(summary(rolled_out=True, available=20)), Stand.DONE, "revision 3, 20 of 20 machines available"),
    "done while paused": (pool(summary(rolled_out=True, paused=True)), Stand.DONE, "rolled out"),
    "asleep": (pool(summary(rolled_out=True, replicas=0, hibernated=True)), Stand.DONE, "no machine, because it is"),
    "paused": (pool(summary("RolloutPaused")), Stand.STANDS, "RolloutPaused: words"),
    "a canary": (pool(summary("NewMachinesNotReady", "Canary")), Stand.STANDS, "Canary: words"),
    "aborted": (pool(summary("RolloutAborted")), Stand.STANDS, "RolloutAborted: words"),
    "too late": (pool(summary("ProgressDeadlineExceeded")), Stand.STANDS, "ProgressDeadlineExceeded: words"),
    "OnDelete": (pool(summary("OnDelete")), Stand.STANDS, "OnDelete: words"),
    "the cluster is paused": (pool(summary("ClusterPaused")), Stand.STANDS, "ClusterPaused: words"),
    "some never join, others may": (pool(summary("NewMachinesNeverJoin")), Stand.GOING, ""),
    "none joins": (
        pool(summary("NewMachinesNeverJoin", phases=NO_MORE_HOPE)),
        Stand.STANDS,
        "NewMachinesNeverJoin: wo",
    ),
    "one is lost, others are on their way": (pool(summary("MemberLost")), Stand.GOING, ""),
    "one is lost, others are waited for": (
        pool(summary("MemberLost", "WaitsForVMsToGo", phases=OVER)),
        Stand.GOING,
        "",
    ),
    "only one that is lost is left": (pool(summary("MemberLost", phases=OVER)), Stand.STANDS, "MemberLost: words"),
    "a repair has its turn": (pool(summary("RepairBudget", phases=OVER, repairs=1)), Stand.GOING, ""),
    "nothing may be repaired": (pool(summary("RepairBudget", phases=OVER)), Stand.STANDS, "RepairBudget: words"),
    "parked": (pool(summary(parked="KeyError: 'x'")), Stand.STANDS, "InternalError: KeyError: 'x'"),
    "being deleted": (pool(summary(deleted=True, machines=1)), Stand.STANDS, "is being deleted; 1 machine left"),
    "gone": (pool(None, "COMPLETED", ended=NOW), Stand.STANDS, "is gone since 2026-03-01 03:00:00 UTC"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_how_a_rollout_stands(case: str) -> None:
    found, stand, words = JUDGED[case]
    verdict = judge(found)
    assert verdict.stand is stand
    assert words in verdict.words
    assert bool(verdict.words) is bool(words)


def test_whatever_stops_or_holds_a_pool_ends_who_follows_it_unless_it_goes_by_itself() -> None:
    assert {*steps.STOPPED, *steps.HELD, "OnDelete"} - {"TooManyUnhealthy"} == {*HELD, LOST, "MemberLost"}


def test_a_rollout_whose_machines_are_refused_says_so() -> None:
    state = waits_for("InvalidSpec")
    summary_of = MachineSummary("m-1", "prod", NOW, phase="CrashLoopBackOff", reason="InvalidSpec")
    refused = look(summary("NewMachinesNotReady"))
    refused = replace(refused, unwell=(summary_of,), trouble=MachineTrouble(summary_of, state))
    text = "\n".join(page(refused, NOW))
    assert "tried again and again, but only a person ends this: InvalidSpec (machine m-1)" in text
    assert "Message:           3 of 7 invalidspec words" in text
    assert "what can be done:     what machine m-1 needs, see above" in text
    waits = "\n".join(page(look(summary("ReferenceNotFound")), NOW))
    assert "only a person ends this: ReferenceNotFound" in waits, "the machine may have been given up by now"
    going = "\n".join(page(look(summary("NewMachinesNotReady")), NOW))
    assert "continues on its own" in going


def test_a_rollout_that_stands_says_what_can_be_done() -> None:
    words = judge(pool(summary("ProgressDeadlineExceeded"))).words
    assert words.splitlines()[1] == f"what can be done: {next_step('ProgressDeadlineExceeded', 'prod', 'p1', 'pool')}"
    assert "`hostler rollout undo p1 --cluster prod`" in words


def test_the_numbers_of_a_rollout() -> None:
    half = summary(unhealthy=1)
    assert numbers(half) == "revision 3: 12 of 20 updated, 18 available, 9 old ones left, 1 unhealthy"
    assert (counts(half).done, counts(half).whole) == (10 + 20 - 9, 40)
    start = summary(phases=[(2, Phase.RUNNING, 20)], updated=0)
    assert counts(start).done == 0
    over = summary(phases=[(3, Phase.RUNNING, 20)], updated=20, available=20)
    assert counts(over).done == counts(over).whole
    first = summary(phases=[(3, Phase.RUNNING, 5)], updated=5, available=5, rollout=None)
    assert (numbers(first), counts(first).done, counts(first).whole) == (
        "revision 3: 5 of 20 updated, 5 available",
        5,
        20,
    )
    none = summary(phases=[], replicas=0, updated=0, available=0, rollout=None)
    assert (counts(none).done, counts(none).whole) == (0, 0)


def test_the_page_of_one_look_says_everything() -> None:
    stops = NOW + timedelta(minutes=8)
    shown = "\n".join(
        page(look(summary("NewMachinesNotReady"), step(1), step(2), stops_at=stops, steps_dropped=7), NOW)
    )
    for words in (
        "Pool:      p1 of cluster prod",
        "Rollout:   continues on its own",
        "Machines:  revision 3: 12 of 20 updated, 18 available, 9 old ones left",
        f"Progress:  [{'#' * 15}{'-' * 15}] 52 %",
        "Began:     2026-03-01 02:00:00 UTC (60m ago)",
        "Stops:     2026-03-01 03:08:00 UTC (in 8m), unless a new machine is available by then",
        "Steps (7 earlier ones: hostler rollout history p1 --revision 3 --cluster prod):",
        "  03:00:01Z Replaced: step 1\n  03:00:02Z Replaced: step 2",
        "  NewMachinesNotReady:  words",
        "  since:                2026-03-01 02:48:00 UTC (12m ago)",
        f"  what can be done:     {next_step('NewMachinesNotReady', 'prod', 'p1', 'pool')}",
    ):
        assert words in shown
    done = "\n".join(page(look(summary(rolled_out=True)), NOW))
    assert "Rollout:   done" in done
    assert not re.search("Progress|Steps|Waits|Stops", done)
    stopped = "\n".join(page(look(summary("ProgressDeadlineExceeded"), stops_at=stops), NOW))
    assert "Rollout:   blocked" in stopped
    assert "unless a new machine" not in stopped


def test_a_line_is_printed_when_it_is_news(capsys: pytest.CaptureFixture[str]) -> None:
    view = RolloutLines()
    first = look(summary("NewMachinesNotReady"), *(step(n) for n in range(13)))
    view.show(first, NOW)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "3 earlier steps: hostler rollout history p1 --revision 3 --cluster prod"
    assert shown[1:11] == [f"03:00:{n:02}Z p1: Replaced: step {n}" for n in range(3, 13)]
    assert shown[11:] == [f"p1: {numbers(summary())}", "p1: waits: NewMachinesNotReady: words"]
    view.show(first, NOW)
    assert capsys.readouterr().out == ""
    view.show(look(summary(), *(step(n) for n in range(13)), step(14), stops_at=NOW), NOW)
    assert capsys.readouterr().out.splitlines() == [
        "03:00:14Z p1: Replaced: step 14",
        "p1: stops at 2026-03-01 03:00:00 UTC unless a new machine is available by then",
    ]


def test_the_picture_on_a_terminal() -> None:
    console = Console(width=160, record=True, force_terminal=True, file=StringIO())
    console.print(picture(look(summary("NewMachinesNotReady"), stops_at=NOW + timedelta(minutes=8)), NOW))
    console.print(picture(look(None), NOW))
    bar, waits, stops, silent = console.export_text().splitlines()
    assert re.fullmatch(r"p1 +━+.* revision 3: 12 of 20 updated, 18 available, 9 old ones left +60m *", bar)
    assert waits == "  NewMachinesNotReady: words (12m)"
    assert stops == "  stops in 8m (03:08:00 UTC) unless a new machine is available by then"
    assert silent.startswith("pool p1 cannot be asked")


def test_one_that_is_preserved_is_waited_for_too() -> None:
    asked = unwell_of(summary())
    assert "HostlerPool='p1'" in asked
    assert "HostlerPhase IN ('Pending', 'Pending:Preserved', 'CrashLoopBackOff', " in asked
    assert "'Unknown', 'Unknown:Preserved', 'Failed', 'Failed:Preserved')" in asked
    assert "Running" not in asked.partition(" IN ")[2]


def test_the_machines_that_are_waited_for_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    ill = MachineSummary(name="p1-x-1", cluster="prod", created=NOW, phase="CrashLoopBackOff", reason="InvalidSpec")
    early = MachineSummary(name="p1-x-2", cluster="prod", created=NOW, phase="Pending")
    found = replace(look(summary()), unwell=(ill, early))
    RolloutLines().show(found, NOW)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "p1: p1-x-1 is CrashLoopBackOff: InvalidSpec",
        "p1: p1-x-2 is Pending",
    ]
    assert page(found, NOW)[-3:] == [
        "Not available (hostler describe machine NAME --cluster prod):",
        "  p1-x-1:  CrashLoopBackOff InvalidSpec",
        "  p1-x-2:  Pending",
    ]
    console = Console(width=160, record=True, file=StringIO())
    console.print(picture(found, NOW))
    assert console.export_text().splitlines()[1:] == [
        "  p1-x-1 is CrashLoopBackOff: InvalidSpec",
        "  p1-x-2 is Pending",
    ]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (None, []),
        (["p1"], ["p1"]),
        (["pool/p1", "machinedeployment/p2", "mcd/p3"], ["p1", "p2", "p3"]),
        (["pool", "p1", "p2"], ["p1", "p2"]),
        (["pool"], ["pool"]),
    ],
)
def test_pools_are_named_as_kubectl_names_things(words: list[str] | None, names: list[str]) -> None:
    assert owners(words) == [(POOL, name) for name in names]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("machine/m1", "only pools, the control plane and config pools"),
        ("deploy/p1", "only pools"),
        ("pool/", "has no name"),
    ],
)
def test_what_has_no_rollout_is_refused(word: str, says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        owners([word])


def test_the_control_plane_needs_no_name() -> None:
    """Its short words stay names of pools, as they were."""
    assert owners(["controlplane", "p1", "cp"]) == [(CONTROL_PLANE, "cluster"), (POOL, "p1"), (POOL, "cp")]
    assert owners(["cp/cluster", "pool/controlplane"]) == [(CONTROL_PLANE, "cluster"), (POOL, "controlplane")]
    with pytest.raises(BadParameter, match="restart is for pools"):
        some_pools(["controlplane"], "restart")
