"""WorkerPool, machines over several zones: Gardener's worker settings by their own names (core/v1beta1, types_shoot.go,
Worker), what the cloud's extension knows of the infrastructure, and what Hostler adds to a pool.

`apply` makes a MachineDeployment and a MachineClass of it in each zone (planners/worker_pool).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from resources.base import LONGEST_SECONDS, Annotations, Count, Document, Duration, Labels, Manifest, Name
from resources.clouds.workers import WorkerTemplate
from resources.effects import Effect
from resources.machine.manifest import ObjectMeta, Taint
from resources.maintenance import Maintenance
from resources.names import is_label, is_name
from resources.pool.manifest import Amount, Approval, Repair, percent_of

MOST = 5000
"""The most machines, as of a pool."""
ZONES_MOST = 50
MCM = "machineControllerManager"
_BESIDE = {
    "autoPreserveFailedMax": "autoPreserveFailedMachineMax",
    "autoPreserveFailedMachineMax": "autoPreserveFailedMachineMax",
    "machinePreserveTimeout": "machinePreserveTimeout",
}
"""What may stand beside the block, and inside it: seed 003's names and Gardener's."""


class MachineControllerManager(Manifest):
    """How machines are looked after (Gardener's MachineControllerManagerSettings)."""

    ALSO: ClassVar = ("autoPreserveFailedMax",)

    machine_drain_timeout: Annotated[Duration | None, Effect.HOT] = Field(default=None, ge=timedelta(0))
    """Pods that are not evicted within this time after the deletion began are deleted without a grace period; 2h when
    absent."""
    machine_health_timeout: Annotated[Duration | None, Effect.HOT] = Field(default=None, gt=timedelta(0))
    """How long a machine may be unhealthy in total before it is Failed; 10m when absent."""
    machine_creation_timeout: Annotated[Duration | None, Effect.HOT] = Field(default=None, gt=timedelta(0))
    """A machine that is not Running within this time after its creation is Failed; 20m when absent."""
    disable_health_timeout: Annotated[bool | None, Effect.HOT] = None
    """An unhealthy machine stays Unknown and is never Failed."""
    node_conditions: Annotated[list[Name] | None, Effect.HOT] = None
    """Conditions of the Node that must be False for the machine to count as healthy, besides Ready = True."""
    auto_preserve_failed_machine_max: Annotated[Count, Effect.POOL] = Field(default=0, ge=0)
    """The maximum number of Failed machines that are automatically kept for inspection, in all zones together (seed
    003); autoPreserveFailedMax means the same."""
    machine_preserve_timeout: Annotated[Duration | None, Effect.POOL] = Field(default=None, gt=timedelta(0))
    """How long a preserved machine is kept; 72h when absent. A change applies to later preservations only."""

    @model_validator(mode="before")
    @classmethod
    def seeds_name(cls, data: Any) -> Any:
        return _renamed(data, "autoPreserveFailedMax", "autoPreserveFailedMachineMax")


def _renamed(data: Any, name: str, to: str) -> Any:
    """The data with a value under its other name. Raises ValueError where both are given and differ."""
    if not isinstance(data, dict) or name not in data or name == to:
        return data
    if data.get(to, data[name]) != data[name]:
        raise ValueError(f"{name} and {to} mean the same but differ; give one")
    return {k: v for k, v in data.items() if k != name} | {to: data[name]}


class InfrastructureRef(Manifest):
    """An Infrastructure manifest that is applied together with the worker pool."""

    name: Name
    """Its name."""


class WorkerPoolSpec(WorkerTemplate):
    """How many machines there are over the zones, what they are made from, and how they are replaced."""

    ALSO: ClassVar = tuple(_BESIDE)

    provider: Name
    """The cloud, which must have a driver."""
    infrastructure: Document | None = None
    """What the pool needs to know of account, network and images; its fields depend on the provider."""
    infrastructure_ref: Annotated[InfrastructureRef | None, Effect.POOL] = None
    """Instead of infrastructure: an Infrastructure manifest, which several pools may share."""
    provider_config: Document = Field(default_factory=dict)
    """The cloud's WorkerConfig; its fields depend on the provider."""

    minimum: Annotated[Count, Effect.POOL] = Field(ge=0, le=MOST)
    """The minimum number of machines, in all zones together; a new pool begins with it."""
    maximum: Annotated[Count, Effect.POOL] = Field(ge=0, le=MOST)
    """The maximum number of machines, in all zones together. An autoscaler sets the number between the two, and
    `apply` leaves it."""
    zones: Annotated[list[Name], Effect.POOL] = Field(default_factory=list, max_length=ZONES_MOST)
    """The zones, first those that get one more where a number does not divide evenly. A zone that is taken out loses
    its machines."""
    max_surge: Annotated[Amount, Effect.POOL] = 1
    """The maximum number of VMs above the number wanted, in all zones together; count or percentage."""
    max_unavailable: Annotated[Amount, Effect.POOL] = 0
    """The maximum number of machines that may be unavailable during a rollout, in all zones together; count or
    percentage."""
    labels: Annotated[Labels, Effect.HOT] = Field(default_factory=dict)
    """Labels of the Nodes; they never become tags."""
    annotations: Annotated[Annotations, Effect.HOT] = Field(default_factory=dict)
    """Annotations of the Nodes."""
    taints: Annotated[list[Taint], Effect.HOT] = Field(default_factory=list)
    """Taints of the Nodes."""
    machine_controller_manager: MachineControllerManager = Field(default_factory=MachineControllerManager)
    """How machines are looked after."""
    update_strategy: Annotated[Literal["AutoRollingUpdate", "OnDelete"], Effect.POOL] = "AutoRollingUpdate"
    """AutoRollingUpdate replaces machines on its own; OnDelete creates a new one for each old one that somebody
    deletes. Gardener's in-place strategies need an agent on the node, and are refused."""
    zone_strategy: Annotated[Literal["Parallel", "Sequential"], Effect.POOL] = "Parallel"
    """Whether zones roll side by side, or each after the one before it in the list."""
    pause_after: Annotated[Amount | None, Effect.POOL] = None
    """A canary in each zone: after this number of machines of a new revision the zone's rollout stops until
    `hostler rollout resume`; count or percentage of the zone's machines, rounded up."""
    maintenance: Annotated[Maintenance | None, Effect.POOL] = None
    """When what nobody waits for may be done, such as the replacement of machines; when absent, at any time."""
    approval: Annotated[Approval | None, Effect.POOL] = None
    """Whether a person must approve each new revision, in each zone, before its rollout begins."""
    min_ready_seconds: Annotated[Count, Effect.POOL] = Field(default=0, ge=0, le=LONGEST_SECONDS)
    """A machine counts as available when it has been Running for this long."""
    progress_deadline_seconds: Annotated[Count | None, Effect.POOL] = Field(default=None, gt=0, le=LONGEST_SECONDS)
    """A zone's rollout that makes no progress for this long stops; the old machines are kept."""
    repair: Annotated[Repair | None, Effect.POOL] = None
    """How machines that were Running and are no longer healthy are replaced, in each zone."""
    paused: Annotated[bool | None, Effect.POOL] = None
    """No rollout begins or continues; null: as it is."""
    hibernated: Annotated[bool | None, Effect.POOL] = None
    """No machines for now; null: as it is."""

    @model_validator(mode="before")
    @classmethod
    def beside_the_block(cls, data: Any) -> Any:
        """Moves what stands beside the block into it."""
        beside = {k: v for k, v in data.items() if k in _BESIDE} if isinstance(data, dict) else {}
        if not beside or not isinstance(block := data.get(MCM) or {}, dict):
            return data
        for name, value in beside.items():
            block = _renamed(
                {**_renamed(block, name, _BESIDE[name]), f"spec.{name}": value}, f"spec.{name}", _BESIDE[name]
            )
        return {k: v for k, v in data.items() if k not in beside} | {MCM: block}

    @field_validator("machine_controller_manager", mode="before")
    @classmethod
    def nothing_is_the_default(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("update_strategy", mode="before")
    @classmethod
    def no_agent(cls, value: Any) -> Any:
        if value in ("AutoInPlaceUpdate", "ManualInPlaceUpdate"):
            raise ValueError("machines are not updated in place by an agent on the node; write AutoRollingUpdate")
        return value

    @field_validator("max_unavailable", "pause_after")
    @classmethod
    def a_part(cls, value: int | str | None) -> int | str | None:
        if value is not None and (percent_of(value) or 0) > 100:
            raise ValueError(f"{value} is more than all machines; write 100% or less")
        return value

    @field_validator("zones")
    @classmethod
    def each_once(cls, value: list[str]) -> list[str]:
        if twice := sorted({zone for zone in value if value.count(zone) > 1}):
            raise ValueError(f"{', '.join(twice)}: given more than once")
        if wrong := [zone for zone in value if not is_name(zone)]:
            raise ValueError(f"{wrong[0][:79]!r} is not a zone: it becomes a part of names")
        return value

    @model_validator(mode="after")
    def fits_together(self) -> WorkerPoolSpec:
        if self.maximum < self.minimum:
            raise ValueError(f"maximum ({self.maximum}) is less than minimum ({self.minimum})")
        if self.infrastructure is None and self.infrastructure_ref is None:
            raise ValueError("give infrastructure, or infrastructureRef with the name of an Infrastructure manifest")
        return self


class WorkerPool(Manifest):
    """Machines over several zones: `hostler apply` makes a MachineDeployment and a MachineClass of it in each."""

    api_version: Literal["hostler.io/v1alpha1"] = "hostler.io/v1alpha1"
    """The version of the API."""
    kind: Literal["WorkerPool"] = "WorkerPool"
    """The kind of object."""
    metadata: ObjectMeta
    spec: Annotated[WorkerPoolSpec, Effect.HASH]

    @field_validator("metadata")
    @classmethod
    def label(cls, value: ObjectMeta) -> ObjectMeta:
        if not is_label(value.name):
            raise ValueError(f"name: {len(value.name)} characters; the name becomes a label of Nodes, so at most 63")
        return value


class Infrastructure(Manifest):
    """What worker pools need to know of account, network and images, for several of them: those that name it
    (`infrastructureRef`), and the workers of the Shoot of its name. It counts where it is applied together with
    them."""

    api_version: Literal["hostler.io/v1alpha1"] = "hostler.io/v1alpha1"
    """The version of the API."""
    kind: Literal["Infrastructure"] = "Infrastructure"
    """The kind of object."""
    metadata: ObjectMeta
    provider: Name
    """The cloud."""
    spec: Document
    """Its fields depend on the provider, as those of a WorkerPool's infrastructure."""
