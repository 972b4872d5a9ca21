"""Reads the stories of rollouts of rendered configs: from the server's records, their workflows and their results."""

from __future__ import annotations

from functools import partial

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from resources import attributes, names
from resources.machine_config.state import ConfigRolloutResult, ConfigRolloutState
from starter.sdk import live, parallel
from starter.sdk.errors import NoAnswer
from starter.sdk.machine_config.results import ConfigRolloutListed


async def every(temporal: Client, cluster: str, pool: str) -> list[ConfigRolloutListed]:
    """Those of one pool, the newest first."""
    query = (
        "WorkflowType='ConfigRolloutWorkflow' AND ExecutionStatus!='ContinuedAsNew' AND "
        f"HostlerCluster='{cluster}' AND HostlerPool='{names.config_pool_listed(pool)}'"
    )
    executions = [e async for e in temporal.list_workflows(query)]
    found = await parallel.each(partial(_read, temporal, e) for e in executions)
    return sorted(found, key=lambda r: r.began, reverse=True)


async def _read(temporal: Client, execution: WorkflowExecution) -> ConfigRolloutListed:
    handle = temporal.get_workflow_handle(execution.id, run_id=execution.run_id, result_type=ConfigRolloutResult)
    state = result = None
    if execution.status is WorkflowExecutionStatus.RUNNING:
        try:
            state = await live.query(handle, ConfigRolloutState)
        except NoAnswer:
            state = None
    elif execution.status is WorkflowExecutionStatus.COMPLETED:
        result = await handle.result()
    cluster, pool, config = names.id_parts(execution.id, 3)
    phase = execution.typed_search_attributes.get(attributes.PHASE, "")
    if execution.status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED):
        phase = execution.status.name if execution.status else phase  # what it was doing last is not its outcome
    began = (state.began if state else None) or (result.began if result else None) or execution.start_time
    shown = str(result.outcome) if result else phase
    return ConfigRolloutListed(pool, cluster, config, shown, began, execution.close_time, state, result)
