"""Tags of every resource, and how late reads see them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from simulator.clouds.ec2.context import Context, Written
from simulator.clouds.ec2.errors import Ec2Error, unsupported
from simulator.clouds.ec2.identifiers import find_one, kind_of
from simulator.clouds.ec2.listing import describe
from simulator.clouds.ec2.wire import Params, Row


class TaggedResource(Protocol):
    id: str


T = TypeVar("T", bound=TaggedResource)

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
        self._carriers: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Resources that carry a tag, or did: what reads see of it is in their history."""

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
        # A snapshot that is older than one that every reader sees is of no use.
        while len(snapshots) > 1 and snapshots[1].written.seen(snapshots[1].written.lag):
            del snapshots[0]
        written = Written(at=time.time(), lag=self._context.frame.lag.tags)
        snapshots.append(Snapshot(written=written, tags=dict(tags)))
        self._index(resource_id, tags)

    def _index(self, resource_id: str, tags: Mapping[str, str]) -> None:
        for tag in tags.items():
            self._carriers[tag].add(resource_id)

    def forget(self, resource_id: str) -> None:
        for snapshot in self.history.pop(resource_id, []):
            for tag in snapshot.tags.items():
                self._carriers[tag].discard(resource_id)

    def restore(self, history: dict[str, list[Snapshot]]) -> None:
        self.history = history
        self._carriers.clear()
        for resource_id, snapshots in history.items():
            for snapshot in snapshots:
                self._index(resource_id, snapshot.tags)

    def candidates(self, things: Iterable[T], params: Params) -> list[T]:
        """Resources that may pass a call's filters for one tag: looked up, not checked one by one."""
        kept = list(things)
        for f in params.get("Filters", []):
            name, values = f.get("Name", ""), f.get("Values", [])
            if name.startswith("tag:") and len(values) == 1 and not set(values[0]) & set("*?\\"):
                carriers = self._carriers.get((name[4:], values[0]), set())
                kept = [t for t in kept if t.id in carriers]
        return kept

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
