"""All about one object of the machine configs: what it has, whom it is for, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planners.machine_config import objects as of
from planners.machine_config.objects import ConfigSelectorError
from resources.machine_config.keys import (
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.machine_config.node import ConfigNode
from starter.sdk.machine_config.objects import ConfigObjects
from starter.sdk.results import Json

FEW = 5
"""Names that are enough for a message."""


@dataclass(frozen=True)
class ConfigDescription:
    """A MachineConfig, a KubeletConfig or a ControllerConfig."""

    cluster: str
    kind: ConfigKind
    whole: Json
    """The object as the API server has it."""
    pools: tuple[str, ...] = ()
    """MachineConfigPools that select it, or that it selects; of a rendered config, those whose nodes are to have it."""
    made: tuple[str, ...] = ()
    """MachineConfigs that Hostler has made of it."""
    having: tuple[str, ...] = ()
    """The nodes that have it, of a rendered config."""
    getting: tuple[str, ...] = ()
    """The nodes that are to have it and have not yet, of a rendered config."""

    @property
    def name(self) -> str:
        return of.name_of(self.whole)


async def describe(objects: ConfigObjects, kind: ConfigKind, name: str) -> ConfigDescription:
    """Raises NotFound, with the name that may be meant."""
    found = await objects.get(kind, name)
    pools = await objects.every(MACHINE_CONFIG_POOL)
    if kind == MACHINE_CONFIG and of.is_rendered(found):
        nodes = await objects.nodes(set())
        having = tuple(sorted(n.name for n in nodes if n.current == name))
        getting = tuple(sorted(n.name for n in nodes if n.desired == name != n.current))
        return ConfigDescription(objects.cluster, kind, found, targets(pools, name), having=having, getting=getting)
    if kind == MACHINE_CONFIG:
        return ConfigDescription(objects.cluster, kind, found, selecting(pools, found))
    made = tuple(of.name_of(c) for c in await objects.every(MACHINE_CONFIG) if _made_of(c, kind, found))
    chosen = selected_by(found, pools) if kind == KUBELET_CONFIG else ()
    return ConfigDescription(objects.cluster, kind, found, chosen, made)


def targets(pools: Iterable[Json], config: str) -> tuple[str, ...]:
    """The pools whose nodes are to have a rendered config."""
    return tuple(sorted(of.name_of(p) for p in pools if target_of(p) == config))


def target_of(pool: Json) -> str:
    """The rendered config that a pool's nodes are to have; "": none."""
    return str((of.spec_of(pool).get("configuration") or {}).get("name") or "")


def selecting(pools: Iterable[Json], config: Json) -> tuple[str, ...]:
    """The pools that select a MachineConfig."""

    def selects(pool: Json) -> bool:
        try:
            return bool(of.selected(of.selector_at(pool, "machineConfigSelector"), [config]))
        except ConfigSelectorError:  # its pool says so
            return False

    return tuple(sorted(of.name_of(p) for p in pools if selects(p)))


def selected_by(config: Json, pools: Iterable[Json]) -> tuple[str, ...]:
    """The pools that a KubeletConfig selects."""
    try:
        found = of.selected(of.selector_at(config, "machineConfigPoolSelector"), pools)
    except ConfigSelectorError:  # its condition says so
        return ()
    return tuple(sorted(of.name_of(p) for p in found))


def _made_of(config: Json, kind: ConfigKind, owner: Json) -> bool:
    found = of.owner_of(config, kind)
    return found is not None and found.get("uid") == of.uid_of(owner)


def maker_of(config: Json) -> str:
    """What Hostler makes a MachineConfig of: `KubeletConfig x`; "" where a person has written it."""
    for kind in (CONTROLLER_CONFIG, KUBELET_CONFIG, MACHINE_CONFIG_POOL):
        if (owner := of.owner_of(config, kind)) is not None:
            return f"{kind.kind} {owner.get('name')}"
    return ""


def nodes_of(names: Sequence[str]) -> str:
    """`1 node (a)`, `7 nodes (a, b, c, d, e, …)`."""
    return f"{len(names)} node{'' if len(names) == 1 else 's'} ({few(names)})" if names else "no nodes"


def few(names: Sequence[str]) -> str:
    return ", ".join([*names[:FEW], *(["…"] if len(names) > FEW else [])])


def holders(nodes: Iterable[ConfigNode], config: str) -> list[str]:
    """The nodes that have a rendered config, or are to have it."""
    return sorted(n.name for n in nodes if config in (n.current, n.desired))
