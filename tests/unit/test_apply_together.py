"""Which owners take a class's new content together with a changed spec of their own, so that the class waits for
them (starter/sdk/apply/owners.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from machine.classes import snapshot

from resources.machine_class.state import ClassState, User
from resources.owner import CONTROL_PLANE, Owner
from starter.sdk.apply.classes import ClassPlan
from starter.sdk.apply.owners import after
from starter.sdk.apply.steps import ApplyStep, in_turn
from starter.sdk.results import Verb

POOL = Owner(name="p1")
SET = Owner(kind=CONTROL_PLANE.manifest, name=CONTROL_PLANE.only)


@dataclass(frozen=True)
class Plan:
    of: ClassPlan
    told: bool = True
    state: Any = "there"
    note: str = ""
    spec: Any = None
    manifest: Any = None


@dataclass(frozen=True)
class Zone:
    cluster: str
    first: str


def test_a_pool_is_applied_once_the_one_before_it_has_heard_of_its_change() -> None:
    """It asks that one how far it is (hostler.io/updates-after). Those that wait for each other have no order; a pool
    that is not applied with it, or is another cluster's, is not waited for."""
    zones = {"c": ("demo", "b"), "b": ("demo", "a"), "a": ("demo", ""), "d": ("demo", "gone"), "e": ("other", "a")}
    ring = {"x": ("demo", "y"), "y": ("demo", "x")}
    for given, turns in ((zones, [["a", "d", "e"], ["b"], ["c"]]), (ring, [["x", "y"]])):
        steps = [ApplyStep("pool", n, Verb.CONFIGURED, pool=Zone(*of)) for n, of in given.items()]  # type: ignore[arg-type]
        assert [sorted(step.name for step in turn) for turn in in_turn(steps)] == turns


def planned(generation: int, *users: Owner) -> ClassPlan:
    state = ClassState(name="c1", machine_class=snapshot(), users={user.user: User() for user in users})
    return ClassPlan("c1", "demo", Verb.CONFIGURED, snapshot(generation), state=state)


@pytest.mark.parametrize("owner", [POOL, SET], ids=str)
def test_an_owner_with_a_change_of_its_own_is_waited_for(owner: Owner) -> None:
    of = planned(2, owner)
    after(Plan(of), owner)
    assert of.after == [owner.user]


@pytest.mark.parametrize(
    ("generation", "users", "plan"),
    [
        pytest.param(1, [POOL], {}, id="the class stays as it is"),
        pytest.param(2, [POOL], {"told": False}, id="only its class changes: that tells it"),
        pytest.param(2, [POOL], {"state": None}, id="it is new"),
        pytest.param(2, [SET], {}, id="it has another class until now"),
    ],
)
def test_nobody_else_is(generation: int, users: list[Owner], plan: dict[str, Any]) -> None:
    of = planned(generation, *users)
    after(Plan(of, **plan), POOL)
    assert of.after == []
