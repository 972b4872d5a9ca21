"""What the parts of the simulated EC2 share: the world, the settings, who calls, the clock of reads that lag behind
writes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel

from simulator.clouds.ec2.world import World
from simulator.frame import Frame


class Written(BaseModel):
    """When something was written, and how far reads lagged behind writes at that time."""

    at: float
    """Seconds since the epoch."""
    lag: float
    """Seconds."""
    account: str = ""
    """The account that it belongs to; "": the world's `account_id`."""

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
    caller: str | None = None
    """The account of the call that is worked on; None between calls."""

    @property
    def account_id(self) -> str:
        return self.caller or self.world.account_id

    @contextlib.contextmanager
    def acting(self, account_id: str) -> Iterator[None]:
        """A context in which operations belong to this account: they make its resources, and see no others."""
        self.caller = account_id
        try:
            yield
        finally:
            self.caller = None

    def created(self) -> Written:
        return Written(at=time.time(), lag=self.frame.lag.describe_after_create, account=self.account_id)

    def sees(self, created: Written) -> bool:
        mine = self.caller in (None, created.account or self.world.account_id)
        return mine and created.seen(self.frame.lag.describe_after_create)
