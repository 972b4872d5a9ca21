"""planners/machine/preservation.py: time that passes, and whole lives, drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preservation.planner import (
    ASKED,
    AUTO,
    HOUR,
    NOBODY,
    NOW,
    SECOND,
    TYPO,
    WANTED,
    WISHES,
    F,
    P,
    R,
    T,
    U,
    carry_out,
    machine,
    must_end,
    own,
    release,
    settle,
    slot_taken,
    wish,
)

from planners.machine.preservation import (
    AskPool,
    Decision,
    End,
    ObservedMachine,
    Preserve,
    Protect,
    Recover,
    Stay,
    Warn,
    decide,
)
from resources.machine.preservation import PreserveValue

# Drawn from a seed: hypothesis' own drawing of so many inputs takes a hundred times as long as the decision.
SEEDS = st.integers(0, 2**32)
many = settings(max_examples=300)


# -- time passes ------------------------------------------------------------------------------------------------------


def a_machine(chance: random.Random) -> ObservedMachine:
    """Any machine, with times that are not round numbers."""
    value = chance.choice(WISHES)
    left = timedelta(seconds=chance.choice((1, 1800, 3599, 3600, 3601, 200_000)) + chance.random())
    expiry = chance.choice((None, NOW + left))
    if chance.random() < 0.3:
        when: dict[str, Any] = {"lasts": left} if chance.random() < 0.5 else {"until": NOW + left}
        value = {**value, "own": own(chance.choice(WANTED), **when)}
    return ObservedMachine(
        phase=chance.choice((R, R, F, F, F, U, P)),
        now=NOW,
        timeout=timedelta(seconds=chance.choice((5, 3600, 259_200))),
        release=release() if chance.random() < 0.1 else None,
        source=chance.choice((AUTO, ASKED)) if expiry else NOBODY,
        expiry=expiry,
        granted=chance.choice((NOBODY, AUTO, ASKED)),
        drained=chance.random() < 0.8,
        healthy=chance.random() < 0.2,
        in_pool=chance.random() < 0.7,
        vm_present=chance.random() < 0.9,
        node_present=chance.random() < 0.8,
        **value,
    )


@many
@given(SEEDS)
def test_nothing_changes_before_the_time_that_was_named(seed: int) -> None:
    """And something does change at that time: the workflow's timer is all that it needs."""
    chance = random.Random(seed)
    o, made = settle(a_machine(chance))
    for _ in range(4):
        named = made[-1]
        if isinstance(named, AskPool):
            return  # its pool's time
        assert isinstance(named, Stay)
        if o.expiry is None and o.own is not None and o.own.until:
            return  # a lapsed request is handled at the next news
        last = named.until or o.now + timedelta(days=1000)
        for part in (0.01, 0.5, chance.random(), 0.999):
            assert decide(replace(o, now=o.now + (last - o.now) * part)) == named
        if named.until is None:
            return
        assert named.until > o.now
        o = replace(o, now=named.until)
        assert decide(o) != named
        o, made = settle(o)
    pytest.fail("a preservation that does not end")


@many
@given(SEEDS)
def test_a_later_look_ends_all_the_same(seed: int) -> None:
    """A worker that was away for a year: at its first look nothing is preserved by what was asked for before."""
    chance = random.Random(seed)
    o, _ = settle(a_machine(chance))
    if o.expiry is None:
        return
    after, made = settle(replace(o, now=o.now + timedelta(days=365)))
    assert isinstance(made[0], End)
    assert after.expiry is None


# -- whole lives ------------------------------------------------------------------------------------------------------


LEAPS = (SECOND, HOUR, 30 * HOUR, 100 * HOUR)


class Life:
    """A machine and its pool, to which anything happens. Every decision is carried out and checked."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.o = machine(self.chance.choice((R, R, P)), in_pool=self.chance.random() < 0.8)
        self.slots = self.chance.choice((0, 1, 1))
        """Free slots."""
        self.rolling = False
        self.seen: list[Decision] = []

    def happen(self) -> None:
        o, chance = self.o, self.chance
        what = chance.randrange(12)
        if what == 0:
            value = chance.choice(["", *PreserveValue, TYPO])
            self.o = replace(o, node_value=value) if o.node_present else o
        elif what == 1:
            lasts = chance.choice((None, 8 * HOUR))
            self.o = replace(o, own=own(chance.choice(tuple(PreserveValue)), lasts=lasts))
        elif what == 2:
            took = chance.random() < 0.5
            self.o = replace(o, release=slot_taken() if took and o.source is AUTO else release())
        elif what in (3, 4):
            self.o = replace(o, phase={P: R, R: U, U: chance.choice((R, F))}.get(o.phase, o.phase), granted=NOBODY)
        elif what == 5:
            self.o = replace(o, drained=o.phase is F)
        elif what == 6:
            self.o = replace(o, healthy=o.phase is F and chance.random() < 0.5)
        elif what == 7:
            self.o = replace(o, node_present=not o.node_present, protected=False)
        elif what == 8:
            self.o = replace(o, protected=False)
        elif what == 9:
            self.rolling = not self.rolling
        elif what == 10:
            self.o = replace(o, vm_present=o.vm_present and chance.random() < 0.8)
        else:
            near = o.expiry - HOUR / 2 if o.expiry else o.now
            self.o = replace(o, now=max(near, o.now) if chance.random() < 0.3 else o.now + chance.choice(LEAPS))

    def pool_answers(self) -> None:
        """A grant, from a pool that does not roll."""
        if not self.rolling and wish(self.o) in WANTED:
            self.o = replace(self.o, granted=ASKED)
        elif not self.rolling and self.slots:
            self.slots -= 1
            self.o = replace(self.o, granted=AUTO)

    def settle(self) -> None:
        for _ in range(9):
            before, made = self.o, decide(self.o)
            self.o = carry_out(before, made)
            self.seen.append(made)
            self.look(before, made)
            if isinstance(made, AskPool):
                self.pool_answers()
            if isinstance(made, Stay) or (isinstance(made, AskPool) and self.o.granted is NOBODY):
                return
        raise AssertionError(f"it goes on and on: {self.seen[-9:]}")

    def look(self, before: ObservedMachine, made: Decision) -> None:
        after = self.o
        if before.expiry and after.expiry:
            assert after.expiry == before.expiry  # I9: nobody but an operator moves it
        if before.expiry and not after.expiry:
            assert isinstance(made, End)
            assert must_end(before)
        if after.phase is T:
            assert before.phase in (F, T)
        if after.expiry and not before.expiry:
            assert before.vm_present
            assert before.phase in (R, F)
            assert after.expiry > before.now
            assert wish(before) in WANTED or before.granted is AUTO
            assert not (self.rolling and before.phase is F and before.in_pool)  # no grant was given then


@many
@given(SEEDS)
def test_any_life(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.settle()
        if life.o.phase is T:
            return
        life.happen()


def test_the_lives_have_it_all() -> None:
    """Otherwise they would prove little."""
    kinds = Counter[tuple[type[Decision], str]]()
    for seed in range(150):
        life = Life(seed)
        for _ in range(60):
            life.settle()
            life.happen()
        kinds.update((type(m), getattr(m, "reason", "")) for m in life.seen)
    assert {kind for kind, _ in kinds} == {Preserve, End, Recover, Protect, Warn, AskPool, Stay}
    assert {reason for kind, reason in kinds if kind is End} == {"Released", "SlotTaken", "PreserveExpired", "VMGone"}
