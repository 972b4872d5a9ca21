"""Health and phase. Rows cite machine-controller-manager's cases (H…) and the design's page on machines."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import itemgetter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planners.machine.health import (
    KUBELET_REPORTS,
    Confirmation,
    Health,
    Outcome,
    confirm,
    fails_at,
    fall_ill,
    judge,
    plan_health,
)
from resources.calls.cloud import VmLook
from resources.calls.cluster import NodeLook
from resources.machine.facts import NodeFacts
from resources.machine.manifest import DEFAULT_NODE_CONDITIONS
from resources.machine.state import Illness, Look, Phase
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
    assert verdict.phase in (Phase.RUNNING, Phase.UNKNOWN)  # this plan alone never makes it Failed: I5
    if not healthy:
        assert verdict.phase == Phase.UNKNOWN
        assert verdict.healthy_since is None  # an ill moment is never counted as healthy time
    if verdict.settles_at is not None:
        assert verdict.settles_at > NOW  # never a timer in the past: the wait would not wait


# -- the looks ---------------------------------------------------------------------------------------------------------

TIMINGS = Timings()
VM = "aws:///eu-west-1/i-1"


def look(
    seconds: float, ready: str = "Unknown", lease: float = 0, vm: str = "running", changed: float = 0, **facts: object
) -> Look:
    """A look this long after the deadline."""
    seen = NodeLook(
        node=node(ready=ready == "True", **facts),
        ready=ready,
        lease_renewed=NOW + timedelta(seconds=lease),
        changed={"Ready": NOW + timedelta(seconds=changed)},
    )
    return Look(time=NOW + timedelta(seconds=seconds), node=seen, vm=VmLook(state=vm))


def confirmed(before: Look | None, now: Look) -> Confirmation:
    return confirm(before, now, VM, LISTED, NOW, TIMINGS)


def after(said: Confirmation) -> float | None:
    return (said.look_again - NOW).total_seconds() if said.look_again else None


@pytest.mark.parametrize(
    ("before", "now", "outcome", "again"),
    [
        pytest.param(None, look(-60), Outcome.UNSURE, 0, id="the first look, the second at the deadline"),
        pytest.param(None, look(300), Outcome.UNSURE, 360, id="the first look, long after the deadline"),
        pytest.param(look(0), look(1), Outcome.UNSURE, 60, id="two that are too near are one: news woke it"),
        pytest.param(look(-300), look(-200), Outcome.UNSURE, 0, id="never before the deadline, which was moved"),
        pytest.param(look(-60), look(0), Outcome.FAILED, None, id="ill in both"),
        pytest.param(look(-60), look(0, lease=50), Outcome.UNSURE, 60, id="Unknown, but the Lease has moved"),
        pytest.param(look(299, lease=1), look(360, lease=2), Outcome.FAILED, None, id="for 5 minutes: its Node counts"),
        pytest.param(look(-60, "False"), look(0, "False", lease=50), Outcome.FAILED, None, id="the kubelet's own word"),
        pytest.param(None, look(-60, "True"), Outcome.SETTLING, 0, id="healthy at the first"),
        pytest.param(look(-60), look(0, "True"), Outcome.SETTLING, 30, id="healthy after ill: it may settle, once"),
        pytest.param(look(-60, "True"), look(0, "True"), Outcome.WELL, None, id="healthy in both, and in between"),
        pytest.param(
            look(-60, "True"), look(0, "True", changed=-20), Outcome.SETTLING, 30, id="healthy again: mended in time"
        ),
        pytest.param(
            look(0, "True"), look(30, "True", changed=20), Outcome.FAILED, None, id="healthy in both, not in between"
        ),
        pytest.param(
            look(0, "True", uid="1"), look(30, "True", uid="2"), Outcome.FAILED, None, id="another Node object by then"
        ),
        pytest.param(look(-60, "True"), look(0, "False"), Outcome.FAILED, None, id="healthy, then ill: it flaps"),
        pytest.param(look(0, "True"), look(10, "False"), Outcome.UNSURE, 30, id="it may settle until then"),
        pytest.param(
            look(0, "True"), look(30, lease=50), Outcome.UNSURE, 90, id="healthy, then Unknown, and its Lease moves"
        ),
    ],
)
def test_confirm(before: Look | None, now: Look, outcome: Outcome, again: float | None) -> None:
    said = confirmed(before, now)
    assert (said.outcome, after(said)) == (outcome, again)
    assert said.message


@pytest.mark.parametrize("vm", ["gone", "stopped", "terminating"])
def test_a_kubelet_that_lives_speaks_against_the_cloud(vm: str) -> None:
    """The Node is Ready and its Lease moves: the VM runs, whatever is said of it (I5)."""
    dead = confirmed(look(-60, "True", vm=vm), look(0, "True", vm=vm))
    assert (dead.outcome, dead.gone) == (Outcome.FAILED, vm == "gone")
    lives = confirmed(look(-60, "True", vm=vm), look(0, "True", lease=50, vm=vm))
    assert (lives.outcome, lives.reason, after(lives)) == (Outcome.CONTRADICTED, "VMContradiction", 300)
    assert "renewed its Lease" in lives.message
    ill = confirmed(look(-60, "False", vm=vm), look(0, "False", lease=50, vm=vm))
    assert (ill.outcome, ill.reason, ill.gone) == (Outcome.FAILED, "NodeNotReady", False)  # by its own word


# -- any pattern -------------------------------------------------------------------------------------------------------

SLACK = TIMINGS.confirm + TIMINGS.settle
TIMEOUT = timedelta(minutes=10)
END = timedelta(hours=2)


@dataclass
class Player:
    """A machine that was Running, in a world where nothing takes time. It asks the planner as
    workflows/machine/running.py does: about what it hears, when it looks, and what becomes of it."""

    pattern: list[tuple[bool, float]]
    """Healthy or not, and for how many seconds; again and again."""
    status: str
    """The status of Ready, when it is not healthy."""
    lease_moves: bool
    phase: Phase = Phase.RUNNING
    healthy_since: datetime | None = None
    illness: Illness | None = None
    before: Look | None = None
    look_at: datetime | None = None
    verdicts: list[tuple[datetime, datetime, Phase]] = field(default_factory=list)
    """For each spell: the deadline, when it was over, and how."""

    def __post_init__(self) -> None:
        starts, total = [], timedelta(0)
        for _, seconds in self.pattern:
            starts.append(total)
            total += timedelta(seconds=seconds)
        self.changes = [
            (NOW + turn * total + start, healthy)
            for turn in range(int(END / total) + 1)
            for start, (healthy, _) in zip(starts, self.pattern, strict=True)
        ]
        self.times = [time for time, _ in self.changes]
        self.states = [(NOW, True)]
        """From when on it was healthy or not; neighbours differ."""
        for time, healthy in self.changes:
            if healthy != self.states[-1][1]:
                self.states.append((time, healthy))

    def at(self, now: datetime) -> tuple[datetime, bool]:
        """The state at that time, and since when."""
        return self.states[bisect_right(self.states, now, key=itemgetter(0)) - 1]

    def after(self, now: datetime) -> datetime:
        """The next time after this one at which the pattern goes on."""
        following = bisect_right(self.times, now)
        return self.times[following] if following < len(self.times) else NOW + END

    def play(self) -> None:
        now = NOW
        while now < NOW + END and self.phase is not Phase.FAILED:
            self.step(now)
            settles = (
                self.healthy_since + TIMINGS.settle if self.healthy_since and self.phase is Phase.UNKNOWN else None
            )
            now = min(t for t in (settles, self.look_at, self.after(now)) if t is not None and t > now)

    def step(self, now: datetime) -> None:
        since, healthy = self.at(now)
        verdict = plan_health(self.phase, WELL if healthy else ILL, self.healthy_since, now, TIMINGS.settle)
        self.healthy_since = verdict.healthy_since
        if verdict.phase is Phase.UNKNOWN and self.phase is Phase.RUNNING:
            self.illness = fall_ill(self.illness, now, TIMEOUT)
            self.look_at = fails_at(self.illness, TIMEOUT) - TIMINGS.confirm
        elif verdict.phase is Phase.RUNNING and self.phase is Phase.UNKNOWN:
            self.over(now, Phase.RUNNING)
        self.phase = verdict.phase
        if self.phase is Phase.UNKNOWN and self.look_at is not None and self.look_at <= now:
            self.look(now, since, healthy)

    def look(self, now: datetime, since: datetime, healthy: bool) -> None:
        assert self.illness is not None
        seen = NodeLook(
            node=node(ready=healthy),
            ready="True" if healthy else self.status,
            lease_renewed=now if self.lease_moves else NOW,
            changed={"Ready": since},
        )
        now_seen = Look(time=now, node=seen, vm=VmLook(state="running"))
        said = confirm(self.before, now_seen, VM, LISTED, fails_at(self.illness, TIMEOUT), TIMINGS)
        self.before, self.look_at = said.compare, said.look_again
        if said.outcome is Outcome.FAILED:
            self.over(now, Phase.FAILED)
            self.phase = Phase.FAILED
        elif said.outcome is Outcome.WELL:
            assert said.compare is not None
            self.healthy_since = min(self.healthy_since or said.compare.time, said.compare.time)
            self.look_at = now + timedelta(microseconds=1)  # the workflow's next round, at once

    def over(self, now: datetime, phase: Phase) -> None:
        assert self.illness is not None
        self.verdicts.append((fails_at(self.illness, TIMEOUT), now, phase))
        self.illness = self.illness.model_copy(update={"ended": self.healthy_since or now})
        self.before = self.look_at = None


PATTERNS = st.lists(st.tuples(st.booleans(), st.floats(1, 400).map(round)), min_size=1, max_size=8)


@given(PATTERNS, st.sampled_from(["False", "Unknown"]), st.booleans())
@example([(True, 20), (False, 20)], "False", True)
@example([(True, 29), (False, 1)], "Unknown", True)
@example([(True, 20), (False, 40)], "Unknown", False)
@settings(max_examples=300)
def test_there_is_a_verdict_for_any_pattern(pattern: list[tuple[bool, int]], status: str, lease_moves: bool) -> None:
    """A deadline is absolute, and so is the decision: by healthTimeout plus a stated bound it is Running or Failed."""
    player = Player(pattern, status, lease_moves)
    player.play()
    alive = KUBELET_REPORTS if lease_moves and status == "Unknown" else timedelta(0)
    bound = SLACK + alive + (SLACK if alive else timedelta(0))
    for deadline, over, phase in player.verdicts:
        assert over <= deadline + bound
        if phase is Phase.FAILED:
            assert over >= deadline
            well_since, healthy = player.at(over)
            assert not healthy or over - well_since < TIMINGS.confirm  # not one that has been well for long enough
    if player.phase is Phase.UNKNOWN:
        assert player.illness is not None
        assert fails_at(player.illness, TIMEOUT) + bound > NOW + END
    if max((s for healthy, s in pattern if healthy), default=0) < TIMINGS.settle.total_seconds() and not _joined(
        pattern
    ):
        assert [phase for *_, phase in player.verdicts] == ([Phase.FAILED] if any(not h for h, _ in pattern) else [])


def _joined(pattern: list[tuple[bool, int]]) -> bool:
    """Joins two healthy times that follow each other into a longer one."""
    return any(a and b for (a, _), (b, _) in pairwise([*pattern, pattern[0]]))
