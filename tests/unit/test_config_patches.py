"""What is written on Nodes and pools for machine configs: merge patches, each of which is empty where nothing is to be
done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.cluster.config_nodes import TAINT, status_patch, taint_patch
from activities.cluster.preserve import preserve_patch
from activities.drain import calls, configs
from planners.machine_config.objects import with_conditions
from resources.calls.cluster import PreserveInput
from resources.calls.machine import MachineRef
from resources.machine_config.keys import DRAINED_BY_CONFIG, SEED, TODAY
from resources.names import CORDON_ANNOTATION

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
VM = "aws:///eu-west-1/i-1"
OTHER = {"key": "dedicated", "effect": "NoSchedule"}


def node(*taints: dict[str, str], cordoned: bool = False, **annotations: str) -> dict[str, Any]:
    metadata = {"name": "n-1", "uid": "u-1", "resourceVersion": "7", "annotations": annotations}
    return {"metadata": metadata, "spec": {"providerID": VM, "taints": list(taints), "unschedulable": cordoned}}


# -- whose a cordon is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "writes"),
    [
        ({}, True),
        ({"cordoned": True}, False),
        ({"cordoned": True, CORDON_ANNOTATION: "m-1"}, False),
        # A config's own end would lift it in the middle of the machine's drain.
        ({"cordoned": True, DRAINED_BY_CONFIG: "c"}, True),
        ({"cordoned": True, DRAINED_BY_CONFIG: "c", CORDON_ANNOTATION: "m-1"}, False),
    ],
    ids=["none", "a person's", "ours", "a config's", "both"],
)
def test_a_machines_drain_makes_a_configs_cordon_its_own_too(there: dict[str, Any], writes: bool) -> None:
    patch = calls._cordon(node(**there), "m-1")
    assert bool(patch) is writes
    if writes:
        assert patch["metadata"] == {"resourceVersion": "7", "annotations": {CORDON_ANNOTATION: "m-1"}}
        assert patch["spec"] == {"unschedulable": True}


@pytest.mark.parametrize(("by_config", "lifted"), [(False, True), (True, False)])
def test_a_preservation_leaves_a_configs_cordon(by_config: bool, lifted: bool) -> None:
    ours = {CORDON_ANNOTATION: "m-1"} | ({DRAINED_BY_CONFIG: "c"} if by_config else {})
    machine = MachineRef(cluster="demo", name="m-1", uid="u")
    input = PreserveInput(machine=machine, node_name="n-1", provider_id=VM, on=False, uncordon=True)
    patch = preserve_patch(node(cordoned=True, **ours), input)
    assert patch["metadata"]["annotations"] == {CORDON_ANNOTATION: None}
    assert ("spec" in patch) is lifted


# -- what a daemon is answered -----------------------------------------------------------------------------------------


def test_an_answer_is_in_the_daemons_own_words() -> None:
    asked = node(cordoned=True, **{TODAY.current: "a", TODAY.desired_drain: "drain-b"})
    patch = configs.drained_patch(asked, "drain-b", SEED)
    assert patch["metadata"]["annotations"] == {TODAY.last_drain: "drain-b"}
    answered = node(cordoned=True, **{TODAY.current: "a", TODAY.desired_drain: "drain-b", TODAY.last_drain: "drain-b"})
    assert configs.drained_patch(answered, "drain-b", SEED) == {}


def test_a_node_that_is_not_cordoned_is_not_drained() -> None:
    with pytest.raises(configs.Uncordoned):
        configs.drained_patch(node(**{SEED.current: "a", SEED.desired_drain: "drain-b"}), "drain-b", SEED)
    with pytest.raises(configs.Superseded):
        configs.drained_patch(node(**{SEED.current: "a", SEED.desired_drain: "drain-c"}), "drain-b", SEED)


# -- taints ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taints", "on", "after"),
    [
        ((), True, [TAINT]),
        ((OTHER,), True, [OTHER, TAINT]),
        ((OTHER, TAINT), True, None),
        ((TAINT, OTHER), False, [OTHER]),
        ((OTHER,), False, None),
        (({**TAINT, "effect": "NoSchedule"},), False, None),
    ],
    ids=["first", "beside another", "there already", "off", "not there", "somebody else's of that key"],
)
def test_the_taint_alone_comes_and_goes(taints: tuple[dict[str, str], ...], on: bool, after: Any) -> None:
    patch = taint_patch(node(*taints), on=on)
    assert patch.get("spec", {}).get("taints") == after
    assert not patch or patch["metadata"] == {"resourceVersion": "7"}


# -- a pool's status ---------------------------------------------------------------------------------------------------


def condition(kind: str, status: str, message: str = "", since: str = "") -> dict[str, str]:
    found = {"type": kind, "status": status, "reason": "R", "message": message}
    return {**found, "lastTransitionTime": since} if since else found


def test_a_condition_is_as_old_as_its_status_and_others_stay() -> None:
    then = "2026-01-01T00:00:00Z"
    there = [condition("RenderDegraded", "False", since=then), condition("Updating", "True", "1 of 3", then)]
    pool = {"status": {"conditions": there}}
    same = with_conditions(pool, [condition("Updating", "True", "2 of 3"), condition("Updated", "False")], NOW)
    assert same == [
        there[0],
        condition("Updating", "True", "2 of 3", then),
        condition("Updated", "False", since="2026-03-01T12:00:00Z"),
    ]
    changed = with_conditions(pool, [condition("Updating", "False")], NOW)
    assert changed[1]["lastTransitionTime"] == "2026-03-01T12:00:00Z"


def test_an_equal_status_is_not_written() -> None:
    then = "2026-01-01T00:00:00Z"
    status = {"machineCount": 3, "currentMachineConfig": "c", "conditions": [condition("Updated", "True", since=then)]}
    pool = {"metadata": {"resourceVersion": "7"}, "status": status}
    wanted = {"machineCount": 3, "conditions": [condition("Updated", "True")]}
    assert status_patch(pool, wanted, NOW) == {}
    patch = status_patch(pool, {**wanted, "machineCount": 4}, NOW)
    assert patch == {"metadata": {"resourceVersion": "7"}, "status": {"machineCount": 4}}
