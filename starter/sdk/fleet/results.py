"""What the SDK answers with about an owner of machines, of whatever kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from resources.fleet.rehearsal import RevisionSummary
from resources.fleet.state import FleetState, FleetWait
from starter.sdk.fleet.trouble import MachineTrouble
from starter.sdk.results import MachineSummary, PendingActivity


class Numbers(Protocol):
    """An owner's own account of itself, small whatever its size."""

    @property
    def noun(self) -> str:
        """What people call its kind."""

    @property
    def name(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def revisions(self) -> Sequence[RevisionSummary]: ...
    @property
    def deleted(self) -> bool: ...
    @property
    def rolled_out(self) -> bool:
        """Whether all its machines are of the newest revision and available, and nothing is left of older ones."""

    @property
    def all_available(self) -> bool:
        """Whether as many machines as wanted are available."""

    @property
    def waits(self) -> Sequence[FleetWait]: ...
    def holding(self, revision: int, vm: bool) -> FleetWait | None:
        """The wait for which a machine of this revision that has Failed is not replaced. `vm`: whether it has one."""


StateT = TypeVar("StateT", bound=FleetState)
NumbersT = TypeVar("NumbersT", bound=Numbers)


@dataclass(frozen=True)
class FleetListed(Generic[NumbersT]):
    """An owner as search attributes show it, and its own numbers where a worker gave them."""

    name: str
    cluster: str
    created: datetime
    phase: str = ""
    """Ready, Scaling, Rolling, Stopped (a person must look at it), Paused, Hibernated, Deleting, Parked."""
    reason: str = ""
    machine_class: str = ""
    summary: NumbersT | None = None


@dataclass(frozen=True)
class FleetDescription(Generic[StateT, NumbersT]):
    """Everything that is known of one owner."""

    listed: FleetListed[NumbersT]
    status: str
    """RUNNING, COMPLETED, TERMINATED, …"""
    state: StateT | None = None
    """The state from its workflow, even one that was ended from outside; for one that runs without a worker, from its
    history: what was asked for, not what became of it."""
    no_answer: str = ""
    """Why the workflow could not be asked."""
    failure: str = ""
    """How it ended, when not on its own."""
    ended: datetime | None = None
    run_id: str = ""
    first_run_id: str = ""
    """The same for one life, however often it continued as new."""
    task_attempt: int = 1
    """Over 1: the workflow's own code fails, and is tried again."""
    pending: tuple[PendingActivity, ...] = ()
    machines: int = 0
    """The number of machines, by visibility."""
    unwell: tuple[MachineSummary, ...] = ()
    """Some of its machines that are not Running, by visibility; for an owner that has ended, some of all that are
    left."""
    trouble: MachineTrouble | None = None
    """The first of those to look at."""
    web: str | None = None
    """Its page in Temporal's web UI."""

    @property
    def running(self) -> bool:
        return self.status == "RUNNING"

    @property
    def summary(self) -> NumbersT | None:
        """The owner's own numbers."""
        return self.listed.summary
