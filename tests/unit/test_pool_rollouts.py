"""Simulated rollouts: their golden logs in order and in one random order, and more orders of each: a few by default,
200 where what is exhaustive runs. Every plan is checked against I2, I3 and I4; a rollout that does not end fails.

`HOSTLER_GOLDEN=write pytest tests/unit/test_pool_rollouts.py` writes the logs again: read the difference before you
keep it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from paths import TESTS
from pools.planner import EPOCH, Act, Broken, World, run, spec

from planners.fleet.steps import Create, Delete
from resources.fleet.member import Permit, PreserveWish, Trouble, Vm
from resources.machine.state import Phase
from resources.pool.state import Gate

GOLDEN = TESTS / "testdata" / "rollouts"
ORDERS = [range(1, 21), pytest.param(range(21, 201), marks=pytest.mark.exhaustive)]
"""Seeds of random orders."""


def at_once(_: World) -> bool:
    return True


def new_available(count: int) -> Callable[[World], bool]:
    return lambda w: len(w.view.new.keys() & w.view.available) >= count and bool(w.view.old)


def settled(w: World) -> bool:
    """All are available and of the newest revision, and nothing is leaving."""
    wanted = w.view.limits.replicas
    return len(w.members) == wanted and len(w.view.new.keys() & w.view.available) == wanted


def held(reason: str) -> Callable[[World], bool]:
    return lambda w: any(reason in line for line in w._waits)


def preserved(count: int) -> Callable[[World], bool]:
    return lambda w: sum(m.preserved_until is not None for m in w.members.values()) == count


def undecided(name: str) -> Callable[[World], bool]:
    """It has said that it Failed, and that nobody has asked for it."""
    return lambda w: w.members[name].keep is PreserveWish.SLOT


ROLL: Act = ("roll", at_once, lambda w: w.image(2))


def scale(to: int, when: Callable[[World], bool]) -> Act:
    return ("scale", when, lambda w: w.change(f"scale to {to}", replicas=to))


def ill(name: str) -> Callable[[World], None]:
    def act(w: World) -> None:
        w.set(name, "is unhealthy", phase=Phase.UNKNOWN, since=w.now, trouble=Trouble.HEALTH, permit=Permit.ASKED)

    return act


@dataclass(frozen=True)
class Case:
    name: str
    world: Callable[[int | None], World]
    acts: list[Act] = field(default_factory=list)
    end: Callable[[World], bool] = settled
    made: int | None = None
    """VMs made in all, where chance does not matter."""
    lowest: int = 0
    """The fewest available machines at any time."""


def world(*args: object, **more: object) -> Callable[[int | None], World]:
    mine = ("bad_images", "never_join", "stuck", "no_capacity", "asked_for")
    settings = {k: more.pop(k) for k in mine if k in more}

    def make(seed: int | None) -> World:
        w = World(spec(*args, **more), seed, **settings)  # type: ignore[arg-type]
        w.fill()
        return w

    return make


def one_surged_then_bad(w: World) -> bool:
    """P65: the old ones stay; only the surge was lost."""
    old = [m for m in w.view.old.values() if m.phase is Phase.RUNNING]
    return len(old) == 10 and w.made == 12 and w.view.vms == 12 and not any(m.node_marked for m in old)


def gone_by_hand(w: World) -> None:
    for name in ("m01", "m03"):
        w.set(name, "is deleted by somebody", deleting=True)


def hibernate(w: World) -> None:
    w.change("hibernate", hibernated=True)


def wake(w: World) -> None:
    w.change("wake", hibernated=False)


def empty(w: World) -> bool:
    return not w.members


CASES = [
    Case("3 replicas, surge 1, unavailable 0", world(3, 1, 0), [ROLL], made=6, lowest=3),
    Case("3 replicas, surge 0, unavailable 1", world(3, 0, 1), [ROLL], made=6, lowest=2),
    Case("3 replicas, surge 0, unavailable 0 makes 1", world(3, 0, 0), [ROLL], made=6, lowest=2),
    Case("6 replicas, surge 3, unavailable 1", world(6, 3, 1), [ROLL], made=12, lowest=5),
    Case("1 replica, surge 1", world(1, 1, 0), [ROLL], made=2, lowest=1),
    Case("10 replicas, surge 20%, unavailable 10%", world(10, "20%", "10%"), [ROLL], made=20, lowest=9),
    Case("minReadySeconds", world(3, 1, 0, minReadySeconds=30), [ROLL], made=6),
    Case("scale out in a rollout", world(6, 2, 1), [ROLL, scale(12, new_available(2))], made=18),
    Case("scale in in a rollout", world(12, 3, 1), [ROLL, scale(6, new_available(3))]),
    Case("to zero in a rollout", world(6, 2, 1), [ROLL, scale(0, new_available(2))]),
    Case(
        "superseded in a rollout",
        world(6, 2, 1),
        [ROLL, ("supersede", new_available(2), lambda w: w.image(3))],
    ),
    Case("undone in a rollout", world(6, 2, 1), [ROLL, ("undo", new_available(2), lambda w: w.undo())]),
    Case(
        "canary",
        world(6, 2, 1, pauseAfter=1),
        [ROLL, ("resume", held("Canary"), lambda w: w.resume())],
        made=12,
    ),
    Case("canary of a fifth, surge 0", world(10, 0, 2, pauseAfter="20%"), [ROLL], end=lambda w: len(w.view.new) == 2),
    Case(
        "paused, scaled and resumed",
        world(6, 2, 0),
        [
            ROLL,
            ("pause", new_available(2), lambda w: w.gate(Gate.PAUSED)),
            scale(8, held("RolloutPaused")),
            ("resume", lambda w: len(w.view.available) == 8, lambda w: w.resume()),
        ],
    ),
    Case(
        "bad image, stopped at the deadline",
        world(10, 2, 0, progressDeadlineSeconds=600, bad_images={2}),
        [ROLL],
        end=one_surged_then_bad,
    ),
    Case(
        "bad image, undone",
        world(4, 2, 0, progressDeadlineSeconds=600, bad_images={2}),
        [ROLL, ("undo", held("ProgressDeadlineExceeded"), lambda w: w.undo())],
        made=6,
    ),
    Case(
        "one new machine never joins",
        world(4, 1, 0, progressDeadlineSeconds=600, never_join={"m06"}),
        [ROLL],
        made=9,
    ),
    Case("OnDelete", world(4), [ROLL, ("delete", at_once, gone_by_hand)], end=lambda w: len(w.view.new) == 2, made=6),
    Case(
        "hibernated and woken in a rollout",
        world(4, 1, 0),
        [ROLL, ("hibernate", new_available(1), hibernate), ("wake", empty, wake)],
    ),
    Case("an old one fails in a rollout", world(4, 1, 0), [ROLL, ("ill", new_available(1), ill("m04"))], made=8),
    Case("two fail at once", world(5, 1, 0), [("ill", at_once, ill("m02")), ("ill", at_once, ill("m04"))], made=7),
    Case(
        "repair with surge 0 and a VM stuck in shutting-down",
        world(3, 0, 1, stuck={"m02"}),
        [("ill", at_once, ill("m02"))],
        end=lambda w: len(w.view.available) == 3 and w.view.vms == 4,
        made=4,
    ),
    Case(
        "somebody deletes a VM",
        world(3, 1, 0),
        [("gone", at_once, lambda w: w.set("m02", "has no VM any more", vm=Vm.GONE, trouble=Trouble.GONE))],
        made=4,
    ),
    Case("from 0 to 20 to 5", world(0, 1, 0), [scale(20, at_once), scale(5, settled)], made=20),
    Case(
        "no capacity for a while",
        world(4, 2, 0, no_capacity=True),
        [
            ROLL,
            ("capacity", lambda w: (w.now - EPOCH).total_seconds() > 300, lambda w: setattr(w, "no_capacity", False)),
        ],
        made=8,
    ),
    Case(
        "two are preserved, and then rolled out",
        world(5, 1, 0, autoPreserveFailedMax=1, asked_for={"m02"}),
        [("ill", at_once, ill("m01")), ("ill", at_once, ill("m02")), ("roll", preserved(2), lambda w: w.image(2))],
        made=10,
        lowest=3,
    ),
    Case(
        "two in slots, one of them taken back",
        world(4, 1, 0, autoPreserveFailedMax=2),
        [("ill", at_once, ill("m01")), ("ill", at_once, ill("m02")), ("lower", preserved(2), lambda w: w.lower(1))],
        end=lambda w: len(w.view.available) == 3 and w.members["m02"].stays,
        made=5,
        lowest=2,
    ),
    Case(
        "asked for when it is to be deleted",
        world(3, 1, 0),
        [("ill", at_once, ill("m02")), ("asked", undecided("m02"), lambda w: w.asked_for.add("m02"))],
        end=lambda w: len(w.view.available) == 2 and w.members["m02"].stays,
        made=4,
        lowest=2,
    ),
]  # fmt: skip


def play(case: Case, seed: int | None) -> World:
    made = case.world(seed)
    if case.name == "OnDelete":
        made.spec = made.spec.model_validate({**made.spec.model_dump(by_alias=True), "strategy": {"type": "OnDelete"}})
    run(made, case.acts)
    made.must(case.end(made), "it ended in another way than it should")
    made.must(case.made in (None, made.made), f"{made.made} machines were made instead of {case.made}")
    made.must(made.lowest >= case.lowest, f"only {made.lowest} were available at a time")
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("seed", [None, 0])
def test_the_story_is_the_golden_one(case: Case, seed: int | None) -> None:
    slug = "-".join("".join(c if c.isalnum() else " " for c in case.name.lower()).split())
    file = GOLDEN / f"{slug}{'' if seed is None else f'.random-{seed}'}.golden"
    story = "\n".join(line.rstrip() for line in play(case, seed).log) + "\n"
    if os.environ.get("HOSTLER_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(story)
    assert story == file.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("seeds", ORDERS, ids=["some", "all"])
def test_in_every_order(case: Case, seeds: range) -> None:
    for seed in seeds:
        play(case, seed)


def some_machine(w: World) -> str | None:
    running = sorted(n for n, m in w.members.items() if m.phase is Phase.RUNNING and not m.leaving)
    return w.chance.choice(running) if running else None


def mishap(w: World) -> None:
    """What people and clouds do to a pool."""
    name = some_machine(w)
    match w.chance.randrange(12):
        case 0:
            w.change("scale", replicas=w.chance.randint(0, 9))
        case 1:
            w.image(w.chance.randint(1, 5))
        case 2 if len(w.revisions) > 1:
            w.undo()
        case 3 if name:
            ill(name)(w)
        case 4 if name:
            w.set(name, "has no VM any more", vm=Vm.GONE, trouble=Trouble.GONE)
        case 5 if name:
            w.set(name, "is marked for deletion", marked=w.now)
        case 6 if name:
            w.set(name, "is deleted by somebody", deleting=True)
        case 7:
            w.change("pause or not", paused=w.chance.random() < 0.5)
        case 8 if w.rollout:
            w.gate(w.chance.choice(list(Gate)))
        case 9:
            w.lower(w.chance.randint(0, 3))
        case 10 if name:
            w.asked_for.add(name)
        case 11:
            w.expired.update(sorted(n for n, m in w.members.items() if m.preserved_until)[:1])


def calm(w: World) -> None:
    """Everybody leaves it alone, the image is good, and ill machines get well, so that no storm is left."""
    w.change("calm", paused=False)
    w.image(6)
    for name in [n for n, m in w.members.items() if m.phase is Phase.UNKNOWN and m.permit is Permit.ASKED]:
        w.set(name, "is well", phase=Phase.RUNNING, since=w.now, trouble=Trouble.NONE, permit=Permit.NONE)
    if w.rollout:
        w.resume()


@pytest.mark.parametrize("seeds", ORDERS, ids=["some", "all"])
def test_whatever_happens_it_comes_to_rest_as_it_should(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        amounts = chance.choice([(1, 0), (0, 1), (2, 1), ("50%", "20%"), (0, 0)])
        w = World(spec(chance.randint(0, 9), *amounts), seed, bad_images={4})
        w.fill()
        for _ in range(40):
            if w.chance.random() < 0.3:
                mishap(w)
            w.turn()
        run(w, [("calm", at_once, calm)])
        w.must(settled(w), "it came to rest in another way than it should")


def delete_one_more(w: World, step: object) -> None:
    if isinstance(step, Delete):
        w.set(min(w.view.available), deleting=True)


def make_one_more(w: World, step: object) -> None:
    if isinstance(step, Create):
        w.carry_out(Create(1, w.revision, "", ""))


@pytest.mark.parametrize(
    ("sabotage", "words"),
    [(delete_one_more, "seed 7: I3: 2 available < 3"), (make_one_more, "seed 7: I2: 5 VMs > 4")],
)
def test_a_pool_that_does_wrong_is_seen(sabotage: Callable[[World, object], None], words: str) -> None:
    class Wrong(World):
        def carry_out(self, step: object) -> None:
            super().carry_out(step)
            if getattr(step, "message", ""):
                sabotage(self, step)

    def make(seed: int | None) -> World:
        w = Wrong(spec(3, 1, 0), seed)
        w.fill()
        return w

    with pytest.raises(Broken, match=words):
        play(Case("wrong", make, [ROLL]), 7)
