"""The custom resources of seed 004, as OpenShift writes them (machineconfiguration.openshift.io/v1): what people write
and the API server keeps. Rendered configs may be over a megabyte, so no workflow ever holds one.

A model takes what an API server may hold, fields of other releases too. What a person should not write is said by
`resources/machine_config/judged.py` and, by the API server, from the schemas in deploy/crds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, model_validator

from resources.base import Count, Instant, Key, Labels, Manifest, Name, Text, Word, bounded, explained
from resources.machine_config.keys import (
    API,
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    MACHINE_POOL,
    ConfigKind,
)
from resources.selectors import LabelSelector

Made = TypeVar("Made", bound="ConfigObject")

RAW_MOST = 2 << 20
"""Bytes of one raw document; etcd takes 1.5 MiB of a whole object."""
ARGUMENT_MOST = 4096
"""Characters of one kernel argument; the kernel takes no longer command line on most architectures."""

Raw = Annotated[dict[str, Any], AfterValidator(partial(bounded, most=RAW_MOST))]
"""JSON whose fields somebody else defines, such as Ignition's. Refuses."""
Marks = Annotated[dict[str, str], AfterValidator(partial(bounded, most=1 << 19))]
"""Annotations of an object; the API server takes 256 KiB. Refuses."""
Argument = Annotated[str, Field(max_length=ARGUMENT_MOST)]


class ConfigError(ValueError):
    """An object of the API server cannot be read; the message says which, which field, and why."""


class Nullable(Manifest):
    """A part of an object in which null says no more than an absent field, as in Kubernetes."""

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, given: Any) -> Any:
        return {k: v for k, v in given.items() if v is not None} if isinstance(given, Mapping) else given


class OwnerReference(Nullable):
    """Who made an object, and takes it along when it goes."""

    api_version: Name
    """The version of the owner's API."""
    kind: Name
    """The kind of the owner."""
    name: Name
    """The owner's name."""
    uid: Key
    """The owner's uid."""
    controller: bool | None = None
    """Whether it is the one owner that makes the object what it is."""
    block_owner_deletion: bool | None = None
    """Whether the owner stays until the object is gone, where it is deleted in the foreground."""


class ConfigMeta(Nullable):
    """What the API server keeps of every object."""

    ALSO: ClassVar[tuple[str, ...]] = ("managedFields", "selfLink")
    name: Name
    """The name, unique among the objects of its kind in the cluster."""
    labels: Labels = Field(default_factory=dict)
    """Labels by which objects are selected."""
    annotations: Marks = Field(default_factory=dict)
    """Annotations of the object; hostler.io/cluster names its cluster for `apply`."""
    owner_references: list[OwnerReference] = Field(default_factory=list)
    """Who made it."""
    finalizers: list[Name] = Field(default_factory=list)
    """Who has to do something before it is gone."""
    uid: Key = ""
    """The API server's: unlike the name, never given again."""
    resource_version: Key = ""
    """The API server's: changes with every write."""
    generation: Count = 0
    """The API server's: counts the changes of the spec."""
    creation_timestamp: Instant | None = None
    """The API server's: when it was made."""
    deletion_timestamp: Instant | None = None
    """The API server's: since when it is being deleted."""


class ObjectRef(Nullable):
    """Another object, by its kind and name."""

    api_version: Name = API
    """The version of its API."""
    kind: Name = MACHINE_CONFIG.kind
    """Its kind."""
    name: Name = ""
    """Its name."""


class ConfigCondition(Nullable):
    """One thing that is known of an object, and since when."""

    type: Word
    """What it is about."""
    status: Word = "Unknown"
    """True, False or Unknown."""
    reason: Word = ""
    """Why, in one word."""
    message: Text = ""
    """Why, in words."""
    last_transition_time: Instant | None = None
    """When the status changed last."""


class ConfigObject(Nullable):
    """What the four kinds share."""

    KIND: ClassVar[ConfigKind]
    api_version: Literal["machineconfiguration.openshift.io/v1"] = API
    """The version of the API, as OpenShift writes it."""
    kind: Name
    """The kind of object."""
    metadata: ConfigMeta

    @property
    def name(self) -> str:
        return self.metadata.name

    @classmethod
    def of_dict(cls: type[Made], given: Mapping[str, Any]) -> Made:
        """Reads an object of the API server. Raises ConfigError, which names the object and each field that cannot be
        read."""
        meta = given.get("metadata") if isinstance(given.get("metadata"), Mapping) else {}
        assert isinstance(meta, Mapping)
        try:
            return cls.model_validate({**given, "metadata": {k: v for k, v in meta.items() if k != "managedFields"}})
        except ValidationError as e:
            raise ConfigError(f"{cls.KIND.kind} {meta.get('name') or '(no name)'}: {explained(e)}") from None

    def to_dict(self) -> dict[str, Any]:
        """The object as JSON for the API server: what was given or set, and no defaults beside it."""
        found = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {"apiVersion": API, "kind": self.KIND.kind, **{k: v for k, v in found.items() if k not in _TYPE}}


_TYPE = ("apiVersion", "kind")


# -- MachineConfig -----------------------------------------------------------------------------------------------------


class MachineConfigSpec(Nullable):
    """What is to be on a machine."""

    os_image_url: Key = Field(default="", alias="osImageURL")
    """The image of the operating system, instead of the cluster's."""
    base_os_extensions_container_image: Key = ""
    """The image with the extensions that fit osImageURL."""
    config: Raw | None = None
    """An Ignition config: files, units, users, and so on; versions 2.x and 3.x."""
    kernel_arguments: list[Argument] = Field(default_factory=list)
    """Arguments of the kernel, in this order."""
    extensions: list[Key] = Field(default_factory=list)
    """Extensions of the operating system."""
    fips: bool = False
    """FIPS mode; it can be chosen only when a machine is installed."""
    kernel_type: Word = ""
    """The kernel: default, realtime or 64k-pages."""


class MachineConfig(ConfigObject):
    """What is to be on the machines of a pool, or a part of it; Hostler merges the parts."""

    KIND: ClassVar[ConfigKind] = MACHINE_CONFIG
    kind: Literal["MachineConfig"] = "MachineConfig"
    """The kind of object."""
    spec: MachineConfigSpec = Field(default_factory=MachineConfigSpec)


# -- MachineConfigPool -------------------------------------------------------------------------------------------------


class MachineSetRef(Nullable):
    """A pool of machines, whose machines are meant."""

    kind: Literal["MachineDeployment", "MachineSet"] = "MachineDeployment"
    """The kind of the pool; MachineSet is the seed's word for the same."""
    name: Name
    """The pool's name."""


class PoolConfiguration(Nullable):
    """A rendered MachineConfig, and what it was made of."""

    name: Name = ""
    """The rendered MachineConfig's name; "": none yet."""
    source: list[ObjectRef] = Field(default_factory=list)
    """The MachineConfigs that it was merged of, in that order."""


class MachineConfigPoolSpec(Nullable):
    """Which MachineConfigs are for which machines, and how they get there."""

    machine_config_selector: LabelSelector | None = None
    """The MachineConfigs that are merged; an empty one selects none."""
    machine_selector: LabelSelector | None = None
    """The machines of the pool, by labels of Hostler's machines."""
    node_selector: LabelSelector | None = None
    """The machines of the pool, by labels of their Nodes."""
    machine_set_ref: MachineSetRef | None = None
    """The machines of the pool: those of a pool of machines. Of this and the two selectors only one may be given."""
    paused: bool = False
    """Nothing is rendered, and no node is given another config."""
    max_unavailable: Count | Name | None = None
    """How many nodes may be unavailable at a time: a count, or a percentage of the pool's nodes, rounded down; at least
    1."""
    configuration: PoolConfiguration = Field(default_factory=PoolConfiguration)
    """The rendered config that the nodes are to have; Hostler writes it."""

    @property
    def chosen_by(self) -> list[str]:
        """The fields that say which machines are the pool's; more than one is a mistake."""
        given = {
            "machineSelector": self.machine_selector,
            "nodeSelector": self.node_selector,
            "machineSetRef": self.machine_set_ref,
        }
        return [field for field, value in given.items() if value is not None]


class MachineConfigPoolStatus(Nullable):
    """What the update controller found; the seed's names of counts beside today's."""

    observed_generation: Count = 0
    """The generation that the other fields are about."""
    current_machine_config: Name = ""
    """The rendered config that the nodes are to have."""
    configuration: PoolConfiguration = Field(default_factory=PoolConfiguration)
    """The rendered config that all nodes had last."""
    machine_count: Count = 0
    """Nodes of the pool."""
    updated_machine_count: Count = 0
    """Nodes that have currentMachineConfig and are Ready."""
    updating_machines: Count = 0
    """The seed's name of updatedMachineCount."""
    ready_machine_count: Count = 0
    """Nodes that are Ready."""
    ready_machines: Count = 0
    """The seed's name of readyMachineCount."""
    unavailable_machine_count: Count = 0
    """Nodes that are being changed, or are not Ready."""
    unavailable_machines: Count = 0
    """The seed's name of unavailableMachineCount."""
    degraded_machine_count: Count = 0
    """Nodes whose daemon cannot apply their config."""
    conditions: list[ConfigCondition] = Field(default_factory=list)
    """Updated, Updating, Degraded, RenderDegraded, NodeDegraded."""


class MachineConfigPool(ConfigObject):
    """Machines that are to have the same config, and how they get it."""

    KIND: ClassVar[ConfigKind] = MACHINE_CONFIG_POOL
    kind: Literal["MachineConfigPool"] = "MachineConfigPool"
    """The kind of object; `apply` takes the seed's MachinePool too."""
    spec: MachineConfigPoolSpec = Field(default_factory=MachineConfigPoolSpec)
    status: MachineConfigPoolStatus = Field(default_factory=MachineConfigPoolStatus)


def translated(given: Mapping[str, Any]) -> dict[str, Any]:
    """A MachinePool, as seed 004 calls it, as a MachineConfigPool; anything else as it is."""
    if given.get("kind") != MACHINE_POOL:
        return dict(given)
    return {**given, "apiVersion": API, "kind": MACHINE_CONFIG_POOL.kind}


# -- KubeletConfig -----------------------------------------------------------------------------------------------------


class TlsCustom(Nullable):
    """Ciphers and the oldest version, one by one."""

    ciphers: list[Word] = Field(default_factory=list)
    """Names of ciphers, as OpenSSL has them."""
    min_tls_version: Word = Field(default="", alias="minTLSVersion")
    """The oldest version: VersionTLS10 to VersionTLS13."""


class TlsProfile(Nullable):
    """Ciphers and versions of TLS, by Mozilla's profiles."""

    type: Word = ""
    """Old, Intermediate, Modern or Custom."""
    custom: TlsCustom | None = None
    """For Custom: what it has."""


class KubeletConfigSpec(Nullable):
    """Options of the kubelets of some pools."""

    machine_config_pool_selector: LabelSelector | None = None
    """The MachineConfigPools whose kubelets are meant; an empty one selects none."""
    kubelet_config: Raw | None = None
    """Fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1), which win over those of the template."""
    log_level: Count | None = None
    """How much the kubelet logs: 0 to 10."""
    tls_security_profile: TlsProfile | None = None
    """Which ciphers and versions of TLS the kubelet's server takes."""
    auto_sizing_reserved: bool | None = None
    """Whether the node reckons systemReserved from its size."""


class KubeletConfigStatus(Nullable):
    """What became of the options."""

    observed_generation: Count = 0
    """The generation that the conditions are about."""
    conditions: list[ConfigCondition] = Field(default_factory=list)
    """Success or Failure, and why; the newest is last."""


class KubeletConfig(ConfigObject):
    """Options of kubelets, which become the MachineConfig `99-<pool>-kubelet-managed`."""

    KIND: ClassVar[ConfigKind] = KUBELET_CONFIG
    kind: Literal["KubeletConfig"] = "KubeletConfig"
    """The kind of object."""
    spec: KubeletConfigSpec = Field(default_factory=KubeletConfigSpec)
    status: KubeletConfigStatus = Field(default_factory=KubeletConfigStatus)


# -- ControllerConfig --------------------------------------------------------------------------------------------------


class ControllerConfigSpec(Nullable):
    """What the templates are filled in with. Any other field may be given: a template finds it by its name."""

    OPEN: ClassVar[bool] = True
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(partial(bounded, most=RAW_MOST))]]
    cluster_dns_ip: Key = Field(default="", alias="clusterDNSIP")
    """The address of the cluster's DNS service."""
    platform: Word = ""
    """The platform, which chooses layers of the templates: aws, azure, gcp, none, …"""
    os_image_url: Key = Field(default="", alias="osImageURL")
    """The image of the operating system."""
    base_os_extensions_container_image: Key = ""
    """The image with its extensions."""
    images: dict[Word, Key] = Field(default_factory=dict)
    """Images that the templates name, by key."""


class ControllerConfigStatus(Nullable):
    """What became of the templates."""

    observed_generation: Count = 0
    """The generation that the conditions are about."""
    conditions: list[ConfigCondition] = Field(default_factory=list)
    """TemplateControllerCompleted, TemplateControllerRunning, TemplateControllerFailing."""


class ControllerConfig(ConfigObject):
    """What a cluster's templates are filled in with; only the one named machine-config-controller counts."""

    KIND: ClassVar[ConfigKind] = CONTROLLER_CONFIG
    kind: Literal["ControllerConfig"] = "ControllerConfig"
    """The kind of object."""
    spec: ControllerConfigSpec = Field(default_factory=ControllerConfigSpec)
    status: ControllerConfigStatus = Field(default_factory=ControllerConfigStatus)


CONFIG_MODELS: dict[str, type[ConfigObject]] = {
    model.KIND.kind: model for model in (MachineConfig, MachineConfigPool, KubeletConfig, ControllerConfig)
}
"""Models by kind."""
