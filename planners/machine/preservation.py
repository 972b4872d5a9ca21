"""Whether a machine is preserved, until when, and what becomes of it then (seed 003; design *Preservation*).

One pure decision. The machine's workflow asks for it again after everything that it does and everything that it hears.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from resources.base import later
from resources.machine.preservation import PreservedBy, PreserveRequest, PreserveValue, Release
from resources.machine.state import Phase
from resources.words import by_whom, utc

WARN_BEFORE = timedelta(hours=1)
"""How long before a preservation ends an Event says so."""

ASKED_FOR = (PreserveValue.NOW, PreserveValue.WHEN_FAILED)
VALUES = tuple(PreserveValue)


@dataclass(frozen=True)
class ObservedMachine:
    """What is known of one machine. Its pool's decisions have come from the pool."""

    phase: Phase
    now: datetime
    timeout: timedelta
    """The machine's machinePreserveTimeout."""
    node_value: str = ""
    """The annotation on the Node as last observed, also while the Node is missing; "" where there is none."""
    own: PreserveRequest | None = None
    last: str = ""
    """The Node's last valid value, or ""; an invalid one changes nothing."""
    release: Release | None = None
    """Somebody wants it to end, by `hostler release`."""
    source: PreservedBy = PreservedBy.NOBODY
    expiry: datetime | None = None
    """Preserved until then."""
    warned: bool = False
    granted: PreservedBy = PreservedBy.NOBODY
    """The pool's grant: it gives none during a rollout or while hibernated."""
    in_pool: bool = True
    healthy: bool = False
    """Whether the Node and VM of a Failed machine are well again, for as long as is required to count."""
    drained: bool = False
    node_present: bool = True
    protected: bool = False
    """The Node carries scale-down-disabled=true."""
    vm_present: bool = True
    named: str = "NAME --cluster CLUSTER"
    """The machine, for commands."""


@dataclass(frozen=True)
class Preserve:
    """The machine is preserved from now on."""

    expiry: datetime
    source: PreservedBy
    reason: str
    message: str
    cause: str = field(default="", compare=False)


@dataclass(frozen=True)
class End:
    """The machine is no longer preserved: the annotations go, where `clear` is the value of the Node's, and so does the
    machine's own value."""

    reason: str
    message: str
    terminate: bool
    clear: str = ""
    keep_own: bool = False
    """`false` stays: it bars what nobody asked for."""


@dataclass(frozen=True)
class Recover:
    """Failed:Preserved → Running:Preserved."""

    message: str


@dataclass(frozen=True)
class Protect:
    """The Node does not carry scale-down-disabled=true, and should."""


@dataclass(frozen=True)
class Warn:
    message: str


@dataclass(frozen=True)
class AskPool:
    """The machine's pool says whether it is preserved, and otherwise deletes it."""

    message: str = ""
    """"" where nobody has asked for anything: then only the reason of its failure is worth saying."""


@dataclass(frozen=True)
class Stay:
    """There is nothing to do now. With a reason, it is what the machine waits for."""

    reason: str = ""
    message: str = ""
    until: datetime | None = None


Decision = Preserve | End | Recover | Protect | Warn | AskPool | Stay


def on_node(node_value: str, last: str) -> str:
    """The Node's value. An invalid one changes nothing (design; MCM P8)."""
    return node_value if not node_value or node_value in VALUES else last


def effective(node_value: str, own: PreserveRequest | None, last: str) -> str:
    """The Node's value if set, else the machine's own."""
    return on_node(node_value, last) or (own.value if own else "")


def decide(o: ObservedMachine) -> Decision:
    """What to do now; total. The first rule that holds decides."""
    if o.phase is Phase.TERMINATING:
        return Stay()
    value = effective(o.node_value, o.own, o.last)
    return _preserved(o, value, o.expiry) if o.expiry is not None else _not_preserved(o, value)


# -- not preserved ----------------------------------------------------------------------------------------------------


def _not_preserved(observed: ObservedMachine, value: str) -> Decision:
    if observed.release is not None:  # also where there is nothing to withdraw: it must not meet a later preservation
        return End(
            "Released",
            f"the request{value and f' {value}'} was withdrawn{_by(observed.release)}",
            False,
            clear=_on_node(observed),
        )
    if _lapsed(observed):
        return End("PreserveExpired", f"the request has expired: {_asked(observed, value)}", False)
    if observed.phase is Phase.FAILED:
        return _failed(observed, value)
    if value != PreserveValue.NOW:
        return Stay()
    if observed.phase is Phase.RUNNING and observed.vm_present:
        return _preserve(observed, PreservedBy.ASKED, f"{_asked(observed, value)}")
    return Stay("PreserveWaits", f"{_asked(observed, value)}: the machine is preserved once it is Running or Failed")


def _failed(o: ObservedMachine, value: str) -> Decision:
    """Drains first; then preserves, or leaves it to its pool."""
    if not o.vm_present or not o.drained or value == PreserveValue.FALSE:
        return Stay()
    if value in ASKED_FOR and (not o.in_pool or o.granted is not PreservedBy.NOBODY):
        return _preserve(o, PreservedBy.ASKED, _asked(o, value))
    if not o.in_pool:
        return Stay()
    if o.granted is PreservedBy.AUTO:  # not a grant on request that is withdrawn by now: that took no slot
        return _preserve(o, PreservedBy.AUTO, "a slot of autoPreserveFailedMax was free")
    return AskPool(f"{_asked(o, value)}; its pool decides whether the machine is preserved" if value else "")


def _lapsed(o: ObservedMachine) -> bool:
    """Whether the machine's own request was for a time that has passed."""
    own = _own(o)
    return own is not None and own.until is not None and own.until <= o.now


def _own(o: ObservedMachine) -> PreserveRequest | None:
    """The machine's own request where it counts: the Node has nothing else. Its time counts then."""
    return o.own if o.own and on_node(o.node_value, o.last) in ("", o.own.value) else None


def _preserve(o: ObservedMachine, source: PreservedBy, why: str) -> Preserve:
    own = _own(o) if source is PreservedBy.ASKED else None
    expiry = own.until if own and own.until else later(o.now, own.lasts if own and own.lasts else o.timeout)
    return Preserve(expiry, source, "Preserved", f"preserved until {utc(expiry)}: {why}", why)


# -- preserved --------------------------------------------------------------------------------------------------------


def _preserved(observed: ObservedMachine, value: str, expiry: datetime) -> Decision:
    if end := _end(observed, value, expiry):
        return end
    if observed.source is PreservedBy.AUTO and value in ASKED_FOR:
        words = (
            f"preserved automatically until now, and from now on by request: {_asked(observed, value)}; until "
            f"{utc(expiry)}, unchanged"
        )
        return Preserve(expiry, PreservedBy.ASKED, "Preserved", words, _asked(observed, value))
    if observed.phase is Phase.FAILED and observed.drained and observed.healthy:
        return Recover(f"healthy again; preserved until {utc(expiry)}")
    if not observed.warned and observed.now >= expiry - WARN_BEFORE:
        return Warn(
            f"preserved only until {utc(expiry)}; to keep it longer: `hostler extend {observed.named} --for 8h`"
        )
    if observed.node_present and not observed.protected:
        return Protect()
    next_time = expiry if observed.warned else expiry - WARN_BEFORE
    if observed.phase is Phase.FAILED and observed.drained:
        return Stay("Preserved", f"kept for inspection until {utc(expiry)}; then its VM is deleted", next_time)
    return Stay(until=next_time)


def _end(observed: ObservedMachine, value: str, expiry: datetime) -> End | None:
    failed = observed.phase is Phase.FAILED
    if observed.release is not None and not observed.release.slot:
        return End("Released", f"released{_by(observed.release)}", failed, clear=_on_node(observed))
    if failed and not observed.vm_present:
        return End("VMGone", "the preserved VM is gone", observed.in_pool, clear=_on_node(observed))
    if value == PreserveValue.FALSE:
        return End("Released", "preserve=false ends it", failed, keep_own=_bars(observed))
    if observed.release is not None and failed and value not in ASKED_FOR:
        return End("SlotTaken", f"its slot was taken back{_by(observed.release)}", True)
    if observed.source is PreservedBy.ASKED and not value:
        return End("Released", "the annotation that asked for it was removed", failed)
    if observed.now >= expiry:
        return End("PreserveExpired", f"its preservation expired at {utc(expiry)}", failed, clear=_on_node(observed))
    return None


# -- words ------------------------------------------------------------------------------------------------------------


def _bars(o: ObservedMachine) -> bool:
    return o.own is not None and o.own.value is PreserveValue.FALSE


def _on_node(o: ObservedMachine) -> str:
    """What to remove from the Node: the value that asked for it."""
    return o.node_value if o.node_value in ASKED_FOR else ""


def _asked(o: ObservedMachine, value: str) -> str:
    if on_node(o.node_value, o.last):
        return f"annotation preserve={value} on its node"
    if o.own is None:
        return f"preserve={value}"
    return f"{value}, requested{_by(o.own)}"


def _by(who: PreserveRequest | Release) -> str:
    return by_whom(who.requested_by) + (f" ({who.reason})" if who.reason else "")
