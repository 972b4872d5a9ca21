"""The made-up cloud as the rest of Hostler knows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from fakecloud.worker import WORKERS
from resources.base import Count, Key, Manifest
from resources.clouds import FailureDomain, Provider, ProviderIDs, ProviderSpec, Simulation, TagRules, Tags
from resources.clouds.openshift import Becomes, Mistake, OpenShiftSpec, Rejected
from resources.effects import Effect

LENGTH = 63


def _written(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower().replace("/", "_"))[:LENGTH]


class Disk(Manifest):
    size_gb: Count = Field(ge=1)
    labels: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    type: Key | None = None


class Console(Manifest):
    log: Annotated[bool | None, Effect.HOT] = None
    device: Key | None = None


class FakeFailureDomain(FailureDomain):
    rack: Key = Field(min_length=1)

    @property
    def name(self) -> str:
        return self.rack


class FakeProviderSpec(ProviderSpec):
    """`providerSpec` of a MachineClass whose provider is Fake."""

    TAGS: ClassVar = TagRules(limit=20, key=_written, value=_written, value_length=LENGTH)

    image: Key
    flavour: Key = Field(min_length=1)
    network: Annotated[Key | None, Effect.POST_START] = None
    comment: Annotated[Key | None, Effect.NONE] = None
    labels: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Labels of the VM."""
    disks: list[Disk] = Field(default_factory=list)
    console: Console = Field(default_factory=Console)
    rack: Key | None = None

    def in_domain(self, fields: Mapping[str, Any]) -> Self:
        return self.model_copy(update={"rack": FakeFailureDomain.model_validate(fields).rack})

    def domain(self) -> FakeFailureDomain:
        return FakeFailureDomain(rack=self.rack or "any")

    def imaged_as(self, other: Self) -> Self:
        return self.model_copy(update={"image": other.image})

    def tag_sets(self) -> dict[str, Tags]:
        disks = {f"disks[{n}]": disk.labels for n, disk in enumerate(self.disks)}
        return {resource: self.TAGS.written(labels) for resource, labels in {"vm": self.labels, **disks}.items()}

    def tag_fields(self, resource: str) -> str:
        return "labels" if resource == "vm" else f"{resource}.labels"


class FakeMachineProviderSpec(OpenShiftSpec):
    KIND: ClassVar = "FakeMachineProviderSpec"

    image: Annotated[Key, Becomes("image")]
    size: Annotated[Key, Becomes("flavour")]
    rack: Annotated[Key | None, Becomes("rack")] = None
    balancer: Annotated[Key | None, Rejected("there are none; remove it")] = None

    def translated(self, cluster_id: str) -> dict[str, Any]:
        return {"image": self.image, "flavour": self.size, "rack": self.rack, "labels": {"cluster": cluster_id}}

    def mistakes(self, domains: Sequence[FailureDomain]) -> list[Mistake]:
        return [] if self.rack or domains else [("rack", "missing")]


FAKE = Provider(
    "Fake",
    FakeProviderSpec,
    ProviderIDs("fake", key=str.lower, indexed=str.lower),
    domain=FakeFailureDomain,
    openshift=FakeMachineProviderSpec,
    driver="fakecloud.driver",
    simulation=Simulation("fakecloud.simulated", service="fake", port=7699, create="CreateVm"),
    workers=WORKERS,
)
