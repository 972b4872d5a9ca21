"""Short forms of what AWS tests often say."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

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
