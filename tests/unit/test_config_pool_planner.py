"""Which nodes of a config pool are given its config: seed 004, UpdateController; the cases of OpenShift's
machine-config-operator (pkg/controller/node), by the ids of the reference."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from machine_configs.cases import NOW, config_node, config_nodes, config_pool, look

from planners.fleet.steps import Wait
from planners.machine_config import nodes as of
from planners.machine_config.budget import max_unavailable
from planners.machine_config.pool import STALLED, ObservedConfigPool, plan
from planners.machine_config.steps import Borrow, ConfigPlan, FindOwners, GiveBack, GiveConfig, SetUpdateTaint
from planners.machine_config.view import view_of
from resources.machine_config.node import ConfigNode
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.state import Loan, Reservation
from resources.machine_config.view import LISTED


def planned(nodes: list[ConfigNode], most: int | str | None = None, **more: Any) -> ConfigPlan:
    known: dict[str, Any] = {
        k: more.pop(k)
        for k in ("reservations", "loans", "owners", "held", "progress_at", "returning", "now")
        if k in more
    }
    now = known.pop("now", NOW)
    return plan(ObservedConfigPool(look(nodes, most, **more), **known), now)


def given(made: ConfigPlan, again: bool = False) -> list[str]:
    steps = [s for s in made.steps if isinstance(s, GiveConfig) and s.again is again]
    return [n.name for s in steps for n in s.nodes]


def reasons(made: ConfigPlan) -> list[str]:
    return [w.reason for w in made.waits]


def words(made: ConfigPlan, reason: str) -> str:
    return next(w.message for w in made.waits if w.reason == reason)


# -- maxUnavailable (TestMaxUnavailable; M-M…) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "nodes", "found"),
    [
        pytest.param(None, 4, 1, id="M-M01 unset"),
        pytest.param(3, 4, 3, id="a count"),
        pytest.param(0, 4, 1, id="M-M03 zero"),
        pytest.param("50%", 4, 2, id="a percentage"),
        pytest.param("60%", 4, 2, id="M-M05 rounds down"),
        pytest.param("10%", 4, 1, id="at least one"),
        pytest.param("0%", 4, 1, id="no percent"),
        pytest.param("100%", 0, 1, id="no nodes"),
        pytest.param("100%", 20_000, 500, id="never more than are remembered"),
    ],
)
def test_max_unavailable(amount: int | str | None, nodes: int, found: int) -> None:
    assert max_unavailable(amount, nodes) == found
    assert max_unavailable(amount, nodes, control_plane=True) == 1  # M-M07, and the control plane's (I14)


@pytest.mark.parametrize("amount", ["60", "50 percent", "40 %", "-10%", -1, ""])
def test_max_unavailable_that_is_no_amount(amount: int | str) -> None:
    """The pool says so, and goes on with nothing but its status."""
    with pytest.raises(ValueError, match=r"spec.maxUnavailable is .*; write a count like 2, or a percentage like 10%"):
        max_unavailable(amount, 4)


def test_a_pool_with_no_amount_touches_no_node() -> None:
    made = planned(config_nodes("V0=V0", "V0=V0"), "40 %")
    assert (made.steps, reasons(made)) == ((), ["MaxUnavailableInvalid"])


# -- readiness and unavailability (M-A…) ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "found"),
    [
        pytest.param([], [], id="M-A03 no nodes"),
        pytest.param(["V1=V1", "V1=V1", "V1=V1"], [], id="all done"),
        pytest.param(["V0=V0", "V1=V1 NotReady", "V0>V1"], ["n1", "n2"], id="M-A05"),
        pytest.param(["V1=V1 cordoned", "V1=V1"], ["n0"], id="a cordon"),
        pytest.param(["V0>V1 degraded", "V0>V1 unreconcilable"], [], id="failing ones may be given another"),
        pytest.param(["V0>V1 degraded NotReady"], ["n0"], id="failing, and not ready"),
        pytest.param(["V1=V1 degraded"], ["n0"], id="degraded with its own config"),
        pytest.param(["V0>V1 rebooting", "V0>V1 done"], ["n0", "n1"], id="rebooting, and not begun"),
        pytest.param(["", "V0="], ["n0", "n1"], id="M-T09 without annotations"),
    ],
)
def test_unavailable(says: list[str], found: list[str]) -> None:
    nodes = config_nodes(*says)
    assert [n.name for n in nodes if of.busy(n)] == found
    assert all(of.trouble(n) for n in nodes if of.busy(n)), "each that takes a place has words for it"


# -- candidates (TestGetCandidateMachines; M-C…) ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "says", "chosen", "free"),
    [
        pytest.param(1, ["V1=V1"] * 3, [], 1, id="M-C01"),
        pytest.param(1, ["V1=V1", "V1=V1", "V0=V0"], ["n2"], 0, id="as upstream"),
        pytest.param(1, ["V1=V1", "V1=V1 NotReady", "V0>V1"], [], 0, id="M-C03"),
        pytest.param(2, ["V1=V1", "V1=V1 NotReady", "V0=V0"], ["n2"], 0, id="as upstream"),
        pytest.param(3, ["V1=V1", "V1=V1 NotReady", "V0>V1", "V0=V0", "V0=V0"], ["n3"], 0, id="M-C05"),
        pytest.param(1, ["V1=V1", "V0>V1 degraded", "V0=V0"], [], 0, id="as upstream"),
        pytest.param(1, ["V1=V1", "v0.1>v0.2 degraded", "V0=V0"], ["n1"], 0, id="M-C07"),
        pytest.param(1, ["V1=V1", "V0=V0 NotReady", "V0=V0"], [], 0, id="as upstream"),
        pytest.param(1, ["V1=V1", "V1=V1", "V1>V2 degraded"], ["n2"], 0, id="M-C09 rolled back"),
        pytest.param(1, ["V1=V1 degraded", "V0=V0"], [], 0, id="degraded with the pool's own: blocks a place"),
        pytest.param(
            4,
            ["V1=V1", "V1=V1 NotReady", "V0>V1", "V0=V0", "V0=V0", "V0=V0", "V0=V0", "V1=V1", "V1=V1"],
            ["n3", "n4"],
            0,
            id="M-C11",
        ),
        pytest.param(2, ["V0>V1 degraded", "V0=V0", "V0=V0"], ["n1"], 0, id="M-C15"),
        pytest.param(2, ["V0=V0 cordoned", "V0=V0", "V0=V0"], ["n1"], 0, id="a cordoned one takes a place"),
        pytest.param(1, ["V0>V9 done", "V0=V0"], [], 0, id="targeted, not begun: finishes first"),
        pytest.param(2, ["V0>V9", "V0=V0"], ["n0"], 0, id="retargeted where there is a place"),
        pytest.param(1, ["", "V0=V0"], [], 0, id="a node without a daemon takes a place"),
        pytest.param(5, ["", "V0="], ["n0", "n1"], 1, id="M-U01 annotations are not needed"),
    ],
)
def test_candidates(most: int, says: list[str], chosen: list[str], free: int) -> None:
    made = planned(config_nodes(*says), most)
    assert (given(made), made.free) == (chosen, free)
    waits = reasons(made)
    assert not chosen or "ConfigNodesTargeted" in [s.reason for s in made.steps if isinstance(s, GiveConfig)]
    if not chosen and any(n.desired != "V1" for n in config_nodes(*says)):
        assert waits, "what is not done is said"


def test_the_order() -> None:
    """M-C17: zones by name, those without one last, the oldest first in each; ours: failing ones before all."""
    ages = [NOW - timedelta(days=d) for d in range(3)]
    nodes = [
        config_node("plain-new", "V0=V0", created=ages[0]),
        config_node("z-old", "V0=V0", zone="ZZZ", created=ages[2]),
        config_node("r-new", "V0=V0", zone="RRR", created=ages[0]),
        config_node("z-new", "V0=V0", zone="ZZZ", created=ages[0]),
        config_node("q", "V0=V0", zone="QQQ", created=ages[0]),
        config_node("plain-old", "V0=V0", created=ages[1]),
        config_node("r-old", "V0=V0", zone="RRR", created=ages[1]),
        config_node("fails", "V0>V9 degraded", created=ages[0]),
    ]
    order = ["fails", "q", "r-old", "r-new", "z-old", "z-new", "plain-old", "plain-new"]
    assert given(planned(nodes, 8)) == order
    assert given(planned(nodes, 3)) == order[:3]


def test_raising_max_unavailable_starts_more_at_once() -> None:
    nodes = config_nodes("V0>V1", *["V0=V0"] * 9)
    assert given(planned(nodes, 1)) == []
    assert given(planned(nodes, 4)) == ["n1", "n2", "n3"]
    assert given(planned(nodes, "50%")) == ["n1", "n2", "n3", "n4"]


def test_a_newcomer_with_an_old_config_reopens_the_rollout() -> None:
    assert given(planned(config_nodes("V1=V1", "V1=V1"))) == []
    assert given(planned(config_nodes("V1=V1", "V1=V1", "V0=V0"))) == ["n2"]


def test_a_node_that_goes_frees_its_place() -> None:
    assert given(planned(config_nodes("V0>V1 NotReady", "V0=V0"), 1)) == []
    assert given(planned(config_nodes("V0=V0"), 1)) == ["n0"]
    leaving = config_nodes("V0=V0")[0]._replace(deleting=True)
    assert given(planned([leaving], 1)) == [], "nobody begins with one that is being deleted"


def test_many_nodes_are_not_all_named() -> None:
    nodes = config_nodes(*["V0=V0"] * 3000)
    view = look(nodes, "50%")
    assert len(view.nodes) == LISTED
    assert view.counts.candidates == 3000
    made = plan(ObservedConfigPool(view), NOW)
    assert len(given(made)) == LISTED, "the next look names the next ones"
    assert made.most == 500


# -- the control plane ----------------------------------------------------------------------------------------------


def masters(*says: str, **fields: Any) -> list[ConfigNode]:
    labels = {"node-role.kubernetes.io/master": ""}
    return [config_node(f"m{i}", text, labels=labels, **fields) for i, text in enumerate(says)]


def planned_for(name: str, pools: list[MachineConfigPool], nodes: list[ConfigNode]) -> ConfigPlan:
    return plan(ObservedConfigPool(view_of(name, pools, nodes)), NOW)


def test_one_node_of_the_control_plane_at_a_time() -> None:
    pools = [config_pool("master", maxUnavailable=3)]
    assert given(planned_for("master", pools, masters("V0=V0", "V0=V0", "V0=V0"))) == ["m0"]
    assert given(planned_for("master", pools, masters("V0>V1", "V0=V0", "V0=V0"))) == []


@pytest.mark.parametrize(
    ("master", "arbiter", "paused", "for_master", "for_arbiter"),
    [
        pytest.param("V0=V0", "V0=V0", False, ["m0"], [], id="masters go first"),
        pytest.param("V1=V1", "V0=V0", False, [], ["a0"], id="then arbiters"),
        pytest.param("V0=V0", "V0=V0", True, [], ["a0"], id="M-U17 not after paused ones"),
        pytest.param("V1=V1 NotReady", "V0=V0", True, [], [], id="but never with one down (OCPBUGS-64681)"),
        pytest.param("V0=V0", "V0>V1", False, [], [], id="nor a master with an arbiter down"),
    ],
)
def test_masters_and_arbiters(
    master: str, arbiter: str, paused: bool, for_master: list[str], for_arbiter: list[str]
) -> None:
    pools = [config_pool("master", paused=paused), config_pool("arbiter")]
    labels = {"node-role.kubernetes.io/arbiter": ""}
    nodes = [*masters(master, "V1=V1"), config_node("a0", arbiter, labels=labels)]
    assert given(planned_for("master", pools, nodes)) == for_master
    assert given(planned_for("arbiter", pools, nodes)) == for_arbiter


# -- taints (M-U…) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "on", "off"),
    [
        pytest.param(["V1=V1"], [], [], id="M-U05 neither annotation nor taint"),
        pytest.param(["V0=V0"], ["n0"], [], id="one that is to update"),
        pytest.param(["V1=V1 tainted"], [], ["n0"], id="M-U07 one that has it"),
        pytest.param(["V0>V1 tainted"], [], ["n0"], id="off as soon as it is given its config"),
        pytest.param(["V0=V0 tainted"], [], [], id="there already"),
    ],
)
def test_taints(says: list[str], on: list[str], off: list[str]) -> None:
    steps = [s for s in planned(config_nodes(*says)).steps if isinstance(s, SetUpdateTaint)]
    assert [n.name for s in steps if s.on for n in s.nodes] == on
    assert [n.name for s in steps if not s.on for n in s.nodes] == off


# -- what holds it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"paused": True}, "ConfigPoolPaused", id="M-U13 paused"),
        pytest.param({"held": Wait("ClusterPaused", "ada paused the cluster")}, "ClusterPaused", id="its cluster"),
        pytest.param({"target": ""}, "NothingRendered", id="nothing rendered"),
        pytest.param({"nodeSelector": {}}, "ConfigPoolRefused", id="SelectingAll"),
        pytest.param({"machineSetRef": {"name": "a"}}, "ConfigPoolRefused", id="two selectors"),
    ],
)
def test_what_holds_it(more: dict[str, Any], reason: str) -> None:
    made = planned(config_nodes("V0=V0"), **more)
    assert (given(made), reasons(made)) == ([], [reason])


def test_a_paused_pool_that_is_done_waits_for_nothing() -> None:
    assert reasons(planned(config_nodes("V1=V1"), paused=True)) == []


def test_what_somebody_must_look_after_is_said_in_any_case() -> None:
    bad = config_nodes("V0>V1 degraded")[0]._replace(reason="disk full")
    made = planned([bad, config_node("x", "")], 1, paused=True)
    assert reasons(made) == ["ConfigPoolPaused", "ConfigNodesDegraded", "ConfigNodesSilent"]
    assert words(made, "ConfigNodesDegraded") == "1 node cannot apply the config: n0 (disk full)"


def test_what_somebody_must_look_after_is_first_while_no_node_makes_progress() -> None:
    bad, busy, rest = config_nodes("V0>V1 degraded", "V0>V1", "V0=V0")
    for failed in (bad, bad._replace(unschedulable=True)):  # it may have failed after its drain
        assert reasons(planned([failed, rest], 1)) == ["ConfigNodesDegraded", "NodesUpdating"]
    assert reasons(planned([bad, busy, rest], 2)) == ["NodesUpdating", "ConfigNodesDegraded"]
    silent = config_node("x", "")
    assert reasons(planned([silent, rest], 1)) == ["ConfigNodesSilent", "NodesUpdating"]
    assert reasons(planned([silent, busy, rest], 2)) == ["NodesUpdating", "ConfigNodesSilent"]


def test_a_rollout_that_stands_still_says_so() -> None:
    nodes = config_nodes("V0>V1", "V0=V0")
    began = NOW - STALLED
    made = planned(nodes, progress_at=began)
    assert reasons(made) == ["ConfigRolloutStalled", "NodesUpdating"]
    assert words(made, "NodesUpdating") == "1 of 1 places are taken: n0 is applying V1; 1 more to come"
    soon = planned(nodes, progress_at=began + timedelta(seconds=1))
    assert (reasons(soon), soon.next_look) == (["NodesUpdating"], NOW + timedelta(seconds=1))


# -- reservations -----------------------------------------------------------------------------------------------------


def reserved(*names: str, config: str = "V1", seen: bool = False) -> dict[str, Reservation]:
    return {name: Reservation(f"uid-{name}", config, NOW, seen) for name in names}


def test_one_that_no_look_has_shown_takes_a_place() -> None:
    nodes = config_nodes("V0=V0", "V0=V0", "V0=V0")
    assert given(planned(nodes, 1, reservations=reserved("n0"))) == []
    assert given(planned(nodes, 2, reservations=reserved("n0"))) == ["n1"]


def test_it_is_written_again_with_what_is_wanted_now() -> None:
    nodes = config_nodes("V0=V0", "V0=V0")
    made = planned(nodes, 1, reservations=reserved("n0", config="V9"))
    assert (given(made, again=True), given(made)) == (["n0"], [])


def test_one_that_is_unavailable_anyway_takes_one_place_and_not_two() -> None:
    nodes = config_nodes("V0=V0 NotReady", "V0=V0")
    assert given(planned(nodes, 2, reservations=reserved("n0"))) == ["n1"]


def test_a_node_under_way_is_given_a_newer_config_where_there_is_a_place() -> None:
    nodes = config_nodes("V0>V9", "V0=V0")
    seen = reserved("n0", config="V9", seen=True)
    assert given(planned(nodes, 1, reservations=seen)) == []
    assert given(planned(nodes, 2, reservations=seen)) == ["n0"]


def test_rolled_back_a_failing_node_is_the_first() -> None:
    nodes = config_nodes("V0=V0", "V0=V0", "V0>V1 degraded")
    assert given(planned(nodes, 1, target="V0", reservations=reserved("n2", seen=True))) == ["n2"]


# -- loans ------------------------------------------------------------------------------------------------------------


OWNERS = {"m0": "demo", "m1": "", "m2": "demo"}


def owned() -> list[ConfigNode]:
    return [n._replace(machine=f"m{i}") for i, n in enumerate(config_nodes("V0=V0", "V0=V0", "V0=V0"))]


def loan(**fields: Any) -> Loan:
    return Loan(owner="demo", node="n0", asked=NOW, **fields)


def test_owners_are_asked_for_first() -> None:
    made = planned(owned(), 2)
    assert made.steps[-1] == FindOwners(("m0", "m1"))
    assert given(made) == []


def test_a_machine_is_borrowed_before_its_node_is_given_a_config() -> None:
    """One that belongs to nobody begins at once; the place of the other is kept for it."""
    made = planned(owned(), 2, owners=OWNERS)
    assert (given(made), made.steps[-1]) == (["n1"], Borrow("m0", "n0", "demo"))
    asked = {"m0": loan(again=NOW + timedelta(minutes=1))}
    made = planned(owned(), 2, owners=OWNERS, loans=asked)
    assert (given(made), [s for s in made.steps if isinstance(s, Borrow)]) == (["n1"], [])
    assert "MachinesAskedFor" in reasons(made)
    made = planned(owned(), 1, owners=OWNERS, loans={"m0": loan(granted=NOW)})
    assert given(made) == ["n0"]


def test_an_owner_that_refuses_lets_others_go_first() -> None:
    refused = {"m0": loan(refused="its budget is spent", again=NOW + timedelta(minutes=1))}
    made = planned(owned(), 1, owners=OWNERS, loans=refused)
    assert (given(made), made.next_look) == (["n1"], NOW + timedelta(minutes=1))
    assert words(made, "MachinesNotLent").endswith("n0: its budget is spent")
    later = planned(owned(), 1, owners=OWNERS, loans=refused, now=NOW + timedelta(minutes=1))
    assert later.steps[-1] == Borrow("m0", "n0", "demo")


@pytest.mark.parametrize(
    ("says", "held", "back"),
    [
        pytest.param("V1=V1", {}, True, id="finished"),
        pytest.param("V0>V1", {}, False, id="under way"),
        pytest.param("V1=V1 NotReady", {}, False, id="not back yet"),
        pytest.param("V0=V0", {}, False, id="about to begin"),
        pytest.param("V0=V0", {"paused": True}, True, id="not to begin"),
        pytest.param("V0>V1 degraded", {"reservations": reserved("n0", seen=True)}, False, id="failing"),
        pytest.param(None, {}, True, id="gone"),
    ],
)
def test_when_a_machine_is_given_back(says: str | None, held: dict[str, Any], back: bool) -> None:
    nodes = [config_node("n0", says, machine="m0")] if says is not None else config_nodes("V1=V1")
    made = planned(nodes, owners=OWNERS, loans={"m0": loan(granted=NOW)}, keep=["n0"], **held)
    assert (GiveBack(("m0",)) in made.steps) is back


@pytest.mark.parametrize("returning", [True, False], ids=["now", "in a run from before"])
def test_a_pool_with_no_amount_gives_back_what_it_has_borrowed(returning: bool) -> None:
    nodes = [config_node("n0", "V1=V1", machine="m0")]
    made = planned(nodes, "40 %", owners=OWNERS, loans={"m0": loan(granted=NOW)}, keep=["n0"], returning=returning)
    assert (GiveBack(("m0",)) in made.steps) is returning
