"""A small, faithful EC2: what a machine's driver calls, on the wire protocol of the real one."""

from simulator.clouds.ec2.cloud import Ec2Vm
from simulator.clouds.ec2.server import Ec2
from simulator.clouds.ec2.world import Image, InstanceType, PlacementGroup, SecurityGroup, Subnet, World

__all__ = ["Ec2", "Ec2Vm", "Image", "InstanceType", "PlacementGroup", "SecurityGroup", "Subnet", "World"]
