"""Health and phase. Rows cite machine-controller-manager's cases (H…) and the design's page on machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.health import Health, Outcome, confirm, judge, plan_health
from resources.machine import Look, Phase
from resources.manifests import DEFAULT_NODE_CONDITIONS
from resources.messages import NodeFacts, NodeLook, VmLook
from resources.timings import Timings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE = timedelta(seconds=30)
LISTED = list(DEFAULT_NODE_CONDITIONS)


def node(**fields: object) -> NodeFacts:
    return NodeFacts.model_validate({"epoch": 1, "seq": 1, "exists": True, "name": "n", "ready": True, **fields})


@pytest.mark.parametrize(
    ("facts", "healthy", "reason"),
    [
        pytest.param(None, False, "NodeNotSeen", id="no node yet: H14, no conditions at all are unhealthy"),
        pytest.param(node(), True, "NodeHealthy", id="Ready: H7"),
        pytest.param(node(exists=False), False, "NodeMissing", id="node object deleted: H6"),
        pytest.param(node(ready=False, reason="NodeStatusUnknown"), False, "NodeNotReady", id="kubelet silent: H4"),
        pytest.param(node(conditions={"DiskPressure": "True"}), False, "NodeUnhealthy", id="listed condition True: H5"),
        pytest.param(node(conditions={"DiskPressure": "Unknown"}), False, "NodeUnhealthy", id="listed, Unknown: H14"),
        pytest.param(node(conditions={"MemoryPressure": "True"}), True, "NodeHealthy", id="not listed: H14"),
        pytest.param(node(unschedulable=True), True, "NodeHealthy", id="a cordon is no illness: I10"),
    ],
)
def test_judge(facts: NodeFacts | None, healthy: bool, reason: str) -> None:
    health = judge(facts, LISTED)
    assert (health.healthy, health.reason) == (healthy, reason)
    assert health.message


WELL = Health(True, "NodeHealthy", "")
ILL = Health(False, "NodeNotReady", "")


@pytest.mark.parametrize(
    ("phase", "health", "since", "expected", "settles_at"),
    [
        pytest.param(Phase.RUNNING, WELL, None, Phase.RUNNING, None, id="stays"),
        pytest.param(Phase.RUNNING, ILL, None, Phase.UNKNOWN, None, id="unhealthy is Unknown at once: H4"),
        pytest.param(Phase.UNKNOWN, ILL, NOW, Phase.UNKNOWN, None, id="ill again while settling: it starts anew"),
        pytest.param(Phase.UNKNOWN, WELL, None, Phase.UNKNOWN, NOW + SETTLE, id="healthy for a moment: settling"),
        pytest.param(
            Phase.UNKNOWN, WELL, NOW - SETTLE / 2, Phase.UNKNOWN, NOW + SETTLE / 2, id="settling goes on, not anew"
        ),
        pytest.param(Phase.UNKNOWN, WELL, NOW - SETTLE, Phase.RUNNING, None, id="settled: Running again: H7"),
    ],
)
def test_plan_health(
    phase: Phase, health: Health, since: datetime | None, expected: Phase, settles_at: datetime | None
) -> None:
    verdict = plan_health(phase, health, since, NOW, SETTLE)
    assert (verdict.phase, verdict.settles_at) == (expected, settles_at)


@given(
    st.sampled_from([Phase.RUNNING, Phase.UNKNOWN]),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 120)),
    st.integers(1, 60),
)
def test_plan_health_over_all_cells(phase: Phase, healthy: bool, ago: int | None, settle: int) -> None:
    since = None if ago is None else NOW - timedelta(seconds=ago)
    verdict = plan_health(phase, WELL if healthy else ILL, since, NOW, timedelta(seconds=settle))
    assert verdict.phase in (Phase.RUNNING, Phase.UNKNOWN)  # never Failed by this plan alone: I5
    if not healthy:
        assert verdict.phase == Phase.UNKNOWN
        assert verdict.healthy_since is None  # an ill moment is never counted as healthy time
    if verdict.settles_at is not None:
        assert verdict.settles_at > NOW  # never a timer that has passed already: the wait would not wait


def test_two_looks_that_are_too_near_are_one() -> None:
    """A workflow's time may be older than the news it hears, when a query woke a worker that was away."""

    def look(seconds: int) -> Look:
        seen = NodeLook(node=node(ready=False), ready="Unknown", lease_renewed=NOW)
        return Look(time=NOW + timedelta(seconds=seconds), node=seen, vm=VmLook(state="running"))

    near = confirm(look(0), look(1), "aws:///eu-west-1/i-1", LISTED, NOW, Timings())
    assert (near.outcome, near.look_again) == (Outcome.UNSURE, NOW + Timings().confirm)
    apart = confirm(look(0), look(60), "aws:///eu-west-1/i-1", LISTED, NOW, Timings())
    assert apart.outcome == Outcome.FAILED
