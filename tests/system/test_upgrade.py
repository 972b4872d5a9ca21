"""Worker deployment versions: a machine that began on build A stays there, and goes on with build B after `renew`."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from lifekit import eventually
from stubs import Machines, stubbed
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from activities.deps import Deps
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from resources.settings import Settings, WorkerSettings
from workflows.machine import MachineWorkflow

Handle = WorkflowHandle[Any, Any]


def build_of(client: Client, machines: Machines, deployment: str, build_id: str) -> Worker:
    """The worker of workflows as `worker.py` makes it for a deployment."""
    ours = WorkerSettings(roles=["workflows"], deployment_name=deployment, build_id=build_id, strict_sandbox=True)
    settings = Settings(queue_prefix=machines.prefix, worker=ours)
    (built,) = worker.build(client, settings, Deps(settings, client))
    return built


async def make_current(client: Client, deployment: str, build_id: str) -> None:
    """What a deployment does when its new pods are ready: `temporal worker deployment set-current-version`."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace,
        deployment_name=deployment,
        build_id=build_id,
        ignore_missing_task_queues=True,
        identity="test",
    )

    async def told() -> bool:
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            return False  # the server has not heard of this build yet
        return True

    await eventually(told, what=f"{build_id} current")


async def build_id(handle: Handle) -> str:
    info = (await handle.describe()).raw_description.workflow_execution_info
    return str(info.versioning_info.deployment_version.build_id)


async def test_from_build_a_to_build_b_by_renew(temporal: WorkflowEnvironment) -> None:
    deployment = f"hostler-{uuid.uuid4().hex[:6]}"
    client = temporal.client
    async with stubbed(client, workflows=False) as machines, build_of(client, machines, deployment, "a"):
        await make_current(client, deployment, "a")
        handle = await machines.start(machines.new_state("m-1"))
        handle = client.get_workflow_handle(handle.id)
        await eventually(lambda: _started_watching(machines))
        await handle.signal(MachineWorkflow.observe, machines.facts())
        before = await eventually(lambda: handle.query(MachineWorkflow.describe), _runs)
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


async def _started_watching(machines: Machines) -> int:
    return len(machines.stubs.called("watch_machine"))


def _runs(state: Any) -> bool:
    return bool(state.status.phase == Phase.RUNNING)
