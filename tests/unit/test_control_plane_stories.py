"""Whole updates of a control plane, step by step, in a world where things happen in any order: machines join, drains
end, Nodes reboot, a person deletes. The rules hold at every step, and the log of a rolling update is the same in every
order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from control_plane.cases import NOW, observed

from planners.control_plane.plan import plan
from planners.control_plane.status import complete
from planners.control_plane.view import Host, Observed
from planners.fleet.steps import Create, Delete, LiftHold, Step
from resources.control_plane.spec import UpdateStrategy
from resources.fleet.revision import Pace

ORDERS = 200
MOST_TURNS = 500
A_PERSON = {"NoReadyMachines", "BelowQuorum", "ExcessUpdatedReplicas", "DeleteToReplace"}


class World:
    """A control plane whose plans are carried out at once, and in which one thing happens after the other."""

    def __init__(self, replicas: int, strategy: UpdateStrategy, seed: int) -> None:
        hosts = tuple(
            Host(f"old-{index}", index, NOW - timedelta(days=1), outdated="machineType") for index in range(replicas)
        )
        self.now = Observed(replicas, strategy, hosts, pace=Pace(revision=1, window=100))
        self.chance = random.Random(seed)
        self.log: list[str] = []
        self.made = 0

    def hosts(self, which: Callable[[Host], bool]) -> list[Host]:
        return [h for h in self.now.hosts if which(h)]

    def become(self, name: str, **changes: object) -> None:
        changed = tuple(replace(h, **changes) if h.name == name else h for h in self.now.hosts)  # type: ignore[arg-type]
        self.now = replace(self.now, hosts=changed)

    def settle(self) -> None:
        """Plans and carries out until nothing is left to do."""
        for _ in range(20):
            steps = plan(self.now, NOW).steps
            if not steps:
                return
            for step in steps:
                self.carry_out(step)
        pytest.fail(f"plans without end: {self.log[-5:]}")

    def carry_out(self, step: Step) -> None:
        there = self.now
        match step:
            case Create(placement=place):
                assert place is not None
                assert place.index is not None
                self.made += 1
                born = NOW + timedelta(seconds=self.made)
                new = Host(f"new{self.made}-{place.index}", place.index, born, ready=False, joined=False)
                self.now = replace(there, hosts=(*there.hosts, new))
                if there.strategy is UpdateStrategy.ROLLING_UPDATE:
                    assert len(self.now.hosts) <= there.replicas + 1
                self.log.append(f"create {place.index}")
            case Delete(names=(name,)):
                assert not self.hosts(lambda h: h.leaving and not h.held), "one leaves at a time"
                self.become(name, leaving=True, held=True)
                self.log.append(f"delete {name}")
            case LiftHold(names=(name,)):
                gone = next(h for h in there.hosts if h.name == name)
                beside = [h for h in there.hosts if h.index == gone.index and h is not gone]
                if gone.joined:  # I14
                    serve = [h for h in beside if h.ready and (not h.leaving or (h.held and not gone.ready))]
                    assert serve, "the sole machine of an index stays"
                    assert not self.hosts(lambda h: h.leaving and not h.held and h.joined), "one is drained at a time"
                    assert not gone.ready or sum(h.ready for h in there.hosts) > there.quorum
                self.become(name, held=False)
                self.log.append(f"lift {name}")
            case _:
                pytest.fail(f"{step} is no step of a control plane")

    def happen(self, noise: bool) -> bool:
        """One thing happens; False where nothing can any more."""
        coming = self.hosts(lambda h: not h.joined and not h.leaving)
        going = self.hosts(lambda h: h.leaving and not h.held)
        asleep = self.hosts(lambda h: h.joined and not h.ready and not h.leaving)
        can = [*[("join", h) for h in coming], *[("go", h) for h in going], *[("wake", h) for h in asleep]]
        awake = self.hosts(lambda h: h.ready and not h.leaving)
        if noise and not asleep and awake and self.chance.random() < 0.2:
            can.append(("reboot", self.chance.choice(awake)))
        if not can:
            return False
        what, host = self.chance.choice(can)
        if what == "go":
            self.now = replace(self.now, hosts=tuple(h for h in self.now.hosts if h is not host))
        else:
            self.become(host.name, ready=what != "reboot", joined=True)
        return True

    def run(self, noise: bool = False) -> None:
        self.settle()
        for _ in range(MOST_TURNS):
            if not self.happen(noise):
                break
            self.settle()
        assert complete(self.now), self.now


def replaced(*indexes: int) -> list[str]:
    return [s for i in indexes for s in (f"create {i}", f"delete old-{i}", f"lift old-{i}")]


@pytest.mark.parametrize("replicas", [3, 5])
def test_a_rolling_update_is_the_same_in_every_order(replicas: int) -> None:
    for seed in range(ORDERS):
        world = World(replicas, UpdateStrategy.ROLLING_UPDATE, seed)
        world.run()
        assert world.log == replaced(*range(replicas)), seed


@pytest.mark.parametrize("replicas", [3, 5])
def test_an_update_while_machines_reboot(replicas: int) -> None:
    """Everything is replaced once, whatever sleeps meanwhile."""
    for seed in range(ORDERS):
        world = World(replicas, UpdateStrategy.ROLLING_UPDATE, seed)
        world.run(noise=True)
        assert sorted(world.log) == sorted(replaced(*range(replicas))), seed


def test_an_update_into_which_a_person_deletes() -> None:
    """What a person deletes is replaced next, and not once more by the update."""
    for seed in range(ORDERS):
        world = World(3, UpdateStrategy.ROLLING_UPDATE, seed)
        world.settle()
        for _ in range(world.chance.randrange(3)):
            world.happen(noise=False)
            world.settle()
        for host in world.chance.sample(world.hosts(lambda h: not h.leaving and h.joined), 2):
            world.become(host.name, leaving=True, held=True)
        world.run()
        assert {h.name[:3] for h in world.now.hosts} == {"new"}
        assert world.made in (3, 4, 5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_on_delete_replaces_all_that_are_deleted_at_once(count: int) -> None:
    for seed in range(ORDERS):
        world = World(3, UpdateStrategy.ON_DELETE, seed)
        for host in world.now.hosts:
            world.become(host.name, outdated="")
        gone = world.chance.sample(range(3), count)
        for index in gone:
            world.become(f"old-{index}", leaving=True, held=True)
        world.settle()
        assert world.log == [f"create {i}" for i in sorted(gone)]
        world.run()
        assert sorted(world.log[count:]) == [f"lift old-{i}" for i in sorted(gone)]


CELLS = (
    *("U", "U", "O", "O", "Un", "On", "Ud", "Od", "Und", "P", ""),
    *("O U", "O P", "Ud P", "Ud U", "On P", "U U", "O On", "O O", "Og U", "Ud Und"),
)


@pytest.mark.parametrize("strategy", list(UpdateStrategy))
def test_nothing_stands_still_for_ever(strategy: UpdateStrategy) -> None:
    """From any beginning it comes to its end, or says what a person has to do: what waits for each other would not."""
    for seed in range(4 * ORDERS):
        world = World(3, strategy, seed)
        cells = [world.chance.choice(CELLS) for _ in range(3)]
        there = observed(dict(enumerate(cells)), strategy=strategy)
        world.now = there
        world.settle()
        for _ in range(MOST_TURNS):
            if not world.happen(noise=False):
                break
            world.settle()
        waits = {w.reason for w in plan(world.now, NOW).waits}
        assert complete(world.now) or waits & A_PERSON, (seed, cells, world.log, waits)
