"""Workers of workflows with a build, as `worker.py` makes them for a deployment."""

from __future__ import annotations

from typing import Any

from lifekit import eventually
from machine.stubs import Machines
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

import worker
from activities.deps import Deps
from resources.settings import Settings, WorkerSettings

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
