"""Labels and network tags as Compute Engine has them; the rules of tags, alike for every cloud, are in drivers/tags.py.

The must-tags are both: labels of the VM and its disks, and network tags of the VM, by which Gardener's firewall rules,
routes and orphan collection go. Nothing is looked up by a network tag here, so one that is lost loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivers.base import Identity
from drivers.errors import DriverError
from drivers.gcp.calls import Resource
from drivers.tags import TagPlan, TooManyTags, believed, must_tags, plan_tags
from resources.clouds import Tags
from resources.clouds.gcp.names import LABEL_RULES, NETWORK_TAGS_MOST, network_tag
from resources.clouds.gcp.spec import GcpProviderSpec
from resources.errors import ErrorClass
from resources.names import OWNER, TAG_CLUSTER, TAG_INSTALLATION, TAG_MACHINE, TAG_OWNER, TAG_RELEASED, TAG_UID

KEY_OWNER, KEY_CLUSTER, KEY_MACHINE, KEY_UID, KEY_INSTALLATION, KEY_RELEASED = map(
    LABEL_RULES.key, (TAG_OWNER, TAG_CLUSTER, TAG_MACHINE, TAG_UID, TAG_INSTALLATION, TAG_RELEASED)
)
KEY_ATTEMPT = LABEL_RULES.key("hostler.io/attempt")
"""On a VM: the attempt that made it, and a digest of what it asked for (launch.py)."""


def labels_of(resource: Resource) -> Tags:
    return dict(resource.get("labels") or {})


def network_tags_of(instance: Resource) -> list[str]:
    return list((instance.get("tags") or {}).get("items") or ())


def labelled(**wanted: str) -> str:
    """The filter for what carries all of these labels: `labelled(uid=…)`, with keys of our own."""
    keys = {"owner": KEY_OWNER, "cluster": KEY_CLUSTER, "uid": KEY_UID, "released": KEY_RELEASED}
    pairs = [f'(labels.{keys[name]} = "{LABEL_RULES.value(value)}")' for name, value in wanted.items()]
    return " AND ".join(pairs)


def owned(cluster: str) -> str:
    """The filter for what Hostler has made for a cluster."""
    return labelled(owner=OWNER, cluster=cluster)


def must_network_tags(spec: GcpProviderSpec, machine: Identity) -> list[str]:
    """The network tags that every VM of the machine carries. Raises DriverError of class invalid, as must_tags."""
    return sorted(network_tag(key) for key in must_tags(spec, machine) if LABEL_RULES.is_must(key))


def launch_network_tags(spec: GcpProviderSpec, machine: Identity) -> list[str]:
    """All network tags of a new VM. Raises DriverError of class invalid when there are more than Google takes."""
    tags = sorted({*must_network_tags(spec, machine), *spec.network_tags})
    if (over := len(tags) - NETWORK_TAGS_MOST) > 0:
        raise DriverError(
            ErrorClass.INVALID,
            f"{len(tags)} network tags, but Google accepts {NETWORK_TAGS_MOST}: remove {over} from tags",
        )
    return tags


def plan_network_tags(
    last: GcpProviderSpec, goal: GcpProviderSpec, machine: Identity, carried: list[str]
) -> TagPlan:  # fmt: skip
    """The changes of a VM's network tags. Raises DriverError of class invalid when there would be more than Google
    takes, those of others included."""
    before, wanted, actual = (dict.fromkeys(tags, "") for tags in (last.network_tags, goal.network_tags, carried))
    must = must_network_tags(goal, machine)
    try:
        return plan_tags(before, wanted, believed(before, wanted, actual), must, NETWORK_TAGS_MOST)
    except TooManyTags as e:
        raise DriverError(
            ErrorClass.INVALID, f"network tags: {e}; remove {e.count - e.limit} from tags, or from those of others"
        ) from None


def changed(plan: TagPlan, actual: Mapping[str, str]) -> Tags:
    """What a resource has after the plan: Google is told all of it."""
    return {k: v for k, v in {**actual, **plan.set}.items() if k not in plan.remove}
