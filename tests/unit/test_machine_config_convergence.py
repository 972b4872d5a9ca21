"""Rendering comes to one rest whatever the order, whatever is written meanwhile; and old rendered configs go."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_configs.objects import (
    NOW,
    OPTIONS,
    at_rest,
    cluster,
    config,
    controller_config,
    edited,
    file,
    key,
    kubelet_config,
    made,
    names,
    pool,
)

from planners.machine_config.picture import Picture, RenderOptions
from planners.machine_config.reconcile import plan
from planners.machine_config.rehearsal import ConflictingWrite, Settled, applied, settled
from resources.machine_config.keys import MACHINE_CONFIG
from resources.merge_patch import merge_patch

BASICS = (controller_config(), pool(), pool("master"))
VERSION = key("generated-by-controller-version")

# -- collection -------------------------------------------------------------------------------------------------------


def old_ones(count: int, the_pool: str = "worker") -> list[Any]:
    owner = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "name": the_pool,
        "uid": "u",
    }
    return [
        made(
            "MachineConfig",
            f"rendered-{the_pool}-{n:032}",
            {},
            NOW - timedelta(days=n + 1),
            annotations={VERSION: "0.1.0"},
            ownerReferences=[owner],
        )
        for n in range(count)
    ]


def kept(found: Settled) -> list[int]:
    return [int(n[-32:]) for n in names(found.picture.configs) if n.startswith("rendered-worker-000")]


def test_the_oldest_rendered_configs_go() -> None:
    found = at_rest(pool(), config("a"), *old_ones(9))
    assert kept(found) == [0, 1, 2, 3, 4]
    assert kept(at_rest(pool(), config("a"), *old_ones(9), options=RenderOptions(keep_rendered=0))) == []


def test_what_somebody_names_stays() -> None:
    some = old_ones(9)
    on_nodes = frozenset({some[8]["metadata"]["name"], some[7]["metadata"]["name"]})
    the_pool = {**pool(), "status": {"configuration": {"name": some[6]["metadata"]["name"]}}}
    none = RenderOptions(keep_rendered=0)
    assert kept(at_rest(the_pool, config("a"), *some, options=none, named=on_nodes)) == [6, 7, 8]
    told_of = {**pool(paused=True), "status": {"currentMachineConfig": some[5]["metadata"]["name"]}}
    assert kept(at_rest(told_of, *some, options=none)) == [5]
    wanted = pool(paused=True, configuration={"name": some[4]["metadata"]["name"]})
    assert kept(at_rest(wanted, *some, options=none)) == [4]


def test_nothing_goes_while_the_nodes_are_unknown_nor_what_is_young_nor_another_ones() -> None:
    none = RenderOptions(keep_rendered=0)
    assert kept(at_rest(pool(), config("a"), *old_ones(3), options=none, named=None)) == [0, 1, 2]
    young = old_ones(3)
    for c in young:
        c["metadata"]["creationTimestamp"] = "2026-01-02T02:30:00Z"
    assert kept(at_rest(pool(), config("a"), *young, options=none)) == [0, 1, 2]
    strange = old_ones(3)
    del strange[0]["metadata"]["ownerReferences"], strange[1]["metadata"]["annotations"]
    assert kept(at_rest(pool(), config("a"), *strange, options=none)) == [0, 1]


# -- whatever the order -----------------------------------------------------------------------------------------------

FIRST = kubelet_config("k1", maxPods=1)
SECOND = kubelet_config("k2", at=NOW + timedelta(minutes=1), podPidsLimit=2)
EVERYTHING = [
    *BASICS,
    pool("infra", "worker", "infra"),
    config("50-x", file("/etc/x", "1"), fips=True),
    config("60-y", file("/etc/x", "2"), role="infra"),
    config("70-bad", kernelType="none", role="master"),
    FIRST,
    SECOND,
    kubelet_config("k3", "infra", featureGates={"A": True}),
    kubelet_config("k4", "infra", maxPods="x"),
]


def essence(picture: Picture) -> Any:
    """What a cluster has come to, without versions and times."""
    found = {}
    for objects in (picture.configs, picture.pools, picture.kubelet_configs, picture.controller_configs):
        for o in objects:
            meta = {k: v for k, v in o["metadata"].items() if k not in ("resourceVersion", "creationTimestamp")}
            conditions = sorted((c["type"], c["status"], c["reason"], c["message"]) for c in o.get("status", {}).get(
                "conditions", ()))  # fmt: skip
            found[o["kind"], meta["name"]] = (meta, o["spec"], conditions)
    return json.loads(json.dumps(sorted(found.items()), sort_keys=True))


REST = essence(at_rest(*EVERYTHING).picture)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_every_order_comes_to_the_same_rest(chance: random.Random) -> None:
    """Objects arrive one by one, and the plan's changes are done in any order, some of them only later. Of two
    KubeletConfigs the one that is made first arrives first: they are numbered by it."""
    todo = chance.sample(EVERYTHING, len(EVERYTHING))
    numbered = [n for n, o in enumerate(todo) if o in (FIRST, SECOND)]
    todo[numbered[0]], todo[numbered[1]] = FIRST, SECOND
    picture = cluster()
    while todo:
        now, todo = todo[:4], todo[4:]
        picture = joined(picture, now)
        picture = a_bit(picture, chance)
    assert strip(essence(settled(picture, OPTIONS, NOW).picture)) == strip(REST)


def joined(picture: Picture, objects: list[Any]) -> Picture:
    more = cluster(*objects)
    return replace(
        picture,
        configs=(*picture.configs, *more.configs),
        pools=(*picture.pools, *more.pools),
        kubelet_configs=(*picture.kubelet_configs, *more.kubelet_configs),
        controller_configs=(*picture.controller_configs, *more.controller_configs),
    )


def a_bit(picture: Picture, chance: random.Random) -> Picture:
    """Some of what the plan wants, in any order; a later change of an object that was written is a conflict."""
    for _ in range(chance.randrange(4)):
        changes = list(plan(picture, OPTIONS, NOW).changes)
        for change in chance.sample(changes, chance.randint(0, len(changes))):
            picture = applied(picture, change, NOW)
    return picture


def strip(found: Any) -> Any:
    """Without what depends on the way: rendered configs of the way there, and how often an object was written."""
    kept_ones = []
    wanted = {
        s[1]["configuration"]["name"] for (k, _), s in found if k == "MachineConfigPool" and "configuration" in s[1]
    }
    for (kind, name), (meta, spec, conditions) in found:
        if not name.startswith("rendered-") or name in wanted:
            kept_ones.append((kind, name, {k: v for k, v in meta.items() if k != "generation"}, spec, conditions))
    return kept_ones


def test_a_write_that_begins_from_an_old_version_is_a_conflict() -> None:
    picture = cluster(*BASICS)
    create = plan(picture, OPTIONS, NOW).changes[0]
    after = applied(picture, create, NOW)
    with pytest.raises(ConflictingWrite, match="create MachineConfig 00-master: there"):
        applied(after, create, NOW)
    found = at_rest(*BASICS)
    broken = replace(found.picture, configs=edited(found.picture.configs, "00-worker", {"fips": True}))
    [update] = plan(broken, OPTIONS, NOW).changes
    with pytest.raises(ConflictingWrite, match="it has been written since"):
        applied(applied(broken, update, NOW), update, NOW)


def test_a_change_is_also_a_merge_patch() -> None:
    found = at_rest(*BASICS)
    broken = replace(
        found.picture, configs=edited(found.picture.configs, "00-worker", {"fips": True, "extensions": ["x"]})
    )
    [update] = plan(broken, OPTIONS, NOW).changes
    assert update.patch == {"spec": {"fips": None, "extensions": []}, "metadata": {"resourceVersion": "99"}}
    assert (update.kind, update.uid) == (MACHINE_CONFIG, "uid-of-MachineConfig/00-worker")


TABLES = st.dictionaries(
    st.sampled_from("abc"), st.recursive(st.integers(0, 3), lambda c: st.dictionaries(st.sampled_from("abc"), c))
)


def patched(before: Any, patch: Any) -> Any:
    """RFC 7396, as its text has it."""
    if not isinstance(patch, dict):
        return patch
    found = dict(before) if isinstance(before, dict) else {}
    for k, v in patch.items():
        if v is None:
            found.pop(k, None)
        else:
            found[k] = patched(found.get(k), v)
    return found


@given(TABLES, TABLES)
def test_a_merge_patch_makes_one_of_the_other(before: Any, after: Any) -> None:
    assert patched(before, merge_patch(before, after)) == after
    assert merge_patch(after, after) == {}
