"""Which rendered configs are deleted: old ones that nobody names any more.

Upstream never deletes one. A node's daemon must find the config that the node has, and the one that it is to have; so
what a Node or a pool names stays, the newest ones stay for a way back, and so does whatever is younger than an hour: a
Node may have been given it since the Nodes were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from planners.machine_config.objects import (
    Obj,
    created_at,
    is_deleting,
    is_generated,
    name_of,
    owner_of,
    spec_of,
    status_of,
)
from planners.machine_config.picture import ConfigChanges, Picture, RenderOptions, deleted
from resources.machine_config.keys import MACHINE_CONFIG, MACHINE_CONFIG_POOL, RENDERED_PREFIX

YOUNG = timedelta(hours=1)


def named_by_pools(pools: Iterable[Obj]) -> set[str]:
    """The rendered configs that pools are to have, had last, or tell people of."""
    found = set()
    for pool in pools:
        found.add((spec_of(pool).get("configuration") or {}).get("name") or "")
        found.add((status_of(pool).get("configuration") or {}).get("name") or "")
        found.add(status_of(pool).get("currentMachineConfig") or "")
    return found - {""}


def collect(picture: Picture, options: RenderOptions, now: datetime) -> ConfigChanges:
    if picture.named is None:
        return ConfigChanges()
    kept = picture.named | named_by_pools(picture.pools)
    unused: dict[str, list[Obj]] = defaultdict(list)
    for config in picture.configs:
        owner = owner_of(config, MACHINE_CONFIG_POOL)
        ours = owner is not None and is_generated(config) and name_of(config).startswith(RENDERED_PREFIX)
        if owner and ours and name_of(config) not in kept and not is_deleting(config):
            unused[str(owner.get("name"))].append(config)
    going = []
    for pool in sorted(unused):
        newest_first = sorted(unused[pool], key=lambda c: (created_at(c), name_of(c)), reverse=True)
        old = [c for c in newest_first[options.keep_rendered :] if created_at(c) <= now - YOUNG]
        words = f"no node and no pool names it, and {options.keep_rendered} newer ones of pool {pool} are kept"
        going += [deleted(MACHINE_CONFIG, c, words) for c in old]
    return ConfigChanges(tuple(going))
