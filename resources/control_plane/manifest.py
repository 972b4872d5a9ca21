"""ControlPlaneMachineSet, a control plane as OpenShift writes it (machine.openshift.io/v1,
types_controlplanemachineset.go), whose template is OpenShift's own or names a MachineClass of ours.

Where OpenShift's API has words for a mistake, these are its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, field_validator, model_validator

from resources.apimachinery import dns_subdomain
from resources.base import Annotations, Document, Key, Labels, Manifest, Name
from resources.clouds import PROVIDERS, FailureDomain
from resources.control_plane.spec import State, UpdateStrategy
from resources.effects import Effect
from resources.machine.manifest import LifecycleHooks, ObjectMeta, Taint, TemplateMachineSpec, TemplateMeta
from resources.selectors import LabelSelector

API = "machine.openshift.io/v1"
KIND = "ControlPlaneMachineSet"
NAME = "cluster"
"""The only name that a set may have."""
PREFIX_MOST = 55
"""The longest machineNamePrefix, so that machines' names (`<prefix>-<5 characters>-<index>`) fit into a label."""
MACHINE_TYPE = "machines_v1beta1_machine_openshift_io"
"""The only type of machine that OpenShift has, and the field with its template."""
CLUSTER_LABEL = "machine.openshift.io/cluster-api-cluster"
ROLE_LABEL = "machine.openshift.io/cluster-api-machine-role"
TYPE_LABEL = "machine.openshift.io/cluster-api-machine-type"


# -- where machines are ------------------------------------------------------------------------------------------------


class _Platform(Manifest):
    """The failure domains, under the platform's name in lower case."""

    platform: Name
    """The cloud that they are of."""

    @property
    def found(self) -> list[FailureDomain]:
        return getattr(self, self.platform.lower(), None) or []

    @model_validator(mode="after")
    def union(self) -> _Platform:
        names = {provider.lower(): provider for provider in PROVIDERS}
        for field, provider in names.items():
            given = getattr(self, field, None) is not None
            if given != (self.platform == provider):
                raise ValueError(
                    f"{field} configuration is required when platform is {provider}, and forbidden otherwise"
                )
        if self.platform not in PROVIDERS:
            raise ValueError(
                f"platform: there is no driver for it; there are drivers for {', '.join(sorted(PROVIDERS))}"
            )
        return self


if TYPE_CHECKING:
    FailureDomains = _Platform
else:
    FailureDomains = create_model(
        "FailureDomains",
        __base__=_Platform,
        __doc__=_Platform.__doc__,
        **{
            provider.name.lower(): (list[provider.domain] | None, Field(default=None, max_length=50))
            for provider in PROVIDERS.values()
        },
    )


# -- OpenShift's template ----------------------------------------------------------------------------------------------


class OpenShiftProviderSpec(Manifest):
    """What the VM is made from."""

    value: Document | None = None
    """OpenShift's spec of a machine on its cloud, which its `kind` names."""


class OpenShiftNodeMeta(Manifest):
    """What the machine's Node gets."""

    labels: Labels = Field(default_factory=dict)
    """Labels of the Node."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the Node."""


class OpenShiftMachineSpec(Manifest):
    """OpenShift's spec of a machine (machine/v1beta1, MachineSpec)."""

    metadata: OpenShiftNodeMeta = Field(default_factory=OpenShiftNodeMeta)
    lifecycle_hooks: LifecycleHooks = Field(default_factory=LifecycleHooks)
    """What holds up the machine's drain or its VM's deletion; see docs/hooks.md."""
    taints: list[Taint] = Field(default_factory=list)
    """Taints of the Node."""
    provider_spec: Annotated[OpenShiftProviderSpec, Effect.HASH]


class OpenShiftTemplate(Manifest):
    """OpenShift's template of a machine."""

    failure_domains: Annotated[FailureDomains | None, Effect.HASH] = None
    """Where the machines are: each index has one of them."""
    metadata: Annotated[TemplateMeta, Effect.HOT]
    """Labels and annotations of the machines."""
    spec: Annotated[OpenShiftMachineSpec, Effect.HOT]

    @field_validator("metadata")
    @classmethod
    def labelled(cls, value: TemplateMeta) -> TemplateMeta:
        for key in (ROLE_LABEL, TYPE_LABEL):
            if value.labels.get(key) != "master":
                raise ValueError(f"label '{key}' is required, and must have value 'master'")
        if not value.labels.get(CLUSTER_LABEL):
            raise ValueError(f"label '{CLUSTER_LABEL}' is required")
        return value


# -- the set -----------------------------------------------------------------------------------------------------------


class ControlPlaneTemplate(Manifest):
    """What machines are made from: OpenShift's template under machines_v1beta1_machine_openshift_io, or failureDomains,
    metadata and spec with a MachineClass."""

    machine_type: Annotated[Literal["machines_v1beta1_machine_openshift_io"] | None, Effect.POOL] = None
    """The type of OpenShift's template."""
    machines_v1beta1_machine_openshift_io: OpenShiftTemplate | None = Field(default=None, alias=MACHINE_TYPE)
    failure_domains: Annotated[FailureDomains | None, Effect.HASH] = None
    """Where the machines are: each index has one of them."""
    metadata: Annotated[TemplateMeta | None, Effect.HOT] = None
    """Labels and annotations of the machines."""
    spec: Annotated[TemplateMachineSpec | None, Effect.HOT] = None
    """The spec of each machine, with the MachineClass that its VM is made from."""

    @model_validator(mode="after")
    def one_form(self) -> ControlPlaneTemplate:
        theirs, ours = self.machines_v1beta1_machine_openshift_io, (self.failure_domains, self.metadata, self.spec)
        if (self.machine_type is None) != (theirs is None):
            raise ValueError(
                f"{MACHINE_TYPE} configuration is required when machineType is {MACHINE_TYPE}, and forbidden otherwise"
            )
        if theirs is None and self.spec is None:
            raise ValueError(f"give spec.class, the MachineClass of the machines, or machineType: {MACHINE_TYPE}")
        if theirs is not None and any(part is not None for part in ours):
            raise ValueError(
                f"failureDomains, metadata and spec stand under {MACHINE_TYPE}, where machineType is given"
            )
        return self

    @property
    def path(self) -> str:
        """Where the template's parts stand, below the set's `spec`."""
        return f"template.{MACHINE_TYPE}" if self.machines_v1beta1_machine_openshift_io else "template"

    @property
    def labels(self) -> dict[str, str]:
        theirs = self.machines_v1beta1_machine_openshift_io
        meta = theirs.metadata if theirs else self.metadata
        return meta.labels if meta else {}

    @property
    def given_domains(self) -> FailureDomains | None:
        theirs = self.machines_v1beta1_machine_openshift_io
        return theirs.failure_domains if theirs else self.failure_domains

    @property
    def domains(self) -> list[FailureDomain]:
        return self.given_domains.found if self.given_domains else []

    @property
    def platform(self) -> str:
        """The cloud of the failure domains; "" without any."""
        return self.given_domains.platform if self.given_domains else ""


class ControlPlaneStrategy(Manifest):
    """How machines are replaced that are not as the template says."""

    type: UpdateStrategy = UpdateStrategy.ROLLING_UPDATE
    """RollingUpdate replaces one index after the other, a new machine first; OnDelete makes a new machine for each one
    that somebody deletes."""


class ControlPlaneEtcd(Manifest):
    """How etcd is looked after."""

    guard: bool = False
    """Whether Hostler itself moves leadership away from a member, and removes it, before its machine is drained: for
    clusters without an operator that does so, such as kubeadm's. See docs/control-plane.md."""


class ControlPlaneMachineSetSpec(Manifest):
    """How many machines there are, what they are made from, and how they are replaced."""

    replicas: Annotated[Literal[3, 5], Effect.POOL] = 3
    """How many machines the control plane has. It cannot be changed."""
    state: Annotated[State, Effect.POOL] = State.INACTIVE
    """Inactive only observes; Active creates and replaces machines, and cannot be taken back."""
    strategy: Annotated[ControlPlaneStrategy, Effect.POOL] = Field(default_factory=ControlPlaneStrategy)
    """How machines are replaced that are not as the template says."""
    machine_name_prefix: Annotated[Key | None, Effect.POOL] = Field(default=None, min_length=1)
    """How the names of new machines begin, `<prefix>-<5 random characters>-<index>`. By default the cluster's name and
    role, as the template's labels say."""
    selector: Annotated[LabelSelector, Effect.POOL] = Field(default_factory=LabelSelector)
    """Must match the template's labels. It cannot be changed."""
    template: ControlPlaneTemplate
    etcd: Annotated[ControlPlaneEtcd, Effect.POOL] = Field(default_factory=ControlPlaneEtcd)
    """How etcd is looked after while machines are replaced."""

    @field_validator("replicas", mode="before")
    @classmethod
    def odd(cls, value: Any) -> Any:
        if isinstance(value, int) and value not in (3, 5):
            raise ValueError(f"Unsupported value: {value}: supported values: 3, 5")
        return value

    @field_validator("machine_name_prefix")
    @classmethod
    def begins_names(cls, value: str | None) -> str | None:
        if value is not None and (why := dns_subdomain(value)):
            raise ValueError(why)
        if value is not None and len(value) > PREFIX_MOST:
            raise ValueError(
                f"{len(value)} characters; machines' names are 8 longer and become labels of their Nodes, so at most "
                f"{PREFIX_MOST}"
            )
        return value

    @model_validator(mode="after")
    def selects_its_own(self) -> ControlPlaneMachineSetSpec:
        if not self.selector.matches(self.template.labels):
            raise ValueError("selector does not match template labels; give the template the same labels")
        return self


class ControlPlaneMachineSet(Manifest):
    """A cluster's control plane: 3 or 5 machines, each replaced at its index, never below quorum."""

    api_version: Literal["machine.openshift.io/v1"] = "machine.openshift.io/v1"
    """The version of the API, as OpenShift writes it."""
    kind: Literal["ControlPlaneMachineSet"] = "ControlPlaneMachineSet"
    """The kind of object."""
    metadata: ObjectMeta
    spec: ControlPlaneMachineSetSpec

    @field_validator("metadata")
    @classmethod
    def only_one(cls, value: ObjectMeta) -> ObjectMeta:
        if value.name != NAME:
            raise ValueError(f"name: control plane machine set name must be {NAME}: a cluster has one")
        return value


def domain_mistakes(template: ControlPlaneTemplate) -> Iterator[tuple[str, str]]:
    """Path, below the set's `spec`, and words for what is wrong with failure domains."""
    for n, domain in enumerate(template.domains):
        at = f"{template.path}.failureDomains.{template.platform.lower()}[{n}]"
        for path, words in domain.mistakes():
            yield f"{at}.{path}".rstrip("."), words
