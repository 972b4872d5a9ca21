"""planners/pool: a held rollout does not run: what failed is preserved as without a rollout, and what is preserved
stays, until a person lets the rollout go on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pools.planner import (
    EPOCH,
    Act,
    P,
    U,
    World,
    at,
    both,
    deleted,
    drained,
    failing,
    kept,
    limited,
    look,
    member,
    pool,
    preserving,
    run,
    waits,
)

from planners.fleet.steps import Delete
from planners.pool import progress
from planners.pool.view import ObservedPool
from resources.fleet.member import Member, Permit, PreserveWish, Trouble
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase
from resources.pool.state import Gate, Rollout

AUTO, ASKED = PreservedBy.AUTO, PreservedBy.ASKED


# -- one plan ---------------------------------------------------------------------------------------------------------

HOUR_AGO = EPOCH - timedelta(hours=1)
HELD: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("paused by the manifest", {"paused": True}, {}, "RolloutPaused"),
    ("paused by a person", {}, {"gate": Gate.PAUSED}, "RolloutPaused"),
    ("aborted", {}, {"gate": Gate.ABORTED}, "RolloutAborted"),
    ("at its canary", {"pauseAfter": 2}, {"available": 2}, "Canary"),
    ("stopped", {"progressDeadlineSeconds": 600}, {}, "ProgressDeadlineExceeded"),
]


@pytest.mark.parametrize(("given", "seen", "wait"), [r[1:] for r in HELD], ids=[r[0] for r in HELD])
def test_a_rollout_that_is_held_overrides_nothing(given: dict[str, Any], seen: dict[str, Any], wait: str) -> None:
    """It does not run: requests and slots count, of both revisions, and what is preserved stays."""
    failed = {"a": drained(PreserveWish.ASKED), "b": drained()._replace(revision=1), "c": drained(PreserveWish.NEVER)}
    staying = {"k": kept(ASKED)._replace(revision=1), "l": kept(age=9)}
    late = {"late": member(2, P, age=3600)} if wait == "ProgressDeadlineExceeded" else {}
    members = pool(1, 2) | failed | staying | late
    rollout = Rollout(revision=2, began=HOUR_AGO, progress_at=HOUR_AGO, old_left=3, **seen)
    made = look(members, limited(2, len(members), **given), rollout=rollout)
    assert (preserving(made, ASKED), both(made)) == (["a"], ([], ["b", "c"])), "two slots were in use"
    assert all(s.repair for s in made.steps if isinstance(s, Delete))
    assert waits(made) >= {wait, "FailedPreserved"}
    assert not made.complete


def test_an_outage_and_a_storm_hold_no_rollout() -> None:
    """The rollout continues on its own, and would replace what was preserved meanwhile."""
    members = pool(1, 3) | {"a": drained(PreserveWish.ASKED), "k": kept()}
    for seen, ill in (({"reachable": False}, 0), ({}, 4)):
        all_of_them = members | {f"u{n}": member(2, U) for n in range(ill)}
        made = look(all_of_them, limited(2, len(all_of_them)), **seen)
        assert (preserving(made, ASKED), both(made)) == ([], ([], []))


def test_a_canary_that_fails_does_not_let_the_rollout_go_on() -> None:
    """It was available: so it is preserved, nothing old is replaced, and a person may still let it go on."""
    settings = limited(1, 3, pauseAfter=1)
    rollout = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2, available=1)
    members = pool(2) | {"k": kept(ASKED)._replace(revision=1)}
    for canary in (member(2, U, trouble=Trouble.HEALTH), failing(), member(2, Phase.TERMINATING)):
        assert deleted(look(members | {"new": canary}, limited(1, 4, pauseAfter=1), rollout=rollout)) == []
    assert both(look(pool(2) | {"new": drained()}, settings, rollout=rollout)) == (["new"], [])
    members = pool(2) | {"new": kept()}
    assert waits(look(members, settings, rollout=rollout)) == {"Canary", "FailedPreserved"}
    assert progress.resume(rollout, ObservedPool(members, 2, rollout), settings, EPOCH).canary_passed
    members = pool(2) | {"new": member(2, U)}
    assert not progress.resume(rollout, ObservedPool(members, 2, rollout), settings, EPOCH).canary_passed


def test_a_canary_that_was_preserved_in_a_pause_was_not_reached() -> None:
    members, settings = pool(2) | {"new": kept(trouble=Trouble.JOIN)}, limited(1, 3, pauseAfter=1)
    rollout = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2, gate=Gate.PAUSED)
    on = progress.resume(rollout, ObservedPool(members, 2, rollout), settings, EPOCH)
    assert not on.canary_passed
    assert "Canary" not in waits(look(members, settings, rollout=on))


@pytest.mark.parametrize("staying", [kept(ASKED), member(preserved_until=at(99), preserved_by=ASKED)])
def test_the_last_step_to_the_canary_takes_none_that_is_preserved(staying: Member) -> None:
    members = pool(2, 1) | {"k": staying._replace(revision=1)}
    made = look(members, limited(1, 3, unavailable=1, pauseAfter=1))
    assert deleted(made) == ["r1-00"]
    more = [] if staying.phase is Phase.FAILED else ["r1-00"]
    assert deleted(look(members, limited(1, 3, pauseAfter=1))) == more, "one that is Failed is not in use"
    left = {n: m for n, m in members.items() if n != "r1-00"}
    assert deleted(look(left, limited(1, 3, unavailable=1, pauseAfter=1))) == []


def test_scaled_in_while_it_is_held_they_go_last() -> None:
    members = pool(0, 5) | {"k": kept(ASKED)._replace(revision=1)}
    for replicas, count in ((4, 2), (2, 4), (1, 5)):
        gone = deleted(look(members, limited(1, replicas, surge=0, unavailable=1, paused=True)))
        assert (len(gone), "k" in gone) == (count, False)


def test_when_the_last_old_one_is_gone_a_pause_still_holds() -> None:
    members = pool(0, 4) | {"k": kept(ASKED)}
    made = look(members, limited(1, paused=True), unfinished=True)
    assert (deleted(made), made.complete) == ([], False)
    words = "The rollout is paused; to be replaced when it is resumed: 1 machine kept for inspection (k)"
    assert words in {w.message for w in made.waits}
    assert deleted(look(members, limited(1), unfinished=True)) == ["k"]


# -- whole stories ----------------------------------------------------------------------------------------------------


def fall_ill(w: World, *names: str) -> None:
    for name in names:
        w.set(name, phase=U, since=w.now, trouble=Trouble.HEALTH, permit=Permit.ASKED)


def hold(w: World, how: str) -> None:
    if how in ("paused", "aborted"):
        w.gate(Gate.PAUSED if how == "paused" else Gate.ABORTED)


def goes_on(w: World) -> None:
    w.bad_images.clear()
    w.resume()


@pytest.mark.parametrize("seed", [None, *range(20)])
@pytest.mark.parametrize("how", ["paused", "aborted", "canary", "stopped"])
def test_a_rollout_that_is_held_preserves_and_ends_once_it_is_resumed(how: str, seed: int | None) -> None:
    more: dict[str, Any] = {"canary": {"pauseAfter": 1}, "stopped": {"progressDeadlineSeconds": 300}}.get(how, {})
    w = World(limited(2, repair={"maxConcurrent": 2}, **more), seed, bad_images={2} if how == "stopped" else set())
    w.fill()
    w.image(2)
    ill: list[str] = []

    def fail(w: World) -> None:
        ill.extend(sorted(w.view.old.keys() & w.view.available)[:2])
        fall_ill(w, *ill)

    def begun(w: World) -> bool:
        return progress.stopped(w.view) if how == "stopped" else bool(w.view.new.keys() & w.view.available)

    def settled(w: World) -> bool:
        still = not any(m.leaving for m in w.members.values())
        return progress.held(w.view) and still and (how != "canary" or len(w.view.old) == 4)

    def preserved(w: World) -> bool:
        return all(w.members[n].preserved_until for n in ill)

    acts: list[Act] = [("hold", begun, lambda w: hold(w, how)), ("fail", settled, fail)]
    run(w, [*acts, ("resume", preserved, goes_on)])
    assert len(ill) == 2
    assert len(w.view.new) == len(w.view.available) == len(w.members) == 5
