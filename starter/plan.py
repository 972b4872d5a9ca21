"""What `apply` would do: everything is read and judged before anything is sent, so that nothing is half done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.manifests import Loaded, Machine, MachineClass, Secret
from resources.names import CLUSTER_ANNOTATION
from resources.settings import Settings
from starter.errors import HostlerError, Refused, translated
from starter.intents import new_id
from starter.results import Applied, Life, Verb
from starter.starts import start_cluster, start_machine

if TYPE_CHECKING:
    from starter.client import HostlerClient
    from starter.sources import SecretSource

PARALLEL = 10
"""Machines that are read or told at the same time."""


@dataclass(frozen=True)
class Step:
    """One manifest and what will be done with it; `run` does it and answers with what was done."""

    kind: str
    name: str
    verb: Verb
    note: str = ""
    run: Callable[[], Awaitable[Applied]] | None = None

    def told(self, note: str = "", verb: Verb | None = None) -> Applied:
        return Applied(self.kind, self.name, verb or self.verb, note or self.note)


@dataclass
class Plan:
    """Steps in the order in which they are done: Secrets, clusters, classes, machines."""

    secrets: list[Step] = field(default_factory=list)
    clusters: list[Step] = field(default_factory=list)
    classes: list[Step] = field(default_factory=list)
    machines: list[Step] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        return [*self.secrets, *self.clusters, *self.classes, *self.machines]

    async def execute(self) -> AsyncIterator[Applied]:
        """Does every step and tells of each as soon as it and those before it are done.

        A failed Secret or cluster ends it; a failed machine does not hold up the others. Raises HostlerError with every
        failure at the end.
        """
        for step in (*self.secrets, *self.clusters, *self.classes):
            yield await _run(step)
        slots = asyncio.Semaphore(PARALLEL)

        async def one(step: Step) -> Applied:
            async with slots:
                return await _run(step)

        failures: list[str] = []
        tasks = [asyncio.create_task(one(step)) for step in self.machines]
        try:
            for task in tasks:
                try:
                    yield await task
                except HostlerError as e:
                    failures.append(str(e))
        finally:
            for task in tasks:
                task.cancel()
        if failures:
            raise Refused("\n".join(failures))


async def _run(step: Step) -> Applied:
    with translated():
        return step.told() if step.run is None else await step.run()


Key = tuple[str, str]
"""Cluster and name."""


class Planner:
    """Makes one Plan. `cluster` overrides what the manifests say."""

    def __init__(self, client: HostlerClient, cluster: str | None) -> None:
        self._client = client
        self._settings: Settings = client.settings
        self._cluster = cluster
        self._classes: dict[Key, MachineClass] = {}
        self._touched: dict[Key, list[Verb]] = {}

    async def plan(self, loaded: Loaded) -> Plan:
        """Raises Refused with everything that is wrong, one line each."""
        machines = {(self._cluster_of(m), m.metadata.name): m for m in loaded.machines}
        self._classes = {(self._cluster_of(c), c.metadata.name): c for c in loaded.classes}
        self._no_twins(loaded)
        clusters = {cluster for cluster, _ in (*machines, *self._classes)}
        self._known(clusters)
        plan = Plan(secrets=await self._plan_secrets(loaded.secrets))
        plan.machines = await _gather(partial(self.machine, key, machine) for key, machine in machines.items())
        plan.machines += await self._other_users(set(machines))
        plan.classes = self._plan_classes()
        plan.clusters = await _gather(partial(self._cluster_step, c) for c in sorted(clusters))
        plan.clusters = [s for s in plan.clusters if s.verb is not Verb.UNCHANGED]
        return plan

    def _cluster_of(self, manifest: Machine | MachineClass) -> str:
        return self._client.cluster_of(manifest, self._cluster)

    def _known(self, clusters: set[str]) -> None:
        """A mistyped cluster would be a machine that waits for ever: no worker polls its queues."""
        if self._settings.clusters:
            for name in sorted(clusters):
                self._settings.cluster(name)

    def _no_twins(self, loaded: Loaded) -> None:
        keys = [f"machine {m.metadata.name} of cluster {self._cluster_of(m)}" for m in loaded.machines]
        keys += [f"machineclass {c.metadata.name} of cluster {self._cluster_of(c)}" for c in loaded.classes]
        keys += [f"secret {s.metadata.namespace}/{s.metadata.name}" for s in loaded.secrets]
        twins = [key for key, count in Counter(keys).items() if count > 1]
        if twins:
            raise Refused(f"{', '.join(twins)}: given more than once; which one counts? Keep one of them")

    # -- secrets ------------------------------------------------------------------------------------------------------

    async def _plan_secrets(self, secrets: Sequence[Secret]) -> list[Step]:
        if not secrets:
            return []
        from starter.sources import open_source  # the Kubernetes client takes a second to import

        async with open_source(self._settings) as source:
            return [await self._secret_step(source, s) for s in secrets]

    async def _secret_step(self, source: SecretSource, secret: Secret) -> Step:
        from starter.sources import open_source

        verb = await source.compare(secret)
        step = Step("secret", secret.metadata.name, verb)

        async def run() -> Applied:
            async with open_source(self._settings) as opened:
                return step.told(verb=await opened.write(secret))

        return step if verb is Verb.UNCHANGED else Step(step.kind, step.name, verb, run=run)

    # -- the cluster --------------------------------------------------------------------------------------------------

    async def _cluster_step(self, name: str) -> Step:
        running = await self._client.cluster_is_watched(name)

        async def run() -> Applied:
            await start_cluster(self._client.temporal, self._settings, name)
            return Applied("cluster", name, Verb.CREATED)

        return Step("cluster", name, Verb.UNCHANGED if running else Verb.CREATED, run=None if running else run)

    # -- classes ------------------------------------------------------------------------------------------------------

    async def _other_users(self, given: set[Key]) -> list[Step]:
        """Running machines that name a class of this run but are not in its files: the class reaches them too."""
        others: list[Callable[[], Awaitable[Step]]] = []
        for cluster, class_name in self._classes:
            for summary in await self._client.list(cluster=cluster, machine_class=class_name):
                if (cluster, summary.name) not in given:
                    others.append(partial(self._reclass, cluster, summary.name, class_name))
        return await _gather(others)

    async def _reclass(self, cluster: str, name: str, class_name: str) -> Step:
        step = Step("machine", name, Verb.UNCHANGED)
        life = await self._client.life(name, cluster=cluster)
        if not life.running:
            return step
        state = await self._client.state(life)
        if state.spec.class_.name != class_name or state.deletion is not None:
            return step  # visibility is a second behind, and a machine that goes needs no new class
        snapshot = self._snapshot(state, (cluster, class_name))
        return self._apply_step(state, self._intent(state, snapshot), (cluster, class_name))

    def _plan_classes(self) -> list[Step]:
        steps = []
        unused = [f"{c}/{n}" for c, n in self._classes if (c, n) not in self._touched]
        if unused:
            raise Refused(
                f"machineclass {', '.join(unused)}: no machine names it, and a class lives in the machines that do: "
                "apply it together with a Machine (one that was started a second ago may not be listed yet)"
            )
        for key, verbs in self._touched.items():
            if key in self._classes:
                # As a whole it changed if one of its users' copies does.
                verb = next((v for v in (Verb.CONFIGURED, Verb.UNCHANGED) if v in verbs), Verb.CREATED)
                steps.append(Step("machineclass", key[1], verb))
        return steps

    def _snapshot(self, state: MachineState | None, key: Key) -> ClassSnapshot:
        return snapshot_of(self._classes.get(key), state.machine_class if state else None, key[1])

    # -- machines -----------------------------------------------------------------------------------------------------

    async def machine(self, key: Key, manifest: Machine) -> Step:
        """Raises Refused in the machine's name."""
        cluster, name = key
        try:
            life = await self._client.find(name, cluster=cluster)
            if life is None or not life.running:
                return self._start_step(key, manifest, life)
            state = await self._client.state(life)
            if state.deletion is not None or state.status.phase is Phase.TERMINATING:
                raise Refused(
                    f"it is being deleted: wait for its end (hostler wait machine {name} --for=deleted), then apply "
                    "again"
                )
            class_key = (cluster, manifest.spec.class_.name)
            intent = self._intent(state, self._snapshot(state, class_key), manifest)
            return self._apply_step(state, intent, class_key)
        except Refused as e:
            raise Refused(f"machine {name}: {e}") from None

    def _start_step(self, key: Key, manifest: Machine, former: Life | None) -> Step:
        cluster, name = key
        class_key = (cluster, manifest.spec.class_.name)
        state = MachineState(
            name=name,
            cluster=cluster,
            namespace=manifest.metadata.namespace,
            labels=manifest.metadata.labels,
            annotations=own_annotations(manifest.metadata.annotations),
            spec=manifest.spec,
            machine_class=self._snapshot(None, class_key),
            queue_prefix=self._settings.queue_prefix,
            timings=self._settings.timings,
        )
        self._touched.setdefault(class_key, []).append(Verb.CREATED)
        note = _of_former(name, former) if former is not None and former.closed is not None else ""

        async def run() -> Applied:
            try:
                await start_machine(
                    self._client.temporal,
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

        return Step("machine", name, Verb.CREATED, note, run)

    def _intent(self, state: MachineState, snapshot: ClassSnapshot, manifest: Machine | None = None) -> ApplyIntent:
        return ApplyIntent(
            id=new_id(),
            requested_by=self._client.requested_by,
            spec=manifest.spec if manifest else state.spec,
            machine_class=snapshot,
            labels=manifest.metadata.labels if manifest else state.labels,
            annotations=own_annotations(manifest.metadata.annotations) if manifest else state.annotations,
        )

    def _apply_step(self, state: MachineState, intent: ApplyIntent, class_key: Key) -> Step:
        fields = ("spec", "machine_class", "labels", "annotations")
        changed = [f for f in fields if _plain(getattr(intent, f)) != _plain(getattr(state, f))]
        reclassed = Verb.CONFIGURED if "machine_class" in changed else Verb.UNCHANGED
        self._touched.setdefault(class_key, []).append(reclassed)
        if not changed:
            return Step("machine", state.name, Verb.UNCHANGED)

        async def run() -> Applied:
            sent = await self._client.send(state.name, "apply", intent, cluster=state.cluster)
            # The answer may begin with the word that the line has already.
            note = sent.message.removeprefix(Verb.CONFIGURED).lstrip("; ")
            return Applied("machine", state.name, Verb.CONFIGURED, note)

        return Step("machine", state.name, Verb.CONFIGURED, run=run)


def snapshot_of(manifest: MachineClass | None, current: ClassSnapshot | None, name: str) -> ClassSnapshot:
    """The class for a machine: by its manifest, else as the machine has it. A changed one is a generation newer."""
    if manifest is None:
        if current is not None and current.name == name:
            return current
        raise Refused(
            f"class {name!r} is in none of the files"
            + (f", and the machine has another one ({current.name})" if current else "")
            + ": add the MachineClass (-f)"
        )
    fresh = ClassSnapshot.of(manifest, current.generation if current else 1)
    if current is None or _same(fresh, current):
        return current or fresh
    return ClassSnapshot.of(manifest, current.generation + 1)


def _of_former(name: str, former: Life) -> str:
    """What is said to a new machine of a name that was used before."""
    note = f"a machine of this name is gone since {former.closed:%Y-%m-%d %H:%M:%S} UTC; this is a new one"
    if former.status not in ("COMPLETED", "FAILED"):  # the latter was refused at its beginning, and owned nothing
        note += (
            f". The former one's workflow was ended from outside ({former.status}): its VM may still be there; "
            "`hostler get orphans` lists such VMs"
        )
    return note


def own_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Without the cluster: `get -o yaml` prints it as part of the identity, so it must not count as a change."""
    return {k: v for k, v in annotations.items() if k != CLUSTER_ANNOTATION}


def _plain(value: Any) -> Any:
    """As it travels: YAML's dates and Temporal's JSON must compare equal."""
    return value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else value


def _same(a: ClassSnapshot, b: ClassSnapshot) -> bool:
    return bool(_plain(a) == _plain(b))


async def _gather(calls: Iterable[Callable[[], Awaitable[Step]]]) -> list[Step]:
    """All of them, a few at a time; raises Refused with every refusal, not the first alone."""
    slots = asyncio.Semaphore(PARALLEL)

    async def one(call: Callable[[], Awaitable[Step]]) -> Step | Refused:
        async with slots:
            try:
                return await call()
            except Refused as e:
                return e

    answers = await asyncio.gather(*(one(call) for call in calls))
    refusals = [str(a) for a in answers if isinstance(a, Refused)]
    if refusals:
        raise Refused("\n".join(refusals))
    return [a for a in answers if isinstance(a, Step)]
