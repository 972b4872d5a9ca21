"""A pool as a plan sees it: its machines sorted by what counts, and the plan as it grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from planners.fleet.pace import CAP, LEAVING, of
from planners.fleet.steps import Delete, GrantPreservation, Step, TakeSlots, Wait
from planners.pool.budget import Limits, limits
from planners.words import named, some
from resources.base import later
from resources.fleet.member import Member, Permit, Released, Trouble, Vm
from resources.fleet.revision import Pace
from resources.machine.state import Phase
from resources.maintenance import Calendar, Freeze, Opening
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Predecessor, Rollout


class UpdateTurn(NamedTuple):
    """Another pool's machines take a changed template first (hostler.io/updates-after)."""

    pool: str
    waiting: int
    """How many of the own machines wait for that."""


@dataclass(frozen=True)
class Gates:
    """What gates.py decides by, besides the spec and the rollout."""

    calendar: Calendar | None = None
    """What the maintenance windows come to; None: not worked out yet."""
    opened: Opening | None = None
    """A window that a person has opened."""
    freezes: tuple[Freeze, ...] = ()
    """The pool's own, and its cluster's."""
    before: Predecessor | None = None
    """How the pool stands that goes first."""
    updates: int = 0
    """How many machines have not taken the newest template, or have not been told of their class's change."""
    turn: UpdateTurn | None = None
    """The pool whose machines take a changed template before these may; None: there is none, or it has finished."""


@dataclass(frozen=True)
class ObservedPool:
    """What a plan is made from, besides the spec and the time."""

    members: Mapping[str, Member]
    revision: int
    """The newest revision; members of others are old."""
    rollout: Rollout | None = None
    pace: Pace = field(default_factory=Pace)
    deleted: bool = False
    """Whether the pool itself is to go, and with it every machine."""
    cluster_paused: bool = False
    reachable: bool = True
    """Whether the cluster's API server and the cloud answer. If not, nothing is destroyed by choice (I5)."""
    back: bool = False
    """Whether the newest revision is a former one, gone back to: no canary holds its rollout."""
    gates: Gates = Gates()
    unfinished: bool = False
    """Whether the newest revision's rollout has not come to its end, though nothing old may be left."""
    braked: bool = True
    """False in a pool's run that began before there were brakes: a replay must decide again by the rules it decided by.
    It ends with the run."""
    approved: int = 0
    """The newest revision that needs no approval, or has it; 0 where that is not known."""
    lent: frozenset[str] = frozenset()
    """Machines that a config pool has borrowed: each may become unavailable at any moment."""
    telling: bool = True
    """False in a pool's run that began before a refusal remained the wait until there is a VM, and before lost machines
    were named with the cause: like `braked`."""
    lasting: bool = True
    """False in a pool's run that began before an outage left the wait of what had stopped before it: like `braked`."""


@dataclass(frozen=True)
class View:
    observed: ObservedPool
    spec: MachineDeploymentSpec
    now: datetime

    @property
    def members(self) -> Mapping[str, Member]:
        return self.observed.members

    @cached_property
    def limits(self) -> Limits:
        rollout = self.observed.rollout
        return limits(self.spec, canary_passed=rollout is not None and rollout.canary_passed)

    @cached_property
    def vms(self) -> int:
        """How many machines have a VM or may have one: they count until the cloud has confirmed that it is gone."""
        return sum(1 for m in self.members.values() if m.vm is not Vm.GONE)

    @cached_property
    def unborn(self) -> int:
        """How many of those have none yet, as far as the cloud has said."""
        return sum(1 for m in self.members.values() if m.vm is Vm.UNBORN)

    @property
    def unapproved(self) -> bool:
        """Whether the newest revision waits for a person's approval, or was not approved: nothing of it comes to be."""
        observed, rollout = self.observed, self.observed.rollout
        consent = rollout.consent if rollout is not None and rollout.revision == observed.revision else None
        wanting = consent is not None and consent.given is None and self.spec.approval.required
        return wanting and 0 < observed.approved != observed.revision

    @property
    def making(self) -> int:
        """The revision that machines are made of: the newest one, or while that is not approved the last one that
        is."""
        return self.observed.approved if self.unapproved else self.observed.revision

    @cached_property
    def made(self) -> Mapping[str, Member]:
        """Those of it that stay."""
        return {n: m for n, m in self.active.items() if m.revision == self.making}

    @property
    def pace(self) -> Pace:
        """The pace of the revision that is made."""
        return of(self.observed.pace, self.making)

    @cached_property
    def active(self) -> Mapping[str, Member]:
        """Those that stay, as far as is decided. Preserved ones are among them: they count as replicas. So does one
        whose VM is gone, until its turn to be replaced."""
        gone_too = self.observed.braked
        return {n: m for n, m in self.members.items() if not m.leaving and (gone_too or m.vm is not Vm.GONE)}

    @cached_property
    def new(self) -> Mapping[str, Member]:
        return {n: m for n, m in self.active.items() if m.revision == self.observed.revision}

    @cached_property
    def old(self) -> Mapping[str, Member]:
        return {n: m for n, m in self.active.items() if m.revision != self.observed.revision}

    @cached_property
    def old_left(self) -> int:
        """How many old ones have a VM or stay."""
        revision = self.observed.revision
        return sum(
            1 for n, m in self.members.items() if m.revision != revision and (m.vm is not Vm.GONE or n in self.active)
        )

    @cached_property
    def available(self) -> frozenset[str]:
        """Those that are active, with a VM, and Running for minReadySeconds."""
        before = later(self.now, -timedelta(seconds=self.spec.min_ready_seconds))
        return frozenset(
            n for n, m in self.active.items() if m.phase is Phase.RUNNING and m.vm is not Vm.GONE and m.since <= before
        )

    @cached_property
    def lent(self) -> frozenset[str]:
        """Those of the available ones that are lent: no voluntary action may count on them."""
        return self.available & self.observed.lent

    def available_at(self, member: Member) -> datetime:
        """When a Running member counts as available."""
        return later(member.since, timedelta(seconds=self.spec.min_ready_seconds))

    @cached_property
    def waited_for(self) -> list[str]:
        """New machines that are not available, either not yet or no longer."""
        return sorted(self.new.keys() - self.available)

    @property
    def rolling(self) -> bool:
        """Whether old machines are to be replaced by us."""
        return bool(self.old) and self.spec.strategy.rolling is not None and self.limits.replicas > 0

    @property
    def unfinished(self) -> bool:
        """Whether a rollout by us is yet to come to its end, though nothing old may be left."""
        return self.rolling or (self.observed.unfinished and self.spec.strategy.rolling is not None)

    @property
    def repairing(self) -> bool:
        """Whether a machine in trouble has had its turn and its VM is not gone yet, so that the replacement is one
        more."""
        troubles = (Trouble.JOIN, Trouble.CREATE, Trouble.HEALTH)
        return any(m.leaving and m.trouble in troubles and m.vm is not Vm.GONE for m in self.members.values())


class Draft:
    """A plan in the making. What one rule deletes is no longer there for the next, and what one preserves is preserved
    for the next."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.steps: list[Step] = []
        self.waits: list[Wait] = []
        self.leaving = sum(1 for m in view.members.values() if m.leaving)
        self.room = max(0, min(CAP, LEAVING - self.leaving))

    def do(self, step: Step) -> None:
        self.steps.append(step)
        match step:
            case Delete(names=names, repair=repair, permitted=permitted):
                self._see(names, deleting=True, repair=repair, **({"permit": Permit.GRANTED} if permitted else {}))
            case GrantPreservation(names=names, by=by):
                self._see(names, granted=by)
            case TakeSlots(names=names):
                self._see(names, released=Released.TOLD)
            case _:
                pass

    def _see(self, names: Iterable[str], **fields: Any) -> None:
        changed = {n: self.view.members[n]._replace(**fields) for n in names}
        observed = replace(self.view.observed, members={**self.view.members, **changed})
        self.view = replace(self.view, observed=observed)

    def wait(self, reason: str, message: str) -> None:
        self.waits.append(Wait(reason, message))

    def delete(
        self, names: Iterable[str], reason: str, why: str, repair: bool = False, permitted: bool = False
    ) -> None:
        """Deletes as many as one plan may, the first ones first; the rest is planned again next time. `why` follows
        "Deleting 2 machines (a, b)"."""
        names = tuple(names)
        chosen = names[: self.room]
        self.room -= len(chosen)
        self.leaving += len(chosen)
        if (rest := len(names) - len(chosen)) and self.leaving >= LEAVING:
            words = (
                f"{some(self.leaving)} being deleted, the maximum at a time; {some(rest)} more to delete when some "
                "are gone"
            )
            self.wait("MachinesLeaving", words)
        if chosen:
            self.do(Delete(chosen, reason, f"Deleting {some(len(chosen))} ({named(chosen)}){why}", repair, permitted))
