"""What a pool finds out about its gates: what its maintenance windows come to, how the pool before it stands, and
whether that one's machines have the changed template."""

from __future__ import annotations

from typing import NamedTuple

from temporalio import workflow

from workflows.calls import poller
from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.pools import PoolActivities
    from planners.pool import gates
    from planners.pool.gates import Question
    from resources.maintenance import Calendar, CalendarInput
    from resources.names import workflow_queue
    from resources.owner import Owner, OwnerRef
    from resources.pool.gates import PoolLook
    from resources.pool.state import Predecessor

WINDOWS, BEFORE, TURN = "windows", "before", "turn"
"""What is not tried again before the next check; the first is a deadline too."""


class Enquiry(NamedTuple):
    """A question under way about the pool before."""

    question: Question
    handle: workflow.ActivityHandle[Predecessor]


class TurnAwaited(NamedTuple):
    """The wait for another pool's machines that is under way."""

    pool: str
    generation: int
    """The generation of the own template."""
    handle: workflow.ActivityHandle[None]


def find_out(pool: PoolEntity) -> None:
    if pool.due(WINDOWS):
        del pool.deadlines[WINDOWS]
    if not pool.s.deleted:
        _windows(pool)
    _before(pool)
    _turn(pool)


def _windows(pool: PoolEntity) -> None:
    """Works out the next windows when those that are known are over: only an activity may ask the time zones' rules,
    which change with the worker's host."""
    state, now = pool.s, workflow.now()
    if pool.working_out or WINDOWS in pool.later or not gates.to_work_out(pool.spec, gates.of(state), now):
        return
    pool.working_out = True
    pool.start(
        PoolActivities.work_out_windows,
        CalendarInput(windows=state.spec.maintenance.windows, after=now),
        queue=workflow_queue(state.queue_prefix),
        summary="work out the next maintenance windows",
        done=lambda found: _worked_out(pool, found),
        failed=lambda: _not_worked_out(pool),
        may_be_lost=True,
    )


def _worked_out(pool: PoolEntity, found: Calendar) -> None:
    pool.working_out = False
    pool.s.calendar = found
    if found.problem:
        pool.note("WindowsUnknown", found.problem)
    if found.openings:
        pool.deadlines[WINDOWS] = found.openings[-1].end


def _not_worked_out(pool: PoolEntity) -> None:
    pool.working_out = False
    pool.later.add(WINDOWS)


def _before(pool: PoolEntity) -> None:
    """Asks how the pool before stands for as long as the rollout waits for it."""
    state = pool.s
    asks = None if state.deleted else gates.question(pool.view())
    if pool.asking is not None and pool.asking.question != asks:
        pool.abandon(pool.asking.handle)
        pool.asking = None
    if asks is None or pool.asking is not None or BEFORE in pool.later:
        return
    handle = pool.start(
        PoolActivities.look_at_pool,
        PoolLook(
            cluster=state.cluster,
            pool=asks.pool,
            class_=asks.machine_class,
            revision=state.revision,
            known=asks.known,
        ),
        queue=workflow_queue(state.queue_prefix),
        summary=f"wait for pool {asks.pool}",
        done=lambda found: _answered(pool, found),
        failed=lambda: _not_answered(pool),
        may_be_lost=True,
        retry=poller(state.timings.poll),
    )
    pool.asking = Enquiry(asks, handle)


def _answered(pool: PoolEntity, found: Predecessor) -> None:
    pool.asking, pool.s.before = None, found
    if found.gone:
        pool.note("NoPoolBefore", f"pool {found.pool} ({found.message}) holds up no rollout")


def _not_answered(pool: PoolEntity) -> None:
    pool.asking = None
    pool.later.add(BEFORE)


def _turn(pool: PoolEntity) -> None:
    """Waits for the machines of the pool that takes a changed template first, for as long as own ones wait for it."""
    state, turn, awaited = pool.s, pool.turn, pool.awaiting_turn
    wanted = (turn.pool, state.template) if turn is not None else None
    if awaited is not None and (awaited.pool, awaited.generation) != wanted:
        pool.abandon(awaited.handle)
        pool.awaiting_turn = None
    if wanted is None or pool.awaiting_turn is not None or TURN in pool.later:
        return
    name, generation = wanted
    handle = pool.start(
        PoolActivities.await_templates,
        OwnerRef(cluster=state.cluster, **Owner(name=name).model_dump()),
        queue=workflow_queue(state.queue_prefix),
        summary=f"wait until the machines of pool {name} have their changed template",
        done=lambda _: _turn_came(pool, generation),
        failed=lambda: _turn_unknown(pool),
        may_be_lost=True,
        retry=poller(state.timings.poll),
    )
    pool.awaiting_turn = TurnAwaited(name, generation, handle)


def _turn_came(pool: PoolEntity, generation: int) -> None:
    pool.awaiting_turn = None
    pool.s.turn = generation


def _turn_unknown(pool: PoolEntity) -> None:
    pool.awaiting_turn = None
    pool.later.add(TURN)
