"""The last look at a Node that was drained before, pass by pass: its pods were moved, volumes may still be there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from apiserver.simulated import NODES
from machine.drains import NODE, Drain, new_drain
from temporalio.testing import WorkflowEnvironment

from resources.calls.drain import DrainOutput
from resources.journal import Happening
from simulator.frame import FaultRule

STORY = [Happening(time=datetime(2031, 1, 1, tzinfo=UTC), reason="Terminating", message="a word")]


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    """A drain with a volume that is still attached, and a pod that uses it."""
    async with new_drain(temporal.client, tmp_path) as drain:
        await drain.claim("a")
        await drain.attach("a")
        await drain.stateful("db-a", "a")
        yield drain


async def cordoned(drain: Drain) -> int:
    """Whether the last call cordoned."""
    await drain.kube.patch(f"{NODES}/{NODE}", {"spec": {"unschedulable": True}})
    return drain.calls("*")[-1].n


def changes(drain: Drain, since: int) -> list[str]:
    return [c.operation for c in drain.world.frame.calls("kubernetes", "*", since) if c.mutating]


@pytest.mark.parametrize("force", [False, True])
async def test_of_a_node_that_has_been_uncordoned_nothing_is_changed(drain: Drain, force: bool) -> None:
    """Somebody has given it work: a drain of its own evicts that."""
    before = drain.calls("*")[-1].n
    assert await drain.once(again=True, force=force, story=STORY) == DrainOutput(uncordoned=True)
    assert changes(drain, before) == []


async def test_volumes_are_waited_for_and_pods_are_let_be(drain: Drain) -> None:
    before = await cordoned(drain)
    words = "0 of 0 pods gone; waiting for volume pv-a to detach (until "
    assert (await drain.waits(again=True)).startswith(words)
    drain.later(110)
    assert (await drain.waits(again=True)).startswith(words)
    drain.later(20)
    assert await drain.once(again=True) == DrainOutput(left=["volume pv-a still attached"])
    assert changes(drain, before) == []


async def test_when_nothing_is_attached_it_is_over_at_once(drain: Drain) -> None:
    await cordoned(drain)
    await drain.detach("a")
    assert await drain.once(again=True) == DrainOutput()


async def test_with_force_volumes_are_not_waited_for(drain: Drain) -> None:
    before = await cordoned(drain)
    assert await drain.once(again=True, force=True) == DrainOutput(left=["volume pv-a still attached"])
    assert changes(drain, before) == []


async def test_a_node_that_is_gone_needs_no_look(drain: Drain) -> None:
    await drain.kube.delete(f"{NODES}/{NODE}")
    assert await drain.once(again=True) == DrainOutput()


async def test_it_is_tried_five_times(drain: Drain) -> None:
    """The machine was drained: an API server that is out of reach does not keep its VM."""
    drain.world.frame.faults.append(FaultRule(operation="get nodes", code="InternalError", times=None))
    tries = [(await drain.fails(again=True)).non_retryable for _ in range(5)]
    assert tries == [False, False, False, False, True]
