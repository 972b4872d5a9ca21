"""The neighbours of an owner of machines: its cluster and its class."""

from __future__ import annotations

import hashlib
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
    from resources.maintenance import Opening
    from resources.names import workflow_queue

CLASS, REGISTER = "class", "register"
"""What is not tried again before the next check."""


def register(fleet: FleetEntity) -> None:
    """Registers the owner: the cluster sends its news to owners that it knows."""
    state = fleet.s
    if state.registered or REGISTER in fleet.later:
        return
    state.registered = True
    fleet.start(
        MemberActivities.register_pool,
        fleet.ref,
        queue=workflow_queue(state.queue_prefix),
        summary=f"tell cluster {state.cluster} of {fleet.owner}",
        failed=partial(_not_registered, fleet),
    )


def _not_registered(fleet: FleetEntity) -> None:
    fleet.s.registered = False
    fleet.later.add(REGISTER)


# -- the class --------------------------------------------------------------------------------------------------------


async def ask_class(fleet: FleetEntity) -> None:
    """Asks for the class of an owner that was started without one, as a machine does."""
    state = fleet.s
    if state.machine_class is not None:
        fleet.take_class(state.machine_class, state.requested_by, state.reason)
        return
    name = fleet.class_name
    fleet.waits_for(
        "ClassMissing", f"it was created without its class and asks MachineClass {name} of cluster {state.cluster}"
    )
    handle = workflow.start_activity_method(
        ClassActivities.ask_class,
        ClassId(cluster=state.cluster, name=name),
        task_queue=workflow_queue(state.queue_prefix),
        start_to_close_timeout=state.timings.call_timeout,
        heartbeat_timeout=state.timings.heartbeat,
        retry_policy=poller(state.timings.poll),
        summary=f"ask class {name} for its spec",
    )
    await fleet.until(
        lambda: handle.done() or state.machine_class is not None or state.deleted or fleet.renewal_due, NEVER
    )
    if state.machine_class is not None or state.deleted or not handle.done():
        fleet.drop(handle)
        await fleet.renew_if_due()
        return
    try:
        fleet.take_class(await handle, state.requested_by, state.reason)
    except ActivityError as e:
        fleet.failed(failure_of(e))
        await fleet.patience(lambda: state.machine_class is not None or state.deleted)


def report(fleet: FleetEntity) -> None:
    """Reports to the class, which then knows the owner as a user and tells it every change."""
    state, name = fleet.s, fleet.class_name
    generation = state.machine_class.generation if state.machine_class else 0
    spans = fleet.openings()
    openings = None if spans is None else list(spans)
    said = f"{name} {generation}{_digest(openings)}"
    if (state.class_told == said and state.classes == [name]) or CLASS in fleet.later or fleet.reporting:
        return
    left = [ClassId(cluster=state.cluster, name=c) for c in state.classes if c != name]
    state.classes, fleet.reporting = (
        list(dict.fromkeys([*state.classes, name])),
        True,
    )  # it may be known there from now on
    fleet.start(
        ClassActivities.report_to_class,
        ReportInput(
            machine_class=ClassId(cluster=state.cluster, name=name),
            left=left,
            report=ClassReport(
                user=fleet.owner.user,
                generation=generation,
                applied=0,  # an owner carries nothing; its machines tell what they carry
                state=UpdateState.UPDATED,
                openings=openings,
                time=workflow.now(),
            ),
        ),
        queue=workflow_queue(state.queue_prefix),
        summary=f"tell class {name}: generation {generation}",
        done=partial(_told, fleet, said, [c.name for c in left]),
        failed=partial(_not_told, fleet),
    )


def _digest(openings: list[Opening] | None) -> str:
    """Tells one from another; "" for those that may always be changed, as before there were windows."""
    if openings is None:
        return ""
    text = " ".join(f"{o.begin.isoformat()}/{o.end.isoformat()}" for o in openings)
    return f" {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _told(fleet: FleetEntity, said: str, left: list[str], _: bool) -> None:
    """One report at a time: of two on their way, the later one need not arrive last."""
    fleet.reporting = False
    fleet.s.class_told = said
    fleet.s.classes = [c for c in fleet.s.classes if c not in left]


def _not_told(fleet: FleetEntity) -> None:
    fleet.reporting = False
    fleet.later.add(CLASS)
