"""What `hostler describe machine` says of a preservation: that the machine is preserved, that somebody wants it, or
that somebody bars it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from starter.output import fields, moment

if TYPE_CHECKING:
    from resources.machine.state import MachineState

OVERRIDES = "fewer replicas, a rollout, hibernation, hostler scale --remove, hostler delete"
"""What overrides a preservation of a pool's machine."""


def section(state: MachineState, now: datetime) -> list[str]:
    """The section's lines on the page; none where nobody has asked for anything."""
    from resources.machine.state import Phase

    p = state.status.preserve
    pairs: list[tuple[str, str]] = []
    if p.expiry_time is not None:
        pairs = _preserved(state, p.expiry_time, now)
    elif state.status.phase is not Phase.TERMINATING:
        pairs = _asked(state, now)
    pairs += _invalid(state) + _released(state, now)
    title = "Preserved:" if p.expiry_time is not None else "Preservation:"
    return ["", title, *fields(pairs, 2)] if pairs else []


def _preserved(state: MachineState, until: datetime, now: datetime) -> list[tuple[str, str]]:
    from resources.machine.state import Phase

    p, failed = state.status.preserve, state.status.phase is Phase.FAILED
    then = "its VM is deleted" if failed else "it stays Running, and cluster-autoscaler may remove it"
    if failed and state.pool:
        then += f", and pool {state.pool} creates another one if its replicas require it"
    return [
        ("Until", moment(until, now)),
        ("Then", then),
        ("Since", moment(p.since, now)),
        ("Source", _source(state)),
        ("Why", p.why),
        ("Asked", _own(state, now) if _by_own(state) else ""),
        ("Ends earlier by", ", ".join(filter(None, (_ends(state), OVERRIDES if state.pool else "hostler delete")))),
        ("To release", _command("release", state)),
        ("To extend", f"{_command('extend', state)} --for 24h"),
    ]


def _asked(state: MachineState, now: datetime) -> list[tuple[str, str]]:
    """A request that waits, or one that bars a preservation."""
    from resources.machine.preservation import PreserveValue
    from resources.machine.state import Phase
    from starter.sdk.machines.preservation import span, value_of

    p, phase = state.status.preserve, state.status.phase
    value = value_of(p)
    if not value:
        return []
    if value == PreserveValue.FALSE:
        return [
            ("Value", "false: it is not preserved when it fails"),
            ("Source", _source(state)),
            ("Asked", _own(state, now) if _by_own(state) else ""),
            ("To change", _unset(state)),
        ]
    begins = "when it is Failed and drained" if value == PreserveValue.WHEN_FAILED else "when it is Running or Failed"
    if phase is Phase.FAILED:
        begins = "when it is drained" + (f" and if pool {state.pool} grants it" if state.pool else "")
    own = p.own if _by_own(state) else None
    lasts = span(own.lasts, own.until).removeprefix(", ") if own else ""
    return [
        ("Value", value),
        ("Begins", begins),
        ("Lasts", lasts or f"for {_timeout(state)} from then on (machinePreserveTimeout)"),
        ("Source", _source(state)),
        ("Asked", _own(state, now) if own else ""),
        ("To withdraw", _command("release", state)),
    ]


def _invalid(state: MachineState) -> list[tuple[str, str]]:
    from starter.sdk.machines.preservation import VALUES

    value = state.status.preserve.node_value
    if not value or value in VALUES:
        return []
    return [("Annotation", f"preserve={value} on its node is not one of {', '.join(VALUES)}, so it has no effect")]


def _released(state: MachineState, now: datetime) -> list[tuple[str, str]]:
    release = state.status.preserve.release
    if release is None:
        return []
    return [("Released", _by(release.requested_by, release.reason, release.time, now))]


def _source(state: MachineState) -> str:
    """What makes the machine preserved, or would."""
    from resources.machine.preservation import PreservedBy
    from starter.sdk.machines.preservation import on_node

    p = state.status.preserve
    if p.expiry_time is not None and p.source is PreservedBy.AUTO:
        return f"a slot of pool {state.pool} (autoPreserveFailedMax)"
    node = on_node(p)
    if node:
        return f"annotation {_key()}={node} on node {state.status.node_name}"
    return f"a request to the machine ({p.own.value})" if p.own else "a request that has since been removed"


def _by_own(state: MachineState) -> bool:
    """Whether the machine's own request counts."""
    from starter.sdk.machines.preservation import on_node

    p = state.status.preserve
    return p.own is not None and not on_node(p)


def _own(state: MachineState, now: datetime) -> str:
    own = state.status.preserve.own
    return _by(own.requested_by, own.reason, own.time, now) if own else ""


def _by(who: str, why: str, time: datetime, now: datetime) -> str:
    return (f"by {who}, " if who else "") + moment(time, now) + (f": {why}" if why else "")


def _ends(state: MachineState) -> str:
    """What people can say about this machine to end it."""
    from resources.machine.preservation import PreservedBy, PreserveValue
    from starter.sdk.machines.preservation import on_node

    p, words = state.status.preserve, f"hostler release, annotation {_key()}=false"
    if p.source is PreservedBy.AUTO:
        return f"{words}, a lower autoPreserveFailedMax"
    other = p.own is not None and p.own.value is not PreserveValue.FALSE  # then this one counts
    return f"{words}, removal of the annotation" if on_node(p) and not other else words


def _unset(state: MachineState) -> str:
    """How a `false` is taken back. No value of the machine's own would count against the Node's."""
    if _by_own(state):
        return f"{_command('release', state)}, or {_command('preserve', state)} --when-failed"
    return f"kubectl annotate node {state.status.node_name} {_key()}-"


def _key() -> str:
    from resources.names import PRESERVE_ANNOTATION

    return PRESERVE_ANNOTATION


def _timeout(state: MachineState) -> str:
    from resources.base import format_duration

    return format_duration(state.spec.machine_preserve_timeout)


def _command(word: str, state: MachineState) -> str:
    return f"hostler {word} {state.name} --cluster {state.cluster}"
