"""I13 as a property: whatever a look shows too late, whichever write or answer is lost or delayed, never more nodes are
on their way than maxUnavailable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_configs.cases import NOW, config_node, config_pool

from planners.machine_config import nodes as of
from planners.machine_config.follow import follow
from planners.machine_config.pool import ObservedConfigPool, plan
from planners.machine_config.steps import GiveConfig
from planners.machine_config.view import view_of
from resources.machine_config.node import ConfigNode, DaemonState
from resources.machine_config.state import Reservation
from resources.machine_config.view import ConfigPoolView

PACE = timedelta(seconds=10)


@dataclass
class World:
    """A pool whose daemons do what they are told, at the times that the test says; its workflow looks by a cache that
    may be behind, but never goes back."""

    nodes: dict[str, ConfigNode]
    most: int
    target: str = "V1"
    reserve: bool = True
    past: list[tuple[str, dict[str, ConfigNode]]] = field(default_factory=list)
    seen: int = 0
    now: int = 0
    reservations: dict[str, Reservation] = field(default_factory=dict)
    late: list[Callable[[], None]] = field(default_factory=list)
    """Writes that are still on their way."""

    def __post_init__(self) -> None:
        self._keep()

    def _keep(self) -> None:
        self.past.append((self.target, dict(self.nodes)))

    @property
    def time(self) -> datetime:
        return NOW + self.now * PACE

    def view(self, behind: int) -> ConfigPoolView:
        self.seen = max(self.seen, len(self.past) - 1 - behind)
        target, nodes = self.past[self.seen]
        pool = config_pool(target=target, maxUnavailable=self.most)
        return view_of("worker", [pool], list(nodes.values()), keep=list(self.reservations))

    def turn(self, behind: int, fate: str) -> None:
        """The workflow looks, plans, and writes. `fate`: what becomes of the writes."""
        self.now += 1
        view = self.view(behind)
        found = follow(self.reservations, view, self.time)
        self.reservations = found.reservations if self.reserve else {}
        for step in plan(ObservedConfigPool(view, self.reservations), self.time).steps:
            if not isinstance(step, GiveConfig):
                continue
            for node in step.nodes:
                self.reservations[node.name] = Reservation(node.uid, step.config, self.time)
                self._write(node, step.config, fate)
        self._keep()

    def _write(self, seen: ConfigNode, config: str, fate: str) -> None:
        def land() -> None:
            node = self.nodes.get(seen.name)
            if node is not None and node.uid == seen.uid and node.desired in (seen.desired, config):
                self.nodes[seen.name] = node._replace(desired=config)

        if fate == "late":
            self.late.append(land)
        elif fate != "lost":
            land()  # also where the answer is lost: the workflow believes no answer

    def daemon(self, name: str, act: str) -> None:
        node = self.nodes.get(name)
        if node is None and act != "join":
            return
        if act == "join":
            self.nodes[name] = config_node(name, "V0=V0", uid=f"uid-{name}-{self.now}")
            self._keep()
            return
        assert node is not None
        if act == "begin" and node.desired != node.current and of.fit(node):
            node = node._replace(state=DaemonState.WORKING, unschedulable=True)
        elif act == "finish" and node.state is DaemonState.WORKING:
            node = node._replace(current=node.desired, state=DaemonState.DONE, unschedulable=False)
        elif act == "fail" and node.state is DaemonState.WORKING:
            node = node._replace(state=DaemonState.DEGRADED, unschedulable=False)
        elif act == "leave":
            del self.nodes[name]
            self._keep()
            return
        self.nodes[name] = node
        self._keep()

    @property
    def on_the_way(self) -> int:
        """Nodes that are, by our hand, not what they were: those that fail with what the pool wants among them."""
        return sum(
            n.desired != n.current and not (of.failing(n) and n.desired != self.target) for n in self.nodes.values()
        )


ACTS = st.one_of(
    st.tuples(st.just("turn"), st.integers(0, 4), st.sampled_from(["done", "lost", "late"])),
    st.tuples(st.just("daemon"), st.integers(0, 5), st.sampled_from(["begin", "finish", "fail", "leave", "join"])),
    st.tuples(st.just("late"), st.just(0), st.just("")),
)


def run(world: World, acts: list[tuple[str, int, str]]) -> int:
    """The most nodes that were on their way at a time."""
    worst = 0
    for what, number, how in acts:
        if what == "turn":
            world.turn(number, how)
        elif what == "daemon":
            world.daemon(f"n{number}", how)
        elif world.late:
            world.late.pop(0)()
            world._keep()
        worst = max(worst, world.on_the_way)
    return worst


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.lists(ACTS, max_size=60))
def test_never_more_than_max_unavailable(most: int, acts: list[tuple[str, int, str]]) -> None:
    nodes = {f"n{i}": config_node(f"n{i}", "V0=V0") for i in range(6)}
    assert run(World(nodes, most), acts) <= most


@pytest.mark.parametrize(("reserve", "worst"), [(True, 1), (False, 2)])
def test_without_reservations_it_would_not_hold(reserve: bool, worst: int) -> None:
    """A node joins that goes first, while the write to another one is on its way."""
    world = World({f"n{i}": config_node(f"n{i}", "V0=V0") for i in range(1, 6)}, 1, reserve=reserve)
    assert run(world, [("turn", 0, "late"), ("daemon", 0, "join"), ("turn", 0, "done"), ("late", 0, "")]) == worst


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.lists(ACTS, max_size=30), st.integers(0, 2))
def test_it_comes_to_its_end(most: int, acts: list[tuple[str, int, str]], behind: int) -> None:
    """Once daemons do what they are told and writes come through, every node gets the config."""
    world = World({f"n{i}": config_node(f"n{i}", "V0=V0") for i in range(6)}, most)
    run(world, acts)
    while world.late:
        world.late.pop()()
    for name, node in world.nodes.items():  # a person has repaired those that fail
        if node.state.failed:
            world.nodes[name] = node._replace(state=DaemonState.WORKING, unschedulable=True)
    for _ in range(30):
        for name in list(world.nodes):
            world.daemon(name, "begin")
            world.daemon(name, "finish")
        world.turn(behind, "done")
    assert {n.current for n in world.nodes.values()} <= {"V1"}
