"""Networks, subnetworks, and the interfaces of instances with their addresses."""

from __future__ import annotations

import ipaddress
import secrets
from typing import Any

from pydantic import BaseModel

from simulator.clouds.gce.context import Context, Row, fingerprint
from simulator.clouds.gce.errors import GceError, invalid, not_found
from simulator.clouds.gce.fields import InterfaceBody, NetworkBody, SubnetworkBody, read
from simulator.clouds.gce.images import number
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import check_name, link, resolve
from simulator.clouds.gce.operations import Operation, Operations
from simulator.clouds.gce.world import Subnetwork

ECHOED = ("nicType", "accessConfigs", "ipv6AccessConfigs", "stackType", "ipv6AccessType")
FREE_RANGE = "10.4.0.0/14"
"""Where alias ranges of a name come from that the subnetwork does not say."""


class Interface(BaseModel):
    """A network interface of an instance."""

    name: str
    network: str
    subnetwork: str
    ip: str
    ipv6: str = ""
    aliases: list[dict[str, str]] = []
    """As JSON shows them."""
    echoed: dict[str, Any] = {}
    """What an insert gives and nothing changes."""

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.model_dump())

    def row(self) -> Row:
        found: Row = {
            "kind": "compute#networkInterface",
            "name": self.name,
            "network": link(self.network),
            "subnetwork": link(self.subnetwork),
            "networkIP": self.ip,
            "fingerprint": self.fingerprint,
            "stackType": "IPV4_ONLY",
            **self.echoed,
        }
        if self.ipv6:
            found["ipv6Address"] = self.ipv6
        if self.aliases:
            found["aliasIpRanges"] = self.aliases
        return found


class Networks:
    def __init__(self, context: Context, operations: Operations) -> None:
        self._context = context
        self._operations = operations
        self.made: dict[str, dict[str, Any]] = {}
        """Networks and subnetworks that calls have made, by path, as JSON shows them."""
        self.taken: dict[str, int] = {}
        """How far the addresses of a range have been given away; none is given twice."""

    # -- what there is

    def _rows(self, project: str) -> dict[str, Row]:
        world = self._context.world
        networks = {f"projects/{project}/global/networks/{n.name}": {"name": n.name} for n in world.networks}
        at = f"projects/{project}/regions/{world.region}/subnetworks"
        subnetworks = {f"{at}/{s.name}": _subnetwork_row(s, project, world.region) for s in world.subnetworks}
        known = {**networks, **subnetworks, **{p: r for p, r in self.made.items() if p.split("/")[1] == project}}
        return {path: {"id": number(path), "selfLink": link(path), **row} for path, row in known.items()}

    def find(self, path: str) -> Row:
        row = self._rows(path.split("/")[1]).get(path)
        if row is None:
            raise not_found(path)
        return row

    def below(self, collection: str) -> list[Row]:
        """The rows of a collection, such as `projects/p/global/networks`."""
        rows = self._rows(collection.split("/")[1])
        return [row for path, row in rows.items() if path.rpartition("/")[0] == collection]

    def _exists(self, path: str) -> bool:
        return path in self._rows(path.split("/")[1])

    # -- calls

    def insert_network(self, call: MethodCall) -> Operation:
        body = read(NetworkBody, call.body)
        return self._insert(call, f"{call.scope}/networks/{check_name(body.name)}", body.row())

    def insert_subnetwork(self, call: MethodCall) -> Operation:
        body = read(SubnetworkBody, call.body)
        network = resolve(body.network, call.project, "global/networks", "resource.network")
        if not self._exists(network):
            raise invalid("resource.network", body.network, "The referenced network resource cannot be found.")
        path = f"{call.scope}/subnetworks/{check_name(body.name)}"
        return self._insert(call, path, {**body.row(), "network": link(network)})

    def _insert(self, call: MethodCall, path: str, row: Row) -> Operation:
        if self._exists(path):
            raise GceError("alreadyExists", f"The resource '{path}' already exists")
        self.made[path] = row
        return self._operations.begin("insert", path, number(path), delay=0.0, query=call.query)

    # -- interfaces

    def interface(self, n: int, body: InterfaceBody, project: str) -> Interface:
        """The interface of an instance that is inserted, with its addresses."""
        field = f"resource.networkInterfaces[{n}]"
        subnetwork, row = self._subnetwork(body, project, field)
        network = row["network"].partition("/compute/v1/")[2]
        if body.network and resolve(body.network, project, "global/networks", f"{field}.network") != network:
            raise invalid(f"{field}.network", body.network, "The subnetwork is not in this network.")
        given = body.row()
        return Interface(
            name=f"nic{n}",
            network=network,
            subnetwork=subnetwork,
            ip=body.network_ip or str(self._take(subnetwork, row["ipCidrRange"], 32).network_address),
            ipv6=f"fd20::{secrets.randbits(16):x}:{secrets.randbits(16):x}" if _dual(body) else "",
            aliases=self.aliases(body, subnetwork, field),
            echoed={key: given[key] for key in ECHOED if key in given},
        )

    def _subnetwork(self, body: InterfaceBody, project: str, field: str) -> tuple[str, Row]:
        region = self._context.world.region
        if body.subnetwork:
            path = resolve(body.subnetwork, project, f"regions/{region}/subnetworks", f"{field}.subnetwork")
            row = self._rows(path.split("/")[1]).get(path)
            if row is None:
                raise invalid(
                    f"{field}.subnetwork", body.subnetwork, "The referenced subnetwork resource cannot be found."
                )
            return path, row
        wanted = resolve(body.network or "default", project, "global/networks", f"{field}.network")
        if not self._exists(wanted):
            raise invalid(f"{field}.network", wanted, "The referenced network resource cannot be found.")
        for row in self.below(f"projects/{project}/regions/{region}/subnetworks"):
            if row["network"] == link(wanted):
                return row["selfLink"].partition("/compute/v1/")[2], row
        raise invalid(field, "", "At least one subnetwork must be specified: the network has none in this region.")

    def aliases(self, body: InterfaceBody, subnetwork: str, field: str) -> list[dict[str, str]]:
        """The alias ranges that are asked for, each with its addresses."""
        row = self.find(subnetwork)
        secondary = {r["rangeName"]: r["ipCidrRange"] for r in row.get("secondaryIpRanges", [])}
        found = []
        for n, alias in enumerate(body.alias_ip_ranges or []):
            name, cidr = alias.subnetwork_range_name, alias.ip_cidr_range
            if name and secondary and name not in secondary:
                raise invalid(f"{field}.aliasIpRanges[{n}].subnetworkRangeName", name, "There is no such range.")
            within = secondary.get(name, FREE_RANGE) if name else row["ipCidrRange"]
            try:
                if cidr.startswith("/"):
                    cidr = str(self._take(f"{subnetwork}/{name or ''}", within, int(cidr[1:])))
                ipaddress.IPv4Network(cidr)
            except ValueError:
                raise invalid(f"{field}.aliasIpRanges[{n}].ipCidrRange", cidr, "Must be a CIDR range.") from None
            found.append({"ipCidrRange": cidr, **({"subnetworkRangeName": name} if name else {})})
        return found

    def _take(self, key: str, within: str, prefix: int) -> ipaddress.IPv4Network:
        """The next free range; the first addresses of a subnetwork are Google's own."""
        whole, size = ipaddress.IPv4Network(within), 2 ** (32 - prefix)
        at = self.taken.get(key, 2)
        at = -(-at // size) * size  # a range begins at a multiple of its size
        if at + size > whole.num_addresses:
            raise invalid("ipCidrRange", f"/{prefix}", f"The range {within} has no free addresses left.")
        self.taken[key] = at + size
        return ipaddress.IPv4Network((int(whole.network_address) + at, prefix))


def _dual(body: InterfaceBody) -> bool:
    return body.stack_type in ("IPV4_IPV6", "IPV6_ONLY")


def _subnetwork_row(subnetwork: Subnetwork, project: str, region: str) -> Row:
    ranges = [{"rangeName": k, "ipCidrRange": v} for k, v in subnetwork.secondary_ranges.items()]
    return {
        "name": subnetwork.name,
        "network": link(f"projects/{project}/global/networks/{subnetwork.network}"),
        "ipCidrRange": subnetwork.cidr,
        "region": link(f"projects/{project}/regions/{region}"),
        "secondaryIpRanges": ranges,
    }
