"""A small, faithful EC2: what a machine's driver calls, on the wire protocol of the real one."""

from __future__ import annotations

from typing import Any

from simulator.clouds.ec2.cloud import Ec2Vm
from simulator.clouds.ec2.server import Ec2
from simulator.clouds.ec2.world import Image, InstanceType, PlacementGroup, SecurityGroup, Subnet, World
from simulator.frame import Frame
from simulator.kubelet.knobs import Timings

__all__ = ["Ec2", "Ec2Vm", "Image", "InstanceType", "PlacementGroup", "SecurityGroup", "Subnet", "World", "simulated"]


def simulated(frame: Frame, timings: Timings, world: Any = None) -> Ec2:
    """The EC2 of a simulator, with these accounts: a `World`, or its fields. Raises ValueError for what is none."""
    accounts = World() if world is None else World.model_validate(world)
    return Ec2(frame, world=accounts, boot_delay=timings.launch, terminate_delay=timings.terminate)
