"""What a person writes of one machine, as Gardener has it (machine.sapcloud.io/v1alpha1, machine_types.go)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, field_validator

from resources.base import Duration, Manifest
from resources.names import is_label, is_name


class ObjectMeta(Manifest):
    name: str
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def dns_name(cls, value: str) -> str:
        if not is_name(value):
            raise ValueError(f"{value!r} is no Kubernetes name: use lower-case letters, digits, '-' and '.'")
        return value


class ClassRef(Manifest):
    name: str
    kind: Literal["MachineClass"] = "MachineClass"
    api_group: str | None = None


class SecretRef(Manifest):
    name: str
    namespace: str = "default"


class Taint(Manifest):
    key: str
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TemplateMeta(Manifest):
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class TemplateSpec(Manifest):
    taints: list[Taint] = Field(default_factory=list)


class NodeTemplate(Manifest):
    """Labels, annotations and taints that the machine's Node shall carry."""

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    spec: TemplateSpec = Field(default_factory=TemplateSpec)


DEFAULT_NODE_CONDITIONS = ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable")


class MachineSpec(Manifest):
    class_: ClassRef = Field(alias="class")
    node_template: NodeTemplate = Field(default_factory=NodeTemplate)
    provider_id: str | None = Field(default=None, alias="providerID")
    creation_timeout: Duration = Field(default=timedelta(minutes=20), gt=timedelta(0))
    """From the machine's creation: not Running by then, it is Failed."""
    health_timeout: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long it may be unhealthy (Unknown). Only as long a time of health in one piece sets it back."""
    disable_health_timeout: bool = False
    """Unknown for ever rather than Failed (Gardener's field)."""
    drain_timeout: Duration = Field(default=timedelta(hours=2), ge=timedelta(0))
    """From the deletion: what is not evicted by then is deleted with no grace."""
    machine_preserve_timeout: Duration = Field(default=timedelta(hours=72), gt=timedelta(0))
    """How long it is kept when it is preserved (seed 003). A change counts for a later preservation."""
    node_conditions: list[str] = Field(default_factory=lambda: list(DEFAULT_NODE_CONDITIONS))
    """Conditions of the Node that must be False for the machine to count as healthy, beside Ready = True."""

    @field_validator("node_conditions", mode="before")
    @classmethod
    def comma_separated(cls, value: Any) -> Any:
        """Gardener writes them as one string."""
        return [c.strip() for c in value.split(",") if c.strip()] if isinstance(value, str) else value


class Machine(Manifest):
    api_version: Literal["machine.sapcloud.io/v1alpha1"] = Field(default="machine.sapcloud.io/v1alpha1")
    kind: Literal["Machine"] = "Machine"
    metadata: ObjectMeta
    spec: MachineSpec

    @field_validator("metadata")
    @classmethod
    def label(cls, value: ObjectMeta) -> ObjectMeta:
        if not is_label(value.name):
            raise ValueError(f"name: {len(value.name)} characters; a machine's Node has it as a label, so at most 63")
        return value
