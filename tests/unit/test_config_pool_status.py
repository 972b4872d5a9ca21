"""Whose a node is, a config pool in numbers, and what a look says of nodes that were given a config.

Sources: seed 004 (MachinePoolStatus); OpenShift's cases (TestGetPrimaryPoolForNode, TestCalculateStatus) by the ids of
the reference, with the seed's counts where they differ.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from machine_configs.cases import NOW, config_node, config_nodes, config_pool, look

from planners.machine_config.follow import GRACE, follow
from planners.machine_config.membership import facts_of, label_keys, pool_of, refusal
from planners.machine_config.status import complete, status_of
from planners.machine_config.view import view_of
from resources.machine_config.node import ConfigNode
from resources.machine_config.state import Reservation

ROLE = "node-role.kubernetes.io"


def of_roles(name: str, *roles: str, **fields: Any) -> ConfigNode:
    return config_node(name, "V1=V1", labels={f"{ROLE}/{role}": "" for role in roles}, **fields)


POOLS = [config_pool(name) for name in ("master", "worker", "infra", "gpu", "arbiter")]


@pytest.mark.parametrize(
    ("roles", "flags", "found", "contenders"),
    [
        pytest.param([], "", "", [], id="M-P01 no role"),
        pytest.param(["worker"], "", "worker", [], id="worker"),
        pytest.param(["master", "worker"], "", "master", [], id="M-P03"),
        pytest.param(["infra", "worker"], "", "infra", [], id="custom before worker"),
        pytest.param(["infra"], "", "infra", [], id="custom alone"),
        pytest.param(["master", "infra"], "", "master", [], id="M-P05"),
        pytest.param(["infra", "gpu", "worker"], "", "", ["gpu", "infra"], id="two custom ones: none"),
        pytest.param(["infra", "gpu", "master"], "", "", ["gpu", "infra"], id="even with master"),
        pytest.param(["master", "worker"], "windows", "", [], id="M-P07 Windows"),
        pytest.param(["arbiter", "worker"], "", "arbiter", [], id="arbiter counts as a custom one"),
    ],
)
def test_the_pool_of_a_node(roles: list[str], flags: str, found: str, contenders: list[str]) -> None:
    node = config_node("n", f"V1=V1 {flags}", labels={f"{ROLE}/{role}": "" for role in roles})
    assert pool_of(node, POOLS, {}) == (found, contenders)


def test_the_nodes_of_a_pool() -> None:
    """M-P09 and M-P11."""
    nodes = [*(of_roles(f"m{i}", "master") for i in range(2)), *(of_roles(f"w{i}", "worker") for i in range(2))]
    assert view_of("master", POOLS, nodes).counts.machines == 2
    alone = [config_pool("worker")]
    nodes = [
        *(of_roles(f"m{i}", "master") for i in range(3)),
        *(of_roles(f"i{i}", "worker", "infra") for i in range(3)),
    ]
    nodes.append(of_roles("win", "worker", windows=True))
    assert view_of("worker", alone, nodes).counts.machines == 3
    assert view_of("worker", alone, nodes[-1:]).counts.machines == 0


def test_nodes_that_several_pools_select_are_told_to_each_of_them() -> None:
    nodes = [of_roles("x", "infra", "gpu", "worker"), of_roles("w", "worker")]
    words = ["x (gpu, infra)"]
    assert [view_of(name, POOLS, nodes).contested for name in ("infra", "gpu", "worker")] == [words, words, []]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({}, "", id="labels of Nodes"),
        pytest.param({"nodeSelector": None}, "", id="nothing selected"),
        pytest.param(
            {"nodeSelector": {}}, "spec.nodeSelector is empty, which would select everything", id="SelectingAll"
        ),
        pytest.param(
            {"nodeSelector": None, "machineSelector": {"matchLabels": {}}},
            "spec.machineSelector is empty",
            id="all machines",
        ),
        pytest.param(
            {"machineSelector": {"matchLabels": {"a": "b"}}},
            "spec.machineSelector and spec.nodeSelector are given, and only one of them may be",
            id="two",
        ),
    ],
)
def test_selectors(spec: dict[str, Any], words: str) -> None:
    pool = config_pool(**spec)
    assert refusal(pool).startswith(words)
    assert bool(refusal(pool)) == bool(words)
    chosen, _ = pool_of(of_roles("w", "worker"), [pool], {})
    assert (chosen == "worker") is (not words and spec.get("nodeSelector", 1) is not None)


def test_machines_are_selected_by_what_was_looked_up() -> None:
    """A machine of a custom pool is not the worker pool's, although its Node has the label."""
    gpu = config_pool("gpu", nodeSelector=None, machineSetRef={"name": "p1"})
    nodes = [of_roles("a", "worker", machine="p1-a"), of_roles("b", "worker", machine="p2-b"), of_roles("c", "worker")]
    pools = [config_pool("worker"), gpu]
    seen = {name: view_of(name, pools, nodes, machines={"p1-a": "gpu"}) for name in ("worker", "gpu")}
    assert [seen[name].counts.machines for name in ("worker", "gpu")] == [2, 1]
    (selection,) = seen["worker"].selections
    assert (selection.pool, selection.machine_set, selection.selector) == ("gpu", "p1", None)
    assert label_keys(pools) == [f"{ROLE}/worker"]


# -- counts and conditions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "seed", "strict", "true"),
    [
        # machines/updated/ready/unavailable/degraded by the seed; done/busy/failing by OpenShift's words.
        pytest.param(["V0=V0"] * 3, "3/0/3/0/0", "0/0/0", ["Updating"], id="M-T01"),
        pytest.param(["V0>V1", "V0=V0", "V0=V0"], "3/0/3/1/0", "0/1/0", ["Updating"], id="one is working"),
        pytest.param(
            ["V0>V1 NotReady degraded", "V0=V0", "V0=V0"],
            "3/0/2/1/1",
            "0/1/0",
            ["Updating", "NodeDegraded", "Degraded"],
            id="M-T05",
        ),
        pytest.param(
            ["V0>V1 degraded", "V0=V0", "V0=V0"],
            "3/0/3/0/1",
            "0/0/1",
            ["Updating", "NodeDegraded", "Degraded"],
            id="degraded, and Ready",
        ),
        pytest.param(["V1=V1", "V0>V1", "V0>V1"], "3/1/3/2/0", "1/2/0", ["Updating"], id="M-T07"),
        pytest.param(["V1=V1"] * 3, "3/3/3/0/0", "3/0/0", ["Updated"], id="all updated"),
        pytest.param(["V1=V1", "V1=V1 NotReady"], "2/1/1/1/0", "2/1/0", ["Updating"], id="updated only when Ready"),
        pytest.param(["V1=V1", "V1=V1 cordoned"], "2/2/2/0/0", "2/1/0", ["Updated"], id="a person's cordon"),
        pytest.param(["V1=V1 working"], "1/1/1/0/0", "0/1/0", ["Updating"], id="its daemon is not done"),
        pytest.param([""], "1/0/1/0/0", "0/1/0", ["Updating"], id="M-T09"),
        pytest.param([], "0/0/0/0/0", "0/0/0", ["Updated"], id="no nodes"),
    ],
)
def test_status(says: list[str], seed: str, strict: str, true: list[str]) -> None:
    view = look(config_nodes(*says))
    c, status = view.counts, status_of(view)
    assert f"{c.machines}/{c.updated}/{c.ready}/{c.unavailable}/{c.degraded}" == seed
    assert f"{c.done}/{c.busy}/{c.failing}" == strict
    assert [x["type"] for x in status["conditions"] if x["status"] == "True"] == true
    assert [status[f] for f in ("machineCount", "updatingMachines", "readyMachines", "unavailableMachines")] == [
        c.machines,
        c.updated,
        c.ready,
        c.unavailable,
    ]
    assert view.pool is not None
    assert complete(view.pool, c) is ("Updated" in true) is ("configuration" in status)


def message(status: dict[str, Any], type: str) -> str:
    return next(str(c["message"]) for c in status["conditions"] if c["type"] == type)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({}, "All nodes are updating to V1", id="going"),
        pytest.param({"paused": True}, "Pool is paused; will not update to V1", id="M-T03"),
        pytest.param({"target": ""}, "No config has been rendered yet", id="nothing rendered"),
        pytest.param({"nodeSelector": {}}, "spec.nodeSelector is empty", id="refused"),
    ],
)
def test_why_it_does_not_update(more: dict[str, Any], words: str) -> None:
    status = status_of(look(config_nodes("V0=V0"), **more))
    assert message(status, "Updating").startswith(words)
    assert ("True" in [c["status"] for c in status["conditions"] if c["type"] == "Updating"]) is (not more)


def test_a_rollout_that_stands_still_is_degraded_as_upstreams_is_after_an_hour() -> None:
    found = status_of(look(config_nodes("V0>V1")), stalled="no node has finished since 09:00")["conditions"]
    said = {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}
    assert said["Degraded"] == ("True", "ConfigRolloutStalled", "no node has finished since 09:00")
    assert (said["NodeDegraded"][0], said["Updating"][0]) == ("False", "True")


def test_degraded_names_the_node_and_its_reason() -> None:
    bad = config_nodes("V0>V1 degraded")[0]._replace(reason="disk full")
    assert message(status_of(look([bad])), "NodeDegraded") == (
        "1 node cannot apply the config; node n0 reports: disk full"
    )


def test_degraded_also_because_nothing_can_be_rendered() -> None:
    raw = config_pool().to_dict()
    raw["status"]["conditions"] = [{"type": "RenderDegraded", "status": "True", "message": "two files differ"}]
    pool = type(config_pool()).of_dict(raw)
    status = status_of(view_of("worker", [pool], config_nodes("V1=V1")))
    assert message(status, "Degraded") == "two files differ"
    assert facts_of(pool).render_trouble == "two files differ"


# -- what a look says of nodes under way ------------------------------------------------------------------------------

RESERVED = Reservation("uid-n0", "V1", NOW)


@pytest.mark.parametrize(
    ("says", "reservation", "after", "told"),
    [
        pytest.param("V0=V0", RESERVED, RESERVED, [], id="not written yet, as far as anybody sees"),
        pytest.param("V0>V1 done", RESERVED, RESERVED._replace(seen=True), [], id="given"),
        pytest.param("V0>V1", RESERVED, RESERVED._replace(seen=True), [], id="under way"),
        pytest.param("V1=V1 cordoned", RESERVED, RESERVED._replace(seen=True), [], id="done, and not back"),
        pytest.param("V1=V1", RESERVED, None, ["ConfigNodeUpdated"], id="finished"),
        pytest.param(
            "V0>V1 degraded",
            RESERVED,
            RESERVED._replace(seen=True, failed=True),
            ["ConfigNodeDegraded"],
            id="it fails, which is said once",
        ),
        pytest.param(
            "V0>V1 degraded",
            RESERVED._replace(seen=True, failed=True),
            RESERVED._replace(seen=True, failed=True),
            [],
            id="it still fails",
        ),
        pytest.param("V0>V9", RESERVED._replace(seen=True), None, [], id="somebody else gave it another"),
        pytest.param("V0>V9", RESERVED, RESERVED, [], id="but not before ours was seen"),
        pytest.param(None, RESERVED, None, ["ConfigNodeGone"], id="gone"),
        pytest.param("V0=V0", RESERVED._replace(uid="other"), None, ["ConfigNodeGone"], id="another of its name"),
    ],
)
def test_what_a_look_says(
    says: str | None, reservation: Reservation, after: Reservation | None, told: list[str]
) -> None:
    nodes = config_nodes(says) if says is not None else []
    found = follow({"n0": reservation}, look(nodes, keep=["n0"]), NOW + timedelta(minutes=4))
    assert found.reservations == ({} if after is None else {"n0": after})
    assert [h.reason for h in found.happenings] == told
    assert found.finished == told.count("ConfigNodeUpdated")


def test_how_long_it_took() -> None:
    found = follow({"n0": RESERVED}, look(config_nodes("V1=V1"), keep=["n0"]), NOW + timedelta(seconds=250))
    assert found.happenings[0].message == "n0 has V1, after 4m10s"


def test_a_write_that_nobody_wants_any_longer_counts_for_a_while() -> None:
    """The pool went back before any look showed the node with V1: the write may still be on its way."""
    view = look(config_nodes("V0=V0"), target="V0", keep=["n0"])
    assert follow({"n0": RESERVED}, view, NOW + GRACE - timedelta(seconds=1)).reservations == {"n0": RESERVED}
    assert follow({"n0": RESERVED}, view, NOW + GRACE).reservations == {}
