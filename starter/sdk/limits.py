"""What each account may take of its cloud's task queue: a limit per fairness key, which Temporal keeps.

No worker has to know accounts in advance: the key is the account's (workflows/calls.py, `share`), the limit is every
key's.
"""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, UpdateTaskQueueConfigRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from resources.queues import cloud_queues
from resources.settings import Settings, SettingsError

REASON = "callsPerSecondPerAccount in the settings of a Hostler worker"
_ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
_NOT_KEPT = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED)


@dataclass(frozen=True)
class Limit:
    """The limit of each account, as the server has it."""

    per_second: float | None
    """None: there is none."""
    by_hand: bool = False
    """Whether somebody else has set it, e.g. with `temporal task-queue config set`."""


async def kept(client: Client, queue: str) -> Limit:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=_ACTIVITY, report_config=True
    )
    answer = await client.workflow_service.describe_task_queue(request)
    if not answer.config.fairness_keys_rate_limit_default.HasField("rate_limit"):
        return Limit(None)
    limit = answer.config.fairness_keys_rate_limit_default
    return Limit(limit.rate_limit.requests_per_second, by_hand=limit.metadata.reason != REASON)


async def apply(client: Client, settings: Settings) -> None:
    """Tells the server the limit for each cloud's queues of the settings. Safe to repeat; with several workers the
    last one counts.

    A limit that was set by hand stays where the settings have none. Raises SettingsError where the server cannot keep a
    limit that they have.
    """
    for queue in cloud_queues(settings):
        wanted = queue.per_account
        try:
            now = await kept(client, queue.name)
            if now.per_second != wanted and not (wanted is None and now.by_hand):
                await _set(client, queue.name, wanted)
        except RPCError as e:
            if e.status not in _NOT_KEPT:
                raise
            if wanted is not None:
                raise SettingsError(
                    f"clouds.{queue.provider}.callsPerSecondPerAccount: this Temporal server keeps no limit per "
                    f"account ({e.message}): let this worker's user update the namespace, or remove the setting and "
                    f"give busy accounts a task queue of their own (clouds.{queue.provider}.queues)"
                ) from None


async def _set(client: Client, queue: str, per_second: float | None) -> None:
    request = UpdateTaskQueueConfigRequest(
        namespace=client.namespace, identity=client.identity, task_queue=queue, task_queue_type=_ACTIVITY
    )
    update = request.update_fairness_key_rate_limit_default
    update.reason = REASON
    if per_second is not None:
        update.rate_limit.CopyFrom(RateLimit(requests_per_second=per_second))
    await client.workflow_service.update_task_queue_config(request)
