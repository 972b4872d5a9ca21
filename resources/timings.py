"""Every wait that is not a cloud's or a person's: one value, carried in a workflow's state.

It is an argument and not a worker's setting, because a workflow must decide by the same values at every replay.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from resources.base import Span, Value
from resources.errors import ErrorClass


class Timings(Value):
    """Defaults are for production; `fast()` is for tests and the demo, where a crash must cost a second, not ten."""

    heartbeat: Span = timedelta(seconds=10)
    """An activity that is silent for so long is taken for dead and tried again."""
    call_timeout: Span = timedelta(minutes=1)
    """Start to close of one attempt of an activity that makes a few calls."""
    again: Span = timedelta(seconds=1)
    """Before the second try of a machine's call that failed for a moment; the waits before the third to the fifth are
    each twice as long. After that its error class decides."""
    poll: Span = timedelta(seconds=5)
    """Between two passes of an activity that waits for something outside."""
    vm_look: Span = timedelta(seconds=30)
    """How long a VM whose node has not joined is left alone, and between two looks at it after that (`poll` at least).
    """
    cloud_watch: Span = timedelta(seconds=60)
    """Between two listings of a cloud account, which find the VM that died or was deleted behind our back."""
    settle: Span = timedelta(seconds=30)
    """A node that was unhealthy must be healthy for so long before its machine is Running again."""
    confirm: Span = timedelta(seconds=60)
    """Between the two fresh looks at Node, Lease and VM without which no machine is Failed; the second one is at the
    deadline. More than a kubelet's Lease lasts (40 s): a living one renews it in between."""
    lease: Span = timedelta(seconds=40)
    """How long a kubelet's Lease lasts; it is renewed every quarter of that. Of two looks so far apart the second one
    sees it moved, if the kubelet lives: only then is a VM that the cloud does not find taken for gone."""
    consistency: Span = timedelta(seconds=60)
    """How long a cloud may say "not found" of what it has just made. NotFound within it is a suspicion only."""
    retry: dict[ErrorClass, Span] = Field(default_factory=dict)
    """Overrides of the wait after a failed creation, by error class (MCM: --resource-exhausted-retry)."""

    @staticmethod
    def fast() -> Timings:
        return Timings(
            heartbeat=timedelta(seconds=1),
            again=timedelta(milliseconds=200),
            poll=timedelta(milliseconds=500),
            vm_look=timedelta(0),
            cloud_watch=timedelta(seconds=1),
            settle=timedelta(seconds=1),
            confirm=timedelta(seconds=2),
            lease=timedelta(seconds=2),
            consistency=timedelta(seconds=2),
            retry=dict.fromkeys(ErrorClass, timedelta(seconds=1)),
        )
