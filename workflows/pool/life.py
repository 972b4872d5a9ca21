"""The loop of a pool: plan, carry out, and wait for news."""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow

from workflows.entity import NEVER
from workflows.pool import carry_out, neighbours, story
from workflows.pool.entity import PATIENCE, PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.pools import PoolActivities
    from planners.pool import brake, progress
    from planners.pool import template as hot
    from planners.pool.plan import Plan, plan
    from planners.pool.steps import Step, named, some
    from resources.machine_class import concurrency_of
    from resources.membership import MembersFound
    from resources.names import workflow_queue
    from resources.pool import PoolWait

AT_ONCE = 500
"""Machines that are told of a template at the same time, whatever the annotation says: each is remembered by name."""
CENSUS = timedelta(minutes=30)
"""Between two looks for machines whose workflow was ended from outside: they cannot tell it."""
PLANS_IN_A_TASK = 10
"""A worker is told that it hangs when a task takes two seconds."""
MOST_PLANS = 200
"""In a row: 5,000 machines are deleted in 50. More would be an error of the planner's, and is stopped as one."""


async def live(p: PoolEntity) -> None:
    """Until the pool is deleted and nothing is left of it."""
    p.bounded = workflow.patched("pool-replayable")
    while not (p.s.revisions or p.s.deleted):
        await neighbours.ask_class(p)
    if workflow.info().continued_run_id and workflow.patched("pool-meets-again"):
        p.s.searched = False  # a run that somebody has reset to its first task knows only what was before it
    await neighbours.meet(p)
    carry_out.again(p)
    if p.s.news is None:
        p.deadlines["news"] = workflow.now() + PATIENCE
    while not p.over:
        await p.collect()
        await neighbours.meet_again(p)
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
    await neighbours.leave(p)


# -- planning ---------------------------------------------------------------------------------------------------------


def decide(p: PoolEntity) -> None:
    """Plan and carry out until nothing is left to do now. A plan carried out and made again comes to nothing, so this
    ends; who is deleted has its signal on the way before the next plan."""
    s = p.s
    if s.expected:
        return  # who is there is not known yet
    if s.news is None and "news" in p.deadlines:
        words = f"the workflow of cluster {s.cluster} was asked whether the cluster is paused and can be seen"
        s.waits = [PoolWait(reason="ClusterSilent", message=words, since=p.since("ClusterSilent"))]
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
            raise RuntimeError(f"{MOST_PLANS} plans, and still something to do: {made.steps[0].message}")
        for step in made.steps:
            carry_out.carry_out(p, step)
        s.rollout = progress.lose(s.rollout, made.steps, s.members, p.braked)
        steps += made.steps
    else:
        p.deadlines["more"] = now + timedelta(milliseconds=10)  # the rest in a task of its own
    _wait(p, made, now)
    story.follow(p, steps)


def _wait(p: PoolEntity, made: Plan, now: datetime) -> None:
    """What is not done now, with since when; the journal gets a line for each new one. The first one is shown in
    lists: that machines are kept for a look is no trouble, and comes last."""
    s = p.s
    since = {w.reason: w.since for w in s.waits}
    for wait in made.waits:
        if wait.reason not in since:
            p.note(wait.reason, wait.message)
    s.waits = [PoolWait(reason=w.reason, message=w.message, since=since.get(w.reason, now)) for w in made.waits]
    unsaid = s.unseen and all(w.reason != "Unreachable" for w in s.waits)
    if unsaid and workflow.patched("pool-says-unseen"):
        words = f"{s.unseen}; nothing is replaced on old news"
        s.waits.append(PoolWait(reason="Unreachable", message=words, since=since.get("Unreachable", now)))
    if s.lost:
        lost = named([f"{name} ({status})" for name, status in sorted(s.lost.items())])
        words = (
            f"ended from outside, and their VMs count: the workflows of {some(len(s.lost))}: {lost}; "
            f"hostler adopt machine {min(s.lost)} --cluster {s.cluster}"
        )
        s.waits.append(PoolWait(reason="MemberLost", message=words, since=since.get("MemberLost", now)))
    if not s.waits and (leaving := sorted(n for n, m in s.members.items() if m.leaving)):
        words = f"{some(len(leaving))} on the way out, until nothing is left of them: {named(leaving)}"
        s.waits.append(PoolWait(reason="MachinesLeaving", message=words, since=since.get("MachinesLeaving", now)))
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
        carry_out.template(p, names)
    look = hot.next_look(there, s.told, s.template, now)
    if look is None:
        p.deadlines.pop("told", None)
    else:
        p.deadlines["told"] = look


# -- timers ------------------------------------------------------------------------------------------------------------


def _timers(p: PoolEntity) -> None:
    s, now = p.s, workflow.now()
    for name in ("look", "told", "news", "more"):
        if p.due(name):
            del p.deadlines[name]
    if p.due("check"):
        del p.deadlines["check"]
        p.later.clear()
        p.failure = ""
        carry_out.again(p)
    neighbours.expect(p)
    if "census" not in p.deadlines:
        p.deadlines["census"] = now + CENSUS
    elif p.due("census"):
        p.deadlines["census"] = now + CENSUS
        s.registered = False  # the cluster's workflow may be another one by now
        p.start(
            PoolActivities.find_members,
            p.ref,
            queue=workflow_queue(s.queue_prefix),
            summary="look for machines whose workflow was ended from outside",
            done=lambda found: _missing(p, found),
        )


def _missing(p: PoolEntity, found: MembersFound) -> None:
    """Visibility is late, and decides nothing: those that it does not list are looked at one by one."""
    known = set(found.names) | set(p.s.unstarted)
    if missing := sorted(set(p.s.members) - known):
        carry_out.ask(p, missing)
    if strangers := sorted(set(found.names) - set(p.s.members)):
        carry_out.ask(p, strangers)
