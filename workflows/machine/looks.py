"""Two fresh reads side by side: a machine's Node with its kubelet's Lease, and its VM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Failure, Urgency, failure_of
from workflows.machine import membership
from workflows.machine.entity import Looking, MachineEntity

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from activities.cluster.node import NodeActivities
    from resources.calls.cloud import VmLook, VmLookInput
    from resources.calls.cluster import LookInput, NodeLook
    from resources.machine.facts import NodeFacts
    from resources.names import cluster_queue

T = TypeVar("T")

OVERTAKEN = "looks-overtaken"
"""The patch by which a look during which the watch tells something of the Node does not count: nobody can say which of
the two is newer, and what the watch has told it does not tell again."""


@dataclass(frozen=True)
class Seen:
    """What the looks answered, or why they did not."""

    node: NodeLook | Failure
    vm: VmLook | Failure


def begin(machine: MachineEntity, diagnose: bool = False, joining: bool = False) -> Looking:
    state = machine.s
    why: dict[str, Any] = {}
    if joining and state.attempt is not None:
        why = {
            "attempt": state.attempt.number,
            "node_name": machine.status.node_name,
            "deadline": machine.must_be_running_by,
        }
    name = machine.status.node_name
    node = machine.start(
        NodeActivities.look_at_node,
        LookInput(
            machine=machine.ref,
            node_name=state.node.name if state.node else name,
            provider_id=machine.status.provider_id or "",
            node_uid=state.joined_uid or "",
        ),
        queue=cluster_queue(state.cluster, state.queue_prefix),
        summary=f"fresh look at node {name or 'of this VM'} and its Lease",
    )
    vm = machine.start(
        MachineActivities.look_at_vm,
        VmLookInput(target=machine.target(), diagnose=diagnose, **why),
        queue=machine.cloud,
        summary=f"fresh look at {machine.status.provider_id}",
        urgency=Urgency.POLL,
    )
    return Looking(node, vm, state.node)


async def look(m: MachineEntity, diagnose: bool = False, joining: bool = False) -> Seen | None:
    """Both looks; None when a deletion was requested meanwhile. Looks that news has overtaken are taken once more."""
    looking = await _over(m, begin(m, diagnose, joining))
    if looking is not None and overtaken(m, looking):
        looking = await _over(m, begin(m, diagnose, joining))
    return None if looking is None else seen(m, looking)


async def _over(m: MachineEntity, looking: Looking) -> Looking | None:
    leaving, deletion = m.leaving, m.s.deletion
    await m.beside(lambda: looking.over or m.leaving != leaving or m.s.deletion != deletion)
    if looking.over:
        return looking
    m.drop(looking.node)
    m.drop(looking.vm)
    return None


def overtaken(m: MachineEntity, looking: Looking) -> bool:
    """Whether the watch has told something of the Node since these looks began."""
    return m.s.node is not looking.known and workflow.patched(OVERTAKEN)


def seen(m: MachineEntity, looking: Looking) -> Seen:
    """What looks that are over have answered."""
    found = Seen(_answer(looking.node), _answer(looking.vm))
    if isinstance(found.vm, VmLook):
        m.s.account_id = found.vm.account_id or m.s.account_id
    return found


def _answer(handle: workflow.ActivityHandle[T]) -> T | Failure:
    try:
        return handle.result()
    except ActivityError as e:
        return failure_of(e)


def take_node(machine: MachineEntity, facts: NodeFacts) -> None:
    """Takes a look's Node as news of the same moment as the newest that the watch told, so that whatever the watch
    tells next is newer. A look that finds something else restarts the order: what was told before may have been a lie,
    and the liar may have given it a number that the watch never reaches."""
    former = machine.s.node
    if not facts.exists and former is None:
        return
    if former is not None:
        name = facts.name or former.name
        known: dict[str, Any] = {
            "name": name,
            "twins": sorted({former.name, *former.twins} - {name}) if former.twins else [],  # a look is of one
            "unwritable": former.unwritable if facts.exists else "",  # nor does it write
        }
        if facts.says == former.says:
            known |= {"epoch": former.epoch, "seq": former.seq}
        facts = facts.model_copy(update=known)
    membership.take_node(machine, facts)
