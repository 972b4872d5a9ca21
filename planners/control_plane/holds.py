"""When a machine that leaves may go: its drain, and with it its member of etcd, waits for our word.

Source: design *Control plane*: held until its index has a ready replacement, hooks or not; one drain at a time; never
below quorum; where etcd is guarded, its member goes before. A person who forces a deletion is obeyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from planners.control_plane import etcd
from planners.control_plane.etcd import Act
from planners.control_plane.rolling import below_quorum
from planners.control_plane.view import Host, Observed, keeps_ready
from planners.fleet.steps import Wait


def lift(observed: Observed) -> tuple[list[tuple[Host, str]], list[Wait]]:
    """The machines whose hold is lifted now, and why; and what the others wait for, one wait for each reason."""
    turns = _turns(observed)
    return turns.lifted, list(turns.waits.values())


def etcd_act(observed: Observed) -> Act | None:
    """What is to be done to the etcd that is guarded, so that the next machine may go; None where nothing is, or
    nothing may be."""
    if not observed.guarded:
        return None
    return etcd.clear(observed) or _turns(observed).act


@dataclass
class _Turns:
    lifted: list[tuple[Host, str]]
    waits: dict[str, Wait] = field(default_factory=dict)
    act: Act | None = None


def _turns(observed: Observed) -> _Turns:
    turns = _Turns([(h, "its deletion is forced") for h in observed.hosts if h.held and h.forced])
    turns.lifted += [
        (h, "it never ran") for h in observed.hosts if h.held and not h.forced and not h.joined and not h.ready
    ]
    free = {h.name for h, _ in turns.lifted}
    drains = [h.name for h in observed.hosts if h.leaving and not h.held and h.joined]
    serving = observed.serving - sum(h.ready for h, _ in turns.lifted)
    for host in _in_order(observed):
        if host.name in free:
            continue
        wait = _wait(observed, host, drains, serving)
        if wait is None and observed.guarded:
            answer = etcd.judge(observed, host)
            if isinstance(answer, Act):
                turns.act = answer
                drains.append(host.name)
            wait = answer.wait if isinstance(answer, Act) else answer
        if wait is not None:
            turns.waits.setdefault(wait.reason, wait)
            continue
        turns.lifted.append((host, f"index {host.index} has a ready replacement"))
        drains.append(host.name)
        serving -= host.ready
    return turns


def _wait(observed: Observed, host: Host, drains: list[str], serving: int) -> Wait | None:
    if not keeps_ready(observed.indexes[host.index], host):
        words = f"{host.name} is being deleted, and stays until index {host.index} has a ready replacement"
        return Wait("WaitsForReplacement", words)
    if drains:
        words = f"{host.name} goes next: one control-plane machine is drained at a time, and {drains[0]} is"
        return Wait("ControlPlaneLeaving", words)
    if host.ready and serving - 1 < observed.quorum:
        return Wait("BelowQuorum", below_quorum(observed, host))
    return None


def _in_order(observed: Observed) -> Iterator[Host]:
    """Those that are not ready first: they take nothing away."""
    held = [h for h in observed.hosts if h.held]
    return iter(sorted(held, key=lambda h: (h.ready, h.index, h.created, h.name)))
