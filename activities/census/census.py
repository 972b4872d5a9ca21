"""The census: how many machines are in each phase, what they wait for, and whose deadline is near; how far the machines
of each class are with its changes; how each pool, control plane and config pool is; and what is preserved or drained.

Every worker of workflows reads it from Temporal's visibility once in a while and shows it as gauges. Classes, pools and
control planes are asked themselves, as their machines have no attribute for it. It is for people and alerts: nothing is
decided by it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.client import WorkflowExecution
from temporalio.common import MetricMeter

from activities.beside import beside
from activities.census.config_pools import ConfigPoolGauges, ConfigPoolTally
from activities.census.control_planes import ControlPlaneGauges, ControlPlaneTally
from activities.census.gauges import Answers, GaugeLabels, Gauges, log
from activities.census.pools import PoolGauges, PoolTally
from activities.census.preserved import PreservedGauges, PreservedTally, blocked
from activities.deps import Deps
from activities.temporal.workflows import CLASS, CONFIG_POOL, MACHINE, POOL
from resources import attributes
from resources.base import format_duration
from resources.control_plane.summary import ControlPlaneSummary
from resources.machine_class.state import ClassProgress
from resources.machine_config.state import MachineConfigPoolState
from resources.names import workflow_queue
from resources.owner import CONTROL_PLANE
from resources.pool.intents import PoolSummary

NEAR = timedelta(minutes=10)
"""The time that a person has to look before a deadline strikes."""
PAGE = 500
"""Machines on a page: they are decoded in one go, 0.1 ms each, while everything else in the worker waits."""
PAGE_TIMEOUT = timedelta(seconds=10)


class Tally:
    """Machines and classes by labels at one moment, for one gauge each."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.machines: Counter[GaugeLabels] = Counter()
        self.near: Counter[GaugeLabels] = Counter()
        self.classes: Counter[GaugeLabels] = Counter()
        self.users: Counter[GaugeLabels] = Counter()
        self.unfinished: Counter[GaugeLabels] = Counter()
        self.asked: dict[str, GaugeLabels] = {}
        """Classes that can report on their machines: workflow id to cluster and name."""
        self.pools = PoolTally()
        self.preserved = PreservedTally()
        self.asked_pools: list[str] = []
        """Their workflow ids."""
        self.control_planes = ControlPlaneTally()
        self.asked_sets: list[str] = []
        """Those of control planes."""
        self.config_pools = ConfigPoolTally()
        self.asked_config_pools: list[str] = []

    def add(self, found: WorkflowExecution) -> None:
        """A machine that was started with plain JSON has no attributes until a worker takes it up: its phase is
        empty."""
        said = found.typed_search_attributes
        cluster = said.get(attributes.CLUSTER) or _cluster_of(found.id)
        phase, reason = said.get(attributes.PHASE, ""), said.get(attributes.REASON, "")
        place, why = (("cluster", cluster), ("phase", phase)), ("reason", reason)
        if found.workflow_type == CLASS:
            self.classes[(*place, why)] += 1
            name = said.get(attributes.CLASS) or found.id.rpartition("/")[2]
            self.asked[found.id] = (("cluster", cluster), ("class", name))
            return
        if found.workflow_type == POOL:
            self.pools.pools[(*place, why)] += 1
            self.asked_pools.append(found.id)
            return
        if found.workflow_type == CONTROL_PLANE.workflow:
            self.control_planes.sets[(*place, why)] += 1
            self.asked_sets.append(found.id)
            return
        if found.workflow_type == CONFIG_POOL:
            self.config_pools.pools[(*place, why)] += 1
            self.asked_config_pools.append(found.id)
            return
        self.machines[(*place, why)] += 1
        pool, until = said.get(attributes.POOL, ""), said.get(attributes.PRESERVED_UNTIL)
        self.preserved.add(found.id, cluster, pool, phase, reason, until)
        deadline = said.get(attributes.DEADLINE)
        # It is added even when it is 0, so that the series is there before an alert needs it. A deadline in the past
        # has struck; the attribute is written again with the machine's next news.
        self.near[place] += deadline is not None and self.now <= deadline <= self.now + NEAR

    def add_progress(self, of: GaugeLabels, progress: ClassProgress) -> None:
        for state, reason, number in progress.states:
            self.users[(*of, ("state", str(state)), ("reason", reason))] += number
        since = progress.unfinished_since
        self.unfinished[of] = int(since.timestamp()) if since else 0  # 0 too, like `near`


def _cluster_of(workflow_id: str) -> str:
    parts = workflow_id.split("/")
    return parts[1] if len(parts) > 1 else ""


class Census:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps
        # Only this installation's machines: others in the namespace have workers, and numbers, of their own.
        queue = workflow_queue(deps.settings.queue_prefix)
        types = f"WorkflowType IN ('{MACHINE}', '{CLASS}', '{POOL}', '{CONTROL_PLANE.workflow}', '{CONFIG_POOL}')"
        self.query = f"{types} AND ExecutionStatus='Running' AND TaskQueue='{queue}'"
        self.machines = Gauges(deps.meter.create_gauge("hostler_machines", "Machines by phase and reason"))
        self.near = Gauges(
            deps.meter.create_gauge("hostler_deadlines_near", "Machines whose deadline strikes within 10 minutes")
        )
        self.classes = Gauges(deps.meter.create_gauge("hostler_classes", "Classes by phase and reason"))
        self.users = Gauges(
            deps.meter.create_gauge("hostler_class_machines", "Machines of a class by how far they are with it")
        )
        self.unfinished = Gauges(
            deps.meter.create_gauge(
                "hostler_class_unfinished_timestamp_seconds",
                "Unix time of a class's oldest change that a machine still has to take",
            )
        )
        self.time = deps.meter.create_gauge("hostler_census_timestamp_seconds", "Unix time of the last census")
        self.pools = PoolGauges(deps.meter)
        self.control_planes = ControlPlaneGauges(deps.meter)
        self.config_pools = ConfigPoolGauges(deps.meter)
        self.preserved = PreservedGauges(deps.meter)
        self._classes = Answers(deps, "progress", ClassProgress, "hostler_class_machines")
        self._pools = Answers(deps, "summary", PoolSummary, "hostler_pool_machines")
        self._sets = Answers(deps, "summary", ControlPlaneSummary, "hostler_control_plane_machines")
        self._config_pools = Answers(deps, "describe", MachineConfigPoolState, "hostler_config_pool_nodes")

    async def count(self) -> None:
        """Makes one listing, all pages. The gauges move only when every page has been read: half a list would look like
        machines that are gone. Raises RPCError."""
        tally = Tally(datetime.now(UTC))
        async for found in self.deps.client.list_workflows(self.query, page_size=PAGE, rpc_timeout=PAGE_TIMEOUT):
            tally.add(found)
        tally.preserved.add_drains(await blocked(self.deps.client, sorted(tally.preserved.draining)))
        self.preserved.show(tally.preserved)
        self.machines.show(tally.machines)
        self.near.show(tally.near)
        self.classes.show(tally.classes)
        for workflow_id, progress in (await self._classes.ask(sorted(tally.asked))).items():
            tally.add_progress(tally.asked[workflow_id], progress)
        self.users.show(tally.users)
        self.unfinished.show(tally.unfinished)
        for summary in (await self._pools.ask(sorted(tally.asked_pools))).values():
            tally.pools.add(summary)
        self.pools.show(tally.pools)
        for control_plane in (await self._sets.ask(sorted(tally.asked_sets))).values():
            tally.control_planes.add(control_plane)
        self.control_planes.show(tally.control_planes)
        for config_pool in (await self._config_pools.ask(sorted(tally.asked_config_pools))).values():
            tally.config_pools.add(config_pool)
        self.config_pools.show(tally.config_pools)
        self.time.set(int(tally.now.timestamp()))


@contextlib.asynccontextmanager
async def taking(deps: Deps) -> AsyncIterator[None]:
    """Takes the census beside what runs inside; not where the settings say null, as nobody would see the numbers."""
    interval = deps.settings.worker.census
    if interval is None or deps.meter is MetricMeter.noop:
        yield
        return
    trouble = (
        "machines cannot be counted: %s; until then hostler_machines and the other metrics of the census do not "
        f"change; trying again every {format_duration(interval)}. Check whether `hostler get machines -A` answers"
    )
    async with beside(Census(deps).count, interval, log, trouble, "machines are counted again"):
        yield
