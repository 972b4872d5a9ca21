"""planners/machine/preservation.py, step after step: the arrows of seed 003's diagrams, its use cases, and
what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from preservation.planner import (
    ASKED,
    AUTO,
    HOUR,
    LATER,
    SECOND,
    TYPO,
    F,
    P,
    U,
    kept,
    machine,
    own,
    release,
    settle,
    slot_taken,
)

from planners.machine.preservation import AskPool, ObservedMachine, Preserve, Protect, decide
from resources.machine.preservation import PreservedBy

# -- diagrams and use cases -------------------------------------------------------------------------------------------


def shown(o: ObservedMachine) -> str:
    return f"{o.phase}:Preserved" if o.expiry else str(o.phase)


def annotated(value: str) -> Callable[[ObservedMachine], ObservedMachine]:
    return lambda o: replace(o, node_value=value)


def after(time: timedelta) -> Callable[[ObservedMachine], ObservedMachine]:
    return lambda o: replace(o, now=o.now + time)


def fails(o: ObservedMachine) -> ObservedMachine:
    """It fails, through Unknown, in which nothing that is preserved is lost. Then it is drained."""
    for phase, drained in ((U, False), (F, False), (F, True)):
        seen = shown(o).partition(":")[2]
        o, _ = settle(replace(o, phase=phase, drained=drained))
        assert shown(o).partition(":")[2] == seen or drained
    return o


def heals(o: ObservedMachine) -> ObservedMachine:
    return replace(o, healthy=True)


def granted(by: PreservedBy) -> Callable[[ObservedMachine], ObservedMachine]:
    """Its pool grants it, after it was asked."""

    def grant(o: ObservedMachine) -> ObservedMachine:
        assert isinstance(decide(o), AskPool)
        return replace(o, granted=by)

    return grant


KEEP, END = "Running:Preserved", "Terminating"
FAILED, LOOK = "Failed", "Failed:Preserved"
STORIES: list[tuple[str, list[tuple[Callable[[ObservedMachine], ObservedMachine], str]]]] = [
    (
        "use case 1, point 4: a Running one is looked at, and its time is over",
        [(annotated("now"), KEEP), (after(71 * HOUR), KEEP), (after(HOUR - SECOND), KEEP), (after(SECOND), "Running")],
    ),
    (
        "use case 2, point 5: one that may fail",
        [
            (annotated("when-failed"), "Running"),
            (fails, FAILED),
            (granted(ASKED), LOOK),
            (after(72 * HOUR - SECOND), LOOK),
            (after(SECOND), END),
        ],
    ),
    ("use case 3, point 6: nobody asked", [(fails, FAILED), (granted(AUTO), LOOK), (after(72 * HOUR), END)]),
    ("use case 4: Running:Preserved, early", [(annotated("now"), KEEP), (annotated("false"), "Running")]),
    ("use case 4: Failed:Preserved, early", [(fails, FAILED), (granted(AUTO), LOOK), (annotated("false"), END)]),
    (
        "diagram 1: Running:Preserved, not healthy: Failed:Preserved with what is left of its time",
        [(annotated("now"), KEEP), (after(70 * HOUR), KEEP), (fails, LOOK), (after(2 * HOUR), END)],
    ),
    (
        "diagram 1, point 7: healthy before its time is over",
        [
            (annotated("when-failed"), "Running"),
            (fails, FAILED),
            (granted(ASKED), LOOK),
            (after(71 * HOUR), LOOK),
            (heals, KEEP),
            (after(HOUR), "Running"),
        ],
    ),
    (
        "diagram 2, point 7: healthy, ill again, and healthy: one time for all, no other slot",
        [
            (fails, FAILED),
            (granted(AUTO), LOOK),
            (heals, KEEP),
            (after(10 * HOUR), KEEP),
            (fails, LOOK),
            (heals, KEEP),
            (after(62 * HOUR), "Running"),
            (fails, FAILED),
        ],
    ),
    (
        "diagram 2: healthy, then preserve=false",
        [(fails, FAILED), (granted(AUTO), LOOK), (heals, KEEP), (annotated("false"), "Running"), (fails, FAILED)],
    ),
    (
        "A5: false until it is removed",
        [(annotated("false"), "Running"), (fails, FAILED), (annotated(""), FAILED), (granted(AUTO), LOOK)],
    ),
    (
        "a request that has ended does not begin again",
        [(annotated("now"), KEEP), (annotated("false"), "Running"), (annotated(""), "Running"), (fails, FAILED)],
    ),
    (
        "K8: what ends under an invalid value has ended",
        [(annotated("now"), KEEP), (annotated(TYPO), KEEP), (after(72 * HOUR), "Running"), (after(HOUR), "Running")],
    ),
    (
        "design: it ends in Unknown, and is left to its pool",
        [
            (annotated("now"), KEEP),
            (lambda o: replace(o, phase=U), "Unknown:Preserved"),
            (after(72 * HOUR), "Unknown"),
            (fails, FAILED),
        ],
    ),
    (
        "design: of no pool, expiry included",
        [
            (lambda o: replace(o, in_pool=False, own=own("when-failed")), "Running"),
            (fails, LOOK),
            (after(72 * HOUR), END),
        ],
    ),
]


@pytest.mark.parametrize("steps", [pytest.param(steps, id=name) for name, steps in STORIES])
def test_a_story(steps: list[tuple[Callable[[ObservedMachine], ObservedMachine], str]]) -> None:
    o, told = machine(), []
    for happens, _ in steps:
        o, _ = settle(happens(o))
        told.append(shown(o))
    assert told == [phase for _, phase in steps]


def test_each_failure_asks_its_pool_anew() -> None:
    """A grant is for one failure: the second one needs a slot of its own."""
    o, _ = settle(granted(AUTO)(fails(machine())))
    o, _ = settle(heals(o))
    o, _ = settle(after(72 * HOUR)(o))
    assert shown(o) == "Running"
    assert isinstance(decide(fails(o)), AskPool)


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(machine(node="now"), ("2026-03-04 12:00:00 UTC", "preserve=now on its node"), id="annotated"),
        pytest.param(machine(own=own()), ("2026-03-04 12:00:00 UTC", "now, requested by alice (case 17)"), id="own"),
        pytest.param(machine(F, granted=AUTO), ("2026-03-04 12:00:00 UTC", "autoPreserveFailedMax"), id="a slot"),
        pytest.param(machine(P, own=own()), ("alice", "Running or Failed"), id="waits"),
        pytest.param(machine(F, own=own("when-failed")), ("when-failed", "alice", "its pool"), id="its pool decides"),
        pytest.param(kept(F, AUTO), ("2026-03-02 12:00:00 UTC", "deleted"), id="kept for a look"),
        pytest.param(
            kept(now=LATER - HOUR), ("12:00:00 UTC", "extend NAME --cluster CLUSTER --for 8h"), id="soon over"
        ),
        pytest.param(kept(F, healthy=True), ("healthy", "2026-03-02 12:00:00 UTC"), id="healthy again"),
        pytest.param(kept(now=LATER), ("2026-03-02 12:00:00 UTC",), id="over"),
        pytest.param(kept(release=release()), ("released by bob (seen enough)",), id="released"),
        pytest.param(machine(node="now", release=release()), ("now", "bob", "seen enough"), id="withdrawn"),
        pytest.param(kept(node="false"), ("preserve=false",), id="false"),
        pytest.param(kept(node=""), ("removed",), id="annotation removed"),
        pytest.param(kept(F, vm_present=False), ("VM", "gone"), id="VM gone"),
        pytest.param(kept(F, AUTO, release=slot_taken()), ("pool p", "autoPreserveFailedMax is 0"), id="slot taken"),
        pytest.param(machine(own=own(until=LATER), now=LATER), ("expired", "alice"), id="lapsed"),
        pytest.param(kept(F, AUTO, own=own()), ("alice", "2026-03-02 12:00:00 UTC"), id="from now on by request"),
    ],
)
def test_it_says_why_and_until_when(given: ObservedMachine, words: tuple[str, ...]) -> None:
    made = decide(given)
    assert not isinstance(made, Protect)
    assert [w for w in words if w not in made.message] == []
    if isinstance(made, Preserve):
        assert made.cause, "shown for as long as it lasts"
        assert made.cause in made.message


def test_one_that_nobody_asked_for_waits_without_words() -> None:
    """It shows the reason that it Failed for, like one whose pool has no slots."""
    assert decide(machine(F)) == AskPool("")
    assert decide(machine(F, own=own("when-failed"))) != AskPool("")
