"""planners/pool: how old machines are replaced, and what holds it up.

Rows cite their source: S, U, M of machine-controller-manager's own tests, P of the field cases, seeds.
"""

from __future__ import annotations

from typing import Any

import pytest
from pools.planner import (
    EPOCH,
    FAST,
    LATER,
    C,
    F,
    P,
    U,
    asking,
    at,
    created,
    deleted,
    granted,
    look,
    member,
    pool,
    spec,
    waits,
)

from planners.fleet.steps import Create, Delete, MarkNodes
from planners.pool import progress
from planners.pool.plan import ObservedPool
from planners.pool.rehearsal import rehearsed
from resources.fleet.member import Member, Trouble, Vm
from resources.machine.priority import priority_of
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Gate, Rollout

# -- rollouts ----------------------------------------------------------------------------------------------------------


def test_u1_u2() -> None:
    """replicas 5, surge 2: old 4 and new 2 make new 3; old 4 and new 3 stay."""
    assert created(look(pool(4, 2), spec(5, 2, 0))) == 1
    assert created(look(pool(4, 3), spec(5, 2, 0))) == 0


def test_a_step_says_why_with_numbers() -> None:
    (step,) = [s for s in look(pool(10), spec(10, 2, 0)).steps if isinstance(s, Create)]
    assert step.message == "Created 2 machines of revision 2: 10 of 12 allowed (replicas 10 + maxSurge 2)"


def test_unhealthy_old_machines_go_first_then_older_revisions() -> None:
    members = pool(2, 2, 4) | {"ill": member(2, C), "young": member(1, P)}
    made = look(members, spec(7, 3, 0), revision=3)
    assert deleted(made, "ReplacedUnavailable") == ["young", "ill"]
    assert deleted(made)[2:] == ["r1-00"]


def test_p65_new_machines_that_never_join_cost_the_surge_and_no_old_one() -> None:
    bad = {f"n{i}": member(2, F, trouble=Trouble.JOIN, drained=True) for i in range(2)}
    made = look(pool(10) | bad, spec(10, 2, 0))
    assert (deleted(made), created(made)) == ([], 0)
    assert "NewMachinesNeverJoin" in waits(made)
    bad["n1"] = member(2, P)
    assert deleted(look(pool(10) | bad, spec(10, 2, 0))) == [], "the other one may fail too"


def test_p65_a_bad_image_does_not_eat_old_machines_that_are_ill() -> None:
    members = pool(9) | {"ill": member(1, U)} | {f"n{i}": member(2, P) for i in range(2)}
    assert deleted(look(members, spec(10, 2, 0))) == []
    assert deleted(look(members | {"n0": member(2), "n1": member(2)}, spec(10, 2, 0)))[0] == "ill"


def test_in_a_proven_rollout_a_flaky_machine_is_replaced() -> None:
    bad = {"bad": member(2, F, trouble=Trouble.JOIN, drained=True)}
    story = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=3, proven=True, available=1)
    for lost, replaced in ((0, ["bad"]), (1, ["bad"]), (2, [])):
        told = story.model_copy(update={"lost": lost})
        assert deleted(look(pool(3, 1) | bad, spec(4, 1, 0), rollout=told), "NeverJoined") == replaced
    aborted = story.model_copy(update={"gate": Gate.ABORTED})
    assert deleted(look(pool(3, 1) | bad, spec(4, 1, 0), rollout=aborted)) == []
    assert deleted(look(pool(0, 3) | bad, spec(4, 1, 0)), "NeverJoined") == ["bad"], "outside a rollout always"


def test_the_progress_deadline() -> None:
    settings = spec(10, 2, 2, progressDeadlineSeconds=600)
    members = pool(8) | {f"n{i}": member(2, P) for i in range(2)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    before = look(members, settings, at(599), rollout=story)
    assert (before.next_look, "ProgressDeadlineExceeded" in waits(before)) == (at(600), False)
    after = look(members, settings, at(600), rollout=story)
    assert "ProgressDeadlineExceeded" in waits(after)
    assert (deleted(after), created(after)) == ([], 0)
    marked = {n: m._replace(node_marked=True) for n, m in members.items()}
    assert [s.on for s in look(marked, settings, at(600), rollout=story).steps if isinstance(s, MarkNodes)] == [False]


def test_the_story_of_a_rollout() -> None:
    """Progress is a new machine that is available or an old one that is gone; the former clears the losses."""
    settings = spec(3, 1, 0)

    def told(members: dict[str, Member], story: Rollout | None = None) -> Rollout | None:
        return progress.follow(ObservedPool(members, 2, story), settings, at(60))

    began = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=3, lost=1)
    assert told(pool(3)) == Rollout(revision=2, began=at(60), progress_at=at(60), old_left=3)
    assert told(pool(3), began.model_copy(update={"revision": 1, "proven": True})) == told(pool(3)), "another's story"
    assert told(pool(3), began) == began
    assert told(pool(2), began) == began.model_copy(update={"progress_at": at(60), "old_left": 2})
    more = {"progress_at": at(60), "available": 1, "proven": True, "lost": 0}
    assert told(pool(3, 1), began) == began.model_copy(update=more)
    leaving = pool(0, 3) | {"old": member(1, Phase.TERMINATING, deleting=True)}
    assert told(leaving) is not None, "it lasts until the VM is gone"
    assert told(leaving | {"old": leaving["old"]._replace(vm=Vm.GONE)}, began) is None


def test_an_old_machine_that_drains_for_hours_does_not_stop_a_rollout() -> None:
    settings = spec(2, 1, 0, progressDeadlineSeconds=600)
    members = {"old": member(1), "new": member(2), "leaving": member(1, Phase.TERMINATING, deleting=True)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    assert "ProgressDeadlineExceeded" not in waits(look(members, settings, at(7200), rollout=story))


def test_a_pause_stops_the_clock() -> None:
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = pool(4) | {"new": member(2, P)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    paused = settings.model_copy(update={"paused": True})
    held = progress.follow(ObservedPool(members, 2, story), paused, at(100))
    on = progress.follow(ObservedPool(members, 2, held), settings, at(9000))
    assert on is not None
    assert (on.progress_at, on.held_since) == (at(8900), None), "what has passed before it counts"
    assert "ProgressDeadlineExceeded" not in waits(look(members, settings, at(9499), rollout=on))
    assert "ProgressDeadlineExceeded" in waits(look(members, settings, at(9500), rollout=on))


def test_a_short_outage_does_not_wake_a_rollout_that_has_stopped() -> None:
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = pool(4) | {"new": member(2, P)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    held = progress.follow(ObservedPool(members, 2, story, reachable=False), settings, at(700))
    assert "ProgressDeadlineExceeded" in waits(look(members, settings, at(701), rollout=held)), "it has stopped already"
    on = progress.follow(ObservedPool(members, 2, held), settings, at(710))
    assert on is not None
    assert on.progress_at == at(10)
    assert "ProgressDeadlineExceeded" in waits(look(members, settings, at(710), rollout=on))


def test_an_outage_hides_nothing_that_had_stopped_before() -> None:
    """One cause keeps its wait, and so its time, its place in lists and the phase Stopped."""
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = pool(4) | {"new": member(2, P)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    held = progress.follow(ObservedPool(members, 2, story, reachable=False), settings, at(700))
    stopped = look(members, settings, at(701), rollout=held, reachable=False)
    assert [w.reason for w in stopped.waits] == ["ProgressDeadlineExceeded"]
    before = look(members, settings, at(701), rollout=held, reachable=False, lasting=False)
    assert [w.reason for w in before.waits] == ["Unreachable"], "a run that began before decides as it did"

    members = pool(5, 1) | {n: member(2, Phase.FAILED, trouble=Trouble.JOIN, drained=True) for n in "fghi"}
    lost = look(members, spec(6, 1, 0), reachable=False)
    assert waits(lost) == {"NewMachinesNeverJoin", "Unreachable"}
    storm = pool(4) | {n: member(1, U) for n in "abcdef"}
    assert waits(look(storm, spec(10), reachable=False)) == waits(look(storm, spec(10)))


def test_many_short_outages_do_not_keep_the_clock_from_running_out() -> None:
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = pool(4) | {"new": member(2, P)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    for second in range(60, 660, 60):
        story = progress.follow(ObservedPool(members, 2, story, reachable=False), settings, at(second))
        story = progress.follow(ObservedPool(members, 2, story), settings, at(second + 1))
    assert "ProgressDeadlineExceeded" in waits(look(members, settings, at(611), rollout=story))


def test_who_resumes_a_pause_does_not_pass_a_canary_that_was_not_reached() -> None:
    settings = spec(4, 1, 0, pauseAfter=1)
    story = progress.follow(ObservedPool(pool(4, 0), 2), settings, EPOCH)
    assert story is not None
    assert not progress.resume(story, ObservedPool(pool(4, 0), 2, story), settings, EPOCH).canary_passed
    assert progress.resume(story, ObservedPool(pool(3, 1), 2, story), settings, EPOCH).canary_passed


def test_old_machines_that_never_join_are_no_loss_of_the_new_revision() -> None:
    members = pool(3, 1) | {"old": member(1, P)}
    story = progress.follow(ObservedPool(members, 2), spec(4, 1, 0), EPOCH)
    lost = progress.lose(story, [Delete(("old", "r2-00"), "NeverJoined", "")], members)
    assert lost is not None
    assert lost.lost == 1


@pytest.mark.parametrize("how", ["spec", Gate.PAUSED, Gate.ABORTED])
def test_held_by_a_person_replicas_are_kept_up_all_the_same(how: str) -> None:
    settings = spec(6, 2, 0, paused=how == "spec")
    members = pool(4, 1)
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    assert story is not None
    story = story.model_copy(update={"gate": how} if how != "spec" else {})
    made = look(members, settings, rollout=story)
    assert (created(made), deleted(made)) == (1, [])
    assert waits(made) & {"RolloutPaused", "RolloutAborted"}


def test_a_canary_waits_and_goes_on_when_resumed() -> None:
    settings = spec(6, 2, 0, pauseAfter=1)
    members = pool(5, 1)
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    assert story is not None
    made = look(members, settings, rollout=story)
    assert (waits(made), created(made), deleted(made)) == ({"Canary"}, 0, [])
    on = progress.resume(story, ObservedPool(members, 2), settings, EPOCH)
    assert created(look(members, settings, rollout=on)) == 2


def test_a_canary_takes_no_more_old_ones_than_it_replaces() -> None:
    assert len(deleted(look(pool(10), spec(10, 0, 3, pauseAfter=1)))) == 1
    assert len(deleted(look(pool(10), spec(10, 0, 3)))) == 3


def test_resumed_a_stopped_rollout_tries_again() -> None:
    settings = spec(3, 1, 0, progressDeadlineSeconds=600)
    members = pool(3) | {"bad": member(2, F, trouble=Trouble.JOIN, drained=True)}
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    assert story is not None
    assert deleted(look(members, settings, LATER, rollout=story)) == []
    on = progress.resume(story, ObservedPool(members, 2), settings, LATER)
    made = look(members, settings, LATER, rollout=on)
    assert deleted(made, "NeverJoined") == ["bad"]
    after = progress.lose(on, made.steps, members)
    assert after is not None
    assert after.lost == 0, "the one that was lost before is forgiven"


def test_min_ready_seconds() -> None:
    settings = spec(2, 1, 0, minReadySeconds=60)
    members = {"old": member(1, age=300), "old2": member(1, age=300), "new": member(2)}
    early = look(members, settings, at(59))
    assert (deleted(early), early.next_look) == ([], at(60))
    assert deleted(look(members, settings, at(60))) == ["old"]


def test_on_delete_replaces_what_somebody_deletes() -> None:
    """P71, within I2: there is no surge, so the replacement follows the VM."""
    settings = MachineDeploymentSpec.model_validate(
        {**spec(3).model_dump(by_alias=True), "strategy": {"type": "OnDelete"}}
    )
    assert look(pool(3), settings).steps == ()
    members = pool(1) | {f"d{i}": member(1, Phase.TERMINATING, deleting=True, vm=Vm.GONE) for i in range(2)}
    made = look(members, settings)
    assert [(s.count, s.revision) for s in made.steps if isinstance(s, Create)] == [(2, 2)]
    assert waits(made) == {"OnDelete"}


def test_marks_on_nodes() -> None:
    """MCM U13, #989; design: they are removed in every ending."""
    marked = {n: m._replace(node_marked=True) for n, m in pool(2).items()}

    def marks(members: dict[str, Member], settings: MachineDeploymentSpec, **more: Any) -> list[tuple[bool, int]]:
        return [(s.on, len(s.names)) for s in look(members, settings, **more).steps if isinstance(s, MarkNodes)]

    assert marks(pool(2) | {"unborn": member(1, P)}, spec(3, 1, 0)) == [(True, 2)]
    assert marks(marked, spec(2, 1, 0)) == []
    assert marks(marked, spec(2, 1, 0), revision=1) == [(False, 2)], "undone: they are of the newest revision again"
    aborted = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2, gate=Gate.ABORTED)
    assert marks(marked, spec(2, 1, 0), rollout=aborted) == [(False, 2)]
    assert marks(marked, spec(2, 1, 0, paused=True)) == [], "a pause is no ending"
    assert marks(pool(2), spec(2, 1, 0, paused=True)) == []


# -- what would be done ------------------------------------------------------------------------------------------------


def test_a_rehearsal_tells_a_rollout_to_its_end() -> None:
    plans = list(rehearsed(ObservedPool(pool(4), 2, pace=FAST), spec(4, 2, 0), EPOCH))
    told = [s.message for p in plans for s in p.steps if not isinstance(s, MarkNodes)]
    floor = "at least 4 (replicas 4 - maxUnavailable 0) needed"
    assert told == [
        "Created 2 machines of revision 2: 4 of 6 allowed (replicas 4 + maxSurge 2)",
        f"Deleting 2 machines (r1-00, r1-01) of 4 of older revisions: 6 available, {floor}",
        "Created 2 machines of revision 2: 4 of 6 allowed (replicas 4 + maxSurge 2)",
        f"Deleting 2 machines (r1-02, r1-03) of 2 of older revisions: 6 available, {floor}",
    ]
    assert plans[-1].complete


def test_a_rehearsal_ends_where_a_person_is_waited_for() -> None:
    plans = list(rehearsed(ObservedPool(pool(4), 2, pace=FAST), spec(4, 2, 0, pauseAfter=1), EPOCH))
    assert (plans[-1].complete, {w.reason for w in plans[-1].waits}) == (False, {"Canary"})


def test_a_rehearsal_repairs_one_by_one() -> None:
    plans = list(rehearsed(ObservedPool(pool(0, 8) | {"a": asking(1), "b": asking(2)}, 2, pace=FAST), spec(10), EPOCH))
    assert [granted(p) for p in plans if granted(p)] == [["b"], ["a"]]
    assert plans[-1].complete


def test_a_new_machine_that_falls_ill_starts_the_clock_anew() -> None:
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = {"old": member(1), "leaving": member(1, Phase.TERMINATING), "ill": member(2, U, age=-7000)} | pool(0, 2)
    story = progress.follow(ObservedPool(members, 2), settings, EPOCH)
    assert look(members, settings, at(7200), rollout=story).next_look == at(7600)


def test_priorities() -> None:
    assert priority_of({}) == 3
    assert priority_of({"machinepriority.machine.sapcloud.io": "1"}) == 1
    assert priority_of({"machinepriority.machine.sapcloud.io": "low"}) == 3, "MCM: unparsable is the default"
