"""Classes as HostlerClient sees them: what was applied, who uses it, and how far each user is with the newest change.

for found in await hostler.classes.list():
    print(found.name, found.phase)
await hostler.classes.wait("c1")
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import (
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition
from temporalio.converter import DataConverter

from resources import attributes, histories, names
from resources.machine import ClassSnapshot
from resources.machine_class import (
    ClassIntent,
    ClassPreview,
    ClassQuestion,
    ClassReport,
    ClassState,
    UpdateState,
    User,
    users_words,
)
from resources.manifests import MachineClass
from resources.messages import Intent
from starter.sdk import intents, live
from starter.sdk.errors import NoAnswer, NotFound, Refused, WaitTimeout, translated
from starter.sdk.patience import patiently
from starter.sdk.results import Applied, ClassDescription, ClassSummary, Sent
from starter.sdk.spelling import did_you_mean

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

PARALLEL = 10
"""Classes that are asked at the same time."""
INTERVAL = 1.0
"""Seconds between two looks of `wait`."""
SOME = 5
"""Names in a message that are enough to go on with."""

Progress = Callable[[ClassState], Awaitable[None]]


class Classes:
    """`HostlerClient.classes`. `cluster` is everywhere the client's own where it is not given."""

    def __init__(self, client: HostlerClient) -> None:
        self._client = client
        self._temporal = client.temporal

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[ClassSummary]:
        """Those that exist, by cluster and name, each with its own answer where a worker gives one."""
        terms = ["WorkflowType='MachineClassWorkflow'", "ExecutionStatus='Running'"]
        if not all_clusters:
            terms.append(f"HostlerCluster='{_word(cluster or self._client.cluster)}'")
        slots = asyncio.Semaphore(PARALLEL)

        async def one(execution: WorkflowExecution) -> ClassSummary:
            async with slots:
                try:
                    handle = self._temporal.get_workflow_handle(execution.id)
                    return _summary(execution, await live.query(handle, ClassState))
                except NoAnswer:
                    return _summary(execution, None)

        with translated():
            found = [e async for e in self._temporal.list_workflows(" AND ".join(terms))]
            summaries = await asyncio.gather(*(one(e) for e in found))
        return sorted(summaries, key=lambda c: (c.cluster, c.name))

    async def get(self, name: str, *, cluster: str | None = None) -> ClassState:
        """The class's own answer. Raises NotFound when it is unknown or gone, NoAnswer without a worker."""
        found = await self.describe(name, cluster=cluster)
        if found.ended is not None:
            raise NotFound(_gone(name, found.ended))
        if found.state is None:
            raise NoAnswer(f"class {name} cannot be asked: {found.no_answer}")
        return found.state

    async def describe(self, name: str, *, cluster: str | None = None) -> ClassDescription:
        """Everything that is known of a class, also without a worker. Raises NotFound when there never was one."""
        handle = self._handle(name, cluster)
        with translated():
            found = await live.described(handle)
            if found is None:
                raise await self.unknown(name, cluster)
            web = live.web_link(self._client.settings.temporal.ui, self._temporal.namespace, handle.id, found.run_id)
            if not _runs(found):
                return ClassDescription(_summary(found, None), ended=found.close_time, web=web)
            state, no_answer = None, ""
            try:
                state = await live.query(handle, ClassState)
            except NoAnswer as e:
                no_answer = f"{await live.absence(self._temporal, found.task_queue, datetime.now(UTC))}; {e}"
            return ClassDescription(
                _summary(found, state),
                no_answer=no_answer,
                task_attempt=found.raw_description.pending_workflow_task.attempt or 1,
                pending=await live.pending_of(found),
                web=web,
            )

    async def current(self, name: str, *, cluster: str | None = None) -> ClassState | None:
        """As it is; without a worker as it was asked for, from its history; None when there is none that lives."""
        handle = self._handle(name, cluster)
        with translated():
            found = await live.described(handle)
            if found is None or not _runs(found):
                return None
            try:
                return await live.query(handle, ClassState)
            except NoAnswer:
                return await live.folded(self._temporal, handle.id, found.run_id, ClassState, _fold)

    async def preview(
        self, name: str, wanted: ClassSnapshot, instead_of: ClassSnapshot | None = None, *, cluster: str | None = None
    ) -> ClassPreview:
        """What a class would change on VMs that run, against the class as it is or against what a machine has now; as
        the class's workflow judges it. Raises NoAnswer without a worker, NotFound without the class."""
        handle, question = self._handle(name, cluster), ClassQuestion(machine_class=wanted, instead_of=instead_of)
        with translated():
            try:
                return await live.query(
                    handle, ClassPreview, QueryRejectCondition.NOT_OPEN, name="preview", args=[question]
                )
            except WorkflowQueryRejectedError:
                raise NotFound(f"class {name} is gone") from None

    # -- intents ------------------------------------------------------------------------------------------------------

    async def apply(self, manifest: MachineClass) -> Applied:
        """As `HostlerClient.apply`, of one class. Raises Refused."""
        return (await self._client.apply(manifest))[-1]

    async def delete(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for the class's end. Raises Refused while it is used, with the names of some users; NotFound."""
        found = await self.describe(name, cluster=cluster)
        if found.ended is not None:
            return Sent(f"is gone already since {found.ended:%Y-%m-%d %H:%M:%S} UTC", gone=True)
        return await self.send(name, "delete", self._intent(reason), cluster=cluster)

    async def renew(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks the class's workflow to go on with the newest code, and to try again what stands still."""
        found = await self.describe(name, cluster=cluster)
        if found.ended is not None:
            raise NotFound(_gone(name, found.ended))
        return await self.send(name, "renew", self._intent(reason), cluster=cluster)

    async def send(self, name: str, intent_name: str, intent: Intent, *, cluster: str | None = None) -> Sent:
        """An intent of one's own making; its id makes sending it again harmless."""
        queue = names.workflow_queue(self._client.settings.queue_prefix)
        with translated():
            return await intents.send(self._handle(name, cluster), intent_name, intent, queue, f"class {name}")

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress | None = None,
        cluster: str | None = None,
    ) -> ClassState:
        """Until every user is done with the newest generation: updated, or as far as it can be without a new VM.

        Raises NotFound, NoAnswer, WaitTimeout with the users that are not done.
        """
        end = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while True:
            state = await patiently(partial(self.get, name, cluster=cluster))
            if state.updated:
                return state
            if progress is not None:
                await progress(state)
            if end is not None and time.monotonic() >= end:
                left = _left(state)
                raise WaitTimeout(f"class {name}: generation {state.generation} is not everywhere in time: {left}")
            await asyncio.sleep(INTERVAL)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _intent(self, reason: str) -> Intent:
        return Intent(id=intents.new_id(), requested_by=self._client.requested_by, reason=reason)

    async def unknown(self, name: str, cluster: str | None = None) -> NotFound:
        where = cluster or self._client.cluster
        known = [c.name for c in await self.list(cluster=where)]
        return NotFound(
            f"class {name!r} of cluster {where!r} is not known: `hostler get classes --cluster {where}` lists those "
            f"that are{did_you_mean(name, known)}"
        )

    def _handle(self, name: str, cluster: str | None) -> Any:
        workflow_id = names.class_id(_word(cluster or self._client.cluster), _word(name))
        return self._temporal.get_workflow_handle(workflow_id)


_MESSAGES: dict[str, type] = {"apply": ClassIntent, "delete": Intent, "report": ClassReport, "forget_user": str}


async def _fold(state: ClassState, event: HistoryEvent, converter: DataConverter) -> ClassState:
    """As the workflow will do it, as far as that is known without its planners: what it refuses changes nothing."""
    if (told := await histories.told_by(event, converter, _MESSAGES)) is None:
        return state
    match told[1]:
        case ClassIntent() as said:
            return _applied(state, said)
        case ClassReport(user=user) as said:
            heard = User(said.generation, said.applied, said.state, said.reason, said.time)
            return state.model_copy(update={"users": {**state.users, user: heard}})
        case str(user):
            return state.model_copy(update={"users": {n: u for n, u in state.users.items() if n != user}})
    return state.model_copy(update={"deleted": state.deleted or not state.users})  # refused while it is used


def _applied(state: ClassState, intent: ClassIntent) -> ClassState:
    """Only what changes the class makes a generation."""
    former, wanted = state.machine_class, intent.machine_class
    if state.deleted or wanted.provider != former.provider:
        return state
    wanted = wanted.model_copy(update={"generation": former.generation})
    if wanted != former:
        wanted = wanted.model_copy(update={"generation": former.generation + 1})
    fields = {k: getattr(intent, k) for k in ("namespace", "labels", "annotations")}
    return state.model_copy(update={"machine_class": wanted, **fields})


def _summary(execution: WorkflowExecution, state: ClassState | None) -> ClassSummary:
    cluster, name = names.id_parts(execution.id, 2)
    found = execution.typed_search_attributes
    return ClassSummary(
        name=name,
        cluster=cluster,
        created=state.created if state and state.created else execution.start_time,
        phase=found.get(attributes.PHASE, ""),
        reason=found.get(attributes.REASON, ""),
        state=state,
    )


def _gone(name: str, closed: datetime) -> str:
    return f"class {name} is gone since {closed:%Y-%m-%d %H:%M:%S} UTC"


def _left(state: ClassState) -> str:
    """Who is not done, and who of them failed."""
    failed = sorted(n for n, u in state.not_done.items() if u.state is UpdateState.FAILED)
    others = sorted(state.not_done.keys() - set(failed))
    parts = [f"{users_words(others, SOME)} not done"] if others else []
    return ", ".join([*parts, f"{users_words(failed, SOME)} failed"] if failed else parts)


def _runs(found: WorkflowExecutionDescription) -> bool:
    return found.status == WorkflowExecutionStatus.RUNNING


def _word(name: str) -> str:
    """Only a name goes into ids and queries."""
    if not names.is_name(name):
        raise Refused(f"{name!r} is no name: use lower-case letters, digits, '-' and '.'")
    return name
