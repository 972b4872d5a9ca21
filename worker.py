"""The worker: puts settings, clients and drivers together; one Temporal worker per task queue, health and metrics.

    python -m worker [--settings FILE] [--role ROLE]...

The only module that sees everything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from temporalio.client import Client
from temporalio.common import MetricMeter, VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.worker import Interceptor, PollerBehaviorSimpleMaximum, Worker, WorkerDeploymentConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxRestrictions

from activities.base import Activities, methods
from activities.boundary import Boundary
from activities.census import census
from activities.cloud.instances import InstancesActivities
from activities.cloud.listing import ListingActivities
from activities.cloud.machine import MachineActivities
from activities.cluster.config_nodes import ConfigNodeActivities
from activities.cluster.configs import ConfigRenderActivities
from activities.cluster.control_plane import ControlPlaneActivities
from activities.cluster.etcd import EtcdActivities
from activities.cluster.marks import MarkActivities
from activities.cluster.node import NodeActivities
from activities.cluster.preserve import PreserveActivities
from activities.deps import Deps
from activities.drain.configs import ConfigDrainActivities
from activities.drain.nodes import DrainActivities
from activities.temporal.classes import ClassActivities
from activities.temporal.configs import ConfigActivities
from activities.temporal.members import MemberActivities
from activities.temporal.news import NewsActivities
from activities.temporal.orphans import OrphanActivities
from activities.temporal.pools import PoolActivities
from activities.temporal.uses import UsesActivities
from activities.watch.configs import ConfigWatchActivities
from activities.watch.lost import looking
from activities.watch.nodes import WatchActivities
from resources.clouds import PROVIDERS
from resources.queues import Routes, queues
from resources.settings import ROLES, Role, Settings, SettingsError, load_settings
from resources.spelling import did_you_mean
from resources.words import cause
from starter.outlet import Formatter, complain
from starter.sdk import limits
from starter.sdk.connection import connected, followed
from starter.sdk.errors import HostlerError
from workflows.cluster import ClusterWorkflow
from workflows.control_plane import ControlPlaneWorkflow
from workflows.machine import MachineWorkflow
from workflows.machine_class import MachineClassWorkflow
from workflows.machine_config import ConfigRolloutWorkflow, MachineConfigPoolWorkflow, MachineConfigsWorkflow
from workflows.orphans import OrphanSweepWorkflow
from workflows.pool import MachineDeploymentWorkflow
from workflows.pool.rollout import RolloutWorkflow
from workflows.routing import Routing
from workflows.runner import Runner, Tasks

log = logging.getLogger("hostler.worker")

WORKFLOWS = [
    MachineWorkflow,
    MachineDeploymentWorkflow,
    RolloutWorkflow,
    ControlPlaneWorkflow,
    MachineClassWorkflow,
    ClusterWorkflow,
    MachineConfigsWorkflow,
    MachineConfigPoolWorkflow,
    ConfigRolloutWorkflow,
    OrphanSweepWorkflow,
]
ACTIVITIES: tuple[type[Activities], ...] = (
    MachineActivities,
    InstancesActivities,
    ListingActivities,
    NodeActivities,
    MarkActivities,
    PreserveActivities,
    ControlPlaneActivities,
    EtcdActivities,
    ConfigRenderActivities,
    ConfigNodeActivities,
    WatchActivities,
    ConfigWatchActivities,
    DrainActivities,
    ConfigDrainActivities,
    ClassActivities,
    MemberActivities,
    PoolActivities,
    NewsActivities,
    UsesActivities,
    OrphanActivities,
    ConfigActivities,
)
OURS = ("activities", "drivers", "planners", "resources", "workflows")
POLLERS = 5
HEARTBEAT = timedelta(seconds=5)
"""How often the process tells the server that it lives: one small call. So `hostler doctor` names a frozen or dead
worker within seconds; its open polls look well for a minute."""
GIVEN_UP_AFTER = 10.0
"""Seconds after which Temporal gives a workflow task to another worker."""
LOST_AFTER = 60.0
"""Seconds at one workflow task or eviction after which its slot does not come back."""
STUCK = 70
"""The exit code of a worker that has lost a slot (EX_SOFTWARE)."""
# Seconds. The SDK's own buckets end at 10, where a machine's life begins.
BUCKETS: dict[str, list[float]] = {
    "hostler_driver_call_duration": [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60],
    "hostler_driver_call_wait": [0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30],
    "hostler_machine_creation": [30, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600],
    "hostler_machine_phase_duration": [1, 10, 30, 60, 180, 600, 1200, 3600, 7200, 21600, 86400, 604800, 2592000],
}


def sandbox(strict: bool, tasks: Tasks | None = None) -> WorkflowRunner:
    """The runner for workflows. Strict: the determinism guard reaches into our own workflow modules; for tests and CI.
    Otherwise they are passed through, which halves memory and CPU per machine."""
    tasks = tasks or Tasks()
    if strict:
        return Runner(tasks=tasks)
    return Runner(tasks=tasks, restrictions=SandboxRestrictions.default.with_passthrough_modules(*OURS))


def build(
    client: Client, settings: Settings, deps: Deps, interceptors: Iterable[Interceptor] = (), tasks: Tasks | None = None
) -> list[Worker]:
    """One worker per task queue that the settings' roles ask for. `interceptors` come outside the boundary's; `tasks`
    says what the threads of workflows are doing."""
    ours = settings.worker
    served: dict[Role, list[Callable[..., Any]]] = {role: [] for role in ROLES}
    for each in ACTIVITIES:
        served[each.role] += methods(each(deps))
    common: dict[str, Any] = {
        "interceptors": [*interceptors, Boundary(), Routing(Routes(settings))],
        "graceful_shutdown_timeout": ours.graceful_shutdown,
        "max_concurrent_activities": ours.max_concurrent_activities,
        # A cancellation travels only on heartbeats.
        "max_heartbeat_throttle_interval": timedelta(seconds=5),
        "activity_task_poller_behavior": PollerBehaviorSimpleMaximum(POLLERS),
    }
    of_workflows: dict[str, Any] = {
        "workflows": WORKFLOWS,
        "workflow_runner": sandbox(ours.strict_sandbox, tasks),
        "max_cached_workflows": ours.max_cached_workflows,
        "max_concurrent_workflow_tasks": ours.max_concurrent_workflow_tasks,
        "sticky_queue_schedule_to_start_timeout": ours.sticky_timeout,
        "workflow_task_poller_behavior": PollerBehaviorSimpleMaximum(4 * POLLERS),
        "deployment_config": _deployment(settings),
    }
    return [
        Worker(
            client,
            task_queue=queue.name,
            activities=served[queue.role],
            max_task_queue_activities_per_second=queue.per_second,
            **common,
            **(of_workflows if queue.role == "workflows" else {}),
        )
        for queue in queues(settings, settings.clusters)
        if queue.role in ours.roles
    ]


def _deployment(settings: Settings) -> WorkerDeploymentConfig | None:
    """The deployment, only if deployment name and build id are configured: an unversioned worker serves every
    workflow."""
    ours = settings.worker
    if not (ours.deployment_name and ours.build_id):
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=ours.deployment_name, build_id=ours.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


@contextlib.asynccontextmanager
async def running(
    client: Client, settings: Settings, interceptors: Iterable[Interceptor] = (), tasks: Tasks | None = None
) -> AsyncIterator[list[Worker]]:
    """The workers, polling; leaving shuts them down gracefully. Raises SettingsError."""
    known = sorted(name.lower() for name in PROVIDERS)
    for cloud in sorted(settings.clouds.keys() - known):
        meant = did_you_mean(cloud, known)
        raise SettingsError(f"clouds.{cloud}: there is no driver for it; there are: {', '.join(known)}{meant}")
    if "cloud" in settings.worker.roles:
        await limits.apply(client, settings)
    deps = Deps(settings, client)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(deps.close)
        if "cloud" in settings.worker.roles:
            # Before anything is polled: an SDK takes up to two seconds to import, and holds the interpreter all the
            # while. At the first call, nothing would heartbeat.
            for provider in (name for name in PROVIDERS if name.lower() in settings.clouds):
                deps.driver(provider)
        workers = build(client, settings, deps, interceptors, tasks)
        if not workers:
            raise SettingsError(
                "with these roles, clusters and clouds there is no task queue to serve; correct the settings"
            )
        for worker in workers:
            await stack.enter_async_context(worker)
        stack.push_async_callback(_shut_down, workers)
        # Each asks the server first; until then /healthz would call it dead. One that fails cancels this wait.
        while not all(w.is_running for w in workers):  # noqa: ASYNC110 - the SDK has no event for it
            await asyncio.sleep(0.01)
        if "workflows" in settings.worker.roles:
            await stack.enter_async_context(census.taking(deps))
        if "watch" in settings.worker.roles:
            await stack.enter_async_context(looking(deps))

        def replace(client: Client) -> None:
            deps.client = client
            for worker in workers:
                worker.client = client

        await stack.enter_async_context(followed(client, settings, replace))
        yield workers


async def _shut_down(workers: Sequence[Worker]) -> None:
    """Shuts all down at the same time: one after the other, each might take the whole time for a graceful end."""
    await asyncio.gather(*(worker.shutdown() for worker in workers))


async def lost(tasks: Tasks, meter: MetricMeter) -> list[str]:
    """Waits until runs have taken a slot of workflow tasks for good, and returns them; meanwhile shows those that
    may."""
    gauge = meter.create_gauge("hostler_worker_stuck_tasks", "Workflow tasks that this worker does not get done with")
    while not (runs := tasks.stuck(LOST_AFTER)):
        gauge.set(len(tasks.stuck(GIVEN_UP_AFTER)))
        await asyncio.sleep(1)
    return runs


class Stuck(Exception):
    """The worker cannot finish a workflow task, or cannot evict a workflow from its cache."""


class HealthServer:
    """`/healthz`: the event loop runs, no worker has failed, no slot is lost. `/readyz`: Temporal also answers."""

    def __init__(self, workers: Sequence[Worker], tasks: Tasks) -> None:
        self.workers = workers
        self.tasks = tasks

    async def healthz(self, request: web.Request) -> web.Response:
        wrong = [f"not running: {w.task_queue}" for w in self.workers if not w.is_running]
        wrong += [f"does not get done with run {run}" for run in self.tasks.stuck(LOST_AFTER)]
        return web.Response(text="; ".join(wrong) or "ok", status=503 if wrong else 200)

    async def readyz(self, request: web.Request) -> web.Response:
        try:
            ok = await self.workers[0].client.service_client.check_health(timeout=timedelta(seconds=2))
        except Exception as e:  # any trouble with the connection is the answer
            return web.Response(text=f"Temporal does not answer: {cause(e)}", status=503)
        return web.Response(text="ok" if ok else "Temporal is not serving", status=200 if ok else 503)


@contextlib.asynccontextmanager
async def health_server(address: str | None, health: HealthServer) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    host, _, port = address.rpartition(":")
    app = web.Application()
    app.add_routes([web.get("/healthz", health.healthz), web.get("/readyz", health.readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or "127.0.0.1", int(port)).start()
    except OSError as e:
        await runner.cleanup()
        raise SettingsError(f"worker.health: {address} cannot be used: {e.strerror}; set another or null") from None
    try:
        yield
    finally:
        await runner.cleanup()


def _runtime(settings: Settings) -> Runtime:
    metrics = settings.worker.metrics
    if metrics is None:
        return Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=HEARTBEAT)
    # The names that other SDKs use, so that ready-made dashboards and alerts fit.
    config = PrometheusConfig(
        bind_address=metrics,
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=BUCKETS,
    )
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=config), worker_heartbeat_interval=HEARTBEAT)
    except ValueError as e:
        raise SettingsError(f"worker.metrics: {metrics} cannot be used: {e}; set another or null") from None


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging(form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    human = Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else human)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


async def serve(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT, until a worker fails, which is raised, or until it has lost a slot: Stuck."""
    runtime = _runtime(settings)
    client = await connected(settings, runtime=runtime)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    tasks = Tasks()
    async with (
        running(client, settings, tasks=tasks) as workers,
        health_server(settings.worker.health, HealthServer(workers, tasks)),
    ):
        gc.freeze()  # what is imported stays: a full collection would walk it for a quarter of a second each time
        print("worker ready:", ", ".join(w.task_queue for w in workers), flush=True)
        watch = asyncio.create_task(lost(tasks, runtime.metric_meter))
        await asyncio.wait({watch, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            runs = ", ".join(await watch)
            words = (
                "does not finish the workflow task of run %s: its slot is lost. The worker exits with code %d, to be "
                "restarted"
            )
            log.critical(words, runs, STUCK)
            _end_anyhow(settings.worker.graceful_shutdown)
            raise Stuck(runs)
        watch.cancel()
        log.info("shutting down")


def _end_anyhow(grace: timedelta) -> None:
    """Ends the process after a grace period for what is under way; the SDK itself would wait forever for the lost slot,
    and Python for its thread."""
    end = threading.Timer(grace.total_seconds() + 5, os._exit, [STUCK])
    end.daemon = True
    end.start()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m worker", description="Serves Hostler's task queues.")
    parser.add_argument(
        "--settings", type=Path, help="settings file; default: $HOSTLER_SETTINGS, .hostler/settings.yaml"
    )
    parser.add_argument("--role", action="append", choices=ROLES, help="serve only this role's queues; may be repeated")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(options.settings)
        if options.role:
            roles = settings.worker.model_copy(update={"roles": options.role})
            settings = settings.model_copy(update={"worker": roles})
        configure_logging(settings.log_format)
        asyncio.run(serve(settings))
    except (SettingsError, HostlerError) as e:
        complain(str(e))
        return 1
    except Stuck:
        return STUCK
    finally:
        time.sleep(0.1)  # the process may crash at exit right after the last call (temporalio/sdk-python#300)
    return 0


if __name__ == "__main__":
    sys.exit(main())
