"""A small, faithful Azure Resource Manager: what a machine's driver calls, on the wire protocol of the real one."""

from __future__ import annotations

from typing import Any

from simulator.clouds.arm.cloud import ArmVm
from simulator.clouds.arm.context import Delays
from simulator.clouds.arm.server import Arm
from simulator.clouds.arm.world import Image, Network, Plan, Principal, Subnet, VmSize, World
from simulator.frame import Frame
from simulator.kubelet.knobs import Timings

__all__ = [
    "Arm",
    "ArmVm",
    "Delays",
    "Image",
    "Network",
    "Plan",
    "Principal",
    "Subnet",
    "VmSize",
    "World",
    "delays_of",
    "simulated",
]

# The timings are those of the first cloud, whose VMs take 40 seconds to go. Here they take a minute, NICs and disks two
# seconds, and a reservation lasts three minutes; a faster simulator is faster in all of them.
VM_GOES = 1.5
RESOURCE = 0.05
RESERVATION = 4.5


def delays_of(timings: Timings) -> Delays:
    return Delays(
        create=timings.launch,
        terminate=VM_GOES * timings.terminate,
        resource=RESOURCE * timings.terminate,
        reservation=RESERVATION * timings.terminate,
    )


def simulated(frame: Frame, timings: Timings, world: Any = None) -> Arm:
    """The Azure of a simulator, with these subscriptions: a `World`, or its fields. Raises ValueError for what is
    none."""
    subscriptions = World() if world is None else World.model_validate(world)
    return Arm(frame, world=subscriptions, delays=delays_of(timings))
