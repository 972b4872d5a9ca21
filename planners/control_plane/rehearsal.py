"""What a control plane would do if all went well, step by step: the same plan, in a world where every machine joins and
every drain ends.

This is for `--dry-run`. Capacity, drains and bad images are not foreseen; gates, order and quorum are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count

from planners.control_plane.plan import plan
from planners.control_plane.view import Host, Observed
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, LiftHold, Plan

LONGEST = 100
"""The most plans that are told: replacing each of five machines takes three."""


def rehearsed(observed: Observed, now: datetime) -> Iterator[Plan]:
    """The plans to come, from what is observed now; the last one has no steps and says what it waits for. Time stands
    still, and every machine on the way has arrived."""
    observed, numbers = _arrived(observed), count(1)
    for _ in range(LONGEST):
        made = plan(observed, now)
        yield made
        if not made.steps:
            return
        observed = _arrived(_carried_out(observed, made, now, numbers))


def _carried_out(observed: Observed, made: Plan, now: datetime, numbers: Iterator[int]) -> Observed:
    hosts = {host.name: host for host in observed.hosts}
    for step in made.steps:
        match step:
            case Create(placement=place) if place is not None and place.index is not None:
                new = Host(f"new-{next(numbers)}-{place.index}", place.index, now, ready=False, joined=False)
                hosts[new.name] = new
            case Delete():
                hosts |= {n: replace(hosts[n], leaving=True, held=True, asks=False) for n in step.names}
            case GrantPermit():
                hosts |= {n: replace(hosts[n], leaving=True, held=True, asks=False) for n in step.names}
            case GrantPreservation(names=names):
                observed = replace(observed, granting=(), preserved=tuple(dict.fromkeys((*observed.preserved, *names))))
            case LiftHold():
                hosts |= {n: replace(hosts[n], held=False) for n in step.names}
    return replace(observed, hosts=tuple(hosts.values()))


def _arrived(observed: Observed) -> Observed:
    """The control plane once those that leave are gone, and those that come are ready. One that cannot become ready
    stays as it is: a gate says so."""
    staying = [host for host in observed.hosts if not host.leaving or host.held]
    hosts = [replace(h, ready=True, joined=True) if h.pending and not (h.failure or h.asks) else h for h in staying]
    return replace(observed, hosts=tuple(hosts))
