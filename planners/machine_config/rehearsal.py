"""Plays rendering through in memory: what a cluster would come to, without a cluster.

`hostler mc render` shows it, and the tests use it. It does what the API server does with such objects: it counts
generations, keeps what has finalizers, refuses a write that begins from an old version, and takes along what a deleted
owner leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from planners.machine_config.objects import Obj, copied, generation_of, meta, name_of, spec_of, uid_of
from planners.machine_config.picture import ConfigChange, ConfigEvent, Picture, RenderOptions, RenderTrouble
from planners.machine_config.reconcile import plan
from resources.machine_config.keys import (
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.words import kube_time

ROUNDS_MOST = 50
"""More than any cluster needs: templates, names, kubelet configs, statuses, rendering and targets are a round each."""
_FIELDS = {
    MACHINE_CONFIG.kind: "configs",
    MACHINE_CONFIG_POOL.kind: "pools",
    KUBELET_CONFIG.kind: "kubelet_configs",
    CONTROLLER_CONFIG.kind: "controller_configs",
}


class Restless(RuntimeError):
    """The plan wants something new for ever: a fault of ours."""


class ConflictingWrite(RuntimeError):
    """A change began from an object that is no longer as it was."""


class Settled(NamedTuple):
    """Where rendering comes to a rest."""

    picture: Picture
    events: tuple[ConfigEvent, ...]
    troubles: tuple[RenderTrouble, ...]
    rounds: int


def settled(picture: Picture, options: RenderOptions, now: datetime) -> Settled:
    """Asks the plan and does what it wants, until it wants nothing."""
    events: tuple[ConfigEvent, ...] = ()
    for done in range(ROUNDS_MOST):
        found = plan(picture, options, now)
        events += found.events
        if not found.changes:
            return Settled(picture, events, found.troubles, done)
        for change in found.changes:
            picture = applied(picture, change, now)
    raise Restless(f"after {ROUNDS_MOST} rounds the plan still wants: {', '.join(c.words for c in found.changes)}")


def objects_of(picture: Picture, kind: ConfigKind) -> Sequence[Obj]:
    found: Sequence[Obj] = getattr(picture, _FIELDS[kind.kind])
    return found


def applied(picture: Picture, change: ConfigChange, now: datetime) -> Picture:
    """The picture after one change. Raises ConflictingWrite."""
    objects = {name_of(o): o for o in objects_of(picture, change.kind)}
    there = objects.get(change.name)
    if (there is None) != (change.verb == "create"):
        raise ConflictingWrite(
            f"{change.verb} {change.kind.kind} {change.name}: {'not ' if there is None else ''}there"
        )
    if there is None:
        objects[change.name] = stored(change.body, now)
    elif meta(there).get("resourceVersion") != meta(change.before).get("resourceVersion"):
        raise ConflictingWrite(f"{change.verb} {change.kind.kind} {change.name}: it has been written since")
    elif change.verb == "delete":
        objects[change.name] = _next(there, {**there, "metadata": {**meta(there), "deletionTimestamp": kube_time(now)}})
    else:
        objects[change.name] = _next(there, _kept_apart(there, change))
    new = objects[change.name]
    gone = bool(meta(new).get("deletionTimestamp")) and not meta(new).get("finalizers")
    if gone:
        del objects[change.name]
    fields: dict[str, Any] = {_FIELDS[change.kind.kind]: tuple(objects.values())}
    after = replace(picture, **fields)
    return _collected(after, uid_of(new)) if gone else after


def stored(obj: Obj, now: datetime) -> dict[str, Any]:
    """A new object as an API server keeps it."""
    new = copied(obj)
    name = f"{new.get('kind', '')}/{name_of(new)}"
    ours = {"uid": f"uid-of-{name}", "creationTimestamp": kube_time(now), "generation": 1, "resourceVersion": "1"}
    new["metadata"] = {**ours, **new["metadata"]}
    return new


def _kept_apart(there: Obj, change: ConfigChange) -> dict[str, Any]:
    """A write of the status changes nothing else, and the other way round."""
    if change.subresource == "status":
        return {**there, "status": change.body.get("status")}
    kept = {k: v for k, v in change.body.items() if k != "status"}
    return {**kept, "status": there["status"]} if "status" in there else kept


def _next(there: Obj, new: Mapping[str, Any]) -> dict[str, Any]:
    after = copied(new)
    after["metadata"]["resourceVersion"] = str(int(meta(there).get("resourceVersion") or 0) + 1)
    after["metadata"]["generation"] = generation_of(there) + (spec_of(there) != spec_of(after))
    return after


def _collected(picture: Picture, owner: str) -> Picture:
    """Without the MachineConfigs whose owner has gone."""
    left = [c for c in picture.configs if owner not in {o.get("uid") for o in meta(c).get("ownerReferences") or ()}]
    return replace(picture, configs=tuple(left))
