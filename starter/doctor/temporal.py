"""The doctor's questions to Temporal: server and namespace, which workflows are stuck, what time it is there."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial

from temporalio.api.enums.v1 import TaskQueueKind, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    PollWorkflowTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from resources import names
from resources.reasons import RESET
from resources.settings import Settings
from starter.doctor import workers
from starter.doctor.findings import Finding, attempt, clock, ok, problem, warning
from starter.output import age
from starter.sdk.errors import HostlerError, translated
from starter.sdk.setup import check_namespace, missing_attributes

CLOCK_QUEUE = "hostler-doctor-clock"
CLOCK_PATIENCE = 3.0
LONG_POLL = timedelta(seconds=60)
"""The server's own duration of a poll; ours is cut short once the server has noted it."""
SOME = 5
"""Names that are enough for a message."""
# The server's own attribute, set after some failed tasks in a row
# (system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute).
FAILING = "TemporalReportedProblems IN ('category=WorkflowTaskFailed', 'category=WorkflowTaskTimedOut')"


WAY_OUT = (
    f"the web UI shows the failure; with a fixed worker they continue. If a message is the cause, skip it: {RESET}, "
    "then hostler renew (docs/runbook.md, WorkflowTaskFailed)"
)


async def examine(temporal: Client, settings: Settings) -> list[Finding]:
    ours = names.workflow_queue(settings.queue_prefix)
    try:
        with translated():
            found = [await _server(temporal)]
    except HostlerError as e:
        return [problem("temporal", str(e))]
    parts = await asyncio.gather(
        attempt("temporal", partial(_attributes, temporal)),
        attempt("workflows", partial(_failing, temporal, ours)),
        attempt("workflows", partial(_parked, temporal, ours)),
        attempt("temporal", partial(_clock, temporal)),
    )
    return sorted([*found, *(f for part in parts for f in part)], key=lambda f: f.subject != "temporal")


async def _server(temporal: Client) -> Finding:
    info = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    await check_namespace(temporal)
    described = await temporal.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=temporal.namespace)
    )
    kept = described.config.workflow_execution_retention_ttl.ToTimedelta()
    address = temporal.service_client.config.target_host
    where = f"{address}, namespace {temporal.namespace}"
    return ok("temporal", f"server {info.server_version} at {where}; closed workflows are kept {age(kept)}")


async def _attributes(temporal: Client) -> list[Finding]:
    with translated():
        missing = await missing_attributes(temporal)
    if missing:
        return [problem("temporal", f"search attributes are missing: {', '.join(missing)}", "run `hostler setup`")]
    return [ok("temporal", "Hostler's search attributes are registered")]


# -- workflows --------------------------------------------------------------------------------------------------------


async def _failing(temporal: Client, queue: str) -> list[Finding]:
    """Workflows whose own code fails, again and again."""
    count, some = await _some(temporal, queue, FAILING)
    if not count:
        return [ok("workflows", "no workflow task fails")]
    words = f"the workflow tasks of {count} keep failing: {some}"
    return [problem("workflows", words, WAY_OUT)]


async def _parked(temporal: Client, queue: str) -> list[Finding]:
    """Workflows that are parked after an error in our own code."""
    # A machine that is parked keeps its phase, and a cluster has no reason.
    count, some = await _some(temporal, queue, "(HostlerReason='InternalError' OR HostlerPhase='Parked')")
    if not count:
        return [ok("workflows", "none is parked after an error in Hostler itself")]
    renew = "`hostler describe` says why; once a fixed worker runs: hostler renew machine|pool|class|cluster NAME"
    if "rollout/" in some:
        renew += ". A rollout/… is a rollout's story, which ends with the rollout; the pool continues without it"
    return [problem("workflows", f"{count} are parked after an error in Hostler itself: {some}", renew)]


async def _some(temporal: Client, queue: str, condition: str) -> tuple[int, str]:
    """How many workflows of a task queue run with a condition, and some of their ids."""
    query = f"TaskQueue='{queue}' AND ExecutionStatus='Running' AND {condition}"
    with translated():
        count = (await temporal.count_workflows(query)).count
        ids = [e.id async for e in temporal.list_workflows(query, limit=SOME)] if count else []
    return count, ", ".join(sorted(ids)) + (", …" if count > len(ids) else "")


# -- the clock --------------------------------------------------------------------------------------------------------


async def _clock(temporal: Client) -> list[Finding]:
    """The clock. The server does not tell its time; but it notes when a queue was polled: so one is polled that nobody
    else uses."""
    identity = f"doctor-{uuid.uuid4().hex}"
    before = datetime.now(UTC)
    poll = asyncio.create_task(_poll(temporal, identity))
    try:
        async with asyncio.timeout(CLOCK_PATIENCE):
            while not poll.done():
                with translated():
                    answer = await workers.describe(temporal, CLOCK_QUEUE, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
                for poller in answer.pollers:
                    if poller.identity == identity:
                        theirs = poller.last_access_time.ToDatetime(UTC)
                        return [clock("temporal", theirs, before, datetime.now(UTC), timedelta(0))]
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    finally:
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
    return [warning("temporal", "its clock is not known: it did not record a poll")]


async def _poll(temporal: Client, identity: str) -> None:
    request = PollWorkflowTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=CLOCK_QUEUE, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
        identity=identity,
    )
    with contextlib.suppress(RPCError):  # not allowed to poll: then its time cannot be told
        await temporal.workflow_service.poll_workflow_task_queue(request, timeout=LONG_POLL)
