"""Worker pools, as far as every cloud has them: what a VM of one is made from, by Gardener's names, and the interface
that each cloud's `worker.py` fills (docs/worker-pools.md).

A worker pool says what is wanted (core/v1beta1, types_shoot.go, Worker); its `providerConfig` is the cloud's
WorkerConfig; and the infrastructure is what Gardener's extension of the cloud knows from elsewhere: from its
InfrastructureStatus, and, for images, from the CloudProfile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator

from resources.base import Document, Key, Manifest, Name
from resources.effects import Effect
from resources.machine.manifest import SecretRef

NamedT = TypeVar("NamedT")
Architecture = Literal["amd64", "arm64"]
AMD64: Architecture = "amd64"
_SIZE = re.compile(r"([1-9][0-9]{0,5})(Gi|G|Ti|T)?")
_UNITS = {"": 1, "G": 1, "Gi": 1, "T": 1000, "Ti": 1024}


class Unfit(ValueError):
    """The worker pool asks for what its infrastructure has not; `path` says where."""

    def __init__(self, path: str, words: str) -> None:
        super().__init__(f"{path}: {words}")
        self.path = path


# -- what a VM of a worker pool is made from ---------------------------------------------------------------------------


class WorkerImage(Manifest):
    """An image of the infrastructure's `machineImages`."""

    name: Key = Field(min_length=1)
    """The name of the image."""
    version: Key = Field(min_length=1)
    """Its version, in quotes where it looks like a number."""


class WorkerMachine(Manifest):
    """The machine type and the image."""

    type: Key = Field(min_length=1)
    """The cloud's machine type."""
    image: WorkerImage
    architecture: Architecture = AMD64
    """The architecture of the CPU, which the image must have."""


def gibibytes(size: str) -> int:
    """The size of a volume in GiB, as Gardener reads it: the number before the unit. Raises ValueError."""
    found = _SIZE.fullmatch(size)
    if found is None:
        raise ValueError("not the size of a volume; write it like 50Gi")
    return int(found[1]) * _UNITS[found[2] or ""]


class WorkerVolume(Manifest):
    """The disk that the VM boots from."""

    name: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect."""
    type: Key | None = None
    """The cloud's type of volume; null: the cloud's default."""
    size: Key
    """Like 50Gi."""
    encrypted: bool | None = None
    """Whether it is encrypted; null: as the cloud does."""

    @field_validator("size")
    @classmethod
    def readable(cls, value: str) -> str:
        gibibytes(value)
        return value


class WorkerDataVolume(WorkerVolume):
    """A further disk of the VM."""

    name: Key = Field(min_length=1)
    """Unique among the pool's data volumes: the providerConfig names it. They are attached in the order of their
    names."""


class WorkerTemplate(Manifest):
    """What a VM of a worker pool is made from, on whichever cloud."""

    machine: WorkerMachine
    volume: WorkerVolume | None = None
    """The disk that the VM boots from; null: as the image has it, where the cloud allows that."""
    data_volumes: list[WorkerDataVolume] = Field(default_factory=list)
    """Further disks."""

    @field_validator("data_volumes")
    @classmethod
    def one_of_a_name(cls, value: list[WorkerDataVolume]) -> list[WorkerDataVolume]:
        names = [v.name for v in value]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"{', '.join(twice)}: given more than once; the name of a data volume is unique")
        return value

    @property
    def sorted_volumes(self) -> list[WorkerDataVolume]:
        """The data volumes in one order, however they are listed: another order of the list replaces no machine."""
        return sorted(self.data_volumes, key=lambda v: v.name)

    def known(self, named: dict[str, NamedT]) -> dict[str, NamedT]:
        """What a providerConfig says of data volumes, by their names. Raises Unfit for one that the worker has not."""
        if unknown := sorted(named.keys() - {volume.name for volume in self.data_volumes}):
            raise Unfit("providerConfig.dataVolumes", f"the worker has no data volume {', '.join(unknown)}")
        return named


# -- what the cloud adds -----------------------------------------------------------------------------------------------


class WorkerNodeTemplate(Manifest):
    """Resources of a node, for an autoscaler that scales from zero."""

    capacity: Document = Field(default_factory=dict)
    """Resources of a node: cpu, memory, gpu, and so on."""
    virtual_capacity: Document = Field(default_factory=dict)
    """Resources that a node has besides those of its VM."""


class WorkerConfig(Manifest):
    """`providerConfig` of a worker pool: the cloud's WorkerConfig."""

    api_version: Annotated[Key | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    kind: Annotated[Name | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    node_template: Annotated[WorkerNodeTemplate | None, Effect.POOL] = None
    """Resources of a node, for an autoscaler that scales from zero."""


class TaggedWorkerConfig(WorkerConfig):
    """A WorkerConfig with the tags of seed 002: updatable, so no part of the hash. A worker's labels are for Nodes
    alone and never become tags."""

    tags: Annotated[dict[Key, Key], Effect.HOT] = Field(default_factory=dict)
    """Deprecated: goes to VM, NICs and disks alike. A specific field, even empty, replaces it for its resource."""
    vm_tags: Annotated[dict[Key, Key] | None, Effect.HOT] = None
    """Tags of the VM."""
    nic_tags: Annotated[dict[Key, Key] | None, Effect.HOT] = None
    """Tags of the network interfaces."""
    disk_tags: Annotated[dict[Key, Key] | None, Effect.HOT] = None
    """Tags of the disks."""

    @property
    def given_tags(self) -> dict[str, Any]:
        """The fields of the provider spec that are given here."""
        found = {"tags": self.tags, "vmTags": self.vm_tags, "nicTags": self.nic_tags, "diskTags": self.disk_tags}
        return {name: tags for name, tags in found.items() if tags is not None and (tags or name != "tags")}


class WorkerInfrastructure(Manifest):
    """What a worker pool needs to know of the account, the network and the images."""

    region: Name = Field(min_length=1)
    """The region of all zones."""
    credentials_secret_ref: Annotated[SecretRef | None, Effect.POOL] = None
    """The Secret with the account's credentials; null: they are in userDataSecretRef."""
    user_data_secret_ref: Annotated[SecretRef, Effect.POOL]
    """The Secret whose `userData` the VMs boot with. Another name counts for new VMs."""


class ImageVersion(Manifest):
    """A version of an image, as the CloudProfile has it."""

    version: Key = Field(min_length=1)
    """The version."""


VersionT = TypeVar("VersionT", bound=ImageVersion)
FoundT = TypeVar("FoundT")


def versions_of(settings: WorkerTemplate, images: Sequence[tuple[str, Sequence[VersionT]]]) -> list[VersionT]:
    """The entries of the version that the worker pool names. `images`: name and versions of each. Raises Unfit, with
    those that are known."""
    wanted = settings.machine.image
    every = [(name, entry) for name, versions in images for entry in versions]
    if found := [entry for name, entry in every if (name, entry.version) == (wanted.name, wanted.version)]:
        return found
    listed = ", ".join(dict.fromkeys(f"{name} {entry.version}" for name, entry in every)) or "none"
    words = f"the infrastructure's machineImages have no {wanted.name} {wanted.version}; they have {listed}"
    raise Unfit("machine.image", words)


def fitting(settings: WorkerTemplate, found: Sequence[tuple[str, FoundT]]) -> FoundT:
    """The variant of an image version, each given with its architecture, that the worker pool asks for. Raises
    Unfit."""
    wanted, image = settings.machine.architecture, settings.machine.image
    for architecture, variant in found:
        if architecture == wanted:
            return variant
    listed = ", ".join(dict.fromkeys(architecture for architecture, _ in found)) or "nothing in this region"
    words = f"{image.name} {image.version} is not there for {wanted}; it is for {listed}"
    raise Unfit("machine.architecture", words)


def given(**fields: Any) -> dict[str, Any]:
    """The fields that ask for something."""
    return {name: value for name, value in fields.items() if value is not None}


def plain(part: Manifest | None) -> dict[str, Any] | None:
    """A part of a manifest as it was written, with the names that manifests have."""
    return None if part is None else part.model_dump(mode="json", by_alias=True, exclude_unset=True)


@dataclass(frozen=True)
class WorkerPlug:
    """What a cloud makes of a worker pool."""

    config: type[WorkerConfig]
    """`providerConfig`."""
    infrastructure: type[WorkerInfrastructure]
    provider_spec: Callable[[WorkerTemplate, Any, Any, str], dict[str, Any]]
    """`provider_spec(settings, config, infrastructure, zone)`: the provider spec of the zone's class; zone "" where the
    pool has none. Raises Unfit."""
    zone_labels: Callable[[Any, str], dict[str, str]]
    """`zone_labels(infrastructure, zone)`: labels of a Node in the zone, by which volumes find it."""
    zoneless: bool = False
    """Whether a pool may have no zones."""
