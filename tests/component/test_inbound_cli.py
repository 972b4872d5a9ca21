"""Malformed messages from Temporal's own command line, on a real server; and the runbook's remedy."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from entitykit import ENTITIES, own_id
from lifekit import eventually
from paths import ROOT
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker, WorkflowInboundInterceptor

import worker
from resources.base import Value
from resources.intents import Intent
from workflows import inbound, runner

KINDS = [(kind, state) for kind, state, *_ in ENTITIES]
RUNBOOK = ROOT / "docs/runbook.md"


def polled(client: Client, queue: str) -> Worker:
    # No cache: each task is a replay, in which all must come out as it did.
    return Worker(
        client,
        task_queue=queue,
        workflows=worker.WORKFLOWS,
        workflow_runner=worker.sandbox(strict=False),
        max_cached_workflows=0,
    )


async def typed(client: Client, *words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "temporal",
        *words,
        env={**os.environ, "TEMPORAL_ADDRESS": client.service_client.config.target_host},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def failed_tasks(handle: WorkflowHandle[Any, Any]) -> list[str]:
    kind = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    return [
        e.workflow_task_failed_event_attributes.failure.message
        async for e in handle.fetch_history_events()
        if e.event_type == kind
    ]


@pytest.mark.parametrize(("kind", "state"), KINDS, ids=[kind for kind, _ in KINDS])
async def test_a_message_that_cannot_be_taken_is_refused_in_words(
    temporal: WorkflowEnvironment, kind: str, state: Callable[[str], Value]
) -> None:
    client, queue = temporal.client, f"t{uuid.uuid4().hex[:8]}"
    name = own_id(kind, queue)
    handle = await client.start_workflow(kind, state(queue), id=name, task_queue=queue)
    async with polled(client, queue):
        for words in (
            ("renew",),
            ("renew", "--input", "{}", "--input", "{}"),
            ("renew", "--input", "7"),
            ("nonsense",),
        ):
            code, said = await typed(client, "workflow", "signal", "-w", name, "--name", *words)
            assert code == 0, said
        code, said = await typed(client, "workflow", "update", "execute", "-w", name, "--name", "renew")
        assert (code != 0, "takes one argument" in said) == (True, True), said
        code, said = await typed(client, "workflow", "query", "-w", name, "--type", "describe", "--input", "1")
        assert (code != 0, "takes no argument" in said) == (True, True), said

        async def refused() -> list[str]:
            found = await handle.query("describe")
            return [h["message"] for h in found["journal"] if h["reason"] == "Refused"]

        lines = await eventually(refused, lambda found: len(found) == 4, "four refusals")
        assert [line.partition("; ")[0] for line in lines[:2]] == [
            "signal 'renew' takes one argument, Intent as JSON"
        ] * 2
        assert "signal 'renew': Intent: Input should be an object" in lines[2]
        assert lines[3].startswith("unknown signal 'nonsense'; the signals are ")
        await handle.execute_update("renew", Intent(id="r"), id="r")  # and a proper message is accepted
        assert (await handle.query("describe"))["parked"] is None
        assert await failed_tasks(handle) == []
    await handle.terminate("the test is over")


@pytest.mark.parametrize("arguments", [[], [7], [{"name": "x"}, {}]], ids=["none", "another kind", "two"])
@pytest.mark.parametrize("type_", [kind for kind, _ in KINDS] + ["OrphanSweepWorkflow"])
async def test_a_start_that_cannot_be_ends_with_words(
    temporal: WorkflowEnvironment, type_: str, arguments: list[Any]
) -> None:
    client, queue = temporal.client, f"t{uuid.uuid4().hex[:8]}"
    handle = await client.start_workflow(type_, args=arguments, id=f"start/{queue}", task_queue=queue)
    async with polled(client, queue):
        described = await eventually(handle.describe, lambda d: d.status is not WorkflowExecutionStatus.RUNNING)
    assert described.status is WorkflowExecutionStatus.FAILED
    events = [e async for e in handle.fetch_history_events()]
    failure = events[-1].workflow_execution_failed_event_attributes.failure
    assert f"the input of {type_}" in failure.message
    assert failure.application_failure_info.non_retryable
    assert await failed_tasks(handle) == []


# -- the way out ------------------------------------------------------------------------------------------------------


def way_out() -> list[str]:
    entry = RUNBOOK.read_text().partition("### WorkflowTaskFailed\n")[2].partition("\n### ")[0]
    (command,) = re.findall(r"`(temporal workflow reset [^`]*)`", entry)
    return shlex.split(command)[1:]


async def test_a_message_that_fails_all_the_same_is_left_out_by_the_runbooks_reset(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker still has the fault."""
    client, queue = temporal.client, f"t{uuid.uuid4().hex[:8]}"
    kind, state = KINDS[0]
    name = own_id(kind, queue)
    monkeypatch.setattr(runner, "admit", lambda defn, act: None)
    monkeypatch.setattr(inbound.Inbound, "handle_signal", WorkflowInboundInterceptor.handle_signal)
    handle = await client.start_workflow(kind, state(queue), id=name, task_queue=queue)
    async with polled(client, queue):
        await eventually(lambda: handle.query("describe"), lambda found: bool(found["parked"]))
        await typed(client, "workflow", "signal", "-w", name, "--name", "delete")
        await eventually(lambda: failed_tasks(handle), bool, "a failed task")
        words = [name if w == "ID" else w for w in way_out()]
        code, said = await typed(client, *words)
        assert code == 0, said
        newest: WorkflowHandle[Any, Any] = client.get_workflow_handle(name)
        found = await eventually(lambda: newest.query("describe"), lambda found: bool(found["parked"]))
        assert found["deletion"] is None
        await newest.execute_update("renew", Intent(id="r"), id="r")
    await newest.terminate("the test is over")
