"""Volumes and network interfaces that are made and attached after a launch, as CSI drivers, CNI plugins and people do.

What is attached this way stays when its instance ends (EC2 user guide: DeleteOnTermination is false unless set).
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.clouds.ec2.context import Context
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.identifiers import GROUP, INSTANCE, INTERFACE, SUBNET, VOLUME, find_one, new_id
from simulator.clouds.ec2.instances import Instance, Instances
from simulator.clouds.ec2.network import Interface, Network
from simulator.clouds.ec2.network_specs import InterfaceSpec
from simulator.clouds.ec2.tags import read_tag_specifications
from simulator.clouds.ec2.volumes import MAX_SIZE, Volume, Volumes, VolumeSpec
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import InstanceType

ANY_TYPE = InstanceType(vcpus=1, memory_mib=1024)
"""The type of an interface that no instance holds: its limits count once it is attached."""


class Attachments:
    def __init__(self, context: Context, instances: Instances, network: Network, volumes: Volumes) -> None:
        self._context = context
        self._instances = instances
        self._network = network
        self._volumes = volumes
        self._made: dict[str, tuple[Params, str]] = {}
        """Parameters and id of what was made, by ClientToken; for as long as the simulator runs."""

    def _once(self, params: Params, make: Callable[[], str]) -> str:
        """The id of what a ClientToken has made, now or before; every SDK sends one."""
        token = params.get("ClientToken", "")
        before, made = self._made.get(token, (params, ""))
        if before != params:
            raise Ec2Error("IdempotentParameterMismatch", "The client token was used with other parameters before.")
        made = made or make()
        if token:
            self._made[token] = (params, made)
        return made

    # ----------------------------------------------------------------------------------------------- volumes

    def create_volume(self, params: Params) -> Row:
        made = self._once(params, lambda: self._make_volume(params).id)
        return self._volumes.row(find_one(VOLUME, made, self._volumes.records.get))

    def _make_volume(self, params: Params) -> Volume:
        zone, kind = params.get("AvailabilityZone"), params.get("VolumeType", "gp2")
        if zone not in self._context.world.zones:
            raise Ec2Error("InvalidZone.NotFound", f"The zone '{zone}' does not exist.")
        if "Size" not in params:
            raise Ec2Error("MissingParameter", "The request must contain the parameter size or snapshotId")
        if kind not in ("gp2", "gp3") or not 1 <= params["Size"] <= MAX_SIZE[kind]:
            raise Ec2Error(
                "InvalidParameterValue",
                f"Volume of {params['Size']}GiB of type {kind} is not among those that the simulator makes",
            )
        spec = VolumeSpec(
            device="",
            size=params["Size"],
            type=kind,
            iops=3000 if kind == "gp3" else None,
            throughput=125 if kind == "gp3" else None,
            encrypted=False,
            kms_key=None,
            snapshot_id=None,
            delete_on_termination=False,
        )
        return self._volumes.create(spec, None, str(zone), _tags(params, VOLUME.type))

    def attach_volume(self, params: Params) -> Row:
        volume = find_one(VOLUME, params["VolumeId"], self._volumes.lookup)
        instance, device = self._attachable(params), params["Device"]
        if volume.instance_id:
            raise Ec2Error("VolumeInUse", f"{volume.id} is already attached to an instance")
        if volume.zone != instance.zone:
            raise Ec2Error(
                "InvalidVolume.ZoneMismatch", f"The volume '{volume.id}' is not in the same zone as '{instance.id}'"
            )
        if any(v.device == device for v in self._held(instance)):
            raise Ec2Error(
                "InvalidParameterValue",
                f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use",
            )
        volume.instance_id, volume.device, volume.delete_on_termination = instance.id, device, False
        instance.volume_ids.append(volume.id)
        return self._attachment(volume, instance, "attaching")

    def detach_volume(self, params: Params) -> Row:
        """Detaches at once: nobody here has it mounted."""
        volume = find_one(VOLUME, params["VolumeId"], self._volumes.lookup)
        instance = self._instances.records.get(volume.instance_id or "")
        if instance is None or params.get("InstanceId", instance.id) != instance.id:
            raise Ec2Error("IncorrectState", f"Volume '{volume.id}' is not attached to this instance.")
        answer = self._attachment(volume, instance, "detaching")
        instance.volume_ids.remove(volume.id)
        volume.instance_id = None
        return answer

    def _held(self, instance: Instance) -> list[Volume]:
        records = self._volumes.records
        return [records[v] for v in instance.volume_ids if v in records]

    def _attachment(self, volume: Volume, instance: Instance, state: str) -> Row:
        return {"VolumeId": volume.id, "InstanceId": instance.id, "Device": volume.device, "State": state}

    # -------------------------------------------------------------------------------------------- interfaces

    def create_network_interface(self, params: Params) -> Row:
        made = self._once(params, lambda: self._make_interface(params).id)
        return {"NetworkInterface": self._network.row(find_one(INTERFACE, made, self._network.records.get))}

    def _make_interface(self, params: Params) -> Interface:
        world = self._context.world
        subnet = find_one(SUBNET, params["SubnetId"], world.subnet)
        default = [g.id for g in world.security_groups if g.name == "default"]
        groups = [find_one(GROUP, g, world.security_group).id for g in params.get("Groups") or default]
        spec = InterfaceSpec(
            subnet=subnet,
            groups=tuple(groups),
            device_index=0,
            card_index=0,
            type="interface",
            description=params.get("Description", ""),
            delete_on_termination=False,
            public_ip=False,
            ipv6_count=0,
            ipv6_addresses=(),
            ipv6_prefix_count=0,
            primary_ipv6=False,
        )
        self._network.check_room([spec], 1)
        return self._network.create(spec, None, ANY_TYPE, _tags(params, INTERFACE.type))

    def attach_network_interface(self, params: Params) -> Row:
        interface = find_one(INTERFACE, params["NetworkInterfaceId"], self._network.lookup)
        instance = self._attachable(params)
        if interface.instance_id:
            raise Ec2Error("InvalidNetworkInterface.InUse", f"Interface: [{interface.id}] in use.")
        if self._network.subnet(interface).zone != instance.zone:
            raise Ec2Error(
                "InvalidParameterCombination",
                "You may not attach a network interface to an instance if they are not in the same availability zone",
            )
        place = (params.get("NetworkCardIndex", 0), params["DeviceIndex"])
        held = self._instances.interfaces(instance)
        if place in [(n.card_index, n.device_index) for n in held]:
            raise Ec2Error(
                "InvalidParameterValue",
                f"Instance '{instance.id}' already has an interface attached at device index '{place[1]}'.",
            )
        limits = self._context.world.instance_types[instance.instance_type]
        if len(held) >= limits.interfaces:
            raise Ec2Error(
                "AttachmentLimitExceeded",
                f"Interface count {len(held) + 1} exceeds the limit for {instance.instance_type}",
            )
        interface.instance_id, interface.delete_on_termination = instance.id, False
        interface.card_index, interface.device_index = place
        interface.attachment_id, interface.ipv6_limit = new_id("eni-attach"), limits.ipv6_per_interface
        instance.interface_ids.append(interface.id)
        return {"AttachmentId": interface.attachment_id, "NetworkCardIndex": interface.card_index}

    def _attachable(self, params: Params) -> Instance:
        instance = find_one(INSTANCE, params["InstanceId"], self._instances.lookup)
        if instance.state not in ("running", "stopped"):
            raise Ec2Error("IncorrectState", f"Instance '{instance.id}' is not 'running' or 'stopped'.")
        return instance


def _tags(params: Params, resource: str) -> dict[str, str]:
    """What TagSpecifications give to the one kind of resource that a call makes."""
    given = read_tag_specifications(params)
    for other in given.keys() - {resource}:
        raise Ec2Error("InvalidParameterValue", f"'{other}' is not a valid taggable resource type for this operation.")
    return given.get(resource, {})
