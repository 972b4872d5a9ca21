"""What can be done about what a machine waits for, for its pages in the command line and in the web UI."""

from __future__ import annotations

from resources.machine.state import Condition, MachineState, Phase, generation_words
from resources.reasons import Situation, next_step

GONE = "gone"
"""A VM's state when a fresh read by id has found nothing."""


def step(s: MachineState, reason: str, page: str = "", held: str = "") -> str:
    """What can be done about it. `page` and `held`: see Situation."""
    kept = s.status.preserve.expiry_time is not None
    at = Situation(str(s.owner or ""), kept, failed_of(s, reason), vm=has_vm(s), page=page, held=held)
    return next_step(reason, s.cluster, s.name, at=at)


def failed_of(s: MachineState, reason: str) -> bool:
    """Whether the machine is Failed because of this reason, and nothing is tried again for it."""
    w = s.status.waiting_for
    if w is not None and w.reason == reason and w.next_try is not None:
        return False
    causes = [cause.reason for cause in (s.held_up, failure_of(s)) if cause is not None]
    return s.status.phase == Phase.FAILED and reason in causes


def is_up_to_its_owner(s: MachineState) -> bool:
    """Whether it has Failed and only its owner's turn to replace it is left."""
    over = s.status.phase is Phase.FAILED and (s.drained or not s.joined)
    return over and s.owner is not None and s.deletion is None and s.status.preserve.expiry_time is None


def has_vm(s: MachineState) -> bool:
    """Whether there is something to look at: a VM that nobody has deleted, and that is not a stale Node's."""
    failed = failure_of(s)
    lost = failed is not None and failed.reason in ("VMGone", "StaleNode")
    return s.status.provider_id is not None and not lost and not seen_gone(s)


def carried(s: MachineState) -> str:
    """Which generation of its class the VM carries; "" before there is one."""
    applied, number = s.status.last_applied_provider_spec, s.status.applied_generation
    if applied is None or s.machine_class is None:
        return ""
    if any(c.type == "Outdated" for c in s.status.conditions):
        words = f"of generation {number} only the updatable fields (Outdated)"
    else:
        words = generation_words(s.machine_class.base, number)
    return f"{words}, spec hash {applied.hash}"


def seen_gone(s: MachineState) -> bool:
    """Whether the cloud's word that the VM is gone is believed: what a kubelet may speak against is a claim first
    (planners/machine/claims.py)."""
    return s.vm is not None and s.vm.state == GONE


def failure_of(s: MachineState) -> Condition | None:
    """The condition Failed."""
    return next((c for c in s.status.conditions if c.type == "Failed"), None)
