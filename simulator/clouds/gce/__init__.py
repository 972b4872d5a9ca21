"""A small, faithful Google Compute Engine: what a machine's driver calls, on the REST API of the real one."""

from __future__ import annotations

from typing import Any

from simulator.clouds.gce.cloud import GceVm
from simulator.clouds.gce.server import Gce
from simulator.clouds.gce.world import Image, MachineType, Network, Project, ServiceAccount, Subnetwork, World
from simulator.frame import Frame
from simulator.kubelet.knobs import Timings

__all__ = [
    "Gce",
    "GceVm",
    "Image",
    "MachineType",
    "Network",
    "Project",
    "ServiceAccount",
    "Subnetwork",
    "World",
    "simulated",
]

INSERT = 0.5
"""How long the operation of an insert takes, in parts of the time until the VM runs."""
CHANGE = 0.25
"""How long a change of labels and the like takes, in the same parts."""


def simulated(frame: Frame, timings: Timings, world: Any = None) -> Gce:
    """The Compute Engine of a simulator, with these projects: a `World`, or its fields. Raises ValueError for what is
    none."""
    projects = World() if world is None else World.model_validate(world)
    return Gce(
        frame,
        world=projects,
        insert_delay=timings.launch * INSERT,
        boot_delay=timings.launch * (1 - INSERT),
        terminate_delay=timings.terminate,
        change_delay=timings.launch * CHANGE,
    )
