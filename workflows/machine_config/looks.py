"""One pass of a config pool: a fresh look at its nodes, a plan, and what the plan wants."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.machine_config import drains, loans, story
from workflows.machine_config.entity import ConfigEntity
from workflows.machine_config.pool_entity import LOOK_OFTEN, LOOK_SELDOM, ConfigPoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.cluster.config_nodes import ConfigNodeActivities
    from activities.temporal.configs import ConfigActivities
    from planners.machine_config import follow
    from planners.machine_config.pool import plan
    from planners.machine_config.status import status_of
    from planners.machine_config.steps import Borrow, FindOwners, GiveBack, GiveConfig, SetUpdateTaint
    from planners.words import named, some
    from resources.calls.machine_config import (
        NodeRef,
        PoolStatusInput,
        ReadPoolInput,
        SelectMachinesInput,
        TaintInput,
        TargetInput,
        TargetNode,
    )
    from resources.journal import Happening
    from resources.machine_config.node import ConfigNode
    from resources.machine_config.state import Reservation
    from resources.machine_config.view import ConfigPoolView, MachineSelection

R = TypeVar("R")
SELECTED = timedelta(minutes=1)
"""How long it is believed which machines a pool selects."""
BACKWARDS = timedelta(minutes=5)
"""How long an older look than the last one is refused. After that the API server is taken for another one: somebody has
restored it from a backup, and its versions begin again from there."""
AGAIN = timedelta(seconds=30)
"""When machines are looked up again that could not all be found."""
FRESH_AT_END, STALLED_TOLD = "config-untaint-fresh", "config-stalled-condition"
"""Patch markers."""
KEPT = 1000
"""How many nodes a look names by request."""


async def look(pool: ConfigPoolEntity) -> None:
    """Looks, plans and acts. What failed is tried again after a while; all of it can be repeated."""
    pool.deadlines.pop("look", None)
    view = await _attempt(pool, _read(pool))
    if view is None or view.pool is None or _is_old(pool, view):
        if view is not None and view.pool is None:
            pool.s.gone = True
            pool.note("ConfigPoolGone", f"there is no MachineConfigPool {pool.s.name} any longer")
        return
    pool.succeeded()
    s, now = pool.s, workflow.now()
    happenings = _take(pool, view, now)
    pool.view = view
    observed = pool.observed(view)
    made = pool.made = plan(observed, now)
    s.most = made.most
    pool.keep_waits(made.waits)
    drains.take(pool, view.nodes)
    loans.forget_unowned(pool)
    steps = [*happenings]
    for step in made.steps:
        match step:
            case GiveConfig():
                steps.append(Happening(time=now, reason=step.reason, message=step.message))
                steps += await _attempt(pool, _give(pool, step)) or []
            case SetUpdateTaint():
                await _attempt(pool, _taint(pool, step))
            case FindOwners():
                await _attempt(pool, loans.find(pool, step.machines))
            case Borrow():
                loans.borrow(pool, step)
            case GiveBack():
                loans.give_back(pool, step.machines)
    loans.confirm(pool)
    story.follow(pool, view, steps)
    await _attempt(pool, _tell(pool, view, steps))
    if pool.failure is not None:
        s.waits.append(pool.failure)
    busy = bool(s.reservations or s.drains or s.loans)
    pool.no_later("look", made.next_look)
    pool.no_later("look", now + (LOOK_OFTEN if busy else LOOK_SELDOM))


async def _attempt(pool: ConfigPoolEntity, call: Coroutine[Any, Any, R]) -> R | None:
    try:
        return await call
    except ActivityError as e:
        pool.no_later("look", pool.failed(e))
        if pool.failure is not None and all(w.reason != pool.failure.reason for w in pool.s.waits):
            pool.s.waits = [*pool.s.waits, pool.failure]
        return None


# -- looking ----------------------------------------------------------------------------------------------------------


async def _read(pool: ConfigPoolEntity) -> ConfigPoolView | None:
    """A fresh look. Where pools select by machines, what was looked up last may no longer hold. None: it is not known
    whose some nodes are."""
    s = pool.s
    view = await _list(pool)
    old = s.selected is None or workflow.now() - s.selected >= SELECTED
    if view.selections == s.selections and not (view.selections and old):
        return view
    machines, trouble = await select(pool, view.selections)
    if trouble:
        pool.waits_only("MachinesNotFound", trouble)
        pool.no_later("look", workflow.now() + AGAIN)
        return None
    s.machines = machines
    s.selections, s.selected = view.selections, workflow.now()
    return await _list(pool)


async def select(entity: ConfigEntity, selections: Iterable[MachineSelection]) -> tuple[dict[str, str], str]:
    """Which pools select a machine, by its name, with commas. Or why some machines are not known: their nodes might be
    taken for another pool's."""
    machines: dict[str, list[str]] = {}
    for selection in selections:
        found = await entity.call(
            ConfigActivities.select_machines,
            SelectMachinesInput(cluster=entity.cluster, selector=selection.selector, machine_set=selection.machine_set),
            queue=entity.in_client,
            summary=f"find the machines that pool {selection.pool} selects",
        )
        if found.trouble:
            words = f"the machines of pool {selection.pool}: {found.trouble}"
            entity.note_news("MachinesNotFound", words)
            if selection.selector is not None:
                return {}, words
        for machine in found.machines:
            machines.setdefault(machine, []).append(selection.pool)
    return {machine: ",".join(sorted(pools)) for machine, pools in machines.items()}, ""


async def _list(pool: ConfigPoolEntity) -> ConfigPoolView:
    s = pool.s
    keep = dict.fromkeys([*s.reservations, *s.drains, *(loan.node for loan in s.loans.values())])
    return await pool.call(
        ConfigNodeActivities.read_config_pool,
        ReadPoolInput(cluster=s.cluster, pool=s.name, keep=list(keep)[:KEPT], machines=s.machines),
        queue=pool.in_cluster,
        summary=f"look at pool {s.name} and its nodes",
    )


def _is_old(pool: ConfigPoolEntity, view: ConfigPoolView) -> bool:
    """Whether it shows what was before the last look: a cache has answered it, and nothing is decided by it."""
    s, now = pool.s, workflow.now()
    if view.version and view.version < s.version and s.seen is not None and now - s.seen < BACKWARDS:
        pool.no_later("look", now + s.timings.poll)
        return True
    return False


def _take(pool: ConfigPoolEntity, view: ConfigPoolView, now: datetime) -> list[Happening]:
    """Takes what the look shows into the state."""
    s, facts = pool.s, view.pool
    assert facts is not None
    if s.uid and s.uid != facts.uid:
        pool.note("ConfigPoolReplaced", "the MachineConfigPool was deleted, and made again")
        story.over(pool, f"MachineConfigPool {s.name} was deleted, and made again")
    if s.paused != facts.paused:
        pool.note("ConfigPoolPaused" if facts.paused else "ConfigPoolResumed", f"spec.paused is {facts.paused}")
    if facts.target != s.target and facts.target:
        pool.note("ConfigTargeted", f"its nodes are to have {facts.target}{f', not {s.target}' if s.target else ''}")
    s.uid, s.generation, s.target, s.paused = facts.uid, facts.generation, facts.target, facts.paused
    s.completed, s.counts, s.seen, s.version = facts.completed, view.counts, now, view.version
    found = follow.follow(s.reservations, view, now)
    s.reservations = found.reservations
    for happening in found.happenings:
        pool.note(happening.reason, happening.message)
    if found.finished and s.story is not None:
        s.story = s.story.model_copy(update={"progress_at": now})
    there = {n.machine for n in view.nodes}
    s.owners = {machine: owner for machine, owner in s.owners.items() if machine in there or machine in s.loans}
    return found.happenings


# -- acting -----------------------------------------------------------------------------------------------------------


async def _give(pool: ConfigPoolEntity, step: GiveConfig) -> list[Happening]:
    """Gives nodes a config. The reservation comes first: whatever becomes of the call, they count from now on, but for
    those that are gone: their places are free."""
    s, now = pool.s, workflow.now()
    s.reservations |= {n.name: Reservation(n.uid, step.config, now) for n in step.nodes}
    if not step.again:
        pool.note(step.reason, step.message)
    pool.nudge()
    output = await pool.call(
        ConfigNodeActivities.target_config_nodes,
        TargetInput(
            cluster=s.cluster,
            pool=s.name,
            config=step.config,
            nodes=[TargetNode(name=n.name, uid=n.uid, was=n.desired) for n in step.nodes],
        ),
        queue=pool.in_cluster,
        summary=f"give {some(len(step.nodes), 'node')} ({named([n.name for n in step.nodes])}) {step.config}",
    )
    for name, why in sorted(output.refused.items()):
        pool.note_news("ConfigNodeRefused", f"{name} was not given {step.config}: {why}")
    freed = [(name, s.reservations.pop(name)) for name in output.gone if name in s.reservations]
    gone = [follow.gone(name, reservation, workflow.now()) for name, reservation in freed]
    for happening in gone:
        pool.note(happening.reason, happening.message)
    return gone


async def untaint(pool: ConfigPoolEntity) -> None:
    """Takes the taint off the nodes that the pool leaves, whether or not this run has looked at them: nobody else would
    do it."""
    if workflow.patched(FRESH_AT_END):
        await _attempt(pool, _untaint(pool))
    elif pool.view is not None and pool.view.pool is not None:
        target = pool.view.pool.target
        nodes = tuple(n for n in pool.view.nodes if n.tainted or n.desired != target)
        if nodes:
            await _attempt(pool, _taint(pool, SetUpdateTaint(nodes, False), at_end=True))


async def _untaint(pool: ConfigPoolEntity) -> None:
    s = pool.s
    found = await pool.call(
        ConfigNodeActivities.read_tainted_nodes,
        ReadPoolInput(cluster=s.cluster, pool=s.name, machines=s.machines),
        queue=pool.in_cluster,
        summary=f"look which nodes pool {s.name} leaves tainted",
        at_end=True,
    )
    if found.nodes:
        await pool.call(
            ConfigNodeActivities.set_update_taints,
            TaintInput(cluster=s.cluster, off=found.nodes),
            queue=pool.in_cluster,
            summary=f"take off {some(len(found.nodes), 'node')} the taint UpdateInProgress",
            at_end=True,
        )


async def _taint(pool: ConfigPoolEntity, step: SetUpdateTaint, at_end: bool = False) -> None:
    nodes = [NodeRef(name=n.name, uid=n.uid) for n in step.nodes]
    await pool.call(
        ConfigNodeActivities.set_update_taints,
        TaintInput(cluster=pool.s.cluster, **{"on" if step.on else "off": nodes}),
        queue=pool.in_cluster,
        summary=f"{_verb(step.nodes, step.on)} the taint UpdateInProgress",
        at_end=at_end,
    )


def _verb(nodes: tuple[ConfigNode, ...], on: bool) -> str:
    return f"{'give' if on else 'take off'} {some(len(nodes), 'node')}"


async def _tell(pool: ConfigPoolEntity, view: ConfigPoolView, steps: list[Happening]) -> None:
    """Writes the status, where it says something new."""
    s = pool.s
    assert view.pool is not None
    held = pool.held(workflow.now())
    stalled = next((w.message for w in s.waits if w.reason == "ConfigRolloutStalled"), "")
    if stalled and not workflow.patched(STALLED_TOLD):
        stalled = ""
    status = status_of(view, held.message if held is not None and s.news is not None else "", stalled)
    if status == pool.status_told and not steps:
        return
    await pool.call(
        ConfigNodeActivities.write_pool_status,
        PoolStatusInput(cluster=s.cluster, pool=s.name, uid=view.pool.uid, status=status, story=steps[-20:]),
        queue=pool.in_cluster,
        summary=f"write the status of pool {s.name}",
    )
    pool.status_told = status
