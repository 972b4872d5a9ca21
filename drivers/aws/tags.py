"""Tags as EC2 writes them; the rules, which are the same for every cloud, are in drivers/tags.py."""

from __future__ import annotations

from typing import Any

from drivers.base import Identity
from drivers.tags import launch_tags
from resources.clouds import Tags
from resources.clouds.aws.spec import AwsProviderSpec

RESOURCES = (("instance", "vm"), ("volume", "disk"), ("network-interface", "nic"))
"""EC2's name of a resource, and the class's name for it."""


def tag_specifications(spec: AwsProviderSpec, machine: Identity) -> list[dict[str, Any]]:
    """`TagSpecifications` of RunInstances, in a fixed order: a repeated request must match its token.

    Raises DriverError of class invalid with the count when a resource would carry more than 50.
    """
    return [
        {
            "ResourceType": kind,
            "Tags": [{"Key": k, "Value": v} for k, v in launch_tags(spec, machine, resource, kind).items()],
        }
        for kind, resource in RESOURCES
    ]


def tags_of(resource: dict[str, Any]) -> Tags:
    """The tags: EC2 calls them `Tags`, on network interfaces `TagSet`."""
    return {t["Key"]: t.get("Value", "") for t in resource.get("Tags") or resource.get("TagSet") or ()}
