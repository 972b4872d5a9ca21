"""The worker process of the bare side: `python bench/_bare_worker.py --settings FILE`.

It is Hostler's own worker (settings, clients, pollers, slots, sandbox, boundary, the cluster's watches) that serves the
bare workflow in place of the machine's, and one more task queue for its activities.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from datetime import timedelta
from pathlib import Path

from _bare import DEEDS_QUEUE, BareActivities, BareMachine
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from resources.settings import Settings, load_settings
from starter.sdk.connection import connect
from workflows.machine import MachineWorkflow


def deeds_worker(settings: Settings, deps: Deps) -> Worker:
    """A worker with the options that worker.build gives to every queue of activities."""
    deeds = BareActivities(deps)
    return Worker(
        deps.client,
        task_queue=DEEDS_QUEUE,
        activities=[deeds.create, deeds.post_start, deeds.join_and_ready],
        interceptors=[Boundary()],
        graceful_shutdown_timeout=settings.worker.graceful_shutdown,
        max_concurrent_activities=settings.worker.max_concurrent_activities,
        max_heartbeat_throttle_interval=timedelta(seconds=5),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(worker.POLLERS),
    )


async def serve(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    # It takes the place of Hostler's machines, and its module is passed through the sandbox, as Hostler's own are.
    workflows = [BareMachine if w is MachineWorkflow else w for w in worker.WORKFLOWS]
    vars(worker).update(WORKFLOWS=workflows, OURS=(*worker.OURS, BareMachine.__module__))
    client = await connect(settings)
    deps = Deps(settings, client)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(deps.close)
        await stack.enter_async_context(worker.running(client, settings))
        await stack.enter_async_context(deeds_worker(settings, deps))
        print("worker ready", flush=True)
        await stop.wait()
    await asyncio.sleep(0.1)  # the process may crash at exit right after the last call (temporalio/sdk-python#300)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=Path, required=True)
    worker.configure_logging("human")
    asyncio.run(serve(load_settings(parser.parse_args().settings)))
