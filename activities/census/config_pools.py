"""Config pools in the census: each by its phase, and its nodes and waits as it answers itself."""

from __future__ import annotations

from collections import Counter

from temporalio.common import MetricMeter

from activities.census.gauges import GaugeLabels, Gauges
from resources.machine_config.state import MachineConfigPoolState


class ConfigPoolTally:
    """Config pools by labels at one moment, for one gauge each."""

    def __init__(self) -> None:
        self.pools: Counter[GaugeLabels] = Counter()
        self.nodes: Counter[GaugeLabels] = Counter()
        self.waiting: Counter[GaugeLabels] = Counter()

    def add(self, s: MachineConfigPoolState) -> None:
        of, c = (("cluster", s.cluster), ("pool", s.name)), s.counts
        counts = {
            "total": c.machines,
            "done": c.done,
            "ready": c.ready,
            "unavailable": c.busy,
            "degraded": c.degraded,
            "underway": len(s.reservations),
            "draining": len(s.drains),
            "max_unavailable": s.most,
        }
        for state, number in counts.items():
            self.nodes[(*of, ("state", state))] = number
        for wait in s.waits:
            self.waiting[(*of, ("reason", wait.reason))] = 1


class ConfigPoolGauges:
    def __init__(self, meter: MetricMeter) -> None:
        self.pools = Gauges(meter.create_gauge("hostler_config_pools", "Config pools by phase and reason"))
        self.nodes = Gauges(
            meter.create_gauge("hostler_config_pool_nodes", "Nodes of a config pool by how they are counted")
        )
        self.waiting = Gauges(
            meter.create_gauge("hostler_config_pool_waiting", "1 for each reason that a config pool waits for")
        )

    def show(self, tally: ConfigPoolTally) -> None:
        self.pools.show(tally.pools)
        self.nodes.show(tally.nodes)
        self.waiting.show(tally.waiting)
