"""The neighbours of an owner of machines: its cluster and its class."""

from __future__ import annotations

from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of, poller
from workflows.entity import NEVER
from workflows.fleet.entity import FleetEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.classes import ClassActivities
    from activities.temporal.members import MemberActivities
    from resources.machine_class.state import ClassId, ClassReport, ReportInput, UpdateState
    from resources.names import workflow_queue

CLASS, REGISTER = "class", "register"
"""What is not tried again before the next check."""


def register(f: FleetEntity) -> None:
    """Registers the owner: the cluster sends its news to owners that it knows."""
    s = f.s
    if s.registered or REGISTER in f.later:
        return
    s.registered = True
    f.start(
        MemberActivities.register_pool,
        f.ref,
        queue=workflow_queue(s.queue_prefix),
        summary=f"tell cluster {s.cluster} of {f.owner}",
        failed=partial(_not_registered, f),
    )


def _not_registered(f: FleetEntity) -> None:
    f.s.registered = False
    f.later.add(REGISTER)


# -- the class --------------------------------------------------------------------------------------------------------


async def ask_class(f: FleetEntity) -> None:
    """Asks for the class of an owner that was started without one, as a machine does."""
    s = f.s
    if s.machine_class is not None:
        f.take_class(s.machine_class, s.requested_by, s.reason)
        return
    name = f.class_name
    f.waits_for("ClassMissing", f"it was created without its class and asks MachineClass {name} of cluster {s.cluster}")
    handle = workflow.start_activity_method(
        ClassActivities.ask_class,
        ClassId(cluster=s.cluster, name=name),
        task_queue=workflow_queue(s.queue_prefix),
        start_to_close_timeout=s.timings.call_timeout,
        heartbeat_timeout=s.timings.heartbeat,
        retry_policy=poller(s.timings.poll),
        summary=f"ask class {name} for its spec",
    )
    await f.until(lambda: handle.done() or s.machine_class is not None or s.deleted or f.renewal_due, NEVER)
    if s.machine_class is not None or s.deleted or not handle.done():
        f.drop(handle)
        await f.renew_if_due()
        return
    try:
        f.take_class(await handle, s.requested_by, s.reason)
    except ActivityError as e:
        f.failed(failure_of(e))
        await f.patience(lambda: s.machine_class is not None or s.deleted)


def report(f: FleetEntity) -> None:
    """Reports to the class, which then knows the owner as a user and tells it every change."""
    s, name = f.s, f.class_name
    generation = s.machine_class.generation if s.machine_class else 0
    said = f"{name} {generation}"
    if (s.class_told == said and s.classes == [name]) or CLASS in f.later or f.reporting:
        return
    left = [ClassId(cluster=s.cluster, name=c) for c in s.classes if c != name]
    s.classes, f.reporting = list(dict.fromkeys([*s.classes, name])), True  # it may be known there from now on
    f.start(
        ClassActivities.report_to_class,
        ReportInput(
            machine_class=ClassId(cluster=s.cluster, name=name),
            left=left,
            report=ClassReport(
                user=f.owner.user,
                generation=generation,
                applied=0,  # an owner carries nothing; its machines tell what they carry
                state=UpdateState.UPDATED,
                time=workflow.now(),
            ),
        ),
        queue=workflow_queue(s.queue_prefix),
        summary=f"tell class {name}: generation {generation}",
        done=partial(_told, f, said, [c.name for c in left]),
        failed=partial(_not_told, f),
    )


def _told(f: FleetEntity, said: str, left: list[str], _: bool) -> None:
    """One report at a time: of two on their way, the later one need not arrive last."""
    f.reporting = False
    f.s.class_told = said
    f.s.classes = [c for c in f.s.classes if c not in left]


def _not_told(f: FleetEntity) -> None:
    f.reporting = False
    f.later.add(CLASS)
