"""The kubelet config controller: each KubeletConfig becomes a MachineConfig for every pool that it selects.

Everything is reckoned anew from the objects that there are: a pool that is made or labelled later is found, one that is
not selected any more loses its MachineConfig, and a KubeletConfig that goes takes its own along before it is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from planners.machine_config.kubelet_chain import Link, links, overridden_by
from planners.machine_config.kubelet_merge import ignition_of
from planners.machine_config.kubelet_names import MOST, assigned, in_order
from planners.machine_config.kubelet_rules import problems
from planners.machine_config.objects import (
    ConfigSelectorError,
    Obj,
    annotations_of,
    changed,
    copied,
    generation_of,
    is_deleting,
    meta,
    name_of,
    owner_of,
    owner_reference,
    selected,
    selector_at,
    selects_all,
    spec_of,
    status_of,
    uid_of,
    with_conditions,
)
from planners.machine_config.owned import kept
from planners.machine_config.picture import (
    ConfigChange,
    ConfigChanges,
    ConfigEvent,
    Picture,
    RenderOptions,
    RenderTrouble,
    deleted,
    updated,
)
from resources.machine_config.keys import (
    API,
    GENERATED_BY,
    KUBELET_CONFIG,
    KUBELET_FINALIZER,
    KUBELET_NAMES,
    MACHINE_CONFIG,
    ROLE_LABEL,
)


class Acceptance(NamedTuple):
    """What is said of a KubeletConfig."""

    reason: str
    message: str

    @property
    def accepted(self) -> bool:
        return self.reason == "Rendered"


class Work(NamedTuple):
    """What all KubeletConfigs together ask for."""

    picture: Picture
    options: RenderOptions
    refused: Mapping[str, Acceptance]
    """Those that are wrong whatever pool they select, or select none, by uid."""
    pools: Mapping[str, list[str]]
    """The names of the pools that each selects, by uid."""
    names: Mapping[str, dict[str, str]]
    """The MachineConfigs' names, by uid and pool."""
    links: Mapping[str, Mapping[str, Link]]
    """The links of each pool's chain, by pool and uid."""


def plan(picture: Picture, options: RenderOptions, now: datetime) -> ConfigChanges:
    """What is to be done about KubeletConfigs: first their names, then their MachineConfigs, then what they say."""
    work = _work(picture, options)
    for step in (_names_written, _made):
        if changes := step(work):
            return ConfigChanges(tuple(changes))
    found = ConfigChanges()
    for config in in_order(_alive(picture)):
        verdict = _verdict(work, config)
        found += _told(config, verdict, now)
        if not verdict.accepted:
            trouble = RenderTrouble(KUBELET_CONFIG, name_of(config), verdict.reason, verdict.message)
            found += ConfigChanges(troubles=(trouble,))
    return found


def _alive(picture: Picture) -> list[Obj]:
    return [k for k in picture.kubelet_configs if not is_deleting(k)]


def _work(picture: Picture, options: RenderOptions) -> Work:
    refused: dict[str, Acceptance] = {}
    pools: dict[str, list[str]] = {}
    for config in _alive(picture):
        uid = uid_of(config)
        pools[uid], refusal = _pools_of(config, picture)
        if wrong := problems(config, options):
            refusal = Acceptance("Invalid", "; ".join(wrong))
        if refusal is not None:
            refused[uid] = refusal
    names = assigned(_worth_a_name(pools, refused, picture), _alive(picture), picture.configs)
    by_pool: dict[str, Mapping[str, Link]] = {}
    for pool in picture.pools:
        theirs = [
            (config, names[uid_of(config)][name_of(pool)], r.message if (r := refused.get(uid_of(config))) else "")
            for config in in_order(_alive(picture))
            if name_of(pool) in names.get(uid_of(config), {})
        ]
        by_pool[name_of(pool)] = links(pool, theirs, picture, options) if theirs else {}
    return Work(picture, options, refused, pools, names, by_pool)


def _worth_a_name(
    pools: Mapping[str, list[str]], refused: Mapping[str, Acceptance], picture: Picture
) -> dict[str, list[str]]:
    """The pools by uid for which there is, or was, something to render: one that has always been wrong needs no name
    yet."""
    had = {uid_of(k) for k in _alive(picture) if KUBELET_NAMES in annotations_of(k)}
    return {uid: names for uid, names in pools.items() if uid not in refused or uid in had}


def _pools_of(config: Obj, picture: Picture) -> tuple[list[str], Acceptance | None]:
    """The pools that a KubeletConfig selects, or why there are none."""
    pools = [p for p in picture.pools if not is_deleting(p)]
    try:
        selector = selector_at(config, "machineConfigPoolSelector")
    except ConfigSelectorError as e:
        return [], Acceptance("Invalid", str(e))
    field = "spec.machineConfigPoolSelector"
    if selector is None:
        return [], Acceptance("NoPool", f"{field} is missing, so no pool is selected; write labels that pools have")
    if selects_all(selector):
        return [], Acceptance("NoPool", f"{field} is {{}}, which would select every pool; write labels that pools have")
    found = sorted(name_of(p) for p in selected(selector, pools))
    if not found:
        return [], Acceptance("NoPool", f"{field} matches the labels of no MachineConfigPool; label one, or change it")
    return found, None


# -- names and finalizers ---------------------------------------------------------------------------------------------


def _names_written(work: Work) -> list[ConfigChange]:
    """Writes names on KubeletConfigs before anything has them, and our finalizer beside those of others."""
    found = []
    for config in _alive(work.picture):
        names = work.names.get(uid_of(config), {})
        if not names and KUBELET_NAMES not in annotations_of(config):
            continue
        written = json.dumps(names, sort_keys=True)
        finalizers = list(meta(config).get("finalizers") or ())
        if annotations_of(config).get(KUBELET_NAMES) == written and KUBELET_FINALIZER in finalizers:
            continue
        new = copied(config)
        new["metadata"]["annotations"] = {**annotations_of(config), KUBELET_NAMES: written}
        new["metadata"]["finalizers"] = list(dict.fromkeys([*finalizers, KUBELET_FINALIZER]))
        found.append(updated(KUBELET_CONFIG, config, new, "the names of its MachineConfigs"))
    return found


# -- MachineConfigs ---------------------------------------------------------------------------------------------------


def _made(work: Work) -> list[ConfigChange]:
    """Makes, restores and deletes MachineConfigs, and lets KubeletConfigs go that have none any more."""
    changes, configs = [], work.picture.configs
    by_uid = {uid_of(k): k for k in _alive(work.picture)}
    for pool, theirs in work.links.items():
        for uid, link in theirs.items():
            if link.conf is not None and (change := kept(_config(work, by_uid[uid], pool, link), configs)):
                changes.append(change)
    wanted = {link.name for theirs in work.links.values() for link in theirs.values()}
    going = [c for c in configs if owner_of(c, KUBELET_CONFIG) is not None and name_of(c) not in wanted]
    for config in going:
        if not is_deleting(config):
            changes.append(deleted(MACHINE_CONFIG, config, "no KubeletConfig asks for it any more"))
    held = {str((owner_of(c, KUBELET_CONFIG) or {}).get("uid")) for c in configs}
    for leaving in work.picture.kubelet_configs:
        ours = KUBELET_FINALIZER in (meta(leaving).get("finalizers") or ())
        if is_deleting(leaving) and ours and uid_of(leaving) not in held:
            new = copied(leaving)
            new["metadata"]["finalizers"] = [f for f in new["metadata"]["finalizers"] if f != KUBELET_FINALIZER]
            changes.append(updated(KUBELET_CONFIG, leaving, new, "its MachineConfigs are gone"))
    return changes


def _config(work: Work, config: Obj, pool: str, link: Link) -> dict[str, Any]:
    spec = spec_of(config)
    assert link.conf is not None
    return {
        "apiVersion": API,
        "kind": MACHINE_CONFIG.kind,
        "metadata": {
            "name": link.name,
            "labels": {ROLE_LABEL: pool},
            "annotations": {GENERATED_BY: work.options.version},
            "ownerReferences": [owner_reference(config, KUBELET_CONFIG)],
        },
        "spec": {"config": ignition_of(link.conf, spec.get("logLevel"), spec.get("autoSizingReserved"))},
    }


# -- what is said -----------------------------------------------------------------------------------------------------


def _verdict(work: Work, config: Obj) -> Acceptance:
    uid = uid_of(config)
    if uid in work.refused:
        return work.refused[uid]
    said, bad = [], []
    for pool in work.pools[uid]:
        if pool not in work.names[uid]:
            bad.append(Acceptance("TooMany", f"pool {pool} has {MOST} KubeletConfigs already; merge some into one"))
            continue
        link = work.links[pool][uid]
        if link.trouble:
            bad.append(Acceptance(link.reason, link.trouble))
        elif other := _overridden(work, pool):
            words = f"pool {pool} has the kubelet.conf of MachineConfig {other}, which is merged after {link.name}"
            bad.append(Acceptance("Overridden", f"{words}; rename or delete it, or set machineConfigs.workerFirst"))
        else:
            said.append(f"{link.name} for pool {pool}")
    if not bad:
        return Acceptance("Rendered", f"Rendered as {', '.join(said)}")
    more = [f"rendered as {', '.join(said)}"] if said else []
    return Acceptance(bad[0].reason, "; ".join([*dict.fromkeys(b.message for b in bad), *more]))


def _overridden(work: Work, pool: str) -> str:
    chain = [link.conf for link in sorted(work.links[pool].values(), key=lambda k: k.name) if link.conf is not None]
    the_pool = next(p for p in work.picture.pools if name_of(p) == pool)
    return overridden_by(the_pool, chain[-1], work.picture, work.options) if chain else ""


def _told(config: Obj, verdict: Acceptance, now: datetime) -> ConfigChanges:
    """The KubeletConfig's status, and an Event where it changes. `Success` is upstream's older word for Accepted."""
    status = "True" if verdict.accepted else "False"
    wanted: Sequence[Mapping[str, str]] = [
        {"type": kind, "status": status, "reason": verdict.reason, "message": verdict.message}
        for kind in ("Accepted", "Success")
    ]
    seen = {"observedGeneration": generation_of(config), "conditions": with_conditions(config, wanted, now)}
    after = changed(config, status=seen)
    if status_of(after) == status_of(config):
        return ConfigChanges()
    change = updated(KUBELET_CONFIG, config, after, verdict.message, status=True)
    event = ConfigEvent(KUBELET_CONFIG, name_of(config), not verdict.accepted, verdict.reason, verdict.message)
    return ConfigChanges((change,), (event,))
