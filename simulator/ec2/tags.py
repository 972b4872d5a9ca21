"""Tags of every resource, and how late reads see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from simulator.ec2.context import Context, Written
from simulator.ec2.errors import Ec2Error, unsupported
from simulator.ec2.identifiers import find_one, kind_of
from simulator.ec2.listing import describe
from simulator.ec2.wire import Params, Row

MAX_TAGS = 50
MAX_KEY, MAX_VALUE = 128, 256
LAUNCH_RESOURCES = ("instance", "volume", "network-interface")
"""What RunInstances makes and can tag."""


class Snapshot(BaseModel):
    """All tags of a resource from one write on."""

    written: Written
    tags: dict[str, str]


class Tags:
    """Tags by resource id. `exists` says whether calls see a resource: tags of hidden ones cannot be written."""

    def __init__(self, context: Context, exists: Callable[[str], Any]) -> None:
        self._context = context
        self._exists = exists
        self.history: dict[str, list[Snapshot]] = {}

    # ------------------------------------------------------------------------------------------------- store

    def of(self, resource_id: str) -> dict[str, str]:
        """The tags as they are, whatever reads see."""
        snapshots = self.history.get(resource_id)
        return snapshots[-1].tags if snapshots else {}

    def seen(self, resource_id: str) -> dict[str, str]:
        """The tags that describe calls and filters see."""
        for snapshot in reversed(self.history.get(resource_id, [])):
            if snapshot.written.seen(self._context.frame.lag.tags):
                return snapshot.tags
        return {}

    def rows(self, resource_id: str, seen: bool = True) -> list[Row]:
        tags = self.seen(resource_id) if seen else self.of(resource_id)
        return [{"Key": k, "Value": v} for k, v in tags.items()]

    def write(self, resource_id: str, tags: Mapping[str, str]) -> None:
        snapshots = self.history.setdefault(resource_id, [])
        # A snapshot that is older than one which any reader sees is of no use to anybody.
        while len(snapshots) > 1 and snapshots[1].written.seen(snapshots[1].written.lag):
            del snapshots[0]
        written = Written(at=time.time(), lag=self._context.frame.lag.tags)
        snapshots.append(Snapshot(written=written, tags=dict(tags)))

    def forget(self, resource_id: str) -> None:
        self.history.pop(resource_id, None)

    def merged(self, resource_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """The resource's tags with these added. Raises TagLimitExceeded; AWS's own do not count."""
        merged = {**self.of(resource_id), **tags}
        if sum(not key.lower().startswith("aws:") for key in merged) > MAX_TAGS:
            raise Ec2Error("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
        return merged

    # -------------------------------------------------------------------------------------------- operations

    def create_tags(self, params: Params) -> Row:
        resources = params["Resources"]
        for r in resources:
            find_one(kind_of(r), r, self._exists)
        tags = read_tags(params["Tags"])
        # All or nothing: every limit is checked before the first resource is written.
        merged = {r: self.merged(r, tags) for r in resources}
        for r, new in merged.items():
            self.write(r, new)
        return {}

    def delete_tags(self, params: Params) -> Row:
        """A tag with a value goes only if it has that value; no tags at all means every tag (EC2 API reference)."""
        for r in params["Resources"]:
            find_one(kind_of(r), r, self._exists)
        for r in params["Resources"]:
            unwanted = params.get("Tags") or [{"Key": k} for k in self.of(r)]
            gone = {t["Key"] for t in unwanted if "Value" not in t or self.of(r).get(t["Key"]) == t["Value"]}
            self.write(r, {k: v for k, v in self.of(r).items() if k not in gone})
        return {}

    def describe_tags(self, params: Params) -> Row:
        rows = [
            {"ResourceId": r, "ResourceType": kind_of(r).type, "Key": k, "Value": v}
            for r in self.history
            if self._exists(r) is not None
            for k, v in self.seen(r).items()
        ]
        fields = {"resource-id": "ResourceId", "resource-type": "ResourceType", "key": "Key", "value": "Value"}
        for f in params.get("Filters", []):
            if f.get("Name") not in fields:
                raise Ec2Error("InvalidParameterValue", f"The filter '{f.get('Name')}' is invalid")
        return describe("Tags", rows, params, fields, ("ResourceId", "Key"))


def read_tags(tags: Iterable[Row]) -> dict[str, str]:
    """Tags of a call, checked as EC2 does (EC2 user guide, "Tag restrictions")."""
    read: dict[str, str] = {}
    for tag in tags:
        key, value = tag.get("Key", ""), tag.get("Value", "")
        if not 1 <= len(key) <= MAX_KEY:
            raise Ec2Error("InvalidParameterValue", f"Tag key '{key}' must have from 1 to {MAX_KEY} characters")
        if len(value) > MAX_VALUE:
            raise Ec2Error("InvalidParameterValue", f"Tag value of '{key}' exceeds the maximum length of {MAX_VALUE}")
        if key.lower().startswith("aws:"):
            raise Ec2Error("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
        if key in read:
            raise Ec2Error("InvalidParameterValue", f"Duplicate tag key '{key}' specified.")
        read[key] = value
    if len(read) > MAX_TAGS:
        raise Ec2Error("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
    return read


def read_tag_specifications(params: Params) -> dict[str, dict[str, str]]:
    """TagSpecifications of a launch: tags by resource type."""
    read: dict[str, dict[str, str]] = {}
    for specification in params.get("TagSpecifications", []):
        resource = specification.get("ResourceType", "")
        if resource not in LAUNCH_RESOURCES:
            raise unsupported(f"TagSpecifications of resource type '{resource}'")
        if resource in read:
            raise Ec2Error("InvalidParameterValue", f"Tag specification resource type '{resource}' is given twice")
        read[resource] = read_tags(specification.get("Tags", []))
    return read
