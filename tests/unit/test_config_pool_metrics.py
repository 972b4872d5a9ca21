"""What the census counts of a config pool."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.census.census import Tally
from resources import attributes
from resources.fleet.state import FleetWait
from resources.machine_config.state import MachineConfigPoolState, Reservation
from resources.machine_config.view import ConfigCounts

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_config_pool_is_counted_by_its_own_words() -> None:
    tally = Tally(NOW)
    pairs = {attributes.CLUSTER: "demo", attributes.PHASE: "Degraded", attributes.REASON: "NodesUpdating"}
    said = TypedSearchAttributes([SearchAttributePair(key, value) for key, value in pairs.items()])
    listed: Any = SimpleNamespace(
        id="machineconfigpool/demo/worker", workflow_type="MachineConfigPoolWorkflow", typed_search_attributes=said
    )
    tally.add(listed)
    assert tally.asked_config_pools == ["machineconfigpool/demo/worker"]
    assert not tally.machines, "it is no machine"
    in_demo = ("cluster", "demo")
    assert tally.config_pools.pools == {(in_demo, ("phase", "Degraded"), ("reason", "NodesUpdating")): 1}
    tally.config_pools.add(
        MachineConfigPoolState(
            name="worker",
            cluster="demo",
            most=2,
            counts=ConfigCounts(machines=5, done=2, ready=4, busy=1, degraded=1),
            reservations={"n0": Reservation("u", "v1", NOW)},
            waits=[FleetWait(reason="NodesUpdating", message="words", since=NOW)],
        )
    )
    assert {dict(labels)["state"]: n for labels, n in tally.config_pools.nodes.items()} == {
        "total": 5,
        "done": 2,
        "ready": 4,
        "unavailable": 1,
        "degraded": 1,
        "underway": 1,
        "draining": 0,
        "max_unavailable": 2,
    }
    assert tally.config_pools.waiting == {(in_demo, ("pool", "worker"), ("reason", "NodesUpdating")): 1}
