"""Preservation (seed 003): what somebody wants kept, and what is kept until when."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import Field

from resources.base import Duration, Instant, Key, Model, Moment, Span, Text, Value
from resources.intents import Intent


class PreserveValue(StrEnum):
    """A value of the annotation `node.machine.sapcloud.io/preserve`, or of a machine's request (seed 003, point 3)."""

    NOW = "now"
    WHEN_FAILED = "when-failed"
    FALSE = "false"
    """It ends a preservation, and bars one that nobody asked for."""


class PreservedBy(StrEnum):
    NOBODY = ""
    AUTO = "a"
    """A free slot of autoPreserveFailedMax."""
    ASKED = "u"
    """`now` or `when-failed`, on the Node or of the machine's own."""


class PreserveIntent(Intent):
    """`hostler preserve`; signal and update `preserve`. Plain JSON `{}` means `now`."""

    value: PreserveValue = PreserveValue.NOW
    lasts: Duration | None = Field(default=None, gt=timedelta(0))
    """From the moment of preservation; None: the machine's machinePreserveTimeout."""
    until: Moment | None = None
    """Instead of `lasts`."""


class ReleaseIntent(Intent):
    """`hostler release`; signal and update `release`: the request is withdrawn, on the Node too, and what is preserved
    no longer is."""


class ExtendIntent(Intent):
    """`hostler extend`; signal and update `extend`: moves the expiry of a preserved machine. Exactly one field is
    given."""

    lasts: Duration | None = Field(default=None, gt=timedelta(0))
    """From now on."""
    until: Moment | None = None


class PreserveRequest(Value):
    """A machine's own value. The annotation on its Node is stronger."""

    value: PreserveValue
    """What was asked for."""
    time: Instant
    """When it was asked for."""
    requested_by: Text = ""
    """Who asked."""
    reason: Text = ""
    """Why, in their words."""
    lasts: Span | None = None
    """For how long, from the moment of preservation; null: the machine's machinePreserveTimeout."""
    until: Instant | None = None
    """Until when, instead of `lasts`."""
    by_manifest: bool = False
    """Whether it was made by the annotation of the machine's manifest or of its pool's template: it goes with that."""

    @classmethod
    def of(cls, intent: PreserveIntent, time: datetime) -> Self:
        """The request that an intent makes at this time."""
        return cls(
            value=intent.value,
            time=time,
            requested_by=intent.requested_by,
            reason=intent.reason,
            lasts=intent.lasts,
            until=intent.until,
        )


class Release(Value):
    """That somebody wants a preservation to end, by `hostler release`; gone when it has."""

    time: Instant
    """When it was asked for."""
    slot: bool = False
    """Whether its pool ends it, whose autoPreserveFailedMax was lowered: what nobody asked for, of a Failed machine."""
    requested_by: Text = ""
    """Who asked."""
    reason: Text = ""
    """Why, in their words."""


class Preservation(Model):
    """The preservation of one machine; written by its workflow only."""

    own: PreserveRequest | None = None
    last_seen_node_value: Text = ""
    """The annotation as it was observed last, also an invalid one; it counts while the Node is missing."""
    node_uid: Key = ""
    """The uid of the Node object that this was observed on."""
    cleared: Text = ""
    """The value of the annotation that we have removed, until the watch has seen it gone."""
    last: Text = ""
    """The Node's last value that was valid: an invalid one changes nothing."""
    source: PreservedBy = PreservedBy.NOBODY
    """What it is preserved by: a (automatically, in a slot of its pool), u (somebody asked), or nothing."""
    expiry_time: Instant | None = None
    """Preserved until then; None: not preserved."""
    since: Instant | None = None
    """Since when it is preserved."""
    why: Text = ""
    """Who or what caused it, in words."""
    warned: bool = False
    """It has been said that it will end soon."""
    granted: PreservedBy = PreservedBy.NOBODY
    """What its pool has granted to a Failed machine that asked."""
    release: Release | None = None
    node_due: bool = False
    """Its Node does not carry what it should: scale-down-disabled while it is preserved, none of ours after."""
    protected: bool = False
    """Its Node carries scale-down-disabled, as far as is known."""
    uncordon: bool = False
    """The cordon of our drain is to be lifted: it is well again."""

    @property
    def node_value(self) -> str:
        """The annotation on the Node. One that we have just removed only appears in old news."""
        return "" if self.last_seen_node_value == self.cleared else self.last_seen_node_value
