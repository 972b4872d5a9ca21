"""The loop of a pool: plan, carry out, and wait for news; and the looks at what cannot tell of itself any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of, poller
from workflows.entity import NEVER
from workflows.pool import carry_out, story
from workflows.pool.entity import PoolEntity
from workflows.pool.revise import take_class

with workflow.unsafe.imports_passed_through():
    from activities.classes import ClassActivities
    from activities.pools import PoolActivities
    from planners.pool import progress
    from planners.pool import template as hot
    from planners.pool.plan import Plan, plan
    from planners.pool.steps import Step, named, some
    from resources.machine_class import ClassRef, ClassReport, ReportInput, UpdateState, concurrency_of
    from resources.membership import ForgetPoolInput, MembersFound
    from resources.names import pool_user, workflow_queue
    from resources.pool import PoolWait

AT_ONCE = 500
"""Machines that are told of a template at the same time, whatever the annotation says: each is remembered by name."""
CENSUS = timedelta(minutes=30)
"""Between two looks for machines whose workflow was ended from outside: they cannot tell it."""
PLANS_IN_A_TASK = 10
"""A worker is told that it hangs when a task takes two seconds."""
MOST_PLANS = 200
"""In a row: 5,000 machines are deleted in 50. More would be an error of the planner's, and is stopped as one."""
CLASS, REGISTER = "class", "register"
PATIENCE = timedelta(seconds=30)
"""For machines that were there before, to say how they are; and for the cluster's first news."""


async def live(p: PoolEntity) -> None:
    """Until the pool is deleted and nothing is left of it."""
    while not (p.s.revisions or p.s.deleted):
        await _ask_class(p)
    await _meet(p)
    carry_out.again(p)
    if p.s.news is None:
        p.deadlines["news"] = workflow.now() + PATIENCE
    while not p.over:
        await p.collect()
        await p.renew_if_due()
        if p.winding_up:
            await p.until(lambda: p.renewal_due or _done(p), NEVER)
            continue
        p.news = False
        _timers(p)
        _register(p)
        _report(p)
        decide(p)
        _template(p)
        carry_out.mark(p)
        await p.until(lambda: p.news or p.over or p.winding_up or _done(p))
    await _leave(p)


def _done(p: PoolEntity) -> bool:
    """A call is over."""
    return any(d.handle.done() for d in p.deeds)


# -- planning ---------------------------------------------------------------------------------------------------------


def decide(p: PoolEntity) -> None:
    """Plan and carry out until nothing is left to do now. A plan carried out and made again comes to nothing, so this
    ends; who is deleted has its signal on the way before the next plan."""
    s = p.s
    if s.expected:
        return  # who is there is not known yet
    if s.news is None and "news" in p.deadlines:
        words = f"the workflow of cluster {s.cluster} was asked whether the cluster is paused and can be seen"
        s.waits = [PoolWait(reason="ClusterSilent", message=words, since=_since(p, "ClusterSilent"))]
        return
    steps: list[Step] = []
    for _ in range(PLANS_IN_A_TASK):
        now = workflow.now()
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
        s.rollout = progress.lose(s.rollout, made.steps, s.members)
        steps += made.steps
    else:
        p.deadlines["more"] = now + timedelta(milliseconds=10)  # the rest in a task of its own
    _wait(p, made, now)
    story.follow(p, steps)


def _wait(p: PoolEntity, made: Plan, now: datetime) -> None:
    """What is not done now, with since when; the journal gets a line for each new one."""
    s = p.s
    since = {w.reason: w.since for w in s.waits}
    for wait in made.waits:
        if wait.reason not in since:
            p.note(wait.reason, wait.message)
    s.waits = [PoolWait(reason=w.reason, message=w.message, since=since.get(w.reason, now)) for w in made.waits]
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
        s.waits.append(_trouble(p, since.get("PoolCallFailed", now)))
    if made.next_look is None:
        p.deadlines.pop("look", None)
    else:
        p.deadlines["look"] = made.next_look


def _since(p: PoolEntity, reason: str) -> datetime:
    return next((w.since for w in p.s.waits if w.reason == reason), workflow.now())


def _trouble(p: PoolEntity, since: datetime) -> PoolWait:
    words = f"{p.failure}; tried again at {p.deadlines['check']:%Y-%m-%d %H:%M:%S}"
    return PoolWait(reason="PoolCallFailed", message=words, since=since)


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


# -- looks ------------------------------------------------------------------------------------------------------------


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
    _expect(p)
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


async def _meet(p: PoolEntity) -> None:
    """Once: machines of a former workflow of this pool say how they are, so that none is made beside them. Visibility
    that does not answer is waited for."""
    s = p.s
    while not s.searched:
        found: list[MembersFound] = []
        p.start(
            PoolActivities.find_members,
            p.ref,
            queue=workflow_queue(s.queue_prefix),
            summary="machines of this pool that are there already",
            done=found.append,
        )
        await p.until(lambda: _done(p), NEVER)
        await p.collect()
        if found:
            s.searched = True
            s.expected = [n for n in found[0].names if n not in s.members]
            story.end_former(p, found[0].rollouts)
            return
        await _patience(p)


async def _patience(p: PoolEntity, unless: Callable[[], bool] = lambda: False) -> None:
    """Until what has failed is tried again."""
    p.s.waits = [_trouble(p, _since(p, "PoolCallFailed"))]
    await p.until(lambda: p.winding_up or unless(), "check")
    p.deadlines.pop("check", None)
    await p.renew_if_due()
    p.s.waits = []


def _expect(p: PoolEntity) -> None:
    """Those that were found are asked until each has said how it is, or is found to be gone."""
    s, now = p.s, workflow.now()
    if not s.expected:
        p.deadlines.pop("expected", None)
        return
    words = f"{some(len(s.expected))} of a former workflow of this pool did not say yet how it is: {named(s.expected)}"
    s.waits = [PoolWait(reason="MembersSilent", message=words, since=_since(p, "MembersSilent"))]
    if "expected" not in p.deadlines or p.due("expected"):
        p.deadlines["expected"] = now + PATIENCE
        carry_out.ask(p, s.expected)


def _register(p: PoolEntity) -> None:
    """The cluster sends its news to pools that it knows."""
    s = p.s
    if s.registered or REGISTER in p.later:
        return
    s.registered = True
    p.start(
        PoolActivities.register_pool,
        p.ref,
        queue=workflow_queue(s.queue_prefix),
        summary=f"tell cluster {s.cluster} of the pool",
        failed=partial(_not_registered, p),
    )


def _not_registered(p: PoolEntity) -> None:
    p.s.registered = False
    p.later.add(REGISTER)


# -- the class --------------------------------------------------------------------------------------------------------


async def _ask_class(p: PoolEntity) -> None:
    """A pool that was started without a class asks for it, like a machine."""
    s = p.s
    if s.machine_class is None:
        name = s.spec.template.spec.class_.name
        words = f"it was started without a class and asks MachineClass {name} of cluster {s.cluster}"
        s.waits = [PoolWait(reason="ClassMissing", message=words, since=workflow.now())]
        handle = workflow.start_activity_method(
            ClassActivities.ask_class,
            ClassRef(cluster=s.cluster, name=name),
            task_queue=workflow_queue(s.queue_prefix),
            start_to_close_timeout=s.timings.call_timeout,
            heartbeat_timeout=s.timings.heartbeat,
            retry_policy=poller(s.timings.poll),
            summary=f"ask class {name} for its spec",
        )
        await p.until(lambda: handle.done() or s.machine_class is not None or s.deleted or p.renewal_due, NEVER)
        if s.machine_class is not None or s.deleted or not handle.done():
            p.drop(handle)
            await p.renew_if_due()
            return
        try:
            take_class(p, await handle, s.requested_by, s.reason)
        except ActivityError as e:
            p.failed(failure_of(e))
            await _patience(p, lambda: s.machine_class is not None or s.deleted)
        return
    take_class(p, s.machine_class, s.requested_by, s.reason)


def _report(p: PoolEntity) -> None:
    """The class knows the pool as a user, and tells it every change."""
    s = p.s
    name = s.spec.template.spec.class_.name
    generation = s.machine_class.generation if s.machine_class else 0
    said = f"{name} {generation}"
    if (s.class_told == said and s.classes == [name]) or CLASS in p.later or p.reporting:
        return
    left = [ClassRef(cluster=s.cluster, name=c) for c in s.classes if c != name]
    s.classes, p.reporting = list(dict.fromkeys([*s.classes, name])), True  # it may be known there from now on
    p.start(
        ClassActivities.report_to_class,
        ReportInput(
            machine_class=ClassRef(cluster=s.cluster, name=name),
            left=left,
            report=ClassReport(
                user=pool_user(s.name),
                generation=generation,
                applied=0,  # a pool carries nothing; its machines tell what they carry
                state=UpdateState.UPDATED,
                time=workflow.now(),
            ),
        ),
        queue=workflow_queue(s.queue_prefix),
        summary=f"tell class {name}: generation {generation}",
        done=partial(_told, p, said, [c.name for c in left]),
        failed=partial(_not_told, p),
    )


def _told(p: PoolEntity, said: str, left: list[str], _: bool) -> None:
    """One report at a time: of two on their way, what the later one says need not be the last."""
    p.reporting = False
    p.s.class_told = said
    p.s.classes = [c for c in p.s.classes if c not in left]


def _not_told(p: PoolEntity) -> None:
    p.reporting = False
    p.later.add(CLASS)


async def _leave(p: PoolEntity) -> None:
    """Nothing is left: the last story is told to the end, then class and cluster forget the pool, so that no word that
    is on its way makes it known again."""
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
            summary="class and cluster forget the pool",
            done=forgotten.append,
        )
        await _settle(p)
        if forgotten:
            break
        await _patience(p)
    p.deadlines.clear()
    await workflow.wait_condition(workflow.all_handlers_finished)


async def _settle(p: PoolEntity) -> None:
    """Until nothing is under way, and each story is told."""
    while True:
        await p.collect()
        story.tell(p)
        if p.quiet:
            return
        signals = len(p.signals)
        await p.until(partial(_moved, p, signals), NEVER)


def _moved(p: PoolEntity, signals: int) -> bool:
    return len(p.signals) < signals or _done(p)
