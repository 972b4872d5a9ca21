"""What an Ignition config of version 3.5 holds, and by what the rows of its lists are told apart.

One table serves checking (`ignition.py`) and merging (`ignition_merge.py`). Source: the types of coreos/ignition's
config/v3_5, whose methods Key, IgnoreDuplicates and MergedKeys say what is merged and what is appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

VERSION = "3.5.0"
"""The version that rendered configs have."""


@dataclass(frozen=True)
class TextList:
    """A list of texts. Each stands there once, unless `appended`, where the later ones just follow."""

    appended: bool = False


@dataclass(frozen=True)
class FieldTable:
    """Named fields, which a later config overrides one by one."""

    fields: Mapping[str, Shape]
    needs: tuple[str, ...] = ()
    whole_with: str = ""
    """A later table that has this field replaces an earlier one wholly: content with a new source has nothing of the
    old content's compression, hash or headers (upstream's OCPBUGS-55327 was gzip, which stuck to plain content)."""
    one_name: tuple[tuple[str, ...], ...] = ()
    """Lists whose rows have their keys in common: a later file takes the place of an earlier link with its path."""


@dataclass(frozen=True)
class Rows:
    """A list of tables, of which two with one key are merged, unless `appended`."""

    row: FieldTable
    keys: tuple[str, ...] = ()
    """The field that is the key, or the first of several that has a value."""
    appended: bool = field(default=False)

    def key(self, row: Mapping[str, Any]) -> Any:
        return next((row[k] for k in self.keys if row.get(k)), None)


Shape: TypeAlias = type[str] | type[int] | type[bool] | TextList | FieldTable | Rows


def _table(words: str, numbers: str = "", flags: str = "", needs: str = "", **others: Shape) -> FieldTable:
    """A table of texts, whole numbers and flags, by their names with blanks between, and other fields."""
    fields: dict[str, Shape] = dict.fromkeys(words.split(), str)
    fields |= dict.fromkeys(numbers.split(), int) | dict.fromkeys(flags.split(), bool) | others
    return FieldTable(fields, tuple(needs.split()))


_HEADERS = Rows(_table("name value", needs="name"), ("name",))
_RESOURCE = FieldTable(
    {"source": str, "compression": str, "httpHeaders": _HEADERS, "verification": _table("hash")},
    whole_with="source",
)
_WHO = _table("name", "id")
_NODE: dict[str, Shape] = {"path": str, "overwrite": bool, "user": _WHO, "group": _WHO}
_FILE = FieldTable(_NODE | {"mode": int, "contents": _RESOURCE, "append": Rows(_RESOURCE, appended=True)}, ("path",))
_DIRECTORY = FieldTable(_NODE | {"mode": int}, ("path",))
_LINK = FieldTable(_NODE | {"target": str, "hard": bool}, ("path",))
_PARTITION = _table("label guid typeGuid", "number sizeMiB startMiB", "resize shouldExist wipePartitionEntry")
_DISK = _table("device", flags="wipeTable", needs="device", partitions=Rows(_PARTITION, ("number", "label")))
_RAID = _table("name level", "spares", needs="name", devices=TextList(), options=TextList(appended=True))
_FILESYSTEM = _table(
    "device format label path uuid",
    flags="wipeFilesystem",
    needs="device",
    mountOptions=TextList(appended=True),
    options=TextList(appended=True),
)
_CLEVIS = _table(
    "",
    "threshold",
    "tpm2",
    custom=_table("config pin", flags="needsNetwork"),
    tang=Rows(_table("url thumbprint advertisement"), ("url",)),
)
_LUKS = _table(
    "name device label uuid",
    flags="discard wipeVolume",
    needs="name",
    cex=_table("", flags="enabled"),
    clevis=_CLEVIS,
    keyFile=_RESOURCE,
    openOptions=TextList(),
    options=TextList(appended=True),
)
_STORAGE = FieldTable(
    {
        "directories": Rows(_DIRECTORY, ("path",)),
        "disks": Rows(_DISK, ("device",)),
        "files": Rows(_FILE, ("path",)),
        "filesystems": Rows(_FILESYSTEM, ("device",)),
        "links": Rows(_LINK, ("path",)),
        "luks": Rows(_LUKS, ("name",)),
        "raid": Rows(_RAID, ("name",)),
    },
    one_name=(("directories", "files", "links"),),
)
_USER = _table(
    "name gecos homeDir passwordHash primaryGroup shell",
    "uid",
    "noCreateHome noLogInit noUserGroup shouldExist system",
    needs="name",
    groups=TextList(),
    sshAuthorizedKeys=TextList(),
)
_GROUP = _table("name passwordHash", "gid", "shouldExist system", needs="name")
_UNIT = _table(
    "name contents",
    flags="enabled mask",
    needs="name",
    dropins=Rows(_table("name contents", needs="name"), ("name",)),
)
_IGNITION = _table(
    "version",
    needs="version",
    config=FieldTable({"merge": Rows(_RESOURCE, appended=True), "replace": _RESOURCE}),
    proxy=_table("httpProxy httpsProxy", noProxy=TextList(appended=True)),
    security=FieldTable({"tls": FieldTable({"certificateAuthorities": Rows(_RESOURCE, ("source",))})}),
    timeouts=_table("", "httpResponseHeaders httpTotal"),
)
CONFIG = FieldTable(
    {
        "ignition": _IGNITION,
        "kernelArguments": FieldTable(
            {"shouldExist": TextList(), "shouldNotExist": TextList()}, one_name=(("shouldExist", "shouldNotExist"),)
        ),
        "passwd": FieldTable({"groups": Rows(_GROUP, ("name",)), "users": Rows(_USER, ("name",))}),
        "storage": _STORAGE,
        "systemd": FieldTable({"units": Rows(_UNIT, ("name",))}),
    },
    ("ignition",),
)
