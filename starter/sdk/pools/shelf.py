"""Pools as HostlerClient sees them: their numbers, their rollouts, and what people ask of them.

await hostler.apply(machine_class, pool)
await hostler.pools.scale("p1", 5)
await hostler.pools.wait("p1", "rolled-out")
"""

from __future__ import annotations

import asyncio
import builtins
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowExecution, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition

from resources import names
from resources.messages import DeleteIntent, Intent
from resources.pool import PoolState
from resources.pool_intents import PoolQuestion, PoolSummary, Rehearsal, ScaleIntent, UndoIntent
from resources.rollout import RolloutResult
from starter.sdk import history, intents, live
from starter.sdk.errors import NoAnswer, NotFound, Refused, translated
from starter.sdk.pools import recorded as pool_recorded
from starter.sdk.pools import rollouts
from starter.sdk.pools import waiting as pool_waiting
from starter.sdk.pools.results import PoolDescription, PoolListed, RolloutDescription, RolloutListed, since
from starter.sdk.pools.waiting import Progress
from starter.sdk.results import Event, Sent
from starter.sdk.spelling import did_you_mean

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

PARALLEL = 10
"""Pools that are asked at the same time."""
SOME = 10
"""Machines that are not Running, in a description."""
POOL_TYPE = "WorkflowType='MachineDeploymentWorkflow' AND ExecutionStatus='Running'"


class Pools:
    """`HostlerClient.pools`. `cluster` is everywhere the client's own where it is not given; `HostlerClient.apply`
    takes a pool's manifest. Every intent raises NotFound where there is no such pool, or none any more, and Refused
    with the pool's own words."""

    def __init__(self, client: HostlerClient) -> None:
        self._client = client
        self._temporal = client.temporal

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[PoolListed]:
        """Those that exist, by cluster and name, each with its own numbers where a worker gives them."""
        where = "" if all_clusters else f" AND HostlerCluster='{_word(cluster or self._client.cluster)}'"
        slots = asyncio.Semaphore(PARALLEL)

        async def one(execution: WorkflowExecution) -> PoolListed | None:
            listed = await pool_recorded.listed(execution)
            async with slots:
                try:
                    return replace(
                        listed, summary=await self._numbers(self._temporal.get_workflow_handle(execution.id))
                    )
                except NoAnswer:
                    return listed
                except WorkflowQueryRejectedError:
                    return None  # it has ended since it was listed

        with translated():
            found = [e async for e in self._temporal.list_workflows(POOL_TYPE + where)]
            every = await asyncio.gather(*(one(e) for e in found))
        return sorted((p for p in every if p is not None), key=lambda p: (p.cluster, p.name))

    async def find(self, name: str, *, cluster: str | None = None) -> PoolDescription | None:
        """The latest life of this name in the server's records, running or gone, without asking its workflow; None
        when there is none."""
        handle = self._handle(name, cluster)
        with translated():
            found = await live.described(handle)
            return await pool_recorded.life(found, self._web(found)) if found is not None else None

    async def get(self, name: str, *, cluster: str | None = None) -> PoolState:
        """The pool's own state. Raises NotFound when it is unknown or gone, NoAnswer without a worker."""
        await self._running(name, cluster)
        with translated():
            try:
                return await live.query(self._handle(name, cluster), PoolState)
            except NoAnswer as e:
                raise NoAnswer(f"pool {name} cannot be asked: {await self._absence(e)}") from None

    async def summary(self, name: str, *, cluster: str | None = None) -> PoolSummary:
        """The pool in numbers; small, whatever the pool's size. Raises as `get`."""
        found = await self.look(name, cluster=cluster)
        if not found.running:
            raise NotFound(self._gone(found))
        if found.summary is None:
            raise NoAnswer(f"pool {name} cannot be asked: {found.no_answer}")
        return found.summary

    async def look(self, name: str, *, cluster: str | None = None) -> PoolDescription:
        """The server's record and the pool's numbers, without its state: what watchers and waits ask for. Raises
        NotFound when there never was one."""
        found = await self.find(name, cluster=cluster)
        if found is None:
            raise await self.unknown(name, cluster)
        if not found.running:
            return found
        with translated():
            try:
                summary = await self._numbers(self._handle(name, cluster))
            except NoAnswer as e:
                return replace(found, no_answer=await self._absence(e))
            except WorkflowQueryRejectedError:
                return await self.look(name, cluster=cluster)  # it has ended meanwhile
        return replace(found, listed=replace(found.listed, summary=summary))

    async def describe(self, name: str, *, cluster: str | None = None) -> PoolDescription:
        """Everything that is known of a pool, also without a worker, also when it is gone. Raises NotFound."""
        found = await self.look(name, cluster=cluster)
        handle = self._handle(name, cluster)
        where = live.machines_of(_word(cluster or self._client.cluster), HostlerPool=_word(name))
        ill = f"{where} AND HostlerPhase NOT IN ('Running', 'Running:Preserved')" if found.running else where
        with translated():
            count = (await self._temporal.count_workflows(where)).count
            unwell = [await live.summary_of(e) async for e in self._temporal.list_workflows(ill, limit=SOME)]
            found = replace(found, machines=count, unwell=tuple(sorted(unwell, key=lambda m: m.name)))
            try:
                return replace(found, state=await live.query(handle, PoolState))
            except NoAnswer as e:
                if not found.running:
                    return found
                state = await pool_recorded.read(self._temporal, handle.id, found.run_id)
                return replace(found, state=state, no_answer=found.no_answer or await self._absence(e))

    async def events(self, name: str, *, cluster: str | None = None) -> builtins.list[Event]:
        """The pool's story so far, oldest first; of its rollouts there are stories of their own. Raises NotFound."""
        found = await self.find(name, cluster=cluster)
        if found is None:
            raise await self.unknown(name, cluster)
        handle = self._handle(name, cluster)
        with translated():
            story = await history.read(self._temporal, handle.id, found.run_id, PoolState)
            with suppress(NoAnswer):  # of one that has ended too, where a worker replays it
                story.journal((await live.query(handle, PoolState)).journal)
        return story.sorted()

    async def current(self, name: str, *, cluster: str | None = None) -> PoolState | None:
        """As it is; without a worker as it was asked for, from its history; None when there is none that lives."""
        found = await self.find(name, cluster=cluster)
        if found is None or not found.running:
            return None
        handle = self._handle(name, cluster)
        with translated():
            try:
                return await live.query(handle, PoolState)
            except NoAnswer:
                return await pool_recorded.read(self._temporal, handle.id, found.run_id)

    async def rehearse(self, name: str, question: PoolQuestion, *, cluster: str | None = None) -> Rehearsal:
        """What the pool would do, step by step, by its own planner. Nothing is changed by asking; `refused` says why it
        would not be taken at all. `starter.sdk.pools.rehearsal.lines` puts it into words. Raises NotFound, NoAnswer."""
        await self._running(name, cluster)
        with translated():
            try:
                return await live.query(self._handle(name, cluster), Rehearsal, name="rehearse", args=[question])
            except NoAnswer as e:
                raise NoAnswer(f"pool {name} cannot be asked: {await self._absence(e)}") from None

    async def any_of_class(self, machine_class: str, *, cluster: str | None = None) -> bool:
        """Whether a pool has this class; from visibility."""
        where = f"HostlerCluster='{_word(cluster or self._client.cluster)}' AND HostlerClass='{_word(machine_class)}'"
        with translated():
            return (await self._temporal.count_workflows(f"{POOL_TYPE} AND {where}")).count > 0

    async def unheard(self, listed: PoolListed) -> int:
        """The generation of its class that the pool has not heard of yet; 0: it knows the newest. A class tells its
        users after it has answered, and until then a pool's numbers are those of the class before."""
        if not listed.machine_class:
            return 0  # its workflow was started by hand, and has not said yet
        of = await self._client.classes.current(listed.machine_class, cluster=listed.cluster)
        user = of.users.get(names.pool_user(listed.name)) if of else None
        return of.generation if of and user and user.generation < of.generation else 0

    # -- rollouts -----------------------------------------------------------------------------------------------------

    async def rollouts(
        self, pool: str | None = None, *, cluster: str | None = None, all_clusters: bool = False
    ) -> builtins.list[RolloutListed]:
        """Rollouts that run, and those that have ended while Temporal keeps them; by cluster and pool, the newest
        first. From visibility, about a second behind; each with its own account. Of a pool that runs, those of its own
        life: one of the same name before it counted its revisions from 1 too."""
        where = None if all_clusters else _word(cluster or self._client.cluster)
        with translated():
            return await rollouts.every(self._temporal, where, _word(pool) if pool else None)

    async def rollout(
        self, pool: str, revision: int | None = None, *, cluster: str | None = None
    ) -> RolloutDescription:
        """The story of a rollout; without a revision, of the pool's newest. Raises NotFound."""
        where = cluster or self._client.cluster
        if revision is None:
            revision = await self._newest_rollout(pool, where)
        handle = self._temporal.get_workflow_handle(names.rollout_id(_word(where), _word(pool), revision))
        with translated():
            found = await live.described(handle)
            listed, no_answer = await rollouts.read(self._temporal, found) if found is not None else (None, "")
            if found is None or listed is None or not await rollouts.is_own(self._temporal, listed):
                raise NotFound(
                    f"the rollout of revision {revision} of pool {pool} is not known: it replaced no machine, or "
                    f"Temporal keeps it no more: `hostler rollout history {pool} --cluster {where}` lists revisions"
                )
            return RolloutDescription(
                listed,
                no_answer=await self._absence(NoAnswer(no_answer)) if no_answer else "",
                failure=f"its workflow was ended otherwise ({listed.phase})" if _ended_otherwise(listed) else "",
                pending=await live.pending_of(found) if listed.ended is None else (),
                web=self._web(found),
            )

    async def rollout_result(self, pool: str, revision: int, *, cluster: str | None = None) -> RolloutResult:
        """What a rollout came to; waits for its end. Raises NotFound; Refused where its workflow was ended from
        outside."""
        await self.rollout(pool, revision, cluster=cluster)
        workflow_id = names.rollout_id(cluster or self._client.cluster, pool, revision)
        handle = self._temporal.get_workflow_handle(workflow_id, result_type=RolloutResult)
        with translated():
            return await rollouts.result(handle, f"the rollout of revision {revision} of pool {pool}")

    async def _newest_rollout(self, pool: str, cluster: str) -> int:
        """The pool's own word first: visibility is behind."""
        try:
            summary = await self.summary(pool, cluster=cluster)
        except (NoAnswer, NotFound):
            summary = None
        if summary is not None and summary.rollout is not None:
            return summary.rollout.revision
        known = await self.rollouts(pool, cluster=cluster)
        if not known and summary is None:
            await self._running(pool, cluster)  # a name typed wrong is said so
        if not known:
            raise NotFound(
                f"pool {pool} has no rollout that Temporal knows: nothing of it was ever replaced, or long ago"
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
        """So many machines. `current`: only if they are so many now; `remove`: these machines go first, and where no
        replicas are given they are replaced by new ones."""
        intent = ScaleIntent(**self._by(reason), replicas=replicas, current=current, remove=remove or [])
        return await self._tell(name, "scale", intent, cluster)

    async def pause(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """No rollout of the pool begins or goes on until `resume`; replicas are kept up all the same."""
        return await self._plain(name, "pause", reason, cluster)

    async def resume(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Opens everything that holds the rollout up: a pause, a canary, an abort, the progress deadline."""
        return await self._plain(name, "resume", reason, cluster)

    async def abort(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Stops the rollout where it is; the old machines stay and lose their marks."""
        return await self._plain(name, "abort", reason, cluster)

    async def undo(self, name: str, to: int | None = None, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Back to a former revision; without one, to that before the newest."""
        return await self._tell(name, "undo", UndoIntent(**self._by(reason), to=to), cluster)

    async def restart(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """New machines for all, by the pool's strategy, though nothing else differs."""
        return await self._plain(name, "restart", reason, cluster)

    async def hibernate(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """No machines for now, whatever replicas says."""
        return await self._plain(name, "hibernate", reason, cluster)

    async def wake(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """As many machines again as replicas says."""
        return await self._plain(name, "wake", reason, cluster)

    async def renew(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks the pool's workflow to go on with the newest code, and to try again what stands still."""
        return await self._plain(name, "renew", reason, cluster)

    async def delete(self, name: str, *, force: bool = False, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for the end of the pool and all its machines; `force` shortens their drain. One that is gone already is
        no error."""
        found = await self.find(name, cluster=cluster)
        if found is None:
            raise await self.unknown(name, cluster)
        if not found.running:
            return Sent(f"is gone already{since(found)}", gone=True)
        return await self.send(name, "delete", DeleteIntent(**self._by(reason), force=force), cluster=cluster)

    async def send(self, name: str, intent_name: str, intent: Intent, *, cluster: str | None = None) -> Sent:
        """An intent of one's own making; its id makes sending it again harmless."""
        queue = names.workflow_queue(self._client.settings.queue_prefix)
        with translated():
            return await intents.send(self._handle(name, cluster), intent_name, intent, queue, f"pool {name}")

    async def _plain(self, name: str, intent_name: str, reason: str, cluster: str | None) -> Sent:
        return await self._tell(name, intent_name, Intent(**self._by(reason)), cluster)

    async def _tell(self, name: str, intent_name: str, intent: Intent, cluster: str | None) -> Sent:
        await self._running(name, cluster)  # a name typed wrong is said so
        return await self.send(name, intent_name, intent, cluster=cluster)

    def _by(self, reason: str) -> dict[str, Any]:
        return {"id": intents.new_id(), "requested_by": self._client.requested_by, "reason": reason}

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        until: str = "rolled-out",
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress | None = None,
        cluster: str | None = None,
    ) -> PoolDescription:
        """Until the pool is `rolled-out` (as many machines as wanted, all available and of the newest revision, nothing
        left of older ones), `ready` (as many available as wanted) or `deleted`. A worker that is away is waited for.

        Raises NotFound (unknown, gone), Refused (it cannot come there any more, or a person must let its rollout go
        on), WaitTimeout with what it waits for.
        """
        return await pool_waiting.wait(self._client, name, until, timeout=timeout, progress=progress, cluster=cluster)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def unknown(self, name: str, cluster: str | None = None) -> NotFound:
        """With the names that there are, for one that was typed wrong."""
        where = cluster or self._client.cluster
        known = [p.name for p in await self.list(cluster=where)]
        return NotFound(
            f"pool {name!r} of cluster {where!r} is not known: `hostler get pools --cluster {where}` lists those that "
            f"are{did_you_mean(name, known)}"
        )

    async def _running(self, name: str, cluster: str | None) -> PoolDescription:
        found = await self.find(name, cluster=cluster)
        if found is None:
            raise await self.unknown(name, cluster)
        if not found.running:
            raise NotFound(self._gone(found))
        return found

    def _gone(self, found: PoolDescription) -> str:
        return f"pool {found.listed.name} of cluster {found.listed.cluster} is gone{since(found)}"

    def _web(self, found: WorkflowExecution) -> str | None:
        return live.web_link(self._client.settings.temporal.ui, self._temporal.namespace, found.id, found.run_id)

    async def _numbers(self, handle: Any) -> PoolSummary:
        return await live.query(handle, PoolSummary, QueryRejectCondition.NOT_OPEN, name="summary")

    async def _absence(self, why: NoAnswer) -> str:
        queue = names.workflow_queue(self._client.settings.queue_prefix)
        return f"{await live.absence(self._temporal, queue, datetime.now(UTC))}; {why}"

    def _handle(self, name: str, cluster: str | None) -> Any:
        workflow_id = names.pool_id(_word(cluster or self._client.cluster), _word(name))
        return self._temporal.get_workflow_handle(workflow_id)


def _ended_otherwise(listed: RolloutListed) -> bool:
    return listed.ended is not None and listed.result is None


def _word(name: str) -> str:
    """Only a name goes into ids and queries."""
    if not names.is_name(name):
        raise Refused(f"{name!r} is no name: use lower-case letters, digits, '-' and '.'")
    return name
