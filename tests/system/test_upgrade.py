"""Worker deployment versions: what began on build A stays there, and goes on with build B after `renew`.

docs/production.md has the commands of the last test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import yaml
from lifekit import EXAMPLES, Stack, eventually, hostler, new_stack
from machine.stubs import running, stubbed
from paths import ROOT
from processes.builds import build_id, build_of, make_current
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

import worker
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from workflows.machine import MachineWorkflow


async def test_from_build_a_to_build_b_by_renew(temporal: WorkflowEnvironment) -> None:
    deployment = f"hostler-{uuid.uuid4().hex[:6]}"
    client = temporal.client
    async with stubbed(client, workflows=False) as machines, build_of(client, machines, deployment, "a"):
        await make_current(client, deployment, "a")
        handle = await running(machines)
        before = await handle.query(MachineWorkflow.describe)
        assert await build_id(handle) == "a"
        async with build_of(client, machines, deployment, "b"):
            await make_current(client, deployment, "b")
            await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.1"]))
            await eventually(lambda: handle.query(MachineWorkflow.describe), lambda s: s.node.addresses == ["10.0.0.1"])
            assert await build_id(handle) == "a"  # pinned: a new build does not touch a run under way
            await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="r"))
            await eventually(lambda: build_id(handle), lambda b: b == "b", "build b")
            after = await handle.query(MachineWorkflow.describe)
            assert (after.uid, after.status.phase) == (before.uid, Phase.RUNNING)
            await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"), rpc_timeout=timedelta(seconds=30))
            await handle.result()
    assert len(machines.stubs.called("create_machine")) == 1


# -- with processes and commands --------------------------------------------------------------------------------------

OTHERS = ("cluster", "watch", "drain", "cloud")


@contextlib.asynccontextmanager
async def build(stack: Stack, deployment: str, build_id: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The worker of workflows of a build, as a process that is ready. It is ended gracefully, if it still runs."""
    argv = [sys.executable, "-m", "worker", "--settings", str(stack.settings_file), "--role", "workflows"]
    address = stack.client.service_client.config.target_host
    variables = {
        "TEMPORAL_ADDRESS": address,
        "HOSTLER_WORKER__DEPLOYMENT_NAME": deployment,
        "HOSTLER_WORKER__BUILD_ID": build_id,
    }
    environment = {**os.environ, **variables}
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert b"worker ready" in await asyncio.wait_for(process.stdout.readline(), 60)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30) == 0


async def temporal_cli(stack: Stack, *words: str) -> tuple[int, str]:
    argv = [str(Path(sys.executable).with_name("temporal")), *words]
    argv += ["--address", stack.client.service_client.config.target_host]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_machine_and_a_pool_from_build_to_build_and_back(temporal: WorkflowEnvironment, tmp_path: Path) -> None:
    """Two builds side by side: the former is stopped when nothing runs on it any more. Nothing is created twice, and
    nothing stands still."""
    name = f"hostler-{uuid.uuid4().hex[:6]}"
    pool = yaml.safe_load((EXAMPLES.parent / "pool" / "pool.yaml").read_text())
    pool["spec"] |= {"replicas": 1, "minReadySeconds": 0}
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump(pool))

    async with new_stack(temporal.client) as stack:
        roles = stack.settings.worker.model_copy(update={"roles": list(OTHERS)})

        async def current(build_id: str) -> None:
            version = ("--deployment-name", name, "--build-id", build_id)

            async def told() -> bool:
                return (await temporal_cli(stack, "worker", "deployment", "set-current-version", *version, "--yes"))[
                    0
                ] == 0

            await eventually(told, what=f"{build_id} current")

        async def on(build_id: str) -> set[str]:
            """Ids of the workflows that are pinned to a build."""
            query = f"TemporalWorkerDeploymentVersion='{name}:{build_id}' AND ExecutionStatus='Running'"
            return {found.id async for found in stack.client.list_workflows(query)}

        async def scaled(replicas: int) -> None:
            await hostler(stack, "scale", "pool", "demo-pool", "--replicas", str(replicas))
            await hostler(stack, "wait", "pool", "demo-pool", "--for=rolled-out", "--timeout", "60s")

        async def ended(id: str) -> bool:
            described = await stack.client.get_workflow_handle(id).describe()
            return described.status is WorkflowExecutionStatus.COMPLETED

        async def moved(former: str, to: str) -> None:
            before = await on(former)
            await hostler(stack, "renew", "all", "--reason", "upgrade")
            await eventually(lambda: on(former), lambda left: not left, f"nothing on {former}")

            async def lost() -> list[str]:
                """Lists show a new run a moment later."""
                return [id for id in before - await on(to) if not await ended(id)]

            await eventually(lost, lambda left: not left, "only what was going anyway is not there")

        others = worker.running(stack.client, stack.settings.model_copy(update={"worker": roles}))
        async with others, build(stack, name, "b") as b:
            async with build(stack, name, "a") as a:
                await current("a")
                await hostler(stack, "apply", "-f", str(EXAMPLES), "-f", str(tmp_path / "pool.yaml"))
                await hostler(stack, "wait", "machine", "demo-1", "--for=phase=Running", "--timeout", "60s")
                await scaled(2)
                assert await on("b") == set()
                await current("b")
                await scaled(3)  # the pool is pinned to a; its new machine begins on b
                assert {id.partition("/")[0] for id in await on("b")} == {"machine"}
                await moved("a", "b")
            assert a.returncode == 0
            await scaled(2)
            async with build(stack, name, "a"):
                await current("a")
                await moved("b", "a")
                b.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(b.wait(), 30) == 0
                await scaled(3)
                await hostler(stack, "delete", "pool", "demo-pool", "--wait")
                await hostler(stack, "delete", "machine", "demo-1", "--wait")
        assert len(stack.launched()) == 5
        assert [r.id for r in stack.resources() if r.vm and not r.gone] == []
