"""A machine that was started without a class asks for it: a person may start one with a few words of JSON."""

from __future__ import annotations

from temporalio import workflow

from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from activities.classes import ClassActivities
    from resources.machine_class import ClassRef
    from resources.names import workflow_queue


async def ask(m: MachineEntity) -> None:
    """Ends with a snapshot, with the machine Failed at its creation deadline, or with a deletion wanted."""
    s = m.s
    if s.machine_class is not None or m.leaving:
        return
    name = s.spec.class_.name
    m.waiting("ClassMissing", f"it was started without a class and asks MachineClass {name} of cluster {s.cluster}")
    handle = m.start(
        ClassActivities.ask_class,
        ClassRef(cluster=s.cluster, name=name),
        queue=workflow_queue(s.queue_prefix),
        summary=f"ask class {name} for its spec",
        polls=True,
    )
    await m.until(lambda: handle.done() or m.leaving or s.machine_class is not None, "creation")
    if handle.done() and s.machine_class is None:
        s.machine_class = await handle
        m.note("ClassTaken", f"class {name}, generation {s.machine_class.generation}")
        return
    m.drop(handle)
    if s.machine_class is None:
        m.failed_at_deadline()
