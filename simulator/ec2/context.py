"""What the parts of the simulated EC2 share: the world, the settings, the clock of reads that lag behind writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from simulator.ec2.world import World
from simulator.frame import Frame


class Written(BaseModel):
    """When something was written, and how far reads lagged behind writes at that time."""

    at: float
    """Seconds since the epoch."""
    lag: float
    """Seconds."""

    def seen(self, lag: float) -> bool:
        """Whether reads see it. Switching the lag off shows everything; switching it on hides nothing already seen."""
        return time.time() >= self.at + min(self.lag, lag)


@dataclass
class Context:
    frame: Frame
    world: World
    boot_delay: float
    """Seconds from pending to running."""
    terminate_delay: float
    """Seconds from shutting-down to terminated, and from stopping to stopped."""
    terminated_visible: float
    """Seconds that a terminated instance is still described."""
    wake: Callable[[], None] = field(default=lambda: None)
    """Tells the background task that a state will change earlier than it thought."""

    def created(self) -> Written:
        return Written(at=time.time(), lag=self.frame.lag.describe_after_create)

    def sees(self, created: Written) -> bool:
        return created.seen(self.frame.lag.describe_after_create)
