"""The clouds that flows run on, as far as a flow must know one: what a class says there, and its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lifekit import Stack, examples_of
from machine.classes import MUST, tagged

Tags = dict[str, str]
HOPS = 3
"""AWS: the hop limit after a change; 2 before."""


@dataclass(frozen=True)
class Site:
    fields: Callable[[Tags, bool], dict[str, Any]]
    """Fields of a provider spec: these tags on each kind of resource, and whether another hot field has changed."""
    changed: Callable[[Stack, str], bool]
    """Whether a VM, by the last part of its providerID, has that other field changed."""
    throttled: str
    """The code for too many calls."""
    late: str = ""
    """A code with which a creation ends that was accepted; "": it is refused at once or not at all."""


def _aws_changed(stack: Stack, vm: str) -> bool:
    (reservation,) = stack.ec2().describe_instances(InstanceIds=[vm])["Reservations"]
    options = reservation["Instances"][0]["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpEndpoint"]) == ("required", "enabled")
    return bool(options["HttpPutResponseHopLimit"] == HOPS)


def _azure_fields(tags: Tags, changed: bool) -> dict[str, Any]:
    """With a disk from an image, which is made before the VM."""
    given = examples_of("azure").classes[0].provider_spec["properties"]
    image = {"communityGalleryImageID": "/CommunityGalleries/gardenlinux-1/Images/gardenlinux/Versions/1877.0.0"}
    disks = [{"name": "data", "lun": 0, "diskSizeGB": 40, "imageRef": image}]
    properties = {
        **given,
        "storageProfile": {**given["storageProfile"], "dataDisks": disks},
        "networkProfile": {"ipForwarding": not changed},
    }
    return {"vmTags": {**MUST, **tags}, "nicTags": tags, "diskTags": tags, "properties": properties}


def _azure_changed(stack: Stack, vm: str) -> bool:
    nics = stack.simulator.call(lambda: list(stack.cloud._interfaces.store.records.values()))
    (nic,) = (nic for nic in nics if nic.name.startswith(vm))
    return not nic.ip_forwarding


def _gcp_fields(tags: Tags, changed: bool) -> dict[str, Any]:
    given = examples_of("gcp").classes[0].provider_spec
    disks = [{**disk, "labels": {}} for disk in given["disks"]]
    network_tags = [*given["tags"], *(["changed"] if changed else [])]
    return {"vmTags": tags, "diskTags": tags, "disks": disks, "tags": network_tags}


def _gcp_changed(stack: Stack, vm: str) -> bool:
    found = stack.simulator.call(lambda: stack.cloud._find(vm).tags.value)
    assert "kubernetes-io-role-node" in found, f"I8: must-tags are gone: {found}"
    return "changed" in found


SITES = {
    "aws": Site(lambda tags, changed: tagged(tags, HOPS if changed else 2), _aws_changed, "RequestLimitExceeded"),
    "azure": Site(_azure_fields, _azure_changed, "TooManyRequests", late="AllocationFailed"),
    "gcp": Site(_gcp_fields, _gcp_changed, "rateLimitExceeded", late="ZONE_RESOURCE_POOL_EXHAUSTED"),
}
"""Sites by the cloud's name in the settings."""
