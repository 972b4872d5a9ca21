"""Machine images, as they are described."""

from __future__ import annotations

from simulator.clouds.ec2.identifiers import IMAGE, find
from simulator.clouds.ec2.listing import describe
from simulator.clouds.ec2.tags import Tags
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import Image, World

FILTERS = {
    "architecture": "Architecture",
    "image-id": "ImageId",
    "is-public": "Public",
    "name": "Name",
    "owner-alias": "ImageOwnerAlias",
    "owner-id": "OwnerId",
    "root-device-name": "RootDeviceName",
    "root-device-type": "RootDeviceType",
    "state": "State",
    "virtualization-type": "VirtualizationType",
}


class Images:
    def __init__(self, world: World, tags: Tags) -> None:
        self._world = world
        self._tags = tags

    def describe_images(self, params: Params) -> Row:
        """`Owners` holds account ids or the words `self` and `amazon`."""
        ids = params.get("ImageIds")
        rows = [self._row(i) for i in (find(IMAGE, ids, self._world.image) if ids else self._world.images)]
        owners = {self._world.account_id if o == "self" else o for o in params.get("Owners", [])}
        if owners:
            rows = [r for r in rows if owners & {r["OwnerId"], r["ImageOwnerAlias"]}]
        return describe("Images", rows, params, FILTERS, ("ImageId",), "ImageIds")

    def _row(self, image: Image) -> Row:
        root = {
            "VolumeSize": image.root_volume_size,
            "VolumeType": "gp3",
            "DeleteOnTermination": True,
            "Encrypted": False,
        }
        return {
            "ImageId": image.id,
            "Name": image.name,
            "OwnerId": image.owner_id,
            "ImageOwnerAlias": None if image.owner_id == self._world.account_id else "amazon",
            "Architecture": image.architecture,
            "ImageType": "machine",
            "ImageLocation": f"{image.owner_id}/{image.name}",
            "State": "available",
            "CreationDate": "2026-01-01T00:00:00.000Z",
            "Public": True,
            "RootDeviceName": image.root_device_name,
            "RootDeviceType": "ebs",
            "VirtualizationType": "hvm",
            "Hypervisor": "xen",
            "EnaSupport": True,
            "BlockDeviceMappings": [{"DeviceName": image.root_device_name, "Ebs": root}],
            "Tags": self._tags.rows(image.id),
        }
