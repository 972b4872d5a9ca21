"""How the wishes of people and the class become a revision, or a change that machines take without being replaced.

Machines are made from their revision's class; `machine_class` in state is the newest that the class has told. The two
differ after an undo: a class that changes only in what is updatable does not bring back what was undone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from temporalio import workflow

from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from planners.machine.hot_update import applied_after, rolling_hash
    from planners.pool.revisions import Wanted, gone_back_to, revise
    from planners.words import some
    from resources.machine.manifest import MachineTemplate
    from resources.machine.state import ClassSnapshot
    from resources.orders import is_older
    from resources.pool.manifest import MachineDeploymentSpec


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


def want(p: PoolEntity, wanted: Wanted, undo: bool = False) -> Change:
    """From now on, machines are to be made from this."""
    s, now = p.s, workflow.now()
    former = s.revisions[-1] if s.revisions else None
    wanted = replace(wanted, hashing=p.hashing)
    revised = revise(s.revisions, s.members, wanted, s.spec.revision_history_limit, now)
    s.revisions, s.members = list(revised.revisions), dict(revised.members)
    hot = _hot(p, former.template if former else wanted.template, wanted.template, wanted.requested_by)
    if not revised.rolls:
        return Change(hot=hot)
    rolls = sum(1 for m in s.members.values() if m.revision != s.revision and not m.leaving)
    change = Change(s.revision, rolls, hot)
    if former is not None:
        by = f" by {wanted.requested_by}" if wanted.requested_by else ""
        why = f": {wanted.reason}" if wanted.reason else ""
        p.note("Revised", f"{change.words}{by}{why}")
    if undo and former is not None and former.counter in s.stories:
        s.stories[former.counter] = s.stories[former.counter].model_copy(update={"undone": True})
    return change


def _hot(p: PoolEntity, former: MachineTemplate, wanted: MachineTemplate, by: str) -> int:
    """Begins a new generation of the template, where it differs in what needs no new machine."""
    s = p.s
    if but_class(former) == but_class(wanted):
        return 0
    s.template, s.template_by, s.told = s.template + 1, by, {}
    staying = sum(1 for m in s.members.values() if not m.leaving)
    p.note("TemplateChanged", f"generation {s.template} of the template{f' by {by}' if by else ''}")
    return staying


def but_class(template: MachineTemplate) -> object:
    """What a machine can take without being replaced."""
    return template.metadata, template.spec.model_dump(exclude={"class_"})


def take_spec(p: PoolEntity, spec: MachineDeploymentSpec, machine_class: ClassSnapshot, by: str, reason: str) -> Change:
    """Takes the manifest as applied, with the class that it names."""
    s = p.s
    former, s.spec = s.spec, spec
    other_class = former.template.spec.class_ != spec.template.spec.class_
    rolls = take_class(p, machine_class, by, reason, other_class)
    if rolls.revision or not s.revisions:
        return rolls
    newest = s.revisions[-1]
    return want(p, Wanted(spec.template, newest.machine_class, newest.restart, by, reason))


def take_class(p: PoolEntity, wanted: ClassSnapshot, by: str, reason: str, another: bool = False) -> Change:
    """Takes a class's news, or `another` class. An older generation is dropped."""
    s = p.s
    former = s.machine_class
    same = former is not None and not another and wanted.name == former.name
    if former is not None and same and is_older(wanted.generation, former.generation, workflow.now()):
        return Change()
    s.machine_class = wanted
    template = s.spec.template
    changed = former is not None and _rolling(p, former) != _rolling(p, wanted)
    if not s.revisions or another or changed:
        restart = s.revisions[-1].restart if s.revisions else ""
        return want(p, Wanted(template, wanted, restart, by, reason))
    newest = s.revisions[-1]
    if former != wanted:
        # Existing machines hear of it from the class itself; those to come are made with it.
        mine = newest.machine_class
        spec = applied_after(wanted.provider, mine.provider_spec, wanted.provider_spec)
        s.revisions[-1] = newest.model_copy(update={"machine_class": wanted.model_copy(update={"provider_spec": spec})})
    return Change()


def _moves(of: ClassSnapshot) -> tuple[str, str]:
    return of.name, of.provider


def _rolling(p: PoolEntity, of: ClassSnapshot) -> tuple[str, str, str]:
    return *_moves(of), rolling_hash(of.provider, of.provider_spec, p.hashing)


def go_back(p: PoolEntity, wanted: Wanted) -> Change:
    """Undo: takes from the former class what only new machines can have. Tags and credentials are the newest known; of
    another class, what it has become meanwhile is not known, and changes nothing: its next change may."""
    s, then = p.s, wanted.machine_class
    wanted = replace(wanted, template=gone_back_to(wanted.template, s.spec))
    s.spec = s.spec.model_copy(update={"template": wanted.template})
    if s.machine_class is not None and _moves(s.machine_class) == _moves(then):
        spec = applied_after(then.provider, then.provider_spec, s.machine_class.provider_spec)
        wanted = replace(wanted, machine_class=s.machine_class.model_copy(update={"provider_spec": spec}))
    else:
        s.machine_class = None
    return want(p, wanted, undo=True)
