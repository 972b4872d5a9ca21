"""What a machine tells its owner: a snapshot of what the owner plans by, made from the machine's state alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

from planners.machine.claims import CONTRADICTION
from planners.machine.domain import domain_digest
from planners.machine.hot_update import rolling_hash
from planners.machine.preservation import ASKED_FOR, effective
from resources.base import read_time
from resources.canonical import lasting
from resources.errors import PASSING, ErrorClass, ErrorInfo
from resources.fleet.member import PreserveWish, Trouble, Vm
from resources.fleet.membership import CreateFailure, MemberReport, PlaceNews
from resources.machine.advice import failure_of, has_vm, seen_gone
from resources.machine.manifest import HookKind
from resources.machine.preservation import PreserveValue
from resources.machine.priority import priority_in
from resources.machine.state import MachineState, Mark, Phase
from resources.names import MARKED_ANNOTATION
from resources.owner import POOL

NOT_ITS_FAULT = PASSING | {ErrorClass.CAPACITY, ErrorClass.QUOTA}
"""Failures of a create call that say nothing against what the machine was to be made from."""
UNCLEAR = (ErrorClass.TRANSIENT, ErrorClass.CONFLICT)
"""Failures of a create call after which a VM may have been made. Throttling and a lack of capacity or quota make
none."""


def report_of(state: MachineState, *, ended: bool = False) -> MemberReport:
    """The report of a machine that has begun to live; the sender numbers it. A failed create call is in one report
    only, since the pool slows down for each."""
    assert state.status.phase_since is not None
    trouble, message = _trouble(state)
    failure = state.create_failure if state.create_failures > state.failures_told else None
    return MemberReport(
        machine=state.name,
        seq=0,
        phase=state.status.phase,
        since=state.status.phase_since,
        vm=_vm(state),
        trouble=trouble,
        message=message,
        asks=state.asks_permit,
        drained=state.status.phase is Phase.FAILED and is_drained(state),
        keep=wish_of(state),
        preserved_until=state.status.preserve.expiry_time,
        preserved_by=state.status.preserve.source,
        priority=priority_in(state.node.annotations) if state.node else None,
        marked=state.mark.time if state.mark else None,
        failure=_failed(state, failure) if failure else None,
        failures=state.create_failures,
        unanswered=trouble is Trouble.CREATE and _unanswered(state),
        template=state.template_applied,
        contradicted=state.deletion is None and any(c.type == CONTRADICTION for c in state.status.conditions),
        ended=ended,
        placement=state.placement,
        place=place_of(state) if state.counted else None,
    )


def place_of(s: MachineState) -> PlaceNews:
    return PlaceNews(
        joined=s.joined,
        node_ready=s.node is not None and s.node.exists and s.node.ready,
        held=_held(s),
        forced=s.deletion is not None and s.deletion.force,
        domain=domain_digest(s.domain),
        wanted=_wanted(s),
    )


def without_its_node(report: MemberReport) -> MemberReport:
    """The report without whether its Node is Ready, where the phase says all that its owner goes by: each change would
    be another report."""
    counts = report.phase in (Phase.UNKNOWN, Phase.TERMINATING) and report.vm is not Vm.GONE
    if report.place is None or counts:
        return report
    return report.model_copy(update={"place": report.place.model_copy(update={"node_ready": False})})


def _wanted(s: MachineState) -> bool:
    """Whether somebody has asked to preserve it: one that is not Failed yet says so too, as its owner may then keep
    it."""
    p = s.status.preserve
    value = effective(p.node_value, p.own, p.last)
    return value in ASKED_FOR or p.expiry_time is not None


def _held(s: MachineState) -> bool:
    """Whether its drain is to begin, and a hook of its owner's holds it (workflows/machine/terminate.py)."""
    leaves = s.deletion is not None or s.status.phase is Phase.FAILED
    if s.owner is None or not (leaves and s.joined) or s.drained or s.drain_began is not None:
        return False
    return any(h.owner == s.owner.user for h in s.hooks.effective(s.spec.lifecycle_hooks, HookKind.PRE_DRAIN))


def _failed(s: MachineState, failure: ErrorInfo) -> CreateFailure:
    reason = s.trouble.reason if s.trouble else ""
    return CreateFailure(error_class=failure.error_class, message=failure.message, reason=reason)


ALWAYS = {
    *("machine", "seq", "phase", "since", "vm", "trouble", "message", "asks", "drained", "keep", "preserved_until"),
    *("preserved_by", "priority", "marked", "failures", "unanswered", "template", "ended", "machine_class", "hash"),
}
"""The fields that were in a report's digest from the beginning."""


def digest_of(report: MemberReport) -> str:
    """A digest by which a machine sees whether there is anything new to say; its state keeps the last one. A failure is
    not part of it: it is told once, by its number."""
    return hashlib.sha256(lasting(report, ALWAYS, never={"failure"}).encode()).hexdigest()[:16]


def with_revision(report: MemberReport, s: MachineState) -> MemberReport:
    """The report with what a pool that does not know the machine needs to find its revision."""
    made_from = s.attempt.machine_class if s.attempt else s.machine_class
    if made_from is None:
        return report
    of, spec = made_from.provider, made_from.provider_spec
    hashes = {"hash": rolling_hash(of, spec, version=1), "rolling_hash": rolling_hash(of, spec)}
    whole = {} if s.owner is not None and s.owner.kind == POOL.manifest else {"made_from": made_from}
    return report.model_copy(update={"machine_class": made_from.name, **hashes, **whole})


def template_applied(s: MachineState) -> int:
    """The newest generation of the pool's template that the machine has. Once it has joined, the Node's part counts
    only when it is on the Node. A machine that has Failed or leaves gets no more updates."""
    over = s.deletion is not None or s.status.phase is Phase.FAILED
    carried = not s.joined or over or s.spec.node_template == s.status.last_applied_node_template
    return s.template if carried else s.template_applied


def mark_of(annotations: Mapping[str, str], former: Mark | None, now: datetime) -> Mark | None:
    """The mark for deletion, from the annotation on the Node. One whose time cannot be read counts from now on:
    somebody wants the machine to go."""
    text = annotations.get(MARKED_ANNOTATION)
    if text is None or (former is not None and former.text == text):
        return former if text is not None else None
    return Mark(text=text, time=read_time(text) or now)


def is_drained(s: MachineState) -> bool:
    """Whether nothing is left on its Node that a drain would move."""
    return s.drained or not s.joined


def wish_of(s: MachineState) -> PreserveWish:
    p = s.status.preserve
    if s.status.phase is not Phase.FAILED or not is_drained(s) or p.expiry_time is not None or s.deletion is not None:
        return PreserveWish.UNDECIDED
    value = effective(p.node_value, p.own, p.last)
    if not has_vm(s) or value == PreserveValue.FALSE:
        return PreserveWish.NEVER
    return PreserveWish.ASKED if value in ASKED_FOR else PreserveWish.SLOT


def _vm(s: MachineState) -> Vm:
    failed = failure_of(s)
    if s.vm_gone or seen_gone(s) or (failed is not None and failed.reason == "VMGone"):
        return Vm.GONE
    return Vm.LIVES if s.status.provider_id else Vm.UNBORN


def _trouble(state: MachineState) -> tuple[Trouble, str]:
    """The machine's trouble, and words for it. It is classed by when in its life the machine failed, not by what
    noticed it: a VM that is gone before its machine was ever Running has not joined. Deletion does not make the failure
    forgotten: the machine is a repair until its VM is gone, which is no news then."""
    failed = failure_of(state)
    gone = (failed is not None and failed.reason == "VMGone") or (state.deletion is None and seen_gone(state))
    if failed is None and not gone:
        return Trouble.NONE, ""
    message = failed.message if failed else f"{state.status.provider_id} was deleted by somebody"
    if state.was_running:
        return Trouble.GONE if gone else Trouble.HEALTH, message
    nobodys_fault = state.create_failure is not None and state.create_failure.error_class in NOT_ITS_FAULT
    return Trouble.CREATE if not state.status.provider_id and nobodys_fault else Trouble.JOIN, message


def _unanswered(s: MachineState) -> bool:
    return s.create_failure is not None and s.create_failure.error_class in UNCLEAR
