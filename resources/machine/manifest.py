"""What a person writes of one machine, as Gardener has it (machine.sapcloud.io/v1alpha1, machine_types.go)."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, field_validator

from resources.base import LONGEST_SECONDS, NAME_MOST, Annotations, Duration, Key, Labels, Manifest, Name, Span, cut
from resources.effects import Effect
from resources.names import CLUSTER_ANNOTATION, is_label, is_name


class ObjectMeta(Manifest):
    """The name, and what one marks an object with."""

    name: Name
    """Unique among the objects of its kind in the cluster; a Kubernetes name."""
    namespace: Name = "default"
    """Shown, and used to find the cluster (settings: clusters.<name>.namespaces); names are unique without it."""
    labels: Labels = Field(default_factory=dict)
    """Labels by which objects are selected (`-l`)."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the object; hostler.io/cluster names its cluster."""

    @field_validator("name")
    @classmethod
    def dns_name(cls, value: str) -> str:
        if not is_name(value):
            raise ValueError(
                f"{cut(value, 79)!r} is not a Kubernetes name: use lower-case letters, digits, '-' and '.'"
            )
        return value

    @field_validator("annotations")
    @classmethod
    def cluster(cls, value: dict[str, str]) -> dict[str, str]:
        if len(value.get(CLUSTER_ANNOTATION, "")) > NAME_MOST:
            raise ValueError(
                f"{CLUSTER_ANNOTATION}: more than {NAME_MOST} characters are too long for a cluster's name"
            )
        return value


class ClassRef(Manifest):
    """The MachineClass that the VM is made from."""

    name: Name
    """The name of the class, in the same cluster."""
    kind: Literal["MachineClass"] = "MachineClass"
    """The only kind there is; it may be left out."""
    api_group: Key | None = None
    """Accepted for manifests of Gardener; it has no effect."""


USER_DATA = "userData"
"""The key of a Secret that has the user data."""


class SecretRef(Manifest):
    """A Secret, by name."""

    name: Name
    """The name of the Secret."""
    namespace: Name = "default"
    """The namespace of the Secret."""


class Taint(Manifest):
    """A taint, as Kubernetes has it."""

    key: Key
    """The key."""
    value: Name | None = None
    """The value; null: none."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What happens to pods that do not tolerate the taint."""


class TemplateMeta(Manifest):
    """Labels and annotations."""

    labels: Labels = Field(default_factory=dict)
    """Labels to be set."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations to be set."""


class TemplateSpec(Manifest):
    """The part of a Node's spec that can be given."""

    taints: list[Taint] = Field(default_factory=list)
    """Taints to be set on the Node."""


class NodeTemplate(Manifest):
    """Labels, annotations and taints that the machine's Node gets."""

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    spec: TemplateSpec = Field(default_factory=TemplateSpec)


class HookKind(StrEnum):
    PRE_DRAIN = "preDrain"
    PRE_TERMINATE = "preTerminate"


HOOKS_MOST = 50
"""The most hooks of one kind and origin (spec, or added later) on one machine."""
# OpenShift's (machine/v1beta1, types_machine.go, LifecycleHook).
_HOOK_NAME = re.compile(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


def check_hook_name(value: str) -> str:
    """The name, if it is valid. Raises ValueError with the accepted form."""
    if not 3 <= len(value) <= 256 or not _HOOK_NAME.fullmatch(value):
        raise ValueError(
            f"{value[:300]!r} is not a hook's name: 3 to 256 characters, words in CamelCase, optionally after a DNS "
            "name and a slash; write it like EtcdQuorumOperator or example.com/EtcdQuorumOperator"
        )
    return value


def check_hook_owner(value: str) -> str:
    """The owner, if it is valid. Raises ValueError with the accepted form."""
    if not 3 <= len(value) <= 512 or not value.isprintable() or value != value.strip():
        raise ValueError(
            f"{value[:300]!r} is not a hook's owner: 3 to 512 characters in one line that say whom to ask about the "
            "hook; write it like clusteroperator/etcd or alice@example.com"
        )
    return value


class Hook(Manifest):
    """Something that must be done before the machine's deletion continues; whoever has done it removes the hook."""

    name: Key
    """Unique among the machine's hooks of the kind: EtcdQuorumOperator, example.com/EtcdQuorumOperator."""
    owner: Key
    """Who removes the hook and can be asked about it: a controller (clusteroperator/etcd) or a person."""

    _name = field_validator("name")(check_hook_name)
    _owner = field_validator("owner")(check_hook_owner)


class LifecycleHooks(Manifest):
    """What holds up a machine's deletion until all hooks are removed (OpenShift's fields and rules)."""

    pre_drain: list[Hook] = Field(default_factory=list, max_length=HOOKS_MOST)
    """These hold up the drain, also the drain of a Failed machine. A machine without a Node has no drain, and is not
    held up."""
    pre_terminate: list[Hook] = Field(default_factory=list, max_length=HOOKS_MOST)
    """These hold up the deletion of the VM, after the drain."""

    @field_validator("pre_drain", "pre_terminate")
    @classmethod
    def keyed_by_name(cls, value: list[Hook]) -> list[Hook]:
        names = [h.name for h in value]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"{', '.join(twice)}: given more than once; the name of a hook must be unique")
        return value

    def of(self, kind: HookKind) -> list[Hook]:
        return self.pre_drain if kind is HookKind.PRE_DRAIN else self.pre_terminate


DEFAULT_NODE_CONDITIONS = ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable")


class MachineSpec(Manifest):
    """What a machine is made from, and how long things may take."""

    class_: ClassRef = Field(alias="class")
    node_template: NodeTemplate = Field(default_factory=NodeTemplate)
    provider_id: Key | None = Field(default=None, alias="providerID")
    """Filled in by Gardener; accepted, and without effect: the machine's own is in its status."""
    creation_timeout: Duration = Field(default=timedelta(minutes=20), gt=timedelta(0))
    """A machine that is not Running within this time after its creation is Failed."""
    health_timeout: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long the machine may be unhealthy (Unknown) in total before it is Failed. Only an uninterrupted healthy time
    of the same length resets the total."""
    disable_health_timeout: bool = False
    """An unhealthy machine stays Unknown and is never Failed (Gardener's field)."""
    drain_timeout: Duration = Field(default=timedelta(hours=2), ge=timedelta(0))
    """Pods that are not evicted within this time after the deletion began are deleted without a grace period."""
    machine_preserve_timeout: Duration = Field(default=timedelta(hours=72), gt=timedelta(0))
    """How long the machine is kept when it is preserved (seed 003). A change applies to later preservations only."""
    node_conditions: list[Name] = Field(default_factory=lambda: list(DEFAULT_NODE_CONDITIONS))
    """Conditions of the Node that must be False for the machine to count as healthy, besides Ready = True."""
    lifecycle_hooks: LifecycleHooks = Field(default_factory=LifecycleHooks)
    """What holds up the machine's drain or its VM's deletion; see docs/hooks.md."""

    @field_validator("node_conditions", mode="before")
    @classmethod
    def comma_separated(cls, value: Any) -> Any:
        """Splits conditions that Gardener writes as one string."""
        return [c.strip() for c in value.split(",") if c.strip()] if isinstance(value, str) else value


_TIMEOUTS = ("creationTimeout", "healthTimeout", "drainTimeout", "machinePreserveTimeout")
_SECONDS = {"minReadySeconds": LONGEST_SECONDS - 1, "progressDeadlineSeconds": LONGEST_SECONDS}
_span: TypeAdapter[timedelta] = TypeAdapter(Span)


def as_kept(given: Any) -> Any:
    """A spec, or a template that holds one, as an older worker may have kept it: timeouts had no limit then, and one
    that is too long in such a state is now ten years. It must be decoded, whatever a manifest may say today."""
    if not isinstance(given, dict):
        return given
    of_pool = "template" in given
    timeouts = _TIMEOUTS if "class" in given else _TIMEOUTS[-1:] if of_pool else ()  # elsewhere they are unknown fields
    found = {name: _span.validate_python(given[name]) for name in timeouts if name in given}
    short = {n: min(v, most) for n, most in _SECONDS.items() if of_pool and isinstance(v := given.get(n), int)}
    within = {name: as_kept(given[name]) for name in ("template", "spec") if name in given}
    return {**given, **found, **short, **within}


KeptMachineSpec = Annotated[MachineSpec, BeforeValidator(as_kept)]
"""A machine spec in a state."""


class Machine(Manifest):
    """One machine: a VM and its Node."""

    api_version: Literal["machine.sapcloud.io/v1alpha1"] = Field(default="machine.sapcloud.io/v1alpha1")
    """The version of the API, as Gardener and Kubernetes write it."""
    kind: Literal["Machine"] = "Machine"
    """The kind of object."""
    metadata: ObjectMeta
    spec: MachineSpec

    @field_validator("metadata")
    @classmethod
    def label(cls, value: ObjectMeta) -> ObjectMeta:
        if not is_label(value.name):
            raise ValueError(
                f"name: {len(value.name)} characters; the name becomes a label of the machine's Node, so at most 63"
            )
        return value


class TemplateMachineSpec(MachineSpec):
    """The spec of a Machine, but without a providerID: each machine of the pool gets its own."""

    class_: Annotated[ClassRef, Effect.HASH] = Field(alias="class")
    """The MachineClass that the VMs are made from. Another class is a new revision."""

    @field_validator("provider_id")
    @classmethod
    def no_provider_id(cls, value: str | None) -> None:
        if value is not None:
            raise ValueError(
                "a pool creates its own VMs; leave it out, or take over an existing VM with `hostler adopt`"
            )


class MachineTemplate(Manifest):
    """What each machine of the pool is created from."""

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    """Labels and annotations of the machines. The annotation machinepriority.machine.sapcloud.io (default 3) decides
    which machines are deleted first: those with the lowest value."""
    spec: TemplateMachineSpec
    """The spec of each machine."""
