"""What an owner knows of one of its machines: a tuple with one-letter codes and times in milliseconds, so that 5,000 of
them travel in one payload."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from resources.base import EARLIEST, LATEST, Count, Instant
from resources.machine.placement import Placement
from resources.machine.preservation import PreservedBy
from resources.machine.priority import DEFAULT_PRIORITY
from resources.machine.state import Phase

_CODES = {
    Phase.PENDING: "P",
    Phase.RUNNING: "R",
    Phase.UNKNOWN: "U",
    Phase.FAILED: "F",
    Phase.CRASH_LOOP_BACK_OFF: "C",
    Phase.TERMINATING: "T",
}
_PHASES = {code: phase for phase, code in _CODES.items()}


def _phase(value: Any) -> Any:
    return _PHASES.get(value, value) if isinstance(value, str) else value


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _stamp(value: Any) -> Any:
    """A time, cut to bounds. A number is milliseconds, even where pydantic would take a small one for seconds. One call
    for each of 20,000 in a payload."""
    if type(value) is int:
        return min(max(value, _EARLIEST), _LATEST)
    return value if isinstance(value, bool) else _instant.validate_python(value)


_EARLIEST, _LATEST = _milliseconds(EARLIEST), _milliseconds(LATEST)
_instant: TypeAdapter[datetime] = TypeAdapter(Instant)
Stamp = Annotated[datetime, BeforeValidator(_stamp), PlainSerializer(_milliseconds, return_type=int, when_used="json")]
"""A time, on the wire in ms since 1970."""
Flag = Annotated[bool, PlainSerializer(int, return_type=int, when_used="json")]
"""A flag, on the wire 0 or 1."""
PhaseCode = Annotated[
    Phase, BeforeValidator(_phase), PlainSerializer(_CODES.__getitem__, return_type=str, when_used="json")
]
"""A phase, on the wire one letter."""


class Vm(StrEnum):
    UNBORN = ""
    """The cloud has not yet answered that there is one; there may be."""
    LIVES = "v"
    """Made, and not confirmed gone, even if it is stuck in shutting-down."""
    GONE = "g"
    """The cloud has confirmed it gone."""


class Trouble(StrEnum):
    """Why a machine is not what it should be, and so what is done about it."""

    NONE = ""
    JOIN = "j"
    """It was never Running: not within its creationTimeout, or its VM was gone or stopped before."""
    CREATE = "c"
    """It got no VM within its creationTimeout, and not by its own fault: the cloud had none to give."""
    HEALTH = "h"
    """It was Running and is no longer healthy."""
    GONE = "g"
    """It was Running, and somebody else deleted its VM."""


class Permit(StrEnum):
    """The permit to be Failed for its health, and so to be replaced."""

    NONE = ""
    ASKED = "a"
    """Two fresh looks after healthTimeout found it unhealthy."""
    GRANTED = "g"


class PreserveWish(StrEnum):
    """What is to become of a machine that Failed and is drained, as it says itself."""

    UNDECIDED = ""
    """It has not Failed, is not drained yet, or is already preserved."""
    ASKED = "u"
    """It is to be preserved: `now` or `when-failed`."""
    SLOT = "a"
    """Nobody asked for anything: it is preserved if a slot is free."""
    NEVER = "n"
    """`false`, or there is no VM to look at."""


class Released(StrEnum):
    """Whether a lower autoPreserveFailedMax has taken the slot of a machine that its pool had preserved on its own."""

    NO = ""
    TAKEN = "t"
    """It is told once it has reported that it is preserved: a word before that would be about nothing."""
    TOLD = "s"
    """It has been told, and has not yet reported that it goes."""


class Member(NamedTuple):
    """What its owner knows of one machine; its name is the key."""

    revision: Count
    created: Stamp
    """When the pool decided to make it."""
    since: Stamp
    """When it entered its phase."""
    phase: PhaseCode = Phase.PENDING
    vm: Vm = Vm.UNBORN
    trouble: Trouble = Trouble.NONE
    permit: Permit = Permit.NONE
    priority: Count = DEFAULT_PRIORITY
    """Lower ones are deleted first."""
    marked: Stamp | None = None
    """When somebody, usually cluster-autoscaler, marked it for deletion."""
    preserved_until: Stamp | None = None
    preserved_by: PreservedBy = PreservedBy.NOBODY
    deleting: Flag = False
    """Whether the pool has decided to delete it."""
    drained: Flag = False
    """Whether it has Failed, and its node no longer holds pods that a drain would move."""
    node_marked: Flag = False
    """Whether its Node carries a rollout's marks: the taint PreferNoSchedule, and scale-down-disabled with our
    marker."""
    marks_due: Flag = False
    """Whether its Node is not known to be as `node_marked` says."""
    template: Count = 0
    """The newest generation of the pool's template that its spec and its Node have."""
    seq: Count = 0
    """The number of its last report: an older one that was overtaken changes nothing."""
    keep: PreserveWish = PreserveWish.UNDECIDED
    granted: PreservedBy = PreservedBy.NOBODY
    """The pool's grant of preservation, which the machine has not yet confirmed in a report: a slot is taken."""
    released: Released = Released.NO
    repair: Flag = False
    """Whether `deleting` is a RepairIntent, which the machine may refuse."""
    removed: Flag = False
    """Whether a person has marked it for deletion by its name."""
    lasted: Flag = False
    """Whether it has been Running for planners.fleet.pace.LASTED at a stretch, and no longer is. `since` says so of one
    that is Running."""
    contradicted: Flag = False
    """Whether the cloud says that its VM is gone or does not run, while its kubelet lives."""
    placement: Placement | None = None
    """Its place among the others, where its owner gives it one."""

    @property
    def leaving(self) -> bool:
        """Whether it leaves, by anybody's decision; it comes back only when it refuses a repair."""
        return self.deleting or self.phase is Phase.TERMINATING

    @property
    def stays(self) -> bool:
        """Whether it Failed and is not replaced: it is preserved by its own word, or has the pool's word that it will
        be. The machine itself decides until when."""
        return self.phase is Phase.FAILED and bool(self.granted or self.preserved_until is not None)
