"""Names of resources: their paths and addresses, what a name may be, and how a request refers to another resource."""

from __future__ import annotations

import re
import secrets
import time

from simulator.clouds.gce.errors import GceError, invalid

BASE = "https://www.googleapis.com/compute/v1/"
"""What the addresses in answers begin with, whatever address was called."""
NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
LABEL_KEY = re.compile(r"[\w-]{1,63}")
LABEL_VALUE = re.compile(r"[\w-]{0,63}")
MAX_LABELS = 64
"""The most labels of one resource (Compute Engine documentation, *Labels*)."""
MAX_TAGS = 64
METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_METADATA_VALUE = 256 * 1024
MAX_METADATA = 512 * 1024
"""Bytes of one instance's keys and values (Compute Engine documentation, *VM metadata*)."""

_PREFIX = re.compile(r"https?://(?:www\.googleapis\.com|compute\.googleapis\.com|127\.0\.0\.1(?::\d+)?)/compute/v1/")


def link(path: str) -> str:
    return BASE + path


def new_id() -> str:
    """A number that no other resource has, as Google's: 64 bits, in decimal digits."""
    return str((time.time_ns() // 1_000_000) << 20 | secrets.randbits(20))


def parent(path: str) -> str:
    """The path without its last two parts: `projects/p/zones/z` of an instance."""
    return path.rsplit("/", 2)[0]


def last(path: str) -> str:
    return path.rpartition("/")[2]


def timestamp(at: float) -> str:
    """RFC 3339 with milliseconds and an offset, as Compute Engine writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}-00:00"


def resolve(reference: str, project: str, scope: str, field: str) -> str:
    """The path that a reference means: a full address, a path from `projects/`, or one within the project. A bare name
    is one of `scope`, such as `zones/z/machineTypes`, where the field takes that. Raises invalid."""
    path = _PREFIX.sub("", reference, count=1)
    if "/" not in path and scope:
        path = f"{scope}/{path}"
    if not path.startswith("projects/"):
        path = f"projects/{project}/{path.lstrip('/')}"
    if not re.fullmatch(r"projects/[^/]+/(?:global|zones/[^/]+|regions/[^/]+)/[a-zA-Z]+/[^/]+(?:/[^/]+)?", path):
        raise invalid(field, reference, "The URL is malformed.")
    return path


def check_name(name: str | None, field: str = "resource.name") -> str:
    if not name:
        raise GceError("required", f"Required field '{field}' not specified")
    if not re.fullmatch(NAME, name):
        raise invalid(field, name, f"Must be a match of regex '{NAME}'")
    return name


def check_labels(labels: dict[str, str], field: str) -> dict[str, str]:
    """Raises invalid. Keys and values are lower-case letters of any language, digits, - and _; a key begins with a
    letter."""
    if len(labels) > MAX_LABELS:
        raise invalid(field, f"{len(labels)} labels", f"A resource may have at most {MAX_LABELS} labels.")
    for key, value in labels.items():
        if not LABEL_KEY.fullmatch(key) or key != key.lower() or not key[0].isalpha():
            raise invalid(field, key, "Label keys must match the regex '[a-z][a-z0-9_-]{0,62}' (and other languages').")
        if not LABEL_VALUE.fullmatch(value) or value != value.lower():
            raise invalid(field, value, "Label values must match the regex '[a-z0-9_-]{0,63}' (and other languages').")
    return labels


def check_tags(tags: list[str], field: str = "resource.tags.items") -> list[str]:
    if len(tags) > MAX_TAGS:
        raise invalid(field, f"{len(tags)} tags", f"An instance may have at most {MAX_TAGS} tags.")
    if len(set(tags)) < len(tags):
        raise invalid(field, ", ".join(tags), "Duplicate tags are not allowed.")
    for n, tag in enumerate(tags):
        check_name(tag, f"{field}[{n}]")
    return tags


def check_metadata(items: list[dict[str, str]], field: str = "resource.metadata") -> list[dict[str, str]]:
    keys = [item["key"] for item in items]
    for key, value in ((item["key"], item.get("value", "")) for item in items):
        if not METADATA_KEY.fullmatch(key):
            raise invalid(f"{field}.items.key", key, "Must be a match of regex '[a-zA-Z0-9-_]{1,128}'")
        if keys.count(key) > 1:
            raise invalid(field, key, f"Metadata has duplicate key '{key}'.")
        if len(value.encode()) > MAX_METADATA_VALUE:
            raise invalid(f"{field}.items.value", key, f"Metadata values may have at most {MAX_METADATA_VALUE} bytes.")
    if sum(len(i["key"].encode()) + len(i.get("value", "").encode()) for i in items) > MAX_METADATA:
        raise invalid(field, "(too long)", f"Metadata may have at most {MAX_METADATA} bytes.")
    return items
