"""The simulated EC2 as boto3 sees it: the rules of the real service that a machine's driver depends on."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import datetime
import json
import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import boto3
import pytest
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, ConnectionClosedError
from simulated.support import leftovers

from simulator.clouds.ec2 import Ec2, Ec2Vm, Subnet, World
from simulator.frame import FaultRule, Frame

T = TypeVar("T")
AMI = "ami-0a1b2c3d4e5f60001"
SUBNET = "subnet-0a1b2c3d4e5f60001"
GROUP = "sg-0a1b2c3d4e5f60001"
PROFILE = "arn:aws:iam::123456789012:instance-profile/nodes"
UNKNOWN = "0eeeeeeeeeeeeeeee"
WORLD = World()
KEY, SECRET = next(iter(WORLD.access_keys.items()))
SESSION = boto3.Session()
DEADLINE = 20.0  # seconds until something that must happen counts as not happening


class Loop:
    """An event loop in a thread of its own: boto3 blocks."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, awaitable: Awaitable[T]) -> T:
        async def run() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE)
        self.loop.close()


class Served:
    """An Ec2 on a port, with a client."""

    def __init__(self, loop: Loop, **settings: Any) -> None:
        self.loop = loop
        self.frame = Frame()
        self.ec2 = Ec2(self.frame, **settings)
        self.loop.run(self._start())
        self.client = self.client_as(KEY, SECRET)

    async def _start(self) -> None:
        await self.ec2.start()
        self.runner = web.AppRunner(self.ec2.app, shutdown_timeout=1.0)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    def close(self) -> None:
        async def close() -> None:
            await self.runner.cleanup()
            await self.ec2.stop()

        self.loop.run(close())

    def client_as(self, key: str, secret: str, token: str | None = None, **settings: Any) -> Any:
        settings.setdefault("retries", {"total_max_attempts": 1})
        return SESSION.client(
            "ec2",
            endpoint_url=self.url,
            region_name="eu-west-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(read_timeout=30, **settings),
        )

    def call(self, do: Callable[[], T]) -> T:
        """Runs something in the simulator's own event loop."""

        async def run() -> T:
            return do()

        return self.loop.run(run())

    def fault(self, operation: str, **rule: Any) -> None:
        self.call(lambda: self.frame.faults.append(FaultRule(service="ec2", operation=operation, **rule)))

    def world(self, verb: str, **body: Any) -> int:
        request = urllib.request.Request(f"{self.url}/_world/{verb}", json.dumps(body).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code

    # -- shorthands -------------------------------------------------------------------------------------------

    def run(self, **params: Any) -> dict[str, Any]:
        defaults = {"ImageId": AMI, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
        instance: dict[str, Any] = self.client.run_instances(**{**defaults, **params})["Instances"][0]
        return instance

    def instance(self, instance_id: str) -> dict[str, Any]:
        reservations = self.client.describe_instances(InstanceIds=[instance_id])["Reservations"]
        instance: dict[str, Any] = reservations[0]["Instances"][0]
        return instance

    def ids(self, **filters: str | list[str]) -> list[str]:
        """Instance ids by filters; underscores in names stand for hyphens."""
        values = {k.replace("_", "-"): [v] if isinstance(v, str) else v for k, v in filters.items()}
        return self.filtered(values)

    def filtered(self, filters: dict[str, list[str]]) -> list[str]:
        found = self.client.describe_instances(Filters=[{"Name": k, "Values": v} for k, v in filters.items()])
        return [i["InstanceId"] for r in found["Reservations"] for i in r["Instances"]]

    def volumes(self, instance_id: str) -> list[dict[str, Any]]:
        found = self.client.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [instance_id]}])
        volumes: list[dict[str, Any]] = found["Volumes"]
        return volumes

    def nics(self, instance_id: str) -> list[dict[str, Any]]:
        found = self.client.describe_network_interfaces(
            Filters=[{"Name": "attachment.instance-id", "Values": [instance_id]}]
        )
        nics: list[dict[str, Any]] = found["NetworkInterfaces"]
        return nics

    def until(self, instance_id: str, state: str) -> dict[str, Any]:
        instance: dict[str, Any] = {}

        def reached() -> bool:
            instance.update(self.instance(instance_id))
            return bool(instance["State"]["Name"] == state)

        eventually(reached)
        return instance


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def refusal(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """The error code of a call that must fail."""
    with pytest.raises(ClientError) as caught:
        call(*args, **kwargs)
    return str(caught.value.response["Error"]["Code"])


def failure(call: Callable[..., Any], /, **kwargs: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**kwargs)
    answer = caught.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def tags(**tags: str) -> list[dict[str, str]]:
    return [{"Key": k, "Value": v} for k, v in tags.items()]


def named(tag_list: list[dict[str, str]]) -> dict[str, str]:
    return {t["Key"]: t["Value"] for t in tag_list}


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def serve(loop: Loop) -> Iterator[Callable[..., Served]]:
    served: list[Served] = []

    def make(**settings: Any) -> Served:
        served.append(Served(loop, **settings))
        return served[-1]

    yield make
    for s in served:
        s.close()


@pytest.fixture(scope="module")
def shared(loop: Loop) -> Iterator[Served]:
    """One simulator for tests that do not mind what others made."""
    shared = Served(loop)
    yield shared
    shared.close()


@pytest.fixture
def cloud(serve: Callable[..., Served]) -> Served:
    return serve()


# ------------------------------------------------------------------------------------------------------- launch


FULL: dict[str, Any] = {
    "ClientToken": "full",
    "UserData": "#cloud-config\n",
    "NetworkInterfaces": [
        {
            "DeviceIndex": 0,
            "SubnetId": SUBNET,
            "Groups": [GROUP],
            "Ipv6AddressCount": 1,
            "PrimaryIpv6": True,
            "AssociatePublicIpAddress": True,
            "Description": "first",
            "DeleteOnTermination": True,
        }
    ],
    "BlockDeviceMappings": [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {
                "VolumeSize": 33,
                "VolumeType": "gp3",
                "Iops": 4000,
                "Throughput": 200,
                "Encrypted": True,
                "KmsKeyId": WORLD.kms_keys[0],
            },
        },
        {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 7, "DeleteOnTermination": False}},
    ],
    "IamInstanceProfile": {"Arn": PROFILE},
    "KeyName": "nodes",
    "EbsOptimized": True,
    "Placement": {"AvailabilityZone": "eu-west-1a", "Tenancy": "dedicated", "GroupName": "nodes"},
    "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 1},
    "CapacityReservationSpecification": {
        "CapacityReservationTarget": {"CapacityReservationId": WORLD.capacity_reservations[0]}
    },
    "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "HttpEndpoint": "enabled"},
    "Monitoring": {"Enabled": True},
    "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.1", "SpotInstanceType": "one-time"}},
    "TagSpecifications": [
        {"ResourceType": kind, "Tags": tags(Name="n1", kind=kind)}
        for kind in ("instance", "volume", "network-interface")
    ],
}


def test_a_launch_shows_what_it_asked_for(cloud: Served) -> None:
    launched = cloud.run(**FULL)
    assert launched["State"] == {"Code": 0, "Name": "pending"}
    i = cloud.until(launched["InstanceId"], "running")
    assert named(i["Tags"]) == {"Name": "n1", "kind": "instance"}
    assert i["ClientToken"] == "full"
    assert i["IamInstanceProfile"]["Arn"] == PROFILE
    assert i["KeyName"] == "nodes"
    assert i["EbsOptimized"] is True
    assert i["Monitoring"]["State"] == "enabled"
    assert i["CpuOptions"] == {"CoreCount": 1, "ThreadsPerCore": 1}
    assert i["CapacityReservationId"] == WORLD.capacity_reservations[0]
    assert i["InstanceLifecycle"] == "spot"
    assert i["SpotInstanceRequestId"].startswith("sir-")
    assert (i["MetadataOptions"]["HttpTokens"], i["MetadataOptions"]["HttpPutResponseHopLimit"]) == ("required", 2)
    placement = i["Placement"]
    assert (placement["AvailabilityZone"], placement["Tenancy"]) == ("eu-west-1a", "dedicated")
    assert (placement["GroupName"], placement["GroupId"]) == ("nodes", WORLD.placement_groups[0].id)
    assert i["PrivateDnsName"] == f"ip-{i['PrivateIpAddress'].replace('.', '-')}.eu-west-1.compute.internal"
    assert i["PublicIpAddress"]
    attribute = cloud.client.describe_instance_attribute(InstanceId=i["InstanceId"], Attribute="userData")
    assert base64.b64decode(attribute["UserData"]["Value"]) == b"#cloud-config\n"


def test_a_launch_makes_tagged_volumes(cloud: Served) -> None:
    i = cloud.run(**FULL)["InstanceId"]
    root, data = sorted(cloud.volumes(i), key=lambda v: -v["Size"])
    assert (root["Size"], root["VolumeType"], root["Iops"], root["Throughput"]) == (33, "gp3", 4000, 200)
    assert (root["Encrypted"], root["KmsKeyId"], data["Encrypted"]) == (True, WORLD.kms_keys[0], False)
    assert (data["Size"], data["Iops"], data["Throughput"]) == (7, 3000, 125)
    assert [v["Attachments"][0]["DeleteOnTermination"] for v in (root, data)] == [True, False]
    assert [named(v["Tags"])["kind"] for v in (root, data)] == ["volume", "volume"]
    mapped = {b["DeviceName"]: b["Ebs"]["VolumeId"] for b in cloud.instance(i)["BlockDeviceMappings"]}
    assert mapped == {"/dev/xvda": root["VolumeId"], "/dev/sdf": data["VolumeId"]}


def test_a_launch_makes_tagged_interfaces(cloud: Served) -> None:
    i = cloud.run(**FULL)["InstanceId"]
    (nic,) = cloud.nics(i)
    assert named(nic["TagSet"])["kind"] == "network-interface"
    assert [a["IsPrimaryIpv6"] for a in nic["Ipv6Addresses"]] == [True]
    assert nic["Groups"] == [{"GroupId": GROUP, "GroupName": "nodes"}]
    assert (nic["Status"], nic["SourceDestCheck"], nic["Description"]) == ("in-use", True, "first")
    (shown,) = cloud.instance(i)["NetworkInterfaces"]
    assert shown["NetworkInterfaceId"] == nic["NetworkInterfaceId"]
    assert shown["Ipv6Addresses"] == nic["Ipv6Addresses"]
    assert cloud.instance(i)["Ipv6Address"] == nic["Ipv6Addresses"][0]["Ipv6Address"]


def test_several_interfaces_with_efa_and_cards(cloud: Served) -> None:
    nics = [
        {"DeviceIndex": 0, "SubnetId": SUBNET, "InterfaceType": "efa", "Ipv6PrefixCount": 1},
        {"DeviceIndex": 1, "NetworkCardIndex": 1, "SubnetId": SUBNET, "DeleteOnTermination": False},
    ]
    i = cloud.run(InstanceType="p4d.24xlarge", NetworkInterfaces=nics)["InstanceId"]
    first, second = sorted(cloud.nics(i), key=lambda n: n["Attachment"]["DeviceIndex"])
    assert [first["InterfaceType"], second["InterfaceType"]] == ["efa", "interface"]
    assert [first["Attachment"]["NetworkCardIndex"], second["Attachment"]["NetworkCardIndex"]] == [0, 1]
    assert len(first["Ipv6Prefixes"]) == 1
    assert first["PrivateIpAddress"] != second["PrivateIpAddress"]
    assert refusal(cloud.run, NetworkInterfaces=[nics[0]]) == "AttachmentLimitExceeded"  # m5.large has no EFA


def test_explicit_ipv6_addresses(cloud: Served) -> None:
    address = "2001:db8:1234:1a01::abcd"
    spec = [{"DeviceIndex": 0, "SubnetId": SUBNET, "Ipv6Addresses": [{"Ipv6Address": address}]}]
    i = cloud.run(NetworkInterfaces=spec)["InstanceId"]
    assert [a["Ipv6Address"] for a in cloud.nics(i)[0]["Ipv6Addresses"]] == [address]
    assert refusal(cloud.run, NetworkInterfaces=spec) == "InvalidParameterValue"
    assert len(cloud.ids()) == 1


def test_zones_follow_subnets(cloud: Served) -> None:
    assert cloud.run(SubnetId=WORLD.subnets[1].id)["Placement"]["AvailabilityZone"] == "eu-west-1b"
    assert cloud.run(Placement={"AvailabilityZone": "eu-west-1c"})["SubnetId"] == WORLD.subnets[2].id


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"ImageId": f"ami-{UNKNOWN}"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "ami-zzz"}, "InvalidAMIID.Malformed"),
        ({"SubnetId": f"subnet-{UNKNOWN}"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": [f"sg-{UNKNOWN}"]}, "InvalidGroup.NotFound"),
        ({"InstanceType": "zz9.large"}, "InvalidParameterValue"),
        ({"InstanceType": "x1.32xlarge"}, "InvalidParameterValue"),  # exists in EC2, but not in this world
        ({"InstanceType": "m7g.large"}, "InvalidParameterValue"),  # arm64, the image is not
        ({"IamInstanceProfile": {"Name": "nope"}}, "InvalidParameterValue"),
        ({"IamInstanceProfile": {"Arn": "nodes"}}, "InvalidParameterValue"),
        ({"IamInstanceProfile": {"Name": "nodes", "Arn": PROFILE}}, "InvalidParameterCombination"),
        ({"KeyName": "nope"}, "InvalidKeyPair.NotFound"),
        ({"UserData": "x" * 16385}, "InvalidParameterValue"),
        ({"MinCount": 2, "MaxCount": 1}, "InvalidParameterValue"),
        ({"Placement": {"AvailabilityZone": "eu-west-1z"}}, "InvalidParameterValue"),
        ({"Placement": {"AvailabilityZone": "eu-west-1b"}, "SubnetId": SUBNET}, "InvalidParameterValue"),
        ({"Placement": {"GroupName": "nope"}}, "InvalidPlacementGroup.Unknown"),
        ({"Placement": {"HostId": f"h-{UNKNOWN}"}}, "InvalidHostID.NotFound"),
        ({"Placement": {"Tenancy": "nope"}}, "InvalidParameterValue"),
        ({"CpuOptions": {"CoreCount": 9, "ThreadsPerCore": 1}}, "InvalidParameterValue"),
        ({"CpuOptions": {"AmdSevSnp": "enabled"}}, "InvalidParameterCombination"),
        ({"NetworkInterfaces": [{"DeviceIndex": 1, "SubnetId": SUBNET}]}, "InvalidParameterValue"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0}], "SubnetId": SUBNET}, "InvalidParameterCombination"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkCardIndex": 1}]}, "InvalidParameterValue"),
        ({"NetworkInterfaces": [{"DeviceIndex": n} for n in range(4)]}, "AttachmentLimitExceeded"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "Ipv6AddressCount": 11}]}, "InvalidParameterValue"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "PrimaryIpv6": True}]}, "InvalidParameterCombination"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "PrivateIpAddress": "10.250.0.9"}]}, "UnsupportedOperation"),
        (
            {
                "InstanceType": "m5.large",
                "NetworkInterfaces": [
                    {"DeviceIndex": n, "Ipv6Addresses": [{"Ipv6Address": "2001:db8:1234:1a01::1"}]} for n in (0, 1)
                ],
            },
            "InvalidParameterValue",
        ),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": {}}]}, "MissingParameter"),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 1}}]}, "InvalidBlockDeviceMapping"),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": "io1"}}]}, "MissingParameter"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": "gp2", "Throughput": 200}}]},
            "InvalidParameterCombination",
        ),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": f"snap-{UNKNOWN}"}}]},
            "InvalidSnapshot.NotFound",
        ),
        ({"InstanceMarketOptions": {"MarketType": "capacity-block"}}, "UnsupportedOperation"),
        ({"LaunchTemplate": {"LaunchTemplateName": "x", "Version": "1"}}, "UnsupportedOperation"),
        ({"HibernationOptions": {"Configured": True}}, "UnsupportedOperation"),
        (
            {"TagSpecifications": [{"ResourceType": "instance", "Tags": tags(**{"aws:x": "1"})}]},
            "InvalidParameterValue",
        ),
        ({"TagSpecifications": [{"ResourceType": "vpc", "Tags": tags(a="1")}]}, "UnsupportedOperation"),
        (
            {"TagSpecifications": [{"ResourceType": "volume", "Tags": tags(**{f"t{n}": "" for n in range(51)})}]},
            "TagLimitExceeded",
        ),
    ],
)
def test_a_launch_that_cannot_be_is_refused_and_makes_nothing(
    shared: Served, params: dict[str, Any], code: str
) -> None:
    def counts() -> tuple[int, int, int]:
        state = shared.call(shared.ec2.dump)
        return len(state["instances"]), len(state["volumes"]), len(state["networkInterfaces"])

    before = counts()
    assert refusal(shared.run, **params) == code
    shared.run()
    assert counts() == tuple(n + 1 for n in before)


def test_a_refusal_names_the_field_nobody_emulates(cloud: Served) -> None:
    with pytest.raises(ClientError, match=r"HibernationOptions\.Configured"):
        cloud.run(HibernationOptions={"Configured": True})
    with pytest.raises(ClientError, match="CreateVpc"):
        cloud.client.create_vpc(CidrBlock="10.0.0.0/16")
    assert refusal(cloud.client.create_vpc, CidrBlock="10.0.0.0/16") == "InvalidAction"


def test_dry_run_makes_nothing(cloud: Served) -> None:
    assert failure(cloud.run, DryRun=True, ClientToken="t") == ("DryRunOperation", 412)
    assert refusal(cloud.run, DryRun=True, KeyName="nope") == "InvalidKeyPair.NotFound"
    i = cloud.run(ClientToken="t", InstanceType="m5.xlarge")["InstanceId"]  # the dry run did not bind the token
    assert refusal(cloud.client.terminate_instances, DryRun=True, InstanceIds=[i]) == "DryRunOperation"
    assert cloud.ids(instance_state_name="running") == [i]


def test_an_unusable_kms_key_kills_the_instance_on_launch(cloud: Served) -> None:
    ebs = {"Encrypted": True, "KmsKeyId": "arn:aws:kms:eu-west-1:123456789012:key/gone"}
    i = cloud.run(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": ebs}])["InstanceId"]
    assert cloud.until(i, "terminated")["StateReason"]["Code"] == "Client.InternalError"


def test_a_subnet_runs_out_of_addresses(serve: Callable[..., Served]) -> None:
    small = Subnet(id=SUBNET, zone="eu-west-1a", cidr="10.0.0.0/28")
    cloud = serve(world=World(subnets=(small,)))
    first = cloud.run(MinCount=11, MaxCount=11)
    assert cloud.client.describe_subnets()["Subnets"][0]["AvailableIpAddressCount"] == 0
    assert refusal(cloud.run) == "InsufficientFreeAddressesInSubnet"
    cloud.client.terminate_instances(InstanceIds=[first["InstanceId"]])
    cloud.until(first["InstanceId"], "terminated")
    again = cloud.run()
    assert again["PrivateIpAddress"] == first["PrivateIpAddress"]  # and so is its node name: a trap worth keeping


def test_an_address_rests_before_it_is_used_again(cloud: Served) -> None:
    first = cloud.run()
    cloud.client.terminate_instances(InstanceIds=[first["InstanceId"]])
    cloud.until(first["InstanceId"], "terminated")
    assert cloud.run()["PrivateIpAddress"] != first["PrivateIpAddress"]


# -------------------------------------------------------------------------------------------------- idempotency


def test_same_token_same_parameters_is_the_same_launch(cloud: Served) -> None:
    first, second = (cloud.run(ClientToken="t")["InstanceId"] for _ in range(2))
    assert first == second
    assert cloud.ids(client_token="t") == [first]


def test_same_token_other_parameters_is_a_mismatch(cloud: Served) -> None:
    i = cloud.run(ClientToken="t")["InstanceId"]
    assert refusal(cloud.run, ClientToken="t", InstanceType="m5.xlarge") == "IdempotentParameterMismatch"
    assert cloud.ids() == [i]


def test_concurrent_calls_with_one_token_make_one_instance(cloud: Served) -> None:
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: cloud.run(ClientToken="t")["InstanceId"], range(6)))
    assert cloud.ids() == [made[0]]
    assert set(made) == {made[0]}


def test_the_token_of_a_terminated_instance_is_refused(serve: Callable[..., Served]) -> None:
    cloud = serve(terminate_delay=3600)
    i = cloud.run(ClientToken="t")["InstanceId"]
    cloud.client.terminate_instances(InstanceIds=[i])
    assert cloud.instance(i)["State"]["Name"] == "shutting-down"
    assert refusal(cloud.run, ClientToken="t") == "IdempotentInstanceTerminated"
    cloud.call(lambda: cloud.ec2.kill(i))
    assert refusal(cloud.run, ClientToken="t") == "IdempotentInstanceTerminated"
    assert cloud.run(ClientToken="t2")["InstanceId"] != i


def test_a_failed_launch_binds_its_token(cloud: Served) -> None:
    assert refusal(cloud.run, ClientToken="t", KeyName="nope") == "InvalidKeyPair.NotFound"
    assert refusal(cloud.run, ClientToken="t") == "IdempotentParameterMismatch"
    cloud.fault("RunInstances", code="InsufficientInstanceCapacity")
    assert failure(cloud.run, ClientToken="u") == ("InsufficientInstanceCapacity", 500)
    assert refusal(cloud.run, ClientToken="u", InstanceType="m5.xlarge") == "IdempotentParameterMismatch"
    i = cloud.run(ClientToken="u")["InstanceId"]
    assert cloud.ids() == [i]


# ------------------------------------------------------------------------------------------------------- states


def test_states_take_their_time(serve: Callable[..., Served]) -> None:
    cloud = serve(boot_delay=3600, terminate_delay=3600)
    i = cloud.run(NetworkInterfaces=[{"DeviceIndex": 0, "AssociatePublicIpAddress": True}])["InstanceId"]
    assert cloud.instance(i)["State"]["Name"] == "pending"
    assert refusal(cloud.client.stop_instances, InstanceIds=[i]) == "IncorrectInstanceState"
    cloud.call(cloud.ec2.fast_forward)
    running = cloud.instance(i)
    assert (running["State"]["Name"], "StateReason" in running) == ("running", False)
    stopping = cloud.client.stop_instances(InstanceIds=[i])["StoppingInstances"][0]
    assert (stopping["PreviousState"]["Name"], stopping["CurrentState"]["Name"]) == ("running", "stopping")
    assert refusal(cloud.client.start_instances, InstanceIds=[i]) == "IncorrectInstanceState"
    cloud.call(cloud.ec2.fast_forward)
    stopped = cloud.instance(i)
    assert (stopped["State"]["Name"], "PublicIpAddress" in stopped) == ("stopped", False)
    assert stopped["PrivateIpAddress"] == running["PrivateIpAddress"]
    starting = cloud.client.start_instances(InstanceIds=[i])["StartingInstances"][0]
    assert starting["CurrentState"]["Name"] == "pending"
    cloud.call(cloud.ec2.fast_forward)
    assert cloud.instance(i)["PublicIpAddress"]
    terminating = cloud.client.terminate_instances(InstanceIds=[i])["TerminatingInstances"][0]
    assert (terminating["PreviousState"]["Name"], terminating["CurrentState"]["Name"]) == ("running", "shutting-down")
    assert len(cloud.volumes(i)) == len(cloud.nics(i)) == 1
    cloud.call(cloud.ec2.fast_forward)
    gone = cloud.instance(i)
    assert (gone["State"]["Name"], gone["StateReason"]["Code"]) == ("terminated", "Client.UserInitiatedShutdown")
    assert gone["NetworkInterfaces"] == gone["BlockDeviceMappings"] == cloud.volumes(i) == cloud.nics(i) == []
    assert "VpcId" not in gone


def test_states_change_by_themselves(serve: Callable[..., Served]) -> None:
    cloud = serve(boot_delay=0.1, terminate_delay=0.1)
    i = cloud.run()["InstanceId"]
    cloud.until(i, "running")
    cloud.client.terminate_instances(InstanceIds=[i])
    cloud.until(i, "terminated")


def test_terminate_is_idempotent_until_the_instance_is_forgotten(serve: Callable[..., Served]) -> None:
    cloud = serve(terminated_visible=0.5)
    i = cloud.run(ClientToken="t")["InstanceId"]
    for _ in range(2):
        cloud.client.terminate_instances(InstanceIds=[i])
    assert cloud.client.terminate_instances(InstanceIds=[i])["TerminatingInstances"][0]["PreviousState"]["Code"] == 48
    eventually(lambda: not cloud.ids())
    assert refusal(cloud.client.terminate_instances, InstanceIds=[i]) == "InvalidInstanceID.NotFound"
    assert refusal(cloud.run, ClientToken="t") == "IdempotentInstanceTerminated"


def test_termination_deletes_what_should_go_and_keeps_the_rest(cloud: Served) -> None:
    nics = [
        {"DeviceIndex": 0, "SubnetId": SUBNET},
        {"DeviceIndex": 1, "SubnetId": SUBNET, "DeleteOnTermination": False},
    ]
    i = cloud.run(**{**FULL, "NetworkInterfaces": nics})["InstanceId"]
    cloud.client.terminate_instances(InstanceIds=[i])
    cloud.until(i, "terminated")
    (volume,) = cloud.client.describe_volumes()["Volumes"]
    (nic,) = cloud.client.describe_network_interfaces()["NetworkInterfaces"]
    assert (volume["Size"], volume["State"], volume["Attachments"]) == (7, "available", [])
    assert (nic["Status"], "Attachment" in nic) == ("available", False)
    left = leftovers(cloud.call(cloud.ec2.resources), "Name", "n1")
    assert left == {"volumes": [volume["VolumeId"]], "networkInterfaces": [nic["NetworkInterfaceId"]]}
    cloud.client.delete_volume(VolumeId=volume["VolumeId"])
    cloud.client.delete_network_interface(NetworkInterfaceId=nic["NetworkInterfaceId"])
    assert leftovers(cloud.call(cloud.ec2.resources), "Name", "n1") == {}


def test_what_is_attached_cannot_be_deleted(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    volume, nic = cloud.volumes(i)[0]["VolumeId"], cloud.nics(i)[0]["NetworkInterfaceId"]
    assert refusal(cloud.client.delete_volume, VolumeId=volume) == "VolumeInUse"
    with pytest.raises(ClientError, match="is currently in use") as caught:
        cloud.client.delete_network_interface(NetworkInterfaceId=nic)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_termination_protection(cloud: Served) -> None:
    protected, other = cloud.run(DisableApiTermination=True)["InstanceId"], cloud.run()["InstanceId"]
    assert refusal(cloud.client.terminate_instances, InstanceIds=[other, protected]) == "OperationNotPermitted"
    assert sorted(cloud.ids(instance_state_name=["pending", "running"])) == sorted([protected, other])
    cloud.client.modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": False})
    cloud.client.terminate_instances(InstanceIds=[protected])
    cloud.until(protected, "terminated")


def test_a_protected_instance_keeps_those_of_its_own_zone_only(cloud: Served) -> None:
    """EC2 user guide, "Terminate multiple instances with termination protection"."""
    elsewhere = next(s.id for s in WORLD.subnets if s.zone != WORLD.subnet(SUBNET).zone)  # type: ignore[union-attr]
    protected, beside = cloud.run(DisableApiTermination=True)["InstanceId"], cloud.run()["InstanceId"]
    far = cloud.run(NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": elsewhere}])["InstanceId"]
    assert refusal(cloud.client.terminate_instances, InstanceIds=[far, beside, protected]) == "OperationNotPermitted"
    cloud.until(far, "terminated")
    assert sorted(cloud.ids(instance_state_name=["pending", "running"])) == sorted([protected, beside])


def test_a_spot_instance_cannot_be_protected(cloud: Served) -> None:
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    with pytest.raises(ClientError, match="not supported for Spot"):
        cloud.run(DisableApiTermination=True, **spot)
    i = cloud.run(**spot)["InstanceId"]
    protect = {"InstanceId": i, "DisableApiTermination": {"Value": True}}
    assert refusal(cloud.client.modify_instance_attribute, **protect) == "UnsupportedOperation"
    cloud.client.terminate_instances(InstanceIds=[i])
    cloud.until(i, "terminated")


@pytest.mark.parametrize("call", ["describe_instances", "terminate_instances", "stop_instances"])
def test_unknown_and_malformed_instances(cloud: Served, call: str) -> None:
    i = cloud.run()["InstanceId"]
    assert refusal(getattr(cloud.client, call), InstanceIds=[i, f"i-{UNKNOWN}"]) == "InvalidInstanceID.NotFound"
    assert refusal(getattr(cloud.client, call), InstanceIds=["zzz"]) == "InvalidInstanceID.Malformed"
    assert cloud.until(i, "running")["InstanceId"] == i


def test_status_console_and_sudden_death(cloud: Served) -> None:
    i = cloud.run(DisableApiTermination=True)["InstanceId"]
    cloud.until(i, "running")

    def status() -> str:
        return str(
            cloud.client.describe_instance_status(InstanceIds=[i])["InstanceStatuses"][0]["InstanceStatus"]["Status"]
        )

    assert status() == "ok"
    assert cloud.world("impair", instanceId=i, impaired=True) == 200
    assert status() == "impaired"
    assert "Output" not in cloud.client.get_console_output(InstanceId=i)
    assert cloud.world("set_console", instanceId=i, text="boot\n") == 200
    assert cloud.world("set_console", instanceId=i, text="login:") == 200
    assert cloud.client.get_console_output(InstanceId=i)["Output"] == "boot\nlogin:"
    assert cloud.world("kill", instanceId=i) == 200
    assert cloud.instance(i)["StateReason"]["Code"] == "Server.InternalError"
    assert cloud.client.describe_instance_status(InstanceIds=[i])["InstanceStatuses"] == []
    every = cloud.client.describe_instance_status(InstanceIds=[i], IncludeAllInstances=True)["InstanceStatuses"]
    assert [s["InstanceState"]["Name"] for s in every] == ["terminated"]
    assert cloud.world("kill", instanceId=f"i-{UNKNOWN}") == 404
    assert cloud.world("kill", instance=i) == 400
    assert cloud.world("resurrect", instanceId=i) == 404


def test_the_hypervisor_hears_of_every_state_without_calls(serve: Callable[..., Served]) -> None:
    cloud = serve(boot_delay=0.05, terminate_delay=0.05)
    old = cloud.run(TagSpecifications=[{"ResourceType": "instance", "Tags": tags(Name="old")}])["InstanceId"]
    cloud.until(old, "running")
    heard: list[Ec2Vm] = []

    def broken(vm: Ec2Vm) -> None:
        raise RuntimeError("a listener's own mistake")

    cloud.call(lambda: cloud.ec2.subscribe(broken))
    cloud.call(lambda: cloud.ec2.subscribe(heard.append))
    assert [(vm.name, vm.state) for vm in heard] == [("old", "running")]
    new = cloud.run(UserData="join me")["InstanceId"]
    eventually(lambda: len(heard) >= 3)
    cloud.client.terminate_instances(InstanceIds=[new])
    eventually(lambda: len(heard) >= 5)
    assert [vm.state for vm in heard[1:]] == ["pending", "running", "shutting-down", "terminated"]
    assert {(vm.instance_id, vm.user_data, vm.region, vm.zone) for vm in heard[1:]} == {
        (new, b"join me", "eu-west-1", "eu-west-1a")
    }
    living = cloud.call(cloud.ec2.instances)
    assert [vm.instance_id for vm in living] == [old]
    assert len(cloud.call(lambda: cloud.ec2.instances(include_terminated=True))) == 2


def test_a_listener_may_kill_what_is_about_to_change(serve: Callable[..., Served]) -> None:
    cloud = serve(boot_delay=3600)
    first, second = cloud.run()["InstanceId"], cloud.run()["InstanceId"]

    def kill_the_other(vm: Ec2Vm) -> None:
        if (vm.instance_id, vm.state) == (first, "running"):
            cloud.ec2.kill(second)

    cloud.call(lambda: cloud.ec2.subscribe(kill_the_other))
    cloud.call(cloud.ec2.fast_forward)
    assert cloud.instance(first)["State"]["Name"] == "running"
    assert cloud.instance(second)["State"]["Name"] == "terminated"  # still described, and not running again


# ------------------------------------------------------------------------------------------------------ network


def test_source_dest_check_of_the_only_interface(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    cloud.client.modify_instance_attribute(InstanceId=i, SourceDestCheck={"Value": False})
    assert cloud.instance(i)["SourceDestCheck"] is False
    assert cloud.nics(i)[0]["SourceDestCheck"] is False
    attribute = cloud.client.describe_instance_attribute(InstanceId=i, Attribute="sourceDestCheck")
    assert attribute["SourceDestCheck"]["Value"] is False


def test_source_dest_check_of_one_interface_among_several(cloud: Served) -> None:
    i = cloud.run(NetworkInterfaces=[{"DeviceIndex": n, "SubnetId": SUBNET} for n in (0, 1)])["InstanceId"]
    modify = cloud.client.modify_instance_attribute
    assert refusal(modify, InstanceId=i, SourceDestCheck={"Value": False}) == "InvalidInstanceID"
    second = next(n for n in cloud.nics(i) if n["Attachment"]["DeviceIndex"] == 1)["NetworkInterfaceId"]
    cloud.client.modify_network_interface_attribute(NetworkInterfaceId=second, SourceDestCheck={"Value": False})
    assert {n["NetworkInterfaceId"] for n in cloud.nics(i) if not n["SourceDestCheck"]} == {second}


def test_assigning_ipv6_addresses_and_prefixes(cloud: Served) -> None:
    i = cloud.run(SubnetId=SUBNET)["InstanceId"]
    nic = cloud.nics(i)[0]["NetworkInterfaceId"]
    assign = cloud.client.assign_ipv6_addresses
    assert len(assign(NetworkInterfaceId=nic, Ipv6AddressCount=2)["AssignedIpv6Addresses"]) == 2
    for _ in range(2):
        assign(NetworkInterfaceId=nic, Ipv6Addresses=["2001:db8:1234:1a01::beef"])
    for _ in range(2):  # a count is an increment: a repeated call after a lost reply assigns twice
        assert len(assign(NetworkInterfaceId=nic, Ipv6PrefixCount=1)["AssignedIpv6Prefixes"]) == 1
    shown = cloud.nics(i)[0]
    assert len({a["Ipv6Address"] for a in shown["Ipv6Addresses"]}) == len(shown["Ipv6Addresses"]) == 3
    assert len({p["Ipv6Prefix"] for p in shown["Ipv6Prefixes"]}) == len(shown["Ipv6Prefixes"]) == 2
    assert refusal(assign, NetworkInterfaceId=nic, Ipv6PrefixCount=6) == "PrivateIpAddressLimitExceeded"
    assert refusal(assign, NetworkInterfaceId=nic, Ipv6Addresses=["2001:db8::1"]) == "InvalidParameterValue"
    assert refusal(assign, NetworkInterfaceId=nic) == "MissingParameter"
    unknown = f"eni-{UNKNOWN}"
    assert refusal(assign, NetworkInterfaceId=unknown, Ipv6PrefixCount=1) == "InvalidNetworkInterfaceID.NotFound"


def test_a_volume_is_made_attached_and_detached(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    zone = cloud.until(i, "running")["Placement"]["AvailabilityZone"]
    specification = [{"ResourceType": "volume", "Tags": tags(a="b")}]
    make = {"AvailabilityZone": zone, "Size": 5, "VolumeType": "gp3", "TagSpecifications": specification}
    volume = cloud.client.create_volume(**make, ClientToken="t")["VolumeId"]
    assert cloud.client.create_volume(**make, ClientToken="t")["VolumeId"] == volume
    assert refusal(cloud.client.create_volume, **{**make, "Size": 6}, ClientToken="t") == "IdempotentParameterMismatch"
    (shown,) = cloud.client.describe_volumes(VolumeIds=[volume])["Volumes"]
    assert (shown["State"], shown["Size"], named(shown["Tags"])) == ("available", 5, {"a": "b"})
    attach = {"InstanceId": i, "VolumeId": volume}
    root = cloud.instance(i)["RootDeviceName"]
    assert refusal(cloud.client.attach_volume, **attach, Device=root) == "InvalidParameterValue"
    assert cloud.client.attach_volume(**attach, Device="/dev/sdg")["State"] == "attaching"
    held = {b["DeviceName"]: b["Ebs"] for b in cloud.instance(i)["BlockDeviceMappings"]}
    assert (held["/dev/sdg"]["VolumeId"], held["/dev/sdg"]["DeleteOnTermination"]) == (volume, False)
    assert refusal(cloud.client.attach_volume, **attach, Device="/dev/sdh") == "VolumeInUse"
    assert refusal(cloud.client.delete_volume, VolumeId=volume) == "VolumeInUse"
    far = cloud.client.create_volume(**{**make, "AvailabilityZone": next(z for z in WORLD.zones if z != zone)})
    elsewhere = {"InstanceId": i, "VolumeId": far["VolumeId"], "Device": "/dev/sdh"}
    assert refusal(cloud.client.attach_volume, **elsewhere) == "InvalidVolume.ZoneMismatch"
    cloud.client.detach_volume(VolumeId=volume)
    assert refusal(cloud.client.detach_volume, VolumeId=volume) == "IncorrectState"
    assert "/dev/sdg" not in {b["DeviceName"] for b in cloud.instance(i)["BlockDeviceMappings"]}
    cloud.client.attach_volume(**attach, Device="/dev/sdg")
    cloud.client.terminate_instances(InstanceIds=[i])
    cloud.until(i, "terminated")
    left = cloud.client.describe_volumes()["Volumes"]  # what was attached later stays
    assert {v["VolumeId"]: v["State"] for v in left} == {volume: "available", far["VolumeId"]: "available"}


def test_an_interface_is_made_and_attached(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    cloud.until(i, "running")
    specification = [{"ResourceType": "network-interface", "Tags": tags(a="b")}]
    make = cloud.client.create_network_interface
    nics = [
        make(SubnetId=SUBNET, Groups=[GROUP], TagSpecifications=specification)["NetworkInterface"] for _ in range(3)
    ]
    assert [(n["Status"], named(n["TagSet"])) for n in nics] == [("available", {"a": "b"})] * 3
    first, second, third = (n["NetworkInterfaceId"] for n in nics)
    attach = cloud.client.attach_network_interface
    taken = {"InstanceId": i, "NetworkInterfaceId": first, "DeviceIndex": 0}
    assert refusal(attach, **taken) == "InvalidParameterValue"
    attach(**{**taken, "DeviceIndex": 1})
    assert refusal(attach, **{**taken, "DeviceIndex": 2}) == "InvalidNetworkInterface.InUse"
    attach(InstanceId=i, NetworkInterfaceId=second, DeviceIndex=2)
    full = {"InstanceId": i, "NetworkInterfaceId": third, "DeviceIndex": 3}
    assert refusal(attach, **full) == "AttachmentLimitExceeded"
    assert {n["Attachment"]["DeviceIndex"] for n in cloud.instance(i)["NetworkInterfaces"]} == {0, 1, 2}
    elsewhere = next(s.id for s in WORLD.subnets if s.zone != WORLD.subnet(SUBNET).zone)  # type: ignore[union-attr]
    wrong = [{"ResourceType": "volume", "Tags": tags(a="b")}]
    assert refusal(make, SubnetId=elsewhere, TagSpecifications=wrong) == "InvalidParameterValue"
    far = make(SubnetId=elsewhere)["NetworkInterface"]["NetworkInterfaceId"]
    other = {"InstanceId": i, "NetworkInterfaceId": far, "DeviceIndex": 4}
    assert refusal(attach, **other) == "InvalidParameterCombination"
    cloud.client.terminate_instances(InstanceIds=[i])
    cloud.until(i, "terminated")
    left = {n["NetworkInterfaceId"] for n in cloud.client.describe_network_interfaces()["NetworkInterfaces"]}
    assert left == {first, second, third, far}


def test_nothing_is_attached_to_what_does_not_run(serve: Callable[..., Served]) -> None:
    cloud = serve(boot_delay=60.0)
    i = cloud.run()["InstanceId"]
    nic = cloud.client.create_network_interface(SubnetId=SUBNET)["NetworkInterface"]["NetworkInterfaceId"]
    attach = {"InstanceId": i, "NetworkInterfaceId": nic, "DeviceIndex": 1}
    assert refusal(cloud.client.attach_network_interface, **attach) == "IncorrectState"
    cloud.call(cloud.ec2.fast_forward)
    cloud.client.attach_network_interface(**attach)
    assert len(cloud.nics(i)) == 2


def test_metadata_options_are_changed_one_by_one(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    modify = cloud.client.modify_instance_metadata_options
    before = cloud.instance(i)["MetadataOptions"]
    answer = modify(InstanceId=i, HttpTokens="required")
    assert answer["InstanceMetadataOptions"] == {**before, "HttpTokens": "required", "State": "pending"}
    assert cloud.instance(i)["MetadataOptions"] == {**before, "HttpTokens": "required"}
    modify(InstanceId=i, HttpPutResponseHopLimit=2, HttpEndpoint="disabled")
    assert cloud.instance(i)["MetadataOptions"] == {
        **before,
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
        "HttpEndpoint": "disabled",
    }
    assert refusal(modify, InstanceId=i, HttpPutResponseHopLimit=65) == "InvalidParameterValue"
    assert refusal(modify, InstanceId=i, HttpTokens="maybe") == "InvalidParameterValue"
    assert refusal(modify, InstanceId=i) == "MissingParameter"
    assert refusal(modify, InstanceId=f"i-{UNKNOWN}", HttpTokens="required") == "InvalidInstanceID.NotFound"
    cloud.client.terminate_instances(InstanceIds=[i])
    cloud.until(i, "terminated")
    assert refusal(modify, InstanceId=i, HttpTokens="optional") == "IncorrectInstanceState"


def test_the_world_is_described(cloud: Served) -> None:
    (image,) = cloud.client.describe_images(ImageIds=[AMI])["Images"]
    assert (image["RootDeviceName"], image["State"]) == ("/dev/xvda", "available")
    ubuntu = cloud.client.describe_images(
        Owners=["amazon"],
        Filters=[{"Name": "name", "Values": ["*ubuntu*22.04*"]}, {"Name": "state", "Values": ["available"]}],
    )["Images"]
    assert [i["ImageId"] for i in ubuntu] == ["ami-0a1b2c3d4e5f60004"]
    assert refusal(cloud.client.describe_images, ImageIds=[f"ami-{UNKNOWN}"]) == "InvalidAMIID.NotFound"
    (subnet,) = cloud.client.describe_subnets(SubnetIds=[SUBNET])["Subnets"]
    assert subnet["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"] == "2001:db8:1234:1a01::/64"
    in_b = [{"Name": "availability-zone", "Values": ["eu-west-1b"]}]
    assert [s["SubnetId"] for s in cloud.client.describe_subnets(Filters=in_b)["Subnets"]] == [WORLD.subnets[1].id]
    (group,) = cloud.client.describe_security_groups(GroupIds=[GROUP])["SecurityGroups"]
    assert (group["GroupName"], group["VpcId"]) == ("nodes", subnet["VpcId"])


# -------------------------------------------------------------------------------------------- tags and listings


def test_tags_of_several_resources(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    nic, volume = cloud.nics(i)[0]["NetworkInterfaceId"], cloud.volumes(i)[0]["VolumeId"]
    resources = [i, nic, volume]
    cloud.client.create_tags(Resources=resources, Tags=tags(k1="v1", k2="v2", k3="v3"))
    cloud.client.delete_tags(Resources=resources, Tags=[{"Key": "k2"}, {"Key": "k1", "Value": "other"}])
    cloud.client.delete_tags(Resources=[nic], Tags=tags(k3="v3"))
    assert named(cloud.instance(i)["Tags"]) == {"k1": "v1", "k3": "v3"}
    assert named(cloud.nics(i)[0]["TagSet"]) == {"k1": "v1"}
    assert named(cloud.volumes(i)[0]["Tags"]) == {"k1": "v1", "k3": "v3"}
    found = cloud.client.describe_tags(
        Filters=[{"Name": "resource-id", "Values": resources}, {"Name": "key", "Values": ["k1"]}]
    )["Tags"]
    assert {(t["ResourceType"], t["Value"]) for t in found} == {
        ("instance", "v1"),
        ("network-interface", "v1"),
        ("volume", "v1"),
    }
    cloud.client.delete_tags(Resources=[i])
    assert cloud.instance(i).get("Tags", []) == []


def test_tags_that_are_refused_change_nothing(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    create = cloud.client.create_tags
    create(Resources=[i], Tags=tags(**{f"t{n}": "" for n in range(40)}))
    assert refusal(create, Resources=[i], Tags=tags(**{f"u{n}": "" for n in range(11)})) == "TagLimitExceeded"
    create(Resources=[i], Tags=tags(**{f"t{n}": "new" for n in range(40)}))  # the same keys do not count twice
    assert refusal(create, Resources=[i], Tags=tags(**{"aws:x": "1"})) == "InvalidParameterValue"
    assert refusal(create, Resources=[i], Tags=tags(**{"k" * 129: ""})) == "InvalidParameterValue"
    assert refusal(create, Resources=[i, f"i-{UNKNOWN}"], Tags=tags(a="b")) == "InvalidInstanceID.NotFound"
    assert refusal(create, Resources=["what-ever"], Tags=tags(a="b")) == "InvalidID"
    assert named(cloud.instance(i)["Tags"]) == {f"t{n}": "new" for n in range(40)}


def test_a_call_for_several_resources_that_is_denied_for_one_changes_none(cloud: Served) -> None:
    i = cloud.run()["InstanceId"]
    nic, volume = cloud.nics(i)[0]["NetworkInterfaceId"], cloud.volumes(i)[0]["VolumeId"]
    cloud.fault("CreateTags", code="UnauthorizedOperation", match=volume, times=None)
    create = cloud.client.create_tags
    assert refusal(create, Resources=[i, nic, volume], Tags=tags(a="b")) == "UnauthorizedOperation"
    assert named(cloud.instance(i).get("Tags", [])) == {}
    create(Resources=[i, nic], Tags=tags(a="b"))
    assert named(cloud.nics(i)[0]["TagSet"]) == {"a": "b"}
    cloud.call(cloud.frame.clear_faults)
    create(Resources=[nic], Tags=tags(**{f"t{n}": "" for n in range(49)}))
    assert refusal(create, Resources=[i, nic, volume], Tags=tags(c="d")) == "TagLimitExceeded"
    assert named(cloud.volumes(i)[0].get("Tags", [])) == {}


def test_filters(cloud: Served) -> None:
    i = cloud.run(**FULL)["InstanceId"]
    cloud.run(InstanceType="c5.large", SubnetId=WORLD.subnets[1].id)
    shown = cloud.until(i, "running")
    for name, value in {
        "tag:Name": "n*",
        "tag-key": "kind",
        "client-token": "full",
        "instance-id": i,
        "instance-type": "m5.?arge",
        "subnet-id": SUBNET,
        "private-dns-name": shown["PrivateDnsName"],
        "private-ip-address": shown["PrivateIpAddress"],
        "network-interface.network-interface-id": shown["NetworkInterfaces"][0]["NetworkInterfaceId"],
        "availability-zone": "eu-west-1a",
        "iam-instance-profile.arn": PROFILE,
        "instance-lifecycle": "spot",
        "launch-time": f"{shown['LaunchTime']:%Y-%m-%dT}*",
    }.items():
        found = cloud.filtered({name: [value]})
        assert i in found, name
        if name != "launch-time":
            assert found == [i], name
    assert len(cloud.filtered({"vpc-id": [shown["VpcId"]], "instance-state-name": ["pending", "running"]})) == 2
    assert cloud.filtered({"tag:Name": ["n[1]"]}) == []  # no other wildcards than * and ?
    assert cloud.filtered({"tag:Name": ["N1"]}) == []  # case counts
    assert cloud.filtered({"tag:Name": ["n\\*"]}) == []  # an escaped star is a star
    assert refusal(cloud.filtered, {"no-such-filter": ["x"]}) == "InvalidParameterValue"


def test_pages(cloud: Served) -> None:
    cloud.run(MinCount=12, MaxCount=12)
    pages = list(cloud.client.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    assert [sum(len(r["Instances"]) for r in p["Reservations"]) for p in pages] == [5, 5, 2]
    describe = cloud.client.describe_instances
    assert refusal(describe, MaxResults=4) == "InvalidParameterValue"
    assert refusal(describe, NextToken="%") == "InvalidNextToken"
    assert refusal(describe, MaxResults=5, InstanceIds=[f"i-{UNKNOWN}"]) == "InvalidInstanceID.NotFound"
    assert refusal(describe, MaxResults=5, InstanceIds=cloud.ids()[:1]) == "InvalidParameterCombination"


def test_a_page_is_not_shifted_by_rows_that_leave(cloud: Served) -> None:
    cloud.run(MinCount=12, MaxCount=12)
    living = {"Filters": [{"Name": "instance-state-name", "Values": ["pending", "running"]}], "MaxResults": 5}
    every, shown, token = cloud.ids(), [], ""
    while True:
        page = cloud.client.describe_instances(**living, **({"NextToken": token} if token else {}))
        found = [i["InstanceId"] for r in page["Reservations"] for i in r["Instances"]]
        cloud.client.terminate_instances(InstanceIds=found)
        shown += found
        if not (token := page.get("NextToken", "")):
            break
    assert sorted(shown) == sorted(every)


# --------------------------------------------------------------------------------------------------------- lag


def test_new_resources_are_unknown_for_a_while(cloud: Served) -> None:
    seen = cloud.run()["InstanceId"]
    cloud.call(lambda: setattr(cloud.frame.lag, "describe_after_create", 3600.0))
    hidden = cloud.run(ClientToken="t")
    i, nic = hidden["InstanceId"], hidden["NetworkInterfaces"][0]["NetworkInterfaceId"]
    volume = hidden["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert cloud.ids() == [seen]
    assert refusal(cloud.instance, i) == "InvalidInstanceID.NotFound"
    assert refusal(cloud.client.terminate_instances, InstanceIds=[i]) == "InvalidInstanceID.NotFound"
    assert refusal(cloud.client.create_tags, Resources=[i], Tags=tags(a="b")) == "InvalidInstanceID.NotFound"
    assert refusal(cloud.client.describe_volumes, VolumeIds=[volume]) == "InvalidVolume.NotFound"
    interfaces = cloud.client.describe_network_interfaces
    assert refusal(interfaces, NetworkInterfaceIds=[nic]) == "InvalidNetworkInterfaceID.NotFound"
    assert cloud.volumes(i) == []
    assert cloud.run(ClientToken="t")["InstanceId"] == i  # the token sees through the lag
    assert {vm.instance_id for vm in cloud.call(cloud.ec2.instances)} == {seen, i}
    cloud.call(lambda: setattr(cloud.frame.lag, "describe_after_create", 0.0))
    assert sorted(cloud.ids()) == sorted([seen, i])
    assert len(cloud.volumes(i)) == 1


def test_lag_ends_by_itself(cloud: Served) -> None:
    cloud.call(lambda: setattr(cloud.frame.lag, "describe_after_create", 0.3))
    i = cloud.run()["InstanceId"]
    eventually(lambda: cloud.ids() == [i])


def test_written_tags_are_unknown_for_a_while(cloud: Served) -> None:
    launch_tags = [{"ResourceType": "instance", "Tags": tags(Name="old")}]
    i = cloud.run(TagSpecifications=launch_tags)["InstanceId"]
    cloud.call(lambda: setattr(cloud.frame.lag, "tags", 3600.0))
    late = cloud.run(TagSpecifications=launch_tags)["InstanceId"]
    cloud.client.create_tags(Resources=[i], Tags=tags(Name="new", more="1"))
    cloud.client.delete_tags(Resources=[i], Tags=tags(more="1"))
    assert cloud.filtered({"tag:Name": ["old"]}) == [i]
    assert cloud.filtered({"tag:Name": ["new"]}) == []
    assert named(cloud.instance(i)["Tags"]) == {"Name": "old"}
    assert cloud.instance(late).get("Tags", []) == []
    assert leftovers(cloud.call(cloud.ec2.resources), "Name", "new") == {
        "instances": [i]
    }  # invariants are not misled by the lag
    cloud.call(lambda: setattr(cloud.frame.lag, "tags", 0.0))
    assert cloud.filtered({"tag:Name": ["new"]}) == [i]
    assert cloud.filtered({"tag:Name": ["old"]}) == [late]
    assert named(cloud.instance(i)["Tags"]) == {"Name": "new"}


# ------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InsufficientInstanceCapacity", 500),
        ("RequestLimitExceeded", 503),
        ("UnauthorizedOperation", 403),
        ("InternalError", 500),
        ("VcpuLimitExceeded", 400),
    ],
)
def test_a_fault_fails_as_often_as_it_says(cloud: Served, code: str, status: int) -> None:
    cloud.fault("Run*", code=code, message="on purpose", times=2)
    for _ in range(2):
        assert failure(cloud.run) == (code, status)
    i = cloud.run()["InstanceId"]
    assert cloud.ids() == [i]


def test_a_fault_strikes_only_what_it_matches(cloud: Served) -> None:
    cloud.fault("RunInstances", code="InsufficientInstanceCapacity", match='"InstanceType": "m5.xlarge"', times=None)
    assert cloud.run()["InstanceType"] == "m5.large"
    assert refusal(cloud.run, InstanceType="m5.xlarge") == "InsufficientInstanceCapacity"


def test_a_lost_reply_and_the_same_token_make_one_instance(cloud: Served) -> None:
    cloud.fault("RunInstances", drop=True)
    with pytest.raises(ConnectionClosedError):
        cloud.run(ClientToken="t")
    i = cloud.run(ClientToken="t")["InstanceId"]
    assert cloud.ids() == [i]
    lost, answered = cloud.frame.calls("ec2", "RunInstances")
    assert (lost.dropped, answered.dropped) == (True, False)
    assert lost.result["instanceIds"] == answered.result["instanceIds"] == [i]


def test_a_delay_lets_others_pass(cloud: Served) -> None:
    cloud.fault("RunInstances", delay=1.0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cloud.run)
        eventually(lambda: not cloud.frame.faults)  # the call has come in
        assert cloud.ids() == []
        i = slow.result(DEADLINE)["InstanceId"]
    assert cloud.ids() == [i]


# ------------------------------------------------------------------------------------------------- who may call


def test_credentials_are_checked(cloud: Served) -> None:
    assert failure(cloud.client_as("AKIAUNKNOWN", SECRET).describe_instances) == ("AuthFailure", 401)
    assert failure(cloud.client_as(KEY, "wrong").describe_instances) == ("SignatureDoesNotMatch", 403)
    assert failure(cloud.client_as(KEY, SECRET, "no-session").describe_instances) == ("AuthFailure", 401)
    unsigned = urllib.request.Request(cloud.url, b"Action=DescribeInstances&Version=2016-11-15", method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(unsigned, timeout=DEADLINE)
    assert caught.value.code == 403
    assert b"MissingAuthenticationToken" in caught.value.read()
    assert cloud.ids() == []


def raw(cloud: Served, form: str, monkeypatch: pytest.MonkeyPatch, age: float = 0.0, appended: str = "") -> str:
    """The error code of a signed request that no SDK would send; empty when it was served.

    It is signed `age` seconds ago; `appended` comes to its body after that.
    """
    sent = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    url, body = f"{cloud.url}/", f"{form}&Version=2016-11-15"
    request = AWSRequest("POST", url, data=body.encode())
    with monkeypatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda: sent)
        SigV4Auth(Credentials(KEY, SECRET), "ec2", "eu-west-1").add_auth(request)
    try:
        sendable = urllib.request.Request(url, (body + appended).encode(), dict(request.headers.items()), method="POST")
        with urllib.request.urlopen(sendable, timeout=DEADLINE):
            return ""
    except urllib.error.HTTPError as e:
        match = re.search("<Code>(.*)</Code>", e.read().decode())
        assert match is not None
        return match[1]


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("Action=DescribeInstances", ""),
        ("Action=", "InvalidAction"),
        ("Action=DescribeInstances&NoSuchThing=1", "UnknownParameter"),
        ("Action=DescribeInstances&InstanceId.x=i-1", "UnknownParameter"),
        ("Action=DescribeInstances&InstanceId=i-1", "InvalidParameterValue"),
        ("Action=DescribeInstances&MaxResults=many", "InvalidParameterValue"),
        ("Action=DescribeInstances&dryRun=perhaps", "UnknownParameter"),
        ("Action=DescribeInstances&DryRun=perhaps", "InvalidParameterValue"),
        ("Action=TerminateInstances", "MissingParameter"),
        ("Action=DescribeInstanceAttribute&InstanceId=i-1&Attribute=nope", "InvalidParameterValue"),
    ],
)
def test_malformed_requests(shared: Served, monkeypatch: pytest.MonkeyPatch, form: str, code: str) -> None:
    assert raw(shared, form, monkeypatch) == code


def test_the_signature_covers_date_region_and_body(cloud: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    form = "Action=DescribeInstances"
    assert raw(cloud, form, monkeypatch, age=600) == ""
    assert raw(cloud, form, monkeypatch, age=1000) == "RequestExpired"
    assert raw(cloud, form, monkeypatch, age=-1000) == "RequestExpired"
    assert raw(cloud, form, monkeypatch, appended="&IncludeManagedResources=true") == "SignatureDoesNotMatch"
    elsewhere = SESSION.client(
        "ec2",
        endpoint_url=cloud.url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(retries={"total_max_attempts": 1}),
    )
    assert refusal(elsewhere.describe_instances) == "SignatureDoesNotMatch"


def test_web_identity(cloud: Served) -> None:
    (role, token) = next(iter(WORLD.web_identities.items()))
    sts = SESSION.client(
        "sts", endpoint_url=cloud.url, region_name="eu-west-1", config=Config(retries={"total_max_attempts": 1})
    )
    assume = sts.assume_role_with_web_identity
    assert (
        refusal(assume, RoleArn=role, RoleSessionName="test", WebIdentityToken="wrong-token") == "InvalidIdentityToken"
    )
    unknown = "arn:aws:iam::123456789012:role/unknown"
    assert refusal(assume, RoleArn=unknown, RoleSessionName="test", WebIdentityToken=token) == "AccessDenied"
    given = assume(RoleArn=role, RoleSessionName="test", WebIdentityToken=token)["Credentials"]
    credentials = (given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    cloud.client_as(*credentials).describe_instances()
    assert cloud.frame.calls("ec2", "DescribeInstances")[-1].caller == given["AccessKeyId"]
    assert failure(cloud.client_as(*credentials[:2], "other").describe_instances) == ("AuthFailure", 401)
    cloud.call(lambda: setattr(cloud.ec2.authenticator.sessions[given["AccessKeyId"]], "expires", 0.0))
    assert failure(cloud.client_as(*credentials).describe_instances) == ("RequestExpired", 400)


def test_the_journal_tells_who_did_what_and_no_secret(cloud: Served) -> None:
    canary = f"canary-{uuid.uuid4()}"
    i = cloud.run(UserData=canary, ClientToken="t")["InstanceId"]
    refusal(cloud.client.terminate_instances, InstanceIds=[f"i-{UNKNOWN}"])
    cloud.ids()
    run, terminate, describe = cloud.frame.calls("ec2")
    assert (run.operation, run.caller, run.mutating, run.error, run.status) == ("RunInstances", KEY, True, None, 200)
    assert run.result["instanceIds"] == [i]
    assert len(run.result["volumeIds"]) == len(run.result["networkInterfaceIds"]) == 1
    assert (run.request["ClientToken"], run.request["UserData"][:7]) == ("t", "sha256:")
    assert (terminate.error, terminate.status, terminate.mutating) == ("InvalidInstanceID.NotFound", 400, True)
    assert (describe.operation, describe.mutating, describe.result) == ("DescribeInstances", False, {})
    text = "".join(c.model_dump_json() for c in cloud.frame.calls())
    assert canary not in text
    assert base64.b64encode(canary.encode()).decode()[:-4] not in text


# -------------------------------------------------------------------------------------------------------- state


def test_state_survives(cloud: Served, serve: Callable[..., Served]) -> None:
    i = cloud.run(**FULL)["InstanceId"]
    cloud.until(i, "running")
    cloud.world("set_console", instanceId=i, text="boot")
    gone = cloud.run(ClientToken="gone")["InstanceId"]
    cloud.client.terminate_instances(InstanceIds=[gone])
    cloud.until(gone, "terminated")
    state = json.loads(json.dumps(cloud.call(cloud.ec2.dump)))

    again = serve()
    heard: list[Ec2Vm] = []
    again.call(lambda: again.ec2.subscribe(heard.append))
    again.call(lambda: again.ec2.load(state))
    assert [(vm.instance_id, vm.state) for vm in heard] == [(i, "running")]
    assert again.instance(i) == cloud.instance(i)
    assert again.volumes(i) == cloud.volumes(i)
    assert again.nics(i) == cloud.nics(i)
    assert again.instance(gone)["State"]["Name"] == "terminated"
    assert again.run(**FULL)["InstanceId"] == i
    assert refusal(again.run, ClientToken="gone") == "IdempotentInstanceTerminated"
    assert again.client.get_console_output(InstanceId=i)["Output"] == "boot"
    assert again.run()["PrivateIpAddress"] not in {vm.private_ip for vm in cloud.call(cloud.ec2.instances)}
    assert again.call(again.ec2.dump) != state


def test_a_state_change_that_was_due_meanwhile_happens_after_loading(serve: Callable[..., Served]) -> None:
    before = serve(boot_delay=3600)
    i = before.run()["InstanceId"]
    state = before.call(before.ec2.dump)
    state["instances"][i]["due"] = time.time() - 1
    after = serve(boot_delay=3600)
    heard: list[Ec2Vm] = []
    after.call(lambda: after.ec2.subscribe(heard.append))
    after.call(lambda: after.ec2.load(state))
    eventually(lambda: [vm.state for vm in heard] == ["pending", "running"])
    assert before.instance(i)["State"]["Name"] == "pending"
