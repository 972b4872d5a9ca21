"""Short forms of what tests of AWS often say, and a machine with its VM whose class changes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from clouds.drivers import AwsCloud, Given, calls, machine
from drivers.base import MachineStatus, UpdateMachineResponse
from drivers.errors import PartialUpdate

SUBNET = "subnet-0a1b2c3d4e5f60001"
NIC = {"subnetID": SUBNET, "securityGroupIDs": ["sg-0a1b2c3d4e5f60001"]}
KEPT_DISK = {"deviceName": "/dev/sdf", "ebs": {"volumeSize": 5, "deleteOnTermination": False}}
ROOT_DISK = {"deviceName": "/root", "ebs": {"volumeSize": 20}}


def secret(**values: str) -> dict[str, SecretStr]:
    return {k: SecretStr(v) for k, v in values.items()}


def instance_of(ec2: Any, provider_id: str) -> dict[str, Any]:
    reply = ec2.describe_instances(InstanceIds=[provider_id.rsplit("/", 1)[-1]])
    return dict(reply["Reservations"][0]["Instances"][0])


def tags(resource: dict[str, Any]) -> dict[str, str]:
    return {t["Key"]: t["Value"] for t in resource.get("Tags") or resource.get("TagSet") or []}


# -- a machine with its VM whose class changes ------------------------------------------------------------------------

ALWAYS: dict[str, Any] = {"times": None}
MUST = {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"}
BEFORE = {"tags": {**MUST, "cost": "a", "team": "x"}}
AFTER = {"tags": {**MUST, "cost": "b"}}
DATA_DISK = {"deviceName": "/dev/sdf", "ebs": {"volumeSize": 5}}
READS = ["DescribeInstances", "DescribeVolumes", "DescribeNetworkInterfaces"]


class Vm:
    """A machine with its VM, and what an operator sees of it."""

    def __init__(self, cloud: AwsCloud, ec2: Any, **spec: Any) -> None:
        self.cloud, self.ec2 = cloud, ec2
        self.given: Given = machine(cloud, **{**BEFORE, **spec})
        self.made: MachineStatus = cloud.driver.create_machine(self.given.creation())
        self.id = self.made.provider_id.rsplit("/", 1)[-1]
        self.volumes = [d["Ebs"]["VolumeId"] for d in self.instance["BlockDeviceMappings"]]
        self.nics = [n["NetworkInterfaceId"] for n in self.instance["NetworkInterfaces"]]

    @property
    def instance(self) -> dict[str, Any]:
        return instance_of(self.ec2, self.made.provider_id)

    @property
    def all(self) -> list[str]:
        return [self.id, *self.volumes, *self.nics]

    def update(self, last: dict[str, Any] | None = None, **change: Any) -> UpdateMachineResponse:
        """Updates from `last`, or the spec that it was made from, to the same with a change."""
        before = {**self.given.spec, **(last or {})}
        desired = {k: v for k, v in {**before, **change}.items() if v is not None}
        request = self.given.update(self.made.provider_id, provider_spec=desired, last_applied_provider_spec=before)
        return self.cloud.driver.update_machine(request)

    def refused(self, last: dict[str, Any] | None = None, **change: Any) -> PartialUpdate:
        with pytest.raises(PartialUpdate) as error:
            self.update(last, **change)
        return error.value

    def tags(self, resource: str) -> dict[str, str]:
        """Tags as they are at the cloud, whatever reads show."""
        return dict(self.cloud.do(lambda: self.cloud.ec2._tags.of(resource)))

    def extra(self, resource: str) -> dict[str, str]:
        """The tags without must-tags."""
        return {k: v for k, v in self.tags(resource).items() if k not in MUST and "hostler.io" not in k and k != "Name"}

    def must(self, resource: str) -> dict[str, str]:
        return {k: v for k, v in self.tags(resource).items() if k not in self.extra(resource)}


def operations(cloud: AwsCloud, since: int) -> list[str]:
    return [c.operation for c in calls(cloud, since=since)]


def resources(cloud: AwsCloud, operation: str, since: int) -> list[list[str]]:
    """The resources of each call."""
    return [sorted(c.request["Resources"]) for c in calls(cloud, operation, since)]


def attach_volume(vm: Vm, device: str, **tagged: str) -> str:
    specification = {"ResourceType": "volume", "Tags": [{"Key": k, "Value": v} for k, v in tagged.items()]}
    zone = vm.instance["Placement"]["AvailabilityZone"]
    made = vm.ec2.create_volume(AvailabilityZone=zone, Size=5, VolumeType="gp3", TagSpecifications=[specification])
    vm.ec2.attach_volume(Device=device, InstanceId=vm.id, VolumeId=made["VolumeId"])
    return str(made["VolumeId"])


def attach_nic(vm: Vm, index: int, **tagged: str) -> str:
    specification = {"ResourceType": "network-interface", "Tags": [{"Key": k, "Value": v} for k, v in tagged.items()]}
    made = vm.ec2.create_network_interface(SubnetId=vm.instance["SubnetId"], TagSpecifications=[specification])
    eni = made["NetworkInterface"]["NetworkInterfaceId"]
    vm.ec2.attach_network_interface(DeviceIndex=index, InstanceId=vm.id, NetworkInterfaceId=eni)
    return str(eni)
