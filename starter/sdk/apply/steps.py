"""What is done with each manifest of one run of `apply`, in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from resources.machine.manifest import Machine
from resources.machine.state import MachineState
from starter.sdk import parallel
from starter.sdk.apply.classes import ClassPlan, OwnerTouched
from starter.sdk.apply.control_planes import ControlPlanePlan
from starter.sdk.apply.pools import PoolPlan
from starter.sdk.apply.worker_pools import WorkerPoolPlan
from starter.sdk.errors import HostlerError, Refused, translated
from starter.sdk.results import Applied, Verb
from starter.sdk.worker_pools import ZoneFound

T = TypeVar("T")


@dataclass(frozen=True)
class ApplyStep:
    """One manifest and what will be done with it; `run` does it and answers with what was done."""

    kind: str
    name: str
    verb: Verb
    note: str = ""
    run: Callable[[], Awaitable[Applied]] | None = None
    machine_class: ClassPlan | None = None
    """For a class: itself; for a machine: the class that it will have."""
    former: MachineState | None = None
    """For a machine that exists: its present state."""
    wanted: Machine | None = None
    pool: PoolPlan | None = None
    """For a pool: itself."""
    control_plane: ControlPlanePlan | None = None
    """For a control plane: itself."""
    owners: tuple[OwnerTouched, ...] = ()
    """For a changed class: what the change does to the pools and the control plane that use it."""
    removed: ZoneFound | None = None
    """For a pool that is deleted: the zone that its worker pool no longer has."""
    lines: tuple[str, ...] = ()
    """For a custom resource of machine configs: what changes in it."""
    worker_pool: WorkerPoolPlan | None = None
    """For a worker pool: itself. It needs no step of its own: its classes and pools have theirs."""

    def told(self, note: str = "", verb: Verb | None = None) -> Applied:
        return Applied(self.kind, self.name, verb or self.verb, note or self.note)


@dataclass
class ApplyPlan:
    """Steps in the order in which they are done: Secrets, clusters, machine configs, classes, pools, control planes,
    machines, removals."""

    secrets: list[ApplyStep] = field(default_factory=list)
    clusters: list[ApplyStep] = field(default_factory=list)
    configs: list[ApplyStep] = field(default_factory=list)
    """Custom resources of machine configs, and the workflow that renders them."""
    worker_pools: list[ApplyStep] = field(default_factory=list)
    classes: list[ApplyStep] = field(default_factory=list)
    pools: list[ApplyStep] = field(default_factory=list)
    control_planes: list[ApplyStep] = field(default_factory=list)
    machines: list[ApplyStep] = field(default_factory=list)
    removals: list[ApplyStep] = field(default_factory=list)
    """What a worker pool no longer has: pools of zones that were taken out, and classes that nobody uses."""
    warnings: list[str] = field(default_factory=list)
    """What does not hold it up, and yet will be missed: it may come later."""

    @property
    def steps(self) -> list[ApplyStep]:
        before = [*self.secrets, *self.clusters, *self.configs, *self.worker_pools, *self.classes]
        return [*before, *self.pools, *self.control_planes, *self.machines, *self.removals]

    async def execute(self) -> AsyncIterator[Applied]:
        """Does every step and reports each as soon as it and those before it are done.

        A failed Secret, cluster, machine config or class ends it; what fails after these does not hold up the others,
        but nothing is removed then. Raises HostlerError with every failure at the end, and Refused before anything is
        done where a class will not be taken.
        """
        self.judge()
        for step in (*self.secrets, *self.clusters, *self.configs, *self.worker_pools, *self.classes):
            yield await carry_out(step)
        failures: list[str] = []
        for steps in (*in_turn(self.pools), self.control_planes, self.machines):
            async for applied in _side_by_side(steps, failures):
                yield applied
        async for applied in _side_by_side([] if failures else self.removals, failures):
            yield applied
        if failures:
            raise Refused("\n".join(failures))

    def judge(self) -> None:
        """Raises Refused with every class that its workflow would not accept."""
        every = [
            f"machineclass {s.name}: {why}" for s in self.classes if s.machine_class for why in s.machine_class.refused
        ]
        if every:
            raise Refused("\n".join(every))


def in_turn(pools: Sequence[ApplyStep]) -> list[list[ApplyStep]]:
    """Steps that may be done side by side, and then those of pools that come after one of these
    (hostler.io/updates-after): such a pool asks the other how far it is, which must have heard of its change by then.
    """
    left, turns = list(pools), list[list[ApplyStep]]()
    while left:
        names = {(step.pool.cluster, step.name) for step in left if step.pool is not None}
        free = [step for step in left if step.pool is None or (step.pool.cluster, step.pool.first) not in names]
        turns.append(free or left)  # those that wait for each other have no order
        left = [step for step in left if step not in turns[-1]]
    return turns


async def _side_by_side(steps: Sequence[ApplyStep], failures: list[str]) -> AsyncIterator[Applied]:
    async with parallel.under_way(partial(carry_out, step) for step in steps) as tasks:
        for task in tasks:
            try:
                yield await task
            except HostlerError as e:
                failures.append(str(e))


async def carry_out(step: ApplyStep) -> Applied:
    with translated():
        return step.told() if step.run is None else await step.run()


async def gather(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs all of them, a few at a time; raises Refused with every refusal, not just the first."""
    refusals: list[str] = []

    async def one(call: Callable[[], Awaitable[T]]) -> list[T]:
        try:
            return [await call()]
        except Refused as e:
            refusals.append(str(e))
            return []

    answers = await parallel.each(partial(one, call) for call in calls)
    if refusals:
        raise Refused("\n".join(refusals))
    return [a for answer in answers for a in answer]
