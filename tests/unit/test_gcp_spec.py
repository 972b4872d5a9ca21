"""The provider spec of Google Cloud: every field with its effect, what is refused, and its labels and network tags."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from planners.machine.hot_update import compare, may_carry, rolling_hash
from resources.clouds.gcp.spec import GcpProviderSpec
from resources.effects import Effect, effects

GCP_EFFECTS = {
    "apiVersion": Effect.NONE,
    "kind": Effect.NONE,
    "region": Effect.HASH,
    "zone": Effect.HASH,
    "machineType": Effect.HASH,
    "disks[].type": Effect.HASH,
    "disks[].autoDelete": Effect.HASH,
    "disks[].boot": Effect.HASH,
    "disks[].sizeGb": Effect.HASH,
    "disks[].interface": Effect.HASH,
    "disks[].image": Effect.HASH,
    "disks[].encryption.kmsKeyName": Effect.HASH,
    "disks[].encryption.kmsKeyServiceAccount": Effect.HASH,
    "disks[].labels": Effect.HOT,
    "disks[].provisionedIops": Effect.HASH,
    "disks[].provisionedThroughput": Effect.HASH,
    "disks[].storagePool": Effect.HASH,
    "networkInterfaces[].network": Effect.HASH,
    "networkInterfaces[].subnetwork": Effect.HASH,
    "networkInterfaces[].disableExternalIP": Effect.HASH,
    "networkInterfaces[].stackType": Effect.HASH,
    "networkInterfaces[].ipv6accessType": Effect.HASH,
    "networkInterfaces[].useAliasIPs": Effect.HOT,
    "networkInterfaces[].ipCidrRange": Effect.HOT,
    "networkInterfaces[].subnetworkRangeName": Effect.HOT,
    "canIpForward": Effect.HASH,
    "deletionProtection": Effect.HASH,
    "description": Effect.HASH,
    "gpu.acceleratorType": Effect.HASH,
    "gpu.count": Effect.HASH,
    "minCpuPlatform": Effect.HASH,
    "scheduling.automaticRestart": Effect.HASH,
    "scheduling.onHostMaintenance": Effect.HASH,
    "scheduling.preemptible": Effect.HASH,
    "scheduling.provisioningModel": Effect.HASH,
    "scheduling.instanceTerminationAction": Effect.HASH,
    "serviceAccounts[].email": Effect.HASH,
    "serviceAccounts[].scopes": Effect.HASH,
    "shieldedInstanceConfiguration.enableSecureBoot": Effect.HASH,
    "shieldedInstanceConfiguration.enableVtpm": Effect.HASH,
    "shieldedInstanceConfiguration.enableIntegrityMonitoring": Effect.HASH,
    "advancedMachineFeatures.enableNestedVirtualization": Effect.HASH,
    "advancedMachineFeatures.enableUefiNetworking": Effect.HASH,
    "advancedMachineFeatures.performanceMonitoringUnit": Effect.HASH,
    "advancedMachineFeatures.threadsPerCore": Effect.HASH,
    "advancedMachineFeatures.turboMode": Effect.HASH,
    "advancedMachineFeatures.visibleCoreCount": Effect.HASH,
    "metadata": Effect.HOT,
    "tags": Effect.HOT,
    "labels": Effect.HOT,
    "vmTags": Effect.HOT,
    "diskTags": Effect.HOT,
    "nicTags": Effect.NONE,
}
MUST = ["kubernetes-io-cluster-shoot--test--one", "kubernetes-io-role-node"]
BOOT = {"type": "pd-ssd", "boot": True, "image": "family/x"}
SPEC: dict[str, Any] = {
    "region": "europe-west1",
    "zone": "europe-west1-b",
    "machineType": "n2-standard-2",
    "disks": [BOOT],
    "networkInterfaces": [{"subnetwork": "nodes"}],
    "tags": MUST,
}


def parsed(**changes: Any) -> GcpProviderSpec:
    return GcpProviderSpec.model_validate({**SPEC, **changes})


def test_every_field_of_the_gcp_spec_has_its_effect() -> None:
    assert dict(effects(GcpProviderSpec)) == GCP_EFFECTS
    hot = {path for path, effect in GCP_EFFECTS.items() if effect is Effect.HOT}
    nics = {f"networkInterfaces[].{name}" for name in ("useAliasIPs", "ipCidrRange", "subnetworkRangeName")}
    assert hot == {"disks[].labels", "metadata", "tags", "labels", "vmTags", "diskTags", *nics}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"zone": ""}, "zone"),
    ({"disks": []}, "disks"),
    ({"disks": [{"boot": True}]}, "disks.0.type"),
    ({"disks": [{**BOOT, "encryption": {}}]}, "disks.0.encryption.kmsKeyName"),
    ({"disks": [{**BOOT, "interface": "IDE"}]}, "disks.0.interface"),
    ({"networkInterfaces": []}, "networkInterfaces"),
    ({"networkInterfaces": [{}]}, "give network, subnetwork, or both"),
    ({"networkInterfaces": [{"network": "n", "useAliasIPs": True}]}, "useAliasIPs needs ipCidrRange"),
    ({"gpu": {"acceleratorType": "nvidia-l4", "count": 0}}, "gpu.count"),
    ({"scheduling": {"onHostMaintenance": "STAY"}}, "scheduling.onHostMaintenance"),
    ({"metadata": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}, "metadata"),
    ({"labels": {"a": 1}}, "labels.a"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_what_the_gcp_model_refuses(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        parsed(**change)
    said = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong.value.errors(include_input=False)]
    assert any(words in s for s in said), said


LOCAL = {"type": "SCRATCH", "interface": "NVME"}
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"zone": "us-east1-b"}, "zone", "not a zone of the region europe-west1"),
    ({"nicTags": {}}, "nicTags", "carry no labels"),
    ({"disks": [BOOT, BOOT]}, "disks", "exactly one disk needs boot: true, not 2"),
    ({"disks": [{"type": "pd-ssd", "boot": True}]}, "disks[0].image", "missing"),
    ({"disks": [BOOT, {"type": "pd-ssd"}]}, "disks[1].sizeGb", "missing"),
    ({"disks": [BOOT, {"type": "SCRATCH"}]}, "disks[1].interface", "NVME or SCSI"),
    ({"disks": [BOOT, {**LOCAL, "autoDelete": False}]}, "disks[1].autoDelete", "always goes with its VM"),
    ({"disks": [BOOT, {**LOCAL, "labels": {"a": "b"}}]}, "disks[1].labels", "carries no labels"),
    ({"serviceAccounts": [{"email": "a"}, {"email": "b"}]}, "serviceAccounts", "one service account"),
    (
        {"scheduling": {"preemptible": True, "onHostMaintenance": "MIGRATE"}},
        "scheduling.onHostMaintenance",
        "a spot VM cannot migrate",
    ),
    (
        {"gpu": {"acceleratorType": "x", "count": 1}, "scheduling": {"onHostMaintenance": "MIGRATE"}},
        "scheduling.onHostMaintenance",
        "a VM with GPUs cannot migrate",
    ),
    (
        {"scheduling": {"provisioningModel": "SPOT", "automaticRestart": True}},
        "scheduling.automaticRestart",
        "not started again",
    ),
    (
        {"scheduling": {"instanceTerminationAction": "DELETE"}},
        "scheduling.instanceTerminationAction",
        "only for spot VMs",
    ),
    ({"metadata": [{"key": "user-data", "value": "x"}]}, "metadata.user-data", "Secret that has userData"),
    ({"metadata": {"a.b": "x"}}, "metadata", "the key a.b may have"),
    ({"tags": [f"t{n}" for n in range(65)]}, "tags", "65 network tags, the cloud takes 64"),
    ({"vmTags": {"goog-x": "1"}}, "vmTags or labels", "the cloud's own"),
    ({"tags": [*MUST, "kubernetes-io-cluster-two"]}, "vmTags or labels", "a machine is of one cluster"),
]


@pytest.mark.parametrize(("change", "path", "words"), MISTAKES, ids=[f"{p} {w}" for _, p, w in MISTAKES])
def test_what_google_would_refuse(change: dict[str, Any], path: str, words: str) -> None:
    assert parsed().mistakes() == []
    found = parsed(**change).mistakes()
    assert [p for p, w in found if words in w] == [path], found


def test_a_class_of_gardener_is_read_whole() -> None:
    spec = parsed(
        apiVersion="mcm.gardener.cloud/v1alpha1",
        kind="GCPProviderSpec",
        canIpForward=True,
        description="a node",
        metadata=[{"key": "block-project-ssh-keys", "value": "TRUE"}, {"key": "empty", "value": None}],
        scheduling={"automaticRestart": True, "onHostMaintenance": "MIGRATE", "preemptible": False},
        serviceAccounts=[{"email": "nodes@p.iam.gserviceaccount.com", "scopes": ["compute"]}],
        labels={"name": "shoot--test--one"},
    )
    assert spec.metadata == {"block-project-ssh-keys": "TRUE", "empty": ""}
    assert spec.mistakes() == []
    assert spec.must_tags() == dict.fromkeys(MUST, "1")  # they are among the network tags there
    assert spec.deprecations() == [
        ("labels", "deprecated: use vmTags (the network tags in `tags` are another thing, and stay)")
    ]


def test_metadata_of_one_key_twice_is_no_spec() -> None:
    with pytest.raises(ValidationError, match="the key a is given twice"):
        parsed(metadata=[{"key": "a", "value": "1"}, {"key": "a", "value": "2"}])


def test_which_labels_go_where() -> None:
    both = parsed(
        labels={"a": "1"}, vmTags={}, diskTags={"d": "1", "e": "1"}, disks=[{**BOOT, "labels": {"e": "2"}}, LOCAL]
    )
    assert both.tag_sets() == {"vm": {}, "disks[0]": {"d": "1", "e": "2"}}  # a local SSD carries none
    assert both.settled().tag_sets() == both.tag_sets()
    assert both.settled().disk_tags == {}


def test_another_spelling_is_no_difference() -> None:
    spelled = {
        **SPEC,
        "disks": [{**BOOT, "autoDelete": True, "provisionedIops": 0}],
        "networkInterfaces": [{"subnetwork": "nodes", "stackType": "IPV4_ONLY", "ipCidrRange": ""}],
        "scheduling": {"automaticRestart": True, "onHostMaintenance": "MIGRATE", "preemptible": False},
        "tags": MUST[::-1],
        "canIpForward": False,
    }
    assert not compare("GCP", SPEC, spelled)
    assert rolling_hash("GCP", SPEC) == rolling_hash("GCP", spelled)
    assert compare("GCP", SPEC, {**SPEC, "scheduling": {"preemptible": True}}).rolls == ("scheduling.preemptible",)


def test_what_is_hot_and_what_rolls() -> None:
    changed = {
        **SPEC,
        "tags": [*MUST, "web"],
        "metadata": [{"key": "a", "value": "1"}],
        "diskTags": {"x": "1"},
        "disks": [{**BOOT, "labels": {"y": "1"}}],
        "vmTags": {"z": "1"},
    }
    assert compare("GCP", SPEC, changed).hot == ("diskTags", "disks[0].labels", "metadata", "tags", "vmTags")
    assert not compare("GCP", SPEC, changed).rolls
    another = {**SPEC, "disks": [BOOT, {"type": "pd-ssd", "sizeGb": 20, "labels": {"y": "1"}}]}
    assert "disks[1].type" in compare("GCP", SPEC, another).rolls


def test_the_cluster_may_not_change_where_it_stands_among_the_network_tags() -> None:
    for tags, words in ((MUST[1:], "may not be removed"), (["kubernetes-io-cluster-other", MUST[1]], "may not be")):
        refused = compare("GCP", SPEC, {**SPEC, "tags": tags}).refused
        assert any(words in w and MUST[0] in w for w in refused), refused
    both = {**SPEC, "vmTags": {"kubernetes.io/cluster/shoot--test--one": "1"}}
    assert not compare("GCP", SPEC, both).refused  # the same one, in the other place


def test_network_tags_that_a_failed_update_may_have_set_are_ours() -> None:
    """a -> b failed half-way, then back to a: b is removed, and so it goes for several tries."""
    applied, tried = {**SPEC, "tags": [*MUST, "a"]}, [{**SPEC, "tags": [*MUST, t]} for t in ("b", "c")]
    desired = {**SPEC, "tags": [*MUST, "d"]}
    assert {"a", "b", "c"} <= {*may_carry("GCP", applied, tried, desired)["tags"]}
    assert "d" not in may_carry("GCP", applied, tried, desired)["tags"]
