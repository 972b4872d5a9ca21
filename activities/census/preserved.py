"""Preserved machines and drains in the census: how many there are, which preservation ends next, which drain is held
up."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.service import RPCError, RPCStatusCode

from activities.census.gauges import ASKED_AT_ONCE, TIMEOUT, GaugeLabels, Gauges

DRAINING = "Draining"
"""The reason of a machine whose Node is being drained (workflows.machine.terminate)."""
DRAIN = "drain_node"
RUNNING, BLOCKED = "running", "blocked"


class PreservedTally:
    """Machines by labels at one moment, for one gauge each. Clusters with machines are counted even as 0, so that a
    series is there before an alert needs it."""

    def __init__(self) -> None:
        self.preserved: Counter[GaugeLabels] = Counter()
        self.ends: Counter[GaugeLabels] = Counter()
        self.drains: Counter[GaugeLabels] = Counter()
        self.draining: dict[str, str] = {}
        """Workflow id to cluster."""

    def add(self, workflow_id: str, cluster: str, pool: str, phase: str, reason: str, until: datetime | None) -> None:
        of = (("cluster", cluster), ("pool", pool))
        self.preserved[(*of, ("phase", phase.partition(":")[0]))] += until is not None
        ends = int(until.timestamp()) if until else 0
        self.ends[of] = min(filter(None, (self.ends[of], ends)), default=0)
        for state in (RUNNING, BLOCKED):
            self.drains[_drain(cluster, state)] += 0
        if reason == DRAINING:
            self.draining[workflow_id] = cluster

    def add_drains(self, blocked: dict[str, bool]) -> None:
        for workflow_id, held_up in blocked.items():
            self.drains[_drain(self.draining[workflow_id], BLOCKED if held_up else RUNNING)] += 1


def _drain(cluster: str, state: str) -> GaugeLabels:
    return (("cluster", cluster), ("state", state))


class PreservedGauges:
    def __init__(self, meter: MetricMeter) -> None:
        self.preserved = Gauges(
            meter.create_gauge("hostler_machines_preserved", "Preserved machines by pool and phase")
        )
        self.ends = Gauges(
            meter.create_gauge(
                "hostler_preservation_ends_timestamp_seconds", "Unix time at which a pool's next preservation ends"
            )
        )
        self.drains = Gauges(meter.create_gauge("hostler_drains", "Drains, running or blocked"))

    def show(self, tally: PreservedTally) -> None:
        self.preserved.show(tally.preserved)
        self.ends.show(tally.ends)
        self.drains.show(tally.drains)


async def blocked(client: Client, ids: list[str]) -> dict[str, bool]:
    """Whether a drain that is under way has an eviction refused. The drain itself says so in its heartbeat, which the
    server keeps: a machine's workflow hears nothing of it until the drain is over. Raises RPCError."""
    slots = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(workflow_id: str) -> bool | None:
        try:
            async with slots:
                found = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=TIMEOUT)
        except RPCError as e:
            if e.status is RPCStatusCode.NOT_FOUND:
                return None  # gone since it was listed
            raise
        for pending in found.raw_description.pending_activities:
            if pending.activity_type.name == DRAIN:
                details = await client.data_converter.decode(list(pending.heartbeat_details.payloads))
                return bool(details and _refused(details[0]))
        return None

    said = await asyncio.gather(*map(one, ids))
    return {workflow_id: held_up for workflow_id, held_up in zip(ids, said, strict=True) if held_up is not None}


def _refused(progress: Any) -> bool:
    """Whether an eviction was refused, read from what activities.drain.memory keeps from one pass to the next."""
    return isinstance(progress, dict) and bool(progress.get("refused"))
