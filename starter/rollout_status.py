"""How the rollout of a pool stands: one look at it, judged, counted and put into words.

Done, going on by itself, or standing until a person does something: that is what `hostler rollout status` ends by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from resources.machine import Phase
from resources.messages import Happening
from resources.names import pool_user
from resources.pool import PoolWait
from resources.pool_intents import PoolSummary
from resources.reasons import next_step
from resources.rollout import Outcome, RolloutResult, RolloutState
from starter.errors import NotFound, Refused
from starter.pool_results import PoolDescription, RolloutDescription, since

if TYPE_CHECKING:
    from starter.client import HostlerClient

HELD = ("RolloutAborted", "ProgressDeadlineExceeded", "RolloutPaused", "Canary", "OnDelete", "ClusterPaused")
"""Waits that a person alone ends. A storm or an API that does not answer goes by itself."""
ON_THE_WAY = (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF)
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
    """A pool, and the story of its newest revision's rollout where there is one."""

    pool: PoolDescription
    story: RolloutDescription | None = None

    @property
    def name(self) -> str:
        return self.pool.listed.name

    @property
    def revision(self) -> int:
        return self.pool.summary.revision if self.pool.summary else 0

    @property
    def steps(self) -> tuple[Happening, ...]:
        """Oldest first; the newest ones of a long rollout."""
        told = self._told
        return tuple(told.steps) if told else ()

    @property
    def dropped(self) -> int:
        """Older steps, that are not kept any more."""
        told = self._told
        return told.steps_dropped if told else 0

    @property
    def _told(self) -> RolloutResult | RolloutState | None:
        return (self.story.listed.result or self.story.listed.state) if self.story else None


async def look(client: HostlerClient, name: str, *, cluster: str | None = None) -> Look:
    """Raises NotFound where there never was such a pool."""
    pool = await client.pools.look(name, cluster=cluster)
    if pool.summary is None or not pool.running:
        return Look(pool)
    try:
        return Look(pool, await client.pools.rollout(name, pool.summary.revision, cluster=cluster))
    except NotFound:
        return Look(pool)  # a first revision replaces nothing; or its story has not begun yet


def judge(found: PoolDescription) -> Verdict:
    name, summary = found.listed.name, found.summary
    if not found.running:
        return Verdict(Stand.STANDS, f"pool {name} is gone{since(found)}")
    if summary is None:
        return Verdict(Stand.GOING, f"pool {name} cannot be asked: {found.no_answer}")
    if summary.deleted:
        return Verdict(Stand.STANDS, f"pool {name} is being deleted; {some(summary.machines)} left")
    if summary.parked:
        return Verdict(Stand.STANDS, _held(summary, "InternalError", summary.parked))
    if summary.rolled_out:
        return Verdict(Stand.DONE, f"pool {name} is rolled out: revision {summary.revision}, {_all_there(summary)}")
    if (held := held_by(summary)) is not None:
        return Verdict(Stand.STANDS, _held(summary, held.reason, held.message))
    return Verdict(Stand.GOING, "")


def held_by(summary: PoolSummary) -> PoolWait | None:
    """What only a person ends. Machines that never joined hold a rollout up once nothing else is on the way: one that
    joins late sets it going again."""
    newest = summary.revision
    hope = any(n for revision, phase, n in summary.phases if revision == newest and phase in ON_THE_WAY)
    reasons = HELD if hope else (*HELD, "NewMachinesNeverJoin")
    return next((w for w in summary.waits if w.reason in reasons), None)


def _held(s: PoolSummary, reason: str, message: str) -> str:
    todo = next_step(reason, s.cluster, s.name, "pool")
    return f"the rollout of pool {s.name} stands: {reason}: {message}\nwhat can be done: {todo}"


def _all_there(s: PoolSummary) -> str:
    if s.hibernated:
        return "no machine, for it is hibernated"
    return f"{s.available} of {some(s.replicas)} available"


async def verdict(client: HostlerClient, found: PoolDescription, *, cluster: str | None = None) -> Verdict:
    """As `judge`; but a pool that has not heard yet of its class's newest generation is not done: whoever looks right
    after `apply` means the rollout to come (kubectl's observedGeneration)."""
    said = judge(found)
    if said.stand is not Stand.DONE or found.summary is None:
        return said
    name = found.summary.machine_class
    state = await client.classes.current(name, cluster=cluster)
    if state is None or state.deleted:
        return said
    user = state.users.get(pool_user(found.listed.name))
    if user is not None and user.generation >= state.generation:
        return said
    words = f"pool {found.listed.name} has not heard yet of generation {state.generation} of class {name}"
    return Verdict(Stand.GOING, words)


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


def numbers(s: PoolSummary) -> str:
    """`revision 3: 12 of 20 updated, 18 available, 8 old ones left`."""
    c = counts(s)
    parts = [f"{c.updated} of {c.replicas} updated", f"{s.available} available"]
    parts += [f"{c.old} old one{'s' if c.old != 1 else ''} left"] if c.old else []
    parts += [f"{s.unhealthy} unhealthy"] if s.unhealthy else []
    return f"revision {s.revision}: {', '.join(parts)}"


def some(count: int) -> str:
    return f"{count} machine{'s' if count != 1 else ''}"


def fresh(told: set[Happening], steps: Iterable[Happening]) -> list[Happening]:
    """Those that were not told yet, and are now."""
    new = [step for step in steps if step not in told]
    told.update(new)
    return new
