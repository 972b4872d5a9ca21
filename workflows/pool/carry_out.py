"""How a plan's steps are carried out: state first, then an activity, and what its answer means."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from temporalio import workflow

from workflows.fleet import members
from workflows.fleet.members import AT_ONCE
from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.cluster.marks import MarkActivities
    from planners.fleet.steps import Create, Delete, Grant, Keep, MarkNodes, Step, TakeSlots
    from planners.words import some
    from resources.fleet.member import Keep as Wish
    from resources.fleet.member import Member, Released, Vm, priority_of
    from resources.fleet.member import Permit as Given
    from resources.fleet.membership import MarkNodesInput
    from resources.fleet.revision import Revision
    from resources.names import cluster_queue

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for names: no vowels, so no words, and nothing that looks like something else."""
MARKS = "marks"


def carry_out(p: PoolEntity, step: Step) -> None:
    p.note(step.reason, step.message)
    match step:
        case Create(count=count, revision=revision):
            _create(p, count, revision)
        case Delete():
            _delete(p, step)
        case Keep(names=names, by=by, message=message):
            _change(p, names, kept=by)
            members.preserve(p, names, by, message)
        case TakeSlots(names=names, message=message):
            _change(p, names, released=Released.TOLD)
            members.take_slots(p, names, message)
        case Grant(names=names, message=message):
            _change(p, names, permit=Given.GRANTED)
            members.permit(p, names, message)
        case MarkNodes(names=names, on=on):
            _change(p, names, node_marked=on, marks_due=True)


def _change(p: PoolEntity, names: Iterable[str], **fields: Any) -> None:
    for name in names:
        p.s.members[name] = p.s.members[name]._replace(**fields)


# -- create -----------------------------------------------------------------------------------------------------------


def _create(p: PoolEntity, count: int, counter: int) -> None:
    """Makes machines members before they are started: whatever crashes, they are counted."""
    s, now = p.s, workflow.now()
    revision = p.revision_of(counter)
    names = _new_names(p, count, revision)
    priority = priority_of(revision.template.metadata.annotations)
    member = Member(counter, now, now, priority=priority, template=s.template)
    s.members |= dict.fromkeys(names, member)
    s.unstarted += names
    members.start(p, names)


def _new_names(p: PoolEntity, count: int, revision: Revision) -> list[str]:
    """`<pool>-<hash of the revision>-<random>`: never a name that was there before, as far as the pool can know; a
    machine that was there is not started again, and another name is taken then."""
    chance = workflow.random()
    # The same for all machines of one revision, so that a person sees in `get nodes` which are new.
    made_from = (revision.machine_class.name, revision.hash, revision.restart)
    digest = hashlib.sha256(f"{revision.counter} {made_from}".encode()).digest()
    middle = "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:5])
    names: dict[str, None] = {}
    while len(names) < count:
        name = f"{p.s.name}-{middle}-{''.join(chance.choices(LETTERS, k=5))}"
        if name not in p.s.members:
            names[name] = None
    return list(names)


# -- delete -----------------------------------------------------------------------------------------------------------


def _delete(p: PoolEntity, step: Delete) -> None:
    """Deletes machines. One without a VM has no reason to refuse; one that has said nothing of preservation knows no
    repair, because it began with an older worker."""
    asked = {n: p.s.members[n] for n in step.names if step.repair}
    may_refuse = [n for n, m in asked.items() if m.vm is Vm.LIVES and m.keep is not Wish.UNDECIDED]
    must_go = [n for n in step.names if n not in may_refuse]
    _change(p, step.names, deleting=True)
    _change(p, may_refuse, repair=True)
    if step.permitted:
        _change(p, step.names, permit=Given.GRANTED)
    if must_go:
        members.delete(p, must_go, step.message)
    if may_refuse:
        members.repair(p, may_refuse, step.message)


# -- mark -------------------------------------------------------------------------------------------------------------


def mark(p: PoolEntity) -> None:
    """Makes one call at a time: of two on their way, the later one need not arrive last. A run may end meanwhile: the
    next one marks again what is not confirmed."""
    s = p.s
    if p.marking or MARKS in p.later:
        return
    due = [n for n, m in s.members.items() if m.marks_due]
    if not due:
        return
    on = s.members[due[0]].node_marked
    names = [n for n in due if s.members[n].node_marked is on][:AT_ONCE]
    p.marking = True
    p.start(
        MarkActivities.mark_nodes,
        MarkNodesInput(cluster=s.cluster, pool=s.name, machines=names, on=on),
        queue=cluster_queue(s.cluster, s.queue_prefix),
        summary=f"{'mark' if on else 'take the marks off'} {some(len(names), 'node')}",
        done=partial(_marked, p, names, on),
        failed=partial(_not_marked, p),
        may_be_lost=True,
    )


def _marked(p: PoolEntity, names: Sequence[str], on: bool, _: None) -> None:
    p.marking = False
    there = p.s.members
    _change(p, [n for n in names if n in there and there[n].node_marked is on], marks_due=False)


def _not_marked(p: PoolEntity) -> None:
    p.marking = False
    p.later.add(MARKS)
