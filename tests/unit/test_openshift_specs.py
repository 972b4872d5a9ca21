"""OpenShift's machine specs: what becomes of each of their fields, and failure domains, on every cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from clouds.drivers import registered
from fakecloud import FAKE
from paths import ROOT
from pydantic import ValidationError

from resources.clouds import PROVIDERS, Provider, imaged_as, in_domain
from resources.clouds.openshift import Becomes, Rejected, marks, rejected, unused
from resources.effects import Effect, effects

CLOUDS = {**PROVIDERS, FAKE.name: FAKE}
PLUG = {"__init__", "domain", "names", "openshift", "spec"}

# Every field that is translated, at least once.
FULL: dict[str, str] = {
    "AWS": """
        kind: AWSMachineProviderConfig
        ami: {id: ami-1}
        instanceType: m6a.large
        cpuOptions: {confidentialCompute: AMDEncryptedVirtualizationNestedPaging}
        tags: [{name: team, value: platform}, {name: Name, value: overridden}]
        iamInstanceProfile: {id: masters}
        userDataSecret: {name: master-user-data}
        credentialsSecret: {name: aws-cloud-credentials}
        keyName: nodes
        deviceIndex: 1
        publicIp: false
        networkInterfaceType: EFA
        securityGroups: [{id: sg-1}, {id: sg-2}]
        subnet: {id: subnet-1}
        placement: {region: eu-west-1, availabilityZone: eu-west-1a, tenancy: dedicated}
        blockDevices:
        - deviceName: /dev/sdb
          ebs: {encrypted: true, kmsKey: {arn: "arn:aws:kms:k"}, iops: 4000, throughput: 200, volumeSize: 120,
                volumeType: gp3}
        - ebs: {volumeSize: 10}
        spotMarketOptions: {maxPrice: "0.5"}
        marketType: Spot
        metadataServiceOptions: {authentication: Required}
        placementGroupName: masters
        placementGroupPartition: 2
        capacityReservationId: cr-1
    """,
    "Azure": """
        kind: AzureMachineProviderSpec
        userDataSecret: {name: master-user-data, namespace: openshift-machine-api}
        credentialsSecret: {name: azure-cloud-credentials, namespace: openshift-machine-api}
        location: westeurope
        vmSize: Standard_D8s_v5
        image: {publisher: azureopenshift, offer: aro4, sku: aro_414, version: 414.92.1, type: MarketplaceNoPlan}
        osDisk:
          osType: Linux
          managedDisk: {storageAccountType: Premium_LRS, securityProfile: {securityEncryptionType: VMGuestStateOnly}}
          diskSizeGB: 1024
          cachingType: ReadOnly
        dataDisks:
        - {nameSuffix: etcd, lun: 3, diskSizeGB: 64, cachingType: None, deletionPolicy: Delete,
           managedDisk: {storageAccountType: UltraSSD_LRS}}
        sshPublicKey: ssh-rsa AAAA
        tags: {team: platform}
        subnet: master-subnet
        managedIdentity: demo-identity
        vnet: demo-vnet
        zone: "2"
        networkResourceGroup: network-rg
        resourceGroup: demo-rg
        securityProfile:
          encryptionAtHost: true
          settings:
            securityType: ConfidentialVM
            confidentialVM: {uefiSettings: {secureBoot: Disabled, virtualizedTrustedPlatformModule: Enabled}}
        acceleratedNetworking: true
        diagnostics: {boot: {storageAccountType: CustomerManaged, customerManaged: {storageAccountURI: "https://b/"}}}
        capacityReservationGroupID: /subscriptions/s/resourceGroups/g/providers/c
        availabilitySet: masters
    """,
    "GCP": """
        kind: GCPMachineProviderSpec
        userDataSecret: {name: master-user-data}
        credentialsSecret: {name: gcp-cloud-credentials}
        canIPForward: true
        deletionProtection: true
        disks:
        - autoDelete: true
          boot: true
          sizeGb: 128
          type: pd-ssd
          image: rhcos-414
          labels: {tier: root}
          encryptionKey:
            kmsKey: {name: k, keyRing: r, projectID: keys, location: europe}
            kmsKeyServiceAccount: kms@p.iam
        labels: {team: platform}
        gcpMetadata: [{key: serial-port, value: "TRUE"}, {key: empty}]
        networkInterfaces: [{network: demo, projectID: host, subnetwork: masters, publicIP: true}]
        serviceAccounts: [{email: m@p.iam, scopes: [all]}]
        tags: [demo-master]
        machineType: n2-standard-4
        region: europe-west1
        zone: europe-west1-b
        projectID: p
        gpus: [{count: 1, type: nvidia-tesla-t4}]
        preemptible: true
        provisioningModel: Spot
        onHostMaintenance: Terminate
        restartPolicy: Never
        shieldedInstanceConfig: {secureBoot: Enabled, virtualizedTrustedPlatformModule: Disabled,
                                 integrityMonitoring: Disabled}
        confidentialCompute: Disabled
    """,
    "Fake": "{kind: FakeMachineProviderSpec, image: i-1, size: small, rack: r1, userDataSecret: {name: u}, "
    "credentialsSecret: {name: c}}",
}
TRANSLATED: dict[str, str] = {
    "AWS": """
        ami: ami-1
        region: eu-west-1
        machineType: m6a.large
        keyName: nodes
        iam: {name: masters}
        blockDevices:
        - deviceName: /dev/sdb
          ebs: {encrypted: true, kmsKeyID: "arn:aws:kms:k", iops: 4000, throughput: 200, volumeSize: 120,
                volumeType: gp3}
        - deviceName: /root
          ebs: {volumeSize: 10}
        networkInterfaces:
        - {subnetID: subnet-1, securityGroupIDs: [sg-1, sg-2], associatePublicIPAddress: false, deviceIndex: 1,
           interfaceType: efa}
        vmTags: {team: platform, kubernetes.io/cluster/demo-1: owned}
        nicTags: {team: platform, kubernetes.io/cluster/demo-1: owned}
        diskTags: {team: platform, kubernetes.io/cluster/demo-1: owned}
        instanceMetadataOptions: {httpTokens: required}
        cpuOptions: {amdSevSnp: enabled}
        capacityReservation: {capacityReservationId: cr-1}
        placement: {availabilityZone: eu-west-1a, tenancy: dedicated, groupName: masters, partitionNumber: 2}
        spotPrice: "0.5"
    """,
    "Azure": """
        location: westeurope
        resourceGroup: demo-rg
        subnetInfo: {vnetName: demo-vnet, subnetName: master-subnet, vnetResourceGroup: network-rg}
        vmTags: {team: platform, kubernetes.io-cluster-demo-1: owned}
        nicTags: {team: platform, kubernetes.io-cluster-demo-1: owned}
        diskTags: {team: platform, kubernetes.io-cluster-demo-1: owned}
        properties:
          hardwareProfile: {vmSize: Standard_D8s_v5}
          storageProfile:
            imageReference: {urn: "azureopenshift:aro4:aro_414:414.92.1", skipMarketplaceAgreement: true}
            osDisk:
              caching: ReadOnly
              diskSizeGB: 1024
              managedDisk:
                storageAccountType: Premium_LRS
                securityProfile: {securityEncryptionType: VMGuestStateOnly}
            dataDisks: [{name: etcd, lun: 3, diskSizeGB: 64, caching: None, storageAccountType: UltraSSD_LRS}]
          osProfile: {linuxConfiguration: {ssh: {publicKeys: {keyData: ssh-rsa AAAA}}}}
          networkProfile: {acceleratedNetworking: true}
          zone: 2
          availabilitySet: {id: /resourceGroups/demo-rg/providers/Microsoft.Compute/availabilitySets/masters}
          identityID: /resourceGroups/demo-rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/demo-identity
          securityProfile:
            encryptionAtHost: true
            securityType: ConfidentialVM
            uefiSettings: {secureBootEnabled: false, vtpmEnabled: true}
          diagnosticsProfile: {enabled: true, storageURI: "https://b/"}
          capacityReservation: {capacityReservationGroupID: /subscriptions/s/resourceGroups/g/providers/c}
    """,
    "GCP": """
        region: europe-west1
        zone: europe-west1-b
        machineType: n2-standard-4
        canIpForward: true
        deletionProtection: true
        disks:
        - type: pd-ssd
          autoDelete: true
          boot: true
          sizeGb: 128
          image: projects/p/global/images/rhcos-414
          labels: {tier: root}
          encryption: {kmsKeyName: projects/keys/locations/europe/keyRings/r/cryptoKeys/k,
                       kmsKeyServiceAccount: kms@p.iam}
        networkInterfaces:
        - {network: projects/host/global/networks/demo,
           subnetwork: projects/host/regions/europe-west1/subnetworks/masters, disableExternalIP: false}
        serviceAccounts: [{email: m@p.iam, scopes: [all]}]
        gpu: {acceleratorType: nvidia-tesla-t4, count: 1}
        scheduling: {preemptible: true, provisioningModel: SPOT, onHostMaintenance: TERMINATE, automaticRestart: false}
        shieldedInstanceConfiguration: {enableSecureBoot: true, enableVtpm: false, enableIntegrityMonitoring: false}
        metadata: {serial-port: "TRUE", empty: ""}
        tags: [demo-master]
        vmTags: {team: platform, kubernetes-io-cluster-demo-1: owned}
        diskTags: {kubernetes-io-cluster-demo-1: owned}
    """,
    "Fake": "{image: i-1, flavour: small, rack: r1, labels: {cluster: demo-1}}",
}
# What is rejected, with a value; test_every_rejected_field_is_told_of holds that no mark is missing here.
REJECTED: dict[str, dict[str, Any]] = {
    "AWS": {
        "placement.host": {"affinity": "DedicatedHost"},
        "loadBalancers": [{"name": "api", "type": "network"}],
        "blockDevices[].noDevice": "x",
        "blockDevices[].virtualName": "ephemeral0",
    },
    "Azure": {
        "osDisk.managedDisk.diskEncryptionSet.id": "/des",
        "osDisk.managedDisk.securityProfile.diskEncryptionSet.id": "/des",
        "osDisk.diskSettings.ephemeralStorageLocation": "Local",
        "dataDisks[].managedDisk.diskEncryptionSet.id": "/des",
        "publicIP": True,
        "securityGroup": "nsg",
        "applicationSecurityGroups": ["asg"],
        "publicLoadBalancer": "demo",
        "internalLoadBalancer": "demo-internal",
        "natRule": 1,
        "spotVMOptions.maxPrice": "0.5",
        "ultraSSDCapability": "Enabled",
    },
    "GCP": {
        "targetPools": ["api"],
        "resourceManagerTags": [{"key": "k", "value": "v", "parentID": "1"}],
    },
    "Fake": {"balancer": "b"},
}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    with registered():
        yield


def full(provider: str) -> dict[str, Any]:
    found = yaml.safe_load(FULL[provider])
    assert isinstance(found, dict)
    return found


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Sets what is at the path, of a list in its first item; None removes it."""
    *steps, last = path.replace("[]", "").split(".")
    here: Any = document
    for step in steps:
        here = here.setdefault(step, {})
        here = here[0] if isinstance(here, list) else here
    if value is None:
        del here[last]
    else:
        here[last] = value


def of(provider: Provider, kind: type[Any]) -> dict[str, Any]:
    return {path: fate for path, fate in marks(provider.openshift) if isinstance(fate, kind)}


# -- the marks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", PROVIDERS)
def test_the_plugs_are_of_one_shape(cloud: str) -> None:
    folder = ROOT / "resources/clouds" / cloud.lower()
    assert {file.stem for file in folder.glob("*.py")} >= PLUG


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_field_has_been_forgotten(cloud: str) -> None:
    assert [path for path, fate in marks(CLOUDS[cloud].openshift) if fate is None] == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_a_field_becomes_is_a_field_that_has_an_effect(cloud: str) -> None:
    known = {re.sub(r"\[\]", "", path) for path, effect in effects(CLOUDS[cloud].spec) if effect is not Effect.NONE}
    for fate in of(CLOUDS[cloud], Becomes).values():
        for path in re.sub(r"\[\d*\]", "", fate.path).split(", "):
            there = path in ("secretRef", "credentialsSecretRef") or any(f"{k}.".startswith(f"{path}.") for k in known)
            assert there, path


# -- translating -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_spec_with_every_field(cloud: str) -> None:
    given = CLOUDS[cloud].openshift.model_validate(full(cloud))
    found = given.translated("demo-1")
    assert found == yaml.safe_load(TRANSLATED[cloud])
    assert list(rejected(given)) == list(given.mistakes([])) == []
    CLOUDS[cloud].spec.model_validate(found)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_field_that_is_translated_makes_a_difference(cloud: str) -> None:
    model = CLOUDS[cloud].openshift
    whole = model.model_validate(full(cloud))
    for path in of(CLOUDS[cloud], Becomes):
        less = full(cloud)
        try:
            put(less, path, None)
        except KeyError:
            assert path in ALTERNATIVES[cloud], path  # it excludes another one, and has a test of its own
            continue
        try:
            without = model.model_validate(less)
        except ValidationError:
            continue  # it must be there
        same = without.translated("demo-1") == whole.translated("demo-1")
        refs = (without.user_data_secret, without.credentials_secret) == (
            whole.user_data_secret,
            whole.credentials_secret,
        )
        assert not (same and refs) or path in ALTERNATIVES[cloud], path


ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "AWS": ("marketType",),
    "Azure": (
        "image.resourceID",
        "diagnostics.boot.storageAccountType",
        "image.type",
        "securityProfile.settings.trustedLaunch.uefiSettings.secureBoot",
        "securityProfile.settings.trustedLaunch.uefiSettings.virtualizedTrustedPlatformModule",
    ),
    "GCP": (),
    "Fake": (),
}


@pytest.mark.parametrize(
    ("cloud", "changes", "where", "value"),
    [
        ("AWS", {"spotMarketOptions": {}, "marketType": None}, "instanceMarketOptions", {"marketType": "spot"}),
        ("AWS", {"spotMarketOptions": None, "marketType": "OnDemand"}, "instanceMarketOptions", None),
        (
            "AWS",
            {"spotMarketOptions": None, "marketType": "CapacityBlock"},
            "instanceMarketOptions",
            {"marketType": "capacity-block"},
        ),
        ("AWS", {"iamInstanceProfile": {"arn": "arn:p"}}, "iam", {"arn": "arn:p"}),
        ("AWS", {"cpuOptions": {"confidentialCompute": "Disabled"}}, "cpuOptions", {"amdSevSnp": "disabled"}),
        (
            "Azure",
            {"image": {"resourceID": "/resourceGroups/g/i", "publisher": ""}},
            "properties.storageProfile.imageReference",
            {"id": "/resourceGroups/g/i"},
        ),
        (
            "Azure",
            {"image.type": "MarketplaceWithPlan"},
            "properties.storageProfile.imageReference",
            {"urn": "azureopenshift:aro4:aro_414:414.92.1"},
        ),
        ("Azure", {"spotVMOptions": {}}, "properties.priority", "Spot"),
        ("Azure", {"managedIdentity": "/subscriptions/s/i"}, "properties.identityID", "/subscriptions/s/i"),
        (
            "Azure",
            {
                "securityProfile": {
                    "settings": {
                        "securityType": "TrustedLaunch",
                        "trustedLaunch": {"uefiSettings": {"secureBoot": "Enabled"}},
                    }
                }
            },
            "properties.securityProfile",
            {"securityType": "TrustedLaunch", "uefiSettings": {"secureBootEnabled": True}},
        ),
        (
            "Azure",
            {"diagnostics": {"boot": {"storageAccountType": "AzureManaged"}}},
            "properties.diagnosticsProfile",
            {"enabled": True},
        ),
        ("GCP", {"projectID": None, "disks[].image": "rhcos"}, "disks.image", "global/images/rhcos"),
        ("GCP", {"disks[].image": "projects/x/global/images/y"}, "disks.image", "projects/x/global/images/y"),
        ("GCP", {"networkInterfaces": [{"network": "n"}]}, "networkInterfaces.network", "n"),
    ],
)  # fmt: skip
def test_a_field_that_means_one_of_several_things(cloud: str, changes: dict[str, Any], where: str, value: Any) -> None:
    given = full(cloud)
    for path, new in changes.items():
        put(given, path, new)
    here: Any = CLOUDS[cloud].openshift.model_validate(given).translated("demo-1")
    for step in where.split("."):
        here = (here[0] if isinstance(here, list) else here).get(step)
    assert here == value


# -- what is not taken -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_rejected_field_is_told_of(cloud: str) -> None:
    provider = CLOUDS[cloud]
    fates = of(provider, Rejected)
    assert set(fates) == set(REJECTED[cloud])
    for path, value in REJECTED[cloud].items():
        given = full(cloud)
        put(given, path, value)
        told = list(rejected(provider.openshift.model_validate(given)))
        assert told == [(path.replace("[]", "[0]"), fates[path].why)]
        put(given, path, type(value)())  # Go writes what is empty for what is not given
        assert list(rejected(provider.openshift.model_validate(given))) == []


def test_what_does_nothing_is_told_of_where_that_matters() -> None:
    told = dict(unused(PROVIDERS["GCP"].openshift.model_validate(full("GCP"))))
    assert set(told) == {"projectID", "confidentialCompute"}
    assert list(unused(PROVIDERS["Azure"].openshift.model_validate(full("Azure")))) == []


@pytest.mark.parametrize(
    ("cloud", "path", "value", "at", "words"),
    [
        ("AWS", "ami", {"arn": "arn:a"}, "ami.arn", "EC2 cannot be asked for it"),
        ("AWS", "ami", {}, "ami.id", "missing: it says which image"),
        ("AWS", "subnet", {"filters": [{"name": "tag:Name", "values": ["s"]}]}, "subnet.filters", "EC2 cannot"),
        ("AWS", "subnet", None, "subnet.id", "missing: give it here, or give each failure domain its own"),
        ("AWS", "securityGroups", [{"filters": [{"name": "n"}]}], "securityGroups[0].filters", "EC2 cannot be asked"),
        ("AWS", "iamInstanceProfile", {"filters": [{"name": "n"}]}, "iamInstanceProfile.filters", "EC2 cannot"),
        ("AWS", "blockDevices[].ebs.kmsKey", {"filters": [{"name": "n"}]}, "blockDevices[0].ebs.kmsKey.filters", "EC2"),
        ("AWS", "placement.region", None, "placement.region", "missing: it says where the machines are"),
        ("Azure", "image", {"publisher": "p"}, "image", "missing: give resourceID, or publisher, offer, sku"),
        ("Azure", "zone", "west", "zone", "an availability zone of Azure is a number"),
        ("Azure", "vnet", None, "vnet", "missing: Hostler does not make it up"),
        ("Azure", "subnet", "", "subnet", "missing: give it here, or give each failure domain its own"),
        ("GCP", "zone", None, "zone", "missing: give it here, or give failure domains"),
        ("GCP", "gpus", [{"count": 1, "type": "a"}, {"count": 1, "type": "b"}], "gpus", "a VM has GPUs of one type"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_path(cloud: str, path: str, value: Any, at: str, words: str) -> None:
    given = full(cloud)
    put(given, path, value)
    ((told, said),) = CLOUDS[cloud].openshift.model_validate(given).mistakes([])
    assert told == at
    assert said.startswith(words)


def test_failure_domains_may_name_what_the_spec_does_not() -> None:
    given = full("AWS") | {"subnet": {}}
    spec, domain = PROVIDERS["AWS"].openshift.model_validate(given), PROVIDERS["AWS"].domain
    everywhere = [domain.model_validate({"subnet": {"type": "ID", "id": f"subnet-{n}"}}) for n in (1, 2)]
    assert spec.mistakes(everywhere) == []
    assert spec.mistakes([*everywhere, domain.model_validate({"placement": {"availabilityZone": "a"}})]) != []


# -- failure domains ---------------------------------------------------------------------------------------------------

DOMAINS: dict[str, tuple[dict[str, Any], str]] = {
    "AWS": ({"placement": {"availabilityZone": "eu-west-1b"}, "subnet": {"type": "ID", "id": "s-2"}}, "eu-west-1b/s-2"),
    "Azure": ({"zone": "3", "subnet": "other"}, "3/other"),
    "GCP": ({"zone": "europe-west1-c"}, "europe-west1-c"),
    "Fake": ({"rack": "r7"}, "r7"),
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_spec_in_a_failure_domain_says_that_it_is_there(cloud: str) -> None:
    provider, (fields, name) = CLOUDS[cloud], DOMAINS[cloud]
    before = yaml.safe_load(TRANSLATED[cloud])
    placed = in_domain(cloud, before, fields)
    assert placed != before
    assert provider.domain.model_validate(fields).name == name
    assert provider.spec.model_validate(placed).domain().name == name
    assert in_domain(cloud, placed, fields) == placed
    here = provider.spec.model_validate(before).domain().model_dump(by_alias=True, exclude_none=True)
    assert in_domain(cloud, placed, here) == before  # nothing else was touched
    assert in_domain(cloud, before, {}) == before


@pytest.mark.parametrize("cloud", CLOUDS)
def test_boot_images_are_those_of_another_spec(cloud: str) -> None:
    before = yaml.safe_load(TRANSLATED[cloud])
    after = deepcopy(before)
    image = {"AWS": "ami", "Azure": "properties.storageProfile.imageReference", "GCP": "disks[].image", "Fake": "image"}
    put(after, image[cloud], {"urn": "a:b:c:d"} if cloud == "Azure" else "projects/p/another")
    assert imaged_as(cloud, after, before) == before
    assert imaged_as(cloud, before, after) == after
    put(after, "x", 1)  # whatever else differs stays
    assert imaged_as(cloud, after, before) == before | {"x": 1}


def test_what_cannot_be_read_stays_as_it_is() -> None:
    wrong = {"ami": 7}
    assert in_domain("AWS", wrong, {"placement": {"availabilityZone": "a"}}) == wrong
    assert in_domain("Nobody", wrong, {"zone": "a"}) == wrong
    assert imaged_as("AWS", wrong, yaml.safe_load(TRANSLATED["AWS"])) == wrong
    assert imaged_as("AWS", yaml.safe_load(TRANSLATED["AWS"]), wrong) == yaml.safe_load(TRANSLATED["AWS"])


def test_only_the_interfaces_of_the_first_ones_subnet_move() -> None:
    spec = yaml.safe_load(TRANSLATED["AWS"])
    spec["networkInterfaces"] = [{"subnetID": "s-1"}, {"subnetID": "s-1", "deviceIndex": 1}, {"subnetID": "s-9"}]
    placed = in_domain("AWS", spec, {"subnet": {"type": "ID", "id": "s-2"}})
    assert [nic["subnetID"] for nic in placed["networkInterfaces"]] == ["s-2", "s-2", "s-9"]
