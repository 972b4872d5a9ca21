"""Rendering as a whole: a fake API server does what the plan wants until it wants nothing; whatever the order, and
whatever a person does in between, it comes to the same rest."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from machine_configs.objects import (
    GOLDEN,
    NOW,
    OPTIONS,
    SHIPPED,
    at_rest,
    cluster,
    config,
    controller_config,
    edited,
    file,
    key,
    kubelet_config,
    named,
    names,
    pool,
    readable,
    target,
    told,
    without,
)

from planners.machine_config.objects import newer
from planners.machine_config.picture import Picture, RenderOptions
from planners.machine_config.reconcile import plan
from planners.machine_config.rehearsal import Settled, settled

BASICS = (controller_config(), pool(), pool("master"))
VERSION = key("generated-by-controller-version")


def again(picture: Picture, **changes: Any) -> Settled:
    return settled(replace(picture, **changes), OPTIONS, NOW)


def test_from_nothing_to_a_rendered_config() -> None:
    found = at_rest(*BASICS, config("50-x", file("/etc/x", "1")))
    worker = named(found.picture.pools, "worker")
    assert not found.troubles
    assert worker["status"]["currentMachineConfig"] == worker["spec"]["configuration"]["name"]
    sources = [s["name"] for s in worker["spec"]["configuration"]["source"]]
    assert sources == ["00-worker", "01-worker-kubelet", "50-x"]
    assert told(worker, "RenderDegraded")["status"] == "False"
    controller = named(found.picture.controller_configs, "machine-config-controller")
    assert [(c["type"], c["status"]) for c in controller["status"]["conditions"]] == [
        ("TemplateControllerCompleted", "True"),
        ("TemplateControllerRunning", "False"),
        ("TemplateControllerFailing", "False"),
    ]
    assert target(found.picture)["spec"]["osImageURL"] == "registry/os@sha256:1"


@pytest.mark.parametrize("of", ["worker", "infra"])
def test_a_rendered_config_is_as_it_was(of: str) -> None:
    """Templates, people's MachineConfigs of several versions, and a KubeletConfig; the name is compared too."""
    old = {"ignition": {"version": "2.2.0"}, "systemd": {"units": [{"name": "old.service", "enable": True}]}}
    found = at_rest(
        *BASICS,
        pool("infra", "worker", "infra"),
        config("50-worker", file("/etc/a", "worker"), kernelArguments=["nosmt"]),
        config("60-infra", file("/etc/a", "infra"), role="infra", extensions=["usbguard"]),
        config("40-old", config=old),
        kubelet_config("pods", maxPods=100, evictionHard={"memory.available": "1Gi"}, spec={"logLevel": 4}),
    )
    assert readable(target(found.picture, of)) == (GOLDEN / f"rendered-{of}.yaml").read_text()


def test_at_rest_nothing_is_written_and_no_object_was_changed_in_place() -> None:
    found = at_rest(*BASICS)
    before = json.dumps([*found.picture.configs, *found.picture.pools, *found.picture.controller_configs])
    assert plan(found.picture, OPTIONS, NOW + timedelta(days=9)).changes == ()
    again(found.picture, configs=edited(found.picture.configs, "00-worker", {"extensions": ["x"]}))
    assert json.dumps([*found.picture.configs, *found.picture.pools, *found.picture.controller_configs]) == before


# -- the templates' MachineConfigs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "meta", "differs"),
    [
        ({"config": {"ignition": {"version": "3.5.0"}}}, {}, "spec"),
        ({"kernelArguments": ["quiet"]}, {}, "spec"),
        (None, {"labels": {}}, "labels"),
        (None, {"annotations": {}}, "annotations"),
        (None, {"ownerReferences": []}, "owner"),
    ],
)
def test_an_edited_one_is_restored_before_anything_is_rendered(spec: Any, meta: Any, differs: str) -> None:  # M-TC4
    found = at_rest(*BASICS)
    broken = replace(found.picture, configs=edited(found.picture.configs, "00-worker", spec, **meta))
    first = plan(broken, OPTIONS, NOW)
    assert [(c.verb, c.name, c.words) for c in first.changes] == [("update", "00-worker", f"its {differs} differ")]
    assert [(e.name, e.reason) for e in first.events] == [("00-worker", "Restored")]
    mended = settled(broken, OPTIONS, NOW)
    assert mended.picture.pools == found.picture.pools  # no pool was ever given another config
    assert names(mended.picture.configs) == names(found.picture.configs)


def test_a_deleted_one_is_made_again() -> None:  # M-TC4
    found = at_rest(*BASICS)
    lost = replace(found.picture, configs=without(found.picture.configs, "00-worker"))
    assert [(c.verb, c.name) for c in plan(lost, OPTIONS, NOW).changes] == [("create", "00-worker")]
    assert settled(lost, OPTIONS, NOW).picture.pools == found.picture.pools


def test_what_others_wrote_on_it_stays() -> None:
    found = at_rest(*BASICS)
    theirs = {"labels": {"team": "x"}, "annotations": {"note": "y"}, "finalizers": ["z"]}
    mended = again(found.picture, configs=edited(found.picture.configs, "00-worker", {"fips": True}, **theirs))
    meta = named(mended.picture.configs, "00-worker")["metadata"]
    assert meta["labels"] == {"team": "x", key("role"): "worker"}
    assert meta["annotations"] == {"note": "y", VERSION: "0.1.0"}
    assert meta["finalizers"] == ["z"]


def test_a_template_that_is_gone_takes_its_config_along() -> None:
    more = {**SHIPPED, "worker/02-worker-x/_base/files/x.yaml": 'path: "/x"\ncontents: {inline: "1"}'}
    found = at_rest(*BASICS, templates=more)
    assert "02-worker-x" in names(found.picture.configs)
    assert "02-worker-x" not in names(again(found.picture, templates=SHIPPED).picture.configs)


def test_a_template_that_fails_stops_all_pools_and_says_why() -> None:
    found = at_rest(*BASICS)
    bad = again(found.picture, controller_configs=(controller_config(etcdCAData=None),))
    words = "ControllerConfig machine-config-controller is not rendered: master/00-master/_base/files/etcd-ca.yaml:5"
    controller = bad.picture.controller_configs[0]
    assert told(controller, "TemplateControllerFailing")["message"].startswith(words)
    assert controller["status"]["observedGeneration"] == 1
    for p in bad.picture.pools:
        assert (told(p, "RenderDegraded")["status"], told(p, "RenderDegraded")["reason"]) == (
            "True",
            "SourcesNotComplete",
        )
        assert f"Pool {p['metadata']['name']} is not rendered: {words}" in told(p, "RenderDegraded")["message"]
    assert bad.picture.configs == found.picture.configs
    assert {t.reason for t in bad.troubles} == {"TemplatesNotRendered", "SourcesNotComplete"}
    mended = again(bad.picture, controller_configs=(controller_config(),))
    assert {told(p, "RenderDegraded")["status"] for p in mended.picture.pools} == {"False"}


def test_a_controller_config_for_another_version() -> None:  # M-R03, B25
    other = controller_config()
    other["metadata"]["annotations"] = {key("generated-by-version"): "4.18"}
    found = at_rest(other, pool(), config("a"))
    assert "it is for version 4.18 of the controller, and this is 0.1.0" in found.troubles[0].message
    assert "configuration" not in found.picture.pools[0]["spec"]
    other["metadata"]["annotations"] = {key("generated-by-version"): "0.1.0"}
    assert not at_rest(other, pool(), config("a")).troubles


def test_another_controller_config_is_ignored_and_told_so_once() -> None:
    found = at_rest(*BASICS, controller_config("mine"))
    other = named(found.picture.controller_configs, "mine")
    assert told(other, "Ignored")["message"] == (
        "Only the ControllerConfig machine-config-controller counts; rename this one, or delete it"
    )
    assert [e.name for e in found.events if e.reason == "Ignored"] == ["mine"]


def test_without_a_controller_config_peoples_configs_are_rendered() -> None:
    found = at_rest(pool(), config("a", file("/a", "x")))
    assert target(found.picture)["spec"]["config"]["storage"]["files"][0]["path"] == "/a"
    assert "Restless" not in str(found)


def test_a_new_release_marks_what_it_makes_and_an_old_one_leaves_it_alone() -> None:
    found = at_rest(*BASICS, kubelet_config("a", maxPods=1))
    new = settled(found.picture, RenderOptions(version="0.2.0"), NOW)
    assert {c["metadata"]["annotations"][VERSION] for c in new.picture.configs} == {"0.2.0"}
    assert new.picture.pools == found.picture.pools  # the same contents: no node is rebooted
    old = plan(new.picture, OPTIONS, NOW)
    assert (old.changes, [t.reason for t in old.troubles]) == ((), ["NewerVersion"])
    assert "was made by Hostler 0.2.0, and this worker is 0.1.0; upgrade this worker" in old.troubles[0].message
    assert [newer(a, b) for a, b in (("0.10.0", "0.9.1"), ("0.1.0", "0.1.0"), ("x", "0.1.0"))] == [True, False, False]


# -- pools ------------------------------------------------------------------------------------------------------------


def test_a_paused_pool_is_neither_rendered_nor_told_anything() -> None:
    """The seed: paused "includes generating new desiredMachineConfig"; upstream renders a paused pool."""
    found = at_rest(*BASICS)
    paused = edited(found.picture.pools, "worker", {"paused": True})
    held = again(found.picture, pools=paused, configs=(*found.picture.configs, config("50-x", file("/x", "1"))))
    assert named(held.picture.pools, "worker") == named(paused, "worker")
    assert not [c for c in names(held.picture.configs) if c.startswith("rendered-worker-") and c not in names(
        found.picture.configs)]  # fmt: skip
    on = again(held.picture, pools=edited(held.picture.pools, "worker", {"paused": False}))
    assert "50-x" in [s["name"] for s in named(on.picture.pools, "worker")["spec"]["configuration"]["source"]]


def test_one_bad_config_stops_its_own_pool_only() -> None:
    found = at_rest(*BASICS)
    bad = again(found.picture, configs=(*found.picture.configs, config("50-x", file("/x", "1", mode=0o4755))))
    worker, master = named(bad.picture.pools, "worker"), named(bad.picture.pools, "master")
    assert told(worker, "RenderDegraded")["message"].startswith(
        "Pool worker cannot be rendered: MachineConfig 50-x: spec.config: storage.files[0].mode: 2541 (octal 4755)"
    )
    assert told(master, "RenderDegraded")["status"] == "False"
    assert worker["spec"] == named(found.picture.pools, "worker")["spec"]  # it keeps the config it had
    assert [(e.name, e.reason) for e in bad.events] == [("worker", "InvalidMachineConfig")]


def test_sources_are_told_anew_where_the_name_stays() -> None:  # M-R07, B29
    found = at_rest(*BASICS, config("50-x", file("/x", "1")))
    renamed = again(found.picture, configs=(*without(found.picture.configs, "50-x"), config("51-y", file("/x", "1"))))
    before, after = (named(p.pools, "worker")["spec"]["configuration"] for p in (found.picture, renamed.picture))
    assert before["name"] == after["name"]
    assert [s["name"] for s in after["source"]][-1] == "51-y"
    assert names(renamed.picture.configs)[-1] == names(found.picture.configs)[-1]


@pytest.mark.parametrize("spec", [{"fips": True}, {"config": None}])
def test_a_rendered_config_that_somebody_changed_is_repaired(spec: Any) -> None:  # M-R07
    found = at_rest(*BASICS)
    name = target(found.picture)["metadata"]["name"]
    mended = again(found.picture, configs=edited(found.picture.configs, name, spec))
    assert target(mended.picture)["spec"] == target(found.picture)["spec"]
    assert [(e.name, e.reason) for e in mended.events] == [(name, "Restored")]
    lost = again(found.picture, configs=without(found.picture.configs, name))
    assert target(lost.picture)["spec"] == target(found.picture)["spec"]


def test_a_deleted_pool_is_left_alone() -> None:
    leaving = pool(paused=False)
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["x"]}
    assert plan(cluster(leaving, config("a")), OPTIONS, NOW).changes == ()


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = at_rest(pool(), config("a", kernelType="x"))
    since = told(first.picture.pools[0], "RenderDegraded")["lastTransitionTime"]
    later = settled(replace(first.picture, configs=(config("a", kernelType="y"),)), OPTIONS, NOW + timedelta(hours=1))
    degraded = told(later.picture.pools[0], "RenderDegraded")
    assert (degraded["lastTransitionTime"], "'y'" in degraded["message"]) == (since, True)
    mended = settled(replace(later.picture, configs=(config("a"),)), OPTIONS, NOW + timedelta(hours=2))
    assert told(mended.picture.pools[0], "RenderDegraded")["lastTransitionTime"] == "2026-01-02T05:04:05Z"


def test_conditions_and_fields_of_others_stay() -> None:
    theirs = {"type": "Updated", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    one = {**pool(), "status": {"machineCount": 3, "conditions": [theirs]}}
    found = at_rest(one, config("a"))
    status = found.picture.pools[0]["status"]
    assert status["conditions"][0] == theirs
    assert status["machineCount"] == 3
