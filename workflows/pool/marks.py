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


def mark(pool: PoolEntity) -> None:
    """Makes one call at a time: of two on their way, the later one need not arrive last. A run may end meanwhile: the
    next one marks again what is not confirmed."""
    state = pool.s
    if pool.marking or MARKS in pool.later:
        return
    due = [n for n, m in state.members.items() if m.marks_due]
    if not due:
        return
    on = state.members[due[0]].node_marked
    names = [n for n in due if state.members[n].node_marked is on][:AT_ONCE]
    pool.marking = True
    pool.start(
        MarkActivities.mark_nodes,
        MarkNodesInput(cluster=state.cluster, pool=state.name, machines=names, on=on),
        queue=cluster_queue(state.cluster, state.queue_prefix),
        summary=f"{'mark' if on else 'take the marks off'} {some(len(names), 'node')}",
        done=partial(_marked, pool, names, on),
        failed=partial(_not_marked, pool),
        may_be_lost=True,
    )


def _marked(pool: PoolEntity, names: Sequence[str], on: bool, _: None) -> None:
    pool.marking = False
    there = pool.s.members
    change(pool, [n for n in names if n in there and there[n].node_marked is on], marks_due=False)


def _not_marked(pool: PoolEntity) -> None:
    pool.marking = False
    pool.later.add(MARKS)
