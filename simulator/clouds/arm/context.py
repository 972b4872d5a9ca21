"""What the parts of the simulated Azure share: the world, the settings, the clock of reads that lag behind writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from simulator.clouds.arm.world import World
from simulator.frame import Frame


class Written(BaseModel):
    """When something was written, and how far reads lagged behind writes at that time."""

    at: float
    """Seconds since the epoch."""
    lag: float = 0.0
    """Seconds."""

    def seen(self, lag: float) -> bool:
        """Whether reads see it. Switching the lag off shows everything; switching it on hides nothing already seen."""
        return time.time() >= self.at + min(self.lag, lag)


@dataclass
class Delays:
    """How long Azure takes, in seconds."""

    create: float = 0.0
    """How long the operation takes that makes or starts a VM."""
    boot: float = 0.0
    """From its end until the VM runs."""
    terminate: float = 0.0
    """From the call that deletes, stops or deallocates a VM until that is done."""
    resource: float = 0.0
    """The making, changing and deleting of a NIC or a disk, and the changing of a VM."""
    reservation: float = 180.0
    """How long the NICs of a VM that could not be made stay reserved for it ("… for 180 seconds")."""
    gone_visible: float = 3600.0
    """How long the simulator itself, not its API, remembers a VM that is gone."""


@dataclass
class Context:
    frame: Frame
    world: World
    delays: Delays
    page: int = 50
    """Resources in one page of a listing."""
    wake: Callable[[], None] = field(default=lambda: None)
    """Tells the background task that a state will change earlier than it thought."""

    def created(self) -> Written:
        return Written(at=time.time(), lag=self.frame.lag.describe_after_create)

    def tagged(self) -> Written:
        return Written(at=time.time(), lag=self.frame.lag.tags)

    def sees(self, created: Written) -> bool:
        return created.seen(self.frame.lag.describe_after_create)
