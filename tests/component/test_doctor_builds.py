"""Workflows that are pinned to a build which no worker runs: `hostler doctor` names them, and its remedy helps."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import uuid
from pathlib import Path

from lifekit import eventually
from machine.stubs import running, stubbed
from processes.builds import build_id, build_of, make_current
from temporalio.testing import WorkflowEnvironment

from resources.machine.intents import DeleteIntent
from resources.queues import Queue
from starter.doctor import builds, workers
from starter.doctor.findings import Finding, Level
from workflows.machine import MachineWorkflow


async def test_what_is_pinned_to_a_build_that_nobody_runs(temporal: WorkflowEnvironment) -> None:
    client, deployment = temporal.client, f"hostler-{uuid.uuid4().hex[:6]}"
    async with stubbed(client, workflows=False) as machines:
        queue = Queue(machines.prefix, "workflows")

        async def said() -> list[Finding]:
            found = await workers.examine(client, [queue])
            return await builds.examine(client, queue.name, found.versions)

        async with build_of(client, machines, deployment, "a"):
            await make_current(client, deployment, "a")
            handle = await running(machines)
            await eventually(lambda: build_id(handle), lambda b: b == "a", "pinned to build a")
            async with build_of(client, machines, deployment, "b"):
                await make_current(client, deployment, "b")
                assert await said() == []  # both are run
        async with build_of(client, machines, deployment, "b"):
            (found,) = await eventually(said, bool, "build a is missed")
            assert found.level is Level.PROBLEM
            assert found.message == (
                f"1 is pinned to build a of {deployment}, which no worker runs, and makes no progress: {handle.id}"
            )
            command = re.search(r"temporal (workflow update-options .*) \(docs", found.remedy)
            assert command is not None
            address = client.service_client.config.target_host
            words = shlex.split(f"{command[1]} --reason test --yes --address {address} --namespace {client.namespace}")
            process = await asyncio.create_subprocess_exec(Path(sys.executable).with_name("temporal"), *words)
            assert await process.wait() == 0
            await eventually(said, lambda found: not found, "nothing is pinned to build a any more")
            intent = DeleteIntent(id="d")
            await handle.execute_update(MachineWorkflow.delete, intent)
            await handle.result()
