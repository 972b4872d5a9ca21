"""What the parts of the simulated Compute Engine share: the world, the settings, the clock of reads that lag behind
writes."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from simulator.clouds.gce.world import World
from simulator.frame import Frame

Row = dict[str, Any]
"""A resource, or a part of one, as JSON shows it."""


class Written(BaseModel):
    """When something was written, and how far reads lagged behind writes at that time."""

    at: float
    """Seconds since the epoch."""
    lag: float
    """Seconds."""

    def seen(self, lag: float) -> bool:
        """Whether reads see it. Switching the lag off shows everything; switching it on hides nothing already seen."""
        return time.time() >= self.at + min(self.lag, lag)


class Version(BaseModel):
    value: Any
    written: Written


class Fingerprinted(BaseModel):
    """A value that is changed by whoever names the fingerprint of what it was: labels, tags, metadata."""

    versions: list[Version]
    """Oldest first; the last is the truth, the others are what lagging reads may still see."""

    @property
    def value(self) -> Any:
        return self.versions[-1].value

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.value)


@dataclass
class Context:
    frame: Frame
    world: World
    insert_delay: float
    """Seconds that the operation of an insert or start takes; STAGING begins halfway."""
    boot_delay: float
    """Seconds from its end to RUNNING."""
    terminate_delay: float
    """Seconds from STOPPING to TERMINATED, or to the end of a deletion."""
    change_delay: float
    """Seconds that any other operation takes."""
    gone_visible: float
    """Seconds that an instance is remembered behind the curtain after its end; the API forgets it at once."""
    wake: Callable[[], None] = field(default=lambda: None)
    """Tells the background task that something will change earlier than it thought."""

    def created(self) -> Written:
        return Written(at=time.time(), lag=self.frame.lag.describe_after_create)

    def sees(self, created: Written) -> bool:
        return created.seen(self.frame.lag.describe_after_create)

    def fresh(self, value: Any) -> Fingerprinted:
        """A value that reads see at once."""
        return Fingerprinted(versions=[Version(value=value, written=Written(at=time.time(), lag=0.0))])

    def write(self, target: Fingerprinted, value: Any) -> None:
        seen = [v for v in target.versions if v.written.seen(self.frame.lag.tags)][-1:]
        hidden = [v for v in target.versions if not v.written.seen(self.frame.lag.tags)]
        written = Written(at=time.time(), lag=self.frame.lag.tags)
        target.versions = [*seen, *hidden, Version(value=value, written=written)]

    def read(self, source: Fingerprinted) -> Any:
        """The newest value that lists see, and what they filter by; a get sees the truth (`newest`)."""
        seen = [v.value for v in source.versions if v.written.seen(self.frame.lag.tags)]
        return seen[-1] if seen else source.versions[0].value


def newest(source: Fingerprinted) -> Any:
    return source.value


def fingerprint(value: Any) -> str:
    """A fingerprint of the content, as Google's: two equal values have the same one."""
    return base64.b64encode(hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()[:8]).decode()
