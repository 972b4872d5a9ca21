"""The made-up cloud as the rest of Hostler knows it."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field

from resources.base import Count, Key, Manifest
from resources.clouds import Provider, ProviderIDs, ProviderSpec, Simulation, TagRules, Tags
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

    def tag_sets(self) -> dict[str, Tags]:
        disks = {f"disks[{n}]": disk.labels for n, disk in enumerate(self.disks)}
        return {resource: self.TAGS.written(labels) for resource, labels in {"vm": self.labels, **disks}.items()}

    def tag_fields(self, resource: str) -> str:
        return "labels" if resource == "vm" else f"{resource}.labels"


FAKE = Provider(
    "Fake",
    FakeProviderSpec,
    ProviderIDs("fake", key=str.lower, indexed=str.lower),
    driver="fakecloud.driver",
    simulation=Simulation("fakecloud.simulated", service="fake", port=7699),
)
