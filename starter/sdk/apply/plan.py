"""What `apply` would do: everything is read and judged before anything is sent, so that nothing is half done."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.control_plane.expansion import Expanded, expand
from resources.control_plane.manifest import ControlPlaneMachineSet
from resources.machine.manifest import USER_DATA, Machine
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.manifests import ClusterManifest, Loaded, MachineClass, Secret
from resources.pool.manifest import MachineDeployment
from resources.words import utc
from resources.worker_pool.manifest import WorkerPool
from starter.sdk import parallel
from starter.sdk.apply.classes import (
    CLASS_KIND,
    ClassPlan,
    ClassPlanner,
    OwnerTouched,
    own_annotations,
    same_content,
)
from starter.sdk.apply.configs import ConfigPlanner
from starter.sdk.apply.control_planes import CONTROL_PLANE_KIND, ControlPlanePlan, ControlPlanePlanner
from starter.sdk.apply.pools import POOL_KIND, PoolPlan, PoolPlanner
from starter.sdk.apply.time_zones import unknown_zones
from starter.sdk.apply.worker_pools import (
    WORKER_POOL_KIND,
    WorkerPoolPlan,
    WorkerPoolPlanner,
    expanded,
    leaving,
    resolved,
)
from starter.sdk.classes import Classes
from starter.sdk.clusters import Clusters
from starter.sdk.control_plane.shelf import ControlPlanes
from starter.sdk.entity import EntityKey
from starter.sdk.errors import HostlerError, Refused, translated
from starter.sdk.machines.shelf import Machines
from starter.sdk.results import Applied, Life, Verb
from starter.sdk.secrets import CannotLook, Looked, look, needed, odd
from starter.sdk.starts import start_cluster, start_machine
from starter.sdk.worker_pools import WorkerPools, ZoneFound

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
            yield await _run(step)
        failures: list[str] = []
        for steps in (self.pools, self.control_planes, self.machines):
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
        self,
        machines: Machines,
        workers: WorkerPools,
        control_planes: ControlPlanes,
        classes: Classes,
        clusters: Clusters,
        cluster: str | None,
        force: bool = False,
    ) -> None:
        """`force`: fields of custom resources that others have are taken over."""
        self._connection = machines.connection
        self._settings = machines.settings
        self._machines = machines
        self._clusters = clusters
        self._cluster = cluster
        self._classes = ClassPlanner(classes, machines, workers.pools)
        self._pools = PoolPlanner(workers.pools)
        self._workers = WorkerPoolPlanner(workers)
        self._control_planes = ControlPlanePlanner(control_planes)
        self._configs = ConfigPlanner(clusters, force)

    async def plan(self, loaded: Loaded) -> ApplyPlan:
        """Makes the plan. Raises Refused with everything that is wrong, one line each."""
        if unknown := unknown_zones(loaded):
            raise Refused("\n".join(unknown))
        workers = await self._worker_pools(resolved(loaded))
        loaded = expanded(loaded, workers)
        machines = {(self._cluster_of(m), m.metadata.name): m for m in loaded.machines}
        pools = {(self._cluster_of(p), p.metadata.name): p for p in loaded.pools}
        sets = {(self._cluster_of(s), s.metadata.name): (s, expand(s)) for s in loaded.control_planes}
        made = [e.machine_class for _, e in sets.values() if e.machine_class is not None]
        loaded = replace(loaded, classes=[*loaded.classes, *made])
        manifests = {(self._cluster_of(c), c.metadata.name): c for c in loaded.classes}
        self._no_twins(loaded)
        clusters = {cluster for cluster, _ in (*machines, *pools, *sets, *manifests)}
        self._known({*clusters, *self._config_clusters(loaded)})
        plan = ApplyPlan(secrets=await self._plan_secrets(loaded.secrets))
        named = {(cluster, m.spec.class_.name) for (cluster, _), m in machines.items()}
        named |= {(cluster, p.spec.template.spec.class_.name) for (cluster, _), p in pools.items()}
        named |= {(cluster, e.spec.template.spec.class_.name) for (cluster, _), (_, e) in sets.items()}
        await gather(partial(self._classes.add, *key, manifests.get(key)) for key in sorted(named | set(manifests)))
        plan.classes = [await self._class_step(self._classes.plans[key], pools, sets) for key in manifests]
        plan.pools = await gather(partial(self._pool_step, key, pool) for key, pool in pools.items())
        plan.control_planes = await gather(partial(self._control_plane_step, key, *of) for key, of in sets.items())
        plan.machines = await gather(partial(self.machine, key, machine) for key, machine in machines.items())
        plan.clusters = await gather(partial(self._cluster_step, c) for c in sorted(clusters))
        plan.clusters = [s for s in plan.clusters if s.verb is not Verb.UNCHANGED]
        plan.configs, alone = await self._config_steps(loaded)
        plan.worker_pools = [
            ApplyStep(WORKER_POOL_KIND, of.name, of.verb, worker_pool=of, note=f"{len(of.expansion.zones)} zones")
            for of in workers
        ]
        plan.removals = [step for of in workers for step in self._removals(of)]
        shares = [f"workerpool {of.name}: {line}" for of in workers for line in of.expansion.warnings]
        plan.warnings = [*shares, *alone, *await self._missing_secrets(loaded)]
        return plan

    def _cluster_of(self, manifest: ClusterManifest) -> str:
        return self._connection.cluster_of(manifest, self._cluster)

    def _known(self, clusters: set[str]) -> None:
        """Checks the cluster. A machine of a mistyped one would wait for ever: no worker polls its queues."""
        if self._settings.clusters:
            for name in sorted(clusters):
                self._settings.cluster(name)

    def _no_twins(self, loaded: Loaded) -> None:
        keys = [f"machine {m.metadata.name} of cluster {self._cluster_of(m)}" for m in loaded.machines]
        keys += [f"pool {p.metadata.name} of cluster {self._cluster_of(p)}" for p in loaded.pools]
        keys += [f"the control plane of cluster {self._cluster_of(s)}" for s in loaded.control_planes]
        keys += [f"machineclass {c.metadata.name} of cluster {self._cluster_of(c)}" for c in loaded.classes]
        keys += [f"{c.KIND.singular} {c.name} of cluster {self._cluster_of(c)}" for c in loaded.configs]
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

    async def _missing_secrets(self, loaded: Loaded) -> list[str]:
        """The Secrets that a class of these files names, and that are neither in the source nor in the files; and what
        looks wrong with the user data in them."""
        given = {(s.metadata.namespace, s.metadata.name): s.plain() for s in loaded.secrets}
        users = {one: of.metadata.name for of in loaded.classes for one in needed(self._settings, of)}
        wanted = [one for one in users if (one.namespace, one.name) not in given]
        found = {
            one: f"in these files has no key {one.key!r}"
            for one in users.keys() - wanted
            if one.key and one.key not in given[one.namespace, one.name]
        }
        there = [one for one in users if one not in wanted]
        doubtful = {one: words for one in there if (words := odd(one, given[one.namespace, one.name]))}
        try:
            looked = await look(self._settings, wanted) if wanted else Looked({}, {})
        except CannotLook as e:
            names = ", ".join(sorted({str(one) for one in wanted}))
            lines = [] if e.by_design else [f"could not look whether {names} exists: {e}"]
        else:
            found, doubtful, lines = found | looked.missing, doubtful | looked.odd, []
        lines += [
            f"machineclass {users[one]}: {one} {what}: its machines wait for it (CredentialsMissing)"
            for one, what in found.items()
        ]
        return lines + [f"machineclass {users[one]}: {one}: {USER_DATA}: {what}" for one, what in doubtful.items()]

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

    # -- machine configs ----------------------------------------------------------------------------------------------

    async def _config_steps(self, loaded: Loaded) -> tuple[list[ApplyStep], list[str]]:
        """The steps of custom resources of machine configs, and warnings."""
        of = {
            cluster: [m for m in loaded.configs if self._cluster_of(m) == cluster]
            for cluster in self._config_clusters(loaded)
        }
        plans = [p for cluster, manifests in of.items() for p in await self._configs.plan(cluster, manifests)]
        alone = [words for cluster in of if (words := self._configs.unattended(cluster))]
        return [ApplyStep(p.kind, p.name, p.verb, run=p.run, lines=p.lines) for p in plans], alone

    def _config_clusters(self, loaded: Loaded) -> list[str]:
        return sorted({self._cluster_of(m) for m in loaded.configs})

    # -- classes ------------------------------------------------------------------------------------------------------

    async def _class_step(
        self, plan: ClassPlan, pools: Mapping[EntityKey, MachineDeployment], sets: Collection[EntityKey]
    ) -> ApplyStep:
        run = None if plan.verb is Verb.UNCHANGED else partial(self._classes.carry_out, plan)
        touched = (*await self._pools.touched(plan, pools), *await self._control_planes.touched(plan, sets))
        return ApplyStep("machineclass", plan.name, plan.verb, run=run, machine_class=plan, owners=touched)

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

    # -- control planes -----------------------------------------------------------------------------------------------

    async def _control_plane_step(
        self, key: EntityKey, manifest: ControlPlaneMachineSet, comes_to: Expanded
    ) -> ApplyStep:
        """The step of a control plane. Raises Refused in its name."""
        of = self._classes.plans.get((key[0], comes_to.spec.template.spec.class_.name))
        try:
            plan = await self._control_planes.plan(key, manifest, comes_to, of)
        except Refused as e:
            raise Refused(f"controlplane {key[1]}: {e}") from None
        run = partial(self._control_planes.carry_out, plan) if plan.told else None
        return ApplyStep(CONTROL_PLANE_KIND, plan.name, plan.verb, plan.note, run, plan.of, control_plane=plan)

    # -- worker pools -------------------------------------------------------------------------------------------------

    async def _worker_pools(self, manifests: Sequence[WorkerPool]) -> list[WorkerPoolPlan]:
        keys = [(self._cluster_of(m), m.metadata.name) for m in manifests]
        self._known({cluster for cluster, _ in keys})
        if twins := [f"workerpool {name} of cluster {c}" for (c, name), n in Counter(keys).items() if n > 1]:
            raise Refused(f"{', '.join(twins)}: given more than once; keep only one of them")
        return await gather(partial(self._workers.plan, k, m) for k, m in zip(keys, manifests, strict=True))

    def _removals(self, of: WorkerPoolPlan) -> list[ApplyStep]:
        """The pools of zones that were taken out, and the classes that nobody uses any longer."""

        async def pool(zone: ZoneFound) -> Applied:
            why = f"zone {zone.zone} was taken out of worker pool {of.name}"
            sent = await self._pools.pools.delete(zone.name, reason=why, cluster=of.cluster)
            return Applied(POOL_KIND, zone.name, Verb.DELETED, sent.message)

        async def unused(name: str) -> Applied:
            await self._classes.classes.delete(name, reason="nobody uses it any longer", cluster=of.cluster)
            return Applied(CLASS_KIND, name, Verb.DELETED, "nobody uses it any longer")

        return [
            *(
                ApplyStep(POOL_KIND, zone.name, Verb.DELETED, leaving(of, zone), partial(pool, zone), removed=zone)
                for zone in of.removed
            ),
            *(
                ApplyStep(CLASS_KIND, name, Verb.DELETED, "nobody uses it any longer", partial(unused, name))
                for name in of.unused
            ),
        ]

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
    note = f"the earlier machine of this name has been gone since {utc(former.closed)}; this is a new one"
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
