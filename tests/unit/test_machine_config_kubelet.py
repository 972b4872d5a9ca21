"""KubeletConfigs become MachineConfigs: for which pools, how they are called, what goes, and what a person is told.

M-K… are the cases of upstream's tests; where the seed says otherwise the row says so."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from machine_configs.objects import (
    NOW,
    OPTIONS,
    at_rest,
    config,
    controller_config,
    edited,
    file,
    kubelet_config,
    made,
    named,
    names,
    pool,
    target,
    told,
    without,
)

from planners.machine_config.ignition import content_of, file_of
from planners.machine_config.kubelet_merge import ignition_of
from planners.machine_config.kubelet_names import name_for, number_of
from planners.machine_config.picture import Picture, RenderOptions
from planners.machine_config.reconcile import plan
from planners.machine_config.rehearsal import Settled, settled
from resources.machine_config.keys import KUBELET_FINALIZER, KUBELET_NAMES, ROLE_LABEL

GOING = "2026-01-02T03:05:00Z"
BASICS = (controller_config(), pool(), pool("master"))


def conf(picture: Picture, of: str = "worker") -> dict[str, Any]:
    """The kubelet.conf that a pool's nodes get in the end."""
    found = file_of(target(picture, of)["spec"]["config"], "/etc/kubernetes/kubelet.conf")
    assert found is not None
    loaded: dict[str, Any] = yaml.safe_load(content_of(found["contents"]) or b"")
    return loaded


def beside(picture: Picture, more: Any) -> Settled:
    """Where rendering comes to a rest with one more KubeletConfig."""
    return settled(replace(picture, kubelet_configs=(*picture.kubelet_configs, more)), OPTIONS, NOW)


def after(picture: Picture, name: str, spec: Any = None, **meta: Any) -> Settled:
    """Where rendering comes to a rest once a person has changed a KubeletConfig."""
    return settled(replace(picture, kubelet_configs=edited(picture.kubelet_configs, name, spec, **meta)), OPTIONS, NOW)


def test_the_seeds_case() -> None:
    gates = kubelet_config("gates", featureGates={"NodeSwap": True}, maxPods=100)
    found = at_rest(*BASICS, gates)
    assert names(found.picture.configs)[4] == "99-worker-kubelet-managed"
    assert conf(found.picture)["featureGates"] == {"NodeSwap": True}
    assert (conf(found.picture)["maxPods"], conf(found.picture)["podPidsLimit"]) == (100, 4096)
    assert conf(found.picture, "master")["maxPods"] == 250
    told_of = named(found.picture.kubelet_configs, "gates")
    assert told(told_of, "Accepted")["message"] == "Rendered as 99-worker-kubelet-managed for pool worker"
    assert (told(told_of, "Success")["status"], told_of["status"]["observedGeneration"]) == ("True", 1)


def test_a_field_that_is_taken_back_has_its_default_again() -> None:
    found = at_rest(*BASICS, kubelet_config("a", maxPods=100, podPidsLimit=1))
    plain = at_rest(*BASICS)
    changed = after(found.picture, "a", {"kubeletConfig": {"podPidsLimit": 1}})
    assert (conf(changed.picture)["maxPods"], conf(changed.picture)["podPidsLimit"]) == (250, 1)
    gone = after(changed.picture, "a", deletionTimestamp=GOING)
    assert target(gone.picture)["metadata"]["name"] == target(plain.picture)["metadata"]["name"]
    assert not gone.picture.kubelet_configs
    assert "99-worker-kubelet-managed" not in names(gone.picture.configs)


def test_its_own_finalizer_goes_last_and_those_of_others_stay() -> None:
    mine = kubelet_config("a", maxPods=1)
    mine["metadata"]["finalizers"] = ["somebody/else"]
    found = at_rest(*BASICS, mine)
    assert named(found.picture.kubelet_configs, "a")["metadata"]["finalizers"] == ["somebody/else", KUBELET_FINALIZER]
    going = edited(found.picture.kubelet_configs, "a", deletionTimestamp=GOING)
    leaving = replace(found.picture, kubelet_configs=going)
    [delete] = plan(leaving, OPTIONS, NOW).changes
    assert (delete.verb, delete.name) == ("delete", "99-worker-kubelet-managed")
    gone = settled(leaving, OPTIONS, NOW)
    assert named(gone.picture.kubelet_configs, "a")["metadata"]["finalizers"] == ["somebody/else"]
    assert conf(gone.picture)["maxPods"] == 250


def test_several_add_up_and_the_newest_wins() -> None:
    later = NOW + timedelta(minutes=1)
    first = kubelet_config("z-first", maxPods=100, podPidsLimit=1000, evictionHard={"memory.available": "1Gi"})
    second = kubelet_config("a-second", at=later, maxPods=50, evictionHard={"nodefs.available": "5%"})
    found = at_rest(*BASICS, second, first)
    assert (conf(found.picture)["maxPods"], conf(found.picture)["podPidsLimit"]) == (50, 1000)
    assert conf(found.picture)["evictionHard"] == {"memory.available": "1Gi", "nodefs.available": "5%"}
    assert [told(k, "Accepted")["status"] for k in found.picture.kubelet_configs] == ["True", "True"]
    by_name = {k["metadata"]["name"]: k for k in found.picture.kubelet_configs}
    assert json.loads(by_name["z-first"]["metadata"]["annotations"][KUBELET_NAMES]) == {"worker": name_for("worker", 0)}
    assert json.loads(by_name["a-second"]["metadata"]["annotations"][KUBELET_NAMES]) == {
        "worker": name_for("worker", 1)
    }
    # A MachineConfig that somebody deletes comes back under its name, and so the order is as it was (B47).
    lost = replace(found.picture, configs=without(found.picture.configs, "99-worker-kubelet-managed"))
    assert conf(settled(lost, OPTIONS, NOW).picture) == conf(found.picture)
    # Of the first one's fields those that are taken back go from the second one's MachineConfig too.
    less = after(found.picture, "z-first", {"kubeletConfig": {}})
    assert (conf(less.picture)["maxPods"], conf(less.picture)["podPidsLimit"]) == (50, 4096)
    # Its number is not given again while a higher one is there.
    gone = after(less.picture, "z-first", deletionTimestamp=GOING)
    third = beside(gone.picture, kubelet_config("third", at=later))
    made_by = {c["metadata"]["ownerReferences"][0]["name"]: c["metadata"]["name"] for c in third.picture.configs if
               c["metadata"].get("ownerReferences", [{}])[0].get("kind") == "KubeletConfig"}  # fmt: skip
    assert made_by == {"a-second": name_for("worker", 1), "third": name_for("worker", 2)}


def test_more_than_ten_are_refused() -> None:
    everyone = [kubelet_config(f"k{n:02}", at=NOW + timedelta(minutes=n), maxPods=n) for n in range(11)]
    found = at_rest(*BASICS, *everyone)
    assert conf(found.picture)["maxPods"] == 9
    last = told(named(found.picture.kubelet_configs, "k10"), "Accepted")
    assert (last["status"], last["reason"]) == ("False", "TooMany")
    assert last["message"] == "pool worker has 10 KubeletConfigs already; merge some into one"
    assert [t.reason for t in found.troubles] == ["TooMany"]
    assert [number_of("worker", n) for n in ("99-worker-kubelet-managed", "99-worker-kubelet-managed-9")] == [0, 9]
    assert [number_of("worker", n) for n in ("99-worker-kubelet-managed-10", "99-x-kubelet-managed")] == [None, None]


def test_each_pool_has_its_own() -> None:  # M-K05
    pools = [pool(f"p{n}", "worker", f"p{n}") for n in range(30)]
    found = at_rest(controller_config(), *pools, *(kubelet_config(f"k{n}", f"p{n}", maxPods=n) for n in range(30)))
    assert [conf(found.picture, f"p{n}")["maxPods"] for n in range(30)] == [*range(30)]
    assert not found.troubles


def test_one_for_several_pools() -> None:  # M-K11, B45
    both = [pool("a", "worker", "a"), pool("b", "worker", "b")]
    for p in both:
        p["metadata"]["labels"] = {"fast": "yes"}
    one = kubelet_config("k", maxPods=7, spec={"machineConfigPoolSelector": {"matchLabels": {"fast": "yes"}}})
    found = at_rest(controller_config(), *both, one)
    assert [conf(found.picture, p)["maxPods"] for p in ("a", "b")] == [7, 7]
    # One that is not selected any more loses it; one that is made later gets it.
    other = pool("c", "worker", "c")
    other["metadata"]["labels"] = {"fast": "yes"}
    moved = (*edited(found.picture.pools, "a", labels={}), other)
    again = settled(replace(found.picture, pools=moved), OPTIONS, NOW)
    assert [conf(again.picture, p)["maxPods"] for p in ("a", "b", "c")] == [250, 7, 7]
    assert "99-a-kubelet-managed" not in names(again.picture.configs)


def test_a_custom_pool_has_the_workers_too() -> None:
    """B31: purely by name worker's comes after infra's, and that is said; with workers first infra's wins."""
    objects = (controller_config(), pool(), pool("infra", "worker", "infra"))
    ours = (kubelet_config("w", maxPods=100, podPidsLimit=7), kubelet_config("i", "infra", maxPods=20))
    found = at_rest(*objects, *ours)
    assert conf(found.picture, "infra")["maxPods"] == 100
    infra = told(named(found.picture.kubelet_configs, "i"), "Accepted")
    assert (infra["status"], infra["reason"]) == ("False", "Overridden")
    assert infra["message"].startswith(
        "pool infra has the kubelet.conf of MachineConfig 99-worker-kubelet-managed, which"
    )
    first = at_rest(*objects, *ours, options=RenderOptions(worker_first=True))
    assert (conf(first.picture, "infra")["maxPods"], conf(first.picture, "infra")["podPidsLimit"]) == (20, 7)
    assert not first.troubles


@pytest.mark.parametrize(
    ("objects", "reason", "words"),
    [
        ((*BASICS, kubelet_config("k", "none")), "NoPool", "matches the labels of no MachineConfigPool; label one"),
        (
            (*BASICS, kubelet_config("k", spec={"machineConfigPoolSelector": {}})),
            "NoPool",
            "spec.machineConfigPoolSelector is {}, which would select every pool",
        ),
        ((*BASICS, kubelet_config("k", spec={"machineConfigPoolSelector": None})), "NoPool", "Selector is missing"),
        ((*BASICS, kubelet_config("k", maxPods="x")), "Invalid", "maxPods: a whole number is needed"),
        (
            (*BASICS, kubelet_config("k", systemCgroups="/x")),
            "Invalid",
            "pool worker: systemReservedCgroup (/system.slice)",
        ),
        ((*BASICS, kubelet_config("k", "master", staticPodPath="/x")), "Invalid", "which is of the control plane"),
        ((pool(), config("a"), kubelet_config("k")), "NoKubeletConf", "which need a ControllerConfig"),
        ((pool("worker", "x"), config("a", role="x"), kubelet_config("k")), "NotSelected", "does not select"),
    ],
)
def test_what_a_person_is_told(objects: Any, reason: str, words: str) -> None:
    found = at_rest(*objects)
    told_of = named(found.picture.kubelet_configs, "k")
    assert told(told_of, "Accepted") | {"message": ""} == {
        "type": "Accepted",
        "status": "False",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    assert words in told(told_of, "Accepted")["message"]
    assert [(e.name, e.warning, e.reason) for e in found.events if e.kind.kind == "KubeletConfig"] == [
        ("k", True, reason)
    ]
    assert not plan(found.picture, OPTIONS, NOW + timedelta(hours=1)).changes  # it is told once
    assert target(found.picture)  # and holds up nobody else


def test_a_wrong_one_keeps_what_it_said_last() -> None:
    later = NOW + timedelta(minutes=1)
    found = at_rest(*BASICS, kubelet_config("a", maxPods=100), kubelet_config("b", at=later, podPidsLimit=7))
    broken = after(found.picture, "a", {"kubeletConfig": {"maxPods": "many"}})
    assert conf(broken.picture) == conf(found.picture)
    told_of = named(broken.picture.kubelet_configs, "a")
    assert (told(told_of, "Accepted")["reason"], told_of["status"]["observedGeneration"]) == ("Invalid", 2)
    mended = after(broken.picture, "a", {"kubeletConfig": {"maxPods": 9}})
    assert (conf(mended.picture)["maxPods"], conf(mended.picture)["podPidsLimit"]) == (9, 7)
    assert told(named(mended.picture.kubelet_configs, "a"), "Accepted")["status"] == "True"


def test_names_outlive_their_annotation_and_are_never_shared() -> None:  # M-K07
    found = at_rest(
        *BASICS, kubelet_config("a", maxPods=1), kubelet_config("b", at=NOW + timedelta(minutes=1), maxPods=2)
    )
    lost = after(found.picture, "b", annotations={})
    assert conf(lost.picture)["maxPods"] == 2
    assert names(lost.picture.configs) == names(found.picture.configs)
    copied = kubelet_config("copy", at=NOW + timedelta(minutes=2), maxPods=3)
    copied["metadata"]["annotations"] = dict(named(found.picture.kubelet_configs, "a")["metadata"]["annotations"])
    third = beside(found.picture, copied)
    assert conf(third.picture)["maxPods"] == 3
    assert name_for("worker", 2) in names(third.picture.configs)


def test_a_persons_config_of_that_name_stays() -> None:
    theirs = config("99-worker-kubelet-managed", file("/etc/x", "x"))
    found = at_rest(*BASICS, theirs, kubelet_config("a", maxPods=1))
    assert named(found.picture.configs, "99-worker-kubelet-managed") == theirs
    assert conf(found.picture)["maxPods"] == 1


def test_nothing_changed_nothing_written() -> None:  # M-K09
    found = at_rest(*BASICS, kubelet_config("a", maxPods=100))
    assert plan(found.picture, OPTIONS, NOW + timedelta(days=1)).changes == ()


def test_one_without_an_owner_goes() -> None:
    """Its KubeletConfig was deleted by force, and a new one of the same name has another uid."""
    found = at_rest(*BASICS, kubelet_config("a", maxPods=100))
    orphaned = settled(replace(found.picture, kubelet_configs=()), OPTIONS, NOW)
    assert conf(orphaned.picture)["maxPods"] == 250
    new = kubelet_config("a", maxPods=5)
    new["metadata"]["uid"] = "another"
    again = settled(replace(found.picture, kubelet_configs=(new,)), OPTIONS, NOW)
    assert conf(again.picture)["maxPods"] == 5
    assert (
        named(again.picture.configs, "99-worker-kubelet-managed")["metadata"]["ownerReferences"][0]["uid"] == "another"
    )


def test_two_pools_that_merge_each_others() -> None:
    """Neither finds there what the other has copied from it: a field that is taken back would never go."""
    objects = (controller_config(), pool("a", "worker", "a", "b"), pool("b", "worker", "a", "b"))
    found = at_rest(
        *objects, kubelet_config("ka", "a", maxPods=1, podPidsLimit=1), kubelet_config("kb", "b", maxPods=2)
    )
    less = after(found.picture, "ka", {"kubeletConfig": {"maxPods": 1}})
    assert conf(less.picture, "b")["podPidsLimit"] == 4096


def test_a_kubelet_conf_of_a_persons_is_the_base() -> None:
    theirs = made(
        "MachineConfig",
        "50-kubelet",
        {"config": ignition_of({"maxPods": 33, "kubeAPIQPS": 1})},
        labels={ROLE_LABEL: "worker"},
    )
    found = at_rest(*BASICS, theirs, kubelet_config("a", maxPods=44))
    assert conf(found.picture) == {"maxPods": 44, "kubeAPIQPS": 1}
