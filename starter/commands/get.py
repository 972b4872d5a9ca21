"""hostler get"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import AllClustersOption, NamesArgument, Reading, SelectorOption, Session, target
from starter.commands.kinds import CLASS, CLUSTER, MACHINE, NODE, ORPHAN, POOL, ROLLOUT
from starter.commands.rows import AGE, OF, Form, Row, print_objects, print_rows
from starter.commands.selection import PRESERVED, Selection, listing

if TYPE_CHECKING:
    from activities.kube.client import Kube
    from starter.sdk.client import HostlerClient
    from starter.sdk.machines.selectors import Selector
    from starter.sdk.results import ClusterSummary, Json, MachineSummary, Selected

MACHINE_COLUMNS = ("NAME", "PHASE", "REASON", "NODE", AGE)
MACHINE_WIDE = (*MACHINE_COLUMNS, "CLASS", "POOL", "PROVIDER-ID", "DEADLINE", "PRESERVED-UNTIL")
NODE_COLUMNS = ("NAME", "STATUS", "MACHINE", AGE, "VERSION")
NODE_WIDE = (*NODE_COLUMNS, "INTERNAL-IP", "PROVIDER-ID", "TAINTS")
CLUSTER_COLUMNS = ("NAME", "PHASE", "POOLS", "MACHINES")
CLUSTER_WIDE = (*CLUSTER_COLUMNS, "IN-SETTINGS")


@command
def get(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="machines (machine, mc), pools (pool, mcd), rollouts, classes (class, mcc), nodes (node, no), "
            "clusters or orphans.",
            autocompletion=candidates.kinds("machines", "pools", "rollouts", "classes", "nodes", "clusters", "orphans"),
        ),
    ],
    names: NamesArgument = None,
    form: Annotated[Form, typer.Option("-o", "--output", help="Output format.")] = Form.TABLE,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Keep watching and print changes, until Ctrl-C.")
    ] = False,
    selector: SelectorOption = None,
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool",
            help="machines: only those of this pool.",
            show_default=False,
            autocompletion=candidates.pool_names,
        ),
    ] = None,
    preserved: Annotated[bool, typer.Option("--preserved", help="machines: only those that are preserved.")] = False,
    all_clusters: AllClustersOption = False,
    files: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", help="orphans: search the accounts of these MachineClasses too; repeatable."),
    ] = None,
    here: Reading,
) -> None:
    """List machines, pools, rollouts, classes, nodes, clusters, or orphans: VMs of a cluster that no machine's workflow
    owns.

    Machines come from Temporal (a list is about a second behind, a named machine is not), nodes from the cluster's API.
    With -l each machine is asked for its labels, which needs a worker. `-o yaml` prints manifests that `hostler apply
    -f -` accepts. Orphans are found in the cloud by their owner tags; `hostler adopt` takes one over.
    """
    which, given = target(kind, names or [], (MACHINE, POOL, ROLLOUT, CLASS, NODE, CLUSTER, ORPHAN))
    if watch and form in (Form.JSON, Form.YAML):
        raise typer.BadParameter("-w needs -o table, wide or name")
    if pool is not None and (which != MACHINE or given):
        raise typer.BadParameter("--pool is only for machines, without names: get machines --pool POOL")
    if preserved and (which != MACHINE or given):
        raise typer.BadParameter("--preserved is only for machines, without names: get machines --preserved")
    if which == ORPHAN:
        from starter.commands.orphans import orphans

        if selector is not None or all_clusters or watch:
            raise typer.BadParameter(
                "orphans are listed for one cluster, and without -w: get orphans [NAME...] [-f FILE] [--cluster C]"
            )
        here.run(lambda client: orphans(client, given, files or [], form))
        return
    if files:
        raise typer.BadParameter("-f is only for orphans; to apply manifests: hostler apply -f")
    if which == CLUSTER:
        if selector is not None or all_clusters:
            raise typer.BadParameter("clusters cannot be selected with -l or -A: get clusters [NAME...]")
        here.run(lambda client: _clusters(client, given, form, watch))
        return
    if which in (POOL, ROLLOUT):
        from starter.commands import pools
        from starter.commands.rollout_rows import show_rollouts

        if selector is not None or (given and all_clusters):
            raise typer.BadParameter(f"select them by the pool's name: get {kind} [NAME...] [--cluster C], or -A")
        if which == POOL:
            here.run(lambda client: pools.listing(client, given, all_clusters, form, watch))
        else:
            here.run(lambda client: show_rollouts(client, given, form, watch, all_clusters))
        return
    if which == CLASS:
        from starter.commands import classes

        if selector is not None or (given and all_clusters):
            raise typer.BadParameter("select classes by name: get classes [NAME...] [--cluster C], or -A")
        here.run(lambda client: classes.listing(client, given, all_clusters, form, watch))
        return
    chosen = listing(given, selector, all_clusters)
    if which == NODE:
        asyncio.run(_nodes(here, chosen, form, watch))
    else:
        here.run(lambda client: _machines(client, MachineFilter(chosen, pool, preserved), form, watch))


# -- machines ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineFilter:
    """Which machines are shown."""

    chosen: Selection
    pool: str | None = None
    preserved: bool = False
    """Only preserved machines."""

    def nothing(self, client: HostlerClient) -> str:
        words = self.chosen.nothing(client, PRESERVED if self.preserved else "machines")
        return f"{words.rstrip('.')} of pool {self.pool}." if self.pool else words

    def has(self, m: MachineSummary) -> bool:
        return self.pool in (None, m.pool) and (not self.preserved or m.preserved_until is not None)


async def _machines(client: HostlerClient, wanted: MachineFilter, form: Form, watch: bool) -> None:
    if form in (Form.JSON, Form.YAML):
        found = await _machine_manifests(client, wanted)
        await print_objects(found, form, single=len(wanted.chosen.names) == 1)
        return

    async def rows() -> list[Row]:
        return [_machine_row(m, wanted.chosen) for m in await _summaries(client, wanted)]

    columns = MACHINE_WIDE if form is Form.WIDE else MACHINE_COLUMNS
    await print_rows(_under(wanted.chosen, columns), "PHASE", rows, form, watch, wanted.nothing(client))


def _under(chosen: Selection, columns: tuple[str, ...]) -> tuple[str, ...]:
    return (OF, *columns) if chosen.all_clusters else columns


async def _summaries(client: HostlerClient, wanted: MachineFilter) -> list[MachineSummary]:
    """The chosen machines; those named must exist: they are read from the server's records, without visibility's
    delay."""
    from starter.sdk.errors import NotFound

    chosen = wanted.chosen
    if chosen.selector is not None:
        return [m.summary for m in await _selected(client, wanted, chosen.selector)]
    if not chosen.names:
        return await client.list(all_clusters=chosen.all_clusters, pool=wanted.pool, preserved=wanted.preserved)
    found = []
    for name in chosen.names:
        life = await client.life(name)
        if not life.running:
            since = f" since {life.closed:%Y-%m-%d %H:%M:%S} UTC" if life.closed else ""
            raise NotFound(f"machine {name} is gone{since}: hostler describe machine {name} shows what is left of it")
        found.append(life.summary)
    return found


def _machine_row(m: MachineSummary, chosen: Selection) -> Row:
    from starter.output import age, relative

    now = datetime.now(UTC)
    cells = (m.cluster, m.name, m.phase, m.reason, m.node, age(now - m.created))
    wide = (m.machine_class, m.pool, m.provider_id, relative(m.deadline, now), relative(m.preserved_until, now))
    named = dict(zip((OF, *MACHINE_WIDE), (*cells, *wide), strict=True))
    moments = {"DEADLINE": m.deadline, "PRESERVED-UNTIL": m.preserved_until}
    return Row((MACHINE, m.cluster, m.name) if chosen.all_clusters else (MACHINE, m.name), named, moments)


async def _selected(client: HostlerClient, wanted: MachineFilter, by: Selector) -> list[Selected]:
    found = await client.select(by, all_clusters=wanted.chosen.all_clusters)
    return [m for m in found if wanted.has(m.summary)]


async def _machine_manifests(client: HostlerClient, wanted: MachineFilter) -> list[Json]:
    from starter.outlet import warn
    from starter.sdk.results import machine_manifest

    if wanted.chosen.selector is not None:
        selected = await _selected(client, wanted, wanted.chosen.selector)
        return [machine_manifest(m.state) for m in selected]
    slots = asyncio.Semaphore(10)

    async def one(m: MachineSummary) -> Json | None:
        async with slots:
            found = await client.describe(m.name, cluster=m.cluster)
        if found.state is None or not found.life.running:
            return None  # gone since it was listed
        manifest = machine_manifest(found.state)
        if found.no_answer:
            warn(f"machine {m.name}: {found.no_answer}: the spec is what was requested, the status the last known one")
            known = {"phase": m.phase, "providerID": m.provider_id, "nodeName": m.node}
            manifest["status"] = {k: v for k, v in known.items() if v}
        return manifest

    found = await asyncio.gather(*(one(m) for m in await _summaries(client, wanted)))
    return [m for m in found if m is not None]


# -- nodes ------------------------------------------------------------------------------------------------------------


async def _nodes(here: Session, chosen: Selection, form: Form, watch: bool) -> None:
    from contextlib import AsyncExitStack

    from starter.sdk.errors import HostlerError
    from starter.sdk.kube import connect_cluster

    clusters = [here.cluster or here.settings.default_cluster]
    if chosen.all_clusters:
        clusters = sorted(here.settings.clusters)
        if not clusters:
            raise HostlerError("the settings name no clusters, so nodes cannot be read")
    async with AsyncExitStack() as stack:
        apis = {c: await stack.enter_async_context(connect_cluster(here.settings, c)) for c in clusters}

        async def read() -> list[tuple[str, Json]]:
            every = await asyncio.gather(*(_read_nodes(kube, chosen) for kube in apis.values()))
            return [(c, node) for c, nodes in zip(apis, every, strict=True) for node in nodes]

        if form in (Form.JSON, Form.YAML):
            await print_objects([n for _, n in await read()], form, single=len(chosen.names) == 1)
            return

        async def rows() -> list[Row]:
            return [_node_row(c, n, chosen) for c, n in await read()]

        columns = NODE_WIDE if form is Form.WIDE else NODE_COLUMNS
        labelled = f" with labels {chosen.selector}" if chosen.selector else ""
        nothing = f"No nodes found in cluster {', '.join(clusters)}{labelled}."
        await print_rows(_under(chosen, columns), "STATUS", rows, form, watch, nothing)


async def _read_nodes(kube: Kube, chosen: Selection) -> list[Json]:
    """Reads whole objects; those of a list come without apiVersion and kind."""
    from activities.kube.client import node_path
    from activities.kube.looks import every_node
    from starter.sdk.kube import explained

    query = {"labelSelector": str(chosen.selector)} if chosen.selector else {}
    with explained(kube):  # each says for itself what is wrong with it
        if chosen.names:
            found = [await kube.get(node_path(n)) for n in chosen.names]
        else:
            found = [n async for n in every_node(kube, **query)]
    return [{"apiVersion": "v1", "kind": "Node", **n} for n in found]


def _node_row(cluster: str, node: Json, chosen: Selection) -> Row:
    from resources.names import MACHINE_NAME_LABEL
    from starter.output import age

    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    addresses = status.get("addresses") or []
    taints = [f"{t['key']}:{t['effect']}" for t in spec.get("taints") or []]
    cells = (
        cluster,
        metadata["name"],
        _node_status(spec, status),
        (metadata.get("labels") or {}).get(MACHINE_NAME_LABEL, ""),
        age(datetime.now(UTC) - created),
        (status.get("nodeInfo") or {}).get("kubeletVersion", ""),
        next((a["address"] for a in addresses if a.get("type") == "InternalIP"), ""),
        spec.get("providerID", ""),
        ",".join(taints),
    )
    key = (NODE, cluster, metadata["name"]) if chosen.all_clusters else (NODE, metadata["name"])
    return Row(key, dict(zip((OF, *NODE_WIDE), cells, strict=True)))


def _node_status(spec: Json, status: Json) -> str:
    """The status as kubectl has it: Ready, NotReady or Unknown, and SchedulingDisabled after a cordon."""
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    words = {"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if status.get("conditions") else "Unknown")
    return f"{words},SchedulingDisabled" if spec.get("unschedulable") else words


# -- clusters ---------------------------------------------------------------------------------------------------------


async def _clusters(client: HostlerClient, names: list[str], form: Form, watch: bool) -> None:
    async def found() -> list[ClusterSummary]:
        if names:
            return [(await client.clusters.describe(name)).summary for name in names]
        return await client.clusters.list()

    if form in (Form.JSON, Form.YAML):
        await print_objects([_cluster_object(c) for c in await found()], form, single=len(names) == 1)
        return

    async def rows() -> list[Row]:
        return [_cluster_row(c) for c in await found()]

    columns = CLUSTER_WIDE if form is Form.WIDE else CLUSTER_COLUMNS
    await print_rows(
        columns, "PHASE", rows, form, watch, "No clusters found: the settings name none, and none is watched."
    )


def _cluster_row(c: ClusterSummary) -> Row:
    cells = (c.name, c.phase, str(c.pools), str(c.machines), "yes" if c.configured else "no")
    return Row((CLUSTER, c.name), dict(zip(CLUSTER_WIDE, cells, strict=True)))


def _cluster_object(c: ClusterSummary) -> Json:
    """The cluster in Kubernetes' form, for programs; it is no manifest: clusters are in the settings."""
    status = {"phase": c.phase, "pools": c.pools, "machines": c.machines, "inSettings": c.configured}
    return {"apiVersion": "hostler.io/v1", "kind": "Cluster", "metadata": {"name": c.name}, "status": status}


# -- printing ---------------------------------------------------------------------------------------------------------
