"""What is the same for everybody: images, zones, regions, machine types."""

from __future__ import annotations

from simulator.clouds.gce.context import Row, fingerprint
from simulator.clouds.gce.errors import invalid, not_found
from simulator.clouds.gce.names import last, link, resolve
from simulator.clouds.gce.world import Image, MachineType, World


class Images:
    def __init__(self, world: World) -> None:
        self._world = world

    # -- images

    def resolve(self, reference: str, project: str) -> tuple[str, Image]:
        """The path of an image, and the image that it or its family means now. Raises notFound."""
        path = resolve(reference, project, "global/images", "sourceImage")
        image = self._of(path)
        return f"projects/{image.project}/global/images/{image.name}", image

    def _of(self, path: str) -> Image:
        project, family = path.split("/")[1], "/images/family/" in path
        for image in reversed(self._world.images):  # the newest of a family
            if image.project == project and last(path) == (image.family if family else image.name):
                return image
        raise not_found(path)

    def image(self, path: str) -> Row:
        return self._image_row(self._of(path))

    def images(self, project: str) -> list[Row]:
        return [self._image_row(image) for image in self._world.images if image.project == project]

    @staticmethod
    def _image_row(image: Image) -> Row:
        path = f"projects/{image.project}/global/images/{image.name}"
        found: Row = {
            "kind": "compute#image",
            "id": number(path),
            "name": image.name,
            "selfLink": link(path),
            "status": "READY",
            "diskSizeGb": str(image.disk_size_gb),
            "architecture": image.architecture,
        }
        return {**found, "family": image.family} if image.family else found

    # -- places

    def check_zone(self, zone: str) -> None:
        if zone not in self._world.zones:
            raise invalid("zone", zone, "Unknown zone.")

    def check_region(self, region: str) -> None:
        if region != self._world.region:
            raise invalid("region", region, "Unknown region.")

    def zone(self, project: str, zone: str) -> Row:
        path = f"projects/{project}/zones/{zone}"
        if zone not in self._world.zones:
            raise not_found(path)
        region = link(f"projects/{project}/regions/{self._world.region}")
        found = {"kind": "compute#zone", "id": number(path), "name": zone, "status": "UP"}
        return {**found, "selfLink": link(path), "region": region}

    def zones(self, project: str) -> list[Row]:
        return [self.zone(project, zone) for zone in self._world.zones]

    def region(self, project: str, region: str) -> Row:
        path = f"projects/{project}/regions/{region}"
        if region != self._world.region:
            raise not_found(path)
        zones = [link(f"projects/{project}/zones/{z}") for z in self._world.zones]
        found = {"kind": "compute#region", "id": number(path), "name": region, "status": "UP"}
        return {**found, "selfLink": link(path), "zones": zones}

    # -- machine types

    def machine_type_path(self, reference: str, project: str, zone: str) -> str:
        """The path of a machine type that is there in the zone. Raises invalid."""
        path = resolve(reference, project, f"zones/{zone}/machineTypes", "resource.machineType")
        if path.split("/")[3] != zone or last(path) not in self._world.machine_types:
            raise invalid(
                "resource.machineType",
                reference,
                f"Machine type with name '{last(path)}' does not exist in zone '{zone}'.",
            )
        return path

    def machine_type(self, scope: str, name: str) -> Row:
        path = f"{scope}/machineTypes/{name}"
        if name not in self._world.machine_types:
            raise not_found(path)
        return self._type_row(path, self._world.machine_types[name])

    def machine_types(self, scope: str) -> list[Row]:
        return [self._type_row(f"{scope}/machineTypes/{n}", t) for n, t in self._world.machine_types.items()]

    @staticmethod
    def _type_row(path: str, type_: MachineType) -> Row:
        return {
            "kind": "compute#machineType",
            "id": number(path),
            "name": last(path),
            "selfLink": link(path),
            "zone": path.split("/")[3],
            "guestCpus": type_.vcpus,
            "memoryMb": type_.memory_mib,
            "architecture": type_.architecture,
        }


def number(path: str) -> str:
    """The id of what the world holds: the same at every start."""
    return str(int.from_bytes(fingerprint(path).encode()[:7], "big"))
