"""Nodes in hostler get, read from the clusters' own API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from starter.commands.common import Session
from starter.commands.kinds import NODE
from starter.commands.objects import ListedObject, wholes
from starter.commands.rows import AGE, Column, Listing, key_of, listed, phase_style, those_named
from starter.commands.selection import Selection

if TYPE_CHECKING:
    from activities.kube.client import Kube
    from starter.sdk.results import Json


class ListedNode(ListedObject):
    @property
    def status(self) -> str:
        """The status as kubectl has it: Ready, NotReady or Unknown, and SchedulingDisabled after a cordon."""
        conditions = self.part("status").get("conditions") or []
        ready = next((c["status"] for c in conditions if c["type"] == "Ready"), "Unknown")
        words = {"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if conditions else "Unknown")
        return f"{words},SchedulingDisabled" if self.part("spec").get("unschedulable") else words

    @property
    def machine(self) -> str:
        from resources.names import MACHINE_NAME_LABEL

        return str((self.whole["metadata"].get("labels") or {}).get(MACHINE_NAME_LABEL, ""))

    @property
    def address(self) -> str:
        addresses = self.part("status").get("addresses") or []
        return next((a["address"] for a in addresses if a.get("type") == "InternalIP"), "")

    @property
    def version(self) -> str:
        return str((self.part("status").get("nodeInfo") or {}).get("kubeletVersion", ""))

    @property
    def taints(self) -> str:
        return ",".join(f"{t['key']}:{t['effect']}" for t in self.part("spec").get("taints") or [])


COLUMNS: tuple[Column[ListedNode], ...] = (
    Column("NAME", lambda n: n.name),
    Column("STATUS", lambda n: n.status, style=lambda n: phase_style(n.status)),
    Column("MACHINE", lambda n: n.machine, drop=1),
    Column(AGE, lambda n: n.created, drop=2),
    Column("VERSION", lambda n: n.version, drop=3),
    Column("INTERNAL-IP", lambda n: n.address, wide=True),
    Column("PROVIDER-ID", lambda n: str(n.part("spec").get("providerID", "")), wide=True),
    Column("TAINTS", lambda n: n.taints, wide=True),
)


async def listing(here: Session, chosen: Selection, stack: AsyncExitStack) -> Listing[ListedNode]:
    """The clusters stay connected until the stack is closed."""
    from starter.sdk.errors import HostlerError
    from starter.sdk.kube import connect_cluster

    clusters = [here.cluster or here.settings.default_cluster]
    if chosen.all_clusters:
        clusters = sorted(here.settings.clusters)
        if not clusters:
            raise HostlerError("the settings name no clusters, so nodes cannot be read")
    apis = {c: await stack.enter_async_context(connect_cluster(here.settings, c)) for c in clusters}
    missing: list[str] = []
    labelled = f" with labels {chosen.selector}" if chosen.selector else ""
    return Listing(
        listed(COLUMNS, chosen.all_clusters),
        find=partial(_read, apis, chosen, missing),
        key=key_of(NODE, chosen.all_clusters),
        objects=wholes,
        nothing=f"No nodes found in cluster {', '.join(clusters)}{labelled}.",
        state="STATUS",
        missing=missing,
    )


async def _read(apis: Mapping[str, Kube], chosen: Selection, missing: list[str]) -> list[ListedNode]:
    """The nodes that are named are all of one cluster; those that it does not have are added to `missing`."""
    from starter.output import Busy

    async with Busy(f"waiting for the API of cluster {', '.join(apis)}"):
        if chosen.names:
            (kube,) = apis.values()
            every = [await those_named(chosen.names, partial(_one, kube), missing)]
        else:
            every = await asyncio.gather(*(_list(kube, chosen) for kube in apis.values()))
    return [
        ListedNode(cluster, {"apiVersion": "v1", "kind": "Node", **node})  # those of a list come without the two
        for cluster, nodes in zip(apis, every, strict=True)
        for node in nodes
    ]


async def _one(kube: Kube, name: str) -> Json:
    from activities.kube.client import KubeError, node_path
    from starter.sdk.errors import NotFound
    from starter.sdk.kube import explained, soon

    with explained(kube):
        try:
            return await soon(kube, kube.get(node_path(name)))
        except KubeError as e:
            if e.status != 404:
                raise
            raise NotFound(f"cluster {kube.name} has no Node {name}") from e


async def _list(kube: Kube, chosen: Selection) -> list[Json]:
    from activities.kube.looks import every_node
    from starter.sdk.kube import explained, soon

    query = {"labelSelector": str(chosen.selector)} if chosen.selector else {}
    nodes = every_node(kube, **query)
    found: list[Json] = []
    with explained(kube):  # each says for itself what is wrong with it
        while (node := await soon(kube, anext(nodes, None))) is not None:  # each page in time: there may be many
            found.append(node)
    return found
