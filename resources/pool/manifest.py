"""MachineDeployment, a pool of machines, as Gardener writes it (machine.sapcloud.io/v1alpha1,
machinedeployment_types.go): its names and defaults, and what Hostler adds to it (`repair`, `pauseAfter`, `hibernated`,
`maintenance`, `approval`, `rollsAfter`, the limits of preservation of seed 003)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from resources.base import LONGEST_SECONDS, Count, Duration, Manifest, Name, cut
from resources.effects import Effect
from resources.machine.manifest import MachineTemplate, ObjectMeta
from resources.maintenance import Maintenance
from resources.names import UPDATES_AFTER_ANNOTATION, is_label, is_name
from resources.selectors import LabelSelector

NAME_LENGTH = 51
"""The longest name of a pool, so that its machines' names (`<pool>-<5 characters of the revision>-<5 characters>`) fit
into a label."""
AMOUNT_MOST = 999_999
_PERCENT = re.compile(r"(0|[1-9][0-9]{0,3})%")
_COUNT = re.compile(r"[0-9]{1,6}")


def parse_amount(value: Any) -> int | str:
    """A count or a percentage (Kubernetes' IntOrString). Raises ValueError with the accepted forms."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= AMOUNT_MOST:
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, str) and _PERCENT.fullmatch(value.strip()):
        return value.strip()
    raise ValueError("neither a count nor a percentage; write it like 2 or 20%")


Amount = Annotated[Count | Name, BeforeValidator(parse_amount)]
"""A count of machines, or a percentage of the replicas."""


def percent_of(amount: int | str) -> int | None:
    """The number before the sign; None for a count."""
    return int(amount[:-1]) if isinstance(amount, str) else None


class RollingUpdate(Manifest):
    """How many machines are replaced at a time."""

    max_surge: Amount = 1
    """The maximum number of VMs above the replicas; count or percentage, rounded up."""
    max_unavailable: Amount = 1
    """The maximum number of machines below the replicas that may be unavailable during a rollout; count or percentage,
    rounded down. If this and maxSurge both come to 0, it is 1."""
    pause_after: Amount | None = None
    """A canary: after this number of machines of a new revision the rollout stops until `hostler rollout resume`; count
    or percentage, rounded up."""

    @field_validator("max_unavailable", "pause_after")
    @classmethod
    def a_part(cls, value: int | str | None) -> int | str | None:
        if value is not None and (percent_of(value) or 0) > 100:
            raise ValueError(f"{value} is more than all replicas; write 100% or less")
        return value

    @field_validator("pause_after")
    @classmethod
    def at_least_one(cls, value: int | str | None) -> int | str | None:
        if value in (0, "0%"):
            raise ValueError("without a new machine there is nothing to check; write 1 or more, or `paused: true`")
        return value


class Strategy(Manifest):
    type: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    """RollingUpdate replaces machines on its own; OnDelete creates a new one for each old one that somebody deletes."""
    rolling_update: RollingUpdate | None = None

    @field_validator("type", mode="before")
    @classmethod
    def known(cls, value: Any) -> Any:
        if value not in ("RollingUpdate", "OnDelete"):
            raise ValueError("not a known strategy; write RollingUpdate or OnDelete")
        return value

    @model_validator(mode="after")
    def fits(self) -> Strategy:
        if self.type == "OnDelete" and self.rolling_update is not None:
            raise ValueError("rollingUpdate does not apply to OnDelete; leave it out, or set type to RollingUpdate")
        return self

    @property
    def rolling(self) -> RollingUpdate | None:
        """The settings of a rolling update, even where none are given; None for OnDelete."""
        if self.type == "OnDelete":
            return None
        return self.rolling_update or RollingUpdate()


class Repair(Manifest):
    """How machines that were Running and are no longer healthy are replaced."""

    max_concurrent: Amount = 1
    """The maximum number of repairs at the same time; count or percentage, rounded up, at least 1. With 0 none is
    replaced."""
    pause_above_unhealthy: Amount = "40%"
    """If more machines than this are unhealthy, nothing is replaced: the cause is then the network or the cluster, not
    a machine. Count, or percentage of the replicas, rounded down; a percentage never comes to less than 2 machines."""


class Approval(Manifest):
    """Whether a person must approve each new revision before its rollout begins."""

    required: bool = False
    """The rollout of a new revision waits for `hostler rollout approve`. Going back with `undo` does not."""
    timeout: Duration = Field(default=timedelta(hours=24), gt=timedelta(0))
    """A rollout that nobody approves within this time is aborted."""


class RollsAfter(Manifest):
    """The pool that is rolled out before this one, as the zones of a worker pool are one after the other."""

    pool: Name
    """The name of that pool, in the same cluster. One that is gone holds up nothing."""
    class_: Name | None = Field(default=None, alias="class")
    """The class that it must be rolled out with; without this field, whichever it has."""


class MachineDeploymentSpec(Manifest):
    """How many machines there are, what they are made from, and how they are replaced."""

    ALSO: ClassVar = ("autoPreserveFailedMachineMax", "rollbackTo")

    replicas: Annotated[Count, Effect.POOL] = Field(default=0, ge=0, le=5000)
    """How many machines the pool should have."""
    selector: Annotated[LabelSelector | None, Effect.POOL] = None
    template: Annotated[MachineTemplate, Effect.HOT]
    strategy: Annotated[Strategy, Effect.POOL] = Field(default_factory=Strategy)
    """How machines are replaced by those of a new revision."""
    min_ready_seconds: Annotated[Count, Effect.POOL] = Field(default=0, ge=0, le=LONGEST_SECONDS)
    """A machine counts as available when it has been Running for this long."""
    revision_history_limit: Annotated[Count, Effect.POOL] = Field(default=10, ge=0)
    """How many revisions without a machine are kept, to go back to with `hostler rollout undo`; at most 50, and no more
    than fit into 256 KiB."""
    paused: Annotated[bool, Effect.POOL] = False
    """No rollout begins or continues. The number of replicas is still kept up, and machines that fail are still
    replaced."""
    progress_deadline_seconds: Annotated[Count | None, Effect.POOL] = Field(default=None, gt=0, le=LONGEST_SECONDS)
    """A rollout that makes no progress for this long stops; the old machines are kept. Without this field it waits
    forever."""
    repair: Annotated[Repair, Effect.POOL] = Field(default_factory=Repair)
    auto_preserve_failed_max: Annotated[Count, Effect.POOL] = Field(default=0, ge=0)
    """The maximum number of Failed machines that are automatically kept for inspection. Gardener's
    autoPreserveFailedMachineMax means the same."""
    machine_preserve_timeout: Annotated[Duration, Effect.POOL] = Field(default=timedelta(hours=72), gt=timedelta(0))
    """How long a preserved machine is kept. A change applies to later preservations only."""
    hibernated: Annotated[bool, Effect.POOL] = False
    """No machines for now, whatever replicas says; set to false, they are created again."""
    maintenance: Annotated[Maintenance, Effect.POOL] = Field(default_factory=Maintenance)
    """When rollouts and hot updates may begin."""
    approval: Annotated[Approval, Effect.POOL] = Field(default_factory=Approval)
    """Whether a person must approve each new revision."""
    rolls_after: Annotated[RollsAfter | None, Effect.POOL] = None
    """A rollout of this pool waits until that of another one is complete."""

    @model_validator(mode="before")
    @classmethod
    def other_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if "rollbackTo" in data:
            raise ValueError("rollbackTo: a manifest describes a state, not a command; use `hostler rollout undo`")
        if "autoPreserveFailedMachineMax" not in data:
            return data
        theirs = data["autoPreserveFailedMachineMax"]
        if data.get("autoPreserveFailedMax", theirs) != theirs:
            raise ValueError(
                "autoPreserveFailedMax and autoPreserveFailedMachineMax mean the same but differ; give one"
            )
        rest = {k: v for k, v in data.items() if k != "autoPreserveFailedMachineMax"}
        return rest | {"autoPreserveFailedMax": theirs}

    @field_validator("strategy", "repair", "maintenance", "approval", mode="before")
    @classmethod
    def nothing_is_the_default(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def one_preserve_timeout(self) -> MachineDeploymentSpec:
        """Gives the timeout to the machines, which have it from their template; a template that gives its own keeps
        that."""
        machine = self.template.spec
        if "machine_preserve_timeout" not in machine.model_fields_set:
            machine.machine_preserve_timeout = self.machine_preserve_timeout
        return self

    @model_validator(mode="after")
    def fits_together(self) -> MachineDeploymentSpec:
        labels = self.template.metadata.labels
        if self.selector is not None and not self.selector.matches(labels):
            raise ValueError("selector does not match template.metadata.labels; give the template the same labels")
        deadline = self.progress_deadline_seconds
        if deadline is not None and deadline <= self.min_ready_seconds:
            raise ValueError(
                f"progressDeadlineSeconds ({deadline}) must be more than minReadySeconds ({self.min_ready_seconds}): "
                "otherwise the rollout stops before any machine can be available"
            )
        return self


def judge_updates_after(annotations: Mapping[str, str], pool: str) -> None:
    """Raises ValueError, in words for people, where machines could not wait for those of the pool that is named."""
    before = annotations.get(UPDATES_AFTER_ANNOTATION, "")
    if before and not is_name(before):
        wrong = f"{cut(before, 100)!r} is not the name of a pool"
    elif before == pool:
        wrong = "a pool cannot wait for itself"
    else:
        return
    raise ValueError(f"annotation {UPDATES_AFTER_ANNOTATION}: {wrong}; name another one, or leave it out")


class MachineDeployment(Manifest):
    """A pool: a number of machines from one template, which is kept up, rolled and repaired."""

    api_version: Literal["machine.sapcloud.io/v1alpha1"] = Field(default="machine.sapcloud.io/v1alpha1")
    """The version of the API, as Gardener and Kubernetes write it."""
    kind: Literal["MachineDeployment"] = "MachineDeployment"
    """The kind of object."""
    metadata: ObjectMeta
    spec: MachineDeploymentSpec

    @model_validator(mode="after")
    def after_another(self) -> MachineDeployment:
        before = self.spec.rolls_after
        if before is not None and before.pool == self.metadata.name:
            raise ValueError("spec.rollsAfter.pool: a pool cannot wait for itself; name another one, or leave it out")
        judge_updates_after(self.metadata.annotations, self.metadata.name)
        return self

    @field_validator("metadata")
    @classmethod
    def room_for_machines(cls, value: ObjectMeta) -> ObjectMeta:
        if not is_label(value.name) or len(value.name) > NAME_LENGTH:
            raise ValueError(
                f"name: {len(value.name)} characters; its machines' names are 12 longer and become labels of their "
                f"Nodes, so at most {NAME_LENGTH}"
            )
        return value
