"""Pools as HostlerClient sees them: their numbers, their rollouts, and what people ask of them.

await hostler.apply(machine_class, pool)
await hostler.pools.scale("p1", 5)
await hostler.pools.wait("p1", "rolled-out")
"""

from __future__ import annotations

import builtins
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

from temporalio.client import WorkflowExecution, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition

from resources import names
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.owner import Owner
from resources.pool.intents import PoolQuestion, PoolSummary, Rehearsal, ScaleIntent, UndoIntent
from resources.pool.rollout import RolloutResult
from resources.pool.state import PoolState
from starter.sdk import history, live, parallel
from starter.sdk.classes import Classes
from starter.sdk.connection import Connection, word
from starter.sdk.entity import EntityClient, Handle
from starter.sdk.errors import NoAnswer, NotFound, translated
from starter.sdk.machines.records import machines_of, summary_of
from starter.sdk.patience import Progress, look_until
from starter.sdk.pools import recorded, rollouts, waiting
from starter.sdk.pools.results import PoolDescription, PoolListed, RolloutDescription, RolloutListed
from starter.sdk.pools.waiting import Goal
from starter.sdk.results import Event, Sent

SOME = 10
"""Machines in a description that are not Running."""


class Pools(EntityClient[PoolState]):
    """`HostlerClient.pools`. Where `cluster` is not given, it is the client's own; `HostlerClient.apply` takes a pool's
    manifest. Every intent raises NotFound where there is no such pool (any longer), and Refused with the pool's own
    words."""

    noun, plural, workflow = "pool", "pools", "MachineDeploymentWorkflow"
    model = PoolState
    id_of = staticmethod(names.pool_id)

    def __init__(self, connection: Connection, classes: Classes) -> None:
        super().__init__(connection)
        self._classes = classes

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[PoolListed]:
        """Pools that exist, by cluster and name, each with its own numbers where a worker gives them."""

        async def one(execution: WorkflowExecution) -> PoolListed | None:
            listed = await recorded.listed(execution)
            try:
                return replace(listed, summary=await _numbers(self.temporal.get_workflow_handle(execution.id)))
            except NoAnswer:
                return listed
            except WorkflowQueryRejectedError:
                return None  # it has ended since it was listed

        with translated():
            found = self.temporal.list_workflows(self._those(cluster, all_clusters))
            every = await parallel.each([partial(one, e) async for e in found])
        return sorted((p for p in every if p is not None), key=lambda p: (p.cluster, p.name))

    async def find(self, name: str, *, cluster: str | None = None) -> PoolDescription | None:
        """The latest life of this name in the server's records, running or gone, without asking its workflow; None
        when there is none."""
        found = await self._described(name, cluster)
        with translated():
            return await recorded.life(found, self._web(found.id, found.run_id)) if found is not None else None

    async def summary(self, name: str, *, cluster: str | None = None) -> PoolSummary:
        """The pool in numbers; small, whatever the pool's size. Raises what `get` raises."""
        found = await self.look(name, cluster=cluster)
        if not found.running:
            raise self._gone(name, cluster, found.ended)
        if found.summary is None:
            raise NoAnswer(f"pool {name} cannot be asked: {found.no_answer}")
        return found.summary

    async def look(self, name: str, *, cluster: str | None = None) -> PoolDescription:
        """The server's record and the pool's numbers, without its state: this is what watchers and waits ask for.
        Raises NotFound when there never was one."""
        found = await self.find(name, cluster=cluster)
        if found is None:
            raise await self.unknown(name, cluster)
        if not found.running:
            return found
        with translated():
            try:
                summary = await _numbers(self._handle(name, cluster))
            except NoAnswer as e:
                return replace(found, no_answer=await self._silence(e))
            except WorkflowQueryRejectedError:
                return await self.look(name, cluster=cluster)  # it has ended meanwhile
        return replace(found, listed=replace(found.listed, summary=summary))

    async def describe(self, name: str, *, cluster: str | None = None) -> PoolDescription:
        """Everything that is known of a pool, even without a worker, and even when it is gone. Raises NotFound."""
        found = await self.look(name, cluster=cluster)
        handle = self._handle(name, cluster)
        where = machines_of(self.connection.where(cluster), HostlerPool=word(name))
        ill = f"{where} AND HostlerPhase NOT IN ('Running', 'Running:Preserved')" if found.running else where
        with translated():
            count = (await self.temporal.count_workflows(where)).count
            unwell = [await summary_of(e) async for e in self.temporal.list_workflows(ill, limit=SOME)]
            found = replace(found, machines=count, unwell=tuple(sorted(unwell, key=lambda m: m.name)))
            try:
                return replace(found, state=await live.query(handle, PoolState))
            except NoAnswer as e:
                if not found.running:
                    return found
                state = await self._recorded(handle.id, found.run_id)
                return replace(found, state=state, no_answer=found.no_answer or await self._silence(e))

    async def events(self, name: str, *, cluster: str | None = None) -> builtins.list[Event]:
        """The pool's story so far, oldest first; its rollouts have stories of their own. Raises NotFound."""
        found = await self._known(name, cluster)
        with translated():
            story = await history.read(self.temporal, found.id, found.run_id, PoolState)
            with suppress(NoAnswer):  # even one that has ended answers, where a worker replays it
                story.journal((await live.query(self._handle(name, cluster), PoolState)).journal)
        return story.sorted()

    async def rehearse(self, name: str, question: PoolQuestion, *, cluster: str | None = None) -> Rehearsal:
        """What the pool would do, step by step, by its own planner. Asking changes nothing; `refused` says why it would
        not be accepted at all. `starter.sdk.pools.rehearsal.lines` puts it into words. Raises NotFound, NoAnswer."""
        await self._running(name, cluster)
        with translated():
            try:
                return await live.query(self._handle(name, cluster), Rehearsal, name="rehearse", args=[question])
            except NoAnswer as e:
                raise NoAnswer(f"pool {name} cannot be asked: {await self._silence(e)}") from None

    async def any_of_class(self, machine_class: str, *, cluster: str | None = None) -> bool:
        """Whether a pool has this class; from visibility."""
        query = f"{self._those(cluster)} AND HostlerClass='{word(machine_class)}'"
        with translated():
            return (await self.temporal.count_workflows(query)).count > 0

    async def unheard(self, listed: PoolListed) -> int:
        """The generation of its class that the pool has not heard of yet; 0: it knows the newest. A class tells its
        users after it has answered, and until then a pool's numbers are those of the former class."""
        if not listed.machine_class:
            return 0  # its workflow was started by hand, and has not said yet
        of = await self._classes.current(listed.machine_class, cluster=listed.cluster)
        user = of.users.get(Owner(name=listed.name).user) if of else None
        return of.generation if of and user and user.generation < of.generation else 0

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

    async def pause(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """No rollout of the pool begins or goes on until `resume`; replicas are kept up all the same."""
        return await self._plain(name, "pause", reason, cluster)

    async def resume(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Lifts everything that holds the rollout up: a pause, a canary, an abort, the progress deadline."""
        return await self._plain(name, "resume", reason, cluster)

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

    async def _plain(self, name: str, intent_name: str, reason: str, cluster: str | None) -> Sent:
        return await self.tell(name, intent_name, Intent(**self.connection.by(reason)), cluster=cluster)

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        until: str = "rolled-out",
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress[PoolDescription] | None = None,
        cluster: str | None = None,
    ) -> PoolDescription:
        """Waits until the pool is `rolled-out` (as many machines as wanted, all available and of the newest revision,
        nothing left of older ones), `ready` (as many available as wanted) or `deleted`. It also waits for a worker that
        is away.

        Raises NotFound (unknown, gone), Refused (it can no longer come there, or a person must let its rollout go on),
        WaitTimeout with what it waits for.
        """
        goal = Goal(until)

        async def unheard(found: PoolDescription) -> bool:
            return await self.unheard(found.listed) > 0

        return await look_until(
            partial(self.look, name, cluster=cluster),
            waiting.PoolWait(goal, unheard).reached,
            lambda found: waiting.late(found, goal, timeout),
            timeout=timeout,
            progress=progress,
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _recorded(self, workflow_id: str, run_id: str) -> PoolState:
        return await recorded.read(self.temporal, workflow_id, run_id)


async def _numbers(handle: Handle) -> PoolSummary:
    return await live.query(handle, PoolSummary, QueryRejectCondition.NOT_OPEN, name="summary")


def _ended_otherwise(listed: RolloutListed) -> bool:
    return listed.ended is not None and listed.result is None
