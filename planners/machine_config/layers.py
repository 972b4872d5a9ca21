"""Which files of the templates' folder belong to which MachineConfig, and which layer of them wins.

    <role>/<name>/<layer>/{files,units,extensions}/<file>
    common/<layer>/{files,units,extensions}/<file>          in the first MachineConfig of every role, 00-<role>

A later layer's file takes the place of an earlier one's with its name, and a role's that of a common one. An empty file
only takes away. (upstream: pkg/controller/template/render.go)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from planners.machine_config.gotemplate import ConfigTemplateError

BASE = "_base"
COMMON = "common"
NO_PLATFORM = "none"
PARTS = ("files", "units", "extensions")
_ON_PREMISES = ("baremetal", "kubevirt", "nutanix", "openstack", "ovirt", "vsphere")


class Source(NamedTuple):
    """One template, by where it lies."""

    path: str
    role: str
    config: str
    """The MachineConfig's name; "" for a common one."""
    layer: str
    part: str
    file: str


class RoleConfig(NamedTuple):
    """A MachineConfig that the templates make, and its templates by part and file."""

    role: str
    name: str
    files: dict[str, str]
    units: dict[str, str]
    extensions: dict[str, str]


def sources(paths: Iterable[str]) -> list[Source]:
    """What each path is. Raises ConfigTemplateError for one that is nothing."""
    found = []
    for path in sorted(paths):
        parts = path.split("/")
        if parts[0] == COMMON and len(parts) == 4 and parts[2] in PARTS:
            found.append(Source(path, COMMON, "", parts[1], parts[2], parts[3]))
        elif len(parts) == 5 and parts[0] != COMMON and parts[3] in PARTS:
            found.append(Source(path, *parts))
        else:
            shape = f"<role>/<name>/<layer>/{{{','.join(PARTS)}}}/<file>"
            raise ConfigTemplateError(f"{path}: it is not at a template's place, {shape}; move it, or take it away")
    return found


def platform_of(spec: Mapping[str, Any]) -> str:
    """The platform, in small letters. Raises ConfigTemplateError for one that a layer's name forbids (M-TC1)."""
    infra = (spec.get("infra") or {}).get("status") or {}
    named = (infra.get("platformStatus") or {}).get("type") or infra.get("platform") or spec.get("platform") or ""
    platform = str(named).lower() or NO_PLATFORM
    if platform == BASE:
        raise ConfigTemplateError(f"spec.platform: {BASE} unsupported; write the cluster's platform, or {NO_PLATFORM}")
    return platform


def layers(spec: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    """The layers that apply, the last of which wins. `known`: the layers that there are; a platform without one is
    treated as none (M-TC1, M-TC5)."""
    platform = platform_of(spec)
    status = (spec.get("infra") or {}).get("status") or {}
    balancer = (status.get("platformStatus") or {}).get(platform) or {}
    dns = (balancer.get("cloudLoadBalancerConfig") or {}).get("dnsType")
    found = [BASE]
    if platform in _ON_PREMISES:
        found.append("on-prem")
    if dns == "ClusterHosted":
        found.append("cloud-platform-alt-dns")
    found.append(platform if platform in set(known) else NO_PLATFORM)
    by_topology = {"SingleReplica": "sno", "DualReplica": "two-node-with-fencing"}
    topology = by_topology.get(status.get("controlPlaneTopology", ""))
    return [*found, topology] if topology else found


def wanted(templates: Mapping[str, str], spec: Mapping[str, Any]) -> list[RoleConfig]:
    """The MachineConfigs that the templates make, with the path of the template that wins for each file. Raises
    ConfigTemplateError."""
    all_of_them = sources(templates)
    order = layers(spec, {s.layer for s in all_of_them})
    applied = sorted(
        (s for s in all_of_them if s.layer in order), key=lambda s: (s.role != COMMON, order.index(s.layer))
    )
    found = {}
    for role, name in sorted({(s.role, s.config) for s in all_of_them if s.role != COMMON}):
        made = RoleConfig(role, name, {}, {}, {})
        first = name == f"00-{role}"
        for source in applied:
            if (source.role, source.config) == (role, name) or (first and source.role == COMMON):
                _place(made, source, templates[source.path])
        found[role, name] = made
    return list(found.values())


def _place(made: RoleConfig, source: Source, text: str) -> None:
    part: dict[str, str] = getattr(made, source.part)
    if text:
        part[source.file] = source.path
    else:
        part.pop(source.file, None)
