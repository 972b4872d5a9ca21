"""The entity client: workflows of one kind by name, what they answer, and what they are told.

A shelf (machines, pools, classes, clusters) is an entity client plus what only its kind has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle

from resources.intents import Intent
from resources.names import id_parts
from starter.sdk import intents, live
from starter.sdk.connection import Connection, word
from starter.sdk.errors import NoAnswer, NotFound, translated
from starter.sdk.results import Event, Sent, since
from starter.sdk.spelling import did_you_mean

if TYPE_CHECKING:
    from starter.sdk.history import Journaled

StateT = TypeVar("StateT", bound="Journaled")
Handle = WorkflowHandle[Any, Any]
EntityKey = tuple[str, str]
"""Cluster and name."""


class EntityClient(ABC, Generic[StateT]):
    """A client for one kind of entity. Where `cluster` is not given, it is the connection's own."""

    noun: ClassVar[str]
    """What people call one."""
    plural: ClassVar[str]
    workflow: ClassVar[str]
    """The type of its workflow."""
    id_of: Callable[[str, str], str]
    """The workflow's id, from cluster and name."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.temporal = connection.temporal
        self.settings = connection.settings

    @property
    @abstractmethod
    def model(self) -> type[StateT]:
        """Its state, with which its workflow answers `describe`."""

    # -- read ---------------------------------------------------------------------------------------------------------

    async def get(self, name: str, *, cluster: str | None = None) -> StateT:
        """The entity's own state. Raises NotFound when it is unknown or gone, NoAnswer without a worker."""
        found = await self._running(name, cluster)
        state, why = await self._answer(found)
        if state is None:
            raise NoAnswer(f"{self.noun} {name} cannot be asked: {why}")
        return state

    async def current(self, name: str, *, cluster: str | None = None) -> StateT | None:
        """The state as it is; without a worker, as it was asked for, from its history; None when there is none that
        lives."""
        found = await self._described(name, cluster)
        if found is None or not runs(found):
            return None
        with translated():
            try:
                return await live.query(self._handle(name, cluster), self.model)
            except NoAnswer:
                return await self._recorded(found.id, found.run_id)

    async def is_gone(self, name: str, *, cluster: str | None = None) -> bool:
        """Whether it has ended. Raises NotFound when there never was one."""
        return not runs(await self._known(name, cluster))

    async def events(self, name: str, *, cluster: str | None = None) -> list[Event]:
        """Its story so far, oldest first, also of one that has ended. Raises NotFound."""
        from starter.sdk import history

        found = await self._known(name, cluster)
        with translated():
            story = await history.read(self.temporal, found.id, found.run_id, self.model)
            with suppress(NoAnswer):  # even one that has ended answers, where a worker replays it
                story.journal((await live.query(self.temporal.get_workflow_handle(found.id), self.model)).journal)
        return story.sorted()

    async def unknown(self, name: str, cluster: str | None = None) -> NotFound:
        """The error for a mistyped name, with the names that exist."""
        where = self.connection.where(cluster)
        with translated():
            known = [self.key(e.id)[1] async for e in self.temporal.list_workflows(self._those(where))]
        return NotFound(
            f"{self.noun} {name!r} of cluster {where!r} is not known: `hostler get {self.plural} --cluster {where}` "
            f"lists those that are{did_you_mean(name, known)}"
        )

    def key(self, workflow_id: str) -> EntityKey:
        """Cluster and name of the entity with this workflow id."""
        cluster, name = id_parts(workflow_id, 2)
        return cluster, name

    # -- intents ------------------------------------------------------------------------------------------------------

    async def send(self, name: str, intent_name: str, intent: Intent, *, cluster: str | None = None) -> Sent:
        """Sends an intent of the caller's making; its id makes sending it again harmless."""
        handle, receiver = self._handle(name, cluster), f"{self.noun} {name}"
        with translated():
            return await intents.send(handle, intent_name, intent, self.connection.queue, receiver)

    async def renew(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks its workflow to go on with the newest code, and to try again what is stuck."""
        return await self.tell(name, "renew", Intent(**self.connection.by(reason)), cluster=cluster)

    async def tell(self, name: str, intent_name: str, intent: Intent, *, cluster: str | None = None) -> Sent:
        """Like `send`, to one that runs. Raises NotFound for a mistyped name."""
        await self._running(name, cluster)
        return await self.send(name, intent_name, intent, cluster=cluster)

    async def _end(self, name: str, intent: Intent, cluster: str | None) -> Sent:
        """Asks for its end; one that is gone already is no error."""
        found = await self._known(name, cluster)
        if not runs(found):
            return Sent(f"is already gone{since(found.close_time)}", gone=True)
        return await self.send(name, "delete", intent, cluster=cluster)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _those(self, cluster: str | None, all_clusters: bool = False) -> str:
        """The visibility query for those that run."""
        where = "" if all_clusters else f" AND HostlerCluster='{self.connection.where(cluster)}'"
        return live.running(self.workflow) + where

    def _handle(self, name: str, cluster: str | None) -> Handle:
        workflow_id = type(self).id_of(self.connection.where(cluster), word(name))
        return self.temporal.get_workflow_handle(workflow_id)

    async def _described(self, name: str, cluster: str | None) -> WorkflowExecutionDescription | None:
        """The server's own record of the latest life; None when there never was one."""
        with translated():
            return await live.described(self._handle(name, cluster))

    async def _known(self, name: str, cluster: str | None) -> WorkflowExecutionDescription:
        """The record. Raises NotFound when there never was one."""
        found = await self._described(name, cluster)
        if found is None:
            raise await self.unknown(name, cluster)
        return found

    async def _running(self, name: str, cluster: str | None) -> WorkflowExecutionDescription:
        """The running one's record. Raises NotFound when it is unknown or gone."""
        found = await self._known(name, cluster)
        if not runs(found):
            raise self._gone(name, cluster, found.close_time)
        return found

    def _gone(self, name: str, cluster: str | None, closed: datetime | None) -> NotFound:
        return NotFound(f"{self.noun} {name} of cluster {self.connection.where(cluster)} is gone{since(closed)}")

    async def _answer(self, found: WorkflowExecutionDescription) -> tuple[StateT | None, str]:
        """The entity's own state, or why it cannot be asked."""
        with translated():
            try:
                return await live.query(self.temporal.get_workflow_handle(found.id), self.model), ""
            except NoAnswer as e:
                return None, await self._silence(e, found.task_queue)

    async def _silence(self, why: NoAnswer, queue: str = "") -> str:
        """Why there is no answer: who is not there, and what became of the question."""
        with translated():
            return f"{await live.absence(self.temporal, queue or self.connection.queue, datetime.now(UTC))}; {why}"

    @abstractmethod
    async def _recorded(self, workflow_id: str, run_id: str) -> StateT:
        """What was asked for, from its history. Raises NotFound without one."""

    def _web(self, workflow_id: str, run_id: str) -> str | None:
        return live.web_link(self.settings.temporal.ui, self.temporal.namespace, workflow_id, run_id)


def runs(found: WorkflowExecutionDescription) -> bool:
    return found.status == WorkflowExecutionStatus.RUNNING
