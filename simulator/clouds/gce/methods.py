"""The methods that are emulated, with the paths and parameters that lead to them; any other is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from simulator.clouds.gce.context import Row
from simulator.clouds.gce.errors import GceError, unsupported

ANY = frozenset({"alt", "$alt", "prettyPrint", "userIp", "quotaUser"})
LIST = frozenset({"filter", "maxResults", "orderBy", "pageToken", "returnPartialSuccess"})
AGGREGATED = LIST | {"includeAllScopes"}
CHANGE = frozenset({"requestId"})

_INSTANCE = "zones/{zone}/instances/{instance}"
_DISK = "zones/{zone}/disks/{disk}"


@dataclass(frozen=True)
class Method:
    id: str
    """Google's id of it without `compute.`: its name in fault rules and the journal."""
    verb: str
    path: re.Pattern[str]
    query: frozenset[str]
    body: bool
    mutating: bool


@dataclass
class MethodCall:
    """One call of a method, as its operation gets it."""

    method: Method
    params: dict[str, str]
    """What the path names: project, zone, instance."""
    query: dict[str, str]
    body: Any = field(default_factory=dict)

    @property
    def project(self) -> str:
        return self.params["project"]

    @property
    def scope(self) -> str:
        """The path of the project and zone, region or `global`."""
        for kind in ("zone", "region"):
            if kind in self.params:
                return f"projects/{self.project}/{kind}s/{self.params[kind]}"
        return f"projects/{self.project}/global"

    @property
    def text(self) -> Row:
        """The whole request, as fault rules see it."""
        body = {"body": self.body} if self.body else {}
        return {**self.params, **self.query, **body}


def _method(id: str, verb: str, path: str, query: frozenset[str] = frozenset(), *, body: bool = False) -> Method:
    template = "projects/{project}" + (f"/{path}" if path else "")
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
    mutating = verb != "GET" and not id.endswith(".wait")
    return Method(id, verb, re.compile(pattern), query, body, mutating)


def _changes() -> list[Method]:
    with_body = ("setLabels", "setTags", "setMetadata", "setMachineType", "setMachineResources", "setServiceAccount")
    return [
        *(_method(f"instances.{v}", "POST", f"{_INSTANCE}/{v}", CHANGE, body=True) for v in with_body),
        *(_method(f"instances.{v}", "POST", f"{_INSTANCE}/{v}", CHANGE) for v in ("start", "stop", "reset")),
        _method("instances.setScheduling", "POST", f"{_INSTANCE}/setScheduling", CHANGE, body=True),
        _method(
            "instances.setDeletionProtection", "POST", "zones/{zone}/instances/{instance}/setDeletionProtection",
            CHANGE | {"deletionProtection"},
        ),
        _method(
            "instances.updateNetworkInterface", "PATCH", f"{_INSTANCE}/updateNetworkInterface",
            CHANGE | {"networkInterface"}, body=True,
        ),
        _method("instances.attachDisk", "POST", f"{_INSTANCE}/attachDisk", CHANGE, body=True),
        _method("instances.detachDisk", "POST", f"{_INSTANCE}/detachDisk", CHANGE | {"deviceName"}),
        _method(
            "instances.setDiskAutoDelete", "POST", f"{_INSTANCE}/setDiskAutoDelete",
            CHANGE | {"deviceName", "autoDelete"},
        ),
    ]  # fmt: skip


def _operations(kind: str, scope: str) -> list[Method]:
    return [
        _method(f"{kind}Operations.list", "GET", f"{scope}/operations", LIST),
        _method(f"{kind}Operations.get", "GET", f"{scope}/operations/{{operation}}"),
        _method(f"{kind}Operations.wait", "POST", f"{scope}/operations/{{operation}}/wait"),
    ]


METHODS = (
    _method("projects.get", "GET", ""),
    _method("instances.list", "GET", "zones/{zone}/instances", LIST),
    _method("instances.aggregatedList", "GET", "aggregated/instances", AGGREGATED),
    _method("instances.insert", "POST", "zones/{zone}/instances", CHANGE, body=True),
    _method("instances.get", "GET", _INSTANCE),
    _method("instances.delete", "DELETE", _INSTANCE, CHANGE),
    _method("instances.getSerialPortOutput", "GET", f"{_INSTANCE}/serialPort", frozenset({"port", "start"})),
    *_changes(),
    _method("disks.list", "GET", "zones/{zone}/disks", LIST),
    _method("disks.aggregatedList", "GET", "aggregated/disks", AGGREGATED),
    _method("disks.insert", "POST", "zones/{zone}/disks", CHANGE | {"sourceImage"}, body=True),
    _method("disks.get", "GET", _DISK),
    _method("disks.delete", "DELETE", _DISK, CHANGE),
    _method("disks.setLabels", "POST", f"{_DISK}/setLabels", CHANGE, body=True),
    *_operations("zone", "zones/{zone}"),
    *_operations("region", "regions/{region}"),
    *_operations("global", "global"),
    _method("zones.list", "GET", "zones", LIST),
    _method("zones.get", "GET", "zones/{zone}"),
    _method("regions.get", "GET", "regions/{region}"),
    _method("machineTypes.list", "GET", "zones/{zone}/machineTypes", LIST),
    _method("machineTypes.get", "GET", "zones/{zone}/machineTypes/{machineType}"),
    _method("images.list", "GET", "global/images", LIST),
    _method("images.getFromFamily", "GET", "global/images/family/{family}", frozenset({"zone"})),
    _method("images.get", "GET", "global/images/{image}"),
    _method("networks.list", "GET", "global/networks", LIST),
    _method("networks.get", "GET", "global/networks/{network}"),
    _method("networks.insert", "POST", "global/networks", CHANGE, body=True),
    _method("subnetworks.list", "GET", "regions/{region}/subnetworks", LIST),
    _method("subnetworks.get", "GET", "regions/{region}/subnetworks/{subnetwork}"),
    _method("subnetworks.insert", "POST", "regions/{region}/subnetworks", CHANGE, body=True),
)


def find(verb: str, path: str) -> tuple[Method, dict[str, str]]:
    """The method of a path below /compute/v1/, and what the path names."""
    for method in METHODS:
        match = method.path.fullmatch(path) if method.verb == verb else None
        if match is not None:
            return method, {key.replace("_", ""): value for key, value in match.groupdict().items()}
    raise unsupported(f"{verb} {path}")


def check(method: Method, query: dict[str, str], body: bytes) -> None:
    """Raises what Google answers to a parameter or body that the method does not have."""
    unknown = sorted(query.keys() - method.query - ANY)
    if unknown:
        raise unsupported(f"the parameter '{unknown[0]}' of {method.id}")
    if body and not method.body and body.strip() != b"{}":
        raise GceError("badRequest", f"{method.id} takes no body")
