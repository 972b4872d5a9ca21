"""Whom a pool has to do with beside its machines: its former workflow's machines, its cluster, its class."""

from __future__ import annotations

from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of, poller
from workflows.entity import NEVER
from workflows.pool import carry_out, story
from workflows.pool.entity import PATIENCE, PoolEntity
from workflows.pool.revise import take_class

with workflow.unsafe.imports_passed_through():
    from activities.temporal.classes import ClassActivities
    from activities.temporal.pools import PoolActivities
    from planners.pool.steps import named, some
    from resources.machine_class import ClassRef, ClassReport, ReportInput, UpdateState
    from resources.membership import ForgetPoolInput, MembersFound
    from resources.names import pool_user, workflow_queue
    from resources.pool import PoolWait

CLASS, REGISTER = "class", "register"
"""What is not tried again before the next check."""


async def meet(p: PoolEntity) -> None:
    """Once: machines of a former workflow of this pool say how they are, so that none is made beside them. Visibility
    that does not answer is waited for."""
    s = p.s
    while not s.searched:
        found: list[MembersFound] = []
        failed: list[bool] = []
        p.start(
            PoolActivities.find_members,
            p.ref,
            queue=workflow_queue(s.queue_prefix),
            summary="machines of this pool that are there already",
            done=found.append,
            failed=partial(failed.append, True),
        )
        while not (found or failed):
            await p.until(lambda: p.call_over, NEVER)
            await p.collect()
        if found:
            s.searched = True
            s.expected = list(dict.fromkeys(n for n in (*s.expected, *found[0].names) if n not in s.members))
            story.end_former(p, [n for n in found[0].rollouts if n not in s.stories])
            return
        await p.patience()


async def meet_again(p: PoolEntity) -> None:
    """After a reset: machines that the pool has made since then are there, and it knows nothing of them. A call that
    was under way when it was reset has come to its end, and visibility knows of what it made."""
    if not p.was_reset:
        return
    p.was_reset, p.s.searched = False, False
    p.note("Reset", "the workflow was reset; machines that were made since then are looked for")
    await workflow.sleep(p.s.timings.heartbeat, summary="what was under way before the reset")
    await meet(p)


def expect(p: PoolEntity) -> None:
    """Those that were found are asked until each has said how it is, or is found to be gone."""
    s, now = p.s, workflow.now()
    if not s.expected:
        p.deadlines.pop("expected", None)
        return
    words = f"{some(len(s.expected))} of a former workflow of this pool did not say yet how it is: {named(s.expected)}"
    s.waits = [PoolWait(reason="MembersSilent", message=words, since=p.since("MembersSilent"))]
    if "expected" not in p.deadlines or p.due("expected"):
        p.deadlines["expected"] = now + PATIENCE
        carry_out.ask(p, s.expected)


def register(p: PoolEntity) -> None:
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


async def ask_class(p: PoolEntity) -> None:
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
            await p.patience(lambda: s.machine_class is not None or s.deleted)
        return
    take_class(p, s.machine_class, s.requested_by, s.reason)


def report(p: PoolEntity) -> None:
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


# -- the end ----------------------------------------------------------------------------------------------------------


async def leave(p: PoolEntity) -> None:
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
        await p.patience()
    p.deadlines.clear()
    await workflow.wait_condition(workflow.all_handlers_finished)


async def _settle(p: PoolEntity) -> None:
    """Until nothing is under way, and each story is told."""
    while True:
        await p.collect()
        story.tell(p, p.view())
        if p.quiet:
            return
        signals = len(p.signals)
        await p.until(partial(_moved, p, signals), NEVER)


def _moved(p: PoolEntity, signals: int) -> bool:
    return len(p.signals) < signals or p.call_over
