"""What the census counts of a control plane, and what its alerts go by."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.census.census import Tally
from resources import attributes
from resources.control_plane.spec import State, UpdateStrategy
from resources.control_plane.state import SetCondition
from resources.control_plane.summary import ControlPlaneSummary
from resources.fleet.state import FleetWait
from resources.owner import CONTROL_PLANE

NOW = datetime(2026, 3, 1, tzinfo=UTC)
IN_DEMO = ("cluster", "demo")


def test_a_control_plane_is_counted_by_its_own_words() -> None:
    tally = Tally(NOW)
    pairs = {attributes.CLUSTER: "demo", attributes.PHASE: "Stopped", attributes.REASON: "BelowQuorum"}
    said = TypedSearchAttributes([SearchAttributePair(key, value) for key, value in pairs.items()])
    listed: Any = SimpleNamespace(
        id="controlplane/demo", workflow_type=CONTROL_PLANE.workflow, typed_search_attributes=said
    )
    tally.add(listed)
    assert tally.asked_sets == ["controlplane/demo"]
    assert not tally.machines, "it is no machine"
    assert tally.control_planes.sets == {(IN_DEMO, ("phase", "Stopped"), ("reason", "BelowQuorum")): 1}
    tally.control_planes.add(
        ControlPlaneSummary(
            name="cluster",
            cluster="demo",
            machine_class="c1",
            state=State.ACTIVE,
            strategy=UpdateStrategy.ROLLING_UPDATE,
            replicas=3,
            machines=4,
            ready=1,
            updated=1,
            quorum=2,
            serving=1,
            conditions=[
                SetCondition(type="Degraded", status=True, reason="FailedReplacement"),
                SetCondition(type="Available", status=False, reason="UnavailableReplicas"),
            ],
            waits=[FleetWait(reason="BelowQuorum", message="words", since=NOW)],
        )
    )
    found = tally.control_planes
    assert {dict(labels)["state"]: n for labels, n in found.machines.items()} == {
        "desired": 3,
        "current": 4,
        "ready": 1,
        "updated": 1,
        "serving": 1,
    }
    assert found.quorum == {(IN_DEMO,): 2}
    assert {dict(labels)["condition"]: n for labels, n in found.conditions.items()} == {"Degraded": 1, "Available": 0}
    assert found.waiting == {(IN_DEMO, ("reason", "BelowQuorum")): 1}
