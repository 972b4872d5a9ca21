"""Machine configs as people write them: what is refused where it is written, and what `apply` sends."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from resources.machine_config.keys import API
from resources.machine_config.objects import ConfigObject, MachineConfigPool
from resources.manifests import Loaded, ManifestError, cluster_of, load_manifests
from starter.sdk.machine_config.objects import created


def load(kind: str, spec: Any, api: str = API, **meta: Any) -> Loaded:
    document = {"apiVersion": api, "kind": kind, "metadata": {"name": "x", **meta}, "spec": spec}
    return load_manifests(yaml.safe_dump(document), "f")


def one(kind: str, spec: Any, **meta: Any) -> ConfigObject:
    (found,) = load(kind, spec, **meta).configs
    return found


SELECTOR = {"matchLabels": {"role": "worker"}}
REFUSED = [
    # kind, spec, what is said
    (
        "MachineConfigPool",
        {"machineSelector": SELECTOR, "nodeSelector": SELECTOR},
        "spec.nodeSelector: machineSelector and nodeSelector both say which machines are the pool's: keep one of them",
    ),
    (
        "MachineConfigPool",
        {"nodeSelector": SELECTOR, "machineSetRef": {"name": "p"}},
        "spec.machineSetRef: nodeSelector and machineSetRef both say which machines are the pool's",
    ),
    # OpenShift refuses these in the pool's status (reference, 5.5), and an empty selector with an event (4.4).
    ("MachineConfigPool", {"maxUnavailable": "60"}, "spec.maxUnavailable: neither a count nor a percentage"),
    ("MachineConfigPool", {"maxUnavailable": "50 percent"}, "spec.maxUnavailable: neither a count nor a percentage"),
    ("MachineConfigPool", {"maxUnavailable": "40 %"}, "spec.maxUnavailable: neither a count nor a percentage"),
    ("MachineConfigPool", {"maxUnavailable": -1}, "spec.maxUnavailable: neither a count nor a percentage"),
    ("MachineConfigPool", {"machineConfigSelector": {}}, "an empty selector selects nothing here"),
    ("MachineConfigPool", {"paused": "yes"}, "spec.paused: write true or false"),
    ("MachineConfigPool", {"nodeSelector": {"matchLabels": {"a b": "c"}}}, "spec.nodeSelector.matchLabels: name part"),
    (
        "MachineConfigPool",
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "spec.nodeSelector.matchExpressions[0].values: In takes at least one value",
    ),
    (
        "MachineConfigPool",
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        "spec.nodeSelector.matchExpressions[0].values: Exists takes none",
    ),
    ("MachineConfigPool", {"osImageStream": {"name": "rhel-10"}}, "spec.osImageStream: unknown field"),
    ("MachineConfig", {"kernelType": "fast"}, "spec.kernelType: not a known kernel; write default, realtime or 64k-"),
    ("MachineConfig", {"kernelArgs": ["a"]}, "spec.kernelArgs: unknown field"),
    ("KubeletConfig", {"logLevel": 11}, "spec.logLevel: 11 is no level; write 0 to 10"),
    ("KubeletConfig", {"tlsSecurityProfile": {"type": "Old"}}, "spec.tlsSecurityProfile: not supported: set tls"),
    ("ControllerConfig", {}, "metadata.name: the only ControllerConfig that counts is machine-config-controller"),
]


@pytest.mark.parametrize(("kind", "spec", "said"), REFUSED)
def test_what_nobody_could_act_on_is_refused_where_it_is_written(kind: str, spec: Any, said: str) -> None:
    with pytest.raises(ManifestError) as e:
        load(kind, spec)
    assert f"f (document 1): {kind} x: " in str(e.value)
    assert said in str(e.value)


@pytest.mark.parametrize("name", ["rendered-worker-1", "rendered-"])
def test_names_of_rendered_configs_are_hostlers_own(name: str) -> None:
    with pytest.raises(ManifestError, match="names that begin with rendered- are those of Hostler's own"):
        load("MachineConfig", {}, name=name)


def test_a_pools_name_leaves_room_for_its_rendered_configs() -> None:
    assert one("MachineConfigPool", {}, name="p" * 211).name == "p" * 211
    with pytest.raises(ManifestError, match="longer than 211 characters"):
        load("MachineConfigPool", {}, name="p" * 212)


@pytest.mark.parametrize("most", [0, 1, 7, "0%", "1%", "60%", "100%", None])
def test_every_amount_that_openshift_takes_is_taken(most: Any) -> None:
    assert load("MachineConfigPool", {"maxUnavailable": most}).configs


def test_the_seeds_kind_is_taken_with_any_api_version() -> None:
    (pool,) = load("MachinePool", {"machineSelector": SELECTOR, "maxUnavailable": 2}, api="v1").configs
    assert isinstance(pool, MachineConfigPool)
    assert pool.spec.machine_selector is not None
    assert pool.spec.machine_selector.matches({"role": "worker", "zone": "a"})


def test_a_template_may_ask_for_any_field_of_the_controller_config() -> None:
    found = one("ControllerConfig", {"etcdCAData": {"a": 1}}, name="machine-config-controller")
    assert created(found)["spec"] == {"etcdCAData": {"a": 1}}


def test_the_cluster_is_named_by_an_annotation() -> None:
    found = one("MachineConfigPool", {}, annotations={"hostler.io/cluster": "other"})
    assert cluster_of(found, None, "default") == "other"


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_what_get_prints_can_be_applied_again() -> None:
    """The API server's own fields are not sent back, nor is what Hostler writes."""
    whole = {
        "apiVersion": API,
        "kind": "MachineConfigPool",
        "metadata": {
            "name": "worker",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "x"}],
            "labels": {"a": "b"},
        },
        "spec": {"paused": True, "configuration": {"name": "rendered-worker-1", "source": [{"name": "00-worker"}]}},
        "status": {"machineCount": 3},
    }
    (manifest,) = load_manifests(yaml.safe_dump(whole), "f").configs
    assert created(manifest) == {
        "apiVersion": API,
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "labels": {"a": "b"}},
        "spec": {"paused": True},
    }
