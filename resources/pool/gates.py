"""What a pool asks about the one that is rolled out before it (rollsAfter)."""

from __future__ import annotations

from resources.base import Count, Name, Text, Value
from resources.pool.state import Predecessor

SAYS_WHY = (
    "Approval",
    "AfterPool",
    "Frozen",
    "MaintenanceWindow",
    "RolloutPaused",
    "RolloutAborted",
    "ProgressDeadlineExceeded",
    "NewMachinesNeverJoin",
    "Canary",
    "OnDelete",
    "ClusterPaused",
    "TooManyUnhealthy",
    "MemberLost",
)
"""Waits of that pool that are worth telling: they last, and their words do not change with every machine."""


class PoolLook(Value):
    """The question: how does this pool stand?"""

    cluster: Name
    pool: Name
    class_: Name = ""
    """The class that it is to be rolled out with; "": whichever it has."""
    revision: Count
    """The revision of the pool that asks."""
    known: Predecessor | None = None
    """The last answer: only another one is told."""

    def answer(self, message: Text, complete: bool = False, gone: bool = False) -> Predecessor:
        return Predecessor(
            revision=self.revision,
            pool=self.pool,
            class_=self.class_,
            complete=complete,
            gone=gone,
            message=message,
        )
