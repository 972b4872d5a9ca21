"""How the wishes of people and the class become a revision, or a change that machines take without being replaced.

Machines are made from their revision's class; `machine_class` in state is the newest that the class has told. The two
differ after an undo: a class that changes only in what is updatable does not bring back what was undone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from temporalio import workflow

from workflows.fleet.entity import FleetEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.revisions import Wanted, revise
    from planners.machine.hot_update import with_updatable
    from planners.words import some
    from resources.machine.manifest import MachineTemplate
    from resources.machine.state import ClassSnapshot
    from resources.orders import is_older
    from resources.words import by_whom


class Change(NamedTuple):
    """What a new wish does to running machines."""

    revision: int = 0
    """The new revision; 0 if there is none."""
    rolls: int = 0
    """How many machines it replaces."""
    hot: int = 0
    """How many machines take a change and stay."""

    @property
    def words(self) -> str:
        parts = []
        if self.revision:
            parts.append(f"revision {self.revision}" + (f" replaces {some(self.rolls)}" if self.rolls else ""))
        if self.hot:
            parts.append(f"hot update of {some(self.hot)}")
        return "; ".join(parts)


def want(fleet: FleetEntity, wanted: Wanted) -> Change:
    """Machines are to be made from this from now on."""
    state, now = fleet.s, workflow.now()
    former = state.revisions[-1] if state.revisions else None
    compared, needed = fleet.comparing(wanted), fleet.needed
    revised = revise(state.revisions, state.members, compared, fleet.history_limit, now, needed)
    state.revisions, state.members = list(revised.revisions), dict(revised.members)
    fleet.revised(revised)
    hot = _hot(fleet, former.template if former else wanted.template, wanted.template, wanted.requested_by)
    if not revised.rolls:
        return Change(hot=hot)
    rolls = sum(1 for m in state.members.values() if m.revision != state.revision and not m.leaving)
    change = Change(state.revision, rolls, hot)
    if former is not None:
        by = by_whom(wanted.requested_by, wanted.reason)
        fleet.note("Revised", f"{change.words}{by}")
    return change


def _hot(fleet: FleetEntity, former: MachineTemplate, wanted: MachineTemplate, by: str) -> int:
    """Begins a new generation of the template, where it differs in what needs no new machine."""
    state = fleet.s
    if but_class(former) == but_class(wanted):
        return 0
    supersede(fleet, state.template + 1)
    state.template_by = by
    staying = sum(1 for m in state.members.values() if not m.leaving)
    fleet.note("TemplateChanged", f"generation {state.template} of the template{f' by {by}' if by else ''}")
    return staying


def supersede(fleet: FleetEntity, generation: int) -> None:
    """Makes this the newest generation of the template. Machines at work on an older one keep their places."""
    state = fleet.s
    if workflow.patched("template-superseded"):
        state.superseded |= state.told
    state.template, state.told = generation, {}


def but_class(template: MachineTemplate) -> object:
    """What a machine can take without being replaced."""
    return template.metadata, template.spec.model_dump(exclude={"class_"})


def take_class(
    fleet: FleetEntity, template: MachineTemplate, wanted: ClassSnapshot, by: str, reason: str, another: bool = False
) -> Change:
    """Takes a class's news, or `another` class. An older generation is dropped. `template`: the newest that is
    wanted."""
    state = fleet.s
    former = state.machine_class
    same = former is not None and not another and wanted.name == former.name
    if former is not None and same and is_older(wanted.generation, former.generation, workflow.now()):
        return Change()
    state.machine_class = wanted
    restart = state.revisions[-1].restart if state.revisions else ""
    wish = Wanted(template, wanted, restart, by, reason)
    changed = former is not None and not (moves(former) == moves(wanted) and fleet.comparing(wish).made_like(former))
    if not state.revisions or another or changed:
        return want(fleet, wish)
    newest = state.revisions[-1]
    if former != wanted:
        # Existing machines hear of it from the class itself; those to come are made with it.
        machine_class = with_updatable(newest.machine_class, wanted)
        state.revisions[-1] = newest.model_copy(update={"machine_class": machine_class})
    return Change()


def go_back(fleet: FleetEntity, wanted: Wanted) -> Change:
    """Undo: takes from the former class what only new machines can have. Tags and credentials are the newest known; of
    another class, what it has become meanwhile is not known, and changes nothing: its next change may."""
    state, then = fleet.s, wanted.machine_class
    if state.machine_class is not None and moves(state.machine_class) == moves(then):
        wanted = replace(wanted, machine_class=with_updatable(then, state.machine_class))
    else:
        state.machine_class = None
    return want(fleet, wanted)


def moves(of: ClassSnapshot) -> tuple[str, str]:
    """What a machine cannot change of its class: another name is another class, another cloud another VM."""
    return of.name, of.provider
