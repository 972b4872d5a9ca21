"""How a pool comes to as many machines as are wanted: what goes because there are too many, and what is made because
there are too few.

Sources: machine-controller-manager's machine sets (manageReplicas; MCM S1-S10) and deployments (MCM U8-U11); field
cases P15 (a ceiling for creation) and P67 (an empty pool is done).
"""

from __future__ import annotations

from collections import Counter

from planners.fleet import pace
from planners.fleet.order import in_deletion_order, preserved, proportional
from planners.fleet.steps import Create
from planners.pool import preservation, progress, repair, rollout
from planners.pool.view import Draft, View
from planners.words import named, some
from resources.fleet.member import Vm
from resources.fleet.revision import Pace
from resources.machine.state import Phase
from resources.words import utc


def empty(draft: Draft) -> None:
    """Deletes all, preserved ones too. Nothing is chosen, so no truth is needed to choose by."""
    view = draft.view
    names = in_deletion_order({n: m for n, m in view.members.items() if not m.leaving}, view.now)
    if view.observed.deleted:
        draft.delete(names, "PoolDeleted", ": the pool is being deleted")
    elif view.spec.hibernated:
        draft.delete(names, "Hibernated", ": the pool is hibernated")
    else:
        draft.delete(names, "ScaledDown", ": replicas is 0")


def delete_marked(draft: Draft) -> None:
    """Deletes what somebody marked for deletion, whether replicas changes or not (MCM S7); where it does, it counts
    towards that (MCM S8). A preserved machine goes when it no longer is, or when a person removes it by name."""
    view = draft.view
    marked = {
        n: m for n, m in view.active.items() if m.marked is not None and (m.removed or not preserved(m, view.now))
    }
    draft.delete(in_deletion_order(marked, view.now), "MarkedForDeletion", " marked for deletion")


def trim(draft: Draft) -> None:
    """Deletes what exceeds the replicas; during a rollout, what exceeds those and the surge."""
    view = draft.view
    limits = view.limits
    allowed = limits.ceiling if view.rolling else limits.replicas
    excess = len(view.active) - allowed
    if excess <= 0:
        return
    if not view.observed.reachable:
        words = f"{some(excess)} more than {allowed}: the API server or the cloud does not answer, so none is chosen"
        draft.wait("Unreachable", words)
        return
    names = _fair(view, excess) if view.rolling else in_deletion_order(view.active, view.now)[:excess]
    surge = f" + maxSurge {limits.surge}" if view.rolling and limits.surge else ""
    why = f": {len(view.active)} are more than {allowed} (replicas {limits.replicas}{surge})"
    draft.delete(names, "ScaledDown", why)


def _fair(view: View, excess: int) -> list[str]:
    """During a rollout, each revision loses its share, but of those in use no more than the floor leaves. While the
    rollout is held, those kept for a look count as in use, and go last."""
    staying = {} if progress.overrides(view) else preservation.slots(preservation.staying_failed(view))
    order = [n for n in in_deletion_order(view.active, view.now) if n not in staying]
    sizes = Counter(view.active[n].revision for n in order)
    shares = proportional(sizes, excess)
    spare = max(0, len(view.available) + len(staying) - len(view.lent) - view.limits.floor)
    chosen: list[str] = []
    for name in order:
        revision, in_use = view.active[name].revision, name in view.available
        if shares[revision] and (spare or not in_use):
            shares[revision] -= 1
            spare -= 1 if in_use else 0
            chosen.append(name)
    idle = [n for n in order if n not in view.available and n not in chosen]
    last = in_deletion_order(staying, view.now)
    return (chosen + idle + last)[:excess]


def create(draft: Draft) -> None:
    """Makes what is missing, and during a rollout what the surge allows. All are of the newest revision, even while a
    rollout is held: an older one's class may no longer be there (MCM U8). Only of one that no person has approved
    nothing is made: then they are of the last one that was."""
    view = draft.view
    limits, revision = view.limits, view.making
    missing = limits.replicas - len(view.active)
    going = view.rolling and rollout.gate(view) is None
    need = max(missing, limits.rolled - len(view.new) if going else 0)
    if need <= 0:
        return
    extra = 1 if view.repairing and limits.surge == 0 else 0
    ceiling = limits.ceiling + extra
    terms = f"replicas {limits.replicas} + maxSurge {limits.surge}" + (" + 1 for a repair" if extra else "")
    # A new machine that is left standing costs its place even where its VM is gone: otherwise a rollout would go round
    # it.
    standing = sum(1 for n in repair.left_standing(view) if view.new[n].vm is Vm.GONE)
    room = max(0, ceiling - view.vms - standing)
    speed = view.pace
    coming = sum(1 for m in view.made.values() if pace.coming(speed, m))
    allowed = pace.allowance(speed, coming, view.now)
    count = min(need, room, allowed, pace.CAP)
    if count > 0:
        reason = "RolledOut" if need > missing else "ReplicasMissing"
        words = f"Created {some(count)} of revision {revision}: {view.vms} of {ceiling} allowed ({terms})"
        draft.do(Create(count, revision, reason, words))
    if count < min(need, room):
        _say_why_slow(draft, speed, coming + count, min(need, room) - count)
        return
    leaving = [m for m in view.members.values() if m.leaving and m.vm is not Vm.GONE]
    if room < need and leaving:
        what = "VM" if any(m.vm is Vm.LIVES for m in leaving) else "machine"  # one that may have a VM, or get one
        words = f"{some(need - count)} to be created wait for {some(len(leaving), what)} to be gone"
        draft.wait("WaitsForVMsToGo", f"{words}: {view.vms + count} of {ceiling} allowed ({terms})")


def say_what_lacks(draft: Draft) -> None:
    """Says that some of its machines get no VM, where nothing else does: each tries on its own, and the pool only waits
    for them."""
    view = draft.view
    if not view.observed.lasting or draft.waits or draft.steps:
        return
    names = [n for n, m in view.active.items() if m.phase is Phase.CRASH_LOOP_BACK_OFF and m.vm is Vm.UNBORN]
    if not names:
        return
    last = f"; the last try: {view.pace.message}" if pace.refused(view.pace) and view.pace.message else ""
    words = f"{len(names)} of {some(view.limits.replicas)} have no VM, as their creation fails: {named(sorted(names))}"
    draft.wait("MachinesWithoutVM", words + last)


def _say_why_slow(draft: Draft, speed: Pace, coming: int, rest: int) -> None:
    if speed.until is not None and draft.view.now < speed.until:
        words = f"{some(rest)} to be created wait until {utc(speed.until)}: {speed.message}"
        draft.wait(speed.reason, words)
    elif draft.view.observed.telling and pace.refused(speed):
        words = f"{some(rest)} to be created wait for {coming} to get a VM; the last try: {speed.message}"
        draft.wait(speed.reason, words)
    elif speed.suspect:
        words = f"{some(rest)} to be created wait for {coming} to become Running: {speed.window} at a time, because"
        draft.wait("MachinesDieYoung", f"{words} {speed.joins_failed} in a row failed early")
    else:
        words = f"{some(rest)} to be created wait for {coming} to get a VM: {speed.window} at a time for now"
        draft.wait("SlowStart", words)
