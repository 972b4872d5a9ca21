"""The loop of an owner of machines: plan, carry out, and wait for news."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow

from workflows.entity import NEVER
from workflows.fleet import lost, members, neighbours
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
    from resources.names import workflow_queue

AT_ONCE = 500
"""How many machines are told of a template at the same time, whatever the annotation says: each is remembered by
name."""
PLANS_IN_A_TASK = 10
"""The SDK reports a worker as hanging when a task takes two seconds."""
MOST_PLANS = 200
"""The most plans in a row: 5,000 machines are deleted in 50. More would be the planner's error, and is stopped as
one."""


async def live(f: FleetEntity) -> None:
    """Runs until the owner is deleted and nothing is left of it."""
    f.bounded = workflow.patched("pool-replayable")
    while not (f.s.revisions or f.s.deleted):
        await neighbours.ask_class(f)
    if workflow.info().continued_run_id and workflow.patched("pool-meets-again"):
        f.s.searched = False  # a run that somebody has reset to its first task only knows what was before it
    await lost.meet(f)
    members.again(f)
    if f.s.news is None:
        f.deadlines["news"] = workflow.now() + PATIENCE
    while not f.over:
        await f.collect()
        await lost.meet_again(f)
        await f.renew_if_due()
        if f.winding_up:
            await f.until(lambda: f.renewal_due or f.call_over, NEVER)
            continue
        f.news = False
        _timers(f)
        neighbours.register(f)
        neighbours.report(f)
        decide(f)
        _template(f)
        f.decided()
        await f.until(lambda: f.news or f.over or f.winding_up or f.call_over)
    await _leave(f)


# -- planning ---------------------------------------------------------------------------------------------------------


def decide(f: FleetEntity) -> None:
    """Plans and carries out until nothing is left to do now. A plan that is carried out and made again comes to
    nothing, so this ends; each deletion's signal is on its way before the next plan."""
    s = f.s
    if s.expected:
        return  # which machines are there is not known yet
    if s.news is None and "news" in f.deadlines:
        words = f"waiting for cluster {s.cluster} to say whether it is paused and reachable"
        f.waits_for("ClusterSilent", words)
        return
    steps: list[Step] = []
    for _ in range(PLANS_IN_A_TASK):
        now = workflow.now()
        f.looked_at += len(s.members)
        made = f.plan(now)
        if not made.steps:
            f.plans = 0
            break
        f.plans += 1
        if f.plans > MOST_PLANS:
            raise RuntimeError(f"{MOST_PLANS} plans in a row, and still something to do: {made.steps[0].message}")
        for step in made.steps:
            carry_out(f, step)
        steps += made.steps
    else:
        f.deadlines["more"] = now + timedelta(milliseconds=10)  # the rest in a task of its own
    _wait(f, made, now)
    f.planned(steps)


def _wait(f: FleetEntity, made: Plan, now: datetime) -> None:
    """Records what is not done now, and since when; the journal gets a line for each new wait. Lists show the first
    one: that machines are kept for a look is no trouble, and comes last."""
    s = f.s
    since = {w.reason: w.since for w in s.waits}
    for wait in made.waits:
        if wait.reason not in since:
            f.note(wait.reason, wait.message)
    s.waits = [FleetWait(reason=w.reason, message=w.message, since=since.get(w.reason, now)) for w in made.waits]
    unseen = s.unseen_of(f.class_name)
    unsaid = unseen and all(w.reason != "Unreachable" for w in s.waits)
    if unsaid and workflow.patched("pool-says-unseen"):
        words = f"{unseen}; nothing is replaced on stale information"
        s.waits.append(FleetWait(reason="Unreachable", message=words, since=since.get("Unreachable", now)))
    if s.lost:
        who = named([f"{name} ({status})" for name, status in sorted(s.lost.items())])
        words = (
            f"somebody ended the workflows of {some(len(s.lost))}, whose VMs count: {who}; to take them over: "
            f"hostler adopt machine {min(s.lost)} --cluster {s.cluster}"
        )
        s.waits.append(FleetWait(reason="MemberLost", message=words, since=since.get("MemberLost", now)))
    if not s.waits and (leaving := sorted(n for n, m in s.members.items() if m.leaving)):
        words = f"{some(len(leaving))} being deleted, until nothing is left of them: {named(leaving)}"
        s.waits.append(FleetWait(reason="MachinesLeaving", message=words, since=since.get("MachinesLeaving", now)))
    if f.failure and "check" in f.deadlines:
        s.waits.append(f.trouble_of(since.get("PoolCallFailed", now)))
    s.waits.sort(key=lambda w: w.reason == "FailedPreserved")
    if made.next_look is None:
        f.deadlines.pop("look", None)
    else:
        f.deadlines["look"] = made.next_look


def _template(f: FleetEntity) -> None:
    """Tells machines of a changed template, a few at a time, and in a paused cluster none."""
    s, now = f.s, workflow.now()
    if s.deleted or not s.revisions:
        f.deadlines.pop("told", None)
        return
    s.told = {n: at for n, at in s.told.items() if n in s.members and s.members[n].template < s.template}
    there = {n: m for n, m in s.members.items() if n not in s.unstarted and n not in s.lost}
    paused = s.expected or (s.news is not None and s.news.paused)
    names = [] if paused else hot.to_tell(there, s.told, s.template, min(concurrency_of(s.annotations), AT_ONCE), now)
    if names:
        s.told |= dict.fromkeys(names, now)
        members.template(f, names)
    look = hot.next_look(there, s.told, s.template, now)
    if look is None:
        f.deadlines.pop("told", None)
    else:
        f.deadlines["told"] = look


# -- timers ------------------------------------------------------------------------------------------------------------


def _timers(f: FleetEntity) -> None:
    for name in ("look", "told", "news", "more"):
        if f.due(name):
            del f.deadlines[name]
    if f.due("check"):
        del f.deadlines["check"]
        f.later.clear()
        f.failure = ""
        members.again(f)
    lost.expect(f)
    lost.count(f)


# -- the end ----------------------------------------------------------------------------------------------------------


async def _leave(f: FleetEntity) -> None:
    """Ends the owner. Nothing is left: its last words are said, then class and cluster forget it, so that no word still
    on its way makes it known again."""
    s = f.s
    s.waits = []
    f.later.clear()
    f.planned(())
    await _settle(f)
    while True:
        forgotten: list[None] = []
        f.start(
            MemberActivities.forget_pool,
            ForgetPoolInput(**f.ref.model_dump(), classes=s.classes),
            queue=workflow_queue(s.queue_prefix),
            summary=f"sign {f.owner} off from its class and cluster",
            done=forgotten.append,
        )
        await _settle(f)
        if forgotten:
            break
        await f.patience()
    f.deadlines.clear()
    await workflow.wait_condition(workflow.all_handlers_finished)


async def _settle(f: FleetEntity) -> None:
    """Waits until nothing is under way, and the last words are said."""
    while True:
        await f.collect()
        f.last_words()
        if f.quiet:
            return
        signals = len(f.signals)
        await f.until(partial(_moved, f, signals), NEVER)


def _moved(f: FleetEntity, signals: int) -> bool:
    return len(f.signals) < signals or f.call_over
