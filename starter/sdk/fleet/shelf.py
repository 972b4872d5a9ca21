"""What programs read of every kind of owner of machines: the server's records, its own numbers, its state, and what it
would do."""

from __future__ import annotations

import builtins
from abc import abstractmethod
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import ClassVar, Generic, TypeVar

from temporalio.client import WorkflowExecution, WorkflowExecutionDescription, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition

from resources import attributes
from resources.base import Value, format_duration
from resources.fleet.rehearsal import Rehearsal
from resources.intents import Intent
from resources.names import id_parts
from resources.owner import Owner, OwnerKind
from starter.sdk import live, parallel
from starter.sdk.classes import Classes
from starter.sdk.connection import Connection
from starter.sdk.entity import EntityClient, EntityKey, Handle
from starter.sdk.errors import NoAnswer, translated
from starter.sdk.fleet.results import FleetDescription, FleetListed, NumbersT, StateT
from starter.sdk.fleet.trouble import trouble_of
from starter.sdk.fleet.waiting import FleetWaiting, Goal, RolloutVerdict
from starter.sdk.machines.records import machines_of, summary_of
from starter.sdk.patience import Progress, look_until
from starter.sdk.results import Sent

QuestionT = TypeVar("QuestionT", bound=Value)
SOME = 10
"""Machines in a description that are not Running."""


class FleetShelf(EntityClient[StateT], Generic[StateT, NumbersT, QuestionT]):
    """A shelf of owners of one kind. Every intent raises NotFound where there is no such owner (any longer), and
    Refused with its own words."""

    kind: ClassVar[OwnerKind]
    asked: ClassVar[str] = "summary"
    """The query for its numbers."""

    def __init__(self, connection: Connection, classes: Classes) -> None:
        super().__init__(connection)
        self._classes = classes

    @property
    @abstractmethod
    def numbers(self) -> type[NumbersT]:
        """Its answer to that query."""

    @property
    @abstractmethod
    def question(self) -> type[QuestionT]:
        """What it is asked by `rehearse`."""

    @abstractmethod
    def judge(self, found: FleetDescription[StateT, NumbersT]) -> RolloutVerdict:
        """How its rollout stands."""

    @abstractmethod
    def where(self, found: FleetDescription[StateT, NumbersT]) -> str:
        """How far it is and what it waits for, in one line."""

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(
        self, *, cluster: str | None = None, all_clusters: bool = False
    ) -> builtins.list[FleetListed[NumbersT]]:
        """Those that exist, by cluster and name, each with its own numbers where a worker gives them."""

        async def one(execution: WorkflowExecution) -> FleetListed[NumbersT] | None:
            listed = await self._listed(execution)
            try:
                return replace(listed, summary=await self._numbers(self.temporal.get_workflow_handle(execution.id)))
            except NoAnswer:
                return listed
            except WorkflowQueryRejectedError:
                return None  # it has ended since it was listed

        with translated():
            found = self.temporal.list_workflows(self._those(cluster, all_clusters))
            every = await parallel.each([partial(one, e) async for e in found])
        return sorted((p for p in every if p is not None), key=lambda p: (p.cluster, p.name))

    async def find(self, name: str, *, cluster: str | None = None) -> FleetDescription[StateT, NumbersT] | None:
        """The latest life of this name in the server's records, running or gone, without asking its workflow; None
        when there is none."""
        found = await self._described(name, cluster)
        with translated():
            return await self._life(found) if found is not None else None

    async def summary(self, name: str, *, cluster: str | None = None) -> NumbersT:
        """It in numbers; small, whatever its size. Raises what `get` raises."""
        found = await self.look(name, cluster=cluster)
        if not found.running:
            raise self._gone(name, cluster, found.ended)
        if found.summary is None:
            raise NoAnswer(f"{self.noun} {name} cannot be asked: {found.no_answer}")
        return found.summary

    async def look(self, name: str, *, cluster: str | None = None) -> FleetDescription[StateT, NumbersT]:
        """The server's record and its own numbers, without its state: this is what watchers and waits ask for. Raises
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
                return replace(found, no_answer=await self._silence(e))
            except WorkflowQueryRejectedError:
                return await self.look(name, cluster=cluster)  # it has ended meanwhile
        return replace(found, listed=replace(found.listed, summary=summary))

    async def describe(self, name: str, *, cluster: str | None = None) -> FleetDescription[StateT, NumbersT]:
        """Everything that is known of it, even without a worker, and even when it is gone. Raises NotFound."""
        found = await self.look(name, cluster=cluster)
        handle = self._handle(name, cluster)
        owner = Owner(kind=self.kind.manifest, name=name)
        where = machines_of(self.connection.where(cluster), HostlerPool=owner.listed)
        ill = f"{where} AND HostlerPhase NOT IN ('Running', 'Running:Preserved')" if found.running else where
        with translated():
            count = (await self.temporal.count_workflows(where)).count
            unwell = [await summary_of(e) async for e in self.temporal.list_workflows(ill, limit=SOME)]
            found = replace(found, machines=count, unwell=tuple(sorted(unwell, key=lambda m: m.name)))
            if found.running:
                found = replace(found, trouble=await trouble_of(self.temporal, unwell))
            try:
                return replace(found, state=await live.query(handle, self.model))
            except NoAnswer as e:
                if not found.running:
                    return found
                state = await self._recorded(handle.id, found.run_id)
                return replace(found, state=state, no_answer=found.no_answer or await self._silence(e))

    async def rehearse(self, name: str, question: QuestionT, *, cluster: str | None = None) -> Rehearsal:
        """What it would do, step by step, by its own planner. Asking changes nothing; `refused` says why it would not
        be accepted at all. `starter.sdk.fleet.rehearsal.lines` puts it into words. Raises NotFound, NoAnswer."""
        await self._running(name, cluster)
        asked = question.model_copy(update={"at": datetime.now(UTC)})
        with translated():
            try:
                return await live.query(self._handle(name, cluster), Rehearsal, name="rehearse", args=[asked])
            except NoAnswer as e:
                raise NoAnswer(f"{self.noun} {name} cannot be asked: {await self._silence(e)}") from None

    async def unheard(self, listed: FleetListed[NumbersT]) -> int:
        """The generation of its class that it has not heard of yet; 0: it knows the newest. A class tells its users
        after it has answered, and until then an owner's numbers are those of the former class."""
        if not listed.machine_class:
            return 0  # its workflow was started by hand, and has not said yet
        of = await self._classes.current(listed.machine_class, cluster=listed.cluster)
        user = of.users.get(Owner(kind=self.kind.manifest, name=listed.name).user) if of else None
        return of.generation if of and user and user.generation < of.generation else 0

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        until: str = "rolled-out",
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress[FleetDescription[StateT, NumbersT]] | None = None,
        cluster: str | None = None,
    ) -> FleetDescription[StateT, NumbersT]:
        """Waits until it is `rolled-out` (as many machines as wanted, all available and of the newest revision, nothing
        left of older ones), `ready` (as many available as wanted) or `deleted`. It also waits for a worker that is
        away.

        Raises NotFound (unknown, gone), Refused (it can no longer come there, or a person must let its rollout go on),
        WaitTimeout with what it waits for.
        """
        goal = Goal(until)

        async def unheard(found: FleetDescription[StateT, NumbersT]) -> bool:
            return await self.unheard(found.listed) > 0

        def late(found: FleetDescription[StateT, NumbersT]) -> str:
            after = f", after {format_duration(timeout)}" if timeout else ""
            return f"{self.noun} {name} is not {goal}{after}: {self.where(found)}; it may get there yet"

        return await look_until(
            partial(self.look, name, cluster=cluster),
            FleetWaiting(self.noun, goal, self.judge, unheard).reached,
            late,
            timeout=timeout,
            progress=progress,
        )

    # -- intents ------------------------------------------------------------------------------------------------------

    async def pause(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """No rollout of it begins or goes on until `resume`."""
        return await self._plain(name, "pause", reason, cluster)

    async def resume(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Lifts what holds its rollout up: a pause, a canary, an abort, the progress deadline."""
        return await self._plain(name, "resume", reason, cluster)

    async def _plain(self, name: str, intent_name: str, reason: str, cluster: str | None) -> Sent:
        return await self.tell(name, intent_name, Intent(**self.connection.by(reason)), cluster=cluster)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _described(self, name: str, cluster: str | None) -> WorkflowExecutionDescription | None:
        """None also for another name where a cluster has only one."""
        known = self.kind.only in ("", name)
        return await super()._described(name, cluster) if known else None

    def key(self, workflow_id: str) -> EntityKey:
        return (id_parts(workflow_id, 1)[0], self.kind.only) if self.kind.only else super().key(workflow_id)

    async def _numbers(self, handle: Handle) -> NumbersT:
        return await live.query(handle, self.numbers, QueryRejectCondition.NOT_OPEN, name=self.asked)

    async def _listed(self, execution: WorkflowExecution) -> FleetListed[NumbersT]:
        """The owner as its search attributes show it."""
        cluster, name = self.key(execution.id)
        found = execution.typed_search_attributes
        return FleetListed(
            name=name,
            cluster=cluster,
            created=await live.created_of(execution),
            phase=found.get(attributes.PHASE, ""),
            reason=found.get(attributes.REASON, ""),
            machine_class=found.get(attributes.CLASS, ""),
        )

    async def _life(self, found: WorkflowExecutionDescription) -> FleetDescription[StateT, NumbersT]:
        """The latest life, running or gone."""
        status = found.status.name if found.status else "UNKNOWN"
        otherwise = f"somebody ended its workflow ({status}): its machines continue without it"
        return FleetDescription(
            listed=await self._listed(found),
            status=status,
            failure="" if status in ("RUNNING", "COMPLETED") else otherwise,
            ended=found.close_time,
            run_id=found.run_id,
            first_run_id=found.raw_description.workflow_execution_info.first_run_id,
            task_attempt=live.task_attempt(found),
            pending=await live.pending_of(found),
            web=self._web(found.id, found.run_id),
        )
