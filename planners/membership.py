"""What a machine tells its pool: a snapshot of what the pool plans by, made from the machine's state alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from planners.claims import CONTRADICTION, GONE
from planners.hot_update import rolling_hash
from planners.preservation import ASKED_FOR, effective
from resources.base import read_time
from resources.errors import PASSING, ErrorClass
from resources.machine import Condition, MachineState, Mark, Phase
from resources.member import Keep, Trouble, Vm, priority_in
from resources.membership import CreateFailure, MemberReport
from resources.names import MARKED_ANNOTATION
from resources.preservation import PreserveValue

NOT_ITS_FAULT = PASSING | {ErrorClass.CAPACITY, ErrorClass.QUOTA}
"""Failures of a create call that say nothing against what the machine was to be made from."""
UNCLEAR = (ErrorClass.TRANSIENT, ErrorClass.CONFLICT)
"""Failures of a create call after which a VM may have been made. Throttled, without capacity or quota: none was."""


def report_of(s: MachineState, *, ended: bool = False) -> MemberReport:
    """Of a machine that has begun to live; who sends it gives it its number. A failed create call is in one report
    only, since the pool slows down for each."""
    assert s.status.phase_since is not None
    trouble, message = _trouble(s)
    failure = s.create_failure if s.create_failures > s.failures_told else None
    return MemberReport(
        machine=s.name,
        seq=0,
        phase=s.status.phase,
        since=s.status.phase_since,
        vm=_vm(s),
        trouble=trouble,
        message=message,
        asks=s.asks_permit,
        drained=s.status.phase is Phase.FAILED and is_drained(s),
        keep=keep_of(s),
        preserved_until=s.status.preserve.expiry_time,
        preserved_by=s.status.preserve.source,
        priority=priority_in(s.node.annotations) if s.node else None,
        marked=s.mark.time if s.mark else None,
        failure=CreateFailure(error_class=failure.error_class, message=failure.message) if failure else None,
        failures=s.create_failures,
        unanswered=trouble is Trouble.CREATE and _unanswered(s),
        template=s.template_applied,
        contradicted=s.deletion is None and any(c.type == CONTRADICTION for c in s.status.conditions),
        ended=ended,
    )


def with_revision(report: MemberReport, s: MachineState) -> MemberReport:
    """The report with what a pool that does not know the machine finds its revision by."""
    made_from = s.attempt.machine_class if s.attempt else s.machine_class
    if made_from is None:
        return report
    found = rolling_hash(made_from.provider, made_from.provider_spec)
    return report.model_copy(update={"machine_class": made_from.name, "hash": found})


def template_applied(s: MachineState) -> int:
    """The newest generation of the pool's template that the machine has: of the Node's part, once it has joined, only
    what is on it. To one that Failed or leaves nothing is brought any more."""
    over = s.deletion is not None or s.status.phase is Phase.FAILED
    carried = not s.joined or over or s.spec.node_template == s.status.last_applied_node_template
    return s.template if carried else s.template_applied


def mark_of(annotations: Mapping[str, str], former: Mark | None, now: datetime) -> Mark | None:
    """By the annotation on the Node. One whose time cannot be read counts from now on: whoever set it wants the machine
    to go."""
    text = annotations.get(MARKED_ANNOTATION)
    if text is None or (former is not None and former.text == text):
        return former if text is not None else None
    return Mark(text=text, time=read_time(text) or now)


def is_drained(s: MachineState) -> bool:
    """Nothing is left on its Node that a drain would move."""
    return s.drained or not s.joined


def has_vm(s: MachineState) -> bool:
    """Whether there is something to look at: a VM that nobody has deleted, and that is not a stale Node's."""
    failed = _failed(s)
    lost = failed is not None and failed.reason in ("VMGone", "StaleNode")
    return s.status.provider_id is not None and not lost and not _seen_gone(s)


def keep_of(s: MachineState) -> Keep:
    p = s.status.preserve
    if s.status.phase is not Phase.FAILED or not is_drained(s) or p.expiry_time is not None or s.deletion is not None:
        return Keep.UNDECIDED
    value = effective(p.node_value, p.own, p.last)
    if not has_vm(s) or value == PreserveValue.FALSE:
        return Keep.NEVER
    return Keep.ASKED if value in ASKED_FOR else Keep.SLOT


def _vm(s: MachineState) -> Vm:
    failed = _failed(s)
    if s.vm_gone or _seen_gone(s) or (failed is not None and failed.reason == "VMGone"):
        return Vm.GONE
    return Vm.LIVES if s.status.provider_id else Vm.UNBORN


def _trouble(s: MachineState) -> tuple[Trouble, str]:
    """And its words. It is classed by when in its life it failed, not by what noticed it: a VM that is gone before its
    machine was ever Running has not joined. That it Failed is not forgotten when it is deleted: it is a repair until
    its VM is gone, which is no news then."""
    failed = _failed(s)
    gone = (failed is not None and failed.reason == "VMGone") or (s.deletion is None and _seen_gone(s))
    if failed is None and not gone:
        return Trouble.NONE, ""
    message = failed.message if failed else f"{s.status.provider_id} was deleted by somebody"
    if s.was_running:
        return Trouble.GONE if gone else Trouble.HEALTH, message
    nobodys_fault = s.create_failure is not None and s.create_failure.error_class in NOT_ITS_FAULT
    return Trouble.CREATE if not s.status.provider_id and nobodys_fault else Trouble.JOIN, message


def _unanswered(s: MachineState) -> bool:
    return s.create_failure is not None and s.create_failure.error_class in UNCLEAR


def _seen_gone(s: MachineState) -> bool:
    """And it is believed: what a kubelet may speak against is a claim first (planners/claims.py)."""
    return s.vm is not None and s.vm.state == GONE


def _failed(s: MachineState) -> Condition | None:
    return next((c for c in s.status.conditions if c.type == "Failed"), None)
