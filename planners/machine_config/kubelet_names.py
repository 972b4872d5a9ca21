"""How the MachineConfigs of KubeletConfigs are called: `99-<pool>-kubelet-managed` for a pool's first (seed 004), then
with `-1` to `-9`. The later one wins by name, so the newest KubeletConfig has the highest number.

A name is given once and for ever: it stands on the KubeletConfig, since a MachineConfig may be deleted by hand, and two
that are made again in another order would change which one wins (upstream's BZ2041814 and BZ2076355).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from planners.machine_config.objects import Obj, annotations_of, created_at, name_of, owner_of, role_of, uid_of
from resources.machine_config.keys import KUBELET_CONFIG, KUBELET_NAMES

MOST = 10
"""More would not sort by name: -10 comes before -2."""
_FURTHER = tuple(str(n) for n in range(1, MOST))


def name_for(pool: str, number: int) -> str:
    return f"99-{pool}-kubelet-managed" + (f"-{number}" if number else "")


def number_of(pool: str, name: str) -> int | None:
    """Which of the pool's it is, from 0; None if it is none."""
    first = name_for(pool, 0)
    if name == first:
        return 0
    number = name.removeprefix(f"{first}-") if name.startswith(f"{first}-") else ""
    return int(number) if number in _FURTHER else None


def in_order(configs: Iterable[Obj]) -> list[Obj]:
    """KubeletConfigs, oldest first."""
    return sorted(configs, key=lambda c: (created_at(c), name_of(c)))


def said_names(config: Obj) -> dict[str, str]:
    """The names by pool that stand on a KubeletConfig; without those that no one has given."""
    try:
        found = json.loads(annotations_of(config).get(KUBELET_NAMES, "{}"))
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {p: n for p, n in found.items() if isinstance(n, str) and number_of(p, n) is not None}


Names = dict[str, dict[str, str]]
"""MachineConfigs' names by uid of the KubeletConfig, then by pool."""


def assigned(wanted: Mapping[str, Sequence[str]], kubelet_configs: Sequence[Obj], configs: Sequence[Obj]) -> Names:
    """The names, also those that are new. `wanted`: the pools by uid of the KubeletConfig. A pool that has MOST already
    gets no more; it is missing then."""
    names: Names = {uid: {} for uid in wanted}
    held: dict[str, set[int]] = defaultdict(set)
    alive = {uid_of(k) for k in kubelet_configs}
    everyone = in_order(kubelet_configs)
    for kubelet_config in everyone:
        uid = uid_of(kubelet_config)
        for pool, name in (_made_names(uid, configs) | said_names(kubelet_config)).items():
            number = number_of(pool, name)
            if pool not in wanted.get(uid, ()) or number is None or number in held[pool]:
                continue  # not wanted any more, or a copy of another one's
            names[uid][pool] = name
            held[pool].add(number)
    for pool in {p for pools in wanted.values() for p in pools}:
        held[pool] |= _taken(pool, configs, alive)
    for place, kubelet_config in enumerate(everyone):
        uid = uid_of(kubelet_config)
        for pool in (p for p in wanted.get(uid, ()) if p not in names[uid]):
            older = _numbers(pool, everyone[:place], names)
            newer = _numbers(pool, everyone[place + 1 :], names)
            if (number := _free(held[pool], older, newer)) is not None:
                names[uid][pool] = name_for(pool, number)
                held[pool].add(number)
    return names


def _numbers(pool: str, kubelet_configs: Sequence[Obj], names: Names) -> list[int]:
    having = (names.get(uid_of(k), {}).get(pool) for k in kubelet_configs)
    return [n for name in having if name and (n := number_of(pool, name)) is not None]


def _free(held: set[int], older: Sequence[int], newer: Sequence[int]) -> int | None:
    """A number after all older ones: before the newer ones, of which one may have been written while another write
    failed, or else the last."""
    between = range(max(older, default=-1) + 1, min(newer, default=MOST))
    last = max(held, default=-1) + 1
    return next((n for n in between if n not in held), last if last < MOST else None)


def _made_names(uid: str, configs: Sequence[Obj]) -> dict[str, str]:
    """The names of what a KubeletConfig has made, should its annotation be lost (M-K07)."""
    mine = [c for c in configs if (o := owner_of(c, KUBELET_CONFIG)) is not None and o.get("uid") == uid]
    return {role_of(c): name_of(c) for c in mine if number_of(role_of(c), name_of(c)) is not None}


def _taken(pool: str, configs: Sequence[Obj], alive: set[str]) -> set[int]:
    """Numbers that MachineConfigs have, a person's too; without those of KubeletConfigs that are gone."""
    found = set()
    for config in configs:
        owner, number = owner_of(config, KUBELET_CONFIG), number_of(pool, name_of(config))
        if number is not None and (owner is None or owner.get("uid") in alive):
            found.add(number)
    return found
