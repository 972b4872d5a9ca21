"""How the rollout of a pool stands: one look at it, judged, counted and put into words.

Done, going on by itself, or standing until a person does something: that is what `hostler rollout status` ends by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from resources.fleet import FleetWait
from resources.machine import Phase
from resources.messages import Happening
from resources.pool_intents import PoolSummary
from resources.reasons import next_step
from resources.rollout import Outcome, RolloutResult, RolloutState
from starter import live
from starter.errors import NotFound, Refused, translated
from starter.pool_results import PoolDescription, RolloutDescription, since
from starter.results import MachineSummary
from starter.spelling import machines

if TYPE_CHECKING:
    from starter.client import HostlerClient

HELD = ("RolloutAborted", "ProgressDeadlineExceeded", "RolloutPaused", "Canary", "OnDelete", "ClusterPaused")
"""Waits that hold all of a rollout and that a person alone ends. A storm or an API that does not answer goes by itself.
"""
LOST = "NewMachinesNeverJoin"
SINGLE = ("MemberLost", "RepairBudget")
"""Those that hold single machines: a person alone ends them too, the second where nothing may be repaired."""
ON_THE_WAY = (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF)
SOME = 5
"""Machines that are named."""
BAR = 30
"""Characters."""
OUTCOME_PATIENCE = 10.0
"""Seconds that the end of a rollout may take to be told, once another one has begun."""


class Stand(Enum):
    GOING = auto()
    DONE = auto()
    STANDS = auto()


class Verdict(NamedTuple):
    stand: Stand
    words: str


@dataclass(frozen=True)
class Look:
    """A pool, how its rollout stands, and the rollout's story where there is one."""

    pool: PoolDescription
    verdict: Verdict
    story: RolloutDescription | None = None
    unwell: tuple[MachineSummary, ...] = ()
    """Some machines that are waited for, by visibility: about a second behind."""

    @property
    def name(self) -> str:
        return self.pool.listed.name

    @property
    def revision(self) -> int:
        return self.pool.summary.revision if self.pool.summary else 0

    @property
    def steps(self) -> tuple[Happening, ...]:
        """Oldest first; of a long rollout the first ones and the newest."""
        told = self._told
        return tuple(told.steps) if told else ()

    @property
    def dropped(self) -> int:
        """Steps between them, that are not kept any more."""
        told = self._told
        return told.steps_dropped if told else 0

    @property
    def _told(self) -> RolloutResult | RolloutState | None:
        return (self.story.listed.result or self.story.listed.state) if self.story else None


async def look(client: HostlerClient, name: str, *, cluster: str | None = None) -> Look:
    """Raises NotFound where there never was such a pool."""
    pool = await client.pools.look(name, cluster=cluster)
    verdict = judge(pool)
    if verdict.stand is Stand.DONE and pool.summary is not None:
        # Whoever looks right after `apply` means the rollout to come (kubectl's observedGeneration).
        if generation := await client.pools.unheard(pool.listed):
            words = f"pool {name} has not heard yet of generation {generation} of class {pool.summary.machine_class}"
            verdict = Verdict(Stand.GOING, words)
        else:  # it may have heard of its class between the two questions
            pool = await client.pools.look(name, cluster=cluster)
            verdict = judge(pool)
    if pool.summary is None or not pool.running:
        return Look(pool, verdict)
    unwell = await _unwell(client, pool.summary) if verdict.stand is not Stand.DONE else ()
    try:
        story = await client.pools.rollout(name, pool.summary.revision, cluster=cluster)
    except NotFound:
        story = None  # a first revision replaces nothing; or its story has not begun yet
    return Look(pool, verdict, story, unwell)


async def _unwell(client: HostlerClient, pool: PoolSummary) -> tuple[MachineSummary, ...]:
    """Why a rollout waits is written at its machines: those that are not Running, and not on their way out."""
    with translated():
        found = client.temporal.list_workflows(_unwell_of(pool), limit=SOME)
        return tuple(sorted([await live.summary_of(e) async for e in found], key=lambda m: m.name))


def _unwell_of(pool: PoolSummary) -> str:
    """The visibility query. Some of them may be preserved."""
    phases = (*ON_THE_WAY, Phase.UNKNOWN, Phase.FAILED)
    shown = ", ".join(f"'{phase}{kept}'" for phase in phases for kept in ("", ":Preserved"))
    return f"{live.machines_of(pool.cluster, HostlerPool=pool.name)} AND HostlerPhase IN ({shown})"


def judge(found: PoolDescription) -> Verdict:
    name, summary = found.listed.name, found.summary
    if not found.running:
        return Verdict(Stand.STANDS, f"pool {name} is gone{since(found)}")
    if summary is None:
        return Verdict(Stand.GOING, f"pool {name} cannot be asked: {found.no_answer}")
    if summary.deleted:
        return Verdict(Stand.STANDS, f"pool {name} is being deleted; {machines(summary.machines)} left")
    if summary.parked:
        return Verdict(Stand.STANDS, _held(summary, "InternalError", summary.parked))
    if summary.rolled_out:
        return Verdict(Stand.DONE, f"pool {name} is rolled out: revision {summary.revision}, {_all_there(summary)}")
    if (held := held_by(summary)) is not None:
        return Verdict(Stand.STANDS, _held(summary, held.reason, held.message))
    return Verdict(Stand.GOING, "")


def held_by(summary: PoolSummary) -> FleetWait | None:
    """What only a person ends. Machines that never joined hold a rollout up once nothing else is on the way: one that
    joins late sets it going again. Single machines hold its end up, once nothing else is waited for."""
    if (held := next((w for w in summary.waits if w.reason in HELD), None)) is not None:
        return held
    newest = summary.revision
    if any(n for revision, phase, n in summary.phases if revision == newest and phase in ON_THE_WAY):
        return None
    if (lost := next((w for w in summary.waits if w.reason == LOST), None)) is not None:
        return lost
    waits = [w for w in summary.waits if w.reason != "FailedPreserved"]  # kept for a look: nothing is to come of it
    alone = all(w.reason in SINGLE for w in waits)
    single = [w for w in waits if w.reason != "RepairBudget" or not summary.repairs]
    return single[0] if alone and single else None


def _held(s: PoolSummary, reason: str, message: str) -> str:
    todo = next_step(reason, s.cluster, s.name, "pool")
    return f"the rollout of pool {s.name} stands: {reason}: {message}\nwhat can be done: {todo}"


def _all_there(s: PoolSummary) -> str:
    if s.hibernated:
        return "no machine, for it is hibernated"
    return f"{s.available} of {machines(s.replicas)} available"


async def undone(
    client: HostlerClient, name: str, revision: int, *, cluster: str | None = None
) -> RolloutResult | None:
    """The end of a rollout that another revision has followed, if it was undone; else that revision came after it."""
    try:
        end = client.pools.rollout_result(name, revision, cluster=cluster)
        result = await asyncio.wait_for(end, OUTCOME_PATIENCE)
    except (NotFound, Refused, TimeoutError):
        return None
    return result if result.outcome is Outcome.UNDONE else None


# -- numbers ----------------------------------------------------------------------------------------------------------


class Counts(NamedTuple):
    replicas: int
    updated: int
    ready: int
    """Of the newest revision, Running."""
    old: int
    """Of older revisions."""
    rolling: bool

    @property
    def done(self) -> int:
        """Of `whole`: new machines that are there, and old ones that are gone."""
        return min(self.ready, self.replicas) + (max(0, self.replicas - self.old) if self.rolling else 0)

    @property
    def whole(self) -> int:
        return self.replicas * (2 if self.rolling else 1)


def counts(s: PoolSummary) -> Counts:
    ready = sum(n for revision, phase, n in s.phases if revision == s.revision and phase is Phase.RUNNING)
    old = sum(n for revision, _, n in s.phases if revision != s.revision)
    return Counts(s.replicas, s.updated, ready, old, s.rollout is not None)


def drawn(c: Counts) -> str:
    """`[###------] 33 %`; nothing for a pool that shall have no machines."""
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


def fresh(told: set[Happening], steps: Iterable[Happening]) -> list[Happening]:
    """Those that were not told yet, and are now."""
    new = [step for step in steps if step not in told]
    told.update(new)
    return new
