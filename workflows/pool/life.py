"""The loop of a pool: plan, carry out, and wait for news."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow

from workflows.entity import NEVER
from workflows.fleet import lost, members, neighbours
from workflows.fleet.entity import PATIENCE
from workflows.pool import carry_out, story
from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.pools import PoolActivities
    from planners.pool import brake, progress
    from planners.pool import template as hot
    from planners.pool.plan import Plan, plan
    from planners.pool.steps import Step
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


async def live(p: PoolEntity) -> None:
    """Runs until the pool is deleted and nothing is left of it."""
    p.bounded = workflow.patched("pool-replayable")
    while not (p.s.revisions or p.s.deleted):
        await neighbours.ask_class(p)
    if workflow.info().continued_run_id and workflow.patched("pool-meets-again"):
        p.s.searched = False  # a run that somebody has reset to its first task only knows what was before it
    await lost.meet(p)
    members.again(p)
    if p.s.news is None:
        p.deadlines["news"] = workflow.now() + PATIENCE
    while not p.over:
        await p.collect()
        await lost.meet_again(p)
        await p.renew_if_due()
        if p.winding_up:
            await p.until(lambda: p.renewal_due or p.call_over, NEVER)
            continue
        p.news = False
        _timers(p)
        neighbours.register(p)
        neighbours.report(p)
        decide(p)
        _template(p)
        carry_out.mark(p)
        await p.until(lambda: p.news or p.over or p.winding_up or p.call_over)
    await _leave(p)


# -- planning ---------------------------------------------------------------------------------------------------------


def decide(p: PoolEntity) -> None:
    """Plans and carries out until nothing is left to do now. A plan that is carried out and made again comes to
    nothing, so this ends; each deletion's signal is on its way before the next plan."""
    s = p.s
    if s.expected:
        return  # which machines are there is not known yet
    if s.news is None and "news" in p.deadlines:
        words = f"waiting for cluster {s.cluster} to say whether it is paused and reachable"
        p.waits_for("ClusterSilent", words)
        return
    steps: list[Step] = []
    for _ in range(PLANS_IN_A_TASK):
        now = workflow.now()
        p.looked_at += len(s.members)
        s.pace = brake.follow(p.observed(), p.spec, now)
        s.rollout = progress.follow(p.observed(), p.spec, now)
        made = plan(p.observed(), p.spec, now)
        if not made.steps:
            p.plans = 0
            break
        p.plans += 1
        if p.plans > MOST_PLANS:
            raise RuntimeError(f"{MOST_PLANS} plans in a row, and still something to do: {made.steps[0].message}")
        for step in made.steps:
            carry_out.carry_out(p, step)
        s.rollout = progress.lose(s.rollout, made.steps, s.members, p.braked)
        steps += made.steps
    else:
        p.deadlines["more"] = now + timedelta(milliseconds=10)  # the rest in a task of its own
    _wait(p, made, now)
    story.follow(p, steps)


def _wait(p: PoolEntity, made: Plan, now: datetime) -> None:
    """Records what is not done now, and since when; the journal gets a line for each new wait. Lists show the first
    one: that machines are kept for a look is no trouble, and comes last."""
    s = p.s
    since = {w.reason: w.since for w in s.waits}
    for wait in made.waits:
        if wait.reason not in since:
            p.note(wait.reason, wait.message)
    s.waits = [FleetWait(reason=w.reason, message=w.message, since=since.get(w.reason, now)) for w in made.waits]
    unsaid = s.unseen and all(w.reason != "Unreachable" for w in s.waits)
    if unsaid and workflow.patched("pool-says-unseen"):
        words = f"{s.unseen}; nothing is replaced on stale information"
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
    if p.failure and "check" in p.deadlines:
        s.waits.append(p.trouble_of(since.get("PoolCallFailed", now)))
    s.waits.sort(key=lambda w: w.reason == "FailedPreserved")
    if made.next_look is None:
        p.deadlines.pop("look", None)
    else:
        p.deadlines["look"] = made.next_look


def _template(p: PoolEntity) -> None:
    s, now = p.s, workflow.now()
    if s.deleted or not s.revisions:
        p.deadlines.pop("told", None)
        return
    s.told = {n: at for n, at in s.told.items() if n in s.members and s.members[n].template < s.template}
    there = {n: m for n, m in s.members.items() if n not in s.unstarted and n not in s.lost}
    paused = s.expected or (s.news is not None and s.news.paused)
    names = [] if paused else hot.to_tell(there, s.told, s.template, min(concurrency_of(s.annotations), AT_ONCE), now)
    if names:
        s.told |= dict.fromkeys(names, now)
        members.template(p, names)
    look = hot.next_look(there, s.told, s.template, now)
    if look is None:
        p.deadlines.pop("told", None)
    else:
        p.deadlines["told"] = look


# -- timers ------------------------------------------------------------------------------------------------------------


def _timers(p: PoolEntity) -> None:
    for name in ("look", "told", "news", "more"):
        if p.due(name):
            del p.deadlines[name]
    if p.due("check"):
        del p.deadlines["check"]
        p.later.clear()
        p.failure = ""
        members.again(p)
    lost.expect(p)
    lost.count(p)


# -- the end ----------------------------------------------------------------------------------------------------------


async def _leave(p: PoolEntity) -> None:
    """Ends the pool. Nothing is left: the last story is told to its end, then class and cluster forget the pool, so
    that no word still on its way makes it known again."""
    s = p.s
    s.waits = []
    p.later.clear()
    story.follow(p, ())
    await _settle(p)
    while True:
        forgotten: list[None] = []
        p.start(
            PoolActivities.forget_pool,
            ForgetPoolInput(cluster=s.cluster, name=s.name, classes=s.classes),
            queue=workflow_queue(s.queue_prefix),
            summary="sign the pool off from its class and cluster",
            done=forgotten.append,
        )
        await _settle(p)
        if forgotten:
            break
        await p.patience()
    p.deadlines.clear()
    await workflow.wait_condition(workflow.all_handlers_finished)


async def _settle(p: PoolEntity) -> None:
    """Waits until nothing is under way, and each story is told."""
    while True:
        await p.collect()
        story.tell(p, p.view())
        if p.quiet:
            return
        signals = len(p.signals)
        await p.until(partial(_moved, p, signals), NEVER)


def _moved(p: PoolEntity, signals: int) -> bool:
    return len(p.signals) < signals or p.call_over
