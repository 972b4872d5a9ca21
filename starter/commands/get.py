"""hostler get"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands.common import MACHINE, NODE, ClusterOption, Session, SettingsOption, session, target

if TYPE_CHECKING:
    from starter.client import HostlerClient
    from starter.kube import KubeClient
    from starter.results import Json, MachineSummary

INTERVAL = 2.0
"""Seconds between two looks of `-w`."""
AGE = "AGE"
MACHINE_COLUMNS = ("NAME", "PHASE", "REASON", "NODE", AGE)
MACHINE_WIDE = (*MACHINE_COLUMNS, "CLASS", "PROVIDER-ID", "DEADLINE")
NODE_COLUMNS = ("NAME", "STATUS", "MACHINE", AGE, "VERSION")
NODE_WIDE = (*NODE_COLUMNS, "INTERNAL-IP", "PROVIDER-ID", "TAINTS")


class Form(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True)
class Row:
    name: str
    cells: dict[str, str]

    def facts(self) -> dict[str, str]:
        """What makes a new line under -w: everything but the age."""
        return {k: v for k, v in self.cells.items() if k != AGE}


def get(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="machines (machine, mc) or nodes (node, no).")],
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    form: Annotated[Form, typer.Option("-o", "--output", help="How it is printed.")] = Form.TABLE,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on and print what changes, until Ctrl-C.")] = False,
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
) -> None:
    """List machines or nodes.

    Machines come from Temporal (a list is about a second behind, a named machine is not), nodes from the cluster's API.
    `-o yaml` prints manifests that `hostler apply -f -` takes back.
    """
    which, given = target(kind, names or [], (MACHINE, NODE))
    if watch and form in (Form.JSON, Form.YAML):
        raise typer.BadParameter("-w prints lines: use it with -o table, wide or name")
    here = session(ctx, cluster, settings)
    if which == NODE:
        asyncio.run(_nodes(here, given, form, watch))
    else:
        here.run(lambda client: _machines(client, given, form, watch))


# -- machines ---------------------------------------------------------------------------------------------------------


async def _machines(client: HostlerClient, names: list[str], form: Form, watch: bool) -> None:
    if form in (Form.JSON, Form.YAML):
        found = await _machine_manifests(client, names)
        await _print_objects(found, form, single=len(names) == 1)
        return

    async def rows() -> list[Row]:
        return [_machine_row(m) for m in await _summaries(client, names)]

    columns = MACHINE_WIDE if form is Form.WIDE else MACHINE_COLUMNS
    await _print_rows(MACHINE, columns, rows, form, watch, f"No machines found in cluster {client.cluster}.")


async def _summaries(client: HostlerClient, names: list[str]) -> list[MachineSummary]:
    """All, or those named, which must exist: these are read from the server's records, without visibility's delay."""
    from starter.errors import NotFound

    if not names:
        return await client.list()
    found = []
    for name in names:
        life = await client.life(name)
        if not life.running:
            since = f" since {life.closed:%Y-%m-%d %H:%M:%S} UTC" if life.closed else ""
            raise NotFound(f"machine {name} is gone{since}: hostler describe machine {name} says what is left of it")
        found.append(life.summary)
    return found


def _machine_row(m: MachineSummary) -> Row:
    from starter.output import age, relative

    now = datetime.now(UTC)
    cells = (m.name, m.phase, m.reason, m.node, age(now - m.created), m.machine_class, m.provider_id)
    return Row(m.name, dict(zip(MACHINE_WIDE, (*cells, relative(m.deadline, now)), strict=True)))


async def _machine_manifests(client: HostlerClient, names: list[str]) -> list[Json]:
    from starter.output import warn
    from starter.results import machine_manifest

    slots = asyncio.Semaphore(10)

    async def one(m: MachineSummary) -> Json | None:
        async with slots:
            found = await client.describe(m.name)
        if found.state is None:
            return None  # gone since it was listed
        manifest = machine_manifest(found.state)
        if found.no_answer:
            warn(f"machine {m.name}: {found.no_answer}: the spec is what was asked for, the status what was known last")
            known = {"phase": m.phase, "providerID": m.provider_id, "nodeName": m.node}
            manifest["status"] = {k: v for k, v in known.items() if v}
        return manifest

    found = await asyncio.gather(*(one(m) for m in await _summaries(client, names)))
    return [m for m in found if m is not None]


# -- nodes ------------------------------------------------------------------------------------------------------------


async def _nodes(here: Session, names: list[str], form: Form, watch: bool) -> None:
    from starter.kube import connect_cluster

    cluster = here.cluster or here.settings.default_cluster
    async with connect_cluster(here.settings, cluster) as kube:
        if form in (Form.JSON, Form.YAML):
            await _print_objects(await _read_nodes(kube, names), form, single=len(names) == 1)
            return

        async def rows() -> list[Row]:
            return [_node_row(n) for n in await _read_nodes(kube, names)]

        columns = NODE_WIDE if form is Form.WIDE else NODE_COLUMNS
        await _print_rows(NODE, columns, rows, form, watch, f"No nodes found in cluster {cluster}.")


async def _read_nodes(kube: KubeClient, names: list[str]) -> list[Json]:
    """Whole objects; those of a list come without apiVersion and kind."""
    found = [await kube.node(n) for n in names] if names else await kube.nodes()
    return [{"apiVersion": "v1", "kind": "Node", **n} for n in found]


def _node_row(node: Json) -> Row:
    from resources.names import MACHINE_NAME_LABEL
    from starter.output import age

    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    addresses = status.get("addresses") or []
    taints = [f"{t['key']}:{t['effect']}" for t in spec.get("taints") or []]
    cells = (
        metadata["name"],
        _node_status(spec, status),
        (metadata.get("labels") or {}).get(MACHINE_NAME_LABEL, ""),
        age(datetime.now(UTC) - created),
        (status.get("nodeInfo") or {}).get("kubeletVersion", ""),
        next((a["address"] for a in addresses if a.get("type") == "InternalIP"), ""),
        spec.get("providerID", ""),
        ",".join(taints),
    )
    return Row(metadata["name"], dict(zip(NODE_WIDE, cells, strict=True)))


def _node_status(spec: Json, status: Json) -> str:
    """As kubectl: Ready, NotReady or Unknown, and SchedulingDisabled after a cordon."""
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    words = {"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if status.get("conditions") else "Unknown")
    return f"{words},SchedulingDisabled" if spec.get("unschedulable") else words


# -- printing ---------------------------------------------------------------------------------------------------------


async def _print_objects(objects: list[dict[str, Any]], form: Form, *, single: bool) -> None:
    from starter.output import dump

    typer.echo(dump(objects, form, single=single and bool(objects)))


async def _print_rows(
    kind: str,
    columns: tuple[str, ...],
    fetch: Callable[[], Awaitable[list[Row]]],
    form: Form,
    watch: bool,
    nothing: str,
) -> None:
    from starter.output import Table

    table = Table(columns)

    def show(rows: list[Row], header: bool) -> None:
        if form is Form.NAME:
            lines = [f"{kind}/{r.name}" for r in rows]
        else:
            lines = table.lines([[r.cells[c] for c in columns] for r in rows], header=header)
        if lines:
            typer.echo("\n".join(lines))

    rows = await fetch()
    if not rows:
        typer.echo(nothing, err=True)
    if rows or watch:
        show(rows, header=True)
    seen = {r.name: r for r in rows}
    while watch:
        await asyncio.sleep(INTERVAL)
        seen = await _changes(fetch, columns[1], seen, show)


async def _changes(
    fetch: Callable[[], Awaitable[list[Row]]],
    state: str,
    seen: dict[str, Row],
    show: Callable[[list[Row], bool], None],
) -> dict[str, Row]:
    """Prints what is new, changed or gone since `seen`, and answers with what is there now."""
    from starter.errors import NotFound

    try:
        now = {r.name: r for r in await fetch()}
    except NotFound:
        now = {}  # the one that was named is gone
    changed = [r for name, r in now.items() if name not in seen or r.facts() != seen[name].facts()]
    gone = [Row(r.name, {**r.cells, state: "Gone"}) for name, r in seen.items() if name not in now]
    if changed or gone:
        show(changed + gone, False)
    return now
