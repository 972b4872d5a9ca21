"""The pools of one run of `apply`: as they are, as they will be, and what the edit of a class does to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine_class.state import pools_of
from resources.owner import Owner
from resources.pool.intents import PoolIntent, PoolQuestion
from resources.pool.manifest import MachineDeployment, MachineDeploymentSpec
from resources.pool.state import PoolState
from starter.sdk import parallel
from starter.sdk.apply.classes import ClassPlan, own_annotations, same_content
from starter.sdk.entity import EntityKey
from starter.sdk.errors import HostlerError, NotFound, Refused
from starter.sdk.pools.results import PoolDescription
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Applied, Verb
from starter.sdk.spelling import counted
from starter.sdk.starts import start_pool

POOL_KIND = "machinedeployment"
KEPT = ("replicas", "hibernated", "paused")
"""Fields of the spec that people and autoscalers change beside the manifest. A manifest that does not give them leaves
them."""


@dataclass(frozen=True)
class PoolPlan:
    """A pool that a manifest of the run names."""

    name: str
    cluster: str
    verb: Verb
    manifest: MachineDeployment
    """The manifest as it was given."""
    of: ClassPlan
    """The class that the pool will have."""
    state: PoolState | None = None
    """The pool as it is; None: there is none yet."""
    note: str = ""
    told: bool = True
    """Whether the pool hears of its change from here; otherwise from its class, or nothing changes."""

    @property
    def spec(self) -> MachineDeploymentSpec:
        return completed(self.manifest.spec, self.state)

    @property
    def question(self) -> PoolQuestion:
        """Asks what the pool would do with this."""
        return PoolQuestion(
            spec=self.spec, machine_class=self.of.for_user(self.state.machine_class if self.state else None)
        )


@dataclass(frozen=True)
class PoolTouched:
    """What the edit of a class does to a pool that uses it."""

    pool: str
    rolls: int = 0
    """Machines that the edit replaces."""
    unknown: str = ""
    """Why nobody can tell."""

    def __str__(self) -> str:
        if self.unknown:
            return f"pool {self.pool}: the effect on it is not known: {self.unknown}"
        if self.rolls:
            return f"rolls pool {self.pool}: {counted(self.rolls)} will be replaced"
        return f"pool {self.pool}: no machine is replaced"

    @property
    def grave(self) -> bool:
        """What one should know before it is done."""
        return bool(self.rolls or self.unknown)


@dataclass
class PoolPlanner:
    """Reads pools and judges their manifests."""

    pools: Pools

    async def plan(self, key: EntityKey, manifest: MachineDeployment, of: ClassPlan | None) -> PoolPlan:
        """Plans a pool. `of` is what is known of its class. Raises Refused."""
        cluster, name = key
        found = await self.pools.find(name, cluster=cluster)
        state = await self.pools.current(name, cluster=cluster) if found and found.running else None
        if of is None:
            of = _own_class(cluster, manifest.spec.template.spec.class_.name, state)
        if state is None:
            note = _of_former(found) if found is not None else ""
            return PoolPlan(name, cluster, Verb.CREATED, manifest, of, note=note)
        if state.deleted:
            raise Refused(
                f"it is being deleted: wait until it is gone (hostler wait pool {name} --for=deleted), then apply again"
            )
        note = kept_words(manifest, state)
        return _change(PoolPlan(name, cluster, Verb.CONFIGURED, manifest, of, state, note), state)

    async def carry_out(self, plan: PoolPlan) -> Applied:
        if plan.state is None:
            try:
                return await self._start(plan)
            except WorkflowAlreadyStartedError:
                pass  # somebody else applied it between our look and our start: it is told like any other
        # As it is by now: somebody who has scaled it since our look, or made it, must not lose that to a manifest
        # without replicas.
        now = await self.pools.current(plan.name, cluster=plan.cluster)
        plan, meta = replace(plan, state=now or plan.state), plan.manifest.metadata
        intent = PoolIntent(
            **self.pools.connection.by(),
            spec=plan.spec,
            machine_class=plan.of.for_user(plan.state.machine_class if plan.state else None),
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=own_annotations(meta.annotations),
        )
        sent = await self.pools.send(plan.name, "apply", intent, cluster=plan.cluster)
        verb = Verb.UNCHANGED if sent.message == Verb.UNCHANGED else Verb.CONFIGURED
        words = sent.message.removeprefix(verb).lstrip("; ")
        return Applied(
            POOL_KIND, plan.name, verb, "; ".join(filter(None, [words, kept_words(plan.manifest, plan.state)]))
        )

    async def _start(self, plan: PoolPlan) -> Applied:
        here, meta = self.pools.connection, plan.manifest.metadata
        state = PoolState(
            name=plan.name,
            cluster=plan.cluster,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=own_annotations(meta.annotations),
            spec=plan.spec,
            machine_class=plan.of.snapshot,
            requested_by=here.requested_by,
            queue_prefix=here.settings.queue_prefix,
            timings=here.settings.timings,
        )
        await start_pool(here.temporal, state, created=datetime.now(UTC))
        return Applied(POOL_KIND, plan.name, Verb.CREATED, plan.note)

    async def touched(self, of: ClassPlan, manifests: Mapping[EntityKey, MachineDeployment]) -> list[PoolTouched]:
        """What the edit of a class does to the pools that use it, each as it will be after this run. A pool of
        `manifests` that takes another class is left out: it has a line of its own."""
        if of.state is None or not of.new_content:
            return []
        pools = pools_of(of.state.users)

        async def one(pool: str) -> PoolTouched | None:
            manifest = manifests.get((of.cluster, pool))
            if manifest is not None and manifest.spec.template.spec.class_.name != of.name:
                return None
            try:
                state = await self.pools.current(pool, cluster=of.cluster) if manifest else None
                spec = completed(manifest.spec, state) if manifest else None
                question = PoolQuestion(spec=spec, machine_class=of.snapshot)
                found = await self.pools.rehearse(pool, question, cluster=of.cluster)
            except NotFound:
                return None  # it has gone since; its class has not heard of that yet
            except HostlerError as e:
                return PoolTouched(pool, unknown=str(e))
            return PoolTouched(pool, found.rolls, found.refused)

        return [t for t in await parallel.each(partial(one, p) for p in pools) if t is not None]


def completed(spec: MachineDeploymentSpec, state: PoolState | None) -> MachineDeploymentSpec:
    """The spec, completed with what the pool has and the manifest does not give (like `kubectl apply`)."""
    return spec.model_copy(update=_kept(spec, state)) if state is not None else spec


def _kept(spec: MachineDeploymentSpec, state: PoolState) -> dict[str, int | bool]:
    return {name: getattr(state.spec, name) for name in KEPT if name not in spec.model_fields_set}


def kept_words(manifest: MachineDeployment, state: PoolState | None) -> str:
    """Words for what is kept and differs from the default, which one might have expected to apply."""
    kept = _kept(manifest.spec, state) if state is not None else {}
    words = [f"replicas kept at {kept['replicas']}"] if kept.get("replicas") else []
    words += ["stays hibernated"] if kept.get("hibernated") else []
    return "; ".join([*words, *(["rollouts stay paused"] if kept.get("paused") else [])])


def _change(plan: PoolPlan, state: PoolState) -> PoolPlan:
    """The change of a pool. What only its class changes, the class tells it; all else is told here."""
    meta, of = plan.manifest.metadata, plan.of
    own = (
        plan.spec.model_dump(mode="json", by_alias=True) != state.spec.model_dump(mode="json", by_alias=True)
        or (meta.namespace, meta.labels) != (state.namespace, state.labels)
        or own_annotations(meta.annotations) != state.annotations
    )
    if own:
        return plan
    has = state.machine_class
    if has is not None and has.name == of.name and same_content(has, of.snapshot):
        return replace(plan, verb=Verb.UNCHANGED, told=False)
    if of.tells(Owner(name=plan.name).user):
        if not of.new_content:
            return replace(plan, verb=Verb.UNCHANGED, told=False)
        return replace(plan, note="; ".join(filter(None, ["its class tells it", plan.note])), told=False)
    return plan


def _own_class(cluster: str, name: str, state: PoolState | None) -> ClassPlan:
    """The class that the pool has, of which nothing else is known. Raises Refused for any other."""
    has = state.machine_class if state else None
    if has is not None and has.name == name:
        return ClassPlan(name, cluster, Verb.UNCHANGED, has)
    another = f"; the pool has another one ({has.name})" if has else ""
    raise Refused(
        f"class {name!r} is in none of the files and was not applied before{another}: add the MachineClass (-f)"
    )


def _of_former(found: PoolDescription) -> str:
    """The note on a new pool of a name that was used before."""
    note = f"the earlier pool of this name has been gone since {found.ended:%Y-%m-%d %H:%M:%S} UTC; this is a new one"
    if found.status != "COMPLETED":
        note += (
            f". Somebody ended the earlier one's workflow ({found.status}): its machines that still exist are taken "
            "over"
        )
    return note
