"""Machines that fail: who may be replaced, how many at a time, and when none may.

Sources: design *Repair budget*; machine-controller-manager's permits (tryMarkingMachineFailed, M1-M9), from which this
differs where they hurt: a mate that is Pending or in CrashLoopBackOff does not block a repair, and a preserved one is
none; field cases P55 (small pools), P13 and P65 (machines that never join).
"""

from __future__ import annotations

from planners.pool import progress
from planners.pool.keep import no_slot
from planners.pool.order import in_deletion_order
from planners.pool.steps import Grant, Wait, named, some
from planners.pool.view import Draft, View
from resources.machine import Phase
from resources.pool import Gate, Member, Permit, Trouble, Vm

FLAKY = 3
"""New machines that may be lost in a row once one of the revision has been available."""


def storm(view: View) -> Wait | None:
    """More unhealthy machines than one can believe: then nothing is replaced, by repair or rollout. Those that are kept
    for a look have been judged before (mcm.md §5)."""
    ill = [
        n
        for n, m in view.active.items()
        if m.phase is Phase.UNKNOWN or (m.phase is Phase.FAILED and m.trouble is Trouble.HEALTH and not _put_aside(m))
    ]
    if len(ill) <= view.limits.storm:
        return None
    given = view.spec.repair.pause_above_unhealthy
    return Wait(
        "TooManyUnhealthy",
        f"{len(ill)} unhealthy > allowed {view.limits.storm} of {len(view.active)} machines "
        f"(repair.pauseAboveUnhealthy {given}): nothing is replaced; look at the network and the API server first",
    )


def in_flight(view: View) -> list[str]:
    """Repairs that have begun, until the cloud has confirmed the VM gone (I4)."""
    return sorted(
        n
        for n, m in view.members.items()
        if m.vm is not Vm.GONE
        and not _put_aside(m)
        and (
            (m.permit is Permit.GRANTED and m.phase is not Phase.RUNNING)
            or (m.trouble is Trouble.HEALTH and m.phase is Phase.FAILED)
        )
    )


def _put_aside(member: Member) -> bool:
    """Kept for a look, and drained: no repair waits for it to be over."""
    return member.stays and member.drained


def grant(draft: Draft) -> None:
    """Permits for those that asked, the longest unhealthy first."""
    view = draft.view
    asking = {
        n: m for n, m in view.active.items() if m.permit is Permit.ASKED and m.phase in (Phase.UNKNOWN, Phase.FAILED)
    }
    if not asking:
        return
    if halted := _halted(view):
        draft.wait(halted.reason, halted.message)
        return
    busy, budget = in_flight(view), view.limits.repairs
    first = sorted(asking, key=lambda n: (asking[n].since, n))
    chosen = first[: max(0, budget - len(busy))]
    limit = f"{budget} (repair.maxConcurrent {view.spec.repair.max_concurrent})"
    if chosen:
        words = f"Repairing {some(len(chosen))} ({named(chosen)}): {len(busy)} of {limit} repairs were in flight"
        draft.do(Grant(tuple(chosen), "RepairGranted", words))
    if rest := len(first) - len(chosen):
        under_way = named([*chosen, *busy]) or "none"
        draft.wait("RepairBudget", f"To be repaired later: {some(rest)}; in flight of {limit}: {under_way}")


def replace_failed(draft: Draft) -> None:
    """Failed machines that are drained are deleted, and thereby replaced; preserved ones stay, unless a rollout or the
    like overrides it. What has no VM any more is only tidied up, which destroys nothing and needs no permit.

    A machine for which somebody asks in the same instant may refuse it, and reports so; not where it is overridden."""
    view = draft.view
    gone = sorted(n for n, m in view.members.items() if m.vm is Vm.GONE and not m.leaving)
    draft.delete(gone, "VMGone", ": the cloud has confirmed that there is no VM any more")
    view = draft.view
    none_stays = progress.overrides(view)
    failed = {n: m for n, m in view.active.items() if m.phase is Phase.FAILED and (none_stays or not m.stays)}
    ready = {n: m for n, m in failed.items() if m.drained}
    if not ready:
        return
    if halted := _halted(view):
        draft.wait(halted.reason, halted.message)
        return
    none = [n for n in in_deletion_order(ready, view.now) if ready[n].trouble is Trouble.CREATE]
    if view.rolling and _over(view):
        none = [n for n in none if n not in view.new]  # who resumes the rollout has them made anew
    _replace(draft, none, "NeverCreated", " that got no VM within creationTimeout: the cloud had none to give")
    joins = [n for n in in_deletion_order(ready, view.now) if ready[n].trouble not in (Trouble.HEALTH, Trouble.CREATE)]
    _replace(draft, _not_held(draft, joins), "NeverJoined", " that never joined within creationTimeout")
    ill = [n for n in in_deletion_order(ready, view.now) if ready[n].trouble is Trouble.HEALTH]
    _replace(draft, ill, "Unhealthy", " that failed and are drained")


def _replace(draft: Draft, names: list[str], reason: str, why: str) -> None:
    draft.delete(names, reason, why + no_slot(draft.view, names), repair=not progress.overrides(draft.view))


def losses_allowed(view: View) -> int:
    """New machines of a rollout that may never join before it is left standing: a bad image costs at most the surge
    (P65); of a revision that has been seen to work a few more are bad luck."""
    rollout, surge = view.observed.rollout, max(1, view.limits.surge)
    return max(surge, FLAKY) if rollout and rollout.proven else surge


def _not_held(draft: Draft, names: list[str]) -> list[str]:
    """Those of them that may be replaced. In a rollout a new machine that never joined is kept, for its console and so
    that no further one is spent, once as many are lost as may be."""
    view, rollout = draft.view, draft.view.observed.rollout
    if not view.rolling:
        return names
    news = [n for n in names if n in view.new]
    under_way = [n for n in view.waited_for if view.new[n].phase is not Phase.FAILED]
    present = [n for n, m in view.new.items() if m.phase is Phase.FAILED and m.trouble is Trouble.JOIN]
    spent = (rollout.lost if rollout else 0) + len(present) + len(under_way)
    may = 0 if _over(view) else max(0, losses_allowed(view) - spent)
    if held := news[may:]:
        draft.wait(
            "NewMachinesNeverJoin",
            f"Not replaced in the rollout: {some(len(held))} of revision {view.observed.revision} that never joined "
            f"({named(held)}), for it may lose {losses_allowed(view)}; correct the class or undo the rollout, or "
            "resume it to try again",
        )
    return [n for n in names if n not in held]


def _over(view: View) -> bool:
    """Nothing more is spent on the rollout, until a person resumes it."""
    rollout = view.observed.rollout
    return progress.stopped(view) or (rollout is not None and rollout.gate is Gate.ABORTED)


def _halted(view: View) -> Wait | None:
    if not view.observed.reachable:
        return Wait("Unreachable", "The API server or the cloud does not answer: nothing is replaced on old news")
    return storm(view)
