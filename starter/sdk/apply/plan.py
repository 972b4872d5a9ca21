"""What `apply` would do: everything is read and judged before anything is sent, so that nothing is half done."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine.manifest import Machine
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.manifests import Loaded, MachineClass, Secret
from resources.pool.manifest import MachineDeployment
from starter.sdk import parallel
from starter.sdk.apply.classes import ClassPlan, ClassPlanner, own_annotations, same_content
from starter.sdk.apply.pools import POOL_KIND, PoolPlan, PoolPlanner, PoolTouched
from starter.sdk.classes import Classes
from starter.sdk.clusters import Clusters
from starter.sdk.entity import EntityKey
from starter.sdk.errors import HostlerError, Refused, translated
from starter.sdk.machines.shelf import Machines
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Applied, Life, Verb
from starter.sdk.starts import start_cluster, start_machine

if TYPE_CHECKING:
    from starter.sdk.apply.sources import SecretSource

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
    pools: tuple[PoolTouched, ...] = ()
    """For a changed class: what the change does to the pools that use it."""

    def told(self, note: str = "", verb: Verb | None = None) -> Applied:
        return Applied(self.kind, self.name, verb or self.verb, note or self.note)


@dataclass
class ApplyPlan:
    """Steps in the order in which they are done: Secrets, clusters, classes, pools, machines."""

    secrets: list[ApplyStep] = field(default_factory=list)
    clusters: list[ApplyStep] = field(default_factory=list)
    classes: list[ApplyStep] = field(default_factory=list)
    pools: list[ApplyStep] = field(default_factory=list)
    machines: list[ApplyStep] = field(default_factory=list)

    @property
    def steps(self) -> list[ApplyStep]:
        return [*self.secrets, *self.clusters, *self.classes, *self.pools, *self.machines]

    async def execute(self) -> AsyncIterator[Applied]:
        """Does every step and reports each as soon as it and those before it are done.

        A failed Secret, cluster or class ends it; a failed pool or machine does not hold up the others. Raises
        HostlerError with every failure at the end, and Refused before anything is done where a class will not be taken.
        """
        self.judge()
        for step in (*self.secrets, *self.clusters, *self.classes):
            yield await _run(step)
        failures: list[str] = []
        for steps in (self.pools, self.machines):
            async for applied in _side_by_side(steps, failures):
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


async def _side_by_side(steps: Sequence[ApplyStep], failures: list[str]) -> AsyncIterator[Applied]:
    async with parallel.under_way(partial(_run, step) for step in steps) as tasks:
        for task in tasks:
            try:
                yield await task
            except HostlerError as e:
                failures.append(str(e))


async def _run(step: ApplyStep) -> Applied:
    with translated():
        return step.told() if step.run is None else await step.run()


class Planner:
    """Makes one Plan. `cluster` overrides what the manifests say."""

    def __init__(
        self, machines: Machines, pools: Pools, classes: Classes, clusters: Clusters, cluster: str | None
    ) -> None:
        self._connection = machines.connection
        self._settings = machines.settings
        self._machines = machines
        self._clusters = clusters
        self._cluster = cluster
        self._classes = ClassPlanner(classes, machines, pools)
        self._pools = PoolPlanner(pools)

    async def plan(self, loaded: Loaded) -> ApplyPlan:
        """Makes the plan. Raises Refused with everything that is wrong, one line each."""
        machines = {(self._cluster_of(m), m.metadata.name): m for m in loaded.machines}
        pools = {(self._cluster_of(p), p.metadata.name): p for p in loaded.pools}
        manifests = {(self._cluster_of(c), c.metadata.name): c for c in loaded.classes}
        self._no_twins(loaded)
        clusters = {cluster for cluster, _ in (*machines, *pools, *manifests)}
        self._known(clusters)
        plan = ApplyPlan(secrets=await self._plan_secrets(loaded.secrets))
        named = {(cluster, m.spec.class_.name) for (cluster, _), m in machines.items()}
        named |= {(cluster, p.spec.template.spec.class_.name) for (cluster, _), p in pools.items()}
        await gather(partial(self._classes.add, *key, manifests.get(key)) for key in sorted(named | set(manifests)))
        plan.classes = [await self._class_step(self._classes.plans[key], pools) for key in manifests]
        plan.pools = await gather(partial(self._pool_step, key, pool) for key, pool in pools.items())
        plan.machines = await gather(partial(self.machine, key, machine) for key, machine in machines.items())
        plan.clusters = await gather(partial(self._cluster_step, c) for c in sorted(clusters))
        plan.clusters = [s for s in plan.clusters if s.verb is not Verb.UNCHANGED]
        return plan

    def _cluster_of(self, manifest: Machine | MachineClass | MachineDeployment) -> str:
        return self._connection.cluster_of(manifest, self._cluster)

    def _known(self, clusters: set[str]) -> None:
        """Checks the cluster. A machine of a mistyped one would wait for ever: no worker polls its queues."""
        if self._settings.clusters:
            for name in sorted(clusters):
                self._settings.cluster(name)

    def _no_twins(self, loaded: Loaded) -> None:
        keys = [f"machine {m.metadata.name} of cluster {self._cluster_of(m)}" for m in loaded.machines]
        keys += [f"pool {p.metadata.name} of cluster {self._cluster_of(p)}" for p in loaded.pools]
        keys += [f"machineclass {c.metadata.name} of cluster {self._cluster_of(c)}" for c in loaded.classes]
        keys += [f"secret {s.metadata.namespace}/{s.metadata.name}" for s in loaded.secrets]
        twins = [key for key, count in Counter(keys).items() if count > 1]
        if twins:
            raise Refused(f"{', '.join(twins)}: given more than once; keep only one of them")

    # -- secrets ------------------------------------------------------------------------------------------------------

    async def _plan_secrets(self, secrets: Sequence[Secret]) -> list[ApplyStep]:
        if not secrets:
            return []
        from starter.sdk.apply.sources import open_source  # the Kubernetes client takes a second to import

        async with open_source(self._settings) as source:
            return [await self._secret_step(source, s) for s in secrets]

    async def _secret_step(self, source: SecretSource, secret: Secret) -> ApplyStep:
        from starter.sdk.apply.sources import open_source

        verb = await source.compare(secret)
        step = ApplyStep("secret", secret.metadata.name, verb)

        async def run() -> Applied:
            async with open_source(self._settings) as opened:
                return step.told(verb=await opened.write(secret))

        return step if verb is Verb.UNCHANGED else ApplyStep(step.kind, step.name, verb, run=run)

    # -- the cluster --------------------------------------------------------------------------------------------------

    async def _cluster_step(self, name: str) -> ApplyStep:
        running = await self._clusters.is_watched(name)

        async def run() -> Applied:
            await start_cluster(self._connection.temporal, self._settings, name)
            return Applied("cluster", name, Verb.CREATED)

        return ApplyStep("cluster", name, Verb.UNCHANGED if running else Verb.CREATED, run=None if running else run)

    # -- classes ------------------------------------------------------------------------------------------------------

    async def _class_step(self, plan: ClassPlan, pools: Mapping[EntityKey, MachineDeployment]) -> ApplyStep:
        run = None if plan.verb is Verb.UNCHANGED else partial(self._classes.carry_out, plan)
        touched = tuple(await self._pools.touched(plan, pools))
        return ApplyStep("machineclass", plan.name, plan.verb, run=run, machine_class=plan, pools=touched)

    def _class_of(self, key: EntityKey, manifest: Machine, state: MachineState | None) -> ClassPlan:
        """The class of a machine. Raises Refused where nothing is known of the class, except by the machine itself."""
        name = manifest.spec.class_.name
        found = self._classes.plans.get((key[0], name))
        if found is not None:
            return found
        has = state.machine_class if state else None
        # Raises Refused for any other class than the one that the machine has.
        return ClassPlan(name, key[0], Verb.UNCHANGED, snapshot_of(None, has, name))

    # -- pools --------------------------------------------------------------------------------------------------------

    async def _pool_step(self, key: EntityKey, manifest: MachineDeployment) -> ApplyStep:
        """The step of a pool. Raises Refused in the pool's name."""
        cluster, name = key
        of = self._classes.plans.get((cluster, manifest.spec.template.spec.class_.name))
        try:
            plan = await self._pools.plan(key, manifest, of)
        except Refused as e:
            raise Refused(f"pool {name}: {e}") from None
        run = partial(self._pools.carry_out, plan) if plan.told else None
        return ApplyStep(POOL_KIND, name, plan.verb, plan.note, run, plan.of, pool=plan)

    # -- machines -----------------------------------------------------------------------------------------------------

    async def machine(self, key: EntityKey, manifest: Machine) -> ApplyStep:
        """The step of a machine. Raises Refused in the machine's name."""
        cluster, name = key
        try:
            life = await self._machines.find(name, cluster=cluster)
            if life is None or not life.running:
                return self._start_step(key, manifest, life)
            state = await self._machines.state(life)
            if state.deletion is not None or state.status.phase is Phase.TERMINATING:
                raise Refused(
                    f"it is being deleted: wait until it is gone (hostler wait machine {name} --for=deleted), then "
                    "apply again"
                )
            return self._apply_step(state, manifest, self._class_of(key, manifest, state))
        except Refused as e:
            raise Refused(f"machine {name}: {e}") from None

    def _start_step(self, key: EntityKey, manifest: Machine, former: Life | None) -> ApplyStep:
        cluster, name = key
        of = self._class_of(key, manifest, None)
        note = _of_former(name, former) if former is not None and former.closed is not None else ""

        async def run() -> Applied:
            state = MachineState(
                name=name,
                cluster=cluster,
                namespace=manifest.metadata.namespace,
                labels=manifest.metadata.labels,
                annotations=own_annotations(manifest.metadata.annotations),
                spec=manifest.spec,
                machine_class=of.snapshot,
                queue_prefix=self._settings.queue_prefix,
                timings=self._settings.timings,
                life=1,
            )
            try:
                await start_machine(
                    self._connection.temporal,
                    state,
                    reason="CreatingVM",
                    created=datetime.now(UTC),
                    reuse=WorkflowIDReusePolicy.ALLOW_DUPLICATE,  # a name whose machine is gone gets a new life
                )
            except WorkflowAlreadyStartedError:
                # Somebody else applied the same name between our look and our start: tell that machine instead.
                step = await self.machine(key, manifest)
                return await _run(step)
            return Applied("machine", name, Verb.CREATED, note)

        return ApplyStep("machine", name, Verb.CREATED, note, run, of, wanted=manifest)

    def _apply_step(self, state: MachineState, manifest: Machine, of: ClassPlan) -> ApplyStep:
        """Applies to a machine that exists. What only its class changes, the class tells it, a few machines at a time;
        all else is told here."""
        step = ApplyStep("machine", state.name, Verb.CONFIGURED, machine_class=of, former=state, wanted=manifest)
        has = state.machine_class
        if not _own_changes(state, manifest):
            if has is not None and has.name == of.name and same_content(has, of.snapshot):
                return replace(step, verb=Verb.UNCHANGED)
            if of.tells(state.name):
                told = "its class tells it" if of.new_content else ""
                return replace(step, note=told, verb=Verb.CONFIGURED if told else Verb.UNCHANGED)
        return replace(step, run=partial(self._tell, state, manifest, of))

    async def _tell(self, state: MachineState, manifest: Machine, of: ClassPlan) -> Applied:
        intent = ApplyIntent(
            **self._connection.by(),
            spec=manifest.spec,
            machine_class=of.for_user(state.machine_class),
            labels=manifest.metadata.labels,
            annotations=own_annotations(manifest.metadata.annotations),
        )
        sent = await self._machines.send(state.name, "apply", intent, cluster=state.cluster)
        # The answer may begin with the word that the line has already.
        note = sent.message.removeprefix(Verb.CONFIGURED).lstrip("; ")
        return Applied("machine", state.name, Verb.CONFIGURED, note)


def _own_changes(state: MachineState, manifest: Machine) -> bool:
    """Whether the manifest differs from the machine in more than the class's own contents."""
    meta = manifest.metadata
    return (
        manifest.spec.model_dump(mode="json", by_alias=True) != state.spec.model_dump(mode="json", by_alias=True)
        or meta.labels != state.labels
        or own_annotations(meta.annotations) != state.annotations
    )


def snapshot_of(manifest: MachineClass | None, current: ClassSnapshot | None, name: str) -> ClassSnapshot:
    """The class for a machine: from its manifest, else as the machine has it. A changed one is a generation newer."""
    if manifest is None:
        if current is not None and current.name == name:
            return current
        raise Refused(
            f"class {name!r} is in none of the files and was not applied before"
            + (f"; the machine has another one ({current.name})" if current else "")
            + ": add the MachineClass (-f)"
        )
    fresh = ClassSnapshot.of(manifest, current.generation if current else 1)
    if current is None or (current.name == name and same_content(fresh, current)):
        return current or fresh
    return ClassSnapshot.of(manifest, current.generation + 1)


def _of_former(name: str, former: Life) -> str:
    """The note on a new machine of a name that was used before."""
    note = (
        f"the earlier machine of this name has been gone since {former.closed:%Y-%m-%d %H:%M:%S} UTC; this is a new one"
    )
    if former.status not in ("COMPLETED", "FAILED"):  # a failed one was refused at its beginning, and owned nothing
        note += (
            f". Somebody ended the earlier one's workflow ({former.status}): its VM may still exist; `hostler get "
            "orphans` lists such VMs, and no second VM is created beside one"
        )
    return note


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
