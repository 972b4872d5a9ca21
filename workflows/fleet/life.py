"""The loop of an owner of machines: plan, carry out, and wait for news."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow

from workflows.entity import NEVER
from workflows.fleet import lending, lost, members, neighbours
from workflows.fleet.carry_out import carry_out
from workflows.fleet.entity import PATIENCE, FleetEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.members import MemberActivities
    from planners.fleet import template as hot
    from planners.fleet.steps import Plan, Step
    from planners.words import named, some
    from resources.fleet.membership import ForgetPoolInput
    from resources.fleet.state import FleetWait
    from resources.machine_class.state import concurrency_of
    from resources.maintenance import is_open
    from resources.names import workflow_queue

AT_ONCE = 500
"""How many machines are told of a template at the same time, whatever the annotation says: each is remembered by
name."""
PLANS_IN_A_TASK = 10
"""The SDK reports a worker as hanging when a task takes two seconds."""
MOST_PLANS = 200
"""The most plans in a row: 5,000 machines are deleted in 50. More would be the planner's error, and is stopped as
one."""


async def live(fleet: FleetEntity) -> None:
    """Runs until the owner is deleted and nothing is left of it."""
    fleet.bounded = workflow.patched("pool-replayable")
    while not (fleet.s.revisions or fleet.s.deleted):
        await neighbours.ask_class(fleet)
    if workflow.info().continued_run_id and workflow.patched("pool-meets-again"):
        fleet.s.searched = False  # a run that somebody has reset to its first task only knows what was before it
    await lost.meet(fleet)
    members.again(fleet)
    if fleet.s.news is None:
        fleet.deadlines["news"] = workflow.now() + PATIENCE
    while not fleet.over:
        await fleet.collect()
        await lost.meet_again(fleet)
        await fleet.renew_if_due()
        if fleet.winding_up:
            await fleet.until(lambda: fleet.renewal_due or fleet.call_over, NEVER)
            continue
        fleet.news = False
        _timers(fleet)
        neighbours.register(fleet)
        neighbours.report(fleet)
        decide(fleet)
        lending.judge(fleet)
        _template(fleet)
        fleet.decided()
        await fleet.until(lambda: fleet.news or fleet.over or fleet.winding_up or fleet.call_over)
    await _leave(fleet)


# -- planning ---------------------------------------------------------------------------------------------------------


def decide(fleet: FleetEntity) -> None:
    """Plans and carries out until nothing is left to do now. A plan that is carried out and made again comes to
    nothing, so this ends; each deletion's signal is on its way before the next plan."""
    state = fleet.s
    if state.expected:
        return  # which machines are there is not known yet
    if state.news is None and "news" in fleet.deadlines:
        words = f"waiting for cluster {state.cluster} to say whether it is paused and reachable"
        fleet.waits_for("ClusterSilent", words)
        return
    steps: list[Step] = []
    for _ in range(PLANS_IN_A_TASK):
        now = workflow.now()
        fleet.looked_at += len(state.members)
        made = fleet.plan(now)
        if not made.steps:
            fleet.plans = 0
            break
        fleet.plans += 1
        if fleet.plans > MOST_PLANS:
            raise RuntimeError(f"{MOST_PLANS} plans in a row, and still something to do: {made.steps[0].message}")
        for step in made.steps:
            carry_out(fleet, step)
        steps += made.steps
    else:
        fleet.deadlines["more"] = now + timedelta(milliseconds=10)  # the rest in a task of its own
    _wait(fleet, made, now)
    fleet.planned(steps)


def _wait(fleet: FleetEntity, made: Plan, now: datetime) -> None:
    """Records what is not done now, and since when; the journal gets a line for each new wait. Lists show the first
    one: that machines are kept for a look is no trouble, and comes last."""
    state = fleet.s
    since = {w.reason: w.since for w in state.waits}
    for wait in made.waits:
        if wait.reason not in since:
            fleet.note(wait.reason, wait.message)
    state.waits = [FleetWait(reason=w.reason, message=w.message, since=since.get(w.reason, now)) for w in made.waits]
    unseen = state.unseen_of(fleet.class_name)
    unsaid = unseen and all(w.reason != "Unreachable" for w in state.waits)
    if unsaid and workflow.patched("pool-says-unseen"):
        words = f"{unseen}; nothing is replaced on stale information"
        state.waits.append(FleetWait(reason="Unreachable", message=words, since=since.get("Unreachable", now)))
    if state.lost:
        who = named([f"{name} ({status})" for name, status in sorted(state.lost.items())])
        words = (
            f"somebody ended the workflows of {some(len(state.lost))}, whose VMs count: {who}; to take them over: "
            f"hostler adopt machine {min(state.lost)} --cluster {state.cluster}"
        )
        state.waits.append(FleetWait(reason="MemberLost", message=words, since=since.get("MemberLost", now)))
    if not state.waits and (leaving := sorted(n for n, m in state.members.items() if m.leaving)):
        words = f"{some(len(leaving))} being deleted, until nothing is left of them: {named(leaving)}"
        state.waits.append(FleetWait(reason="MachinesLeaving", message=words, since=since.get("MachinesLeaving", now)))
    if fleet.failure and "check" in fleet.deadlines:
        state.waits.append(fleet.trouble_of(since.get("PoolCallFailed", now)))
    state.waits.sort(key=lambda w: w.reason == "FailedPreserved")
    if made.next_look is None:
        fleet.deadlines.pop("look", None)
    else:
        fleet.deadlines["look"] = made.next_look


def _template(fleet: FleetEntity) -> None:
    """Tells machines of a changed template, a few at a time; none while they may not be changed."""
    state, now = fleet.s, workflow.now()
    if state.deleted or not state.revisions:
        fleet.deadlines.pop("told", None)
        return
    state.told = {
        n: at for n, at in state.told.items() if n in state.members and state.members[n].template < state.template
    }
    hearing = state.hearing
    names = (
        hot.to_tell(
            hearing, state.told, state.superseded, state.template, min(concurrency_of(state.annotations), AT_ONCE), now
        )
        if fleet.tells_template and is_open(fleet.openings(), now)
        else []
    )
    if names:
        state.told |= dict.fromkeys(names, now)
        for name in names:
            state.superseded.pop(name, None)
        members.template(fleet, names)
    look = hot.next_look(hearing, {**state.superseded, **state.told}, state.template, now)
    if look is None:
        fleet.deadlines.pop("told", None)
    else:
        fleet.deadlines["told"] = look


# -- timers ------------------------------------------------------------------------------------------------------------


def _timers(fleet: FleetEntity) -> None:
    for name in ("look", "told", "news", "more", lending.EXPIRY):
        if fleet.due(name):
            del fleet.deadlines[name]
    if fleet.due("check"):
        del fleet.deadlines["check"]
        fleet.later.clear()
        fleet.failure = ""
        members.again(fleet)
    lost.expect(fleet)
    lost.count(fleet)


# -- the end ----------------------------------------------------------------------------------------------------------


async def _leave(fleet: FleetEntity) -> None:
    """Ends the owner. Nothing is left: its last words are said, then class and cluster forget it, so that no word still
    on its way makes it known again."""
    state = fleet.s
    state.waits = []
    fleet.later.clear()
    fleet.planned(())
    await _settle(fleet)
    while True:
        forgotten: list[None] = []
        fleet.start(
            MemberActivities.forget_pool,
            ForgetPoolInput(**fleet.ref.model_dump(), classes=state.classes),
            queue=workflow_queue(state.queue_prefix),
            summary=f"sign {fleet.owner} off from its class and cluster",
            done=forgotten.append,
        )
        await _settle(fleet)
        if forgotten:
            break
        await fleet.patience()
    fleet.deadlines.clear()
    await workflow.wait_condition(workflow.all_handlers_finished)


async def _settle(fleet: FleetEntity) -> None:
    """Waits until nothing is under way, and the last words are said."""
    while True:
        await fleet.collect()
        fleet.last_words()
        if fleet.quiet:
            return
        signals = len(fleet.signals)
        await fleet.until(partial(_moved, fleet, signals), NEVER)


def _moved(fleet: FleetEntity, signals: int) -> bool:
    return len(fleet.signals) < signals or fleet.call_over
