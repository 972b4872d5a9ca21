"""Changes of a rendered config that no daemon can bring to a machine that runs: only a new machine can have them.

Source: upstream's IsRenderedConfigReconcilable (pkg/controller/common/reconcile.go). LUKS may change, a link may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planners.machine_config.ignition import IgnitionError, read
from planners.machine_config.objects import Obj, name_of, spec_of

CORE = "core"
FORCE_FILE = "/run/machine-config-daemon-force"
"""What a person makes on a node so that its daemon skips its checks; a config that has it would skip them for ever."""
_MAY_CHANGE = ("sshAuthorizedKeys", "passwordHash")
_WHOLE = (
    "kernelArguments",
    "passwd.groups",
    "storage.disks",
    "storage.filesystems",
    "storage.raid",
    "storage.directories",
)


def irreconcilable(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields of the spec that a running machine cannot follow from one rendered spec to the other, with words."""
    found = []
    if bool(old.get("fips")) != bool(new.get("fips")):
        found.append(("fips", "FIPS mode is chosen when a machine is installed"))
    try:
        before, after = read(old.get("config")), read(new.get("config"))
    except IgnitionError as e:
        return [*found, ("config", f"one of the two cannot be read: {e}")]
    for field in _WHOLE:
        if _at(before, field) != _at(after, field):
            found.append((field, "it is set up when a machine is installed"))
    found += _users(_by_name(_at(before, "passwd.users")), _by_name(_at(after, "passwd.users")))
    links = [link["path"] for link in _at(after, "storage.links") if link not in _at(before, "storage.links")]
    if links:
        found.append(("storage.links", f"links are not made on a machine that runs ({links[0]})"))
    for file in _at(after, "storage.files"):
        if file.get("append"):
            found.append(("storage.files", f"nothing is appended on a machine that runs ({file['path']})"))
        if file["path"] == FORCE_FILE:
            found.append(("storage.files", f"{FORCE_FILE} is a person's, on one machine"))
    return found


def _users(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, str]]:
    if others := [n for n in {**old, **new} if n != CORE and old.get(n) != new.get(n)]:
        return [("passwd.users", f"only {CORE} can be changed, not {others[0]}")]
    if CORE not in new:  # a config without users leaves them as they are (M-I07)
        return []
    before, after = old.get(CORE, {}), new[CORE]
    fields = [f for f in {**before, **after} if f not in (*_MAY_CHANGE, "name") and before.get(f) != after.get(f)]
    if fields:
        return [("passwd.users", f"of {CORE} only {' and '.join(_MAY_CHANGE)} can be changed, not {fields[0]}")]
    if before.get("sshAuthorizedKeys") and not after.get("sshAuthorizedKeys"):
        return [("passwd.users", f"{CORE} would have no SSH key any more")]
    return []


def _by_name(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {row["name"]: row for row in rows}


def _at(config: Mapping[str, Any], path: str) -> Any:
    found: Any = config
    for part in path.split("."):
        found = found.get(part) or {}
    return found or []


def guilty(field: str, configs: Iterable[Obj]) -> str:
    """The last of the merged MachineConfigs that says anything in a field of the spec; "" if none does."""
    found = ""
    for config in configs:
        try:
            said = spec_of(config).get("fips") if field == "fips" else _at(read(spec_of(config).get("config")), field)
        except IgnitionError:
            continue
        found = name_of(config) if said else found
    return found
