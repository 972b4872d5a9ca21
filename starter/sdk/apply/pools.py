"""The pools of one run of `apply`: as they are, as they will be, and what the edit of a class does to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine_class.state import pools_of
from resources.names import UPDATES_AFTER_ANNOTATION
from resources.owner import Owner
from resources.pool.intents import PoolIntent, PoolQuestion
from resources.pool.manifest import MachineDeployment, MachineDeploymentSpec
from resources.pool.state import PoolState
from resources.words import utc
from starter.sdk import parallel
from starter.sdk.apply import owners
from starter.sdk.apply.classes import ClassPlan, OwnerTouched
from starter.sdk.entity import EntityKey
from starter.sdk.errors import HostlerError, NotFound, Refused
from starter.sdk.fleet.rehearsal import deletes
from starter.sdk.pools.results import PoolDescription
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Applied, Verb
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
    def first(self) -> str:
        """The pool whose machines take a changed template before its own; "" for none."""
        return self.manifest.metadata.annotations.get(UPDATES_AFTER_ANNOTATION, "")

    @property
    def spec(self) -> MachineDeploymentSpec:
        return completed(self.manifest.spec, self.state)

    @property
    def question(self) -> PoolQuestion:
        """Asks what the pool would do with this."""
        return PoolQuestion(spec=self.spec, machine_class=owners.class_for(self))


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
            of = owners.own_class(cluster, manifest.spec.template.spec.class_.name, state, "the pool")
        if state is None:
            note = _of_former(found) if found is not None else ""
            return PoolPlan(name, cluster, Verb.CREATED, manifest, of, note=note)
        if state.deleted:
            raise Refused(
                f"it is being deleted: wait until it is gone (hostler wait pool {name} --for=deleted), then apply again"
            )
        note = kept_words(manifest, state)
        plan = owners.changed(
            PoolPlan(name, cluster, Verb.CONFIGURED, manifest, of, state, note), state, Owner(name=name)
        )
        owners.after(plan, Owner(name=name))
        return plan

    async def carry_out(self, plan: PoolPlan) -> Applied:
        if plan.state is None:
            try:
                return await self._start(plan)
            except WorkflowAlreadyStartedError:
                pass  # somebody else applied it between our look and our start: it is told like any other
        # As it is by now: somebody who has scaled it since our look, or made it, must not lose that to a manifest
        # without replicas.
        now = await self.pools.current(plan.name, cluster=plan.cluster)
        plan = replace(plan, state=now or plan.state)
        intent = PoolIntent(
            **self.pools.connection.by(),
            spec=plan.spec,
            machine_class=owners.class_for(plan),
            **owners.metadata_of(plan.manifest.metadata),
        )
        sent = await self.pools.send(plan.name, "apply", intent, cluster=plan.cluster)
        verb, words = owners.verdict(sent.message)
        return Applied(
            POOL_KIND, plan.name, verb, "; ".join(filter(None, [words, kept_words(plan.manifest, plan.state)]))
        )

    async def _start(self, plan: PoolPlan) -> Applied:
        here = self.pools.connection
        state = PoolState(name=plan.name, cluster=plan.cluster, **owners.first_state(plan, here))
        await start_pool(here.temporal, state, created=datetime.now(UTC))
        return Applied(POOL_KIND, plan.name, Verb.CREATED, plan.note)

    async def touched(self, of: ClassPlan, manifests: Mapping[EntityKey, MachineDeployment]) -> list[OwnerTouched]:
        """What the edit of a class does to the pools that use it, each as it will be after this run. A pool of
        `manifests` that takes another class is left out: it has a line of its own."""
        if of.state is None or not of.new_content:
            return []
        pools = pools_of(of.state.users)

        async def one(pool: str) -> OwnerTouched | None:
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
                return OwnerTouched(pool, unknown=str(e))
            return OwnerTouched(pool, found.rolls, found.refused, "".join(deletes(found)))

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


def _of_former(found: PoolDescription) -> str:
    """The note on a new pool of a name that was used before."""
    note = f"the earlier pool of this name has been gone since {utc(found.ended)}; this is a new one"
    if found.status != "COMPLETED":
        note += (
            f". Somebody ended the earlier one's workflow ({found.status}): its machines that still exist are taken "
            "over"
        )
    return note
