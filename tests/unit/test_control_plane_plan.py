"""The plan of a control plane: given machines by index, when one plan is made, then its steps and waits.

Machines are written as in tests/kits/control_plane/cases.py. Rows with an id are from OpenShift's tests.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from control_plane.cases import NOW, host, observed
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.control_plane.plan import plan
from planners.control_plane.status import is_ready, status
from planners.control_plane.view import Observed
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, LiftHold, Plan
from resources.control_plane.spec import State, UpdateStrategy
from resources.fleet.revision import Pace
from resources.machine.state import Phase


def said(made: Plan) -> list[str]:
    """Steps and waits in short: create 1, delete cp-O0-1, lift …, and reasons of waits."""
    words = []
    for step in made.steps:
        match step:
            case Create(placement=placement) if placement is not None:
                words.append(f"create {placement.index}")
            case Delete(names=names):
                words.append(f"delete {' '.join(names)}")
            case LiftHold(names=names):
                words.append(f"lift {' '.join(names)}")
            case GrantPermit(names=names):
                words.append(f"permit {' '.join(names)}")
            case GrantPreservation(names=names):
                words.append(f"preserve {' '.join(names)}")
    return words + [w.reason for w in made.waits]


U = {0: "U", 1: "U", 2: "U"}
ROLLING: list[tuple[str, dict[int, str], list[str]]] = [
    ("C-R01 all up to date", U, []),
    ("C-R02 one is outdated", {**U, 1: "O"}, ["create 1"]),
    ("C-R05 its replacement comes", {**U, 1: "O P"}, ["ReplacementComing"]),
    ("C-R06 its replacement is ready", {**U, 1: "O U"}, ["delete cp-O0-1"]),
    ("C-R09 an outdated one that is not ready, alone", {**U, 1: "On"}, ["create 1"]),
    ("C-R11 the next index waits", {0: "O P", 1: "O", 2: "U"}, ["ReplacementComing"]),
    ("C-R13 a deletion in one, none made in another", {0: "O U", 1: "O", 2: "U"}, ["delete cp-O0-0"]),
    ("the next index waits until the old one is gone", {0: "Og U", 1: "O", 2: "U"}, ["ReplacementComing"]),
    ("C-R15, C-V09 an empty index", {0: "U", 1: "U"}, ["create 2"]),
    ("C-R17 by the seed: the empty index first, and nothing beside it", {0: "U", 1: "O"}, ["create 2"]),
    ("C-R19 by the seed: one index at a time", {0: "O U", 1: "O U"}, ["delete cp-O0-0", "SurgeUsed"]),
    ("C-R22 two that are up to date: the older goes", {**U, 1: "U U"}, ["delete cp-U0-1"]),
    ("C-R23 by the seed: in one index at a time", {0: "U U", 1: "U U", 2: "U"}, ["delete cp-U0-0"]),
    ("C-R25 a roll-back: what never became ready goes", {0: "O On", 1: "O", 2: "O"}, ["delete cp-On1-0"]),
    ("C-R26 a person deletes one", {**U, 1: "Ud"}, ["create 1", "WaitsForReplacement"]),
    ("C-R27 its replacement comes", {**U, 1: "Ud P"}, ["WaitsForReplacement", "ReplacementComing"]),
    ("its replacement is ready", {**U, 1: "Ud U"}, ["lift cp-Ud0-1", "ReplacementComing"]),
    ("a person deletes all: surge is one", {0: "Ud", 1: "Ud", 2: "Ud"}, ["create 0", "WaitsForReplacement"]),
    ("a deletion comes before an outdated one", {0: "O", 1: "U", 2: "Ud"}, ["create 2", "WaitsForReplacement"]),
    ("what is not ready comes before what is", {0: "O", 1: "On", 2: "U"}, ["create 1"]),
    ("a leaving machine is no replacement (upstream A3)", {**U, 1: "U Ud"}, ["lift cp-Ud1-1", "ReplacementComing"]),
    ("a surplus pair of which one leaves is left alone", {**U, 1: "U Ug"}, ["ReplacementComing"]),
    ("below quorum nobody goes", {0: "O U", 1: "Un", 2: "Un"}, ["BelowQuorum", "ReplacementComing"]),
    (
        "what waits for a replacement holds up nobody who makes room for it",
        {0: "O U", 1: "Ud", 2: "Ud"},
        ["delete cp-O0-0", "WaitsForReplacement"],
    ),
    (
        "a replacement that falls ill makes room for another one",
        {**U, 1: "Ud Un", 2: "U"},
        ["WaitsForReplacement", "ReplacementComing"],
    ),
    ("and goes when it is deleted", {**U, 1: "Ud Und"}, ["lift cp-Und1-1", "WaitsForReplacement", "SurgeUsed"]),
    ("one leaves at a time", {0: "O U", 1: "Ug U", 2: "U"}, ["ControlPlaneLeaving", "ReplacementComing"]),
    ("one is drained at a time", {0: "Ud U", 1: "Ug U", 2: "U"}, ["ControlPlaneLeaving", "ReplacementComing"]),
    ("what never ran goes at once", {**U, 1: "U Pd"}, ["lift cp-Pd1-1", "ReplacementComing"]),
    ("a forced deletion is obeyed", {**U, 1: "Ud!"}, ["lift cp-Ud!0-1", "create 1"]),
    ("an unhealthy one is replaced", {**U, 1: "Una"}, ["delete cp-Una0-1"]),
    (
        "an unhealthy one without a quorum is a person's",
        {0: "U", 1: "Una", 2: "Una"},
        ["BelowQuorum", "ReplacementComing"],
    ),
    ("an unhealthy one waits its turn", {0: "Ug U", 1: "Una", 2: "U"}, ["ControlPlaneLeaving", "ReplacementComing"]),
    ("an unhealthy one that somebody wants to keep is not deleted", {**U, 1: "Unaw"}, ["permit cp-Unaw0-1"]),
    (
        "nor without a quorum, nor before its turn",
        {0: "U", 1: "Unaw", 2: "Una"},
        ["BelowQuorum", "ReplacementComing"],
    ),
    ("it is replaced like one that leaves", {**U, 1: "Undw"}, ["create 1", "WaitsForReplacement"]),
    ("and drained when its replacement is ready", {**U, 1: "Undw U"}, ["lift cp-Undw0-1", "ReplacementComing"]),
    ("C-V03 NoReadyMachines", {0: "Un", 1: "Un", 2: "Un"}, ["NoReadyMachines"]),
    ("ExcessIndexes (C-R21)", {0: "O", 1: "O", 2: "O", 3: "O"}, ["ExcessIndexes"]),
    ("C-V07 FailedReplacement", {**U, 1: "O Pf"}, ["FailedReplacement"]),
    ("a failed machine alone in its index closes no gate", {**U, 1: "Pf"}, ["ReplacementComing"]),
    (
        "the template is changed again, and both are ready: one makes room (upstream stands still)",
        {**U, 1: "O O"},
        ["delete cp-O0-1"],
    ),
    ("the template is changed again: what failed is outdated and goes", {**U, 1: "O Onf"}, ["delete cp-Onf1-1"]),
]
ON_DELETE: list[tuple[str, dict[int, str], list[str]]] = [
    ("C-D01 all up to date", U, []),
    ("C-D02 outdated", {**U, 1: "O"}, ["DeleteToReplace"]),
    ("C-D03 outdated and deleted", {**U, 1: "Od"}, ["create 1", "WaitsForReplacement"]),
    ("C-D05 by their own numbers", {3: "U", 4: "Od", 5: "U"}, ["create 4", "WaitsForReplacement"]),
    ("C-D07 its replacement comes", {**U, 1: "Od P"}, ["WaitsForReplacement", "ReplacementComing"]),
    ("C-D09 two outdated", {0: "O", 1: "O", 2: "U"}, ["DeleteToReplace"]),
    ("C-D11 two deleted: no surge limit", {0: "Od", 1: "Od", 2: "U"}, ["create 0", "create 1", "WaitsForReplacement"]),
    ("C-D13", {0: "Od U", 1: "Od P", 2: "U"}, ["lift cp-Od0-0", "WaitsForReplacement", "ReplacementComing"]),
    ("C-D15 an empty index", {0: "U", 1: "U"}, ["create 2"]),
    ("C-D17", {0: "U", 1: "O"}, ["create 2", "DeleteToReplace"]),
    (
        "the replacement is deleted too: another one",
        {**U, 1: "Od Pd"},
        ["lift cp-Pd1-1", "create 1", "WaitsForReplacement"],
    ),
    ("ExcessUpdatedReplicas", {**U, 1: "U U"}, ["ExcessUpdatedReplicas"]),
    ("an unhealthy one is replaced", {**U, 1: "Una"}, ["delete cp-Una0-1"]),
]


@pytest.mark.parametrize(("indexes", "then"), [r[1:] for r in ROLLING], ids=[r[0] for r in ROLLING])
def test_rolling_update(indexes: dict[int, str], then: list[str]) -> None:
    assert said(plan(observed(indexes), NOW)) == then


@pytest.mark.parametrize(("indexes", "then"), [r[1:] for r in ON_DELETE], ids=[r[0] for r in ON_DELETE])
def test_on_delete(indexes: dict[int, str], then: list[str]) -> None:
    assert said(plan(observed(indexes, strategy=UpdateStrategy.ON_DELETE), NOW)) == then


def test_what_is_kept_holds_up_nothing() -> None:
    """Once it is drained it gets our word, and is none of the machines that are counted."""
    rest = replace(observed({**U, 1: "O"}), granting=("cp-x-2",), preserved=("cp-x-2",))
    assert said(plan(rest, NOW)) == ["preserve cp-x-2", "create 1", "FailedPreserved"]
    closed = replace(rest, unmanaged=("n1",))
    assert said(plan(closed, NOW)) == ["preserve cp-x-2", "UnmanagedNodes", "FailedPreserved"], "it destroys nothing"


def test_missing_indexes_are_filled_from_the_lowest() -> None:
    """C-V11, C-V13."""
    assert said(plan(observed({2: "U", 3: "U", 4: "U"}, replicas=5), NOW)) == ["create 0", "create 1"]
    assert list(observed({0: "U U U"}).indexes) == [0, 1, 2]
    assert list(observed({0: "U U U"}, replicas=1).indexes) == [0]


def test_unmanaged_nodes_close_the_gate() -> None:
    """C-V05."""
    assert said(plan(observed({**U, 1: "O"}, unmanaged=("master-3",)), NOW)) == ["UnmanagedNodes"]


def test_what_stops_all_changes() -> None:
    there = observed({**U, 1: "O"})
    assert said(plan(replace(there, state=State.INACTIVE), NOW)) == ["Inactive"]
    assert said(plan(replace(there, unseen="the API server does not answer"), NOW)) == ["Unreachable"]
    paused = plan(replace(there, paused="somebody paused the cluster"), NOW)
    assert said(paused) == ["ClusterPaused"]
    assert "a machine is created for index 1" in paused.waits[0].message
    assert said(plan(replace(there, deleted=True), NOW)) == []


def test_a_paused_one_says_the_worst_first_and_no_pace() -> None:
    """A person who paused it must still see that it lacks its quorum, and is not what keeps machines from coming."""
    paused = {"paused": "alice paused it", "paused_alone": True}
    slowed = Pace(revision=1, until=NOW + timedelta(minutes=5), reason="OutOfCapacity", message="no capacity")
    assert said(plan(observed({**U, 1: "O"}, pace=slowed, **paused), NOW)) == ["RolloutPaused"]
    assert said(plan(observed({0: "U"}, pace=Pace(revision=1), **paused), NOW)) == ["RolloutPaused"]
    ill = observed({0: "U", 1: "Una", 2: "Un"}, replicas=4, **paused)
    assert said(plan(ill, NOW)) == ["BelowQuorum", "RolloutPaused"]
    former = replace(ill, worst_first=False)
    assert said(plan(former, NOW)) == ["RolloutPaused", "BelowQuorum"], "a run that began before decides as it did"


def test_a_frozen_cluster_begins_no_replacement() -> None:
    """What has begun ends, a missing index is filled, and an unhealthy machine is replaced."""
    frozen = {"frozen": "since noon by alice"}
    held = plan(observed({**U, 1: "O"}, **frozen), NOW)
    assert said(held) == ["Frozen"]
    assert held.waits[0].message == "Frozen since noon by alice: no replacement begins for index 1"
    for indexes, then in (({**U, 1: "Una"}, ["delete cp-Una0-1"]), ({0: "U", 1: "U"}, ["create 2"])):
        assert said(plan(observed(indexes, **frozen), NOW)) == then
    assert said(plan(observed({**U, 1: "O U"}, **frozen), NOW)) == said(plan(observed({**U, 1: "O U"}), NOW))


def test_a_back_off_holds_creations_back() -> None:
    until = NOW + timedelta(minutes=5)
    slowed = Pace(revision=1, window=1, until=until, reason="Capacity", message="no capacity in zone a")
    made = plan(observed({**U, 1: "O"}, pace=slowed), NOW)
    assert (said(made), made.next_look) == (["Capacity"], until)
    assert said(plan(observed({0: "U"}, pace=Pace(revision=1)), NOW)) == ["create 1", "SlowStart"]


# -- whatever the state -----------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["U", "Un", "O", "On", "P", "Pf", "Ud", "Und", "Od", "Ug", "Og", "Pd", "Una", "Una"])
CELLS = st.lists(WORDS, max_size=3).map(" ".join)
WORLDS = st.tuples(
    st.sampled_from([3, 5]), st.sampled_from(list(UpdateStrategy)), st.lists(CELLS, min_size=3, max_size=6)
)


def carry_out(there: Observed, made: Plan) -> Observed:
    hosts = list(there.hosts)
    for step in made.steps:
        match step:
            case Create(placement=placement):
                assert placement is not None
                assert placement.index is not None
                hosts.append(host(placement.index, len(hosts), "P"))
            case Delete(names=names):
                hosts = [replace(h, leaving=True, held=True, asks=False) if h.name in names else h for h in hosts]
            case LiftHold(names=names):
                hosts = [replace(h, held=False) if h.name in names else h for h in hosts]
    return replace(there, hosts=tuple(hosts))


@given(WORLDS)
@settings(max_examples=400, deadline=None)
def test_no_plan_breaks_the_rules(world: tuple[int, UpdateStrategy, list[str]]) -> None:
    """I14: never below quorum by our hand, never the sole machine of an index, one leaving at a time, and surge."""
    replicas, strategy, cells = world
    there = observed(dict(enumerate(cells)), replicas=replicas, strategy=strategy)
    after = there
    for _ in range(20):
        made = plan(after, NOW)
        if not made.steps:
            break
        before, after = after, carry_out(after, made)
        for step in made.steps:
            if isinstance(step, LiftHold):
                _may_go(before, step)
            if isinstance(step, Delete):
                assert not any(h.leaving and not h.held for h in before.hosts)
        if strategy is UpdateStrategy.ROLLING_UPDATE and any(isinstance(s, Create) for s in made.steps):
            assert len(after.hosts) <= replicas + 1
    else:
        pytest.fail("a plan that is carried out and made again does not come to nothing")


def _may_go(before: Observed, step: LiftHold) -> None:
    (name,) = step.names
    gone = next(h for h in before.hosts if h.name == name)
    if not gone.joined:
        return
    beside = [h for h in before.hosts if h.index == gone.index and h is not gone]
    assert any(h.ready and (not h.leaving or (h.held and not gone.ready)) for h in beside)
    assert not any(h.leaving and not h.held and h.joined for h in before.hosts)
    if gone.ready:
        assert before.serving - 1 >= before.quorum


# -- what it says of itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indexes", "counts", "reasons"),
    [
        pytest.param(U, (3, 3, 3, 0), ("AllReplicasAvailable", "AsExpected", "AllReplicasUpdated"), id="C-S01, C-V01"),
        pytest.param(
            {0: "U", 1: "O P", 2: "O P"},
            (5, 3, 1, 0),
            ("AllReplicasAvailable", "AsExpected", "NeedsUpdateReplicas"),
            id="C-S03",
        ),
        pytest.param({}, (0, 0, 0, 3), ("UnavailableReplicas", "NoReadyMachines", "OperatorDegraded"), id="C-S05"),
        pytest.param(
            {0: "U", 1: "O U", 2: "On P"},
            (5, 3, 2, 1),
            ("UnavailableReplicas", "AsExpected", "NeedsUpdateReplicas"),
            id="C-S07",
        ),
        pytest.param(
            {0: "U", 1: "O U", 2: "U"}, (4, 4, 3, 0), ("AllReplicasAvailable", "AsExpected", "ExcessReplicas"), id="old"
        ),
        pytest.param(
            {0: "U", 1: "On U", 2: "U"},
            (4, 3, 3, 0),
            ("AllReplicasAvailable", "AsExpected", "ExcessReplicas"),
            id="an old one that is not ready is not forgotten (upstream says AllReplicasUpdated)",
        ),
        pytest.param(
            {0: "U U", 1: "O", 2: "U"},
            (4, 4, 3, 0),
            ("AllReplicasAvailable", "AsExpected", "NeedsUpdateReplicas"),
            id="two in one index hide no other (upstream)",
        ),
    ],
)
def test_status(indexes: dict[int, str], counts: tuple[int, int, int, int], reasons: tuple[str, ...]) -> None:
    found = status(observed(indexes))
    assert (found.replicas, found.ready, found.updated, found.unavailable) == counts
    assert tuple(c.reason for c in found.conditions) == reasons


@pytest.mark.parametrize(
    ("phase", "node_ready", "minutes", "then"),
    [
        pytest.param(Phase.RUNNING, True, None, True, id="running"),
        pytest.param(Phase.TERMINATING, True, None, True, id="C-P01"),
        pytest.param(Phase.TERMINATING, False, 1, False, id="leaving, its Node is not Ready"),
        pytest.param(Phase.UNKNOWN, False, 5, True, id="C-P03"),
        pytest.param(Phase.UNKNOWN, False, 25, False, id="C-P03, too long"),
        pytest.param(Phase.PENDING, True, None, False, id="pending"),
        pytest.param(Phase.FAILED, False, 1, False, id="failed"),
    ],
)
def test_ready(phase: Phase, node_ready: bool, minutes: int | None, then: bool) -> None:
    since = None if minutes is None else NOW - timedelta(minutes=minutes)
    assert is_ready(phase, node_ready, since, NOW) is then
