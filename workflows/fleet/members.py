"""Starting machines and telling them: state first, then an activity, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from temporalio import workflow

from workflows.fleet.entity import FleetEntity, chunks

with workflow.unsafe.imports_passed_through():
    from activities.temporal.members import MemberActivities
    from planners.words import some
    from resources.fleet.member import Permit, Released, Vm
    from resources.fleet.membership import (
        PermitGranted,
        PreserveGrant,
        SlotTaken,
        StartMachinesInput,
        StartMachinesOutput,
        TellMachinesInput,
        TellMachinesOutput,
    )
    from resources.machine.intents import DeleteIntent, RepairIntent
    from resources.machine.placement import Placement
    from resources.machine.preservation import PreservedBy
    from resources.machine.state import Phase
    from resources.names import workflow_queue

FORGOTTEN = "forgotten"
"""The status of a workflow that ended so long ago that the server no longer knows it: its machine may have a VM."""
AT_ONCE = 100
"""Machines in one activity."""


def start(f: FleetEntity, names: Sequence[str]) -> None:
    """Starts machines, including those whose start is not confirmed: a machine starts once, however often it is asked
    for."""
    s = f.s
    alike: dict[tuple[int, Placement | None], list[str]] = {}
    for name in names:
        alike.setdefault((s.members[name].revision, s.members[name].placement), []).append(name)
    for (revision, _), own in sorted(alike.items(), key=lambda kind: kind[0][0]):
        for some_names in chunks(own, AT_ONCE):
            f.start(
                MemberActivities.start_machines,
                StartMachinesInput(names=some_names, state=f.machine_of(some_names[0])),
                queue=workflow_queue(s.queue_prefix),
                summary=f"start {some(len(some_names))} of revision {revision}",
                done=partial(_started, f, some_names),
            )


def _started(f: FleetEntity, names: Sequence[str], output: StartMachinesOutput) -> None:
    s = f.s
    s.unstarted = [n for n in s.unstarted if n not in names]
    for name in output.used:
        # The random name belongs to a machine that is gone; another machine is made in its place.
        member = s.members.get(name)
        if member is not None and member.vm is Vm.UNBORN and member.seq == 0:
            del s.members[name]
    early = [n for n in names if n in s.members and s.members[n].deleting]
    if early:
        delete(f, early, "")  # the word may have come before the machine was there


# -- messages ---------------------------------------------------------------------------------------------------------


def delete(f: FleetEntity, names: Sequence[str], reason: str) -> None:
    """Tells machines to go, including those that have not taken it yet."""
    me, force = str(f.owner), f.s.force
    intent = DeleteIntent(id=f"{me}, force" if force else me, requested_by=me, reason=reason, force=force)
    tell(f, names, f"delete {some(len(names))}", delete=intent)


def repair(f: FleetEntity, names: Sequence[str], reason: str) -> None:
    """Tells machines of a repair. Each decision has its own id: one that was refused, and arrives late a second time,
    is about nothing."""
    me = str(f.owner)
    intent = RepairIntent(id=f"{me}, repair at {workflow.now().isoformat()}", requested_by=me, reason=reason)
    tell(f, names, f"delete {some(len(names))}, unless they are to be preserved by now", repair=intent)


def preserve(f: FleetEntity, names: Sequence[str], by: PreservedBy, reason: str) -> None:
    tell(f, names, f"preserve {some(len(names))}", preserve=PreserveGrant(by=by, reason=reason))


def take_slots(f: FleetEntity, names: Sequence[str], reason: str) -> None:
    tell(f, names, f"take back the slots of {some(len(names))}", slot_taken=SlotTaken(reason=reason))


def permit(f: FleetEntity, names: Sequence[str], reason: str) -> None:
    tell(f, names, f"permit {some(len(names))} to be Failed", permit=PermitGranted(reason=reason))


def template(f: FleetEntity, names: Sequence[str]) -> None:
    news = f.template_news()
    tell(f, names, f"tell {some(len(names))} of generation {news.generation} of the template", template=news)


def ask(f: FleetEntity, names: Sequence[str]) -> None:
    tell(f, names, f"ask {some(len(names))} for their state")


def tell(f: FleetEntity, names: Sequence[str], summary: str, **message: object) -> None:
    for some_names in chunks(names, AT_ONCE):
        f.start(
            MemberActivities.tell_members,
            TellMachinesInput.model_validate({"cluster": f.s.cluster, "names": some_names, **message}),
            queue=workflow_queue(f.s.queue_prefix),
            summary=summary,
            done=partial(_told, f),
        )


def _told(f: FleetEntity, output: TellMachinesOutput) -> None:
    s = f.s
    for name in output.gone:
        forget(f, name)
    for name, status in sorted(output.lost.items()):
        s.expected = [n for n in s.expected if n != name]
        if name not in s.members or name in s.unstarted:
            continue
        member = s.members[name]
        if not status and member.seq == 0 and member.vm is Vm.UNBORN:
            s.unstarted.append(name)  # it has never reported: it was not started
            f.deadlines["check"] = workflow.now()
        elif s.lost.get(name) != (status or FORGOTTEN):
            s.lost[name] = status or FORGOTTEN
            words = (
                f"the workflow of machine {name} was ended by somebody ({s.lost[name]}); its VM may still be "
                "running, and counts"
            )
            f.note("MemberLost", f"{words}; to take it over: hostler adopt machine {name} --cluster {s.cluster}")


def forget(f: FleetEntity, name: str) -> None:
    """Forgets a machine of which nothing is left."""
    s = f.s
    s.members.pop(name, None)
    s.told.pop(name, None)
    s.lost.pop(name, None)
    s.unstarted = [n for n in s.unstarted if n != name]
    s.expected = [n for n in s.expected if n != name]


def again(f: FleetEntity) -> None:
    """Repeats everything that was said and is not confirmed: after a failed call, and in a new run."""
    s = f.s
    if s.unstarted:
        start(f, list(s.unstarted))
    there = {n: m for n, m in s.members.items() if n not in s.unstarted}
    going = {n: m for n, m in there.items() if m.deleting and m.phase is not Phase.TERMINATING}
    unheard = [n for n, m in going.items() if s.deleted or not m.repair]
    if s.deleted and s.force:
        unheard = list(there)  # those on their way out hear of the force too
    if unheard:
        delete(f, unheard, "")
    if asked := [n for n in going if n not in unheard]:
        repair(f, asked, "")
    for by, why in ((PreservedBy.ASKED, "somebody asked for it"), (PreservedBy.AUTO, "a slot is free")):
        if granted := [n for n, m in there.items() if m.granted is by and m.stays and not m.leaving]:
            preserve(f, granted, by, why)
    if released := [n for n, m in there.items() if m.released is Released.TOLD and not m.leaving]:
        take_slots(f, released, "autoPreserveFailedMax was lowered")
    if waiting := [n for n, m in there.items() if m.permit is Permit.GRANTED and m.phase is Phase.UNKNOWN]:
        permit(f, waiting, "")
