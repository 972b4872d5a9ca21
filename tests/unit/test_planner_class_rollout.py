"""Which users a class tells next: the table; and every order of answers ends with all told, never too many at once.

Source: seed 002, "every machineClass update pushes the machines referring that machineClass".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.machine_class.rollout import at_work, behind, next_look, to_tell, when_told
from planners.telling import LONGEST
from resources.machine_class.state import SILENCE, UpdateState, User

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOON, PAST = NOW + timedelta(minutes=1), NOW - timedelta(minutes=1)
OLD = User(generation=1, applied=1, state=UpdateState.UPDATED)
"""Done with generation 1, and knows nothing of 2."""
TOLD = OLD._replace(told=2, tells=1, patience=SOON)
SILENT = TOLD._replace(patience=PAST)
DONE = User(generation=2, applied=2, state=UpdateState.UPDATED, told=2)
FAILED = User(generation=2, applied=1, state=UpdateState.FAILED, told=2, patience=SOON)
BUSY = User(generation=2, applied=1, state=UpdateState.UPDATING, told=2, patience=SOON)


@pytest.mark.parametrize(
    ("users", "limit", "told"),
    [
        ({}, 10, []),
        ({"a": DONE, "b": DONE}, 10, []),
        ({"b": OLD, "a": OLD, "c": OLD}, 2, ["a", "b"]),  # by name
        ({"a": TOLD, "b": OLD, "c": OLD}, 2, ["b"]),  # a place is taken by one that was told
        ({"a": BUSY, "b": OLD}, 1, []),  # and by one that has it and is still at work
        ({"a": BUSY._replace(patience=PAST), "b": OLD}, 1, ["b"]),  # which gives it up when it is silent
        ({"a": SILENT, "b": OLD, "c": OLD}, 2, ["b", "c"]),  # the silent ones come last
        ({"a": SILENT, "b": SILENT._replace(patience=PAST - SILENCE)}, 1, ["b"]),  # the longest silent first
        ({"a": BUSY._replace(patience=PAST)}, 1, ["a"]),  # and is asked again: its last word may be lost
        ({"a": FAILED}, 1, []),  # it tries again on its own
        ({"a": FAILED, "b": OLD}, 1, ["b"]),  # and holds no place
        ({"a": FAILED._replace(patience=PAST)}, 1, ["a"]),  # but the word of its success may be lost
        ({"a": FAILED._replace(generation=1, told=1)}, 1, ["a"]),  # of an older generation: the newest may help
        ({"a": BUSY._replace(generation=1, told=1), "b": OLD}, 1, ["a"]),  # at work on the older: keeps its place
        ({"a": User(), "b": DONE}, 10, ["a"]),  # known by name only
        *(
            ({"a": DONE._replace(state=state), "b": OLD}, 1, ["b"])  # each of these is an answer
            for state in UpdateState
            if state is not UpdateState.UPDATING
        ),
    ],
)
def test_who_is_told(users: dict[str, User], limit: int, told: list[str]) -> None:
    assert to_tell(users, 2, limit, NOW) == told


def test_each_telling_without_an_answer_waits_twice_as_long() -> None:
    user, waits = OLD, []
    for _ in range(8):
        user = when_told(user, 2, SILENCE, NOW)
        assert user.patience is not None
        waits.append(user.patience - NOW)
    assert waits == [SILENCE * 2**n for n in range(5)] + [LONGEST] * 3
    assert when_told(user, 3, SILENCE, NOW).patience == NOW + SILENCE  # a new generation is another matter


def test_when_is_looked_again() -> None:
    later = SOON + SILENCE
    assert next_look({"a": TOLD, "b": TOLD._replace(patience=later), "c": DONE}, 2, NOW) == SOON
    assert next_look({"a": DONE, "b": BUSY}, 2, NOW) == SOON  # its word that it is done may be lost
    assert next_look({"a": DONE, "b": FAILED}, 2, NOW) == SOON
    assert next_look({"a": DONE, "b": TOLD._replace(generation=2)}, 2, NOW) is None  # nobody is waited for
    assert next_look({"a": SILENT, "b": OLD}, 2, NOW) is None  # they are told at once


ANSWERS = st.sampled_from([*UpdateState, None, "older"])


@given(st.data(), st.integers(1, 8), st.integers(1, 4))
def test_every_rollout_ends_and_never_has_too_many_at_work(data: Any, machines: int, limit: int) -> None:
    """Machines answer in any order, with any state, or not at all; the class changes in the middle."""
    users, now, generation = {f"m{n}": OLD for n in range(machines)}, NOW, 2
    for step in range(200):
        if step == 5:
            generation = 3
        told = to_tell(users, generation, limit, now)
        for name in told:
            users[name] = when_told(users[name], generation, SILENCE, now)
        working = [n for n, u in users.items() if at_work(u, now)]
        assert len(working) <= limit
        if all(u.settled and not behind(u, generation) for u in users.values()):
            return
        if working and (answer := data.draw(ANSWERS if step < 20 else st.just(UpdateState.UPDATED))) is not None:
            name = data.draw(st.sampled_from(working))
            user = users[name]
            has = user.told - 1 if answer == "older" else user.told
            state = UpdateState.UPDATED if answer == "older" else answer
            patience = user.patience if answer == "older" else now + SILENCE if state is UpdateState.UPDATING else None
            users[name] = user._replace(generation=has, state=state, patience=patience)
        now = now + timedelta(seconds=30)
        assert told or working or next_look(users, generation, now) or to_tell(users, generation, limit, now)
    pytest.fail("it did not end")
