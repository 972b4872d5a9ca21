"""Hot updates that are overtaken by another change, by the machine's end, or by their worker's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lifekit import Stack, eventually, new_stack
from machine.hot_updates import COST_A, COST_B, MUST, A, B, Hot, gate, instance_id, reasons
from machine.lives import fault
from paths import ROOT
from temporalio.testing import WorkflowEnvironment

from resources.timings import Timings


@pytest.fixture
def hot(stack: Stack) -> Hot:
    return Hot(stack)


@pytest.mark.parametrize(
    ("newest", "tags", "calls"),
    [
        pytest.param({"tags": {**MUST, "cost": "c"}}, {"cost": "c"}, ["CreateTags"], id="changed again"),
        pytest.param(COST_A, A, ["CreateTags"], id="set back"),
        pytest.param({"tags": {**MUST, "cost": "b"}, "keyName": "other"}, B, [], id="rolls besides"),
    ],
)
async def test_the_class_changes_while_it_is_being_applied(
    stack: Stack,
    hot: Hot,
    monkeypatch: pytest.MonkeyPatch,
    newest: dict[str, Any],
    tags: dict[str, str],
    calls: list[str],
) -> None:
    """The newest wins, and nothing is applied twice."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    since = hot.mark()
    with gate(monkeypatch, "CreateTags") as held:
        await hot.apply(**COST_B)
        await held.held()
        await hot.apply(**newest)
        held.open()
        known = await hot.done()
    assert hot.each(machine) == [tags] * 3
    assert hot.changing(since) == ["DeleteTags", "CreateTags", *calls]
    assert (known.generation, known.last_updated_generation) == (3, 3)
    assert stack.launched() == [instance_id(machine)]


async def test_another_class_is_taken_while_one_is_being_applied(
    stack: Stack, hot: Hot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class that it has left no longer counts it, and that one's generation is not taken for the other's."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    await hot.everywhere(tags={**MUST, **A, "more": "1"})
    metadata = hot.manifest.metadata.model_copy(update={"name": "other"})
    other = Hot(stack, manifest=hot.changed(**COST_B).model_copy(update={"metadata": metadata}))
    await other.apply()
    with gate(monkeypatch, "CreateTags") as held:
        await hot.apply(**COST_B)
        await held.held()
        await hot.client.update_class("m-1", "other")
        held.open()
        known = await eventually(other.of_class, lambda s: s.users and s.updated, "the other class on the machine")
    assert hot.each(machine) == [B] * 3
    assert (known.users["m-1"].applied, known.last_updated_generation) == (1, 1)
    await eventually(hot.of_class, lambda s: not s.users, "the machine forgotten")
    assert (await hot.client.classes.delete(hot.manifest.metadata.name)).message.endswith("is gone")


async def test_deleted_while_it_is_being_applied(stack: Stack, hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion waits for nothing; the call under way no longer finds anything, and does no harm."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    with gate(monkeypatch, "CreateTags") as held:
        await hot.apply(**COST_B)
        await held.held()
        result = await stack.delete()
        since = hot.mark()
        held.open()
        late, *_ = await eventually(lambda: _calls(hot, since, "CreateTags"), what="the call that was under way")
    assert str(late.error).endswith(".NotFound")
    assert "Updated" not in [h.reason for h in result.journal]
    assert hot.of(machine) == {}
    assert stack.launched() == [instance_id(machine)]
    known = await hot.of_class()
    assert known.users == {}
    assert (await hot.client.classes.delete(known.name)).message == f"machineclass {known.name} is gone"


async def _calls(hot: Hot, since: int, operation: str) -> list[Any]:
    return hot.calls(since, operation)


@contextlib.asynccontextmanager
async def worker_process(stack: Stack) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "TEMPORAL_ADDRESS": stack.client.service_client.config.target_host}
    arguments = ("-m", "worker", "--settings", str(stack.settings_file))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environment, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.core
async def test_the_worker_is_killed_between_two_calls(temporal: WorkflowEnvironment) -> None:
    """The first call has been made, the second one has not. Another worker makes both, which changes nothing twice."""
    async with new_stack(temporal.client) as stack:
        hot = Hot(stack, Timings.fast())
        async with worker_process(stack) as process:
            await hot.apply(**COST_A)
            machine = await hot.machine()
            since = hot.mark()
            # What the killed worker has asked for is refused, but only after it is surely dead.
            fault(stack, operation="CreateTags", code="InternalError", delay=60.0)
            rules = stack.simulator.simulator.frame.faults
            await hot.apply(**COST_B)
            await eventually(lambda: _hits(rules), what="CreateTags called")
            process.kill()
            await process.wait()
        assert hot.each(machine) == [{"cost": "a"}] * 3
        async with worker_process(stack):
            await hot.done()
            assert reasons(await stack.state()).count("Updated") == 1
        assert hot.each(machine) == [B] * 3
        requests = {c.operation: c.request for c in hot.calls(since) if c.mutating}
        assert sorted(requests) == ["CreateTags", "DeleteTags"]
        assert all(c.request == requests[c.operation] for c in hot.calls(since) if c.mutating)
        assert stack.launched() == [instance_id(machine)]


async def _hits(rules: list[Any]) -> bool:
    """Whether the rule has struck: then it is taken off the list."""
    return not rules
