"""Workflows as the server has them: signalled, looked up in its own records, listed by visibility."""

from __future__ import annotations

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

MACHINE, CLASS = "MachineWorkflow", "MachineClassWorkflow"
POOL, ROLLOUT = "MachineDeploymentWorkflow", "RolloutWorkflow"
CLUSTER = "ClusterWorkflow"
CONFIGS, CONFIG_POOL, CONFIG_ROLLOUT = "MachineConfigsWorkflow", "MachineConfigPoolWorkflow", "ConfigRolloutWorkflow"


async def tell(client: Client, workflow_id: str, signal: str, *arguments: object) -> bool:
    """Signals a workflow. False where none such runs, which is no error: nobody is there to hear it. Raises
    RPCError."""
    try:
        await client.get_workflow_handle(workflow_id).signal(signal, args=arguments)
    except RPCError as e:
        if e.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def described(client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """The server's own record of a run, the newest unless another is named; None where it has none. Raises RPCError."""
    try:
        return await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    except RPCError as e:
        if e.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


def running(*types: str, cluster: str, where: str = "") -> str:
    """Visibility's query for a cluster's running workflows of these types. It is about a second behind, and proves
    nothing."""
    kinds = ", ".join(f"'{t}'" for t in types)
    query = f"WorkflowType IN ({kinds}) AND ExecutionStatus = 'Running' AND HostlerCluster = '{cluster}'"
    return f"{query} AND {where}" if where else query


async def listed(client: Client, query: str, prefix: str) -> list[str]:
    """The rest of the listed workflows' ids after the prefix, in order. Ids with another prefix are left out."""
    found = [execution.id async for execution in client.list_workflows(query)]
    return sorted(id.removeprefix(prefix) for id in found if id.startswith(prefix))
