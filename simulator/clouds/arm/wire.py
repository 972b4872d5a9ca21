"""The wire of Azure Resource Manager: calls by path and method, answers in JSON, pages."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.identifiers import Id

Row = dict[str, Any]
"""A JSON object of a request or an answer."""

T = TypeVar("T")

_SUBSCRIPTION = "/subscriptions/{subscription}"
_GROUP = _SUBSCRIPTION + "/resourceGroups/{group}"
_COMPUTE, _NETWORK = "/providers/Microsoft.Compute", "/providers/Microsoft.Network"
_VM = _GROUP + _COMPUTE + "/virtualMachines/{name}"
_NIC = _GROUP + _NETWORK + "/networkInterfaces"
_VNET = _GROUP + _NETWORK + "/virtualNetworks"
_PLACE = _SUBSCRIPTION + _COMPUTE + "/locations/{location}"
_VERSION = "/publishers/{publisher}/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions/{version}"
_AGREEMENT = (
    _SUBSCRIPTION + "/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/publishers/{publisher}"
    "/offers/{offer}/plans/{plan}/agreements/current"
)
_TAGS = _GROUP + "/providers/{namespace}/{type}/{name}/providers/Microsoft.Resources/tags/default"
_OPERATION = _SUBSCRIPTION + "/providers/{namespace}/locations/{location}"

ROUTES: Mapping[str, tuple[str, str]] = {
    "Subscriptions_Get": ("GET", _SUBSCRIPTION),
    "ResourceGroups_Get": ("GET", _GROUP),
    "ResourceGroups_CheckExistence": ("HEAD", _GROUP),
    "ResourceGroups_CreateOrUpdate": ("PUT", _GROUP),
    "ResourceGroups_Delete": ("DELETE", _GROUP),
    "Resources_List": ("GET", _SUBSCRIPTION + "/resources"),
    "Resources_ListByResourceGroup": ("GET", _GROUP + "/resources"),
    "Tags_GetAtScope": ("GET", _TAGS),
    "Tags_UpdateAtScope": ("PATCH", _TAGS),
    "VirtualMachines_Get": ("GET", _VM),
    "VirtualMachines_CreateOrUpdate": ("PUT", _VM),
    "VirtualMachines_Update": ("PATCH", _VM),
    "VirtualMachines_Delete": ("DELETE", _VM),
    "VirtualMachines_List": ("GET", _GROUP + _COMPUTE + "/virtualMachines"),
    "VirtualMachines_ListAll": ("GET", _SUBSCRIPTION + _COMPUTE + "/virtualMachines"),
    "VirtualMachines_InstanceView": ("GET", _VM + "/instanceView"),
    "VirtualMachines_Start": ("POST", _VM + "/start"),
    "VirtualMachines_PowerOff": ("POST", _VM + "/powerOff"),
    "VirtualMachines_Deallocate": ("POST", _VM + "/deallocate"),
    "VirtualMachines_Restart": ("POST", _VM + "/restart"),
    "VirtualMachines_SimulateEviction": ("POST", _VM + "/simulateEviction"),
    "VirtualMachines_RetrieveBootDiagnosticsData": ("POST", _VM + "/retrieveBootDiagnosticsData"),
    "Disks_Get": ("GET", _GROUP + _COMPUTE + "/disks/{name}"),
    "Disks_CreateOrUpdate": ("PUT", _GROUP + _COMPUTE + "/disks/{name}"),
    "Disks_Update": ("PATCH", _GROUP + _COMPUTE + "/disks/{name}"),
    "Disks_Delete": ("DELETE", _GROUP + _COMPUTE + "/disks/{name}"),
    "Disks_ListByResourceGroup": ("GET", _GROUP + _COMPUTE + "/disks"),
    "Disks_List": ("GET", _SUBSCRIPTION + _COMPUTE + "/disks"),
    "NetworkInterfaces_Get": ("GET", _NIC + "/{name}"),
    "NetworkInterfaces_CreateOrUpdate": ("PUT", _NIC + "/{name}"),
    "NetworkInterfaces_UpdateTags": ("PATCH", _NIC + "/{name}"),
    "NetworkInterfaces_Delete": ("DELETE", _NIC + "/{name}"),
    "NetworkInterfaces_List": ("GET", _NIC),
    "NetworkInterfaces_ListAll": ("GET", _SUBSCRIPTION + _NETWORK + "/networkInterfaces"),
    "VirtualNetworks_Get": ("GET", _VNET + "/{name}"),
    "VirtualNetworks_CreateOrUpdate": ("PUT", _VNET + "/{name}"),
    "VirtualNetworks_Delete": ("DELETE", _VNET + "/{name}"),
    "VirtualNetworks_List": ("GET", _VNET),
    "Subnets_Get": ("GET", _VNET + "/{parent}/subnets/{name}"),
    "Subnets_List": ("GET", _VNET + "/{parent}/subnets"),
    "ResourceSkus_List": ("GET", _SUBSCRIPTION + _COMPUTE + "/skus"),
    "Usage_List": ("GET", _PLACE + "/usages"),
    "VirtualMachineImages_Get": ("GET", _PLACE + _VERSION),
    "VirtualMachineImages_List": ("GET", _PLACE + _VERSION.removesuffix("/{version}")),
    "MarketplaceAgreements_Get": ("GET", _AGREEMENT),
    "MarketplaceAgreements_Create": ("PUT", _AGREEMENT),
    "AvailabilitySets_Get": ("GET", _GROUP + _COMPUTE + "/availabilitySets/{name}"),
    "VirtualMachineScaleSets_Get": ("GET", _GROUP + _COMPUTE + "/virtualMachineScaleSets/{name}"),
    "ResourceGraph_Resources": ("POST", "/providers/Microsoft.ResourceGraph/resources"),
    "Operations_Get": ("GET", _OPERATION + "/operations/{id}"),
    "Operations_Result": ("GET", _OPERATION + "/operationResults/{id}"),
}
"""Method and path of every operation that is emulated, by Azure's own name for it (operationId of its REST API)."""

MUTATING = frozenset(
    operation
    for operation, (method, _) in ROUTES.items()
    if method not in ("GET", "HEAD")
    and operation not in ("ResourceGraph_Resources", "VirtualMachines_RetrieveBootDiagnosticsData")
)

_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
_PATTERNS = [
    (
        operation,
        method,
        re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path.replace(".", r"\.")) + "/?", re.IGNORECASE),
    )
    for operation, (method, path) in ROUTES.items()
]


@dataclass
class ArmCall:
    """One call, read: what its operation gets."""

    operation: str
    path: dict[str, str]
    """The variable parts of the path, by name."""
    query: dict[str, str] = field(default_factory=dict)
    body: Row = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    """Scheme, host and port by which the caller came."""
    fails: ArmError | None = None
    """With what the operation that it begins is to end."""

    @property
    def subscription(self) -> str:
        return self.path.get("subscription", "")

    @property
    def group(self) -> str:
        return self.path.get("group", "")

    @property
    def name(self) -> str:
        return self.path.get("name", "")

    def id(self, kind: str) -> Id:
        """The id that the path spells, for a resource of this type."""
        return Id(self.subscription, self.group, kind, self.name, self.path.get("parent", ""))


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    """Ids of what was made or changed, for the journal."""


def route(method: str, path: str) -> tuple[str, dict[str, str]]:
    """The operation that a method and a path name, and the variable parts. Raises for what is not emulated."""
    known = False
    for operation, of, pattern in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None and of == method:
            return operation, match.groupdict()
        known = known or match is not None
    if known:
        raise ArmError("MethodNotAllowed", f"The simulator does not emulate {method} {path}.", status=405)
    raise ArmError("InvalidResourceType", f"The simulator does not emulate the resource type of {path}.")


def check_version(query: Mapping[str, str]) -> None:
    version = query.get("api-version")
    if not version:
        raise ArmError(
            "MissingApiVersionParameter",
            "The api-version query parameter (?api-version=) is required for all requests.",
        )
    if not _API_VERSION.fullmatch(version):
        raise ArmError("InvalidApiVersionParameter", f"The api-version '{version}' is invalid.")


def page(rows: Sequence[T], call: ArmCall, size: int, key: Callable[[T], str], row: Callable[[T], Row]) -> Answer:
    """One page of a listing. The token of the next is the key of its last row, not an offset: a row that leaves the
    listing between two pages does not hide another one."""
    after = read_token(call.query["$skiptoken"]) if "$skiptoken" in call.query else ""
    rest = sorted((r for r in rows if key(r) > after), key=key)
    shown = rest[:size]
    body: Row = {"value": [row(r) for r in shown]}
    if len(rest) > size:
        query = {**call.query, "$skiptoken": token_of(key(shown[-1]))}
        body["nextLink"] = f"{call.base}{_spelt(call)}?{urlencode(query)}"
    return Answer(body=body)


def _spelt(call: ArmCall) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: call.path[m[1]], ROUTES[call.operation][1])


def token_of(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def read_token(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ArmError("BadRequest", f"The $skiptoken '{token}' is not valid.") from None


def timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
