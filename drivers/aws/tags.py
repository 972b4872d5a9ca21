"""Tags: what a class asks for, what must be on everything, and how a resource is released.

Must-tags are Gardener's (seed 002: Name, kubernetes.io/cluster/…, kubernetes.io/role/…) and our own five. They win over
the class's: a class that says `Name: x` must not break the look-up (cluster-api-provider-aws#4629: 124 VMs for two).
"""

from __future__ import annotations

from typing import Any, Literal

from drivers.base import Identity
from drivers.errors import DriverError
from resources.clouds.aws import MAX_TAGS, AwsProviderSpec, Tags
from resources.errors import ErrorClass
from resources.names import (
    CLUSTER_PREFIX,
    MUST_PREFIXES,
    OWNER,
    ROLE_PREFIX,
    TAG_CLUSTER,
    TAG_INSTALLATION,
    TAG_MACHINE,
    TAG_OWNER,
    TAG_RELEASED,
    TAG_UID,
)

OURS = (TAG_OWNER, TAG_INSTALLATION, TAG_CLUSTER, TAG_MACHINE, TAG_UID)
MAX_VALUE = 256  # characters (EC2 user guide, Tag restrictions)

ClassField = Literal["vm", "disk", "nic"]
RESOURCES: tuple[tuple[str, ClassField], ...] = (("instance", "vm"), ("volume", "disk"), ("network-interface", "nic"))
"""EC2's name of a resource, and the class's."""


def must_tags(spec: AwsProviderSpec, machine: Identity) -> Tags:
    """Cluster and role as the class has them, else as the settings have them; the cluster's name where they do not.

    Raises DriverError of class invalid when the class names two clusters, or another one than the settings.
    """
    given = spec.must_tags()
    clusters = sorted(k.removeprefix(CLUSTER_PREFIX) for k in given if k.startswith(CLUSTER_PREFIX))
    named = machine.cluster_full_name
    if len(clusters) > 1 or (clusters and named and clusters != [named]):
        raise DriverError(
            ErrorClass.INVALID,
            f"the class's tags name the cluster {' and '.join(clusters)}, the settings {named or 'none'}: "
            f"there must be one tag {CLUSTER_PREFIX}<full name>, of the machine's own cluster",
        )
    if not clusters:
        given[f"{CLUSTER_PREFIX}{named or machine.cluster}"] = "1"
    if not any(k.startswith(ROLE_PREFIX) for k in given):
        given[f"{ROLE_PREFIX}{machine.role}"] = "1"
    ours = {TAG_OWNER: OWNER, TAG_CLUSTER: machine.cluster, TAG_MACHINE: machine.name, TAG_UID: machine.uid}
    if machine.installation:
        ours[TAG_INSTALLATION] = machine.installation
    return {**given, **ours, "Name": machine.name}


def is_protected(key: str) -> bool:
    """Never the class's to give or to take on a resource: must-tags, ours, and the mark of a released one."""
    return key in (*OURS, TAG_RELEASED, "Name") or key.startswith(MUST_PREFIXES)


def class_tags(spec: AwsProviderSpec, field: ClassField) -> Tags:
    """What a class asks for on a kind of resource, without what is not its to give."""
    return {k: v for k, v in spec.tags_for(field).items() if not is_protected(k)}


def counted(tags: Tags) -> Tags:
    """Without AWS's own, which do not count against the limit (EC2 user guide, Tag restrictions)."""
    return {k: v for k, v in tags.items() if not k.lower().startswith("aws:")}


def tag_specifications(spec: AwsProviderSpec, machine: Identity) -> list[dict[str, Any]]:
    """`TagSpecifications` of RunInstances, in a fixed order: a repeated request must match its token.

    Raises DriverError of class invalid with the count when a resource would carry more than 50.
    """
    must = must_tags(spec, machine)
    specifications = []
    for resource, field in RESOURCES:
        wanted = {**spec.tags_for(field), **must}
        wanted.pop(TAG_RELEASED, None)  # it would say of a living machine's disk that it belongs to nobody
        if len(wanted) > MAX_TAGS:
            raise DriverError(
                ErrorClass.INVALID,
                f"{len(wanted)} tags for the {resource} ({len(must)} of them must be there), EC2 takes {MAX_TAGS}: "
                f"remove {len(wanted) - MAX_TAGS} from {field}Tags or tags",
            )
        pairs = [{"Key": k, "Value": wanted[k]} for k in sorted(wanted)]
        specifications.append({"ResourceType": resource, "Tags": pairs})
    return specifications


def released_value(machine: Identity) -> str:
    """The value of TAG_RELEASED: exact by the uid, readable by the name, cut to what a tag may hold."""
    return f"{machine.name[: MAX_VALUE - len(machine.uid) - 1]}/{machine.uid}"


def tags_of(resource: dict[str, Any]) -> Tags:
    """EC2 calls them `Tags`, on network interfaces `TagSet`."""
    return {t["Key"]: t.get("Value", "") for t in resource.get("Tags") or resource.get("TagSet") or ()}
