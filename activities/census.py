"""The census: how many machines there are in each phase, what they wait for, and whose deadline is near.

Read from Temporal's visibility once in a while by every worker of workflows, and shown as gauges. For people and
alerts: nothing is decided by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.client import WorkflowExecution
from temporalio.common import MetricGauge, MetricMeter

from activities.deps import Deps
from resources import attributes
from resources.base import format_duration
from resources.names import workflow_queue

log = logging.getLogger("hostler.census")

NEAR = timedelta(minutes=10)
"""Time for a person to look before a deadline strikes."""
PAGE = 500
"""Machines: they are decoded in one go, 0.1 ms each, while everything else in the worker waits."""
PAGE_TIMEOUT = timedelta(seconds=10)

Labels = tuple[tuple[str, str], ...]


class Tally:
    """Machines by labels at a moment, for one gauge each."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.machines: Counter[Labels] = Counter()
        self.near: Counter[Labels] = Counter()

    def add(self, machine: WorkflowExecution) -> None:
        """One that was started with plain JSON has no attributes until a worker takes it up: its phase is empty."""
        said = machine.typed_search_attributes
        cluster = said.get(attributes.CLUSTER) or _cluster_of(machine.id)
        place = (("cluster", cluster), ("phase", said.get(attributes.PHASE, "")))
        self.machines[(*place, ("reason", said.get(attributes.REASON, "")))] += 1
        deadline = said.get(attributes.DEADLINE)
        # Added also when it is 0, so that the series is there before an alert needs it. A deadline that has passed has
        # struck; the attribute is written anew with the machine's next news.
        self.near[place] += deadline is not None and self.now <= deadline <= self.now + NEAR


def _cluster_of(workflow_id: str) -> str:
    parts = workflow_id.split("/")
    return parts[1] if len(parts) > 1 else ""


class Gauges:
    """One gauge with many series. One that is counted no more goes to 0: it would stay at its last value for ever."""

    def __init__(self, gauge: MetricGauge) -> None:
        self._gauge = gauge
        self._shown: set[Labels] = set()

    def show(self, counted: Counter[Labels]) -> None:
        for labels in self._shown - set(counted):
            self._gauge.set(0, dict(labels))
        for labels, number in counted.items():
            self._gauge.set(number, dict(labels))
        self._shown = set(counted)


class Census:
    def __init__(self, deps: Deps) -> None:
        self.client = deps.client
        # Of this installation's machines only: others in the namespace have workers, and numbers, of their own.
        queue = workflow_queue(deps.settings.queue_prefix)
        self.query = f"WorkflowType='MachineWorkflow' AND ExecutionStatus='Running' AND TaskQueue='{queue}'"
        self.machines = Gauges(deps.meter.create_gauge("hostler_machines", "Machines by phase and reason"))
        self.near = Gauges(
            deps.meter.create_gauge("hostler_deadlines_near", "Machines whose deadline strikes within 10 minutes")
        )
        self.time = deps.meter.create_gauge("hostler_census_timestamp_seconds", "Unix time of the last census")

    async def count(self) -> None:
        """One listing, all pages. The gauges move only when every page has been read: half a list would look like
        machines that are gone. Raises RPCError."""
        tally = Tally(datetime.now(UTC))
        async for machine in self.client.list_workflows(self.query, page_size=PAGE, rpc_timeout=PAGE_TIMEOUT):
            tally.add(machine)
        self.machines.show(tally.machines)
        self.near.show(tally.near)
        self.time.set(int(tally.now.timestamp()))

    async def run(self, interval: timedelta) -> None:
        """Until it is cancelled. A failure is said once and tried again: a census must never stop a worker."""
        failing = False
        while True:
            try:
                await self.count()
                if failing:
                    log.info("machines are counted again")
                failing = False
            except Exception as e:
                if not failing:
                    log.warning(
                        "machines cannot be counted: %s; the metrics hostler_machines and hostler_deadlines_near stand "
                        "still meanwhile; trying again every %s. See whether `hostler get machines -A` answers",
                        e or type(e).__name__,
                        format_duration(interval),
                    )
                failing = True
            await asyncio.sleep(interval.total_seconds())


@contextlib.asynccontextmanager
async def taking(deps: Deps) -> AsyncIterator[None]:
    """The census beside what runs inside; not where the settings say null, or nobody would see the numbers."""
    interval = deps.settings.worker.census
    if interval is None or deps.meter is MetricMeter.noop:
        yield
        return
    task = asyncio.create_task(Census(deps).run(interval), name="census")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
