"""Pools as HostlerClient sees them: their numbers, their rollouts, and what people ask of them.

await hostler.apply(machine_class, pool)
await hostler.pools.scale("p1", 5)
await hostler.pools.wait("p1", "rolled-out")
"""

from __future__ import annotations

import builtins
from datetime import timedelta

from resources import names
from resources.machine.intents import DeleteIntent
from resources.maintenance import FreezeIntent
from resources.owner import POOL
from resources.pool.intents import PoolQuestion, PoolSummary, ResumeIntent, ScaleIntent, UndoIntent, VerdictIntent
from resources.pool.rollout import RolloutResult
from resources.pool.state import PoolState
from starter.sdk import live
from starter.sdk.connection import word
from starter.sdk.errors import NoAnswer, NotFound, translated
from starter.sdk.fleet.shelf import FleetShelf
from starter.sdk.fleet.waiting import RolloutVerdict
from starter.sdk.pools import recorded, rollouts
from starter.sdk.pools.results import PoolDescription, RolloutDescription, RolloutListed
from starter.sdk.pools.rollout_status import judge, where
from starter.sdk.results import Sent


class Pools(FleetShelf[PoolState, PoolSummary, PoolQuestion]):
    """`HostlerClient.pools`. Where `cluster` is not given, it is the client's own; `HostlerClient.apply` takes a pool's
    manifest. Every intent raises NotFound where there is no such pool (any longer), and Refused with the pool's own
    words."""

    noun, plural, workflow, kind = POOL.word, "pools", POOL.workflow, POOL
    model, numbers, question = PoolState, PoolSummary, PoolQuestion
    id_of = staticmethod(names.pool_id)

    # -- read ---------------------------------------------------------------------------------------------------------

    async def any_of_class(self, machine_class: str, *, cluster: str | None = None) -> bool:
        """Whether a pool has this class; from visibility."""
        query = f"{self._those(cluster)} AND HostlerClass='{word(machine_class)}'"
        with translated():
            return (await self.temporal.count_workflows(query)).count > 0

    # -- rollouts -----------------------------------------------------------------------------------------------------

    async def rollouts(
        self, pool: str | None = None, *, cluster: str | None = None, all_clusters: bool = False
    ) -> builtins.list[RolloutListed]:
        """Rollouts that run, and those that have ended while Temporal keeps them; by cluster and pool, the newest
        first. From visibility, about a second behind; each with its own account. For a pool that runs, those of its own
        life: an earlier pool of the same name counted its revisions from 1 too."""
        where = None if all_clusters else self.connection.where(cluster)
        with translated():
            return await rollouts.every(self.temporal, where, word(pool) if pool else None)

    async def rollout(
        self, pool: str, revision: int | None = None, *, cluster: str | None = None
    ) -> RolloutDescription:
        """The story of a rollout; without a revision, of the pool's newest one. Raises NotFound."""
        where = self.connection.where(cluster)
        if revision is None:
            revision = await self._newest_rollout(pool, where)
        handle = self.temporal.get_workflow_handle(names.rollout_id(where, word(pool), revision))
        with translated():
            found = await live.described(handle)
            listed, no_answer = await rollouts.read(self.temporal, found) if found is not None else (None, "")
            if found is None or listed is None or not await rollouts.is_own(self.temporal, listed):
                raise NotFound(
                    f"the rollout of revision {revision} of pool {pool} is not known: it replaced no machine, or "
                    f"Temporal no longer keeps it: `hostler rollout history {pool} --cluster {where}` lists revisions"
                )
            return RolloutDescription(
                listed,
                no_answer=await self._silence(NoAnswer(no_answer)) if no_answer else "",
                failure=f"its workflow was ended otherwise ({listed.phase})" if _ended_otherwise(listed) else "",
                pending=await live.pending_of(found) if listed.ended is None else (),
                web=self._web(found.id, found.run_id),
            )

    async def rollout_result(self, pool: str, revision: int, *, cluster: str | None = None) -> RolloutResult:
        """Waits for a rollout's end and returns its outcome. Raises NotFound; Refused where its workflow was ended from
        outside."""
        await self.rollout(pool, revision, cluster=cluster)
        workflow_id = names.rollout_id(self.connection.where(cluster), word(pool), revision)
        handle = self.temporal.get_workflow_handle(workflow_id, result_type=RolloutResult)
        with translated():
            return await rollouts.result(handle, f"the rollout of revision {revision} of pool {pool}")

    async def _newest_rollout(self, pool: str, cluster: str) -> int:
        """The revision of the newest rollout, from the pool itself first: visibility is behind."""
        try:
            summary = await self.summary(pool, cluster=cluster)
        except (NoAnswer, NotFound):
            summary = None
        if summary is not None and summary.rollout is not None:
            return summary.rollout.revision
        known = await self.rollouts(pool, cluster=cluster)
        if not known and summary is None:
            await self._running(pool, cluster)  # a mistyped name is reported as such
        if not known:
            raise NotFound(
                f"pool {pool} has no rollout that Temporal knows: none of its machines was ever replaced, or only "
                "long ago"
            )
        return known[0].revision

    # -- intents ------------------------------------------------------------------------------------------------------

    async def scale(
        self,
        name: str,
        replicas: int | None = None,
        *,
        current: int | None = None,
        remove: builtins.list[str] | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Sets the number of machines. `current`: only if there are that many now; `remove`: these machines go first,
        and where no replicas are given, new ones replace them."""
        intent = ScaleIntent(**self.connection.by(reason), replicas=replicas, current=current, remove=remove or [])
        return await self.tell(name, "scale", intent, cluster=cluster)

    async def resume(
        self,
        name: str,
        *,
        now: bool = False,
        span: timedelta | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Lifts what holds the rollout up: a pause, a canary, an abort, the progress deadline. `now`: also the time
        outside its maintenance windows, for 4 h or `span`, and the pool before it."""
        given = {"span": span} if span is not None else {}
        intent = ResumeIntent(**self.connection.by(reason), now=now, **given)
        return await self.tell(name, "resume", intent, cluster=cluster)

    async def approve(
        self, name: str, revision: int | None = None, *, reason: str = "", cluster: str | None = None
    ) -> Sent:
        """Approves the revision whose rollout waits for that; `revision`: only if it is this one."""
        intent = VerdictIntent(**self.connection.by(reason), revision=revision)
        return await self.tell(name, "approve", intent, cluster=cluster)

    async def reject(
        self, name: str, revision: int | None = None, *, reason: str = "", cluster: str | None = None
    ) -> Sent:
        """Rejects it: the rollout is aborted."""
        intent = VerdictIntent(**self.connection.by(reason), revision=revision)
        return await self.tell(name, "reject", intent, cluster=cluster)

    async def freeze(
        self, name: str, span: timedelta | None = None, *, reason: str = "", cluster: str | None = None
    ) -> Sent:
        """No rollout and no hot update of the pool begins or goes on until `unfreeze`, or for this long."""
        return await self.tell(name, "freeze", FreezeIntent(**self.connection.by(reason), span=span), cluster=cluster)

    async def unfreeze(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Ends a freeze of the pool; not one of its cluster."""
        return await self._plain(name, "unfreeze", reason, cluster)

    async def abort(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Stops the rollout where it is; the old machines stay and lose their marks."""
        return await self._plain(name, "abort", reason, cluster)

    async def undo(self, name: str, to: int | None = None, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Goes back to a former revision; without one, to that before the newest."""
        return await self.tell(name, "undo", UndoIntent(**self.connection.by(reason), to=to), cluster=cluster)

    async def restart(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Replaces all machines by the pool's strategy, though nothing else differs."""
        return await self._plain(name, "restart", reason, cluster)

    async def hibernate(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Leaves the pool no machines for now, whatever replicas says."""
        return await self._plain(name, "hibernate", reason, cluster)

    async def wake(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Gives the pool as many machines again as replicas says."""
        return await self._plain(name, "wake", reason, cluster)

    async def delete(self, name: str, *, force: bool = False, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for the end of the pool and all its machines; `force` shortens their drain. One that is gone already is
        no error."""
        return await self._end(name, DeleteIntent(**self.connection.by(reason), force=force), cluster)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _recorded(self, workflow_id: str, run_id: str) -> PoolState:
        return await recorded.read(self.temporal, workflow_id, run_id)

    def judge(self, found: PoolDescription) -> RolloutVerdict:
        return judge(found)

    def where(self, found: PoolDescription) -> str:
        return where(found)


def _ended_otherwise(listed: RolloutListed) -> bool:
    return listed.ended is not None and listed.result is None
