"""Worker pools of the made-up cloud."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from resources.base import Key, Manifest, Name
from resources.clouds import Tags
from resources.clouds.workers import (
    ImageVersion,
    WorkerConfig,
    WorkerInfrastructure,
    WorkerPlug,
    WorkerTemplate,
    gibibytes,
    given,
    versions_of,
)
from resources.effects import Effect


class FakeWorkerConfig(WorkerConfig):
    labels: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)


class FakeImageVersion(ImageVersion):
    image: Key


class FakeImage(Manifest):
    name: Key
    versions: list[FakeImageVersion]


class FakeInfrastructure(WorkerInfrastructure):
    networks: dict[Name, Key]
    """Networks by zone."""
    machine_images: list[FakeImage]


def provider_spec(
    settings: WorkerTemplate, config: FakeWorkerConfig, infrastructure: FakeInfrastructure, zone: str
) -> dict[str, Any]:
    found = versions_of(settings, [(image.name, image.versions) for image in infrastructure.machine_images])
    volumes = [*([settings.volume] if settings.volume else []), *settings.sorted_volumes]
    return given(
        image=found[0].image,
        flavour=settings.machine.type,
        network=infrastructure.networks[zone],
        labels=config.labels,
        disks=[given(sizeGb=gibibytes(volume.size), type=volume.type) for volume in volumes],
    )


def zone_labels(infrastructure: FakeInfrastructure, zone: str) -> dict[str, str]:
    return {"fake/zone": zone}


WORKERS = WorkerPlug(FakeWorkerConfig, FakeInfrastructure, provider_spec, zone_labels)
