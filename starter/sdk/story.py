"""The story of a whole cluster: its own events, and those of its classes, pools and machines, also of what has ended.

Each is told from its journal and its histories (starter/sdk/history.py), so no worker is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from starter.sdk import parallel
from starter.sdk.entity import EntityClient
from starter.sdk.errors import NotFound, translated
from starter.sdk.results import ClusterStory, Event

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

MACHINES = 50
"""The machines that are told of, those that began last: each one's history is read."""


async def everything(client: HostlerClient, *, cluster: str | None = None) -> ClusterStory:
    """The events of a cluster and all that is in it, oldest first. Raises NotFound for an unknown cluster."""
    where = client.connection.where(cluster)
    entities: list[tuple[str, EntityClient[Any], int | None]] = [
        ("machine", client, MACHINES),
        ("pool", client.pools, None),
        ("controlplane", client.control_planes, None),
        ("class", client.classes, None),
    ]
    asked: list[Callable[[], Awaitable[list[tuple[str, str, Event]]]]] = []
    left_out = 0
    with translated():
        for kind, shelf, most in entities:
            query = f"WorkflowType='{shelf.workflow}' AND HostlerCluster='{where}'"
            listed = [e.id async for e in client.temporal.list_workflows(query, limit=most)]
            found = list(dict.fromkeys(shelf.key(workflow_id)[1] for workflow_id in listed))
            asked += [partial(_told, kind, name, partial(shelf.events, name, cluster=where)) for name in found]
            if most is not None and len(listed) == most:
                left_out = (await client.temporal.count_workflows(query)).count - most
    asked.append(partial(_told, "cluster", where, partial(client.clusters.events, where)))
    told = [event for some in await parallel.each(asked) for event in some]
    return ClusterStory(sorted(told, key=lambda t: t[2].time), left_out)


async def _told(kind: str, name: str, ask: Callable[[], Awaitable[list[Event]]]) -> list[tuple[str, str, Event]]:
    try:
        return [(kind, name, event) for event in await ask()]
    except NotFound:  # its history is gone, or nobody watches the cluster yet
        return []
