"""Instances: their states in time and what describe calls say of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from simulator.clouds.ec2.context import Context, Written
from simulator.clouds.ec2.identifiers import INSTANCE, find
from simulator.clouds.ec2.listing import may_pass, page, select
from simulator.clouds.ec2.network import Interface, Network
from simulator.clouds.ec2.tags import Tags
from simulator.clouds.ec2.volumes import Volumes
from simulator.clouds.ec2.wire import Params, Row, timestamp

State = Literal["pending", "running", "shutting-down", "terminated", "stopping", "stopped"]
STATE_CODES: Mapping[State, int] = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
USER_SHUTDOWN = "Client.UserInitiatedShutdown"
FILTERS = {
    "architecture": "Architecture",
    "availability-zone": "Placement.AvailabilityZone",
    "block-device-mapping.volume-id": "BlockDeviceMappings.Ebs.VolumeId",
    "client-token": "ClientToken",
    "dns-name": "PublicDnsName",
    "iam-instance-profile.arn": "IamInstanceProfile.Arn",
    "image-id": "ImageId",
    "instance-id": "InstanceId",
    "instance-lifecycle": "InstanceLifecycle",
    "instance-state-code": "State.Code",
    "instance-state-name": "State.Name",
    "instance-type": "InstanceType",
    "instance.group-id": "SecurityGroups.GroupId",
    "instance.group-name": "SecurityGroups.GroupName",
    "ip-address": "PublicIpAddress",
    "key-name": "KeyName",
    "launch-time": "_LaunchTime",
    "network-interface.ipv6-addresses.ipv6-address": "NetworkInterfaces.Ipv6Addresses.Ipv6Address",
    "network-interface.network-interface-id": "NetworkInterfaces.NetworkInterfaceId",
    "network-interface.subnet-id": "NetworkInterfaces.SubnetId",
    "network-interface.vpc-id": "NetworkInterfaces.VpcId",
    "placement-group-name": "Placement.GroupName",
    "private-dns-name": "PrivateDnsName",
    "private-ip-address": "PrivateIpAddress",
    "spot-instance-request-id": "SpotInstanceRequestId",
    "state-reason-code": "StateReason.Code",
    "subnet-id": "SubnetId",
    "tenancy": "Placement.Tenancy",
    "vpc-id": "VpcId",
}


class Instance(BaseModel):
    id: str
    created: Written
    reservation_id: str
    launch_index: int
    launch_time: float
    """Seconds since the epoch; another start sets it again."""
    client_token: str
    image_id: str
    root_device_name: str
    architecture: str
    instance_type: str
    zone: str
    private_ip: str
    private_dns_name: str
    interface_ids: list[str] = []
    """In the order of the launch; the first is the primary one. A deleted interface may still be named."""
    volume_ids: list[str] = []
    user_data: str = ""
    """Base64."""
    echoed: dict[str, Any] = {}
    """Members of the description that a launch gives and nothing changes: placement, CPU, metadata options..."""
    spot: str | None = None
    """One-time or persistent; None: on demand."""
    dies_on_launch: str | None = None
    """Why it ends in `terminated` instead of `running`."""
    protected: bool = False
    """DisableApiTermination."""
    state: State = "pending"
    next_state: State | Literal["gone"] | None = None
    due: float | None = None
    """When `next_state` comes, in seconds since the epoch."""
    reason: str = ""
    """Code and message of StateReason, as `code: message`."""
    transition: str = ""
    """StateTransitionReason."""
    console: str = ""
    console_at: float = 0.0
    impaired: bool = False


class Instances:
    """All instances. `changed` is called after each change of a state."""

    def __init__(self, context: Context, network: Network, volumes: Volumes, tags: Tags) -> None:
        self._context = context
        self._network = network
        self._volumes = volumes
        self._tags = tags
        self.records: dict[str, Instance] = {}
        self.changed: Callable[[Instance], None] = lambda instance: None

    def lookup(self, instance_id: str) -> Instance | None:
        """The instance if calls see it already."""
        instance = self.records.get(instance_id)
        return instance if instance is not None and self._context.sees(instance.created) else None

    def find(self, ids: list[str]) -> list[Instance]:
        return find(INSTANCE, ids, self.lookup)

    def listed(self, params: Params) -> list[Instance]:
        """The instances that InstanceIds names, or all."""
        ids = params.get("InstanceIds")
        if ids:
            return self.find(ids)
        return [i for i in self._tags.candidates(self.records.values(), params) if self.lookup(i.id)]

    def interfaces(self, instance: Instance) -> list[Interface]:
        records = self._network.records
        return [records[n] for n in instance.interface_ids if n in records]

    # -------------------------------------------------------------------------------------------------- time

    def settle(self) -> None:
        """Makes every change of state whose time has come."""
        now = time.time()
        for instance in [i for i in self.records.values() if i.due is not None and i.due <= now]:
            if instance.due is None or instance.due > now:
                continue  # a listener of an earlier change has changed this one meanwhile
            if instance.next_state == "gone":
                self.records.pop(instance.id, None)  # a listener that asks for instances settles before us
                self._tags.forget(instance.id)
            elif instance.next_state is not None:
                self.enter(instance, instance.next_state)

    def fast_forward(self) -> None:
        for instance in self.records.values():
            if instance.due is not None and instance.next_state != "gone":
                instance.due = time.time()
        self.settle()

    def next_due(self) -> float | None:
        return min((i.due for i in self.records.values() if i.due is not None), default=None)

    def enter(self, instance: Instance, state: State, reason: str = "", transition: str = "") -> None:
        """Puts an instance into a state and arms the one that follows on its own. Without a reason the old reason
        stays."""
        context = self._context
        if state == "running" and instance.dies_on_launch:
            state, reason, transition = "terminated", instance.dies_on_launch, "Server.InternalError"
        instance.state = state
        instance.reason, instance.transition = reason or instance.reason, transition or instance.transition
        follows: dict[State, tuple[State | Literal["gone"], float]] = {
            "pending": ("running", context.boot_delay),
            "shutting-down": ("terminated", context.terminate_delay),
            "stopping": ("stopped", context.terminate_delay),
            "terminated": ("gone", context.terminated_visible),
        }
        instance.next_state, delay = follows.get(state, (None, 0.0))
        instance.due = time.time() + delay if instance.next_state else None
        if state == "running":
            instance.reason = instance.transition = ""
        if state == "terminated":
            self._volumes.release(instance.volume_ids)
            self._network.release(instance.interface_ids)
        if state in ("running", "stopped"):
            self._network.change_public_ips(instance.interface_ids, running=state == "running")
        context.wake()
        self.changed(instance)

    # -------------------------------------------------------------------------------------------------- rows

    def row(self, instance: Instance, seen: bool = True) -> Row:
        """An instance as it is described; `seen` False shows tags that reads do not see yet (answers of launches)."""
        code, _, message = instance.reason.partition(": ")
        row: Row = {
            "InstanceId": instance.id,
            "ImageId": instance.image_id,
            "State": state_row(instance.state),
            "PrivateDnsName": "",
            "PublicDnsName": "",
            "StateTransitionReason": instance.transition,
            "AmiLaunchIndex": instance.launch_index,
            "InstanceType": instance.instance_type,
            "LaunchTime": instance.launch_time,
            "Architecture": instance.architecture,
            "ClientToken": instance.client_token,
            "Hypervisor": "xen",
            "VirtualizationType": "hvm",
            "RootDeviceName": instance.root_device_name,
            "RootDeviceType": "ebs",
            "StateReason": {"Code": code, "Message": message} if code else None,
            "Tags": self._tags.rows(instance.id, seen),
            "BlockDeviceMappings": [],
            "NetworkInterfaces": [],
            "SecurityGroups": [],
            **instance.echoed,
        }
        if instance.state != "terminated":  # a terminated instance has lost its disks, interfaces and addresses
            row |= self._attached(instance)
        return row

    def _attached(self, instance: Instance) -> Row:
        volumes = [self._volumes.records[v] for v in instance.volume_ids if v in self._volumes.records]
        interfaces = self.interfaces(instance)
        primary = interfaces[0]
        return {
            "PrivateIpAddress": instance.private_ip,
            "PrivateDnsName": instance.private_dns_name,
            "PublicIpAddress": primary.public_ip,
            "PublicDnsName": self._network.public_dns(primary.public_ip) if primary.public_ip else "",
            "Ipv6Address": primary.ipv6[0] if primary.ipv6 else None,
            "SubnetId": primary.subnet_id,
            "VpcId": self._network.subnet(primary).vpc_id,
            # Only with one interface is this the instance's own property (EC2 API reference).
            "SourceDestCheck": primary.source_dest_check,
            "SecurityGroups": self._network.group_rows(primary.groups),
            "NetworkInterfaces": [self._network.instance_row(n) for n in interfaces],
            "BlockDeviceMappings": [
                {
                    "DeviceName": v.device,
                    "Ebs": {
                        "VolumeId": v.id,
                        "Status": "attached",
                        "AttachTime": v.created.at,
                        "DeleteOnTermination": v.delete_on_termination,
                    },
                }
                for v in volumes
            ],
        }

    # -------------------------------------------------------------------------------------------- operations

    def describe_instances(self, params: Params) -> Row:
        rows = [self.row(i) for i in self.listed(params) if self._may_pass(i, params)]
        for row in rows:
            row["_LaunchTime"] = timestamp(row["LaunchTime"])
        shown, more = page(select(rows, params, FILTERS), params, ("InstanceId",), "InstanceIds")
        for row in shown:
            del row["_LaunchTime"]
        by_reservation = itertools.groupby(shown, key=lambda row: self.records[row["InstanceId"]].reservation_id)
        reservations = [
            {"ReservationId": r, "OwnerId": self._context.account_id, "Groups": [], "Instances": list(members)}
            for r, members in by_reservation
        ]
        return {"Reservations": reservations, "NextToken": more}

    def _may_pass(self, i: Instance, params: Params) -> bool:
        return may_pass(params, client_token=i.client_token, instance_state_name=i.state)


def state_row(state: State) -> Row:
    return {"Code": STATE_CODES[state], "Name": state}
