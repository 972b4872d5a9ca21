"""Every activity boundary of every flow, under every kind of fault, with every invariant asked for.

`make test` runs a covering subset: every crash at every boundary of a whole life; of the flows of a machine's beginning
every boundary and every kind at least once; of the flows of its later life the boundaries that they are about, with
the kinds taken in turn. `make faults` runs all.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import pytest
from faultkit import CRASHES, KINDS, Boundary, Fault, Recorder, faulty_worker
from flows import FLOWS
from lifekit import Stack, new_stack, tenant
from saboteurs import SABOTEURS
from temporalio.testing import WorkflowEnvironment

from simulator.frame import FaultRule

T = TypeVar("T")
AT_ONCE = 5  # cases side by side, each with a worker process of its own; they wait more than they work
EVERYTHING = os.environ.get("HOSTLER_FAULTS") == "all"


@pytest.fixture
async def shared(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


@pytest.fixture(scope="module")
async def boundaries(temporal: WorkflowEnvironment) -> dict[str, list[Boundary]]:
    """The activities that each flow calls, in order, found by running it once undisturbed."""

    async def one(stack: Stack, flow: str) -> list[Boundary]:
        recorder = Recorder(stack.settings_file)
        async with stack.worker([recorder]):
            await FLOWS[flow](stack)
        return recorder.found

    async with new_stack(temporal.client) as shared:
        found = await side_by_side(shared, {flow: partial(one, flow=flow) for flow in FLOWS})
    wrong = {flow: answer for flow, answer in found.items() if isinstance(answer, BaseException)}
    assert not wrong, f"undisturbed: {wrong}"
    return {flow: answer for flow, answer in found.items() if not isinstance(answer, BaseException)}


async def side_by_side(
    shared: Stack, deeds: Mapping[str, Callable[[Stack], Awaitable[T]]]
) -> dict[str, T | BaseException]:
    """Each with a cluster name and task queues of its own; answers or errors by the deeds' names."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(deed: Callable[[Stack], Awaitable[T]]) -> T:
        async with slots, tenant(shared, new_cluster()) as stack:
            return await deed(stack)

    ended = await asyncio.gather(*map(one, deeds.values()), return_exceptions=True)
    return dict(zip(deeds, ended, strict=True))


def new_cluster() -> str:
    return f"c{uuid.uuid4().hex[:6]}"


def cases(flow: str, found: list[Boundary]) -> list[Fault]:
    if EVERYTHING:
        return [Fault(a, k, n) for a, n in found for k in KINDS]
    if flow == "whole life":
        diagonal = [Fault(a, KINDS[3 + i % 4], n) for i, (a, n) in enumerate(found)]
        return [Fault(a, k, n) for a, n in found for k in CRASHES] + diagonal
    about = FLOWS[flow].about
    if about is None:
        chosen, rows = found, max(len(found), len(KINDS))
    else:
        chosen = [(a, n) for a, n in found if a in about]
        assert {a for a, _ in chosen} == about, f"{flow} is about {sorted(about)}, and called {found}"
        rows = len(chosen)
    turn = 3 * list(FLOWS).index(flow)  # so that flows with few boundaries do not begin with the same kind
    places = [chosen[i % len(chosen)] for i in range(rows)]
    return [Fault(a, KINDS[(turn + i) % len(KINDS)], n) for i, (a, n) in enumerate(places)]


async def case(stack: Stack, flow: str, fault: Fault) -> float:
    """Seconds that it took."""
    began = time.monotonic()
    async with faulty_worker(stack, fault) as marker:
        await FLOWS[flow](stack)
        assert marker.exists(), f"{fault} never struck"
    return time.monotonic() - began


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(shared: Stack, boundaries: dict[str, list[Boundary]], flow: str) -> None:
    found = boundaries[flow]
    began = time.monotonic()
    ended = await side_by_side(shared, {str(f): partial(case, flow=flow, fault=f) for f in cases(flow, found)})
    for fault, answer in ended.items():
        print(f"{flow:20} {fault:36} {f'{answer:5.1f} s' if isinstance(answer, float) else answer!r}")
    print(f"{flow}: {len(ended)} cases of {len(found)} boundaries in {time.monotonic() - began:.0f} s")
    assert not {fault: answer for fault, answer in ended.items() if isinstance(answer, BaseException)}


def test_a_subset_covers_every_boundary_and_every_kind() -> None:
    if EVERYTHING:
        return
    later: list[Fault] = []
    for flow, made in FLOWS.items():
        found = [(a, n) for a in sorted(made.about or "abcdefghi") for n in (1, 2)]
        chosen = cases(flow, [*found, *([("of others", 1)] if made.about else [])])
        assert {(f.activity, f.call) for f in chosen} == set(found)
        if made.about is None:
            assert {f.kind for f in chosen} == set(KINDS)
        else:
            later += chosen
    assert {f.kind for f in later} == set(KINDS)


async def test_reads_that_lag_behind(shared: Stack) -> None:
    """Not found though it exists: new instances and their tags are unknown to reads for a while."""
    frame = shared.simulator.simulator.frame
    lag = frame.lag.model_copy(update={"describe_after_create": 1.0, "tags": 1.0})
    shared.simulator.call(lambda: setattr(frame, "lag", lag))
    ended = await side_by_side(shared, {flow: partial(undisturbed, flow=flow) for flow in FLOWS})
    for flow, error in ended.items():
        print(f"{flow:20} {error or 'ok'}")
    assert not {flow: error for flow, error in ended.items() if error}


async def undisturbed(stack: Stack, flow: str) -> None:
    async with stack.worker():
        await FLOWS[flow](stack)


class Sabotage(NamedTuple):
    name: str
    flow: str
    fault: Fault
    """What happens besides."""
    words: str
    """How the check begins that must see it."""


SABOTAGE = [
    Sabotage("I1", "whole life", Fault("create_machine", "killed after"), "I1:"),
    Sabotage("I1 recreate", "recreate", Fault("drain_node", "killed before"), "I1:"),
    Sabotage("I1 adopt", "adopt", Fault("list_vms", "killed before"), "I1:"),
    Sabotage("I5 timer", "health failure", Fault("tell_node", "killed before"), "I5:"),
    Sabotage("I5 look", "recovery unheard", Fault("look_at_vm", "killed before"), "I5:"),
    Sabotage("I6", "whole life", Fault("delete_machine", "killed before"), "I6:"),
    Sabotage("I7", "never joins", Fault("watch_machine", "killed before"), "I7:"),
    Sabotage("I8", "whole life", Fault("update_machine", "killed before"), "I8:"),
    Sabotage("I10", "whole life", Fault("drain_node", "killed before"), "I10:"),
    Sabotage("I10 template", "changed template", Fault("join_node", "killed before"), "I10:"),
    Sabotage("I11", "delete during create", Fault("create_machine", "transient"), "I11:"),
    Sabotage("I12", "delete in unknown", Fault("drain_node", "killed before"), "I12:"),
    Sabotage("drained once", "health failure", Fault("drain_node", "killed before"), "once:"),
]


async def sabotaged(stack: Stack, sabotage: str, flow: str, fault: Fault) -> str:
    """What the checks said."""
    try:
        async with faulty_worker(stack, fault, sabotage):
            await FLOWS[flow](stack)
    except AssertionError as e:
        return str(e)
    return "nothing"


async def test_each_invariant_sees_its_saboteurs(shared: Stack) -> None:
    assert {row.name for row in SABOTAGE} | {"I5"} == set(SABOTEURS)
    said = await side_by_side(
        shared, {row.name: partial(sabotaged, sabotage=row.name, flow=row.flow, fault=row.fault) for row in SABOTAGE}
    )
    for name, words in said.items():
        print(f"{name:14} {words!r:.160}")
    assert not {row.name: said[row.name] for row in SABOTAGE if not str(said[row.name]).startswith(row.words)}


async def test_i5_sees_a_look_that_takes_an_error_for_death(shared: Stack) -> None:
    """Alone: the read that fails while the VM is well must be this machine's."""
    rule = FaultRule(service="ec2", operation="DescribeInstances", code="Unavailable", match="InstanceIds")
    shared.simulator.call(lambda: shared.simulator.simulator.frame.faults.append(rule))
    said = await sabotaged(shared, "I5", "whole life", Fault("watch_machine", "killed before"))
    assert said.startswith("I5:")
