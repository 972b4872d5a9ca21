"""Reads an Ignition config, of whatever version it is, as one of version 3.5, and says what is wrong with it.

Versions 3.0 to 3.5 are read as they are: 3.5 has all that the earlier ones had. Versions 2.x are translated
(`ignition2.py`). A config may also stand there as text, compressed by gzip, or in base64. Unlike Ignition, which warns
on the machine's console, this refuses a field that it does not know: `contens` would make an empty file on every node.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from planners.machine_config.ignition2 import translated
from planners.machine_config.ignition_schema import CONFIG, VERSION, FieldTable, Rows, Shape, TextList
from resources.spelling import did_you_mean

VERSIONS = tuple(f"3.{minor}.0" for minor in range(6))
OLD_VERSIONS = tuple(f"2.{minor}.0" for minor in range(5))
EMPTY: dict[str, Any] = {"ignition": {"version": VERSION}}
MODE_MOST = 0o777
"""The special bits (setuid, setgid, sticky) are refused: Ignition took them and silently set others (BZ2038240)."""
RAW_MOST = 4 << 20
"""The most bytes of a compressed config, once it is expanded."""
FAULTS_MOST = 5
_UNIT = re.compile(r".+\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)\Z")
_SCHEME = re.compile(r"(data|https?|s3|gs|tftp|arn):")
_GZIP = b"\x1f\x8b"


class IgnitionError(ValueError):
    """The config cannot be read; the message names each field that is wrong."""


def read(given: Any) -> dict[str, Any]:
    """The config as version 3.5, without what is null or empty. None is the empty config. Raises IgnitionError."""
    config = parsed(given) if isinstance(given, str | bytes) else given
    if not config:
        return json.loads(json.dumps(EMPTY))  # type: ignore[no-any-return]
    if not isinstance(config, Mapping):
        raise IgnitionError(f"an Ignition config is a table, and this is {_kind_of(config)}")
    version = _version(config)
    if version in OLD_VERSIONS:
        try:
            config = translated(config)
        except ValueError as e:
            raise IgnitionError(f"{e} (Ignition {version} is translated to {VERSION})") from None
    elif version not in VERSIONS:
        raise IgnitionError(
            f"ignition.version: {version!r} is not supported; write one of {', '.join((*OLD_VERSIONS, *VERSIONS))}"
        )
    else:
        config = {**config, "ignition": {**config["ignition"], "version": VERSION}}
    faults = [*_shape(CONFIG, config, "")]
    clean: dict[str, Any] = cleaned(config)
    if not faults:
        faults = [*_rules(clean)]
    if faults:
        more = [f"and {len(faults) - FAULTS_MOST} more"] if len(faults) > FAULTS_MOST else []
        raise IgnitionError("; ".join([*faults[:FAULTS_MOST], *more]))
    return clean


def parsed(raw: str | bytes) -> Any:
    """What a config says that stands there as text: JSON, compressed JSON, or either in base64 (M-X11)."""
    data = raw.encode() if isinstance(raw, str) else raw
    if not data.lstrip().startswith((b"{", _GZIP)):
        try:
            data = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise IgnitionError("it is neither JSON, nor gzip, nor one of them in base64") from None
    if data.startswith(_GZIP):
        expander = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            data = expander.decompress(data, RAW_MOST)
        except zlib.error as e:
            raise IgnitionError(f"it cannot be decompressed: {e}") from None
        if expander.unconsumed_tail:
            raise IgnitionError(f"decompressed it has more than {RAW_MOST} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise IgnitionError("it is not JSON") from None


def _version(config: Mapping[str, Any]) -> str:
    ignition = config.get("ignition")
    version = ignition.get("version") if isinstance(ignition, Mapping) else None
    if not isinstance(version, str) or not version:
        raise IgnitionError(f"ignition.version is missing; write `ignition: {{version: {VERSION}}}`")
    return version


def cleaned(value: Any) -> Any:
    """The value without what is null, and without empty tables and lists: they ask for nothing."""
    if isinstance(value, Mapping):
        kept = {k: cleaned(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v != {} and v != []}
    return [cleaned(v) for v in value] if isinstance(value, list | tuple) else value


# -- the shape --------------------------------------------------------------------------------------------------------


def _shape(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """What has another type than its field, is unknown, or is missing."""
    if value is None:
        return
    if isinstance(shape, FieldTable):
        yield from _table(shape, value, path)
    elif isinstance(shape, Rows | TextList):
        if not isinstance(value, list | tuple):
            yield f"{path}: a list is needed, and this is {_kind_of(value)}"
            return
        for n, item in enumerate(value):
            yield from _shape(shape.row if isinstance(shape, Rows) else str, _row(item), f"{path}[{n}]")
    elif not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        yield f"{path}: {_WORDS[shape]} is needed, and this is {_kind_of(value)}"


def _table(shape: FieldTable, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path}: a table is needed, and this is {_kind_of(value)}"
        return
    for key, below in value.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in shape.fields:
            yield f"{at}: no such field in Ignition {VERSION}{did_you_mean(str(key), shape.fields)}"
        else:
            yield from _shape(shape.fields[key], below, at)
    for key in shape.needs:
        if value.get(key) in (None, ""):
            yield f"{path}.{key} is missing".lstrip(".")


def _row(item: Any) -> Any:
    return item if item is not None else False  # null in a list is a slip, not an absent field


_WORDS: dict[Any, str] = {str: "text", int: "a whole number", bool: "true or false"}


def _kind_of(value: Any) -> str:
    for kind, words in ((bool, "true or false"), (str, "text"), (int, "a number"), (float, "a number with a fraction")):
        if isinstance(value, kind):
            return words
    return "a table" if isinstance(value, Mapping) else "a list" if isinstance(value, list | tuple) else "nothing"


# -- the rules --------------------------------------------------------------------------------------------------------


def _rules(config: Mapping[str, Any]) -> Iterator[str]:
    """What has the right shape, and cannot be meant."""
    storage = config.get("storage", {})
    seen: dict[str, str] = {}
    for kind in ("directories", "files", "links"):
        for n, node in enumerate(storage.get(kind, ())):
            at = f"storage.{kind}[{n}]"
            yield from _node(node, at)
            if (other := seen.setdefault(node["path"], at)) != at:
                yield f"{at}.path: {node['path']} is already given at {other}; write it once"
    yield from _twice(CONFIG, config, "")
    for n, unit in enumerate(config.get("systemd", {}).get("units", ())):
        at = f"systemd.units[{n}]"
        if not _UNIT.match(unit["name"]) or "/" in unit["name"]:
            yield f"{at}.name: {unit['name']!r} is no unit's name; write it like kubelet.service"
        for m, dropin in enumerate(unit.get("dropins", ())):
            if not dropin["name"].endswith(".conf") or "/" in dropin["name"]:
                yield f"{at}.dropins[{m}].name: {dropin['name']!r} is no drop-in's name; write it like 10-my.conf"


def _node(node: Mapping[str, Any], at: str) -> Iterator[str]:
    path, mode, contents = node["path"], node.get("mode", 0), node.get("contents", {})
    if not path.startswith("/") or path == "/" or "//" in path or path.endswith("/") or "/../" in f"{path}/":
        yield f"{at}.path: {path!r} is not an absolute path without `//`, `..` and a slash at its end"
    if not 0 <= mode <= MODE_MOST:
        yield (
            f"{at}.mode: {mode} (octal {mode:04o}) of {path} is not between 0 and {MODE_MOST} (octal 0777); special "
            "bits are not supported"
        )
    is_file = at.startswith("storage.files[")
    if is_file and node.get("overwrite") and "append" not in node and "source" not in contents:
        yield f"{at}.overwrite: {path} is to be overwritten, and has no contents.source"
    for n, resource in enumerate([contents, *node.get("append", ())]):
        yield from _resource(resource, f"{at}.contents" if n == 0 else f"{at}.append[{n - 1}]")


def _resource(resource: Mapping[str, Any], at: str) -> Iterator[str]:
    source, compression = resource.get("source"), resource.get("compression", "")
    if compression not in ("", "gzip"):
        yield f"{at}.compression: {compression!r} is not supported; write gzip, or leave it out"
    if source and not _SCHEME.match(source):
        yield f"{at}.source: it is no URL; write one, such as data:,hello"
    if source and source.startswith("data:"):
        try:
            content_of(resource)
        except IgnitionError as e:
            yield f"{at}.source: {e}"


def _twice(shape: FieldTable, value: Mapping[str, Any], path: str) -> Iterator[str]:
    """Rows of one list with one key, of which Ignition would take neither."""
    for name, below in shape.fields.items():
        at = f"{path}.{name}" if path else name
        if isinstance(below, FieldTable):
            yield from _twice(below, value.get(name, {}), at)
        elif isinstance(below, Rows) and not below.appended and name not in ("directories", "files", "links"):
            seen: dict[Any, int] = {}
            for n, row in enumerate(value.get(name, ())):
                key = below.key(row)
                if key is not None and seen.setdefault(key, n) != n:
                    yield f"{at}[{n}]: {key} is already given at {at}[{seen[key]}]; write it once"
                yield from _twice(below.row, row, f"{at}[{n}]")


# -- contents ---------------------------------------------------------------------------------------------------------


def content_of(resource: Mapping[str, Any]) -> bytes | None:
    """The bytes of a file's contents; None where they stand elsewhere (http). Raises IgnitionError."""
    source = resource.get("source")
    if not source:
        return b""
    if not source.startswith("data:"):
        return None
    head, comma, body = source.removeprefix("data:").partition(",")
    if not comma:
        raise IgnitionError("a data URL has a comma before its data, as in data:,hello")
    data = unquote_to_bytes(body)
    if head.endswith(";base64"):
        try:
            data = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise IgnitionError("its data are not base64, as its head says") from None
    if resource.get("compression") == "gzip":
        return _expanded(data)
    return data


def _expanded(data: bytes) -> bytes:
    expander = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = expander.decompress(data, RAW_MOST)
    except zlib.error as e:
        raise IgnitionError(f"its data cannot be decompressed: {e}") from None
    if expander.unconsumed_tail:
        raise IgnitionError(f"its data, decompressed, have more than {RAW_MOST} bytes")
    return found


def file_of(config: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """The file with a path."""
    return next((f for f in config.get("storage", {}).get("files", ()) if f["path"] == path), None)
