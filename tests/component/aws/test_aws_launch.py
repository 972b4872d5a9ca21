"""The one RunInstances of a machine: what each field becomes, limits, tags."""

from __future__ import annotations

import gzip
import random
from typing import Any

import pytest
from clouds.aws import KEPT_DISK, NIC, ROOT_DISK, SUBNET, instance_of, tags
from clouds.drivers import AwsCloud, Given, calls, machine, mark, mutating
from pydantic import SecretStr

from drivers.aws.calls import Ec2
from drivers.base import DriverSettings
from drivers.errors import DriverError, IdempotencyMismatch
from resources.clouds.aws.spec import PLACEMENT
from resources.errors import ErrorClass


def launched(cloud: AwsCloud, **spec: Any) -> dict[str, Any]:
    """The RunInstances that a spec makes, as EC2 received it."""
    cloud.driver.create_machine(machine(cloud, **spec).creation())
    return calls(cloud, "RunInstances")[-1].request


def test_identity_of_the_answer(cloud: AwsCloud, ec2: Any) -> None:
    made = cloud.driver.create_machine(machine(cloud).creation())
    instance = instance_of(ec2, made.provider_id)
    assert made.provider_id == f"aws:///eu-west-1/{instance['InstanceId']}"
    assert made.node_name == instance["PrivateDnsName"]
    assert made.addresses[0] == instance["PrivateIpAddress"]


LAUNCHES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("keyName", {"keyName": "nodes"}, {"KeyName": "nodes"}),
    ("iam.name", {"iam": {"name": "nodes"}}, {"IamInstanceProfile": {"Name": "nodes"}}),
    (
        "iam.arn",
        {"iam": {"arn": "arn:aws:iam::123456789012:instance-profile/nodes"}},
        {"IamInstanceProfile": {"Arn": "arn:aws:iam::123456789012:instance-profile/nodes"}},
    ),
    (
        "blockDevices: /root and another, with defaults",
        {"blockDevices": [ROOT_DISK, KEPT_DISK]},
        {
            "BlockDeviceMappings": [
                {"DeviceName": "/dev/xvda", "Ebs": {"DeleteOnTermination": True, "VolumeSize": 20}},
                {"DeviceName": "/dev/sdf", "Ebs": {"DeleteOnTermination": False, "VolumeSize": 5}},
            ]
        },
    ),
    (
        "blockDevices: one without a name is the image's root device",
        {"ami": "ami-0a1b2c3d4e5f60004", "blockDevices": [{"ebs": {"volumeSize": 30}}]},
        {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"DeleteOnTermination": True, "VolumeSize": 30}}]},
    ),
    (
        "ebs: everything",
        {
            "blockDevices": [
                {
                    "deviceName": "/dev/sdg",
                    "ebs": {
                        "encrypted": True,
                        "iops": 4000,
                        "throughput": 250,
                        "snapshotID": "snap-0a1b2c3d4e5f60001",
                        "volumeSize": 50,
                        "volumeType": "gp3",
                        "kmsKeyID": "alias/nodes",
                    },
                }
            ]
        },
        {
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/sdg",
                    "Ebs": {
                        "DeleteOnTermination": True,
                        "Encrypted": True,
                        "Iops": 4000,
                        "Throughput": 250,
                        "SnapshotId": "snap-0a1b2c3d4e5f60001",
                        "VolumeSize": 50,
                        "VolumeType": "gp3",
                        "KmsKeyId": "alias/nodes",
                    },
                }
            ]
        },
    ),
    (
        "ebs: a key asks for encryption",
        {"blockDevices": [{"deviceName": "/dev/sdg", "ebs": {"volumeSize": 5, "kmsKeyID": "alias/nodes"}}]},
        {
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/sdg",
                    "Ebs": {
                        "DeleteOnTermination": True,
                        "Encrypted": True,
                        "VolumeSize": 5,
                        "KmsKeyId": "alias/nodes",
                    },
                }
            ]
        },
    ),
    (
        "networkInterfaces: defaults",
        {"networkInterfaces": [NIC, NIC]},
        {
            "NetworkInterfaces": [
                {
                    "SubnetId": SUBNET,
                    "Groups": ["sg-0a1b2c3d4e5f60001"],
                    "DeviceIndex": index,
                    "DeleteOnTermination": True,
                }
                for index in (0, 1)
            ]
        },
    ),
    (
        "networkInterfaces: everything; ipv6PrefixCount is not for the launch",
        {
            "networkInterfaces": [
                {
                    **NIC,
                    "associatePublicIPAddress": False,
                    "deleteOnTermination": False,
                    "description": "primary",
                    "deviceIndex": 0,
                    "networkCardIndex": 0,
                    "interfaceType": "interface",
                    "ipv6AddressCount": 2,
                    "ipv6PrefixCount": 1,
                }
            ]
        },
        {
            "NetworkInterfaces": [
                {
                    "SubnetId": SUBNET,
                    "Groups": ["sg-0a1b2c3d4e5f60001"],
                    "AssociatePublicIpAddress": False,
                    "DeleteOnTermination": False,
                    "Description": "primary",
                    "DeviceIndex": 0,
                    "NetworkCardIndex": 0,
                    "InterfaceType": "interface",
                    "Ipv6AddressCount": 2,
                    "PrimaryIpv6": True,
                }
            ]
        },
    ),
    (
        "instanceMetadataOptions",
        {
            "instanceMetadataOptions": {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 2,
            }
        },
        {
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 2,
                "InstanceMetadataTags": "disabled",
            }
        },
    ),
    (
        "cpuOptions",
        {"machineType": "m6a.large", "cpuOptions": {"coreCount": 1, "threadsPerCore": 1, "amdSevSnp": "enabled"}},
        {"CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 1, "AmdSevSnp": "enabled"}},
    ),
    (
        "capacityReservation preference",
        {"capacityReservation": {"capacityReservationPreference": "none"}},
        {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}},
    ),
    (
        "capacityReservation id",
        {"capacityReservation": {"capacityReservationId": "cr-0a1b2c3d4e5f60001"}},
        {
            "CapacityReservationSpecification": {
                "CapacityReservationTarget": {"CapacityReservationId": "cr-0a1b2c3d4e5f60001"}
            }
        },
    ),
    ("spot", {"instanceMarketOptions": {"marketType": "spot"}}, {"InstanceMarketOptions": {"MarketType": "spot"}}),
    (
        "spotPrice",
        {"spotPrice": "0.05"},
        {
            "InstanceMarketOptions": {
                "MarketType": "spot",
                "SpotOptions": {"SpotInstanceType": "one-time", "MaxPrice": "0.05"},
            }
        },
    ),
    (
        "empty spotPrice: the on-demand price",
        {"spotPrice": ""},
        {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}},
    ),
    (
        "placement",
        {"placement": {"availabilityZone": "eu-west-1a", "groupName": "nodes", "tenancy": "dedicated"}},
        {"Placement": {"AvailabilityZone": "eu-west-1a", "GroupName": "nodes", "Tenancy": "dedicated"}},
    ),
    ("ignored fields", {"ebsOptimized": True, "monitoring": True, "kmsKeyID": "x"}, {}),
]


@pytest.mark.parametrize(("spec", "wanted"), [row[1:] for row in LAUNCHES], ids=[row[0] for row in LAUNCHES])
def test_what_a_field_becomes(cloud: AwsCloud, spec: dict[str, Any], wanted: dict[str, Any]) -> None:
    sent = launched(cloud, **spec)
    plain = {"ImageId", "InstanceType", "MinCount", "MaxCount", "ClientToken", "UserData", "TagSpecifications"}
    assert {k: sent[k] for k in wanted} == wanted
    assert set(sent) - set(wanted) - plain <= {"NetworkInterfaces", "BlockDeviceMappings", "MetadataOptions"}
    # Whatever the account's default is: an instance that shows its tags takes none with a slash.
    assert sent["MetadataOptions"]["InstanceMetadataTags"] == "disabled"
    assert (sent["MinCount"], sent["MaxCount"]) == (1, 1)


def test_user_data_arrives_as_it_was(cloud: AwsCloud) -> None:
    given = machine(cloud)
    given.user_data = "#cloud-config\nwrite_files: [äöü]\n"
    made = cloud.driver.create_machine(given.creation())
    (vm,) = [v for v in cloud.do(cloud.ec2.instances) if made.provider_id.endswith(v.instance_id)]
    assert vm.user_data.decode() == given.user_data


def test_user_data_beyond_the_limit_is_refused_before_the_call(cloud: AwsCloud) -> None:
    given = machine(cloud)
    with pytest.raises(DriverError, match="16385 bytes") as refused:
        cloud.driver.create_machine(given.creation(user_data=SecretStr("x" * 16385)))
    assert refused.value.error_class is ErrorClass.INVALID
    cloud.driver.create_machine(given.creation(user_data=SecretStr("x" * 16384)))
    assert len(calls(cloud, "RunInstances")) == 1


def test_compressed_user_data_arrives_compressed_and_twice_the_same(cloud: AwsCloud) -> None:
    given = machine(cloud)
    given.user_data = "#cloud-config\n" + "# the same words\n" * 2000  # more than EC2 takes as it is
    for _ in range(2):
        made = cloud.driver.create_machine(given.creation(compressed=True))
    (vm,) = [v for v in cloud.do(cloud.ec2.instances) if made.provider_id.endswith(v.instance_id)]
    assert vm.user_data.startswith(b"\x1f\x8b")
    assert gzip.decompress(vm.user_data).decode() == given.user_data
    with pytest.raises(DriverError, match=r"34014 bytes, but EC2 accepts at most 16384: .* compress it with gzip"):
        cloud.driver.create_machine(given.creation())
    noise = random.Random(7).randbytes(20_000).hex()
    with pytest.raises(DriverError, match="compressed user data has"):
        cloud.driver.create_machine(given.creation(compressed=True, user_data=SecretStr(noise)))


def test_the_placement_of_the_node_template_takes_the_place_of_the_classs(cloud: AwsCloud) -> None:
    given = machine(cloud, placement={"groupName": "nodes"})
    cloud.driver.create_machine(given.creation(annotations={PLACEMENT: '{"tenancy": "dedicated"}'}))
    assert calls(cloud, "RunInstances")[-1].request["Placement"] == {"Tenancy": "dedicated"}
    with pytest.raises(DriverError, match=f"annotation {PLACEMENT} of the node template: it is not JSON") as wrong:
        cloud.driver.create_machine(given.creation(annotations={PLACEMENT: "dedicated"}))
    assert wrong.value.error_class is ErrorClass.INVALID


def test_what_ec2_would_refuse_is_refused_before_any_call(cloud: AwsCloud) -> None:
    """A class may have come by another door than `hostler apply`."""
    given = machine(cloud, blockDevices=[{"ebs": {"volumeType": "io1", "volumeSize": 20}}])
    with pytest.raises(DriverError, match=r"blockDevices\[0\].ebs.iops: missing") as refused:
        cloud.driver.create_machine(given.creation())
    assert refused.value.error_class is ErrorClass.INVALID
    assert calls(cloud) == []
    cloud.driver.create_machine(machine(cloud).creation())
    assert mutating(cloud) == ["RunInstances"]


def test_the_image_is_asked_for_its_root_device_once(cloud: AwsCloud) -> None:
    fresh = cloud.driver_with(DriverSettings())
    for _ in range(2):
        fresh.create_machine(machine(cloud, blockDevices=[ROOT_DISK]).creation())
    assert len(calls(cloud, "DescribeImages")) == 1
    fresh.create_machine(machine(cloud, ami="ami-0a1b2c3d4e5f60002", blockDevices=[]).creation())
    assert len(calls(cloud, "DescribeImages")) == 1  # nobody asked about this image's root device


def test_an_image_that_is_not_there(cloud: AwsCloud) -> None:
    with pytest.raises(DriverError) as failure:
        cloud.driver.create_machine(machine(cloud, ami="ami-0a1b2c3d4e5f6ffff").creation())
    assert failure.value.error_class is ErrorClass.NOT_FOUND
    assert mutating(cloud) == []


def test_the_request_is_the_same_whatever_the_order_of_the_spec(cloud: AwsCloud) -> None:
    given = machine(cloud, vmTags={"a": "1", "b": "2", "kubernetes.io/role/node": "1"})
    first = cloud.driver.create_machine(given.creation())
    turned = {k: given.spec[k] for k in reversed(given.spec)}
    turned["vmTags"] = {k: given.spec["vmTags"][k] for k in reversed(given.spec["vmTags"])}
    again = cloud.driver_with(DriverSettings())  # another worker, after a crash
    assert again.create_machine(given.creation(provider_spec=turned)).provider_id == first.provider_id
    one, two = calls(cloud, "RunInstances")
    assert repr(one.request) == repr(two.request)


def test_a_reply_with_a_dead_vm_is_a_mismatch(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 answered a repeated token with its dead VM before it had IdempotentInstanceTerminated."""
    real = Ec2.call

    def call(self: Ec2, operation: str, **parameters: Any) -> dict[str, Any]:
        reply = real(self, operation, **parameters)
        if operation == "RunInstances":
            reply["Instances"][0]["State"] = {"Code": 32, "Name": "shutting-down"}
        return reply

    monkeypatch.setattr(Ec2, "call", call)
    with pytest.raises(IdempotencyMismatch, match="shutting-down") as mismatch:
        cloud.driver.create_machine(machine(cloud).creation())
    assert mismatch.value.terminated


def tagged(cloud: AwsCloud, given: Given) -> dict[str, dict[str, str]]:
    cloud.driver.create_machine(given.creation())
    sent = calls(cloud, "RunInstances")[-1].request
    return {s["ResourceType"]: {t["Key"]: t["Value"] for t in s["Tags"]} for s in sent["TagSpecifications"]}


def test_must_tags_are_on_everything_and_win(cloud: AwsCloud, ec2: Any) -> None:
    reserved = {"Name": "mine", "hostler.io/uid": "mine", "hostler.io/released-by": "mine"}
    cluster = {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"}
    given = machine(
        cloud, name="worker-7", tags={**cluster, **reserved, "team": "all"}, diskTags={"team": "disks"}, nicTags={}
    )
    must = {
        **cluster,
        "Name": "worker-7",
        "hostler.io/owner": "hostler",
        "hostler.io/cluster": given.machine.cluster,
        "hostler.io/machine": "worker-7",
        "hostler.io/uid": given.machine.uid,
    }
    sent = tagged(cloud, given)
    assert sent == {
        "instance": {**must, "team": "all"},
        "volume": {**must, "team": "disks"},
        "network-interface": must,
    }
    made = cloud.driver.get_machine_status(given.status())
    instance = instance_of(ec2, made.provider_id)
    assert tags(instance) == sent["instance"]
    volume = instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert tags(ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]) == sent["volume"]
    nic = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
    described = ec2.describe_network_interfaces(NetworkInterfaceIds=[nic])["NetworkInterfaces"][0]
    assert tags(described) == sent["network-interface"]


def test_cluster_and_role_come_from_the_settings_where_the_class_has_none(cloud: AwsCloud) -> None:
    given = machine(cloud, tags=None, vmTags={"a": "b"})
    named = given.machine.model_copy(update={"cluster_full_name": "shoot--x--y", "role": "integration-test"})
    for identity, cluster in ((given.machine, given.machine.cluster), (named, "shoot--x--y")):
        given.machine, given.token = identity, f"token-of-{cluster}"
        for found in tagged(cloud, given).values():
            assert found[f"kubernetes.io/cluster/{cluster}"] == "1"
            assert found[f"kubernetes.io/role/{identity.role}"] == "1"


def test_a_class_that_names_another_cluster_is_refused(cloud: AwsCloud) -> None:
    given = machine(cloud)
    given.machine = given.machine.model_copy(update={"cluster_full_name": "shoot--other--one"})
    with pytest.raises(DriverError, match=r"shoot--test--one.*shoot--other--one") as refused:
        cloud.driver.create_machine(given.creation())
    assert refused.value.error_class is ErrorClass.INVALID
    two = machine(cloud, vmTags={"kubernetes.io/cluster/two": "1"})
    with pytest.raises(DriverError, match="a machine is of one cluster"):
        cloud.driver.create_machine(two.creation())
    assert mutating(cloud) == []
    cloud.driver.create_machine(machine(cloud).creation())
    assert mutating(cloud) == ["RunInstances"]


def test_more_than_fifty_tags_are_refused_with_their_number(cloud: AwsCloud) -> None:
    cluster = {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"}
    full = machine(cloud, tags={**cluster, **{f"t{n}": "" for n in range(43)}})
    assert {len(found) for found in tagged(cloud, full).values()} == {50}
    over = machine(cloud, nicTags={f"t{n}": "" for n in range(44)})
    before = mark(cloud)
    with pytest.raises(DriverError, match="51 tags for the network-interface") as refused:
        cloud.driver.create_machine(over.creation())
    assert refused.value.error_class is ErrorClass.INVALID
    assert mutating(cloud, before) == []
