"""The doctor's questions about workers: who polls each task queue, and which worker has gone silent.

A worker that is frozen or was killed looks well to its task queues for a minute: its last poll is still open at the
server. Its heartbeats tell within seconds (servers from 1.29 on; older ones have only the polls).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    ListWorkersRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from resources.base import format_duration, whole_seconds
from resources.queues import Queue
from starter.doctor import builds
from starter.doctor.findings import Finding, Level, attempt, ok, problem, warning
from starter.output import age
from starter.sdk.errors import HostlerError, translated
from starter.sdk.live import POLL_WINDOW

RECENTLY = timedelta(seconds=POLL_WINDOW)
BACKLOG_AGE = timedelta(seconds=60)
"""The time that work may lie in a queue before it means too few workers."""
MISSED = 2
"""Heartbeats in a row that do not come from a worker that may be silent."""
DUE = timedelta(seconds=5)
"""When a worker that has sent only one heartbeat owes the next: what Hostler's workers are set to."""
SLACK = timedelta(seconds=2)
"""How late a heartbeat may be."""
LONGEST_LOOK = timedelta(seconds=8)
"""The longest wait for another heartbeat: one that comes shows that only the worker's clock is wrong."""
FORGOTTEN = timedelta(minutes=5)
"""The time after which nobody cares about a silent worker whose work others do."""
PAGE = 1000
_WORKFLOW, _ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


@dataclass(frozen=True)
class Worker:
    """A process that serves task queues, by its heartbeats."""

    identity: str
    queues: frozenset[str]
    at: datetime
    """Its newest heartbeat, by its own clock."""
    every: timedelta
    """How often it sends one; 0: it has sent only one so far."""
    host: str
    pid: str
    left: bool
    """Whether it has said goodbye."""

    @property
    def interval(self) -> timedelta:
        return self.every or DUE

    def late(self, now: datetime) -> bool:
        return not self.left and now - self.at > MISSED * self.interval + SLACK

    def replaced_by(self, other: Worker) -> bool:
        """Whether the other has all its queues, and was heard when this one was silent already."""
        return self.queues <= other.queues and self.late(other.at)


@dataclass(frozen=True)
class Workers:
    found: list[Finding]
    idle: set[str]
    """Task queues that nobody polls, or only a worker that is silent."""
    versions: set[str]
    """The versions that workers of workflows run."""


async def examine(temporal: Client, queues: Sequence[Queue]) -> Workers:
    ours = {q.name for q in queues}
    workers, silent = await _silent(temporal, ours)
    served = _served(workers, silent)
    away = {*silent, *(identity for identity, w in workers.items() if w.left)}
    found = await asyncio.gather(*(attempt(f"queue {q.name}", partial(_queue, temporal, q, away)) for q in queues))
    by_queue = {q.name: answer for q, answer in zip(queues, found, strict=True)}
    idle = {name for name, answer in by_queue.items() if any(f.level is Level.PROBLEM for f in answer)}
    current = [w for w in silent.values() if not any(w.replaced_by(other) for other in silent.values())]
    theirs = served.union(*(w.queues for w in current))
    said = list(filter(None, (_of_silent(w, ours, served, by_queue) for w in current)))
    said += filter(None, (_of_silent(w, ours, theirs, by_queue) for w in silent.values() if w not in current))
    # A queue of a worker that is silent stands under that worker.
    told = {name for worker in silent.values() for name in worker.queues & idle - served}
    every = [*said, *(f for name, answer in by_queue.items() if name not in told for f in answer)]
    return Workers(every, idle, await _versions(temporal, queues, away))


# -- heartbeats -------------------------------------------------------------------------------------------------------


async def _silent(temporal: Client, ours: set[str]) -> tuple[dict[str, Worker], dict[str, Worker]]:
    """The workers of these queues, and those of them that are silent, by identity.

    Heartbeats have the time of the worker's own clock. Where a queue would be without a worker, it is waited for the
    next one: whoever sends it lives, whatever its clock says.
    """
    workers = await heard(temporal, ours)
    now = datetime.now(UTC)
    silent = {identity: w for identity, w in workers.items() if w.late(now)}
    if alone := [w for w in silent.values() if w.queues & ours - _served(workers, silent)]:
        await asyncio.sleep(min(max(w.interval for w in alone) + SLACK, LONGEST_LOOK).total_seconds())
        again = await heard(temporal, ours)
        silent = {i: w for i, w in silent.items() if i in again and again[i].at == w.at}
        workers = again
    return workers, silent


def _served(workers: dict[str, Worker], silent: Iterable[str]) -> set[str]:
    return {queue for identity, w in workers.items() if not w.left and identity not in silent for queue in w.queues}


async def heard(temporal: Client, ours: set[str]) -> dict[str, Worker]:
    """The workers of these queues, by identity; none where the server does not know them."""
    beats: dict[str, list[WorkerHeartbeat]] = {}
    token = b""
    while True:
        request = ListWorkersRequest(namespace=temporal.namespace, page_size=PAGE, next_page_token=token)
        try:
            answer = await temporal.workflow_service.list_workers(request)
        except RPCError:  # an older server, or one that does not allow it
            return {}
        for info in answer.workers_info:
            beat = info.worker_heartbeat
            if beat.task_queue in ours:
                beats.setdefault(beat.worker_identity, []).append(beat)
        token = answer.next_page_token
        if not token:
            return {identity: _worker(identity, some) for identity, some in beats.items()}


def _worker(identity: str, beats: Sequence[WorkerHeartbeat]) -> Worker:
    newest = max(beats, key=lambda b: b.heartbeat_time.ToDatetime(UTC))
    return Worker(
        identity=identity,
        queues=frozenset(b.task_queue for b in beats),
        at=newest.heartbeat_time.ToDatetime(UTC),
        every=newest.elapsed_since_last_heartbeat.ToTimedelta(),
        host=newest.host_info.host_name,
        pid=newest.host_info.process_id,
        left=all(b.status != WorkerStatus.WORKER_STATUS_RUNNING for b in beats),
    )


def _of_silent(worker: Worker, ours: set[str], served: set[str], queues: dict[str, list[Finding]]) -> Finding | None:
    """What is said of a silent worker, and of its queues; nothing of one that is dead, and whose work others do."""
    state, todo = _process(worker)
    alone = sorted(worker.queues & ours - served)
    silent = datetime.now(UTC) - worker.at
    if not alone and (state is GONE or silent > FORGOTTEN):
        return None
    silence = format_duration(whole_seconds(silent))
    every = format_duration(whole_seconds(worker.interval))
    words = f"silent for {silence}, where a heartbeat is due every {every}: {state}"
    subject = f"worker {worker.identity}"
    if not alone:
        words += ". Others have its queues; what it was given times out first, and is then theirs"
        return warning(subject, words, todo)
    lines = [f"{name}: {_lies(queues.get(name, []))}" for name in alone]
    return problem(
        subject, "\n".join([f"{words}. Nobody else polls", *lines]), f"{todo}; start another: hostler worker"
    )


def _lies(found: Sequence[Finding]) -> str:
    """What lies in a queue, as its own finding ends."""
    return found[0].message.rpartition("; ")[2] if found else "not known"


FROZEN = "its process {pid} on this machine is stopped (SIGSTOP, a debugger)"
HANGS = "its process {pid} on this machine is there, and hangs or has no connection"
GONE = "its process is gone"
ELSEWHERE = "it is frozen, dead, or without a connection"


def _process(worker: Worker) -> tuple[str, str]:
    """What can be seen of the process, and what to do about it."""
    kill = f"look at its log on {worker.host or 'its host'}, and end it"
    if worker.host != socket.gethostname() or not worker.pid.isdigit():
        return ELSEWHERE, kill
    state = _state(int(worker.pid))
    if state in ("", "Z", "X"):
        return GONE, "read the end of its log"
    if state in ("T", "t"):
        return FROZEN.format(pid=worker.pid), f"let it go on (kill -CONT {worker.pid}) or end it (kill -9 {worker.pid})"
    return HANGS.format(pid=worker.pid), f"read its log, and end it (kill -9 {worker.pid})"


def _state(pid: int) -> str:
    """The letter by which ps shows a process's state; "?" where the system does not say, "" where there is none."""
    try:
        os.kill(pid, 0)
        return Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2][:1]
    except ProcessLookupError:
        return ""
    except OSError:
        return "?"


CURRENT = (
    "run a worker of the current build, or make another current: temporal worker deployment set-current-version "
    "(docs/production.md, Upgrading)"
)


# -- task queues ------------------------------------------------------------------------------------------------------


async def _queue(temporal: Client, queue: Queue, away: set[str]) -> list[Finding]:
    with translated():
        answer = await describe(temporal, queue.name, _WORKFLOW if queue.role == "workflows" else _ACTIVITY)
    subject, now = f"queue {queue.name}", datetime.now(UTC)
    backlog, waited = answer.stats.approximate_backlog_count, answer.stats.approximate_backlog_age.ToTimedelta()
    waiting = f"{backlog} task{'s' if backlog != 1 else ''} waiting" if backlog else "nothing waiting"
    if backlog and waited >= timedelta(seconds=1):
        waiting += f", the oldest for {age(waited)}"
    start = f"run a worker: hostler worker --role {queue.role}"
    if not answer.pollers:
        return [problem(subject, f"nobody polls it (no worker was seen in the last 5 minutes); {waiting}", start)]
    seen, who = max((p.last_access_time.ToDatetime(UTC), p.identity) for p in answer.pollers)
    if now - seen > RECENTLY:
        return [problem(subject, f"nobody polls it: {who} was seen last, {age(now - seen)} ago; {waiting}", start)]
    alive = _alive(answer, away)
    if not alive:
        names = ", ".join(sorted({p.identity for p in _recent(answer)}))
        return [problem(subject, f"nobody polls it any more: {names} is silent, or gone; {waiting}", start)]
    seen, who = max((p.last_access_time.ToDatetime(UTC), p.identity) for p in alive)
    workers = len({p.identity for p in alive})
    run = sorted({p.deployment_options.build_id for p in alive if p.deployment_options.build_id})
    current = answer.versioning_info.current_deployment_version
    if current.build_id not in {p.deployment_options.build_id for p in alive}:
        who = f"build {', '.join(run)}" if run else "workers without a build"
        words = f"polled only by {who}, and {current.build_id or 'none'} is current; {waiting}"
        return [problem(subject, words, CURRENT)]
    words = f"polled by {workers} worker{'s' if workers != 1 else ''}"
    words += f" of build {', '.join(run)}" if run else ""
    words += f", last {age(now - seen)} ago by {who}"
    if queue.accounts is not None:
        words += f"; for {', '.join(queue.accounts) or 'no account any more'}"
    if answer.stats.rate_limiting_active:
        words += ", held back by its rate limit"
    limit = answer.config.fairness_keys_rate_limit_default.rate_limit.requests_per_second
    if limit:
        words += f"; at most {limit:g} calls/s for each account"
    if queue.per_account not in (None, limit):
        words += f", and callsPerSecondPerAccount is {queue.per_account:g} in these settings"
        return [warning(subject, words, "restart the worker, which tells Temporal; or correct the settings")]
    words += f"; {waiting}"
    if waited > BACKLOG_AGE:
        return [warning(subject, words, f"check the workers' logs, or {start}")]
    return [ok(subject, words)]


async def _versions(temporal: Client, queues: Sequence[Queue], away: set[str]) -> set[str]:
    """Those that are polled for; none where the server does not say."""
    found: set[str] = set()
    with contextlib.suppress(HostlerError), translated():
        for queue in (q for q in queues if q.role == "workflows"):
            answer = await describe(temporal, queue.name, _WORKFLOW)
            found |= {builds.version_of(p) for p in _alive(answer, away)} - {""}
    return found


def _recent(answer: DescribeTaskQueueResponse) -> list[PollerInfo]:
    now = datetime.now(UTC)
    return [p for p in answer.pollers if now - p.last_access_time.ToDatetime(UTC) <= RECENTLY]


def _alive(answer: DescribeTaskQueueResponse, away: set[str]) -> list[PollerInfo]:
    return [p for p in _recent(answer) if p.identity not in away]


async def describe(temporal: Client, queue: str, type: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    return await temporal.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=temporal.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=type,
            report_stats=True,
            report_config=True,
        )
    )
