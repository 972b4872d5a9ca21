"""Provider specs: every field with its effect, listed here in full (seed 002: `updatable`), and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from paths import ROOT
from pydantic import ValidationError

from resources.clouds import PROVIDERS
from resources.clouds.aws.spec import PLACEMENT, AwsProviderSpec, Ec2Placement, read_placement
from resources.effects import Effect, effects
from resources.manifests import MachineClass, ManifestError, check_provider_spec, load_manifests
from resources.unknown import unknown_fields

AWS_EFFECTS = {
    "apiVersion": Effect.NONE,
    "kind": Effect.NONE,
    "ami": Effect.HASH,
    "region": Effect.HASH,
    "machineType": Effect.HASH,
    "keyName": Effect.HASH,
    "iam.name": Effect.HASH,
    "iam.arn": Effect.HASH,
    "blockDevices[].deviceName": Effect.HASH,
    "blockDevices[].ebs.deleteOnTermination": Effect.HASH,
    "blockDevices[].ebs.encrypted": Effect.HASH,
    "blockDevices[].ebs.iops": Effect.HASH,
    "blockDevices[].ebs.throughput": Effect.HASH,
    "blockDevices[].ebs.kmsKeyID": Effect.HASH,
    "blockDevices[].ebs.snapshotID": Effect.HASH,
    "blockDevices[].ebs.volumeSize": Effect.HASH,
    "blockDevices[].ebs.volumeType": Effect.HASH,
    "blockDevices[].noDevice": Effect.NONE,
    "blockDevices[].virtualName": Effect.NONE,
    "networkInterfaces[].subnetID": Effect.HASH,
    "networkInterfaces[].securityGroupIDs": Effect.HASH,
    "networkInterfaces[].associatePublicIPAddress": Effect.HASH,
    "networkInterfaces[].deleteOnTermination": Effect.HASH,
    "networkInterfaces[].description": Effect.HASH,
    "networkInterfaces[].deviceIndex": Effect.HASH,
    "networkInterfaces[].networkCardIndex": Effect.HASH,
    "networkInterfaces[].interfaceType": Effect.HASH,
    "networkInterfaces[].ipv6AddressCount": Effect.HASH,
    "networkInterfaces[].primaryIpv6": Effect.HASH,
    "networkInterfaces[].ipv6PrefixCount": Effect.POST_START,
    "tags": Effect.HOT,
    "vmTags": Effect.HOT,
    "nicTags": Effect.HOT,
    "diskTags": Effect.HOT,
    "srcAndDstChecksEnabled": Effect.POST_START,
    "instanceMetadataOptions.httpEndpoint": Effect.HOT,
    "instanceMetadataOptions.httpPutResponseHopLimit": Effect.HOT,
    "instanceMetadataOptions.httpTokens": Effect.HOT,
    "instanceMetadataOptions.instanceMetadataTags": Effect.HOT,
    "cpuOptions.coreCount": Effect.HASH,
    "cpuOptions.threadsPerCore": Effect.HASH,
    "cpuOptions.amdSevSnp": Effect.HASH,
    "capacityReservation.capacityReservationPreference": Effect.HASH,
    "capacityReservation.capacityReservationId": Effect.HASH,
    "capacityReservation.capacityReservationResourceGroupArn": Effect.HASH,
    "instanceMarketOptions.marketType": Effect.HASH,
    "spotPrice": Effect.HASH,
    "placement.affinity": Effect.HASH,
    "placement.availabilityZone": Effect.HASH,
    "placement.groupId": Effect.HASH,
    "placement.groupName": Effect.HASH,
    "placement.hostId": Effect.HASH,
    "placement.hostResourceGroupArn": Effect.HASH,
    "placement.partitionNumber": Effect.HASH,
    "placement.tenancy": Effect.HASH,
    "ebsOptimized": Effect.NONE,
    "monitoring": Effect.NONE,
    "kmsKeyID": Effect.NONE,
}

NIC = {"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]}
SPEC: dict[str, Any] = {"ami": "ami-1", "region": "eu-west-1", "machineType": "m5.large", "networkInterfaces": [NIC]}


def test_every_field_of_the_aws_spec_has_its_effect() -> None:
    assert dict(effects(AwsProviderSpec)) == AWS_EFFECTS


def test_what_is_updatable_and_what_is_post_start() -> None:
    by_effect = {e: {path for path, effect in effects(AwsProviderSpec) if effect is e} for e in Effect}
    names = ("httpEndpoint", "httpPutResponseHopLimit", "httpTokens", "instanceMetadataTags")
    options = {f"instanceMetadataOptions.{name}" for name in names}
    assert by_effect[Effect.HOT] == {"tags", "vmTags", "nicTags", "diskTags"} | options
    assert by_effect[Effect.POST_START] == {"srcAndDstChecksEnabled", "networkInterfaces[].ipv6PrefixCount"}


DOC = ROOT / "docs" / "hot-updates.md"


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_the_documentation_has_every_field_with_its_effect(provider: str) -> None:
    section = DOC.read_text().partition(f"\n### {provider}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z-]+) \|", section, re.MULTILINE)
    assert dict(rows) == {path: str(effect) for path, effect in effects(PROVIDERS[provider].spec)}
    assert len(rows) == len(dict(rows)), "a field has two rows"


def test_the_least_spec_is_enough() -> None:
    spec = AwsProviderSpec.model_validate(SPEC)
    assert spec.network_interfaces[0].security_group_ids == ["sg-1"]
    assert spec.src_and_dst_checks_enabled is None


@pytest.mark.parametrize("field", ["ami", "region", "machineType", "networkInterfaces"])
def test_what_must_be_there(field: str) -> None:
    with pytest.raises(ValidationError) as missing:
        AwsProviderSpec.model_validate({k: v for k, v in SPEC.items() if k != field})
    assert [e["loc"] for e in missing.value.errors()] == [(field,)]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ami": ""}, "ami"),
    ({"networkInterfaces": []}, "networkInterfaces"),
    ({"networkInterfaces": [{"securityGroupIDs": ["sg-1"]}]}, "networkInterfaces.0.subnetID"),
    ({"networkInterfaces": [NIC, {**NIC, "deviceIndex": 0}]}, "same networkCardIndex and deviceIndex"),
    ({"networkInterfaces": [{**NIC, "interfaceType": "trunk"}]}, "networkInterfaces.0.interfaceType"),
    ({"networkInterfaces": [{**NIC, "ipv6PrefixCount": -1}]}, "networkInterfaces.0.ipv6PrefixCount"),
    ({"iam": {}}, "exactly one of name and arn"),
    ({"iam": {"name": "a", "arn": "b"}}, "exactly one of name and arn"),
    ({"cpuOptions": {"coreCount": 2}}, "coreCount and threadsPerCore together"),
    ({"cpuOptions": {"coreCount": 2, "threadsPerCore": 3}}, "cpuOptions.threadsPerCore"),
    (
        {"capacityReservation": {"capacityReservationPreference": "open", "capacityReservationId": "cr-1"}},
        "one of preference, id and resource group ARN",
    ),
    ({"instanceMarketOptions": {"marketType": "cheap"}}, "instanceMarketOptions.marketType"),
    ({"placement": {"tenancy": "mine"}}, "placement.tenancy"),
    ({"placement": {"partitionNumber": 8}}, "placement.partitionNumber"),
    ({"instanceMetadataOptions": {"httpTokens": "maybe"}}, "instanceMetadataOptions.httpTokens"),
    ({"instanceMetadataOptions": {"httpPutResponseHopLimit": 65}}, "instanceMetadataOptions.httpPutResponseHopLimit"),
    ({"blockDevices": [{"ebs": {}}, {"deviceName": "/dev/sdb"}]}, "every device needs a deviceName"),
    ({"blockDevices": [{"deviceName": "/root"}, {"deviceName": "/root"}]}, "more than one has the deviceName /root"),
    ({"blockDevices": [{"deviceName": "/root", "ebs": {"volumeSize": 0}}]}, "blockDevices.0.ebs.volumeSize"),
    ({"tags": {"a": 1}}, "tags.a"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_what_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        AwsProviderSpec.model_validate({**SPEC, **change})
    said = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong.value.errors(include_input=False)]
    assert any(words in s for s in said), said


def test_unknown_fields_are_kept_and_named_with_their_path() -> None:
    changed = {**SPEC, "amii": "x", "networkInterfaces": [{**NIC, "subnet": "y"}], "iam": {"name": "n", "nam": "m"}}
    assert AwsProviderSpec.model_validate(changed).model_extra == {"amii": "x"}
    assert sorted(unknown_fields(AwsProviderSpec, changed)) == [
        "amii: unknown field; did you mean ami?",
        "iam.nam: unknown field; did you mean name?",
        "networkInterfaces[0].subnet: unknown field; did you mean subnetID?",
    ]


def test_tags_go_where_they_belong() -> None:
    spec = AwsProviderSpec.model_validate({**SPEC, "tags": {"all": "1"}, "nicTags": {"nic": "2"}, "diskTags": {}})
    assert spec.tags_for("vm") == {"all": "1"}
    assert spec.tags_for("nic") == {"nic": "2"}  # the specific field replaces `tags`
    assert spec.tags_for("disk") == {}  # even an empty one does


def test_must_tags_are_read_from_wherever_the_class_has_them() -> None:
    cluster, role = {"kubernetes.io/cluster/one": "1"}, {"kubernetes.io/role/node": "1"}
    spec = AwsProviderSpec.model_validate({**SPEC, "vmTags": {**cluster, "a": "b"}, "diskTags": role})
    assert spec.must_tags() == {**cluster, **role}


LONG, WIDE = "k" * 129, "v" * 257
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"vmTags": {f"t{n}": "" for n in range(43)}}, "vmTags or tags", "43 tags, and 8 that are on everything"),
    ({"tags": {"": "x"}}, "diskTags or tags", "the key '' is empty"),
    ({"nicTags": {"AWS:x": "y"}}, "nicTags or tags", "the key AWS:x is the cloud's own"),
    ({"vmTags": {LONG: "y"}}, "vmTags or tags", f"the key {'k' * 30}"),
    ({"vmTags": {LONG: "y"}}, "vmTags or tags", "has 129 characters, the cloud takes 128"),
    (
        {"vmTags": {"kubernetes.io/cluster/a": "1"}, "nicTags": {"kubernetes.io/cluster/b": "1"}},
        "vmTags or tags",
        "kubernetes.io/cluster/a and kubernetes.io/cluster/b: a machine is of one cluster",
    ),
    ({"vmTags": {"cost": WIDE}}, "vmTags or tags", "the value of cost has 257 characters, the cloud takes 256"),
    ({"blockDevices": [{"ebs": {"volumeType": "io2"}}]}, "blockDevices[0].ebs.iops", "a volume of type io2 needs it"),
    ({"blockDevices": [{"ebs": {"volumeType": "io1", "iops": 0}}]}, "blockDevices[0].ebs.iops", "io1 needs it"),
    (
        {"blockDevices": [{"ebs": {"encrypted": False, "kmsKeyID": "alias/a"}}]},
        "blockDevices[0].ebs.kmsKeyID",
        "encrypted: false has no key",
    ),
    (
        {"instanceMetadataOptions": {"instanceMetadataTags": "enabled"}},
        "instanceMetadataOptions.instanceMetadataTags",
        "no tag whose key has a slash",
    ),
]


@pytest.mark.parametrize(("change", "path", "words"), MISTAKES, ids=[w for _, _, w in MISTAKES])
def test_what_the_cloud_would_refuse_is_refused_at_apply(change: dict[str, Any], path: str, words: str) -> None:
    """And read all the same where it is stored: only then can somebody correct it."""
    AwsProviderSpec.model_validate({**SPEC, **change})
    manifest = {"metadata": {"name": "c"}, "provider": "AWS", "secretRef": {"name": "s"}}
    given = MachineClass.model_validate({**manifest, "providerSpec": {**SPEC, **change}})
    with pytest.raises(ManifestError) as refused:
        check_provider_spec(given, "here")
    lines = str(refused.value).splitlines()
    assert any(line.startswith(f"here: providerSpec.{path}: ") and words in line for line in lines), lines
    assert "***" not in str(refused.value)


def test_what_the_cloud_takes_is_no_mistake() -> None:
    ebs = {"volumeType": "io2", "iops": 100, "kmsKeyID": "alias/a"}
    must = {"kubernetes.io/cluster/one": "1", "kubernetes.io/role/node": "1", "Name": "x"}
    full = {**{f"t{n}": "" for n in range(41)}, "k" * 128: "v" * 256, **must}
    options = {"instanceMetadataTags": "disabled"}
    change = {"blockDevices": [{"ebs": ebs}], "vmTags": full, "instanceMetadataOptions": options}
    spec = AwsProviderSpec.model_validate({**SPEC, **change})
    assert [*spec.mistakes(), *spec.crowding()] == []


def test_what_is_known_and_without_effect_is_said() -> None:
    disk = {"deviceName": "/dev/sda", "virtualName": "ephemeral0"}
    spec = AwsProviderSpec.model_validate({**SPEC, "ebsOptimized": True, "kmsKeyID": "a", "blockDevices": [disk]})
    assert [path for path, _ in spec.deprecations()] == ["ebsOptimized", "kmsKeyID", "blockDevices[0].virtualName"]


def test_deprecated_fields_are_named_with_advice() -> None:
    spec = AwsProviderSpec.model_validate({**SPEC, "tags": {"Name": "x"}, "spotPrice": ""})
    assert [path for path, _ in spec.deprecations()] == ["tags", "spotPrice", "tags.Name"]
    assert AwsProviderSpec.model_validate({**SPEC, "vmTags": {"a": "b"}}).deprecations() == []


# -- the placement in a node template's annotation ---------------------------------------------------------------------

WRONG_PLACEMENTS = [
    ("dedicated", "it is not JSON"),
    ("[]", "it is no JSON object"),
    ('{"tenancy": "mine"}', "tenancy: "),
    ('{"spreadDomain": "x"}', "a placement has no spreadDomain; it has affinity, availabilityZone"),
]


def test_a_placement_is_read_in_any_case() -> None:
    """As Go's encoding/json does for MCM."""
    wanted = Ec2Placement(tenancy="host", host_id="h-1", availability_zone="eu-west-1a")
    assert read_placement('{"Tenancy": "host", "hostid": "h-1", "AvailabilityZone": "eu-west-1a"}') == wanted
    assert read_placement("") is None


@pytest.mark.parametrize(("text", "words"), WRONG_PLACEMENTS)
@pytest.mark.parametrize("kind", ["Machine", "MachineDeployment"])
def test_a_placement_that_nobody_can_read_is_refused_at_apply(kind: str, text: str, words: str) -> None:
    machine = {"class": {"name": "c"}, "nodeTemplate": {"metadata": {"annotations": {PLACEMENT: text}}}}
    spec: dict[str, Any] = machine
    if kind == "MachineDeployment":
        labels = {"a": "b"}
        template = {"metadata": {"labels": labels}, "spec": machine}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    manifest = {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": {"name": "m"}, "spec": spec}
    with pytest.raises(ManifestError, match=re.escape(words)) as refused:
        load_manifests(json.dumps(manifest), "here")
    assert f"nodeTemplate.metadata.annotations.{PLACEMENT}: " in str(refused.value)
