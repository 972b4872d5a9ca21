"""A control plane as its plan sees it: machines by index, and the few words that all rules share.

Source: seed 001; OpenShift's control-plane-machine-set-operator (pkg/machineproviders/types.go), with one difference
throughout: a machine that leaves is no replacement, whatever else it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from resources.control_plane.etcd import EtcdView
from resources.control_plane.spec import State, UpdateStrategy
from resources.fleet.revision import Pace


@dataclass(frozen=True)
class Host:
    """One control-plane machine."""

    name: str
    index: int
    created: datetime
    ready: bool = True
    """Whether it is Running and its Node is Ready, or has been NotReady for a short time only (`is_ready`)."""
    ready_until: datetime | None = None
    """When its Node will have been NotReady for too long, unless it comes back; None: it is Ready, or not ready."""
    outdated: str = ""
    """What differs from what its index asks for, in words; "" where nothing does."""
    leaving: bool = False
    """Whether it is marked for deletion, by whomever. It goes when its hold is lifted."""
    held: bool = False
    """Whether it leaves, and its drain waits for our word."""
    joined: bool = True
    """Whether it was ever Running. One that never was has no member of etcd, and nobody waits for it."""
    failure: str = ""
    """The message of the error that keeps it from Running for good; "" where there is none."""
    trouble: str = ""
    """What keeps it from Running for now, in words; "" where nothing does."""
    asks: bool = False
    """Whether it is unhealthy after fresh looks, and asks to be replaced."""
    forced: bool = False
    """Whether a person wants it gone whatever it costs."""
    wanted: bool = False
    """Whether somebody wants to keep it for a look when it fails: it is then replaced like one that leaves, and
    stays."""

    @property
    def updated(self) -> bool:
        """Whether it is a replacement: made as its index asks for, and staying."""
        return not self.outdated and not self.leaving

    @property
    def pending(self) -> bool:
        return self.updated and not self.ready

    @property
    def to_be_replaced(self) -> bool:
        return bool(self.outdated) or self.leaving


@dataclass(frozen=True)
class Observed:
    replicas: int
    strategy: UpdateStrategy
    hosts: tuple[Host, ...]
    domains: Mapping[int, str] = field(default_factory=dict)
    """The failure domain of each index; none where the control plane has none."""
    unmanaged: tuple[str, ...] = ()
    """Nodes of the control plane that belong to no machine of it."""
    state: State = State.ACTIVE
    paused: str = ""
    """Who paused it, in words; "" where nobody did."""
    frozen: str = ""
    """Since when, until when and by whom its cluster is frozen; "" where it is not."""
    paused_alone: bool = False
    """Whether a person paused the control plane, and not its cluster."""
    deleted: bool = False
    pace: Pace = field(default_factory=Pace)
    revision: int = 1
    unseen: str = ""
    """Why its machines cannot be seen; "" where they can."""
    granting: tuple[str, ...] = ()
    """Machines that failed, are drained, and are to be preserved on somebody's request: they wait for our word."""
    preserved: tuple[str, ...] = ()
    """Those that are preserved, or have our word. They are kept for a look only, and are none of `hosts`."""
    lent: tuple[str, ...] = ()
    """Machines that a config pool has borrowed; they count as not ready."""
    guarded: bool = False
    """Whether its etcd has nobody else who looks after it, so that we do."""
    etcd: EtcdView | None = None
    """A look at etcd since the last machine began to leave; None where there was none."""
    worst_first: bool = True
    """False in a run that began before a pause left the worst wait first, and was said where the pace holds creations
    back: a replay must decide again by the rules it decided by."""
    etcd_trouble: str = ""
    """Why it could not be looked at or changed, in words."""

    @cached_property
    def indexes(self) -> dict[int, tuple[Host, ...]]:
        """Machines by index, oldest first. Indexes that are missing are there, empty: the lowest ones from 0 on, until
        there are as many as replicas."""
        numbers = {host.index for host in self.hosts}
        lowest = 0
        while len(numbers) < self.replicas:
            numbers.add(lowest)
            lowest += 1
        return {
            number: tuple(sorted((h for h in self.hosts if h.index == number), key=lambda h: (h.created, h.name)))
            for number in sorted(numbers)
        }

    @property
    def surge(self) -> int:
        """How many machines there are beyond replicas, those that leave included; may be negative."""
        return len(self.hosts) - self.replicas

    @property
    def quorum(self) -> int:
        return self.replicas // 2 + 1

    @property
    def serving(self) -> int:
        """How many machines are ready. One that leaves counts until its hold is lifted: its member of etcd still
        votes."""
        return sum(h.ready and (not h.leaving or h.held) for h in self.hosts)


def going(observed: Observed) -> list[Host]:
    """Machines on their way out, and those whose turn it will be: not one that waits for a replacement, which the
    others must not wait for in turn."""
    return [h for h in observed.hosts if h.leaving and (not h.held or keeps_ready(observed.indexes[h.index], h))]


def keeps_ready(hosts: tuple[Host, ...], without: Host) -> bool:
    """Whether an index keeps what it needs when this one goes: a ready machine that stays; where this one is not ready
    itself, any that serves."""
    return stays_ready(hosts, without) or (
        not without.ready and any(h.ready and (h.held or not h.leaving) and h is not without for h in hosts)
    )


def replacement(hosts: tuple[Host, ...]) -> Host | None:
    """The machine of an index that is, or will be, what it shall have: a ready one before one that is coming."""
    found = sorted((h for h in hosts if h.updated), key=lambda h: not h.ready)
    return found[0] if found else None


def stays_ready(hosts: tuple[Host, ...], without: Host) -> bool:
    """Whether an index keeps a ready machine that stays when this one goes."""
    return any(h.ready and not h.leaving and h is not without for h in hosts)
