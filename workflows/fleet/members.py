"""Starting machines and telling them: state first, then an activity, and what its answer means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from temporalio import workflow

from workflows.fleet.entity import FleetEntity, chunks

with workflow.unsafe.imports_passed_through():
    from activities.temporal.members import MemberActivities
    from planners.words import some
    from resources.fleet.member import Permit, Released, Vm
    from resources.fleet.membership import (
        OwnerNews,
        PermitGranted,
        PreserveGrant,
        SlotTaken,
        StartMachinesInput,
        StartMachinesOutput,
        TellMachinesInput,
        TellMachinesOutput,
    )
    from resources.machine.hooks import HookIntent
    from resources.machine.intents import DeleteIntent, RepairIntent
    from resources.machine.manifest import Hook, HookKind
    from resources.machine.placement import Placement
    from resources.machine.preservation import PreservedBy
    from resources.machine.state import Phase
    from resources.names import workflow_queue

FORGOTTEN = "forgotten"
"""The status of a workflow that ended so long ago that the server no longer knows it: its machine may have a VM."""
AT_ONCE = 100
"""Machines in one activity."""


def start(fleet: FleetEntity, names: Sequence[str]) -> None:
    """Starts machines, including those whose start is not confirmed: a machine starts once, however often it is asked
    for."""
    state = fleet.s
    alike: dict[tuple[int, Placement | None], list[str]] = {}
    for name in names:
        alike.setdefault((state.members[name].revision, state.members[name].placement), []).append(name)
    for (revision, _), own in sorted(alike.items(), key=lambda kind: kind[0][0]):
        for some_names in chunks(own, AT_ONCE):
            fleet.start(
                MemberActivities.start_machines,
                StartMachinesInput(names=some_names, state=fleet.machine_of(some_names[0])),
                queue=workflow_queue(state.queue_prefix),
                summary=f"start {some(len(some_names))} of revision {revision}",
                done=partial(_started, fleet, some_names),
            )


def _started(fleet: FleetEntity, names: Sequence[str], output: StartMachinesOutput) -> None:
    state = fleet.s
    state.unstarted = [n for n in state.unstarted if n not in names]
    for name in output.used:
        # The random name belongs to a machine that is gone; another machine is made in its place.
        member = state.members.get(name)
        if member is not None and member.vm is Vm.UNBORN and member.seq == 0:
            del state.members[name]
    early = [n for n in names if n in state.members and state.members[n].deleting]
    if early:
        delete(fleet, early, "")  # the word may have come before the machine was there


# -- messages ---------------------------------------------------------------------------------------------------------


def delete(fleet: FleetEntity, names: Sequence[str], reason: str) -> None:
    """Tells machines to go, including those that have not taken it yet."""
    me, force = str(fleet.owner), fleet.s.force
    intent = DeleteIntent(id=f"{me}, force" if force else me, requested_by=me, reason=reason, force=force)
    tell(fleet, names, f"delete {some(len(names))}", delete=intent)


def repair(fleet: FleetEntity, names: Sequence[str], reason: str) -> None:
    """Tells machines of a repair. Each decision has its own id: one that was refused, and arrives late a second time,
    is about nothing."""
    me = str(fleet.owner)
    intent = RepairIntent(id=f"{me}, repair at {workflow.now().isoformat()}", requested_by=me, reason=reason)
    tell(fleet, names, f"delete {some(len(names))}, unless they are to be preserved by now", repair=intent)


def preserve(fleet: FleetEntity, names: Sequence[str], by: PreservedBy, reason: str) -> None:
    tell(fleet, names, f"preserve {some(len(names))}", preserve=PreserveGrant(by=by, reason=reason))


def take_slots(fleet: FleetEntity, names: Sequence[str], reason: str) -> None:
    tell(fleet, names, f"take back the slots of {some(len(names))}", slot_taken=SlotTaken(reason=reason))


def permit(fleet: FleetEntity, names: Sequence[str], reason: str) -> None:
    tell(fleet, names, f"permit {some(len(names))} to be Failed", permit=PermitGranted(reason=reason))


def template(fleet: FleetEntity, names: Sequence[str]) -> None:
    news = fleet.template_news()
    tell(fleet, names, f"tell {some(len(names))} of generation {news.generation} of the template", template=news)


def lift_hold(fleet: FleetEntity, names: Sequence[str], hook: Hook) -> None:
    me = str(fleet.owner)
    lifted = HookIntent(
        id=f"{me}, {hook.name}", requested_by=me, name=hook.name, owner=hook.owner, kind=HookKind.PRE_DRAIN, remove=True
    )
    tell(fleet, names, f"tell {some(len(names))} not to stay for {hook.name}", hook=lifted)


def own(fleet: FleetEntity, names: Sequence[str], news: OwnerNews) -> None:
    """Takes machines over, gives them their place, or lets them go: those that are told go on without it."""
    words = f"let {some(len(names))} go" if news.released else f"take {some(len(names))} over"
    released = partial(_let_go, fleet, list(names)) if news.released else None
    tell(fleet, names, words, then=released, owner=news)


def _let_go(fleet: FleetEntity, names: Sequence[str]) -> None:
    for name in names:
        fleet.ended.append(name)  # a word of it that is on its way does not bring it back
        forget(fleet, name)


def ask(fleet: FleetEntity, names: Sequence[str]) -> None:
    tell(fleet, names, f"ask {some(len(names))} for their state")


def tell(
    fleet: FleetEntity,
    names: Sequence[str],
    summary: str,
    then: Callable[[], None] | None = None,
    **message: object,
) -> None:
    for some_names in chunks(names, AT_ONCE):
        fleet.start(
            MemberActivities.tell_members,
            TellMachinesInput.model_validate({"cluster": fleet.s.cluster, "names": some_names, **message}),
            queue=workflow_queue(fleet.s.queue_prefix),
            summary=summary,
            done=partial(_told, fleet, then),
        )


def _told(fleet: FleetEntity, then: Callable[[], None] | None, output: TellMachinesOutput) -> None:
    state = fleet.s
    if then is not None:
        then()
    for name in output.gone:
        forget(fleet, name)
    for name, status in sorted(output.lost.items()):
        state.expected = [n for n in state.expected if n != name]
        if name not in state.members or name in state.unstarted:
            continue
        member = state.members[name]
        if not status and member.seq == 0 and member.vm is Vm.UNBORN:
            state.unstarted.append(name)  # it has never reported: it was not started
            fleet.deadlines["check"] = workflow.now()
        elif state.lost.get(name) != (status or FORGOTTEN):
            state.lost[name] = status or FORGOTTEN
            words = (
                f"the workflow of machine {name} was ended by somebody ({state.lost[name]}); its VM may still be "
                "running, and counts"
            )
            fleet.note(
                "MemberLost", f"{words}; to take it over: hostler adopt machine {name} --cluster {state.cluster}"
            )


def forget(fleet: FleetEntity, name: str) -> None:
    """Forgets a machine of which nothing is left."""
    state = fleet.s
    state.members.pop(name, None)
    state.told.pop(name, None)
    state.superseded.pop(name, None)
    state.lost.pop(name, None)
    state.unstarted = [n for n in state.unstarted if n != name]
    state.expected = [n for n in state.expected if n != name]


def again(fleet: FleetEntity) -> None:
    """Repeats everything that was said and is not confirmed: after a failed call, and in a new run."""
    state = fleet.s
    if state.unstarted:
        start(fleet, list(state.unstarted))
    there = {n: m for n, m in state.members.items() if n not in state.unstarted}
    going = {n: m for n, m in there.items() if m.deleting and m.phase is not Phase.TERMINATING}
    unheard = [n for n, m in going.items() if state.deleted or not m.repair]
    if state.deleted and state.force:
        unheard = list(there)  # those on their way out hear of the force too
    if unheard:
        delete(fleet, unheard, "")
    if asked := [n for n in going if n not in unheard]:
        repair(fleet, asked, "")
    for by, why in ((PreservedBy.ASKED, "somebody asked for it"), (PreservedBy.AUTO, "a slot is free")):
        if granted := [n for n, m in there.items() if m.granted is by and m.stays and not m.leaving]:
            preserve(fleet, granted, by, why)
    if released := [n for n, m in there.items() if m.released is Released.TOLD and not m.leaving]:
        take_slots(fleet, released, "autoPreserveFailedMax was lowered")
    if waiting := [n for n, m in there.items() if m.permit is Permit.GRANTED and m.phase is Phase.UNKNOWN]:
        permit(fleet, waiting, "")
    fleet.repeat()
