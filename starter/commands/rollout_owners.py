"""Whose rollouts `hostler rollout` is about: pools, those of a worker pool's zones, the control plane, config pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates, fleets
from starter.commands.kinds import ALIASES, CONFIG_POOL, CONTROL_PLANE, ONLY, POOL, SHORT, WORKER_POOL

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

ITSELF = (SHORT[CONTROL_PLANE], CONTROL_PLANE)
"""Words that mean the cluster's control plane; a pool of that name is pool/NAME."""
OwnersArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="POOL",
        help="p1, pool/p1 or machinedeployment/p1; workerpool/w1 for those of its zones; controlplane; or mcp/worker.",
        show_default=False,
        autocompletion=candidates.owner_names,
    ),
]
PoolsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="POOL",
        help="p1, pool/p1 or machinedeployment/p1; workerpool/w1 for those of its zones.",
        show_default=False,
        autocompletion=candidates.pool_names,
    ),
]


def owners(words: list[str] | None) -> list[tuple[str, str]]:
    """Kinds and names, from `p1 p2`, `pool/p1`, `pool p1`, `workerpool/w1`, `controlplane`. Raises a usage error."""
    words = list(words or [])
    if len(words) > 1 and ALIASES.get(words[0]) == POOL:
        words = words[1:]
    return [_owner(word) for word in words]


def _owner(word: str) -> tuple[str, str]:
    if word in ITSELF:
        return CONTROL_PLANE, ONLY[CONTROL_PLANE]
    kind, slash, name = word.rpartition("/")
    of = ALIASES.get(kind) if slash else POOL
    if of is None or of not in (*fleets.KINDS, WORKER_POOL, CONFIG_POOL):
        raise typer.BadParameter(
            f"{word!r}: only pools, the control plane and config pools have rollouts; write pool/{name or 'NAME'}, "
            f"controlplane, or mcp/{name or 'NAME'}"
        )
    if not name:
        raise typer.BadParameter(f"{word!r} has no name; write pool/NAME or NAME")
    return of, name


def some_owners(words: list[str] | None, verb: str = "") -> list[tuple[str, str]]:
    """`verb`: a command that config pools do not have."""
    if not (found := owners(words)):
        raise typer.BadParameter("give a pool or the control plane: POOL, pool/POOL or controlplane")
    if verb and any(kind == CONFIG_POOL for kind, _ in found):
        raise typer.BadParameter(f"{verb}: a config pool goes back when its MachineConfigs do: hostler apply -f FILE")
    return found


def some_pools(words: list[str] | None, verb: str) -> list[tuple[str, str]]:
    found = some_owners(words)
    if any(kind in (CONTROL_PLANE, CONFIG_POOL) for kind, _ in found):
        raise typer.BadParameter(f"{verb} is for pools: rollout {verb} POOL")
    return found


async def by_zone(client: HostlerClient, given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, with the pools of its zones in place of a worker pool."""
    found: list[tuple[str, str]] = []
    for kind, name in given:
        zones = (await client.worker_pools.get(name)).zones if kind == WORKER_POOL else ()
        found += [(POOL, zone.name) for zone in zones] or [(kind, name)]
    return list(dict.fromkeys(found))


def label(kind: str, name: str) -> str:
    return fleets.label(SHORT[kind] if kind == CONFIG_POOL else kind, name)
