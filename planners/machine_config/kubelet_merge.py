"""Merges a KubeletConfig's fields into a kubelet.conf, and makes the MachineConfig's files of it.

The rules, which docs/machine-configs.md tells people (the seed merges by mergo, whose zero values are silent):

- A field that is written counts, whatever its value: 0, false, "" and an empty list override. Null is not written.
- Tables are merged key by key: `evictionHard: {memory.available: 500Mi}` leaves the other signals as they are. Lists
  are replaced as a whole.
- A field that is not written any more has its former value again: every merge begins from what others say.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml

from planners.machine_config.ignition import IgnitionError, content_of, file_of
from planners.machine_config.ignition_schema import VERSION
from planners.machine_config.templates import data_url
from resources.documents import DocumentError, documents, reads_as_text

KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
SIZING_ENV = "/etc/node-sizing-enabled.env"
LOGGING = "/etc/systemd/system/kubelet.service.d/20-logging.conf"
_MODE = 0o644
_TAG = "tag:yaml.org,2002"
_SYSTEM = "system-reserved"


class KubeletError(ValueError):
    """A kubelet.conf cannot be made; the message says why."""


def read_conf(ignition: Mapping[str, Any]) -> dict[str, Any] | None:
    """The kubelet.conf that an Ignition config holds; None where it holds none. Raises KubeletError."""
    file = file_of(ignition, KUBELET_CONF)
    if file is None:
        return None
    try:
        data = content_of(file.get("contents", {}))
    except IgnitionError as e:
        raise KubeletError(f"{KUBELET_CONF} cannot be read: {e}") from None
    return copy.deepcopy(_parsed(data or b""))


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> dict[str, Any]:
    """Read once: all pools of a cluster usually have the same, and YAML takes its time."""
    try:
        found = documents(data.decode())
    except (DocumentError, UnicodeDecodeError) as e:
        raise KubeletError(f"{KUBELET_CONF} cannot be read: {e}") from None
    if len(found) != 1 or not isinstance(found[0], dict):
        raise KubeletError(f"{KUBELET_CONF} is not one table of fields that stands in the config itself")
    return found[0]


def merged(base: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The kubelet.conf with a KubeletConfig's fields. Raises KubeletError where the two exclude each other."""
    conf = _over(base, wanted)
    enforced = conf.get("enforceNodeAllocatable")
    if wanted.get("reservedSystemCPUs"):  # a kubelet takes no cgroup beside it
        conf["systemReservedCgroup"] = ""
        if isinstance(enforced, list):
            conf["enforceNodeAllocatable"] = [e for e in enforced if e != _SYSTEM]
    elif _SYSTEM not in wanted.get("enforceNodeAllocatable", [_SYSTEM]) and "systemReservedCgroup" not in wanted:
        conf["systemReservedCgroup"] = ""
    reserved, system = conf.get("systemReservedCgroup"), conf.get("systemCgroups")
    if reserved and system and reserved != system:
        raise KubeletError(f"systemReservedCgroup ({reserved}) must match systemCgroups ({system})")
    return conf


def _over(base: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in wanted.items():
        if value is None:
            continue
        old = base.get(key)
        found[key] = _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


class _Quoting(yaml.SafeDumper):
    """Puts in quotes what a kubelet's YAML would read as something else than text, such as the quantity 1e3."""


_Quoting.add_representer(
    str, lambda d, t: d.represent_scalar(f"{_TAG}:str", t, style=None if reads_as_text(t) else '"')
)


def ignition_of(
    conf: Mapping[str, Any], log_level: int | None = None, auto_sizing: bool | None = None
) -> dict[str, Any]:
    """The Ignition config with a kubelet.conf, and what does not stand in it."""
    text = yaml.dump(dict(conf), Dumper=_Quoting, sort_keys=True, default_flow_style=False)
    files = [_file(KUBELET_CONF, text)]
    if auto_sizing is not None:
        files.append(_file(SIZING_ENV, f"NODE_SIZING_ENABLED={str(auto_sizing).lower()}\n"))
    if log_level is not None:
        files.append(_file(LOGGING, f'[Service]\nEnvironment="KUBELET_LOG_LEVEL={log_level}"\n'))
    return {"ignition": {"version": VERSION}, "storage": {"files": files}}


def _file(path: str, text: str) -> dict[str, Any]:
    return {"path": path, "mode": _MODE, "overwrite": True, "contents": {"source": data_url(text)}}
