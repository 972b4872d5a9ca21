"""Tags as Azure writes them; the rules, which are the same for every cloud, are in drivers/tags.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drivers.azure.calls import RESOURCES_API, Arm
from resources.clouds import Tags
from resources.clouds.azure.spec import TAG_RULES
from resources.names import TAG_CLUSTER, TAG_INSTALLATION, TAG_MACHINE, TAG_OWNER, TAG_UID

OWNER_KEY, CLUSTER_KEY, MACHINE_KEY, UID_KEY, INSTALLATION_KEY = map(
    TAG_RULES.key, (TAG_OWNER, TAG_CLUSTER, TAG_MACHINE, TAG_UID, TAG_INSTALLATION)
)


def tags_of(resource: Mapping[str, Any]) -> Tags:
    return {str(k): str(v) for k, v in (resource.get("tags") or {}).items()}


def spelled(carried: Tags, known: Iterable[str]) -> Tags:
    """The tags with the names that we know in our own spelling: to Azure `Cost` and `cost` are one name, and it keeps
    the spelling that came first."""
    ours = {key.lower(): key for key in known}
    return {ours.get(key.lower(), key): value for key, value in carried.items()}


def merge(arm: Arm, resource_id: str, tags: Tags) -> None:
    """Sets these tags and leaves all others. Raises DriverError."""
    _patch(arm, resource_id, "Merge", tags)


def remove(arm: Arm, resource_id: str, tags: Tags) -> None:
    """Removes these tags, where they still have these values. Raises DriverError."""
    _patch(arm, resource_id, "Delete", tags)


def _patch(arm: Arm, resource_id: str, operation: str, tags: Tags) -> None:
    body = {"operation": operation, "properties": {"tags": tags}}
    path = f"{resource_id}/providers/Microsoft.Resources/tags/default"
    arm.rest("Tags_UpdateAtScope", "PATCH", path, RESOURCES_API, body)
