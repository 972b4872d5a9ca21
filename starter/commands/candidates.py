"""Shell completion: what may come next on a command line. Silent, and quick to give up, when nobody can be asked.

The scripts of `hostler completion SHELL` call `hostler __complete -- WORD...` with the words up to the cursor, the last
of them unfinished (as cobra's programs do, kubectl among them), and get a line `candidate<TAB>help` for each.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from starter.commands.kinds import (
    ALIASES,
    CLASS,
    CLUSTER,
    CONFIG_OBJECTS,
    CONFIG_POOL,
    CONTROL_PLANE,
    MACHINE,
    NODE,
    ONLY,
    POOL,
    ROLLOUT,
    SHORT,
    WORKER_POOL,
)

if TYPE_CHECKING:
    from resources.settings import Settings

Candidates = list[tuple[str, str]]
"""Words that may come next, each with a few words of help."""

PATIENCE = 2.0
"""Seconds for asking Temporal or a cluster; a person at a prompt does not wait longer."""
MOST = 200
"""Names offered; nobody reads more."""
FILES = (":files", "")
"""In place of a candidate: file names may stand there, which the shell knows better."""
FILE_PARAMETERS = frozenset({"files", "settings", "directory", "kubeconfig"})
_BEGINNING = re.compile(r"[-a-z0-9.]*")


def candidates(root: Any, words: Sequence[str]) -> Candidates:
    """What may take the place of the last word. `root` is the whole command; whatever goes wrong yields none."""
    # Typer has click inside it and no public access to this part.
    from typer._click.shell_completion import _resolve_context, _resolve_incomplete

    *before, last = words or [""]
    try:
        ctx = _resolve_context(root, {}, "hostler", before)
        asked, incomplete = _resolve_incomplete(ctx, before, last)
        found = [(str(item.value), item.help or "") for item in asked.shell_complete(ctx, incomplete)]
    except Exception:  # at a prompt, an error message would stand in the middle of the line
        return []
    if not found and asked.name in FILE_PARAMETERS and asked is not ctx.command:
        return [FILES]
    # `--for=phase=R` is one word to the shells, and two to click.
    option = last[: len(last) - len(incomplete)] if last.startswith("-") and "=" in last else ""
    return [(option + value, " ".join(help.split())) for value, help in found]


# -- what stands in one place -----------------------------------------------------------------------------------------


def kinds(*words: str) -> Callable[[typer.Context, str], Candidates]:
    """The completion of a KIND argument that takes these words, and of `machine/NAME` in its place."""

    def complete(ctx: typer.Context, incomplete: str) -> Candidates:
        word, slash, beginning = incomplete.partition("/")
        if not slash:
            return [(w, "") for w in words]
        return [(f"{word}/{name}", help) for name, help in _names(ctx, word, beginning)]

    return complete


def names(ctx: typer.Context, incomplete: str) -> Candidates:
    """Names of the kind that stands before, without those that are there already."""
    given = ctx.params.get("names") or ()
    return [c for c in _names(ctx, ctx.params.get("kind") or "", incomplete) if c[0] not in given]


def clusters(ctx: typer.Context, incomplete: str) -> Candidates:
    """The clusters of the settings."""
    settings = _settings(ctx)
    return [(name, "") for name in sorted({*settings.clusters, settings.default_cluster})]


def goals(ctx: typer.Context, incomplete: str) -> Candidates:
    """The goals that may be waited for."""
    from resources.machine.state import Phase

    # An option whose value is still missing keeps click from giving the words before it their places.
    kind = ctx.params.get("kind") or next(iter(ctx.args), "")
    which = ALIASES.get(kind.partition("/")[0])
    if which == CONFIG_POOL:
        return [("updated", "every node has the pool's config")]
    if which in (POOL, WORKER_POOL, CONTROL_PLANE):
        return [
            ("rolled-out", "all machines are of the newest revision, and available"),
            ("ready", "as many machines as replicas are available"),
            ("deleted", "it is gone"),
        ]
    return [("deleted", "it is gone"), *((f"phase={p}", "") for p in Phase)]


def fields(ctx: typer.Context, incomplete: str) -> Candidates:
    """The fields of `explain`: a kind, then a field after each dot; of a provider spec, those of every provider unless
    one is named."""
    from resources.clouds import PROVIDERS
    from starter.commands.explaining import ROOTS, explain
    from starter.sdk.errors import NotFound

    path, dot, _ = incomplete.rpartition(".")
    if not dot:
        return [(kind.lower(), "") for kind in ROOTS]
    named = ctx.params.get("provider")
    found: dict[str, str] = {}
    for provider in [named] if named else sorted(PROVIDERS):
        with suppress(NotFound):
            found |= {f"{path}.{f.name}": f"<{f.type_name}>" for f in explain(path, provider).fields}
    return list(found.items())


def providers(ctx: typer.Context, incomplete: str) -> Candidates:
    from resources.clouds import PROVIDERS

    return [(name, "") for name in sorted(PROVIDERS)]


def _names(ctx: typer.Context, kind: str, beginning: str) -> Candidates:
    import asyncio

    which = ALIASES.get(kind)
    if which == CLUSTER:
        return clusters(ctx, beginning)
    if which in ONLY:
        return [(ONLY[which], "")]
    with_names = (MACHINE, POOL, WORKER_POOL, ROLLOUT, CLASS, NODE, CONFIG_POOL, *CONFIG_OBJECTS)
    if which not in with_names or not _BEGINNING.fullmatch(beginning):
        return []
    settings = _settings(ctx)
    cluster = _given(ctx, "cluster") or settings.default_cluster
    ask: dict[str, Callable[[Settings, str, str], Awaitable[Candidates]]] = {
        MACHINE: _machines,
        POOL: _pools,
        WORKER_POOL: _worker_pools,
        ROLLOUT: _pools,
        CLASS: _classes,
        NODE: _nodes,
        CONFIG_POOL: _config_pools,
        **{of: partial(_config_objects, of) for of in CONFIG_OBJECTS},
    }
    return asyncio.run(asyncio.wait_for(ask[which](settings, cluster, beginning), PATIENCE))


async def _machines(settings: Settings, cluster: str, beginning: str) -> Candidates:
    from resources.attributes import PHASE
    from resources.names import machine_id
    from starter.sdk.client import HostlerClient
    from starter.sdk.machines.records import machines_of

    async with HostlerClient.connect(settings) as client:
        query = f"{machines_of(cluster)} AND WorkflowId STARTS_WITH '{machine_id(cluster, beginning)}'"
        found = [e async for e in client.temporal.list_workflows(query, limit=MOST)]
    return _sorted((e.id.rsplit("/", 1)[-1], e.typed_search_attributes.get(PHASE, "")) for e in found)


async def _worker_pools(settings: Settings, cluster: str, beginning: str) -> Candidates:
    from starter.sdk.client import HostlerClient

    async with HostlerClient.connect(settings, cluster=cluster) as client:
        found = await client.worker_pools.list()
    return _sorted((of.name, f"{len(of.zones)} zones") for of in found if of.name.startswith(beginning))


async def _classes(settings: Settings, cluster: str, beginning: str) -> Candidates:
    from resources.names import class_id

    return await _workflows(settings, "MachineClassWorkflow", class_id(cluster, beginning))


async def _pools(settings: Settings, cluster: str, beginning: str) -> Candidates:
    from resources.names import pool_id

    return await _workflows(settings, "MachineDeploymentWorkflow", pool_id(cluster, beginning))


async def _config_pools(settings: Settings, cluster: str, beginning: str) -> Candidates:
    from resources.names import config_pool_id

    return await _workflows(settings, "MachineConfigPoolWorkflow", config_pool_id(cluster, beginning))


async def _config_objects(which: str, settings: Settings, cluster: str, beginning: str) -> Candidates:
    from resources.machine_config.keys import kind_called
    from starter.sdk.machine_config.objects import config_objects

    async with config_objects(settings, cluster) as objects:
        names = [str(found["metadata"]["name"]) for found in await objects.every(kind_called(which))]
    return _sorted((name, "") for name in names if name.startswith(beginning))


async def _workflows(settings: Settings, kind: str, beginning: str) -> Candidates:
    """Names and phases, found by the beginning of the workflow's id."""
    from resources.attributes import PHASE
    from starter.sdk.client import HostlerClient

    async with HostlerClient.connect(settings) as client:
        query = f"WorkflowType='{kind}' AND ExecutionStatus='Running' AND WorkflowId STARTS_WITH '{beginning}'"
        found = [e async for e in client.temporal.list_workflows(query, limit=MOST)]
    return _sorted((e.id.rsplit("/", 1)[-1], e.typed_search_attributes.get(PHASE, "")) for e in found)


def class_names(ctx: typer.Context, incomplete: str) -> Candidates:
    """Classes, where only a class may stand."""
    return _names(ctx, "class", incomplete)


def pool_names(ctx: typer.Context, incomplete: str) -> Candidates:
    """Pools, where only a pool may stand."""
    return _names(ctx, "pool", incomplete)


def owner_names(ctx: typer.Context, incomplete: str) -> Candidates:
    """Pools, the word for the control plane, and config pools after `mcp/`."""
    kind, slash, beginning = incomplete.partition("/")
    if slash:
        return [(f"{kind}/{name}", help) for name, help in _names(ctx, kind, beginning)]
    word = SHORT[CONTROL_PLANE]
    itself = [(word, "the cluster's control plane")] if word.startswith(incomplete) else []
    return itself + pool_names(ctx, incomplete)


def machine_names(ctx: typer.Context, incomplete: str) -> Candidates:
    """Machines, where only a machine may stand."""
    return _names(ctx, "machine", incomplete)


def machines_and_nodes(ctx: typer.Context, incomplete: str) -> Candidates:
    """Completes where a machine or a node may stand: machines, with their nodes as help; nodes after `node/`. Without
    those that are there already."""
    word, slash, beginning = incomplete.partition("/")
    if slash:
        return [(f"{word}/{name}", help) for name, help in _names(ctx, word, beginning)]
    given = ctx.params.get("targets") or ()
    kind = given[0] if given and given[0] in ("machine", "node") else "machine"
    return [c for c in _names(ctx, kind, incomplete) if c[0] not in given]


async def _nodes(settings: Settings, cluster: str, beginning: str) -> Candidates:
    from activities.kube.looks import every_node
    from starter.sdk.kube import connect_cluster

    async with connect_cluster(settings, cluster) as kube:
        return _sorted([(n["metadata"]["name"], "") async for n in every_node(kube)])


def _sorted(found: Iterable[tuple[str, str]]) -> Candidates:
    return sorted(found)[:MOST]


def _settings(ctx: typer.Context) -> Settings:
    from resources.settings import load_settings

    return load_settings(_given(ctx, "settings"))


def _given(ctx: Any, name: str) -> Any:
    """The value of an option that stands after the command or before it."""
    while ctx is not None:
        if value := ctx.params.get(name):
            return value
        ctx = ctx.parent
    return None
