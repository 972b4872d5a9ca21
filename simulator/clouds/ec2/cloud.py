"""The simulated EC2 without its wire: its parts put together, time, and what tests and the hypervisor see."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.clouds import CloudResource
from simulator.clouds.base import SimulatedCloud, dumped
from simulator.clouds.ec2.attachments import Attachments
from simulator.clouds.ec2.auth import AccessKey, Ec2Authenticator, Session
from simulator.clouds.ec2.context import Context
from simulator.clouds.ec2.identifiers import INSTANCE, find_one, kind_of
from simulator.clouds.ec2.images import Images
from simulator.clouds.ec2.instances import Instance, Instances, State
from simulator.clouds.ec2.launch import Launcher
from simulator.clouds.ec2.network import Interface, Network
from simulator.clouds.ec2.power import InstancePower
from simulator.clouds.ec2.tags import Snapshot, Tags
from simulator.clouds.ec2.tokens import Launch
from simulator.clouds.ec2.volumes import Volume, Volumes
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import World
from simulator.frame import Frame
from simulator.kubelet.machine import Power as VmPower
from simulator.kubelet.machine import Size

SERVICE = "ec2"
"""The name in fault rules and the journal."""
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
POWERS: dict[State, VmPower] = {"running": VmPower.ON, "terminated": VmPower.GONE}
"""In any other state an instance is off for its kubelet."""
KILLED = "Server.InternalError: Server.InternalError: Internal error on launch or at run time"


@dataclass(frozen=True)
class Ec2Vm:
    """An instance as its hypervisor knows it: the truth, without any lag."""

    instance_id: str
    name: str
    """The tag Name, or empty."""
    state: State
    private_dns_name: str
    private_ip: str
    zone: str
    region: str
    instance_type: str
    size: Size
    user_data: bytes
    tags: dict[str, str]
    account: str

    @property
    def power(self) -> VmPower:
        return POWERS.get(self.state, VmPower.OFF)

    @property
    def provider_id(self) -> str:
        """The id in Gardener's form, with the region; the in-tree cloud provider wrote the zone there."""
        return f"aws:///{self.region}/{self.instance_id}"


class Ec2Cloud(SimulatedCloud[Ec2Vm]):
    """The simulated accounts."""

    service = SERVICE

    def __init__(
        self,
        frame: Frame,
        *,
        world: World | None = None,
        boot_delay: float = 0.0,
        terminate_delay: float = 0.0,
        terminated_visible: float = 3600.0,
    ) -> None:
        super().__init__(frame)
        self.world = world or World()
        self.settings = Context(frame, self.world, boot_delay, terminate_delay, terminated_visible, self._wake.set)
        """Its delays may be changed at any time; they count for the next change of a state."""
        self._tags = Tags(self.settings, self._exists)
        self._network = Network(self.settings, self._tags)
        self._volumes = Volumes(self.settings, self._tags)
        self._instances = Instances(self.settings, self._network, self._volumes, self._tags)
        self._instances.changed = self._notify
        self._launcher = Launcher(self.settings, self._instances, self._network, self._volumes, self._tags)
        self.authenticator = Ec2Authenticator(self.world)
        self.operations = self._operations()

    def _operations(self) -> Mapping[str, Callable[[Params], Row]]:
        power, images = InstancePower(self._instances), Images(self.world, self._tags)
        attachments = Attachments(self.settings, self._instances, self._network, self._volumes)
        return {
            "RunInstances": self._launcher.run_instances,
            "DescribeInstances": self._instances.describe_instances,
            "DescribeInstanceStatus": power.describe_instance_status,
            "DescribeInstanceAttribute": power.describe_instance_attribute,
            "TerminateInstances": power.terminate_instances,
            "StopInstances": power.stop_instances,
            "StartInstances": power.start_instances,
            "ModifyInstanceAttribute": power.modify_instance_attribute,
            "ModifyInstanceMetadataOptions": power.modify_instance_metadata_options,
            "GetConsoleOutput": power.get_console_output,
            "DescribeImages": images.describe_images,
            "DescribeSubnets": self._network.describe_subnets,
            "DescribeSecurityGroups": self._network.describe_security_groups,
            "DescribeNetworkInterfaces": self._network.describe_network_interfaces,
            "ModifyNetworkInterfaceAttribute": self._network.modify_network_interface_attribute,
            "CreateNetworkInterface": attachments.create_network_interface,
            "AttachNetworkInterface": attachments.attach_network_interface,
            "DeleteNetworkInterface": self._network.delete_network_interface,
            "AssignIpv6Addresses": self._network.assign_ipv6_addresses,
            "DescribeVolumes": self._volumes.describe_volumes,
            "CreateVolume": attachments.create_volume,
            "AttachVolume": attachments.attach_volume,
            "DetachVolume": attachments.detach_volume,
            "DeleteVolume": self._volumes.delete_volume,
            "CreateTags": self._tags.create_tags,
            "DeleteTags": self._tags.delete_tags,
            "DescribeTags": self._tags.describe_tags,
        }

    def launch_failed(self, params: Params) -> None:
        """Notes a RunInstances that a fault struck: its token is bound to its parameters all the same."""
        self._launcher.tokens.bind_failed(params)

    def _exists(self, resource_id: str) -> Any:
        lookups: dict[str, Callable[[str], Any]] = {
            "instance": self._instances.lookup,
            "volume": self._volumes.lookup,
            "network-interface": self._network.lookup,
            "subnet": self.world.subnet,
            "security-group": self.world.security_group,
            "image": self.world.image,
        }
        return lookups[kind_of(resource_id).type](resource_id)

    # -------------------------------------------------------------------------------------------------- time

    def settle(self) -> None:
        self._instances.settle()

    def _due(self) -> Iterable[float | None]:
        return (self._instances.next_due(),)

    def fast_forward(self) -> None:
        """Ends every change of state under way at once, whatever its delay. Terminated instances stay visible."""
        self._instances.fast_forward()

    # ------------------------------------------------------------------------------------- behind the curtain

    def instances(self, include_terminated: bool = False) -> list[Ec2Vm]:
        self.settle()
        every = self._instances.records.values()
        return [self._vm(i) for i in every if include_terminated or i.state != "terminated"]

    def _living(self) -> Iterable[Ec2Vm]:
        return self.instances()

    def has_vm(self, instance_id: str) -> bool:
        self.settle()
        return instance_id in self._instances.records

    def resources(self) -> list[CloudResource]:
        """Instances that are terminated are there for as long as the API shows them."""
        self.settle()
        instances, tags = self._instances.records.values(), self._tags.of
        return [
            *(
                CloudResource(i.id, "instances", dict(tags(i.id)), vm=True, gone=i.state == "terminated")
                for i in instances
            ),
            *(CloudResource(i, "volumes", dict(tags(i))) for i in self._volumes.records),
            *(CloudResource(i, "networkInterfaces", dict(tags(i))) for i in self._network.records),
        ]

    def set_console(self, instance_id: str, text: str) -> None:
        """Appends to what GetConsoleOutput answers."""
        instance = self._find(instance_id)
        instance.console += text
        instance.console_at = time.time()

    def impair(self, instance_id: str, impaired: bool) -> None:
        """Makes the instance status check fail, or pass again."""
        self._find(instance_id).impaired = impaired

    def kill(self, instance_id: str) -> None:
        """The VM dies behind everyone's back: terminated at once, whatever protects it."""
        instance = self._find(instance_id)
        if instance.state != "terminated":
            self._instances.enter(instance, "terminated", KILLED, "Server.InternalError")

    def tag(self, resource_id: str, tags: dict[str, str]) -> None:
        self._tags.write(resource_id, self._tags.merged(resource_id, tags))

    def _find(self, instance_id: str) -> Instance:
        self.settle()
        return find_one(INSTANCE, instance_id, self._instances.records.get)

    def _notify(self, instance: Instance) -> None:
        self._tell(self._vm(instance))

    def _vm(self, instance: Instance) -> Ec2Vm:
        tags = dict(self._tags.of(instance.id))
        return Ec2Vm(
            instance_id=instance.id,
            name=tags.get("Name", ""),
            state=instance.state,
            private_dns_name=instance.private_dns_name,
            private_ip=instance.private_ip,
            zone=instance.zone,
            region=self.world.region,
            instance_type=instance.instance_type,
            size=self._size(instance.instance_type),
            user_data=base64.b64decode(instance.user_data),
            tags=tags,
            account=instance.created.account or self.world.account_id,
        )

    def _size(self, instance_type: str) -> Size:
        type_ = self.world.instance_types.get(instance_type)
        if type_ is None:  # of a world that this state was saved in
            return Size()
        return Size(cpus=type_.vcpus, memory_mib=type_.memory_mib, architecture=ARCHITECTURES[type_.architecture])

    # ------------------------------------------------------------------------------------------------- state

    def dump(self) -> dict[str, Any]:
        """Everything that calls have made, fit for JSON. The world and the delays are not part of it."""
        return {
            "instances": dumped(self._instances.records),
            "volumes": dumped(self._volumes.records),
            "networkInterfaces": dumped(self._network.records),
            "lastIpv4": dict(self._network.last_ipv4),
            "tags": {r: [s.model_dump(mode="json") for s in history] for r, history in self._tags.history.items()},
            "tokens": dumped(self._launcher.tokens.launches),
            "sessions": dumped(self.authenticator.sessions),
            "accessKeys": dumped(self.authenticator.access_keys),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what `dump` gave, in place of everything here; subscribers hear of every living instance."""
        self._instances.records = {k: Instance.model_validate(v) for k, v in state["instances"].items()}
        self._volumes.records = {k: Volume.model_validate(v) for k, v in state["volumes"].items()}
        self._network.records = {k: Interface.model_validate(v) for k, v in state["networkInterfaces"].items()}
        self._network.last_ipv4 = dict(state["lastIpv4"])
        self._tags.restore({r: [Snapshot.model_validate(s) for s in h] for r, h in state["tags"].items()})
        self._launcher.tokens.launches = {k: Launch.model_validate(v) for k, v in state["tokens"].items()}
        self.authenticator.sessions = {k: Session.model_validate(v) for k, v in state["sessions"].items()}
        if "accessKeys" in state:
            self.authenticator.access_keys = {k: AccessKey.model_validate(v) for k, v in state["accessKeys"].items()}
        self._wake.set()
        for instance in list(self._instances.records.values()):
            if instance.state != "terminated":
                self._notify(instance)
