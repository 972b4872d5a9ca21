"""The words of machine configs: custom resources as the API server has them, keys of Nodes, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from resources.machine_config.keys import API, SEED, TODAY, Dialect, DialectName, rendered_name
from resources.machine_config.node import ConfigNode, DaemonState, config_node, dialect_of
from resources.machine_config.objects import (
    CONFIG_MODELS,
    ConfigError,
    ConfigMeta,
    ControllerConfig,
    MachineConfig,
    MachineConfigPool,
    MachineConfigSpec,
    OwnerReference,
    translated,
)
from resources.settings import SettingsError, load_settings

OLD = "node-configuration.v1.coreos.com"


def node(annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    meta = {"name": "n1", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations or {}}
    return {"metadata": {**meta, **more.pop("metadata", {})}, **more}


def ready(**conditions: str) -> dict[str, Any]:
    return {"conditions": [{"type": k, "status": v} for k, v in conditions.items()]}


def words(prefix: str, current: str = "", desired: str = "", state: str = "") -> dict[str, str]:
    given = {"currentConfig": current, "desiredConfig": desired, "state": state}
    return {f"{prefix}/{k}": v for k, v in given.items() if v}


# -- objects -----------------------------------------------------------------------------------------------------------


def test_an_object_is_read_and_written_as_it_is() -> None:
    given = {
        "apiVersion": API,
        "kind": "MachineConfig",
        "metadata": {"name": "00-worker", "labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"},
        "spec": {
            "osImageURL": "quay.io/x",
            "config": {"ignition": {"version": "3.4.0"}, "storage": None},
            "kernelArguments": ["a=b"],
            "ofALaterRelease": {"x": 1},
        },
    }
    assert MachineConfig.of_dict(given).to_dict() == given


def test_null_is_as_good_as_absent_and_managed_fields_do_not_count() -> None:
    given = {
        "metadata": {"name": "a", "labels": None, "managedFields": [{"fieldsV1": "x" * 3_000_000}]},
        "spec": {"kernelArguments": None, "config": None},
        "status": None,
    }
    read = MachineConfigPool.of_dict({**given, "spec": None})
    assert (read.metadata.labels, read.spec.paused, read.status.machine_count) == ({}, False, 0)
    assert MachineConfig.of_dict(given).to_dict()["spec"] == {}


def test_one_that_is_made_here_has_what_was_set_and_no_more() -> None:
    owner = OwnerReference(api_version=API, kind="MachineConfigPool", name="worker", uid="u", controller=True)
    made = MachineConfig(
        metadata=ConfigMeta(name=rendered_name("worker", "0" * 32), owner_references=[owner]),
        spec=MachineConfigSpec(config={}, fips=False),
    )
    assert made.to_dict() == {
        "apiVersion": API,
        "kind": "MachineConfig",
        "metadata": {
            "name": "rendered-worker-00000000000000000000000000000000",
            "ownerReferences": [
                {"apiVersion": API, "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": True}
            ],
        },
        "spec": {"config": {}, "fips": False},
    }


def test_what_cannot_be_read_is_said_with_its_path_and_never_quoted() -> None:
    wrong = {"metadata": {"name": "p"}, "spec": {"paused": "s3cr3t", "nodeSelector": {"matchExpressions": [{}]}}}
    with pytest.raises(ConfigError) as e:
        MachineConfigPool.of_dict(wrong)
    assert str(e.value).startswith("MachineConfigPool p: spec.nodeSelector.matchExpressions.0.key: ")
    assert "spec.paused: " in str(e.value)
    assert "s3cr3t" not in str(e.value)
    with pytest.raises(ConfigError, match=r"KubeletConfig \(no name\): metadata.name"):
        CONFIG_MODELS["KubeletConfig"].of_dict({})


def test_a_rendered_config_may_be_large_and_not_larger() -> None:
    def of_size(size: int) -> dict[str, Any]:
        return {"metadata": {"name": "r"}, "spec": {"config": {"storage": {"files": ["x" * size]}}}}

    assert MachineConfig.of_dict(of_size(1_500_000)).spec.config
    with pytest.raises(ConfigError, match=r"spec.config: more than 2097152 bytes"):
        MachineConfig.of_dict(of_size(2_200_000))


def test_the_seeds_machine_pool_is_a_machine_config_pool() -> None:
    seeds = {
        "apiVersion": "example.com/v1",
        "kind": "MachinePool",
        "metadata": {"name": "worker"},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"role": "worker"}},
            "machineSelector": {"matchLabels": {"role": "worker"}},
            "maxUnavailable": "25%",
            "paused": True,
        },
    }
    pool = MachineConfigPool.of_dict(translated(seeds))
    assert (pool.spec.paused, pool.spec.max_unavailable, pool.spec.chosen_by) == (True, "25%", ["machineSelector"])
    assert pool.to_dict()["kind"] == "MachineConfigPool"
    assert translated({"kind": "MachineConfig"}) == {"kind": "MachineConfig"}


def test_a_controller_config_keeps_what_templates_ask_for() -> None:
    read = ControllerConfig.of_dict({"metadata": {"name": "machine-config-controller"}, "spec": {"etcdCAData": "Q0E="}})
    assert read.to_dict()["spec"] == {"etcdCAData": "Q0E="}


# -- nodes -------------------------------------------------------------------------------------------------------------

DIALECT_ROWS = [
    # given, preferred -> dialect, current, desired, state
    ({}, SEED, ("seed", "", "", "")),
    ({}, TODAY, ("today", "", "", "")),
    (words(SEED.prefix, "a", "b", "working"), SEED, ("seed", "a", "b", "working")),
    (words(SEED.prefix, "a", "b", "working"), TODAY, ("seed", "a", "b", "working")),
    (words(TODAY.prefix, "a", "a", "Done"), SEED, ("today", "a", "a", "done")),
    (words(TODAY.prefix, "a", "b", "Unreconcilable"), SEED, ("today", "a", "b", "unreconcilable")),
    (words(TODAY.prefix, "t", "t", "Done") | words(SEED.prefix, "s", "s", "done"), SEED, ("seed", "s", "s", "done")),
    (words(SEED.prefix, "a", "b", "?"), SEED, ("seed", "a", "b", "")),
    # Seed 004, "Historically": equal; desired is the target; desired is not the target.
    ({f"{OLD}/currentConfig": "a", f"{OLD}/desiredConfig": "a"}, SEED, ("seed", "a", "a", "done")),
    (
        {f"{OLD}/currentConfig": "a", f"{OLD}/desiredConfig": "b", f"{OLD}/targetConfig": "b"},
        SEED,
        ("seed", "a", "b", "working"),
    ),
    (
        {f"{OLD}/currentConfig": "a", f"{OLD}/desiredConfig": "b", f"{OLD}/targetConfig": "a"},
        SEED,
        ("seed", "a", "b", ""),
    ),
    # We have told it in the seed's words what it is to have; its daemon still has the historic ones.
    (
        {f"{OLD}/currentConfig": "a", f"{OLD}/desiredConfig": "a", SEED.desired: "c"},
        SEED,
        ("seed", "a", "c", ""),
    ),
]


@pytest.mark.parametrize(("given", "preferred", "found"), DIALECT_ROWS)
def test_a_daemon_is_understood_in_its_own_words(
    given: dict[str, str], preferred: Dialect, found: tuple[str, ...]
) -> None:
    read = config_node(node(given), preferred)
    assert (read.dialect, read.current, read.desired, read.state) == found
    assert dialect_of(given, preferred).name == found[0]


READY_ROWS = [
    # Conditions, spec -> ready as the seed counts, fit as upstream judges (reference, M-A01)
    ({}, {}, (False, True)),
    (ready(Ready="True"), {}, (True, True)),
    (ready(Ready="False"), {}, (False, False)),
    (ready(Ready="Unknown"), {}, (False, False)),
    (ready(Ready="True", DiskPressure="False"), {}, (True, True)),
    (ready(Ready="True", DiskPressure="True"), {}, (True, False)),
    (ready(Ready="True", NetworkUnavailable="True"), {}, (True, False)),
    (ready(Ready="True", MemoryPressure="True"), {}, (True, True)),
    (ready(Ready="True"), {"unschedulable": True}, (True, False)),
]


@pytest.mark.parametrize(("status", "spec", "found"), READY_ROWS)
def test_a_node_is_ready_as_the_seed_counts_and_fit_as_upstream_judges(
    status: dict[str, Any], spec: dict[str, Any], found: tuple[bool, bool]
) -> None:
    read = config_node(node(status=status, spec=spec), SEED)
    assert (read.ready, not read.ailing and not read.unschedulable) == found


def test_a_node_is_projected_to_what_matters() -> None:
    read = config_node(
        node(
            {SEED.reason: "no space", SEED.desired_drain: "drain-rendered-worker-1", SEED.last_drain: "uncordon-x"},
            metadata={
                "labels": {
                    "kubernetes.io/os": "windows",
                    "topology.kubernetes.io/zone": "z1",
                    "node.gardener.cloud/machine-name": "m1",
                    "role": "worker",
                    "other": "x",
                },
                "deletionTimestamp": "2026-01-02T00:00:00Z",
            },
            spec={"taints": [{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}]},
        ),
        SEED,
        keys=["role", "absent"],
    )
    assert (read.zone, read.machine, read.labels, read.reason) == ("z1", "m1", {"role": "worker"}, "no space")
    assert read.windows
    assert read.deleting
    assert read.tainted
    assert read.asks == ("drain", "rendered-worker-1")
    assert read._replace(last_drain=read.desired_drain).asks == ("", "")
    assert read._replace(desired_drain="reboot-now").asks == ("", "")
    assert read.created is not None


def test_an_annotation_of_any_length_travels() -> None:
    read = config_node(node(words(SEED.prefix, "a" * 100_000, "b", "done") | {SEED.reason: "r" * 100_000}), SEED)
    adapter = TypeAdapter(ConfigNode)
    back = adapter.validate_json(adapter.dump_json(read))
    assert (back.desired, back.state) == ("b", DaemonState.DONE)
    assert len(back.current) < 300


# -- settings ----------------------------------------------------------------------------------------------------------


def test_machine_configs_are_off_until_a_cluster_has_them(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("clusters: {a: {machineConfigs: {enabled: true, annotations: today, keepRendered: 2}}, b: {}}")
    settings = load_settings(file)
    given = settings.cluster("a").machine_configs
    assert (given.enabled, given.annotations, given.keep_rendered) == (True, DialectName.TODAY, 2)
    assert not settings.cluster("b").machine_configs.enabled
    assert settings.cluster("b").machine_configs.annotations is DialectName.SEED
    file.write_text("clusters: {a: {machineConfigs: {workerFirst: true, keepRenderd: 2}}}")
    with pytest.raises(SettingsError, match=r"keepRenderd.*did you mean keepRendered"):
        load_settings(file)
