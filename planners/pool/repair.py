"""Machines that fail: which may be replaced, how many at a time, and when none may.

Sources: design *Repair budget*; machine-controller-manager's permits (tryMarkingMachineFailed, M1-M9), from which this
differs where they hurt: a mate that is Pending or in CrashLoopBackOff does not block a repair, and a preserved one is
none; field cases P55 (small pools), P13 and P65 (machines that never join).

A VM that is gone is nothing to lose, but it is replaced by the same rules: when so many are gone at once they rarely
are, and what takes one away may take the next.
"""

from __future__ import annotations

from planners.fleet import permits
from planners.fleet.order import in_deletion_order
from planners.fleet.pace import dead
from planners.fleet.steps import GrantPermit, Wait
from planners.pool import progress
from planners.pool.preservation import no_slot
from planners.pool.view import Draft, View
from planners.words import named, some
from resources.fleet.member import Member, Trouble, Vm
from resources.machine.state import Phase
from resources.pool.state import Gate

FLAKY = 3
"""How many new machines may be lost in a row once one of the revision has been available."""
GONE = ": the cloud has confirmed that the VM is gone"


def storm(view: View) -> Wait | None:
    """More unhealthy machines than is believable: then neither repair nor rollout replaces anything."""
    aside = left_standing(view)
    ill = [n for n, m in view.active.items() if n not in aside and permits.ill(m)]
    if len(ill) <= view.limits.storm:
        return None
    given = view.spec.repair.pause_above_unhealthy
    return Wait(
        "TooManyUnhealthy",
        f"{len(ill)} unhealthy > allowed {view.limits.storm} of {len(view.active)} machines "
        f"(repair.pauseAboveUnhealthy {given}): nothing is replaced; check the network and the API server first",
    )


def doubt(draft: Draft) -> None:
    """Waits where the cloud speaks against VMs whose kubelets live: nothing is done on its word, and a person should
    look."""
    names = sorted(n for n, m in draft.view.members.items() if m.contradicted and not m.leaving)
    if names:
        words = f"the cloud says that the VMs of {some(len(names))} are gone or stopped, but their kubelets are alive"
        draft.wait("VMContradiction", f"{words}: {named(names)}; nothing is done on the cloud's word alone")


def in_flight(view: View) -> list[str]:
    """Repairs that have begun and are not over."""
    aside, gone_too = left_standing(view), view.observed.braked
    counted = {n: m for n, m in view.members.items() if n not in aside and (gone_too or m.vm is not Vm.GONE)}
    return sorted(n for n, m in counted.items() if permits.repaired(m))


def grant(draft: Draft) -> None:
    """Gives permits to those that asked, the longest unhealthy first."""
    view = draft.view
    asking = permits.asking(view.active)
    if not asking:
        return
    if halted := _halted(view) or _resting(view):
        draft.wait(halted.reason, halted.message)
        return
    busy, budget = in_flight(view), view.limits.repairs
    chosen, rest = permits.in_turn(view.active, asking, len(busy), budget)
    limit = f"{budget} (repair.maxConcurrent {view.spec.repair.max_concurrent})"
    if chosen:
        words = f"Repairing {some(len(chosen))} ({named(chosen)}): {len(busy)} of {limit} repairs were in progress"
        draft.do(GrantPermit(tuple(chosen), "RepairGranted", words))
    if rest:
        under_way = named([*chosen, *busy]) or "none"
        draft.wait("RepairBudget", f"Waiting for a repair: {some(len(rest))}; in progress, of {limit}: {under_way}")


def replace_failed(draft: Draft) -> None:
    """Deletes, and so replaces, Failed machines that are drained; preserved ones stay, unless a rollout or the like
    overrides that. It also deletes those whose VM is gone, drained or not: those that had been Running as repairs,
    within the same budget, but without a permit and without delay.

    A machine that somebody asks for in the same instant may refuse its deletion, and reports so; not where it is
    overridden.
    """
    view = draft.view
    if not view.observed.braked:
        gone = sorted(n for n, m in view.members.items() if m.vm is Vm.GONE and not m.leaving)
        draft.delete(gone, "VMGone", GONE)
        view = draft.view
    none_stays = progress.overrides(view)
    ready = {n: m for n, m in view.active.items() if _is_ready(m, none_stays)}
    if not ready:
        return
    standing = left_standing(view)
    halted = _halted(view)
    if halted is None or (view.observed.lasting and halted.reason == "Unreachable"):
        _say_what_is_left(draft, standing)
    if halted is not None:
        draft.wait(halted.reason, halted.message)
        return
    names = [n for n in in_deletion_order(ready, view.now) if n not in standing]
    none = [n for n in names if ready[n].trouble is Trouble.CREATE]
    if view.rolling and _over(view):
        none = [n for n in none if n not in view.new]  # resuming the rollout replaces them
    _replace(draft, none, "NeverCreated", " that got no VM within creationTimeout: the cloud had no capacity or quota")
    others = [n for n in names if ready[n].trouble is not Trouble.CREATE]
    ill = [n for n in others if ready[n].trouble is Trouble.HEALTH and not permits.lost_its_vm(ready[n])]
    joins = [n for n in others if n not in ill and not permits.lost_its_vm(ready[n])]
    _replace(draft, joins, "NeverJoined", " that never joined")
    _replace(draft, ill, "Unhealthy", " that failed and are drained")
    _replace_gone(draft, [n for n in others if permits.lost_its_vm(ready[n])])


def _is_ready(member: Member, none_stays: bool) -> bool:
    drained = member.phase is Phase.FAILED and member.drained and (none_stays or not member.stays)
    return drained or member.vm is Vm.GONE


def _replace_gone(draft: Draft, names: list[str]) -> None:
    """Replaces as many as the budget allows, the longest gone first."""
    view = draft.view
    if not names:
        return
    if resting := _resting(view):
        draft.wait(resting.reason, resting.message)
        return
    busy, budget = in_flight(view), view.limits.repairs
    chosen, rest = permits.in_turn(view.members, names, len(busy), budget)
    draft.delete(chosen, "VMGone", GONE, permitted=True)
    if rest:
        limit = f"{budget} (repair.maxConcurrent {view.spec.repair.max_concurrent})"
        under_way = named([*chosen, *busy]) or "none"
        words = f"Without a VM and waiting to be replaced: {some(len(rest))} ({named(rest)}); in progress, of {limit}"
        draft.wait("RepairBudget", f"{words}: {under_way}")


def _replace(draft: Draft, names: list[str], reason: str, why: str) -> None:
    draft.delete(names, reason, why + no_slot(draft.view, names), repair=not progress.overrides(draft.view))


def losses_allowed(view: View) -> int:
    """How many new machines of a rollout may fail before they have lasted until further ones are left standing: a bad
    image costs at most the surge (P65); for a revision that has been seen to work a few more are bad luck."""
    rollout, surge = view.observed.rollout, max(1, view.limits.surge)
    return max(surge, FLAKY) if rollout and rollout.proven else surge


def left_standing(view: View) -> list[str]:
    """New machines of a rollout that failed before they had lasted and are not replaced, for their console and so that
    no further one is spent, once as many are lost as may be. They are not repairs, and hold up none."""
    if not view.rolling:
        return []
    rollout, failed = view.observed.rollout, progress.failed(view)
    under_way = [n for n in view.waited_for if not dead(view.new[n])]
    spent = (rollout.lost if rollout else 0) + len(failed) + len(under_way)
    may = 0 if _over(view) else max(0, losses_allowed(view) - spent)
    none_stays = progress.overrides(view)
    return in_deletion_order({n: m for n, m in failed.items() if _is_ready(m, none_stays)}, view.now)[may:]


def _say_what_is_left(draft: Draft, held: list[str]) -> None:
    view = draft.view
    if not held:
        return
    some_ran = any(view.new[n].trouble is not Trouble.JOIN for n in held)
    how = "failed early" if some_ran else "never joined"
    told = view.pace if view.observed.telling else None
    cause = f"; {told.reason}: {told.message}" if told and told.reason else ""
    draft.wait(
        "NewMachinesNeverJoin",
        f"Not replaced by the rollout: {some(len(held))} of revision {view.observed.revision} that {how} "
        f"({named(held)}){cause}; of new machines, those on their way included, it may lose {losses_allowed(view)}: "
        "correct the class, undo the rollout, or resume it to try again",
    )


def _over(view: View) -> bool:
    """Whether nothing more is spent on the rollout until a person resumes it."""
    rollout = view.observed.rollout
    return progress.stopped(view) or (rollout is not None and rollout.gate is Gate.ABORTED)


def _halted(view: View) -> Wait | None:
    stormy = storm(view) if view.observed.reachable or view.observed.lasting else None
    if stormy or view.observed.reachable:
        return stormy
    return Wait("Unreachable", "The API server or the cloud does not answer: nothing is replaced on stale information")


def _resting(view: View) -> Wait | None:
    return permits.resting(view.pace, view.now) if view.observed.braked else None
