"""A server that has forgotten a workflow, as after its namespace's retention."""

from __future__ import annotations

from lifekit import eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError


async def forgotten(client: Client, workflow_id: str) -> None:
    """Nothing is known of the workflow any longer: no record, no history."""
    request = DeleteWorkflowExecutionRequest(
        namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
    )
    await client.workflow_service.delete_workflow_execution(request)

    async def there() -> bool:
        try:
            await client.get_workflow_handle(workflow_id).describe()
        except RPCError:
            return False
        return True

    await eventually(there, lambda found: not found, f"the server forgets {workflow_id}")
