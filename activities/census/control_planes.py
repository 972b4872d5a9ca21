"""Control planes in the census: each by its phase, and its machines, conditions and waits as it answers itself."""

from __future__ import annotations

from collections import Counter

from temporalio.common import MetricMeter

from activities.census.gauges import GaugeLabels, Gauges
from resources.control_plane.summary import ControlPlaneSummary


class ControlPlaneTally:
    """Control planes by labels at one moment, for one gauge each. A cluster has one, so `cluster` names it."""

    def __init__(self) -> None:
        self.sets: Counter[GaugeLabels] = Counter()
        self.machines: Counter[GaugeLabels] = Counter()
        self.quorum: Counter[GaugeLabels] = Counter()
        self.conditions: Counter[GaugeLabels] = Counter()
        self.waiting: Counter[GaugeLabels] = Counter()

    def add(self, s: ControlPlaneSummary) -> None:
        of = (("cluster", s.cluster),)
        counts = {"desired": s.replicas, "current": s.machines, "ready": s.ready, "updated": s.updated}
        for state, number in {**counts, "serving": s.serving}.items():
            self.machines[(*of, ("state", state))] = number
        self.quorum[of] = s.quorum
        for condition in s.conditions:
            self.conditions[(*of, ("condition", condition.type), ("reason", condition.reason))] = int(condition.status)
        for wait in s.waits:
            self.waiting[(*of, ("reason", wait.reason))] = 1


class ControlPlaneGauges:
    def __init__(self, meter: MetricMeter) -> None:
        self.sets = Gauges(meter.create_gauge("hostler_control_planes", "Control planes by phase and reason"))
        self.machines = Gauges(
            meter.create_gauge("hostler_control_plane_machines", "Machines of a control plane by how they are counted")
        )
        self.quorum = Gauges(
            meter.create_gauge("hostler_control_plane_quorum", "Ready machines that a control plane's majority needs")
        )
        self.conditions = Gauges(
            meter.create_gauge("hostler_control_plane_condition", "1 where a control plane's condition is true")
        )
        self.waiting = Gauges(
            meter.create_gauge("hostler_control_plane_waiting", "1 for each reason that a control plane waits for")
        )

    def show(self, tally: ControlPlaneTally) -> None:
        self.sets.show(tally.sets)
        self.machines.show(tally.machines)
        self.quorum.show(tally.quorum)
        self.conditions.show(tally.conditions)
        self.waiting.show(tally.waiting)
