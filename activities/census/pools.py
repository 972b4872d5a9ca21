"""Pools in the census: each by its phase, and its machines, repairs, rollout and waits as it answers itself."""

from __future__ import annotations

from collections import Counter

from temporalio.common import MetricMeter

from activities.census.gauges import GaugeLabels, Gauges
from resources.pool.intents import PoolSummary


class PoolTally:
    """Pools by labels at one moment, for one gauge each."""

    def __init__(self) -> None:
        self.pools: Counter[GaugeLabels] = Counter()
        self.replicas: Counter[GaugeLabels] = Counter()
        self.machines: Counter[GaugeLabels] = Counter()
        self.repairs: Counter[GaugeLabels] = Counter()
        self.old: Counter[GaugeLabels] = Counter()
        self.waiting: Counter[GaugeLabels] = Counter()
        self.preserved: Counter[GaugeLabels] = Counter()
        self.slots: Counter[GaugeLabels] = Counter()

    def add(self, s: PoolSummary) -> None:
        of = (("cluster", s.cluster), ("pool", s.name))
        self.replicas[of] = s.replicas
        self.repairs[of] = s.repairs
        for revision, phase, number in s.phases:
            self.machines[(*of, ("phase", str(phase)), ("revision", str(revision)))] += number
        if s.rollout is not None:
            old = sum(number for revision, _, number in s.phases if revision != s.rollout.revision)
            self.old[(*of, ("revision", str(s.rollout.revision)))] = old
        self.preserved[(*of, ("source", "slot"))] = s.preserved_auto
        self.preserved[(*of, ("source", "asked"))] = s.preserved - s.preserved_auto
        self.slots[(*of, ("kind", "used"))] = s.slots_used
        self.slots[(*of, ("kind", "max"))] = s.slots
        for wait in s.waits:
            self.waiting[(*of, ("reason", wait.reason))] = 1


class PoolGauges:
    def __init__(self, meter: MetricMeter) -> None:
        self.pools = Gauges(meter.create_gauge("hostler_pools", "Pools by phase and reason"))
        self.replicas = Gauges(meter.create_gauge("hostler_pool_replicas", "Machines that a pool is to have"))
        self.machines = Gauges(meter.create_gauge("hostler_pool_machines", "Machines of a pool by phase and revision"))
        self.repairs = Gauges(meter.create_gauge("hostler_pool_repairs", "Repairs of a pool in flight"))
        self.old = Gauges(
            meter.create_gauge("hostler_pool_rollout_old", "Machines of older revisions that a rollout has left")
        )
        self.waiting = Gauges(meter.create_gauge("hostler_pool_waiting", "1 for each reason that a pool waits for"))
        self.preserved = Gauges(
            meter.create_gauge("hostler_pool_preserved", "Preserved machines of a pool by who wants it: slot or asked")
        )
        self.slots = Gauges(
            meter.create_gauge("hostler_pool_preserve_slots", "autoPreserveFailedMax of a pool, and how much is in use")
        )

    def show(self, tally: PoolTally) -> None:
        self.pools.show(tally.pools)
        self.replicas.show(tally.replicas)
        self.machines.show(tally.machines)
        self.repairs.show(tally.repairs)
        self.old.show(tally.old)
        self.waiting.show(tally.waiting)
        self.preserved.show(tally.preserved)
        self.slots.show(tally.slots)
