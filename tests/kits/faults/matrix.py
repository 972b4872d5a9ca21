"""Every activity boundary of a flow, under every kind of fault, many cases side by side.

CI runs a covering subset: at every boundary of a whole life a crash and an error; for the other flows of a machine's
beginning every boundary and every kind at least once; for the flows of its later life, and of a pool, the boundaries
that they are about. The kinds are taken in turn, and a life meets a few of these faults, far from each other. One
saboteur for each invariant is seen. `make faults` runs all, each fault in a life of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

from lifekit import Stack, new_stack, tenant
from temporalio.client import Client

from faults.calls import CALL_KINDS, CallFault, struck
from faults.flow import Flow
from faults.strike import CRASHES, ERRORS, KINDS, Boundary, Fault, Recorder, faulty_worker

T = TypeVar("T")
F = TypeVar("F", Fault, CallFault)
AT_ONCE = 5  # cases side by side, each with a worker process of its own; they wait more than they work
EVERYTHING = os.environ.get("HOSTLER_FAULTS") == "all"
A_LIFE_MEETS = 5
"""Faults at most that a life of the covering subset meets."""
LIVES = 3
"""In how many lives a fault must strike at last: where a worker dies, a life may be over before the workflow beside it
has made the call."""
FLOWS_AT_ONCE = 1 if EVERYTHING else 3  # of all cases, each flow has enough to take all places


async def side_by_side(
    shared: Stack, lives: Mapping[str, Callable[[Stack], Awaitable[T]]], slots: asyncio.Semaphore | None = None
) -> dict[str, T | BaseException]:
    """Runs each with a cluster name and task queues of its own; returns answers or errors by the cases' names. `slots`:
    places that others take too."""
    slots = slots or asyncio.Semaphore(AT_ONCE)

    async def one(life: Callable[[Stack], Awaitable[T]]) -> T:
        async with slots, tenant(shared, new_cluster()) as stack:
            return await life(stack)

    ended = await asyncio.gather(*map(one, lives.values()), return_exceptions=True)
    return dict(zip(lives, ended, strict=True))


async def in_company(
    shared: Stack, lives: Mapping[str, Callable[[Stack], Awaitable[T]]], flows: Mapping[str, Flow]
) -> dict[str, T | BaseException]:
    """Runs each side by side with the others; one whose flow is to be alone has a simulator of its own, in which no
    other leaves anything behind. `flows`: by the lives' names."""
    ended = await side_by_side(shared, {name: life for name, life in lives.items() if not flows[name].alone})
    for name in (name for name in lives if flows[name].alone):
        async with new_stack(shared.client, home=shared.home) as own:
            ended |= await side_by_side(own, {name: lives[name]})
    return ended


def new_cluster() -> str:
    return f"c{uuid.uuid4().hex[:6]}"


def to_find(flows: Mapping[str, Flow]) -> dict[str, Flow]:
    """The flows whose boundaries must be found by running them. For the others the covering subset strikes what they
    are about; a wrong boundary there is noticed, as it is never struck."""
    return {name: flow for name, flow in flows.items() if EVERYTHING or flow.about is None}


async def boundaries_of(client: Client, flows: Mapping[str, Flow]) -> dict[str, list[Boundary]]:
    """The activities that each flow calls, in order, found by running it once undisturbed."""

    async def one(stack: Stack, flow: Flow) -> list[Boundary]:
        # An attempt that times out on a busy machine could cost one more call where something is told twice.
        _patient(stack, 5)
        async with flow.around(stack):
            recorder = Recorder(stack.settings_file)
            async with stack.worker([recorder]):
                await flow(stack)
        return recorder.found

    found: dict[str, list[Boundary] | BaseException] = {}
    for home in sorted({flow.home for flow in flows.values()}):
        async with new_stack(client, home=home) as shared:
            there = {name: partial(one, flow=flow) for name, flow in flows.items() if flow.home == home}
            found |= await in_company(shared, there, flows)
    wrong = {name: answer for name, answer in found.items() if isinstance(answer, BaseException)}
    assert not wrong, f"undisturbed: {wrong}"
    return {name: answer for name, answer in found.items() if not isinstance(answer, BaseException)}


def _patient(stack: Stack, seconds: float) -> None:
    """Gives more time to attempts that send no heartbeat: of a killed worker, or on a busy machine."""
    timings = stack.settings.timings.model_copy(update={"heartbeat": timedelta(seconds=seconds)})
    stack.settings = stack.settings.model_copy(update={"timings": timings})


async def calls_of(client: Client, flow: Flow) -> Counter[str]:
    """The calls that a flow makes to its cloud, by operation, found by running it once undisturbed."""
    async with new_stack(client, home=flow.home) as alone, tenant(alone, new_cluster()) as stack:
        _patient(stack, 5)
        with struck(stack, (), lambda: None) as calls:
            await undisturbed(stack, flow)
        return calls.seen


def call_cases(flow: Flow, found: Mapping[str, int]) -> list[tuple[CallFault, ...]]:
    """The cases of a flow in which calls are struck; `found`: how often it makes each, where every one is."""
    if EVERYTHING:
        return [(CallFault(o, kind, n),) for o in sorted(found) for n in range(1, found[o] + 1) for kind in CALL_KINDS]
    return spread([CallFault(o, CALL_KINDS[i % len(CALL_KINDS)]) for i, o in enumerate(flow.calls)])


def cases(flows: Mapping[str, Flow], name: str, found: Sequence[Boundary]) -> list[tuple[Fault, ...]]:
    """The cases of a flow: the faults that one run of it meets. `found`: all its boundaries, where they are needed
    (`to_find`)."""
    if EVERYTHING:
        return [(Fault(a, k, n),) for a, n in found for k in KINDS]
    if name == "whole life":
        crashes = [Fault(a, CRASHES[(i + 1) % len(CRASHES)], n) for i, (a, n) in enumerate(found)]
        errors = [Fault(a, list(ERRORS)[i % len(ERRORS)], n) for i, (a, n) in enumerate(found)]
        return spread(crashes) + spread(errors)
    about = flows[name].about
    chosen, rows = (found, max(len(found), len(KINDS))) if about is None else (about, len(about))
    turn = 3 * list(flows).index(name)  # so that flows with few boundaries do not begin with the same kind
    # Boundary by boundary: where there are fewer than kinds, no run meets two faults at one of them.
    places = [chosen[i] for i in sorted(row % len(chosen) for row in range(rows))]
    return spread([Fault(a, KINDS[(turn + i) % len(KINDS)], n) for i, (a, n) in enumerate(places)])


def spread(faults: Sequence[F]) -> list[tuple[F, ...]]:
    """Runs of a flow that meet these faults, which are in the order of their boundaries: a deadline that is late by one
    must not be later by the next."""
    runs = -(-len(faults) // A_LIFE_MEETS)
    return [tuple(faults[i::runs]) for i in range(runs)]


async def case(stack: Stack, flow: Flow, faults: Sequence[Fault], lives: int = LIVES) -> float:
    """Runs one case; returns the seconds that it took. What has not struck strikes in another life."""
    began = time.monotonic()
    async with flow.around(stack), faulty_worker(stack, *faults) as (all_faults, _):
        await flow(stack)
        left = all_faults.left()
    assert not left or lives > 1, f"{' and '.join(map(str, left))} never struck"
    if left:
        async with tenant(stack, new_cluster()) as another:
            await case(another, flow, left, lives - 1)
    return time.monotonic() - began


async def call_case(near: Stack, flow: Flow, faults: Sequence[CallFault]) -> float:
    """The same for calls, on a simulator of its own."""
    began = time.monotonic()
    async with (
        new_stack(near.client, home=flow.home) as alone,
        tenant(alone, near.cluster) as stack,
        faulty_worker(stack) as (_, kill),
    ):
        with struck(stack, faults, kill) as calls:
            await flow(stack)
        assert not calls.left(), f"{' and '.join(map(str, calls.left()))} never struck"
    return time.monotonic() - began


Ended = dict[str, float | BaseException]
"""For each case, the seconds that it took, or its error."""


class Strikes:
    """Runs flows under the faults that are their parts. The next ones begin before a flow has ended: most have too few
    cases to take all places."""

    def __init__(
        self, client: Client, flows: Mapping[str, Flow], names: Sequence[str], found: Mapping[str, Sequence[Boundary]]
    ) -> None:
        self.client, self.flows, self.names, self.found = client, flows, names, found
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._begun: dict[str, asyncio.Task[Ended]] = {}

    async def of(self, name: str) -> Ended:
        at = self.names.index(name)
        for near in self.names[at : at + FLOWS_AT_ONCE]:
            if near not in self._begun:
                self._begun[near] = asyncio.create_task(self._strike(near))
        return await self._begun[name]

    async def _strike(self, name: str) -> Ended:
        flow, found = self.flows[name], self.found.get(name, ())
        made = cases(self.flows, name, found)
        lives = {", ".join(map(str, faults)): partial(case, flow=flow, faults=faults) for faults in made}
        calls = await calls_of(self.client, flow) if EVERYTHING and flow.calls else {}
        for faults in call_cases(flow, calls):
            lives[", ".join(map(str, faults))] = partial(call_case, flow=flow, faults=faults)
        async with new_stack(self.client, home=flow.home) as shared:
            slots = asyncio.Semaphore(1) if flow.alone else self._slots
            return await side_by_side(shared, lives, slots)

    async def stop(self) -> None:
        for task in self._begun.values():
            task.cancel()
        await asyncio.gather(*self._begun.values(), return_exceptions=True)


def check_struck(name: str, ended: Ended) -> None:
    for faults, answer in ended.items():
        print(f"{name:28} {faults:72} {f'{answer:5.1f} s' if isinstance(answer, float) else answer!r}")
    wrong = {faults: answer for faults, answer in ended.items() if isinstance(answer, BaseException)}
    assert not wrong, f"{name}: {wrong}"


def check_subset(flows: Mapping[str, Flow]) -> None:
    """The covering subset has every boundary and call that it should have, and every kind."""
    later: list[Fault] = []
    for name, made in flows.items():
        found = made.about or [(a, n) for a in "abcdefghi" for n in (1, 2)]
        chosen = [fault for faults in cases(flows, name, () if made.about else found) for fault in faults]
        assert {(f.activity, f.call) for f in chosen} == set(found)
        if made.about is None:
            assert {f.kind for f in chosen} == set(KINDS)
        else:
            later += chosen
        of_calls = [fault for faults in call_cases(flows[name], {}) for fault in faults]
        assert {f.operation for f in of_calls} == set(made.calls)
        assert not made.calls or {f.kind for f in of_calls} == set(CALL_KINDS)
    assert not later or {f.kind for f in later} == set(KINDS)


async def with_lag(shared: Stack, flows: Mapping[str, Flow]) -> None:
    """The cloud with lag: new instances and their tags are unknown to reads for a while, though they exist."""
    frame = shared.simulator.simulator.frame
    lag = frame.lag.model_copy(update={"describe_after_create": 1.0, "tags": 1.0})
    shared.simulator.call(lambda: setattr(frame, "lag", lag))
    lives = {name: partial(undisturbed, flow=flow) for name, flow in flows.items()}
    ended = await in_company(shared, lives, flows)
    for name, error in ended.items():
        print(f"{name:28} {error or 'ok'}")
    wrong = {name: error for name, error in ended.items() if error}
    assert not wrong, f"with lag: {wrong}"


async def undisturbed(stack: Stack, flow: Flow) -> None:
    async with flow.around(stack), stack.worker():
        await flow(stack)


class Sabotage(NamedTuple):
    """A saboteur, the flow whose checks must see it, and what happens besides."""

    name: str
    flow: str
    fault: Fault
    words: str
    """How the error of the check begins that must see it."""


SABOTAGE = [
    # Those that take longest come first.
    Sabotage("I5 look", "recovery unheard", Fault("look_at_vm", "transient"), "I5:"),
    Sabotage("I5 gone", "not found lies", Fault("look_at_vm", "killed before"), "I5:"),
    Sabotage("I7", "never joins", Fault("watch_machine", "killed before"), "I7:"),
    Sabotage("I4", "pool repaired", Fault("tell_members", "killed before"), "I4:"),
    Sabotage("I15", "pool whose vms die", Fault("start_machines", "killed before"), "I15:"),
    Sabotage("I13", "machine configs rolled out", Fault("sync_configs", "killed before"), "I13:"),
    Sabotage("I14", "control plane of deleted machines", Fault("find_members", "killed before"), "I14:"),
    Sabotage("I14 etcd", "control plane and its etcd", Fault("look_at_etcd", "killed before"), "I14:"),
    Sabotage("I17", "hostile input", Fault("drain_node", "killed before"), "I17:"),
    Sabotage("I1", "whole life", Fault("create_machine", "killed after"), "I1:"),
    Sabotage("I1 recreate", "recreate", Fault("drain_node", "killed before"), "I1:"),
    Sabotage("I1 adopt", "adopt", Fault("list_vms", "killed before"), "I1:"),
    Sabotage("I1 reset", "reset", Fault("remove_ready_taint", "killed before"), "I1:"),
    Sabotage("I5 timer", "health failure", Fault("tell_node", "killed before"), "I5:"),
    Sabotage("I5 account", "another account", Fault("delete_machine", "killed before"), "I5:"),
    Sabotage("I6", "whole life", Fault("delete_machine", "killed before"), "I6:"),
    Sabotage("I8", "hot update", Fault("update_machine", "killed before"), "I8:"),
    Sabotage("I8 must", "hot update", Fault("update_machine", "killed before"), "I8:"),
    Sabotage("I9", "preserved when it failed", Fault("preserve_node", "killed before"), "I9:"),
    Sabotage("I10", "whole life", Fault("drain_node", "killed before"), "I10:"),
    Sabotage("I10 template", "changed template", Fault("join_node", "killed before"), "I10:"),
    Sabotage("I11", "delete during create", Fault("create_machine", "transient"), "I11:"),
    Sabotage("I12", "delete in unknown", Fault("drain_node", "killed before"), "I12:"),
    Sabotage("I2", "pool rolled out", Fault("start_rollout", "killed before"), "I2:"),
    Sabotage("I3", "pool rolled out", Fault("start_rollout", "killed before"), "I3:"),
    Sabotage("I16", "hostile input", Fault("drain_node", "killed before"), "I16:"),
    Sabotage("marks", "rollout undone", Fault("start_rollout", "killed before"), "marks:"),
    Sabotage("drained once", "health failure", Fault("drain_node", "killed before"), "once:"),
]


def sabotage_at(home: str) -> list[Sabotage]:
    """The same at another cloud, for the invariants that ask it. At Google Cloud a second VM cannot have the name."""
    life = f"life on {home}"
    rows = [
        Sabotage("I6", life, Fault("delete_machine", "killed before"), "I6:"),
        Sabotage("I8", life, Fault("update_machine", "killed before", 2), "I8:"),
    ]
    return rows if home == "gcp" else [*rows, Sabotage("I1", life, Fault("create_machine", "killed after"), "I1:")]


VARIATIONS = (
    "I1 recreate",
    "I1 adopt",
    "I1 reset",
    "I5 look",
    "I5 gone",
    "I5 timer",
    "I5 account",
    "I8 must",
    "I10 template",
    "I14 etcd",
)
"""Further saboteurs of an invariant that has one: `make faults` runs them. I5 has one that runs alone."""


async def sabotaged(stack: Stack, flow: Flow, fault: Fault, sabotage: str) -> str:
    """What the checks said."""
    _patient(stack, 5)  # an attempt that is given up before it does harm is no sabotage
    try:
        async with flow.around(stack), faulty_worker(stack, fault, sabotage=sabotage):
            await flow(stack)
    except AssertionError as e:
        return str(e)
    return "nothing"


async def check_saboteurs(shared: Stack, flows: Mapping[str, Flow], all_rows: Sequence[Sabotage] = SABOTAGE) -> None:
    """Each is seen by the invariant that it breaks."""
    rows = [row for row in all_rows if row.flow in flows and (EVERYTHING or row.name not in VARIATIONS)]
    played = {row.name: partial(sabotaged, flow=flows[row.flow], fault=row.fault, sabotage=row.name) for row in rows}
    said = await in_company(shared, played, {row.name: flows[row.flow] for row in rows})
    for name, words in said.items():
        print(f"saboteur {name:14} made a check say: {words!r:.160}")
    unseen = {row.name: said[row.name] for row in rows if not str(said[row.name]).startswith(row.words)}
    assert not unseen, f"not seen by the invariant that they break: {unseen}"
