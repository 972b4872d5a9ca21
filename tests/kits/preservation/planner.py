"""Preservation in a few words: a machine as planners/machine/preservation.py
sees it, what its workflow makes of a decision,
and every cell of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import Any

from planners.machine.preservation import (
    WARN_BEFORE,
    AskPool,
    Decision,
    End,
    ObservedMachine,
    Preserve,
    Protect,
    Recover,
    Stay,
    Warn,
    decide,
)
from resources.machine.preservation import PreservedBy, PreserveRequest, PreserveValue, Release
from resources.machine.state import Phase

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
TIMEOUT = timedelta(hours=72)
FULL = NOW + TIMEOUT
LATER = NOW + 24 * HOUR
"""When the machine that is preserved already no longer is."""

R, F, U, P, C, T = (
    Phase.RUNNING,
    Phase.FAILED,
    Phase.UNKNOWN,
    Phase.PENDING,
    Phase.CRASH_LOOP_BACK_OFF,
    Phase.TERMINATING,
)
NOBODY, AUTO, ASKED = PreservedBy
TYPO = "nwo"
WANTED = ("now", "when-failed")


def own(value: str = "now", **more: Any) -> PreserveRequest:
    return PreserveRequest(value=PreserveValue(value), time=NOW - HOUR, requested_by="alice", reason="case 17", **more)


def release() -> Release:
    return Release(time=NOW, requested_by="bob", reason="seen enough")


def slot_taken() -> Release:
    return Release(time=NOW, slot=True, requested_by="pool p", reason="autoPreserveFailedMax is 0")


def machine(phase: Phase = R, *, node: str = "", **more: Any) -> ObservedMachine:
    """A pool's machine from which nobody wants anything but what its Node says. A Failed one is drained."""
    fields = {"phase": phase, "now": NOW, "timeout": TIMEOUT, "node_value": node, "drained": phase is F, **more}
    return ObservedMachine(**fields)


def kept(phase: Phase = R, source: PreservedBy = ASKED, **more: Any) -> ObservedMachine:
    """A machine preserved until LATER, by an annotation or by a slot."""
    asked = "when-failed" if source is ASKED else ""
    return machine(phase, **{"source": source, "expiry": LATER, "protected": True, "node": asked, **more})


def carry_out(o: ObservedMachine, made: Decision) -> ObservedMachine:
    """What the workflow makes of a decision, with its calls to the cluster done."""
    o = replace(o, last=o.last if o.node_value == TYPO else o.node_value)
    match made:
        case Preserve():
            soon = made.expiry - o.now <= WARN_BEFORE  # the preservation itself says so
            return replace(o, expiry=made.expiry, source=made.source, warned=soon, granted=NOBODY, release=None)
        case End():
            return replace(
                o,
                phase=T if made.terminate else o.phase,
                expiry=None,
                source=NOBODY,
                own=o.own if made.keep_own else None,
                node_value="" if made.clear == o.node_value else o.node_value,
                last="",
                release=None,
                granted=NOBODY,
                warned=False,
                protected=False,
            )
        case Recover():
            return replace(o, phase=R, drained=False, healthy=False)
        case Protect():
            return replace(o, protected=True)
        case Warn():
            return replace(o, warned=True)
        case AskPool() | Stay():
            return o


def settle(o: ObservedMachine, most: int = 5) -> tuple[ObservedMachine, list[Decision]]:
    """Decides and carries out, until there is nothing more to do on its own."""
    made: list[Decision] = []
    while len(made) < most:
        made.append(decide(o))
        o = carry_out(o, made[-1])
        if isinstance(made[-1], AskPool | Stay):
            return o, made
    raise AssertionError(f"it goes on and on: {made}")


def wish(o: ObservedMachine) -> str:
    """What is wanted: the Node's valid value, else the machine's own (seed 003, note 3)."""
    valid = o.last if o.node_value == TYPO else o.node_value
    return valid or (o.own.value if o.own else "")


def must_end(o: ObservedMachine) -> bool:
    """Whether the preservation must end: all that ends one (I9), except what others do to the machine."""
    withdrawn = o.source is ASKED and wish(o) == ""
    lost = o.phase is F and not o.vm_present
    released = o.release is not None and not o.release.slot
    took_slot = o.release is not None and o.phase is F and wish(o) not in WANTED
    over = o.expiry is not None and o.now >= o.expiry
    return over or wish(o) == "false" or withdrawn or lost or released or took_slot


# -- all cells --------------------------------------------------------------------------------------------------------

WISHES: list[dict[str, Any]] = [
    {"node_value": node, "last": last, "own": mine}
    for (node, last), mine in product(
        [("", ""), *((v, v) for v in PreserveValue), *((TYPO, v) for v in ("", *PreserveValue))],
        [None, *(own(v) for v in PreserveValue)],
    )
]
BOTH = (False, True)


def unpreserved() -> Iterator[ObservedMachine]:
    """Every cell of a machine that is not preserved. test_preservation_properties has what does not matter for it."""
    for phase, want, out, granted, pool, drained, vm in product(
        Phase, WISHES, (None, release()), PreservedBy, BOTH, BOTH, BOTH
    ):
        yield ObservedMachine(
            phase=phase,
            now=NOW,
            timeout=TIMEOUT,
            release=out,
            granted=granted,
            in_pool=pool,
            drained=drained,
            vm_present=vm,
            **want,
        )


def preserved(step: int = 1) -> Iterator[ObservedMachine]:
    """Every cell of a preserved machine: long before its end, in the last hour, at its end. Or every n-th, n a prime,
    so that no input always has the same value."""
    every = product(
        product(Phase, WISHES, (None, release(), slot_taken()), (AUTO, ASKED)),
        (24 * HOUR, HOUR, timedelta(0)),
        product(BOTH, BOTH, BOTH, BOTH),
        ((False, False), (True, False), (True, True)),
    )
    for (phase, want, out, source), left, flags, node in islice(every, 0, None, step):
        warned, healthy, drained, vm = flags
        yield ObservedMachine(
            phase=phase,
            now=NOW,
            timeout=TIMEOUT,
            release=out,
            source=source,
            expiry=NOW + left,
            warned=warned,
            healthy=healthy,
            drained=drained,
            node_present=node[0],
            protected=node[1],
            vm_present=vm,
            **want,
        )
