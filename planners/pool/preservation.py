"""Failed machines that are preserved: which are granted it, whose slot is taken, and how many slots are in use.

Sources: seed 003, points 6 and 9, notes 1, 2 and 4; design *Slots*; machine-controller-manager's machine sets
(manageAutoPreservationOfFailedMachines; MCM A1-A6, T1-T9), from which this differs where they hurt: a machine is never
replaced before it is decided whether it is preserved, and one that was asked for takes its slot once.

The machine's own clock keeps the expiry: a machine is preserved when it reports so.
"""

from __future__ import annotations

from collections.abc import Mapping

from planners.fleet import steps
from planners.fleet.steps import TakeSlots
from planners.pool import progress
from planners.pool.view import Draft, View
from planners.words import named, some
from resources.fleet.member import Member, PreserveWish, Released, Vm
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase


def staying_failed(view: View) -> dict[str, Member]:
    """Failed machines that are not replaced: they are preserved, or will be in a moment. Where the VM is gone there is
    nothing to look at."""
    return {n: m for n, m in view.active.items() if m.stays and m.vm is not Vm.GONE}


def slots(members: Mapping[str, Member]) -> dict[str, Member]:
    """Those of `staying_failed` that count towards autoPreserveFailedMax, no matter who asked for them (seed 003,
    point 6). A machine whose slot was taken is on its way out, and its slot is free at once (use case 4)."""
    return {n: m for n, m in members.items() if m.released is Released.NO}


def decide(draft: Draft) -> None:
    """Machines that somebody asked for are always preserved; the others as long as a slot is free, the longest waiting
    first. The plan itself takes the slot, so that two that ask at once never get the same one."""
    _take(draft)
    view = draft.view
    if progress.overrides(view):
        return
    undecided = {n: m for n, m in view.active.items() if _undecided(m)}
    asked = _longest_first(undecided, PreserveWish.ASKED)
    if asked:
        words = f"Preserving {some(len(asked))} ({named(asked)}) that failed and are drained: somebody asked for it"
        draft.do(steps.GrantPreservation(asked, PreservedBy.ASKED, "PreservedOnRequest", words))
    used, most = len(slots(staying_failed(draft.view))), view.spec.auto_preserve_failed_max
    chosen = _longest_first(undecided, PreserveWish.SLOT)[: max(0, most - used)]
    if chosen:
        words = f"Preserving {some(len(chosen))} ({named(chosen)}) that failed and are drained: {used} of {_most(view)}"
        draft.do(steps.GrantPreservation(chosen, PreservedBy.AUTO, "PreservedInSlot", f"{words} slots were in use"))
    _say(draft)


def _undecided(member: Member) -> bool:
    return member.phase is Phase.FAILED and member.drained and not member.stays and member.vm is not Vm.GONE


def _longest_first(members: Mapping[str, Member], wish: PreserveWish) -> tuple[str, ...]:
    own = [n for n, m in members.items() if m.keep is wish]
    return tuple(sorted(own, key=lambda n: (members[n].since, n)))


def _take(draft: Draft) -> None:
    """Tells machines whose slots were taken, once they have reported that they are preserved: a word that overtakes the
    grant is about nothing."""
    view = draft.view
    due = [n for n, m in staying_failed(view).items() if m.released is Released.TAKEN and m.preserved_until is not None]
    if due:
        words = f"Taking back {some(len(due), 'slot')} ({named(sorted(due))}): autoPreserveFailedMax was lowered to"
        most = view.spec.auto_preserve_failed_max
        draft.do(TakeSlots(tuple(sorted(due)), "SlotsTaken", f"{words} {most}"))


def _say(draft: Draft) -> None:
    """Says that they are there: nobody replaces them, so the pool has fewer available machines than replicas."""
    staying = staying_failed(draft.view)
    if staying:
        words = f"Failed and kept for inspection, counted as replicas: {named(sorted(staying))}"
        used = len(slots(staying))
        draft.wait("FailedPreserved", f"{words}; {used} of {_most(draft.view)} slots in use")


def no_slot(view: View, names: list[str]) -> str:
    """Why those of them that nobody asked for are not preserved; "" where none could be."""
    most = view.spec.auto_preserve_failed_max
    if progress.overrides(view) or not most or not any(view.members[n].keep is PreserveWish.SLOT for n in names):
        return ""
    return f"; no slot is free: {len(slots(staying_failed(view)))} of {_most(view)} in use"


def lowered(view: View, former: int) -> list[str]:
    """The machines whose slots are taken when autoPreserveFailedMax was `former` and is lower now: the oldest first of
    those that the pool preserved on its own (seed 003, note 4), as many as it was lowered by, and no more than are in
    use above it. Machines preserved on request above the maximum push nobody out."""
    most, using = view.spec.auto_preserve_failed_max, slots(staying_failed(view))
    auto = {n: m for n, m in using.items() if PreservedBy.AUTO in (m.granted, m.preserved_by)}
    order = sorted(auto, key=lambda n: (auto[n].created, n))
    return order[: max(0, min(len(using) - most, former - most))]


def given_back(view: View, former: int) -> list[str]:
    """The machines that get their slots back when autoPreserveFailedMax was `former` and is higher now: of those that
    have not heard of the lower one, as many as there is room for, the last chosen first."""
    most, using = view.spec.auto_preserve_failed_max, slots(staying_failed(view))
    taken = {n: m for n, m in staying_failed(view).items() if m.released is Released.TAKEN}
    order = sorted(taken, key=lambda n: (taken[n].created, n), reverse=True)
    return order[: max(0, most - len(using))] if most > former else []


def changed(view: View, former: int) -> tuple[dict[str, Member], list[str], list[str]]:
    """The members when autoPreserveFailedMax was `former`; whose slots are taken; and whose are given back."""
    lost, back = lowered(view, former), given_back(view, former)
    taken = {n: view.members[n]._replace(released=Released.TAKEN) for n in lost}
    again = {n: view.members[n]._replace(released=Released.NO) for n in back}
    return {**view.members, **taken, **again}, lost, back


def _most(view: View) -> str:
    return f"{view.spec.auto_preserve_failed_max} (autoPreserveFailedMax)"
