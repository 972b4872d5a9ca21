"""The state of a pool's rollout: one look at it, judged, counted and put into words.

Done, continuing on its own, or stopped until a person acts: `hostler rollout status` ends accordingly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.machine.state import Phase
from resources.pool.intents import PoolSummary
from resources.pool.rollout import RolloutResult, RolloutState
from resources.reasons import next_step
from starter.sdk.fleet.trouble import MachineTrouble
from starter.sdk.fleet.waiting import RolloutVerdict, Stand
from starter.sdk.machines.records import machines_of
from starter.sdk.pools.results import PoolDescription, RolloutDescription
from starter.sdk.results import MachineSummary, since
from starter.sdk.spelling import counted

HELD = (
    "RolloutAborted",
    "ProgressDeadlineExceeded",
    "RolloutPaused",
    "Approval",
    "Canary",
    "OnDelete",
    "ClusterPaused",
    "Frozen",
)
"""Waits that hold all of a rollout and that only a person ends. A storm or an API that does not answer ends on its
own, and so does the time outside a maintenance window."""
LOST = "NewMachinesNeverJoin"
SINGLE = ("MemberLost", "RepairBudget")
"""Waits that hold single machines: only a person ends them too, the second where nothing may be repaired."""
ON_THE_WAY = (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF)
BAR = 30
"""Characters."""


@dataclass(frozen=True)
class RolloutLook:
    """A pool, the state of its rollout, and the rollout's story where there is one."""

    pool: PoolDescription
    verdict: RolloutVerdict
    story: RolloutDescription | None = None
    unwell: tuple[MachineSummary, ...] = ()
    """Some machines that it waits for, by visibility: about a second behind."""
    trouble: MachineTrouble | None = None
    """The first of them to look at."""

    @property
    def name(self) -> str:
        return self.pool.listed.name

    @property
    def revision(self) -> int:
        return self.pool.summary.revision if self.pool.summary else 0

    @property
    def steps(self) -> tuple[Happening, ...]:
        """The steps, oldest first; for a long rollout the first ones and the newest."""
        told = self._told
        return tuple(told.steps) if told else ()

    @property
    def dropped(self) -> int:
        """The number of steps between them that are no longer kept."""
        told = self._told
        return told.steps_dropped if told else 0

    @property
    def _told(self) -> RolloutResult | RolloutState | None:
        return (self.story.listed.result or self.story.listed.state) if self.story else None


def unwell_of(pool: PoolSummary) -> str:
    """The visibility query for them. Some may be preserved."""
    phases = (*ON_THE_WAY, Phase.UNKNOWN, Phase.FAILED)
    shown = ", ".join(f"'{phase}{kept}'" for phase in phases for kept in ("", ":Preserved"))
    return f"{machines_of(pool.cluster, HostlerPool=pool.name)} AND HostlerPhase IN ({shown})"


def judge(found: PoolDescription) -> RolloutVerdict:
    name, summary = found.listed.name, found.summary
    if not found.running:
        return RolloutVerdict(Stand.STANDS, f"pool {name} is gone{since(found.ended)}")
    if summary is None:
        return RolloutVerdict(Stand.GOING, f"pool {name} cannot be asked: {found.no_answer}")
    if summary.deleted:
        return RolloutVerdict(Stand.STANDS, f"pool {name} is being deleted; {counted(summary.machines)} left")
    if summary.parked:
        return RolloutVerdict(Stand.STANDS, _held(summary, "InternalError", summary.parked))
    if summary.rolled_out:
        return RolloutVerdict(
            Stand.DONE, f"pool {name} is rolled out: revision {summary.revision}, {_all_there(summary)}"
        )
    if (held := held_by(summary)) is not None:
        return RolloutVerdict(Stand.STANDS, _held(summary, held.reason, held.message))
    return RolloutVerdict(Stand.GOING, "")


def held_by(summary: PoolSummary) -> FleetWait | None:
    """The wait that only a person ends. Machines that never joined hold a rollout up once nothing else is on the way:
    one that joins late sets it going again. Single machines hold up its end, once nothing else is waited for."""
    if (held := next((w for w in summary.waits if w.reason in HELD), None)) is not None:
        return held
    newest = summary.revision
    if any(n for revision, phase, n in summary.phases if revision == newest and phase in ON_THE_WAY):
        return None
    if (lost := next((w for w in summary.waits if w.reason == LOST), None)) is not None:
        return lost
    waits = [w for w in summary.waits if w.reason != "FailedPreserved"]  # kept for a look: nothing will come of it
    alone = all(w.reason in SINGLE for w in waits)
    single = [w for w in waits if w.reason != "RepairBudget" or not summary.repairs]
    return single[0] if alone and single else None


def _held(s: PoolSummary, reason: str, message: str) -> str:
    todo = next_step(reason, s.cluster, s.name, "pool")
    return f"the rollout of pool {s.name} is blocked: {reason}: {message}\nwhat can be done: {todo}"


def _all_there(s: PoolSummary) -> str:
    if s.hibernated:
        return "no machine, because it is hibernated"
    return f"{s.available} of {counted(s.replicas)} available"


# -- numbers ----------------------------------------------------------------------------------------------------------


class Counts(NamedTuple):
    replicas: int
    updated: int
    ready: int
    """Machines of the newest revision that are Running."""
    old: int
    """Machines of older revisions."""
    rolling: bool

    @property
    def done(self) -> int:
        """The part of `whole` that is done: new machines that are there, and old ones that are gone."""
        return min(self.ready, self.replicas) + (max(0, self.replicas - self.old) if self.rolling else 0)

    @property
    def whole(self) -> int:
        return self.replicas * (2 if self.rolling else 1)


def counts(s: PoolSummary) -> Counts:
    ready = sum(n for revision, phase, n in s.phases if revision == s.revision and phase is Phase.RUNNING)
    old = sum(n for revision, _, n in s.phases if revision != s.revision)
    return Counts(s.replicas, s.updated, ready, old, s.rollout is not None)


def drawn(c: Counts) -> str:
    """The bar, `[###------] 33 %`; nothing for a pool that should have no machines."""
    if not c.whole:
        return ""
    filled = BAR * c.done // c.whole
    return f"[{'#' * filled}{'-' * (BAR - filled)}] {100 * c.done // c.whole} %"


def numbers(s: PoolSummary) -> str:
    """`revision 3: 12 of 20 updated, 18 available, 8 old ones left`."""
    c = counts(s)
    parts = [f"{c.updated} of {c.replicas} updated", f"{s.available} available"]
    parts += [f"{c.old} old one{'s' if c.old != 1 else ''} left"] if c.old else []
    parts += [f"{s.unhealthy} unhealthy"] if s.unhealthy else []
    return f"revision {s.revision}: {', '.join(parts)}"


def where(found: PoolDescription) -> str:
    """How far it is and what it waits for, in one line."""
    if not found.running:
        return f"its workflow has ended{since(found.ended)}"
    if found.summary is None:
        return f"{found.listed.phase}; its numbers are not known: {found.no_answer}"
    return numbers(found.summary) + "".join(f"; {w.reason}: {w.message}" for w in found.summary.waits)


def fresh(told: set[Happening], steps: Iterable[Happening]) -> list[Happening]:
    """Steps that were not shown yet, and are now."""
    new = [step for step in steps if step not in told]
    told.update(new)
    return new
