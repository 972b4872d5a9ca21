"""Classes as HostlerClient sees them: what was applied, who uses it, and how far each user is with the newest change.

for found in await hostler.classes.list():
    print(found.name, found.phase)
await hostler.classes.wait("c1")
"""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta
from functools import partial

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecution, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.converter import DataConverter

from resources import attributes, histories, names
from resources.intents import Intent
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import (
    ClassIntent,
    ClassPreview,
    ClassQuestion,
    ClassReport,
    ClassState,
    UpdateState,
    User,
    users_words,
)
from starter.sdk import live, parallel
from starter.sdk.entity import EntityClient, runs
from starter.sdk.errors import NoAnswer, NotFound, translated
from starter.sdk.patience import Progress, look_until
from starter.sdk.results import ClassDescription, ClassSummary, Sent, since

SOME = 5
"""Names that are enough for a message."""


class Classes(EntityClient[ClassState]):
    """`HostlerClient.classes`; `HostlerClient.apply` takes a class's manifest."""

    noun, plural, workflow = "class", "classes", "MachineClassWorkflow"
    model = ClassState
    id_of = staticmethod(names.class_id)

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[ClassSummary]:
        """Classes that exist, by cluster and name, each with its own answer where a worker gives one."""

        async def one(execution: WorkflowExecution) -> ClassSummary:
            try:
                handle = self.temporal.get_workflow_handle(execution.id)
                return _summary(execution, await live.query(handle, ClassState))
            except NoAnswer:
                return _summary(execution, None)

        with translated():
            found = self.temporal.list_workflows(self._those(cluster, all_clusters))
            summaries = await parallel.each([partial(one, e) async for e in found])
        return sorted(summaries, key=lambda c: (c.cluster, c.name))

    async def snapshots(self, cluster: str) -> builtins.list[ClassSnapshot]:
        """The classes of a cluster as they are, even without a worker."""
        with translated():
            found = [names.id_parts(e.id, 2)[1] async for e in self.temporal.list_workflows(self._those(cluster))]
        states = await parallel.each([partial(self.current, name, cluster=cluster) for name in found])
        return [s.machine_class for s in states if s is not None]

    async def describe(self, name: str, *, cluster: str | None = None) -> ClassDescription:
        """Everything that is known of a class, even without a worker. Raises NotFound when there never was one."""
        found = await self._known(name, cluster)
        web = self._web(found.id, found.run_id)
        if not runs(found):
            return ClassDescription(_summary(found, None), ended=found.close_time, web=web)
        state, no_answer = await self._answer(found)
        with translated():
            return ClassDescription(
                _summary(found, state),
                no_answer=no_answer,
                task_attempt=live.task_attempt(found),
                pending=await live.pending_of(found),
                web=web,
            )

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

    async def delete(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for the class's end. Raises Refused while it is used, with the names of some users; NotFound."""
        return await self._end(name, Intent(**self.connection.by(reason)), cluster)

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress[ClassState] | None = None,
        cluster: str | None = None,
    ) -> ClassState:
        """Waits until every user is done with the newest generation: updated, or as far as it can be without a new VM.

        Raises NotFound, NoAnswer, WaitTimeout with the users that are not done.
        """

        async def reached(state: ClassState, _: ClassState) -> bool:
            return state.updated

        def late(state: ClassState) -> str:
            return f"class {name}: generation {state.generation} has not reached every machine in time: {_left(state)}"

        return await look_until(
            partial(self.get, name, cluster=cluster), reached, late, timeout=timeout, progress=progress
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _recorded(self, workflow_id: str, run_id: str) -> ClassState:
        return await live.folded(self.temporal, workflow_id, run_id, ClassState, _fold)

    def _gone(self, name: str, cluster: str | None, closed: datetime | None) -> NotFound:
        return NotFound(f"class {name} is gone{since(closed)}")


_MESSAGES: dict[str, type] = {"apply": ClassIntent, "delete": Intent, "report": ClassReport, "forget_user": str}


async def _fold(state: ClassState, event: HistoryEvent, converter: DataConverter) -> ClassState:
    """Folds an intent into the state as the workflow will, as far as that is known without its planners: what it
    refuses changes nothing."""
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
    """The state after `apply`. Only what changes the class makes a generation."""
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


def _left(state: ClassState) -> str:
    """The users that are not done, and those of them that failed."""
    failed = sorted(n for n, u in state.not_done.items() if u.state is UpdateState.FAILED)
    others = sorted(state.not_done.keys() - set(failed))
    parts = [f"{users_words(others, SOME)} not done"] if others else []
    return ", ".join([*parts, f"{users_words(failed, SOME)} failed"] if failed else parts)
