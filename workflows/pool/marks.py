"""The marks of a rollout on the Nodes of machines that it will replace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from temporalio import workflow

from workflows.fleet.carry_out import change
from workflows.fleet.members import AT_ONCE
from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.cluster.marks import MarkActivities
    from planners.words import some
    from resources.fleet.membership import MarkNodesInput
    from resources.names import cluster_queue

MARKS = "marks"


def mark(p: PoolEntity) -> None:
    """Makes one call at a time: of two on their way, the later one need not arrive last. A run may end meanwhile: the
    next one marks again what is not confirmed."""
    s = p.s
    if p.marking or MARKS in p.later:
        return
    due = [n for n, m in s.members.items() if m.marks_due]
    if not due:
        return
    on = s.members[due[0]].node_marked
    names = [n for n in due if s.members[n].node_marked is on][:AT_ONCE]
    p.marking = True
    p.start(
        MarkActivities.mark_nodes,
        MarkNodesInput(cluster=s.cluster, pool=s.name, machines=names, on=on),
        queue=cluster_queue(s.cluster, s.queue_prefix),
        summary=f"{'mark' if on else 'take the marks off'} {some(len(names), 'node')}",
        done=partial(_marked, p, names, on),
        failed=partial(_not_marked, p),
        may_be_lost=True,
    )


def _marked(p: PoolEntity, names: Sequence[str], on: bool, _: None) -> None:
    p.marking = False
    there = p.s.members
    change(p, [n for n in names if n in there and there[n].node_marked is on], marks_due=False)


def _not_marked(p: PoolEntity) -> None:
    p.marking = False
    p.later.add(MARKS)
