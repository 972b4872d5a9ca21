"""What becomes of a plan's steps: state first, then an activity, and what its answer means."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from temporalio import workflow

from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.marks import MarkActivities
    from activities.pools import PoolActivities
    from planners.pool.steps import Create, Delete, Grant, Keep, MarkNodes, Step, TakeSlots, some
    from resources.machine import Phase
    from resources.membership import (
        MarkNodesInput,
        Permit,
        PreserveGrant,
        SlotTaken,
        StartMachinesInput,
        StartMachinesOutput,
        TellMachinesInput,
        TellMachinesOutput,
        TemplateNews,
        member_state,
    )
    from resources.messages import DeleteIntent, RepairIntent
    from resources.names import cluster_queue, workflow_queue
    from resources.pool import Keep as Wish
    from resources.pool import Member, Released, Revision, Vm, priority_of
    from resources.pool import Permit as Given
    from resources.preservation import PreservedBy

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' for names: no vowels, so no words, and nothing that looks like something else."""
MARKS = "marks"
FORGOTTEN = "forgotten"
"""Of a workflow that has ended so long ago that the server does not know it any more: its machine may have a VM."""
AT_ONCE = 100
"""Machines in one activity."""


def carry_out(p: PoolEntity, step: Step) -> None:
    p.note(step.reason, step.message)
    match step:
        case Create(count=count, revision=revision):
            _create(p, count, revision)
        case Delete():
            _delete(p, step)
        case Keep(names=names, by=by, message=message):
            _change(p, names, kept=by)
            preserve(p, names, by, message)
        case TakeSlots(names=names, message=message):
            _change(p, names, released=Released.TOLD)
            take_slots(p, names, message)
        case Grant(names=names, message=message):
            _change(p, names, permit=Given.GRANTED)
            permit(p, names, message)
        case MarkNodes(names=names, on=on):
            _change(p, names, node_marked=on, marks_due=True)


def _change(p: PoolEntity, names: Iterable[str], **fields: Any) -> None:
    for name in names:
        p.s.members[name] = p.s.members[name]._replace(**fields)


# -- create -----------------------------------------------------------------------------------------------------------


def _create(p: PoolEntity, count: int, counter: int) -> None:
    """A machine is a member before it is started: whatever crashes, it is counted."""
    s, now = p.s, workflow.now()
    revision = _revision(p, counter)
    names = _new_names(p, count, revision)
    priority = priority_of(revision.template.metadata.annotations)
    member = Member(counter, now, now, priority=priority, template=s.template)
    s.members |= dict.fromkeys(names, member)
    s.unstarted += names
    start(p, names)


def _revision(p: PoolEntity, counter: int) -> Revision:
    """Of machines that are to be started: one that has machines is kept."""
    revision = p.s.find(counter)
    assert revision is not None
    return revision


def _new_names(p: PoolEntity, count: int, revision: Revision) -> list[str]:
    """`<pool>-<hash of the revision>-<chance>`: never one that was there before, as far as the pool can know; a machine
    that was is not started again, and another name is taken then."""
    chance = workflow.random()
    # Alike for the machines of one revision, so that a person sees in `get nodes` which are new.
    made_from = (revision.machine_class.name, revision.hash, revision.restart)
    digest = hashlib.sha256(f"{revision.counter} {made_from}".encode()).digest()
    middle = "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:5])
    names: dict[str, None] = {}
    while len(names) < count:
        name = f"{p.s.name}-{middle}-{''.join(chance.choices(LETTERS, k=5))}"
        if name not in p.s.members:
            names[name] = None
    return list(names)


def start(p: PoolEntity, names: Sequence[str]) -> None:
    """Also those whose start is not confirmed: a machine is started once, however often it is asked for."""
    s = p.s
    for counter in sorted({s.members[n].revision for n in names}):
        own = [n for n in names if s.members[n].revision == counter]
        revision = _revision(p, counter)
        for some_names in _chunks(own):
            p.start(
                PoolActivities.start_machines,
                StartMachinesInput(names=some_names, state=member_state(s, some_names[0], revision)),
                queue=workflow_queue(s.queue_prefix),
                summary=f"start {some(len(some_names))} of revision {counter}",
                done=partial(_started, p, some_names),
            )


def _started(p: PoolEntity, names: Sequence[str], output: StartMachinesOutput) -> None:
    s = p.s
    s.unstarted = [n for n in s.unstarted if n not in names]
    for name in output.used:
        # A name by chance of a machine that is gone; another one is made in its place.
        member = s.members.get(name)
        if member is not None and member.vm is Vm.UNBORN and member.seq == 0:
            del s.members[name]
    early = [n for n in names if n in s.members and s.members[n].deleting]
    if early:
        delete(p, early, "")  # the word may have come before the machine was there


# -- tell -------------------------------------------------------------------------------------------------------------


def delete(p: PoolEntity, names: Sequence[str], reason: str) -> None:
    """Also those that have not taken it yet."""
    me, force = f"pool {p.s.name}", p.s.force
    intent = DeleteIntent(id=f"{me}, force" if force else me, requested_by=me, reason=reason, force=force)
    tell(p, names, f"delete {some(len(names))}", delete=intent)


def _delete(p: PoolEntity, step: Delete) -> None:
    """One without a VM has nothing to refuse for; one that has said nothing of preservation knows no repair: it began
    with an older worker."""
    asked = {n: p.s.members[n] for n in step.names if step.repair}
    may_refuse = [n for n, m in asked.items() if m.vm is Vm.LIVES and m.keep is not Wish.UNDECIDED]
    must_go = [n for n in step.names if n not in may_refuse]
    _change(p, step.names, deleting=True)
    _change(p, may_refuse, repair=True)
    if step.permitted:
        _change(p, step.names, permit=Given.GRANTED)
    if must_go:
        delete(p, must_go, step.message)
    if may_refuse:
        repair(p, may_refuse, step.message)


def repair(p: PoolEntity, names: Sequence[str], reason: str) -> None:
    """Each decision has an id of its own: one that was refused, and comes a second time late, is about nothing."""
    me = f"pool {p.s.name}"
    intent = RepairIntent(id=f"{me}, repair at {workflow.now().isoformat()}", requested_by=me, reason=reason)
    tell(p, names, f"delete {some(len(names))}, unless preserved by now", repair=intent)


def preserve(p: PoolEntity, names: Sequence[str], by: PreservedBy, reason: str) -> None:
    tell(p, names, f"preserve {some(len(names))}", preserve=PreserveGrant(by=by, reason=reason))


def take_slots(p: PoolEntity, names: Sequence[str], reason: str) -> None:
    tell(p, names, f"take the slots of {some(len(names))}", slot_taken=SlotTaken(reason=reason))


def permit(p: PoolEntity, names: Sequence[str], reason: str) -> None:
    tell(p, names, f"permit {some(len(names))} to be Failed", permit=Permit(reason=reason))


def template(p: PoolEntity, names: Sequence[str]) -> None:
    s = p.s
    newest = s.revisions[-1].template
    news = TemplateNews(generation=s.template, template=newest, requested_by=s.template_by)
    tell(p, names, f"tell {some(len(names))} of generation {s.template} of the template", template=news)


def ask(p: PoolEntity, names: Sequence[str]) -> None:
    tell(p, names, f"ask {some(len(names))} how they are")


def tell(p: PoolEntity, names: Sequence[str], summary: str, **message: object) -> None:
    for some_names in _chunks(names):
        p.start(
            PoolActivities.tell_members,
            TellMachinesInput.model_validate({"cluster": p.s.cluster, "names": some_names, **message}),
            queue=workflow_queue(p.s.queue_prefix),
            summary=summary,
            done=partial(_told, p),
        )


def _told(p: PoolEntity, output: TellMachinesOutput) -> None:
    s = p.s
    for name in output.gone:
        forget(p, name)
    for name, status in sorted(output.lost.items()):
        s.expected = [n for n in s.expected if n != name]
        if name not in s.members or name in s.unstarted:
            continue
        member = s.members[name]
        if not status and member.seq == 0 and member.vm is Vm.UNBORN:
            s.unstarted.append(name)  # it has never said a word: it was not started
            p.deadlines["check"] = workflow.now()
        elif s.lost.get(name) != (status or FORGOTTEN):
            s.lost[name] = status or FORGOTTEN
            words = (
                f"the workflow of machine {name} was ended from outside ({s.lost[name]}); its VM may live, and counts"
            )
            p.note("MemberLost", f"{words}: hostler adopt machine {name} --cluster {s.cluster}")


def forget(p: PoolEntity, name: str) -> None:
    """Nothing is left of it."""
    s = p.s
    s.members.pop(name, None)
    s.told.pop(name, None)
    s.lost.pop(name, None)
    s.unstarted = [n for n in s.unstarted if n != name]
    s.expected = [n for n in s.expected if n != name]


def again(p: PoolEntity) -> None:
    """Everything that was said and is not confirmed: after a failed call, and by a new run."""
    s = p.s
    if s.unstarted:
        start(p, list(s.unstarted))
    there = {n: m for n, m in s.members.items() if n not in s.unstarted}
    going = {n: m for n, m in there.items() if m.deleting and m.phase is not Phase.TERMINATING}
    unheard = [n for n, m in going.items() if s.deleted or not m.repair]
    if s.deleted and s.force:
        unheard = list(there)  # those on their way out hear of the force too
    if unheard:
        delete(p, unheard, "")
    if asked := [n for n in going if n not in unheard]:
        repair(p, asked, "")
    for by, why in ((PreservedBy.ASKED, "somebody asked for it"), (PreservedBy.AUTO, "a slot is free")):
        if granted := [n for n, m in there.items() if m.kept is by and m.stays and not m.leaving]:
            preserve(p, granted, by, why)
    if released := [n for n, m in there.items() if m.released is Released.TOLD and not m.leaving]:
        take_slots(p, released, "autoPreserveFailedMax was lowered")
    if waiting := [n for n, m in there.items() if m.permit is Given.GRANTED and m.phase is Phase.UNKNOWN]:
        permit(p, waiting, "")


# -- mark -------------------------------------------------------------------------------------------------------------


def mark(p: PoolEntity) -> None:
    """One call at a time: of two on their way, the later one need not be the last. A run may end meanwhile: the next
    one marks again what is not confirmed."""
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
    members = p.s.members
    _change(p, [n for n in names if n in members and members[n].node_marked is on], marks_due=False)


def _not_marked(p: PoolEntity) -> None:
    p.marking = False
    p.later.add(MARKS)


def _chunks(names: Sequence[str]) -> list[list[str]]:
    return [list(names[i : i + AT_ONCE]) for i in range(0, len(names), AT_ONCE)]
