"""How a change of template or class changes an owner's revisions.

Sources: Kubernetes' deployments (a revision is a counter; going back to an old template gives its machines the new
number and rolls the others), seed 002 (fields that are updatable make no revision), design *Pools and rollouts*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate

from planners.machine.hot_update import HASH_VERSION, rolling_hash
from resources.fleet.member import Member
from resources.fleet.rehearsal import RevisionSummary
from resources.fleet.revision import Revision
from resources.fleet.state import FleetState
from resources.machine.manifest import MachineTemplate
from resources.machine.state import ClassSnapshot, Phase

KEPT = 50
"""The most revisions without a machine that are kept, whatever revisionHistoryLimit says: an owner's state has
to travel."""
KEPT_BYTES = 256 << 10


@dataclass(frozen=True)
class Wanted:
    """What machines are to be made from, from now on."""

    template: MachineTemplate
    machine_class: ClassSnapshot
    restart: str = ""
    requested_by: str = ""
    reason: str = ""
    back: bool = False
    """Whether this goes back to a former revision."""
    hashing: int = HASH_VERSION
    """The version of `hash`."""
    enough: int | None = None
    """How many machines the owner wants, if a wish for what they all are already goes back to it; None: only an undo
    goes back."""

    @cached_property
    def hash(self) -> str:
        return self.hash_of(self.machine_class)

    def hash_of(self, of: ClassSnapshot) -> str:
        return rolling_hash(of.provider, of.provider_spec, self.hashing)

    def is_like(self, revision: Revision) -> bool:
        """Whether machines of the revision are made in the same way. Today's model reads both specs: the hash stored
        with the revision may be an older release's, with another version or from a model with other fields."""
        return revision.restart == self.restart and self.made_like(revision.machine_class)

    def made_like(self, of: ClassSnapshot) -> bool:
        """Whether this class makes the same VMs."""
        return of.name == self.machine_class.name and self.hash_of(of) == self.hash


@dataclass(frozen=True)
class Revised:
    revisions: tuple[Revision, ...]
    members: Mapping[str, Member]
    rolls: bool
    """Whether there is a new revision. If not, the change is a hot update of the existing machines, or nothing."""
    twins: frozenset[int] = frozenset()
    """Former revisions that are the same as the new one, and go."""


def revise(
    revisions: Sequence[Revision],
    members: Mapping[str, Member],
    wanted: Wanted,
    keep: int,
    now: datetime,
    needed: int = 0,
) -> Revised:
    """The revisions once `wanted` counts; oldest first, the last one is the newest.

    A template that only differs in what can be updated replaces the newest revision's own. Machines of an older
    revision that is the same in all else become the new one's: an undone rollout does not touch those it had not
    reached. Where these are as many as are wanted, and run, the wish goes back, like an undo: nothing is to be tried.

    `keep`: how many revisions without a machine stay (revisionHistoryLimit). `needed`: one that stays in any case, as
    machines are made of it.
    """
    newest = revisions[-1] if revisions else None
    counter = newest.counter if newest else 0
    made = Revision(
        counter=counter + 1,
        machine_class=wanted.machine_class,
        hash=wanted.hash,
        restart=wanted.restart,
        template=wanted.template,
        created=now,
        requested_by=wanted.requested_by,
        reason=wanted.reason,
    )
    if newest is not None and wanted.is_like(newest):
        same = newest.model_copy(update={"template": wanted.template, "machine_class": wanted.machine_class})
        return Revised((*revisions[:-1], same), members, rolls=False)
    twins = frozenset(r.counter for r in revisions if wanted.is_like(r))
    ours = {n: m._replace(revision=made.counter) for n, m in members.items() if m.revision in twins}
    running = sum(m.phase is Phase.RUNNING and not m.leaving for m in ours.values())
    back = wanted.back or (wanted.enough is not None and 0 < wanted.enough <= running)
    made, members = made.model_copy(update={"back": back}), {**members, **ours}
    former = [r for r in revisions if r.counter not in twins]
    return Revised((*prune(former, members, keep, needed), made), members, rolls=True, twins=twins)


def prune(former: Sequence[Revision], members: Mapping[str, Member], keep: int, needed: int = 0) -> list[Revision]:
    """Those with machines, and of the others the newest `keep`, at most KEPT of them, and as many as fit in KEPT_BYTES:
    each carries its class and template."""
    used = {needed, *(m.revision for m in members.values())}
    idle = [r for r in reversed(former) if r.counter not in used][: min(keep, KEPT)]
    sizes = accumulate(len(r.model_dump_json()) for r in idle)
    kept = {r.counter for r, size in zip(idle, sizes, strict=True) if size <= KEPT_BYTES}
    return [r for r in former if r.counter in used or r.counter in kept]


def wanted_by_undo(revisions: Sequence[Revision], to: int | None = None) -> Wanted:
    """What going back wants: the revision before the newest one, or `to`. Raises ValueError, in words for people."""
    known = ", ".join(str(r.counter) for r in revisions[:-1])
    if not known:
        raise ValueError("there is no earlier revision to go back to")
    counter = revisions[-2].counter if to is None else to
    if counter == revisions[-1].counter:
        raise ValueError(f"revision {counter} is already the newest; the others are {known}")
    found = next((r for r in revisions if r.counter == counter), None)
    if found is None:
        raise ValueError(f"revision {counter} does not exist; the revisions are {known}")
    return Wanted(found.template, found.machine_class, found.restart, reason=f"back to revision {counter}", back=True)


# -- told -------------------------------------------------------------------------------------------------------------


def summaries(state: FleetState) -> list[RevisionSummary]:
    """The revisions for people, oldest first, each with how many machines it has."""
    machines = Counter(m.revision for m in state.members.values())
    return [
        RevisionSummary(
            revision=r.counter,
            created=r.created,
            machine_class=r.machine_class.name,
            generation=r.machine_class.based_on,
            machines=machines[r.counter],
            requested_by=r.requested_by,
            reason=r.reason,
        )
        for r in state.revisions
    ]
