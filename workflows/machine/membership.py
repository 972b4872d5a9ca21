"""A machine and its pool: what the machine tells, the permit that it asks for, the template that it takes.

The pool alone plans; the machine says how it is. A report is a whole snapshot with a number, so that the newest counts.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.machine import preserve
from workflows.machine.entity import MachineEntity
from workflows.machine.record import CONTRADICTIONS

with workflow.unsafe.imports_passed_through():
    from planners.machine.membership import (
        digest_of,
        mark_of,
        report_of,
        template_applied,
        with_revision,
        without_its_node,
    )
    from resources.base import later, read_time
    from resources.fleet.membership import MemberReport, TemplateNews
    from resources.machine.facts import NodeFacts
    from resources.machine.manifest import MachineSpec
    from resources.machine.state import OperationState, OperationType
    from resources.names import MARKED_ANNOTATION
    from resources.orders import in_ms

# -- reports ----------------------------------------------------------------------------------------------------------


def tell(machine: MachineEntity, *, again: bool = False) -> None:
    """Reports to the pool when there is something new to say, or, with `again`, because the pool does not know the
    machine. Nobody waits for it here."""
    state = machine.s
    if state.owner is None or state.created is None or machine.told_all:
        return
    state.template_applied = template_applied(state)
    report = report_of(state)
    if report.contradicted and not workflow.patched(CONTRADICTIONS):
        report = report.model_copy(update={"contradicted": False})
    if (shorter := without_its_node(report)) != report and workflow.patched("place-by-phase"):
        report = shorter
    digest = digest_of(report)
    if again:
        report = with_revision(report, state)
    elif digest == state.told_pool:
        return
    state.told_pool, state.failures_told = digest, state.create_failures
    _send(machine, report)


async def tell_the_end(m: MachineEntity) -> None:
    """Tells the pool that nothing is left. This last report must arrive before the workflow ends: Temporal drops what a
    closed one was about to send."""
    if m.s.owner is not None:
        _send(m, report_of(m.s, ended=True))
        m.told_all = True
        await workflow.wait_condition(lambda: not m.telling)


def _send(m: MachineEntity, report: MemberReport) -> None:
    """Sends a report with the time as its number. A pool never takes a number twice, and it may have heard more than
    this run knows of: from a run that was reset, from the former life of an adopted machine, or from another sender.
    Nobody sends more than one a millisecond for long."""
    m.s.reports = max(m.s.reports + 1, in_ms(workflow.now()))
    task = asyncio.create_task(_signal(m, report.model_copy(update={"seq": m.s.reports})))
    m.telling.add(task)
    task.add_done_callback(m.telling.discard)


async def _signal(m: MachineEntity, report: MemberReport) -> None:
    assert m.s.owner is not None
    owner = workflow.get_external_workflow_handle(m.s.owner.workflow_id(m.s.cluster))
    try:
        await owner.signal("report", report)
    except FailureError:  # an absent owner is no error; one that comes back hears it with the next change
        m.s.told_pool = ""
        if report.failure is not None:
            m.s.failures_told = min(m.s.failures_told, report.failures - 1)


# -- what stands on the Node ------------------------------------------------------------------------------------------


def take_node(machine: MachineEntity, facts: NodeFacts) -> None:
    """Takes what the watch or a look saw of the Node, with the mark that somebody may have set on it."""
    state = machine.s
    preserve.take_node(machine, facts)
    before, state.node = state.node, facts
    _twins(machine, before, facts)
    _writable(machine, facts)
    if state.owner is None or not facts.exists:
        return
    former, state.mark = state.mark, mark_of(facts.annotations, state.mark, workflow.now())
    if state.mark is not None and state.mark != former and read_time(state.mark.text) is None:
        words = (
            f"{state.mark.text!r} is not an RFC 3339 time like 2026-01-31T12:00:00Z; the machine counts as marked from "
            "now on"
        )
        machine.note("MarkUnreadable", f"annotation {MARKED_ANNOTATION} of node {facts.name}: {words}")


def _twins(machine: MachineEntity, former: NodeFacts | None, facts: NodeFacts) -> None:
    """Notes Nodes with the same providerID. A kubelet that has registered under another hostname leaves its former
    Node; or two VMs share a providerID. For a machine that does not know its VM yet, nobody can say that they are its
    own."""
    if not (facts.exists and facts.twins and machine.status.provider_id):
        machine.drop_condition("DuplicateNode")
        return
    others = " and ".join(facts.twins)
    words = f"nodes {facts.name} and {others} have the providerID of this machine's VM; {facts.name} counts"
    machine.condition("DuplicateNode", "DuplicateNode", words)
    if former is None or (former.name, former.twins) != (facts.name, facts.twins):
        machine.note("DuplicateNode", words)
        machine.tell()


def _writable(m: MachineEntity, facts: NodeFacts) -> None:
    """Notes what the watch could not write on the Node, and whether it can now. A fresh look does not know."""
    there = any(c.type == "NodeUnwritable" for c in m.status.conditions)
    if facts.unwritable and not there:
        words = f"node {facts.name} cannot be written; it is tried again: {facts.unwritable}"
        m.condition("NodeUnwritable", "NodeUnwritable", words)
        m.note_news("NodeUnwritable", words)
    elif there and not facts.unwritable and facts.epoch:
        m.drop_condition("NodeUnwritable")


# -- the permit to be Failed ------------------------------------------------------------------------------------------


def must_ask(m: MachineEntity, vm_state: str) -> bool:
    """Whether a machine that two looks found ill needs its pool's permit. If its VM is gone there is nothing left to
    decide."""
    return m.s.owner is not None and not m.s.permitted and vm_state != "gone"


def ask(machine: MachineEntity, found: str) -> None:
    """Asks for the permit. The machine stays Unknown until the pool gives it, and looks again from time to time
    whether it still has to ask. The first of the two looks is kept: the fresh look that follows the permit is then the
    second."""
    s = machine.s
    again = later(workflow.now(), max(s.spec.health_timeout, s.timings.confirm))
    machine.deadlines["confirm"] = again
    if not s.asks_permit:
        s.asks_permit = True
        words = _asking(machine, found)
        machine.note("RepairPermit", words)
        machine.tell()
        machine.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, words)
    wait_for_permit(machine, found)


def wait_for_permit(m: MachineEntity, found: str) -> None:
    words = _asking(m, found)
    m.waiting("RepairPermit", words, m.deadlines["confirm"])


def _asking(m: MachineEntity, found: str) -> str:
    return f"unhealthy for healthTimeout ({m.health_timeout}): {found}; waiting for a permit from {m.s.owner}"


def withdraw(m: MachineEntity) -> None:
    """Takes the question back: it no longer has to be Failed. A permit that it had is given back."""
    m.s.asks_permit = m.s.permitted = False


def permitted(m: MachineEntity, reason: str) -> None:
    """Takes a permit; a fresh look decides at once. A permit that comes unasked, or twice, changes nothing."""
    s = m.s
    if m.leaving or not s.asks_permit or s.permitted:
        return
    s.permitted = True
    m.deadlines["confirm"] = workflow.now()
    m.note("RepairPermitted", f"{s.owner}: {reason}" if reason else f"by {s.owner}")


# -- the template -----------------------------------------------------------------------------------------------------


def template_of(m: MachineEntity, news: TemplateNews) -> MachineSpec | None:
    """The spec as the template has it now, except for the class, which is the revision's. None for an old one, and for
    a machine that leaves: its deadlines no longer move."""
    s = m.s
    if s.owner is None or s.deletion is not None or not m.is_newer(news.generation, s.template):
        return None
    given = news.template.spec.model_dump(by_alias=True)
    own = {"class": s.spec.class_, "providerID": s.spec.provider_id}
    return MachineSpec.model_validate({**given, **own})
