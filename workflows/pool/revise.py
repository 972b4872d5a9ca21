"""How the wishes of people become a revision of a pool (workflows/fleet/revise.py), with what is a pool's alone: its
spec, and the stories of its rollouts."""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

from workflows.fleet import revise
from workflows.fleet.revise import Change, want
from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.revisions import Wanted
    from planners.pool.undo import gone_back_to
    from resources.machine.state import ClassSnapshot
    from resources.pool.manifest import MachineDeploymentSpec


def take_spec(
    pool: PoolEntity, spec: MachineDeploymentSpec, machine_class: ClassSnapshot, by: str, reason: str
) -> Change:
    """Takes the manifest as applied, with the class that it names."""
    state = pool.s
    former, state.spec = state.spec, spec
    other_class = former.template.spec.class_ != spec.template.spec.class_
    rolls = revise.take_class(pool, spec.template, machine_class, by, reason, other_class)
    if rolls.revision or not state.revisions:
        return rolls
    newest = state.revisions[-1]
    return want(pool, Wanted(spec.template, newest.machine_class, newest.restart, by, reason))


def take_class(pool: PoolEntity, wanted: ClassSnapshot, by: str, reason: str) -> Change:
    return revise.take_class(pool, pool.s.spec.template, wanted, by, reason)


def go_back(pool: PoolEntity, wanted: Wanted) -> Change:
    """Undo, which the story of the rollout that is undone says too."""
    state, former = pool.s, pool.s.revision
    wanted = replace(wanted, template=gone_back_to(wanted.template, state.spec))
    state.spec = state.spec.model_copy(update={"template": wanted.template})
    change = revise.go_back(pool, wanted)
    if change.revision and former in state.stories:
        state.stories[former] = state.stories[former].model_copy(update={"undone": True})
    return change
