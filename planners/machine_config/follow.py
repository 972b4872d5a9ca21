"""What a look says of nodes that were given a config: which have begun, failed, finished, or gone.

A reservation is made before anything is written, and counts as an unavailable node until a look shows the node with
that config: an older read, a lost answer or a slow write never makes room for one more (I13).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from planners.machine_config import nodes as of
from resources.base import format_duration, whole_seconds
from resources.journal import Happening
from resources.machine_config.node import ConfigNode
from resources.machine_config.state import Reservation
from resources.machine_config.view import ConfigPoolView

GRACE = timedelta(minutes=5)
"""How long a node that was not given its config counts all the same, once the pool wants something else of it: a write
whose answer was lost may still come, within as many tries as an activity has."""


@dataclass(frozen=True)
class Followed:
    reservations: dict[str, Reservation]
    happenings: list[Happening]
    finished: int
    """How many nodes have finished with their config."""


def follow(reservations: Mapping[str, Reservation], view: ConfigPoolView, now: datetime) -> Followed:
    """The reservations after this look, with what is to be told. The look names every node that is reserved, as long as
    it is the pool's."""
    target = view.pool.target if view.pool is not None else ""
    nodes = {n.name: n for n in view.nodes}
    kept: dict[str, Reservation] = {}
    told: list[Happening] = []
    finished = 0
    for name, reservation in reservations.items():
        node = nodes.get(name)
        if node is None or node.uid != reservation.uid:
            told.append(gone(name, reservation, now))
            continue
        reservation = _seen(reservation, node)
        if _over(reservation, node, target, now):
            continue
        if reservation.seen and of.done(node) and of.fit(node):
            lasted = format_duration(whole_seconds(now - reservation.at))
            message = f"{name} has {reservation.config}, after {lasted}"
            told.append(Happening(time=now, reason="ConfigNodeUpdated", message=message))
            finished += 1
            continue
        if reservation.seen and of.failing(node) and not reservation.failed:
            words = f"{name} cannot apply {reservation.config}: {node.reason or f'its daemon says {node.state}'}"
            told.append(Happening(time=now, reason="ConfigNodeDegraded", message=words))
        kept[name] = reservation._replace(failed=reservation.seen and of.failing(node))
    return Followed(kept, told, finished)


def gone(name: str, reservation: Reservation, now: datetime) -> Happening:
    """What is told of a reserved node that is the pool's no longer."""
    words = f"{name} is gone, or is no longer the pool's; it was to have {reservation.config}"
    return Happening(time=now, reason="ConfigNodeGone", message=words)


def _seen(reservation: Reservation, node: ConfigNode) -> Reservation:
    return reservation._replace(seen=reservation.seen or node.desired == reservation.config)


def _over(reservation: Reservation, node: ConfigNode, target: str, now: datetime) -> bool:
    """Whether the node's affairs are no longer this reservation's: it speaks for itself, as somebody else gave it
    another config, or the pool wants what it has."""
    if node.desired == reservation.config:
        return False
    if reservation.seen:
        return True
    return node.desired == target and now >= reservation.at + GRACE


def unseen(reservations: Mapping[str, Reservation], view: ConfigPoolView) -> list[ConfigNode]:
    """Nodes that have been given a config, which no look has shown: they count as unavailable. Those that are so anyway
    are in the view's counts."""
    nodes = {n.name: n for n in view.nodes}
    names = [name for name, r in reservations.items() if not r.seen and name in nodes]
    return [nodes[name] for name in names if not counted(nodes[name], view)]


def counted(node: ConfigNode, view: ConfigPoolView) -> bool:
    """Whether the counts have it as one that takes a place."""
    return of.busy(node) or (view.pool is not None and of.failing_here(node, view.pool.target))


def next_look(reservations: Mapping[str, Reservation], now: datetime) -> datetime | None:
    """When a reservation comes to its end by time alone."""
    ends = [r.at + GRACE for r in reservations.values() if not r.seen]
    return min((end for end in ends if end > now), default=None)
