"""How a plan's steps are carried out: state first, then an activity, and what its answer means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from temporalio import workflow

from workflows.fleet import members
from workflows.fleet.entity import LETTERS, FleetEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.steps import (
        Create,
        Delete,
        GrantPermit,
        GrantPreservation,
        LiftHold,
        MarkNodes,
        Step,
        TakeSlots,
    )
    from resources.fleet.member import Member, Permit, PreserveWish, Released, Vm
    from resources.machine.priority import priority_of


def carry_out(fleet: FleetEntity, step: Step) -> None:
    fleet.note(step.reason, step.message)
    match step:
        case Create():
            _create(fleet, step)
        case Delete():
            _delete(fleet, step)
        case GrantPreservation(names=names, by=by, message=message):
            change(fleet, names, granted=by)
            members.preserve(fleet, names, by, message)
        case TakeSlots(names=names, message=message):
            change(fleet, names, released=Released.TOLD)
            members.take_slots(fleet, names, message)
        case GrantPermit(names=names, message=message):
            change(fleet, names, permit=Permit.GRANTED)
            members.permit(fleet, names, message)
        case MarkNodes(names=names, on=on):
            change(fleet, names, node_marked=on, marks_due=True)
        case LiftHold(names=names):
            fleet.lift(names)


def change(fleet: FleetEntity, names: Iterable[str], **fields: Any) -> None:
    for name in names:
        fleet.s.members[name] = fleet.s.members[name]._replace(**fields)


# -- create -----------------------------------------------------------------------------------------------------------


def _create(fleet: FleetEntity, step: Create) -> None:
    """Makes machines members before they are started: whatever crashes, they are counted."""
    state, now = fleet.s, workflow.now()
    revision = fleet.revision_of(step.revision)
    names = _new_names(fleet, step.count, partial(fleet.new_name, revision, step.placement))
    priority = priority_of(revision.template.metadata.annotations)
    template = state.template_of(step.revision)
    member = Member(step.revision, now, now, priority=priority, template=template, placement=step.placement)
    state.members |= dict.fromkeys(names, member)
    state.unstarted += names
    members.start(fleet, names)


def _new_names(fleet: FleetEntity, count: int, new: Callable[[str], str]) -> list[str]:
    """Never a name that was there before, as far as the owner can know; a machine that was there is not started again,
    and another name is taken then. `new`: a name with these five random letters."""
    chance = workflow.random()
    names: dict[str, None] = {}
    while len(names) < count:
        name = new("".join(chance.choices(LETTERS, k=5)))
        if name not in fleet.s.members:
            names[name] = None
    return list(names)


# -- delete -----------------------------------------------------------------------------------------------------------


def _delete(fleet: FleetEntity, step: Delete) -> None:
    """Deletes machines. One without a VM has no reason to refuse; one that has said nothing of preservation knows no
    repair, because it began with an older worker."""
    asked = {n: fleet.s.members[n] for n in step.names if step.repair}
    may_refuse = [n for n, m in asked.items() if m.vm is Vm.LIVES and m.keep is not PreserveWish.UNDECIDED]
    must_go = [n for n in step.names if n not in may_refuse]
    change(fleet, step.names, deleting=True)
    change(fleet, may_refuse, repair=True)
    if step.permitted:
        change(fleet, step.names, permit=Permit.GRANTED)
    if must_go:
        members.delete(fleet, must_go, step.message)
    if may_refuse:
        members.repair(fleet, may_refuse, step.message)
