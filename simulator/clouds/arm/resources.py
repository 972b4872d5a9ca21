"""What all resources have in common: id, tags, state, etag; and how reads lag behind writes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

from simulator.clouds.arm.context import Context, Written
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.identifiers import Id, key_of, parse
from simulator.clouds.arm.wire import ArmCall, Row

Provisioning = Literal["Creating", "Updating", "Deleting", "Succeeded", "Failed"]

MAX_TAGS = 50
MAX_TAG_NAME, MAX_TAG_VALUE = 512, 256
RESERVED = "<>%&\\?/"
"""Characters that no tag's name may have; values may ("Use tags to organize your Azure resources")."""
RESERVED_PREFIXES = ("microsoft", "azure", "windows")


class ArmResource(BaseModel):
    id: str
    """As it was spelt when it was made."""
    created: Written
    location: str
    tags: dict[str, str] = {}
    old_tags: dict[str, str] = {}
    """What reads see until `tagged` is seen."""
    tagged: Written = Written(at=0)
    zones: list[str] = []
    provisioning: Provisioning = "Succeeded"
    etag: str = ""

    @property
    def key(self) -> str:
        return key_of(self.id)

    @property
    def parts(self) -> Id:
        found = parse(self.id)
        assert found is not None
        return found

    @property
    def name(self) -> str:
        return self.id.rsplit("/", 1)[1]

    def write_tags(self, tags: Mapping[str, str], written: Written) -> None:
        self.old_tags, self.tags, self.tagged = self.tags, dict(tags), written

    def touch(self) -> None:
        self.etag = f'W/"{uuid.uuid4()}"'


R = TypeVar("R", bound=ArmResource)


class ArmStore(Generic[R]):
    """All resources of one type, by their keys."""

    def __init__(self, context: Context, kind: str) -> None:
        self._context = context
        self.kind = kind
        self.records: dict[str, R] = {}

    def lookup(self, key: str) -> R | None:
        """The resource if calls see it already."""
        found = self.records.get(key)
        return found if found is not None and self._context.sees(found.created) else None

    def find(self, of: Id) -> R:
        """The resource that a call names. Raises ResourceNotFound."""
        found = self.lookup(of.key)
        if found is None:
            raise ArmError(
                "ResourceNotFound",
                f"The Resource '{self.kind}/{of.name}' under resource group '{of.group}' was not found. For more "
                "details "
                "please go to https://aka.ms/ARMResourceNotFoundFix",
            )
        return found

    def listed(self, call: ArmCall) -> list[R]:
        """Those of the call's group, or of its subscription, that calls see."""
        head = f"/subscriptions/{call.subscription}/".lower()
        if call.group:
            head += f"resourcegroups/{call.group}/".lower()
        return [r for k, r in self.records.items() if k.startswith(head) and self._context.sees(r.created)]

    def head(self, resource: R, written: bool = False) -> Row:
        """What every resource answers; whoever has just `written` it sees its tags as they are."""
        row: Row = {
            "id": resource.id,
            "name": resource.name,
            "type": self.kind,
            "location": resource.location,
            "tags": dict(resource.tags if written else self.seen_tags(resource)),
        }
        if resource.zones:
            row["zones"] = list(resource.zones)
        return row

    def seen_tags(self, resource: R) -> dict[str, str]:
        seen = resource.tagged.seen(self._context.frame.lag.tags)
        return resource.tags if seen else resource.old_tags


def check_conditions(call: ArmCall, existing: ArmResource | None) -> None:
    """If-Match and If-None-Match. Raises PreconditionFailed."""
    wanted, unwanted = call.headers.get("If-Match"), call.headers.get("If-None-Match")
    if unwanted == "*" and existing is not None:
        raise ArmError("PreconditionFailed", f"The resource {existing.id} exists already (If-None-Match: *).")
    if wanted and (existing is None or wanted not in ("*", existing.etag)):
        has = "does not exist" if existing is None else f"has {existing.etag}"
        raise ArmError(
            "PreconditionFailed", f"The etag {wanted} of the If-Match header does not match: the resource {has}."
        )


def check_location(call: ArmCall, context: Context, existing: ArmResource | None) -> str:
    location = str(call.body.get("location") or "")
    if not location:
        if existing is not None:
            return existing.location
        raise ArmError("LocationRequired", "The location property is required for this definition.")
    location = location.replace(" ", "").lower()
    if location != context.world.location:
        raise ArmError(
            "LocationNotAvailableForResourceType",
            f"The provided location '{location}' is not available for this resource type. List of available "
            "regions for "
            f"the resource type is '{context.world.location}'.",
        )
    return location


def read_tags(body: Row) -> dict[str, str]:
    """The tags of a body, checked as Azure does."""
    tags = body.get("tags") or {}
    for name, value in tags.items():
        if not isinstance(value, str):
            raise ArmError("InvalidRequestContent", f"The value of the tag '{name}' is not a string.")
        _check_tag(name, value)
    lowered = [name.lower() for name in tags]
    if len(set(lowered)) < len(lowered):
        raise ArmError("InvalidRequestContent", "Tag names are not case-sensitive, and one is given twice.")
    if len(tags) > MAX_TAGS:
        raise ArmError(
            "TooManyTags", f"The resource has {len(tags)} tags. The maximum number of tags allowed is {MAX_TAGS}."
        )
    return dict(tags)


def _check_tag(name: str, value: str) -> None:
    if not name:
        raise ArmError("InvalidTagName", "Tag names cannot be null, empty or consist only of white-space.")
    if any(c in RESERVED or ord(c) < 32 for c in name):
        raise ArmError(
            "InvalidTagNameCharacters",
            f"The tag names '{name}' have reserved characters '{','.join(RESERVED)}' or control characters.",
        )
    if name.lower().startswith(RESERVED_PREFIXES):
        raise ArmError(
            "ReservedTagNamePrefix",
            f"Following reserved prefixes are not allowed in the tag name: '{','.join(RESERVED_PREFIXES)}': {name}.",
        )
    if len(name) > MAX_TAG_NAME:
        raise ArmError(
            "InvalidTagNameLength",
            f"Tag name too large. Following tag name '{name[:64]}…' exceeded the maximum length. Maximum allowed "
            "length "
            f"for tag name - '{MAX_TAG_NAME}' characters.",
        )
    if len(value) > MAX_TAG_VALUE:
        raise ArmError(
            "InvalidTagValueLength",
            f"Tag value too large. Following tag value '{value[:64]}…' exceeded the maximum length. Maximum allowed "
            f"length for tag value - '{MAX_TAG_VALUE}' characters.",
        )


def without(row: Row, *names: str) -> Row:
    return {k: v for k, v in row.items() if k not in names}


def keys_of(ids: Iterable[str]) -> set[str]:
    return {key_of(i) for i in ids}
