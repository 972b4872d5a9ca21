"""Translates an Ignition config of version 2.x to 3.5.

What version 3 has no word for is refused, by name. Version 2 takes the last of several files with one path and merges
nothing; so only the last is kept, and of units with one name the last, with the earlier ones' drop-ins (upstream's
removeIgnDuplicateFilesUnitsUsers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planners.machine_config.ignition_schema import VERSION

_ROOT = "root"
"""The name that version 2 gives to the file system on which all nodes' files are."""
_SECTIONS = ("ignition", "storage", "systemd", "passwd", "networkd")


def translated(old: Mapping[str, Any]) -> dict[str, Any]:
    """The same as version 3.5. Raises ValueError with the field that has no translation."""
    if unknown := [k for k in old if k not in _SECTIONS]:
        raise ValueError(f"{unknown[0]}: no such field in Ignition 2")
    if (old.get("networkd") or {}).get("units"):
        raise ValueError("networkd.units: version 3 has none; write files below /etc/systemd/network instead")
    storage = _part(old, "storage")
    found = {
        "ignition": _ignition(_part(old, "ignition")),
        "passwd": _passwd(_part(old, "passwd")),
        "storage": {
            "files": [_file(f, n) for n, f in enumerate(_last(_rows(storage, "files"), "path"))],
            "directories": [_placed(d, f"storage.directories[{n}]") for n, d in _each(storage, "directories")],
            "links": [_placed(d, f"storage.links[{n}]") for n, d in _each(storage, "links")],
            "disks": _refused(storage, "disks"),
            "raid": _refused(storage, "raid"),
            "filesystems": _refused(storage, "filesystems"),
        },
        "systemd": {"units": _units(_rows(_part(old, "systemd"), "units"))},
    }
    return found


def _part(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: a table is needed")
    return value


def _rows(of: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = of.get(key) or []
    if not isinstance(rows, list) or not all(isinstance(r, Mapping) for r in rows):
        raise ValueError(f"{key}: a list of tables is needed")
    return rows


def _each(of: Mapping[str, Any], key: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    return enumerate(_last(_rows(of, key), "path"))


def _last(rows: list[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """The last of each key, where it stands."""
    last = {row.get(key): n for n, row in enumerate(rows)}
    return [row for n, row in enumerate(rows) if last[row.get(key)] == n]


def _refused(storage: Mapping[str, Any], key: str) -> list[Any]:
    if storage.get(key):
        raise ValueError(f"storage.{key}: it names disks otherwise than version 3; write this config as {VERSION}")
    return []


def _ignition(old: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(_part(old, "config"))
    if "append" in config:
        config["merge"] = config.pop("append")
    return {**old, "version": VERSION, "config": config}


def _placed(node: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Without the name of its file system, which must be the root."""
    if node.get("filesystem", _ROOT) != _ROOT:
        raise ValueError(f"{at}.filesystem: {node['filesystem']!r} is not supported; write {_ROOT}")
    return {k: v for k, v in node.items() if k != "filesystem"}


def _file(old: Mapping[str, Any], number: int) -> dict[str, Any]:
    file = _placed(old, f"storage.files[{number}]")
    contents = dict(_part(file, "contents"))
    contents["source"] = contents.get("source") or "data:,"  # an empty source is an empty file; in version 3, no change
    if file.pop("append", False):
        return {**{k: v for k, v in file.items() if k not in ("contents", "overwrite")}, "append": [contents]}
    return {"overwrite": True, **file, "contents": contents}


def _units(old: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for unit in reversed(old):
        drop_ins = _last(_rows(unit, "dropins"), "name")
        kept = found.setdefault(unit.get("name", ""), {**unit, "dropins": []})
        known = {d.get("name") for d in kept["dropins"]}
        kept["dropins"] = [*kept["dropins"], *(d for d in drop_ins if d.get("name") not in known)]
    return [_enabled(unit) for unit in reversed(found.values())]


def _enabled(unit: dict[str, Any]) -> dict[str, Any]:
    """`enable`, version 2.0's word, as `enabled`."""
    if "enable" in unit:
        enable = unit.pop("enable")
        unit.setdefault("enabled", enable)
    return unit


def _passwd(old: Mapping[str, Any]) -> dict[str, Any]:
    users: dict[str, dict[str, Any]] = {}
    for n, user in enumerate(_rows(old, "users")):
        if user.get("name") != "core":
            raise ValueError(f"passwd.users[{n}].name: {user.get('name')!r} is not supported; only core is")
        if user.get("create"):
            raise ValueError(f"passwd.users[{n}].create: version 3 has no such field; write its fields at the user")
        keys = [*users.get("core", {}).get("sshAuthorizedKeys", ()), *(user.get("sshAuthorizedKeys") or ())]
        users["core"] = {
            **users.get("core", {}),
            **{k: v for k, v in user.items() if k != "create"},
            "sshAuthorizedKeys": list(dict.fromkeys(keys)),
        }
    return {**old, "users": list(users.values())}
