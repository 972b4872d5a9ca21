"""What a worker pool is made of: in each zone a MachineClass and a MachineDeployment, as Gardener's extensions make
them of a Shoot's worker (pkg/controller/worker/machines.go of each).

Names are by zone, not by its place in the list as Gardener's: a list that shrinks, grows or is sorted renames nothing.
A class's name ends with the hash of what only a new VM can have (seed 002, WorkerPoolHash without updatable fields): so
a change that rolls makes a class of another name, and a rollout can be undone by applying the former manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planners.machine.hot_update import rolling_hash
from planners.worker_pool import shares
from resources.base import format_duration
from resources.clouds import provider_of
from resources.clouds.workers import Unfit, WorkerConfig, WorkerInfrastructure, WorkerPlug, plain
from resources.machine_class.state import concurrency_of
from resources.manifests import MachineClass, MachineDeployment
from resources.names import (
    API_VERSION,
    CLUSTER_ANNOTATION,
    GARDENER_POOL_LABEL,
    UPDATE_CONCURRENCY_ANNOTATION,
    UPDATES_AFTER_ANNOTATION,
    WORKER_POOL_ANNOTATION,
    WORKER_POOL_LABEL,
    ZONE_LABEL,
)
from resources.worker_pool.manifest import WorkerPool

HASH = 2
"""The version of the hash in the names of classes. It stays, whatever version revisions are compared by: another one
would rename every class, and roll every worker pool at an upgrade."""
DIGITS = 5
"""As Gardener. Two specs with the same digits share a class, whose edit then rolls the pool as an edit does."""


@dataclass(frozen=True)
class ZonePlan:
    """What is made in one zone."""

    zone: str
    """"": the pool has no zones."""
    deployment: MachineDeployment
    machine_class: MachineClass
    minimum: int
    maximum: int
    replicas: int
    """How many machines it has then; the deployment says it only where that is a change."""

    @property
    def name(self) -> str:
        """The name of the zone's pool."""
        return self.deployment.metadata.name


@dataclass(frozen=True)
class Expansion:
    zones: tuple[ZonePlan, ...]
    warnings: tuple[str, ...] = ()


def pool_name(worker_pool: str, zone: str) -> str:
    """The name of a zone's pool."""
    return f"{worker_pool}-{zone}" if zone else worker_pool


def expand(pool: WorkerPool, replicas: Mapping[str, int] | None = None) -> Expansion:
    """Makes the manifests of each zone. `replicas`: what zones have now, by zone; they are kept, within minimum and
    maximum. The infrastructure is the pool's own.

    Raises Unfit and ValueError (pydantic's too), in words for people.
    """
    spec, plug = pool.spec, plug_of(pool.spec.provider)
    zones = spec.zones or [""]
    if not spec.zones and not plug.zoneless:
        raise Unfit("zones", "missing: there is a pool in each zone; write at least one")
    config = plug.config.model_validate(spec.provider_config)
    infrastructure = plug.infrastructure.model_validate(spec.infrastructure or {})
    numbers = _numbers(pool, len(zones))
    made: list[ZonePlan] = []
    at_a_time = concurrency_of(pool.metadata.annotations)
    for zone, number in zip(zones, numbers, strict=True):
        provider_spec = plug.provider_spec(spec, config, infrastructure, zone)
        digest = rolling_hash(spec.provider, provider_spec, HASH).partition(":")[2][:DIGITS]
        name = pool_name(pool.metadata.name, zone)
        of_class = _class(pool, zone, f"{name}-{digest}", provider_spec, config, infrastructure, number)
        now = (replicas or {}).get(zone)
        wanted = min(max(now or 0, number.minimum), number.maximum)
        change = wanted if now != wanted else None
        before = made[-1] if made and spec.zone_strategy == "Sequential" else None
        node_labels = {**spec.labels, GARDENER_POOL_LABEL: pool.metadata.name, **plug.zone_labels(infrastructure, zone)}
        deployment = _deployment(pool, zone, name, of_class.metadata.name, number, change, node_labels, before)
        if len(made) >= at_a_time:
            first = made[-at_a_time]
            of_class.metadata.annotations[UPDATES_AFTER_ANNOTATION] = first.machine_class.metadata.name
            deployment.metadata.annotations[UPDATES_AFTER_ANNOTATION] = first.name
        made.append(ZonePlan(zone, deployment, of_class, number.minimum, number.maximum, wanted))
    return Expansion(tuple(made), tuple(_warnings(pool, zones)))


def record(pool: WorkerPool) -> str:
    """The worker pool as each zone's pool keeps it: what it says, however that was written. The cluster is known
    otherwise."""
    meta = pool.metadata
    others = {key: value for key, value in meta.annotations.items() if key != CLUSTER_ANNOTATION}
    kept = pool.model_copy(update={"metadata": meta.model_copy(update={"annotations": others})})
    return kept.model_dump_json(by_alias=True, exclude_defaults=True)


def plug_of(provider: str) -> WorkerPlug:
    """Raises UnknownProvider, and Unfit for a cloud that has no worker pools."""
    found = provider_of(provider).workers
    if found is None:
        raise Unfit("provider", f"{provider} has no worker pools; apply a MachineDeployment for each zone")
    return found


# -- the numbers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """One zone's."""

    minimum: int
    maximum: int
    surge: int | str
    unavailable: int | str
    preserved: int
    concurrency: int
    """How many machines a hot update is at work on: the zones share one budget."""


def _numbers(pool: WorkerPool, zones: int) -> list[_Numbers]:
    spec = pool.spec
    steps = shares.steps(spec.max_surge, spec.max_unavailable, zones, spec.minimum, spec.maximum)
    return [
        _Numbers(minimum, maximum, surge, unavailable, preserved, max(1, concurrency))
        for minimum, maximum, (surge, unavailable), preserved, concurrency in zip(
            shares.evenly(spec.minimum, zones),
            shares.evenly(spec.maximum, zones),
            steps,
            shares.evenly(spec.machine_controller_manager.auto_preserve_failed_machine_max, zones),
            shares.evenly(concurrency_of(pool.metadata.annotations), zones),
            strict=True,
        )
    ]


def _warnings(pool: WorkerPool, zones: list[str]) -> Iterator[str]:
    spec, count = pool.spec, len(zones)
    numbers = {
        "minimum": spec.minimum,
        "maximum": spec.maximum,
        "autoPreserveFailedMachineMax": spec.machine_controller_manager.auto_preserve_failed_machine_max,
        "maxSurge": spec.max_surge,
        "maxUnavailable": spec.max_unavailable,
    }
    yield from shares.unequal({name: n for name, n in numbers.items() if isinstance(n, int)}, zones)
    steps = shares.steps(spec.max_surge, spec.max_unavailable, count, spec.minimum, spec.maximum)
    bare = shares.amounts(spec.max_surge, count, spec.maximum)
    if helped := [zone for zone, (surge, _), share in zip(zones, steps, bare, strict=True) if surge != share]:
        yield (
            f"maxSurge: {', '.join(helped)} get 1 each: with maxSurge 0 and maxUnavailable 0 nothing could be "
            f"replaced there; write maxSurge: {count} or more"
        )
    if (limit := concurrency_of(pool.metadata.annotations)) < count:
        yield (
            f"{UPDATE_CONCURRENCY_ANNOTATION}: {limit} over {count} zones: hot updates, of VMs and of labels, "
            "taints and timeouts, go from zone to zone, one after the other"
        )


# -- the manifests -----------------------------------------------------------------------------------------------------


def _marks(pool: WorkerPool, zone: str) -> dict[str, str]:
    """Labels by which a worker pool's parts are found."""
    return {WORKER_POOL_LABEL: pool.metadata.name, **({ZONE_LABEL: zone} if zone else {})}


def _own_annotations(pool: WorkerPool, number: _Numbers) -> dict[str, str]:
    """The worker pool's annotations, and the zone's share of what may be updated at a time."""
    return {**pool.metadata.annotations, UPDATE_CONCURRENCY_ANNOTATION: str(number.concurrency)}


def _class(
    pool: WorkerPool,
    zone: str,
    name: str,
    provider_spec: dict[str, Any],
    config: WorkerConfig,
    infrastructure: WorkerInfrastructure,
    number: _Numbers,
) -> MachineClass:
    meta, credentials = pool.metadata, infrastructure.credentials_secret_ref
    return MachineClass.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": meta.namespace,
                "labels": {**meta.labels, **_marks(pool, zone)},
                "annotations": _own_annotations(pool, number),
            },
            "provider": pool.spec.provider,
            "providerSpec": provider_spec,
            "secretRef": infrastructure.user_data_secret_ref.model_dump(by_alias=True),
            "credentialsSecretRef": credentials.model_dump(by_alias=True) if credentials else None,
            "nodeTemplate": _node_template(pool, zone, config, infrastructure) if config.node_template else None,
        }
    )


def _node_template(
    pool: WorkerPool, zone: str, config: WorkerConfig, infrastructure: WorkerInfrastructure
) -> dict[str, Any]:
    assert config.node_template is not None
    machine = pool.spec.machine
    return {
        **config.node_template.model_dump(by_alias=True),
        "instanceType": machine.type,
        "region": infrastructure.region,
        "zone": zone or None,
        "architecture": machine.architecture,
    }


def _deployment(
    pool: WorkerPool,
    zone: str,
    name: str,
    class_name: str,
    number: _Numbers,
    replicas: int | None,
    node_labels: dict[str, str],
    before: ZonePlan | None,
) -> MachineDeployment:
    spec, meta = pool.spec, pool.metadata
    settings = spec.machine_controller_manager
    rolls_after = {"pool": before.name, "class": before.machine_class.metadata.name} if before else None
    given: dict[str, Any] = {
        "replicas": replicas,  # None: whoever sets it meanwhile is not overruled
        "maintenance": plain(spec.maintenance),
        "approval": plain(spec.approval),
        "rollsAfter": rolls_after,
        "minReadySeconds": spec.min_ready_seconds,
        "progressDeadlineSeconds": spec.progress_deadline_seconds,
        "repair": plain(spec.repair),
        "paused": spec.paused,
        "hibernated": spec.hibernated,
        "machinePreserveTimeout": settings.machine_preserve_timeout
        and format_duration(settings.machine_preserve_timeout),
    }
    node = {
        "metadata": {"labels": node_labels, "annotations": spec.annotations},
        "spec": {"taints": [taint.model_dump(by_alias=True, exclude_unset=True) for taint in spec.taints]},
    }
    return MachineDeployment.model_validate(
        {
            "apiVersion": API_VERSION,
            "metadata": {
                "name": name,
                "namespace": meta.namespace,
                "labels": {**meta.labels, **_marks(pool, zone), GARDENER_POOL_LABEL: meta.name},
                "annotations": {**_own_annotations(pool, number), WORKER_POOL_ANNOTATION: record(pool)},
            },
            "spec": {
                "template": {
                    "metadata": {"labels": _marks(pool, zone)},
                    "spec": {
                        "class": {"kind": "MachineClass", "name": class_name},
                        "nodeTemplate": node,
                        **_timeouts(pool),
                    },
                },
                "strategy": _strategy(pool, number),
                "autoPreserveFailedMax": number.preserved,
                **{field: value for field, value in given.items() if value is not None},
            },
        }
    )


def _strategy(pool: WorkerPool, number: _Numbers) -> dict[str, Any]:
    if pool.spec.update_strategy == "OnDelete":
        return {"type": "OnDelete"}
    rolling = {
        "maxSurge": number.surge,
        "maxUnavailable": number.unavailable,
        "pauseAfter": pool.spec.pause_after,
    }
    return {"type": "RollingUpdate", "rollingUpdate": {k: v for k, v in rolling.items() if v is not None}}


def _timeouts(pool: WorkerPool) -> dict[str, Any]:
    """The fields of a machine's spec that the worker gives; the others stay at their defaults."""
    settings = pool.spec.machine_controller_manager
    spans = {
        "drainTimeout": settings.machine_drain_timeout,
        "healthTimeout": settings.machine_health_timeout,
        "creationTimeout": settings.machine_creation_timeout,
    }
    found: dict[str, Any] = {name: format_duration(span) for name, span in spans.items() if span is not None}
    if settings.disable_health_timeout is not None:
        found["disableHealthTimeout"] = settings.disable_health_timeout
    if settings.node_conditions is not None:
        found["nodeConditions"] = settings.node_conditions
    return found
