"""A pool in a world without clouds: machines that are made, join and end after some turns, or fail by script.

A few lines here do what the workflow will do with a plan, and after each plan the invariants are asserted. The log
reads like a story; tests compare it with a golden one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from planners.fleet import pace
from planners.fleet.revisions import Wanted, revise, wanted_by_undo
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, MarkNodes, Plan, TakeSlots
from planners.pool import brake, progress
from planners.pool.plan import complete, plan
from planners.pool.preservation import lowered, slots, staying_failed
from planners.pool.repair import in_flight
from planners.pool.view import ObservedPool, View
from resources.errors import ErrorClass
from resources.fleet.member import Member, Permit, PreserveWish, Released, Trouble, Vm
from resources.fleet.membership import MemberReport
from resources.fleet.revision import Pace, Revision
from resources.machine.manifest import MachineTemplate, SecretRef
from resources.machine.preservation import PreservedBy
from resources.machine.state import ClassSnapshot, Phase
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Gate, Rollout

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TURN = timedelta(seconds=10)
TEMPLATE: dict[str, Any] = {"spec": {"class": {"name": "c1"}}}
MOST_TURNS = 400
EVER = EPOCH + timedelta(days=30)
CHOSEN_BY_PEOPLE = {"MarkedForDeletion", "Hibernated"}


def spec(replicas: int, surge: int | str = 1, unavailable: int | str = 0, **more: Any) -> MachineDeploymentSpec:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    if (canary := more.pop("pauseAfter", None)) is not None:
        rolling["pauseAfter"] = canary
    return MachineDeploymentSpec.model_validate(
        {"replicas": replicas, "template": TEMPLATE, "strategy": {"rollingUpdate": rolling}, **more}
    )


def member(revision: int = 1, phase: Phase = Phase.RUNNING, age: int = 0, **more: Any) -> Member:
    """A member. `age`: seconds before EPOCH. It has a VM unless told otherwise."""
    born = EPOCH - timedelta(seconds=age)
    return Member(revision, born, born, phase, **{"vm": Vm.LIVES, **more})


def wanted(image: int) -> Wanted:
    snapshot = ClassSnapshot(
        name="c1", provider="Other", provider_spec={"image": image}, secret_ref=SecretRef(name="s")
    )
    return Wanted(MachineTemplate.model_validate(TEMPLATE), snapshot)


class Broken(AssertionError):
    """An invariant does not hold; the message has the seed and the story so far."""


@dataclass
class World:
    spec: MachineDeploymentSpec
    seed: int | None = None
    """None: everything in order; otherwise in an order of its own."""
    bad_images: set[int] = field(default_factory=set)
    """Images whose machines never join."""
    never_join: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    """Machines whose VMs stay in shutting-down."""
    no_capacity: bool = False
    asked_for: set[str] = field(default_factory=set)
    """Machines that should be preserved when they fail."""
    expired: set[str] = field(default_factory=set)
    """Machines that are no longer preserved, by their own clocks."""
    timeout_turns: int = 12
    """creationTimeout, in turns."""

    members: dict[str, Member] = field(default_factory=dict)
    revisions: tuple[Revision, ...] = ()
    rollout: Rollout | None = None
    pace: Pace = field(default_factory=Pace)
    reachable: bool = True
    now: datetime = EPOCH
    log: list[str] = field(default_factory=list)
    made: int = 0
    replaced: int = 0
    lowest: int = 10**6
    """The fewest available at any time."""
    _waits: tuple[str, ...] = ()
    _line: str = ""
    _pending: dict[str, int] = field(default_factory=dict)
    _rolled: int = 0
    """The revision whose rollout has begun, until it is complete."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.image(1)

    # -- what people and the world do ----------------------------------------------------------------------------------

    def image(self, image: int) -> None:
        self.want(wanted(image), f"image {image}")

    def undo(self, to: int | None = None) -> None:
        self.want(wanted_by_undo(self.revisions, to), "undo")

    def want(self, what: Wanted, why: str) -> None:
        revised = revise(self.revisions, self.members, what, self.spec.revision_history_limit, self.now)
        self.revisions, self.members = revised.revisions, dict(revised.members)
        self.say(f"*** {why}: revision {self.revision}")

    def change(self, why: str, **fields: Any) -> None:
        self.spec = self.spec.model_copy(update=fields)
        self.say(f"*** {why}")

    def lower(self, most: int) -> None:
        former = self.spec.auto_preserve_failed_max
        self.change(f"autoPreserveFailedMax {former} → {most}", auto_preserve_failed_max=most)
        for name in lowered(self.view, former):
            self.set(name, released=Released.TAKEN)

    def resume(self) -> None:
        assert self.rollout
        self.rollout = progress.resume(self.rollout, self.observed, self.spec, self.now)
        self.say("*** rollout resume")

    def gate(self, gate: Gate) -> None:
        assert self.rollout
        self.rollout = self.rollout.model_copy(update={"gate": gate})
        self.say(f"*** rollout {gate or 'open'}")

    def set(self, name: str, why: str = "", **changes: Any) -> None:
        """Sets it as the pool hears it: from the newest revision's machines it learns how fast it may go on."""
        former = self.members[name]
        member = former._replace(**changes)
        if member.phase is not Phase.RUNNING and pace.has_lasted(former, self.now):
            member = member._replace(lasted=True)
        self.members[name] = member
        if member.revision == self.revision:
            speed = pace.of(self.pace, self.revision)
            self.pace = pace.lived(speed, former, member, f"{name} has no node", self.spec.replicas, self.now, 0)
        if why:
            self.say(f"*** {name} {why}")

    def fill(self) -> None:
        """Makes as many Running machines of the newest revision as there should be, without a story."""
        for _ in range(self.spec.replicas):
            self.members[self.name()] = member(self.revision, age=3600)

    def name(self) -> str:
        self.made += 1
        return f"m{self.made:02d}"

    # -- the loop ------------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self.revisions[-1].counter if self.revisions else 0

    @property
    def observed(self) -> ObservedPool:
        back = bool(self.revisions) and self.revisions[-1].back
        unfinished = self._rolled == self.revision
        return ObservedPool(
            self.members,
            self.revision,
            self.rollout,
            self.pace,
            reachable=self.reachable,
            back=back,
            unfinished=unfinished,
        )

    @property
    def view(self) -> View:
        return View(self.observed, self.spec, self.now)

    def turn(self) -> Plan:
        """The pool plans, the plan is carried out, the machines move on; in random order, and not all."""
        names = sorted(self.members)
        if self.seed is None:
            made = self.pool()
            for name in names:
                self.advance(name)
        else:
            self.chance.shuffle(names)
            cut = self.chance.randrange(len(names) + 1)
            for name in names[:cut]:
                self.maybe(name)
            made = self.pool()
            for name in names[cut:]:
                self.maybe(name)
        self.now += TURN
        return made

    def maybe(self, name: str) -> None:
        if self.chance.random() < 0.6:
            self.advance(name)

    def pool(self) -> Plan:
        self.pace = brake.follow(self.observed, self.spec, self.now)
        self.rollout = progress.follow(self.observed, self.spec, self.now)
        made = plan(self.observed, self.spec, self.now)
        self.state()
        before = self.view.available
        for step in made.steps:
            self.say(f"    {step.reason}: {step.message}")
            self.carry_out(step)
        self.rollout = progress.lose(self.rollout, made.steps, self.members)
        if self.rollout is not None:
            self._rolled = self.revision
        elif complete(self.view):
            self._rolled = 0
        waits = tuple(f"    ({w.reason}: {w.message})" for w in made.waits)
        for line in waits:
            if line not in self._waits:
                self.say(line)
        self._waits = waits
        self.check(made, before)
        return made

    def carry_out(self, step: Any) -> None:
        match step:
            case Create():
                for _ in range(step.count):
                    self.members[self.name()] = Member(step.revision, self.now, self.now)
            case Delete():
                self.replaced += len(step.names)
                for name in step.names:
                    self.set(name, deleting=True, repair=step.repair)
                    if step.permitted:
                        self.set(name, permit=Permit.GRANTED)
            case GrantPreservation():
                for name in step.names:
                    self.set(name, granted=step.by)
            case TakeSlots():
                for name in step.names:
                    self.set(name, released=Released.TOLD)
            case GrantPermit():
                for name in step.names:
                    self.set(name, permit=Permit.GRANTED)
            case MarkNodes():
                for name in step.names:
                    self.set(name, node_marked=step.on)

    def advance(self, name: str) -> None:
        m = self.members.get(name)
        if m is None:
            return
        if m.repair and m.phase is Phase.FAILED and name in self.asked_for:
            self.set(name, deleting=False, repair=False, keep=PreserveWish.ASKED)
        elif m.deleting:
            self._end(name, m)
        elif m.permit is Permit.GRANTED and m.phase is Phase.UNKNOWN:
            self._enter(name, Phase.FAILED, trouble=Trouble.HEALTH)
        elif m.phase is Phase.FAILED and not m.drained:
            self.set(name, drained=True, keep=PreserveWish.ASKED if name in self.asked_for else PreserveWish.SLOT)
        elif m.granted:
            self.set(name, preserved_until=EVER, preserved_by=m.granted, keep=PreserveWish.UNDECIDED)
            self.set(name, granted=PreservedBy.NOBODY, permit=Permit.NONE)
        elif m.released is Released.TOLD or name in self.expired:
            self._enter(name, Phase.TERMINATING, preserved_until=None, deleting=True)
        elif m.vm is Vm.UNBORN and m.phase is not Phase.FAILED:
            self._be_born(name, m)
        elif m.phase is Phase.PENDING:
            self._join(name, m)

    def moves(self, name: str) -> bool:
        """Whether it is on its way somewhere."""
        m = self.members[name]
        if m.deleting:
            return not (m.phase is Phase.TERMINATING and m.vm is not Vm.GONE and name in self.stuck)
        granted = m.permit is Permit.GRANTED and m.phase is Phase.UNKNOWN
        return (
            granted
            or m.phase is Phase.PENDING
            or (m.vm is Vm.UNBORN and m.phase is not Phase.FAILED)
            or (m.phase is Phase.FAILED and not m.drained)
            or bool(m.granted)
            or bool(m.released)
            or name in self.expired
        )

    def _be_born(self, name: str, m: Member) -> None:
        speed = pace.of(self.pace, m.revision)
        if self.no_capacity:
            if m.phase is Phase.PENDING:
                self._enter(name, Phase.CRASH_LOOP_BACK_OFF)
            self.pace = pace.create_failed(speed, ErrorClass.CAPACITY, "no capacity in zone a", self.now, 0)
            return
        self._enter(name, Phase.PENDING, vm=Vm.LIVES)

    def _join(self, name: str, m: Member) -> None:
        image = next((r.machine_class.provider_spec["image"] for r in self.revisions if r.counter == m.revision), None)
        if image not in self.bad_images and name not in self.never_join:
            self._enter(name, Phase.RUNNING)
            return
        self._pending[name] = self._pending.get(name, 0) + 1
        if self._pending[name] >= self.timeout_turns:
            self._enter(name, Phase.FAILED, trouble=Trouble.JOIN, drained=True)

    def _end(self, name: str, m: Member) -> None:
        if m.phase is not Phase.TERMINATING:
            self._enter(name, Phase.TERMINATING)
        elif m.vm is not Vm.GONE:
            if name not in self.stuck:
                self.set(name, vm=Vm.GONE)
        else:
            del self.members[name]

    def _enter(self, name: str, phase: Phase, **changes: Any) -> None:
        self.set(name, phase=phase, since=self.now, **changes)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self, made: Plan, before: frozenset[str]) -> None:
        view = self.view
        limits = view.limits
        if any(isinstance(s, Create) for s in made.steps):
            most = limits.replicas + (max(1, limits.surge) if view.repairing else limits.surge)
            self.must(view.vms <= most, f"I2: {view.vms} VMs > {most}")
        ours = {n for s in made.steps if isinstance(s, Delete) and s.reason not in CHOSEN_BY_PEOPLE for n in s.names}
        if ours & before and limits.replicas:
            floor = limits.floor - len(staying_failed(view))  # they count as replicas, and are the last to go (MCM S6)
            self.must(len(view.available) >= floor, f"I3: {len(view.available)} available < {floor}")
        self.must(len(in_flight(view)) <= limits.repairs, f"I4: {in_flight(view)} > {limits.repairs}")
        if any(isinstance(s, GrantPreservation) and s.by is PreservedBy.AUTO for s in made.steps):
            used, most = slots(staying_failed(view)), self.spec.auto_preserve_failed_max
            self.must(len(used) <= most, f"slots: {sorted(used)} > {most}")
        self.lowest = min(self.lowest, len(view.available))

    def must(self, holds: bool, what: str) -> None:
        if not holds:
            raise Broken("\n".join([*self.log, f"seed {self.seed}: {what}"]))

    # -- the story -----------------------------------------------------------------------------------------------------

    def state(self) -> None:
        parts, view = [], self.view
        for counter in sorted({m.revision for m in self.members.values()}):
            own = {n: m for n, m in self.members.items() if m.revision == counter}
            staying = own.keys() & view.active.keys()
            leaving = sum(1 for m in own.values() if m.deleting and m.vm is not Vm.GONE)
            words = f"revision {counter}: {len(staying)}, {len(staying & view.available)} available"
            parts.append(words + (f", {leaving} leaving" if leaving else ""))
        line = " | ".join(parts) or "no machines"
        if line != self._line:
            self._line = line
            self.say(f"{(self.now - EPOCH).total_seconds():4.0f}s {line}; {view.vms} VMs")

    def say(self, line: str) -> None:
        self.log.append(line)


Act = tuple[str, Callable[[World], bool], Callable[[World], None]]
"""A name, a condition for it, and what it does."""


def run(world: World, acts: list[Act]) -> World:
    """Runs until nothing moves any longer. Raises Broken where an invariant does not hold or it never ends."""
    acts = list(acts)
    for _ in range(MOST_TURNS):
        if acts and acts[0][1](world):
            acts.pop(0)[2](world)
        made = world.turn()
        if acts or made.steps or any(map(world.moves, world.members)):
            continue
        last = plan(world.observed, world.spec, world.now)  # a machine may have moved after the other
        if not last.steps and last.next_look is None:
            world.state()
            return world
    world.must(False, f"it does not end within {MOST_TURNS} turns; {len(acts)} acts left")
    return world


# -- one plan at a time ------------------------------------------------------------------------------------------------


R, P, U, F, C = Phase.RUNNING, Phase.PENDING, Phase.UNKNOWN, Phase.FAILED, Phase.CRASH_LOOP_BACK_OFF
FAST = Pace(revision=2, window=pace.CAP)
LATER = EPOCH + timedelta(hours=1)


def at(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def pool(*counts: int, phase: Phase = R) -> dict[str, Member]:
    """This many machines of revisions 1, 2, …; the newest is the last."""
    made = [(r, n) for r, count in enumerate(counts, start=1) for n in range(count)]
    return {f"r{r}-{n:02d}": member(r, phase, age=1000 - r) for r, n in made}


def look(
    members: dict[str, Member], settings: MachineDeploymentSpec, now: datetime = EPOCH, revision: int = 2, **more: Any
) -> Plan:
    observed = ObservedPool(members, revision, **{"pace": Pace(revision=revision, window=pace.CAP), **more})
    if "rollout" not in more:
        observed = ObservedPool(**{**vars(observed), "rollout": progress.follow(observed, settings, now)})
    return plan(observed, settings, now)


def created(made: Plan) -> int:
    return sum(s.count for s in made.steps if isinstance(s, Create))


def deleted(made: Plan, reason: str = "") -> list[str]:
    return [n for s in made.steps if isinstance(s, Delete) and s.reason.startswith(reason) for n in s.names]


def granted(made: Plan) -> list[str]:
    return [n for s in made.steps if isinstance(s, GrantPermit) for n in s.names]


def preserving(made: Plan, by: PreservedBy) -> list[str]:
    return [n for s in made.steps if isinstance(s, GrantPreservation) and s.by is by for n in s.names]


def taking(made: Plan) -> list[str]:
    return [n for s in made.steps if isinstance(s, TakeSlots) for n in s.names]


def waits(made: Plan) -> set[str]:
    return {w.reason for w in made.waits}


def asking(seconds: int = 0) -> Member:
    return member(2, U, age=seconds, trouble=Trouble.HEALTH, permit=Permit.ASKED)


def failing(**more: Any) -> Member:
    """A machine that is Failed by permit, after a life that lasted."""
    return member(2, F, **{"trouble": Trouble.HEALTH, "permit": Permit.GRANTED, "lasted": True, **more})


def drained(keep: PreserveWish = PreserveWish.SLOT, **more: Any) -> Member:
    """A machine that is Failed, and waits to hear whether it is preserved."""
    return failing(drained=True, keep=keep, **more)


def kept(by: PreservedBy = PreservedBy.AUTO, **more: Any) -> Member:
    """A machine that is Failed, and preserved."""
    given = {"drained": True, "preserved_until": LATER, "preserved_by": by, "trouble": Trouble.HEALTH, "lasted": True}
    return member(2, F, **{**given, **more})


def report(phase: Phase = Phase.RUNNING, **more: Any) -> MemberReport:
    """It says what has been so since five minutes after EPOCH."""
    since = EPOCH + timedelta(minutes=5)
    fields: dict[str, Any] = {"machine": "m1", "seq": 2, "phase": phase, "since": since, "vm": Vm.LIVES}
    return MemberReport(**{**fields, **more})


def limited(most: int, replicas: int = 5, **more: Any) -> MachineDeploymentSpec:
    """A spec with so many slots for Failed machines."""
    return spec(replicas, autoPreserveFailedMax=most, **more)


def both(made: Plan) -> tuple[list[str], list[str]]:
    """Machines that are preserved in a slot, and those that are deleted."""
    return preserving(made, PreservedBy.AUTO), deleted(made)
