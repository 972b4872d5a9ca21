"""A machine that was started without a class asks for it: a person may start one with a few words of JSON."""

from __future__ import annotations

from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.classes import ClassActivities
    from resources.machine.state import ClassSnapshot
    from resources.machine_class.state import ClassId
    from resources.names import workflow_queue


async def ask(machine: MachineEntity) -> None:
    """Ends with a snapshot, with the machine Failed at its creation deadline, or with a deletion wanted."""
    state = machine.s
    name = state.spec.class_.name
    while state.machine_class is None and not (machine.leaving or machine.failed_at_deadline()):
        machine.waiting(
            "ClassMissing", f"it was created without its class and asks MachineClass {name} of cluster {state.cluster}"
        )
        handle = machine.start(
            ClassActivities.ask_class,
            ClassId(cluster=state.cluster, name=name),
            queue=workflow_queue(state.queue_prefix),
            summary=f"ask class {name} for its spec",
            polls=True,
        )
        await machine.until(partial(_answered, machine, handle), "creation")
        if state.machine_class is not None or not handle.done():
            machine.drop(handle)
            if machine.overlong:
                await machine.renew()
            continue
        try:
            state.machine_class = await handle
        except ActivityError as e:
            await machine.back_off(failure_of(e), unless=lambda: state.machine_class is not None)
        else:
            machine.note("ClassTaken", f"class {name}, generation {state.machine_class.generation}")


def _answered(m: MachineEntity, handle: workflow.ActivityHandle[ClassSnapshot]) -> bool:
    """Whether the wait is over: by the class's answer, an `apply` that brings one, or whatever ends the asking or this
    run."""
    return handle.done() or m.leaving or m.s.machine_class is not None or m.overlong
