"""What the deletion of an object of the machine configs means: it is played through before anything is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from planners.machine_config import membership
from planners.machine_config.objects import changed, is_rendered, meta, name_of, spec_of, status_of
from planners.machine_config.picture import Picture, RenderOptions, deleted
from planners.machine_config.rehearsal import Settled, applied, objects_of, settled
from resources.machine_config.keys import (
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.machine_config.node import ConfigNode
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.templates import TemplatesError, folder, shipped
from resources.settings import Settings
from starter.sdk.errors import Refused
from starter.sdk.machine_config.description import holders, maker_of, nodes_of, selected_by, selecting, target_of
from starter.sdk.machine_config.objects import ConfigObjects, readable
from starter.sdk.machine_config.rendering import options_of
from starter.sdk.results import Json

BASE_POOLS = (*membership.MASTERS, membership.WORKER)
"""Pools in which nodes are that no other one has."""


@dataclass(frozen=True)
class DeletionView:
    """A cluster's machine configs and nodes, at one look."""

    cluster: str
    picture: Picture
    nodes: Sequence[ConfigNode]
    machines: Mapping[str, str]
    """Which pools select a machine, by its name, with commas."""

    @property
    def pools(self) -> list[MachineConfigPool]:
        return [readable(MachineConfigPool, dict(pool)) for pool in self.picture.pools]


async def look(objects: ConfigObjects, settings: Settings, machines: Mapping[str, str]) -> DeletionView:
    """Reads what the deletion of anything depends on. Raises Refused where the templates cannot be read here."""
    pools = await objects.every(MACHINE_CONFIG_POOL)
    given = objects.settings
    try:
        templates = folder(settings.path(given.templates)) if given is not None and given.templates else shipped()
    except TemplatesError as e:
        raise Refused(f"what the deletion means cannot be reckoned: {e}") from None
    picture = Picture(
        configs=await objects.every(MACHINE_CONFIG),
        pools=pools,
        kubelet_configs=await objects.every(KUBELET_CONFIG),
        controller_configs=await objects.every(CONTROLLER_CONFIG),
        templates=templates,
        named=None,
    )
    keys = set(membership.label_keys([readable(MachineConfigPool, pool) for pool in pools]))
    return DeletionView(objects.cluster, picture, await objects.nodes(keys), machines)


def meant(view: DeletionView, options: RenderOptions, kind: ConfigKind, found: Json, now: datetime) -> list[str]:
    """What comes of the deletion, in lines. Raises Refused where it would be undone at once, or takes from nodes what
    their daemons need."""
    if why := refusal(view, kind, found):
        raise Refused(f"{kind.singular} {name_of(found)} is not deleted: {why}")
    before = settled(replace(view.picture, pools=[resumed(pool) for pool in view.picture.pools]), options, now)
    there = next(o for o in objects_of(before.picture, kind) if name_of(o) == name_of(found))
    after = settled(applied(before.picture, deleted(kind, there, "it is deleted"), now), options, now)
    return [*_chosen(view, kind, found), *_nodes(view, before, after)]


def resumed(pool: Mapping[str, Any]) -> Json:
    """A paused pool as it will be once it is rendered again: a deletion has its meaning only then."""
    return changed(pool, spec={"paused": False})


def refusal(view: DeletionView, kind: ConfigKind, found: Json) -> str:
    """Why nobody should delete it, and what to do instead; "" where one may."""
    name = name_of(found)
    if kind == MACHINE_CONFIG_POOL:
        mine = [n.name for n in view.nodes if membership.pool_of(n, view.pools, view.machines)[0] == name]
        if name in BASE_POOLS and mine:
            return f"{nodes_of(mine)} would be in no pool then; `hostler rollout pause mcp/{name}` holds it up"
        return ""
    if kind != MACHINE_CONFIG:
        return ""
    if is_rendered(found):
        return _rendered_refusal(view, name)
    if maker := maker_of(found):
        return f"it is made of {maker}, and would be made again at once: change or delete that"
    return ""


def _rendered_refusal(view: DeletionView, name: str) -> str:
    having = holders(view.nodes, name)
    users = [name_of(pool) for pool in view.picture.pools if name in _configs_of(pool)]
    if not having and not users:
        return ""
    who = " and ".join(
        words
        for words in (
            f"pool {', '.join(users)}" if users else "",
            nodes_of(having) if having else "",
        )
        if words
    )
    return f"{who} need it, and daemons read it; Hostler deletes it on its own when nobody needs it any more"


def _configs_of(pool: Mapping[str, object]) -> set[str]:
    parts = ((part(pool).get("configuration") or {}).get("name") or "" for part in (spec_of, status_of))
    return {*parts, str(status_of(pool).get("currentMachineConfig") or "")}


def _chosen(view: DeletionView, kind: ConfigKind, found: Json) -> list[str]:
    pools = [dict(pool) for pool in view.picture.pools]
    if kind == MACHINE_CONFIG and not is_rendered(found):
        chosen = selecting(pools, found)
        return [f"selected by pool {', '.join(chosen)}" if chosen else "no pool selects it"]
    if kind == KUBELET_CONFIG:
        chosen = selected_by(found, pools)
        return [f"it is for pool {', '.join(chosen)}" if chosen else "it is for no pool"]
    return []


def _nodes(view: DeletionView, before: Settled, after: Settled) -> list[str]:
    """What each pool's nodes are given."""
    lines = []
    pools = {name_of(pool): readable(MachineConfigPool, dict(pool)) for pool in after.picture.pools}
    paused = {pool.name for pool in view.pools if pool.spec.paused}
    former = {name_of(pool): target_of(dict(pool)) for pool in before.picture.pools}
    homes = {n.name: membership.pool_of(n, pools.values(), view.machines)[0] for n in view.nodes}
    were = {n.name: membership.pool_of(n, view.pools, view.machines)[0] for n in view.nodes}
    for name, pool in sorted(pools.items()):
        target, mine = pool.spec.configuration.name, [n for n in view.nodes if homes[n.name] == name]
        moved = [n for n in mine if were[n.name] != name]
        troubles = [t for t in after.troubles if t.kind == MACHINE_CONFIG_POOL and t.name == name]
        if troubles and troubles[0] not in before.troubles:
            lines.append(f"pool {name} keeps its config: {troubles[0].reason}: {troubles[0].message}")
        elif target != former.get(name) or moved:
            lines.append(_of_pool(pool, name in paused, mine, moved))
    if lost := [n.name for n in view.nodes if were[n.name] and not homes[n.name]]:
        lines.append(f"{nodes_of(sorted(lost))} in no pool then, with the config that they have")
    others = [t for t in after.troubles if t.kind != MACHINE_CONFIG_POOL and t not in before.troubles]
    lines += [f"{t.kind.kind} {t.name}: {t.reason}: {t.message}" for t in others]
    return lines or ["no node is updated"]


def _of_pool(pool: MachineConfigPool, paused: bool, mine: Sequence[ConfigNode], moved: Sequence[ConfigNode]) -> str:
    target = pool.spec.configuration.name
    come = f"it gets {nodes_of([n.name for n in moved])}; " if moved else ""
    due = [n for n in mine if (n.current, n.desired) != (target, target)]
    held = " once it is resumed (it is paused)" if paused else ""
    most = "1" if pool.spec.max_unavailable is None else str(pool.spec.max_unavailable)
    of = f"{len(due)} of {len(mine)} node{'' if len(mine) == 1 else 's'}"
    return f"pool {pool.name}: {come}{of} updated to {target or 'no config'}{held}, at most {most} at a time"


async def foretell(
    objects: ConfigObjects, settings: Settings, kind: ConfigKind, name: str, machines: Mapping[str, str]
) -> list[str]:
    """What the deletion of an object means. Raises NotFound, Refused."""
    found = await objects.get(kind, name)
    if meta(found).get("deletionTimestamp"):
        return ["is being deleted already"]
    view = await look(objects, settings, machines)
    return meant(view, options_of(objects.settings), kind, found, datetime.now(UTC))
