"""Machines that are lent to config pools: one budget with a pool of machines, order with the control plane."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pools.planner import EPOCH, member, spec

from planners.control_plane.lending import refusal_to_lend as control_plane_refusal
from planners.control_plane.plan import plan as control_plane_plan
from planners.control_plane.view import Host, Observed
from planners.fleet.steps import Create, Delete
from planners.pool.lending import refusal_to_lend
from planners.pool.plan import plan
from planners.pool.view import ObservedPool, View
from resources.control_plane.etcd import EtcdMember, EtcdView
from resources.control_plane.spec import UpdateStrategy
from resources.machine.state import Phase
from resources.pool.state import Rollout

NOW = EPOCH + timedelta(hours=1)


def pool(*phases: Phase, lent: tuple[str, ...] = (), revision: int = 1, **more: Any) -> ObservedPool:
    members = {f"m{i}": member(1, phase) for i, phase in enumerate(phases)}
    return ObservedPool(members=members, revision=revision, lent=frozenset(lent), **more)


ONE = "maxUnavailable lets 1 machine be unavailable, and"
R, U, T = Phase.RUNNING, Phase.UNKNOWN, Phase.TERMINATING


@pytest.mark.parametrize(
    ("observed", "replicas", "most", "words"),
    [
        pytest.param(pool(R, R, R), 3, 1, "", id="all are there"),
        pytest.param(pool(R, R, R), 3, 0, "", id="one at least, or no node could ever update"),
        pytest.param(
            pool(R, R, R, lent=("m1",)),
            3,
            1,
            f"{ONE} unavailable or lent: m1",
        ),
        pytest.param(pool(R, R, R, lent=("m1",)), 3, 2, "", id="there is room for two"),
        pytest.param(pool(R, U, R), 3, 1, f"{ONE} unavailable or lent: m1"),
        pytest.param(pool(U, R, R), 3, 1, "", id="it is unavailable itself"),
        pytest.param(pool(R, R), 3, 1, f"{ONE} 1 machine still to come"),
        pytest.param(pool(T, R, R), 2, 1, "m0 leaves, or is not the pool's", id="it leaves"),
        pytest.param(pool(), 1, 1, "m0 leaves, or is not the pool's", id="unknown"),
    ],
)
def test_what_a_pool_lends(observed: ObservedPool, replicas: int, most: int, words: str) -> None:
    view = View(observed, spec(replicas, surge=1, unavailable=most), NOW)
    assert refusal_to_lend(view, "m0") == words


def test_a_rollout_counts_lent_machines_as_unavailable() -> None:
    """One of three is lent, with one unavailable at most: no other one is replaced until it is back."""
    rolling = Rollout(revision=2, began=NOW, progress_at=NOW, old_left=3)
    limits = spec(3, surge=0, unavailable=1)
    made = plan(pool(R, R, R, revision=2, rollout=rolling), limits, NOW)
    assert [s.names for s in made.steps if isinstance(s, Delete)] == [("m0",)]
    made = plan(pool(R, R, R, revision=2, rollout=rolling, lent=("m2",)), limits, NOW)
    assert [s for s in made.steps if isinstance(s, Delete)] == []
    (wait,) = [w for w in made.waits if w.reason == "MachinesLent"]
    assert "1 machine lent to a config pool (m2)" in wait.message


# -- the control plane ------------------------------------------------------------------------------------------------

BORN = datetime(2026, 1, 1, tzinfo=UTC)


def hosts(*changes: dict[str, Any]) -> Observed:
    found = tuple(Host(name=f"m{i}", index=i, created=BORN, **change) for i, change in enumerate(changes))
    return Observed(replicas=3, strategy=UpdateStrategy.ROLLING_UPDATE, hosts=found)


WELL: dict[str, Any] = {}
THREE = hosts(WELL, WELL, WELL)


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        pytest.param(THREE, "", id="all are ready"),
        pytest.param(hosts({"outdated": "machineType"}, WELL, WELL), "", id="a replacement that has not begun waits"),
        pytest.param(
            hosts(WELL, {"ready": False}, WELL),
            "one machine of the control plane may be away at a time, and m1 is not ready, or lent",
            id="another is away",
        ),
        pytest.param(
            hosts(WELL, {"leaving": True, "held": True}, WELL),
            "a machine of the control plane is being replaced: m1",
            id="another leaves",
        ),
        pytest.param(replace(THREE, replicas=5), "index 3 has no machine", id="one is missing"),
        pytest.param(
            replace(THREE, hosts=(*THREE.hosts, Host(name="m3", index=0, created=BORN))),
            "1 machine more than replicas: a replacement is not over",
            id="a replacement is under way",
        ),
        pytest.param(replace(THREE, unseen="the API server"), "the API server", id="nothing can be seen"),
        pytest.param(hosts(), "m0 is not a machine of the control plane", id="not its own"),
    ],
)
def test_what_the_control_plane_lends(observed: Observed, words: str) -> None:
    assert control_plane_refusal(observed, "m0") == words


def etcd(*ill: str, **more: Any) -> EtcdView:
    members = [EtcdMember(id=f"{n}", name=f"n{n}", machine=f"m{n}", trouble="it is down") for n in range(3)]
    well = [m if m.machine in ill else m.model_copy(update={"trouble": ""}) for m in members]
    return EtcdView(members=well, **more)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param({"etcd": etcd()}, "", id="all members are well"),
        pytest.param({"etcd": etcd("m0")}, "", id="its own is down already"),
        pytest.param({"etcd": etcd("m1")}, "1 of 3 voting members of etcd would be healthy, and 2 are a", id="another"),
        pytest.param({"etcd": etcd(quorate=False)}, "etcd has no quorum", id="no quorum"),
        pytest.param({"etcd": etcd(trouble="refused")}, "cannot be looked at: refused", id="nobody answers"),
        pytest.param({"etcd": etcd(), "etcd_trouble": "no key"}, "cannot be looked at: no key", id="no key"),
        pytest.param({}, "it has not been looked at since", id="not seen yet"),
        pytest.param({"etcd": etcd("m1"), "guarded": False}, "", id="somebody else looks after it"),
    ],
)
def test_a_member_of_etcd_that_is_down_keeps_the_others_at_home(seen: dict[str, Any], words: str) -> None:
    found = control_plane_refusal(replace(THREE, **{"guarded": True, **seen}), "m0")
    assert words in found
    assert bool(words) == bool(found)


def test_the_control_plane_replaces_nothing_while_one_is_lent() -> None:
    outdated = hosts({"outdated": "machineType"}, {"ready": False}, WELL)
    assert any(isinstance(s, Create) for s in control_plane_plan(hosts({"outdated": "a"}, WELL, WELL), NOW).steps)
    made = control_plane_plan(replace(outdated, lent=("m1",)), NOW)
    assert (made.steps, [w.reason for w in made.waits]) == ((), ["MachinesLent"])
