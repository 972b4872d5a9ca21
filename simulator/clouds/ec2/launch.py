"""RunInstances: everything is checked before anything is made, so that a launch succeeds as a whole or not at all."""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from dataclasses import dataclass
from typing import Any

from simulator.clouds.ec2.context import Context
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.identifiers import IMAGE, INSTANCE, find_one, new_id
from simulator.clouds.ec2.instances import Instance, Instances
from simulator.clouds.ec2.launch_options import read_options
from simulator.clouds.ec2.network import Network
from simulator.clouds.ec2.network_specs import InterfaceSpec, read_interfaces
from simulator.clouds.ec2.tags import Tags, read_tag_specifications
from simulator.clouds.ec2.tokens import ClientTokens, Launch
from simulator.clouds.ec2.volumes import Volumes, VolumeSpec, read_block_devices
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import Image, InstanceType

MAX_USER_DATA = 16 * 1024
"""Bytes before base64 (EC2 user guide)."""


@dataclass(frozen=True)
class Plan:
    """A checked launch."""

    image: Image
    type_name: str
    type: InstanceType
    interfaces: list[InterfaceSpec]
    volumes: list[VolumeSpec]
    tags: dict[str, dict[str, str]]
    """Tags by resource type."""
    echoed: dict[str, Any]
    user_data: str
    spot: str | None
    dies_on_launch: str | None


class Launcher:
    def __init__(self, context: Context, instances: Instances, network: Network, volumes: Volumes, tags: Tags) -> None:
        self._context = context
        self._instances = instances
        self._network = network
        self._volumes = volumes
        self._tags = tags
        self.tokens = ClientTokens(context)

    def run_instances(self, params: Params) -> Row:
        if params.get("DryRun"):
            self._plan(params)
            raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        launch = self.tokens.bind(params)  # also sees instances that reads do not see yet
        if launch is not None and launch.instance_ids:
            return self._answer(self._repeated(launch))
        plan = self._plan(params)
        reservation = new_id("r")
        made = [self._create(plan, params, reservation, n) for n in range(params["MaxCount"])]
        if launch is not None:
            launch.instance_ids = [i.id for i in made]
        for instance in made:
            self._instances.enter(instance, "pending", "pending: pending")
        return self._answer(made)

    def _repeated(self, launch: Launch) -> list[Instance]:
        known = [self._instances.records.get(i) for i in launch.instance_ids]
        alive = [i for i in known if i is not None and i.state not in ("shutting-down", "terminated")]
        if len(alive) < len(known):
            raise Ec2Error(
                "IdempotentInstanceTerminated",
                "The client token you have provided is associated with a terminated instance. "
                "Please use a different client token.",
            )
        return alive

    def _answer(self, instances: list[Instance]) -> Row:
        return {
            "ReservationId": instances[0].reservation_id,
            "OwnerId": self._context.account_id,
            "Groups": [],
            "Instances": [self._instances.row(i, seen=False) for i in instances],
        }

    # ------------------------------------------------------------------------------------------------- check

    def _plan(self, params: Params) -> Plan:
        world = self._context.world
        if not 1 <= params["MinCount"] <= params["MaxCount"]:
            raise Ec2Error("InvalidParameterValue", "MinCount must be at least 1 and at most MaxCount.")
        if "ImageId" not in params:
            raise Ec2Error("MissingParameter", "The request must contain the parameter ImageId")
        image = find_one(IMAGE, params["ImageId"], world.image)
        type_name = params.get("InstanceType", "")
        itype = world.instance_types.get(type_name)
        if itype is None:
            raise Ec2Error("InvalidParameterValue", f"Invalid value '{type_name}' for InstanceType.")
        if itype.architecture != image.architecture:
            raise Ec2Error(
                "InvalidParameterValue",
                f"The architecture '{itype.architecture}' of the specified instance type does not match "
                f"the architecture '{image.architecture}' of the specified AMI.",
            )
        if params.get("KeyName") is not None and params["KeyName"] not in world.key_pairs:
            raise Ec2Error("InvalidKeyPair.NotFound", f"The key pair '{params['KeyName']}' does not exist")
        interfaces = read_interfaces(params, world, itype)
        self._network.check_room(interfaces, params["MaxCount"])
        volumes = read_block_devices(params, image, world)
        usable = all(v.kms_key is None or v.kms_key in world.kms_keys for v in volumes)
        echoed, spot = read_options(params, world, itype, interfaces[0].subnet.zone)
        if spot and params.get("DisableApiTermination"):
            raise Ec2Error("InvalidParameterCombination", "Termination protection is not supported for Spot instances.")
        return Plan(
            image=image,
            type_name=type_name,
            type=itype,
            interfaces=interfaces,
            volumes=volumes,
            tags=read_tag_specifications(params),
            echoed=echoed,
            user_data=_read_user_data(params.get("UserData", "")),
            spot=spot,
            # EC2 accepts a key that it cannot use and lets the instance die (EC2 user guide, "Instance terminates
            # immediately").
            dies_on_launch=None if usable else "Client.InternalError: Client.InternalError: Client error on launch",
        )

    # -------------------------------------------------------------------------------------------------- make

    def _create(self, plan: Plan, params: Params, reservation: str, index: int) -> Instance:
        instance_id = new_id(INSTANCE.prefix)
        tags = plan.tags
        interfaces = [
            self._network.create(spec, instance_id, plan.type, tags.get("network-interface", {}))
            for spec in sorted(plan.interfaces, key=lambda s: (s.card_index, s.device_index))
        ]
        zone = plan.interfaces[0].subnet.zone
        volumes = [self._volumes.create(v, instance_id, zone, tags.get("volume", {})) for v in plan.volumes]
        echoed = dict(plan.echoed)
        if plan.spot:
            echoed["SpotInstanceRequestId"] = f"sir-{hashlib.sha256(instance_id.encode()).hexdigest()[:8]}"
        instance = Instance(
            id=instance_id,
            created=self._context.created(),
            reservation_id=reservation,
            launch_index=index,
            launch_time=time.time(),
            client_token=params.get("ClientToken", ""),
            image_id=plan.image.id,
            root_device_name=plan.image.root_device_name,
            architecture=plan.image.architecture,
            instance_type=plan.type_name,
            zone=zone,
            private_ip=interfaces[0].private_ip,
            private_dns_name=self._network.dns_name(interfaces[0].private_ip),
            interface_ids=[n.id for n in interfaces],
            volume_ids=[v.id for v in volumes],
            user_data=plan.user_data,
            echoed=echoed,
            spot=plan.spot,
            dies_on_launch=plan.dies_on_launch,
            protected=params.get("DisableApiTermination", False),
        )
        self._instances.records[instance_id] = instance
        self._tags.write(instance_id, tags.get("instance", {}))
        return instance


def _read_user_data(encoded: str) -> str:
    try:
        size = len(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise Ec2Error("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if size > MAX_USER_DATA:
        raise Ec2Error("InvalidParameterValue", f"User data is limited to {MAX_USER_DATA} bytes")
    return encoded
