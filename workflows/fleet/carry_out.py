"""How a plan's steps are carried out: state first, then an activity, and what its answer means."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from temporalio import workflow

from workflows.fleet import members
from workflows.fleet.entity import FleetEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, MarkNodes, Step, TakeSlots
    from resources.fleet.member import Member, Permit, PreserveWish, Released, Vm, priority_of
    from resources.fleet.revision import Revision

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for names: no vowels, so no words, and nothing that looks like something else."""


def carry_out(f: FleetEntity, step: Step) -> None:
    f.note(step.reason, step.message)
    match step:
        case Create():
            _create(f, step)
        case Delete():
            _delete(f, step)
        case GrantPreservation(names=names, by=by, message=message):
            change(f, names, granted=by)
            members.preserve(f, names, by, message)
        case TakeSlots(names=names, message=message):
            change(f, names, released=Released.TOLD)
            members.take_slots(f, names, message)
        case GrantPermit(names=names, message=message):
            change(f, names, permit=Permit.GRANTED)
            members.permit(f, names, message)
        case MarkNodes(names=names, on=on):
            change(f, names, node_marked=on, marks_due=True)


def change(f: FleetEntity, names: Iterable[str], **fields: Any) -> None:
    for name in names:
        f.s.members[name] = f.s.members[name]._replace(**fields)


# -- create -----------------------------------------------------------------------------------------------------------


def _create(f: FleetEntity, step: Create) -> None:
    """Makes machines members before they are started: whatever crashes, they are counted."""
    s, now = f.s, workflow.now()
    revision = f.revision_of(step.revision)
    names = _new_names(f, step.count, revision)
    priority = priority_of(revision.template.metadata.annotations)
    member = Member(step.revision, now, now, priority=priority, template=s.template, placement=step.placement)
    s.members |= dict.fromkeys(names, member)
    s.unstarted += names
    members.start(f, names)


def _new_names(f: FleetEntity, count: int, revision: Revision) -> list[str]:
    """`<owner>-<hash of the revision>-<random>`: never a name that was there before, as far as the owner can know; a
    machine that was there is not started again, and another name is taken then."""
    chance = workflow.random()
    # The same for all machines of one revision, so that a person sees in `get nodes` which are new.
    made_from = (revision.machine_class.name, revision.hash, revision.restart)
    digest = hashlib.sha256(f"{revision.counter} {made_from}".encode()).digest()
    middle = "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:5])
    names: dict[str, None] = {}
    while len(names) < count:
        name = f"{f.s.name}-{middle}-{''.join(chance.choices(LETTERS, k=5))}"
        if name not in f.s.members:
            names[name] = None
    return list(names)


# -- delete -----------------------------------------------------------------------------------------------------------


def _delete(f: FleetEntity, step: Delete) -> None:
    """Deletes machines. One without a VM has no reason to refuse; one that has said nothing of preservation knows no
    repair, because it began with an older worker."""
    asked = {n: f.s.members[n] for n in step.names if step.repair}
    may_refuse = [n for n, m in asked.items() if m.vm is Vm.LIVES and m.keep is not PreserveWish.UNDECIDED]
    must_go = [n for n in step.names if n not in may_refuse]
    change(f, step.names, deleting=True)
    change(f, may_refuse, repair=True)
    if step.permitted:
        change(f, step.names, permit=Permit.GRANTED)
    if must_go:
        members.delete(f, must_go, step.message)
    if may_refuse:
        members.repair(f, may_refuse, step.message)
