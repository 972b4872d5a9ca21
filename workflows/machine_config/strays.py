"""Nodes that belong to no config pool, and whose daemons ask for a drain all the same: the cluster's workflow serves
them, as OpenShift's drain controller serves every node. Nobody gives them a config."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of
from workflows.machine_config import drains
from workflows.machine_config.entity import ConfigEntity
from workflows.machine_config.looks import select
from workflows.machine_config.pool_entity import LOOK_OFTEN

with workflow.unsafe.imports_passed_through():
    from activities.cluster.config_nodes import ConfigNodeActivities
    from resources.calls.machine_config import ReadStraysInput
    from resources.machine_config.view import StrayNodes
    from resources.names import cluster_queue

AGAIN = timedelta(seconds=30)
"""When it is looked again where it could not be seen whose nodes they are."""
LOOK = "strays"
"""The deadline of the next look."""


async def look(configs: ConfigEntity) -> None:
    """Looks which nodes of no pool ask for something, and serves them. What failed is tried again after a while."""
    configs.deadlines.pop(LOOK, None)
    try:
        found = await _read(configs)
    except ActivityError as e:
        configs.note_news("ConfigCallFailed", failure_of(e).info.message)
        found = None
    if found is None:
        configs.no_later(LOOK, workflow.now() + AGAIN)
        return
    drains.take(configs, found.nodes)
    if configs.s.drains:
        configs.no_later(LOOK, workflow.now() + LOOK_OFTEN)


async def _read(configs: ConfigEntity) -> StrayNodes | None:
    """The nodes. None where some of them may be those of a pool that selects machines, which are not all known."""
    found = await _list(configs, {})
    if not found.nodes or not found.selections:
        return found
    machines, trouble = await select(configs, found.selections)
    return None if trouble else await _list(configs, machines)


async def _list(configs: ConfigEntity, machines: dict[str, str]) -> StrayNodes:
    return await configs.call(
        ConfigNodeActivities.read_stray_nodes,
        ReadStraysInput(cluster=configs.cluster, machines=machines),
        queue=cluster_queue(configs.cluster, configs.s.queue_prefix),
        summary="look for nodes of no pool that ask for a drain",
    )
