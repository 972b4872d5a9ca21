"""Stand-ins of entities for the command line, with the messages, attributes and results of the real ones. Labels tell a
machine what to play."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from resources import attributes
from resources.cluster.state import ClusterState
from resources.errors import NOT_PRESERVED, NOT_YET
from resources.intents import Answer, Intent
from resources.journal import Happening
from resources.machine.intents import DeleteIntent
from resources.machine.preservation import (
    ExtendIntent,
    PreservedBy,
    PreserveIntent,
    PreserveRequest,
    PreserveValue,
    ReleaseIntent,
)
from resources.machine.state import (
    ApplyIntent,
    Deletion,
    LastOperation,
    MachineResult,
    MachineState,
    OperationState,
    OperationType,
    Phase,
    WaitingFor,
)
from resources.machine_class.state import ClassNews, ClassReport, UpdateState
from resources.names import class_id

BLOCKER = "2 of 3 pods gone; default/web-1 blocked by PDB web"

# Labels that tell the stand-in what to play.
BECOMES = "play/becomes"
KEEPS = "play/keeps"
DRAINS = "play/drains"
REFUSES = "play/refuses"
UPDATE_FAILS = "play/update-fails"


@activity.defn
async def drain_node(mode: str) -> None:
    """Never done: `blocked` fails every pass with the blocker, `silent` says it by heartbeat and then nothing."""
    if mode == "silent" and activity.info().attempt == 1:
        activity.heartbeat({"message": BLOCKER})
        await asyncio.Event().wait()
    raise ApplicationError(
        BLOCKER, type=NOT_YET, next_retry_delay=timedelta(hours=1), category=ApplicationErrorCategory.BENIGN
    )


@workflow.defn(name="MachineWorkflow")
class PlayedMachine:
    @workflow.init
    def __init__(self, state: MachineState) -> None:
        self.state = state
        self.again = False
        self.reported = ""
        if not state.uid:
            state.uid = str(workflow.uuid4())
            state.created = workflow.now()
            self.journal("Created", f"machine {state.name} begins")

    @workflow.run
    async def run(self, state: MachineState) -> MachineResult:
        labels = state.labels
        self.become(Phase(labels.get(BECOMES, Phase.RUNNING)))
        if DRAINS in labels:
            workflow.start_activity(
                drain_node,
                labels[DRAINS],
                start_to_close_timeout=timedelta(minutes=5),
                heartbeat_timeout=timedelta(seconds=1),
                retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), backoff_coefficient=1),
                summary=f"drain the node of {state.name}",
            )
        await self.report()
        while not self.again and self.state.deletion is None:
            await workflow.wait_condition(
                lambda: self.again or self.state.deletion is not None or self.reported != self.generation()
            )
            await self.report()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self.again:
            workflow.continue_as_new(self.state)
        await self.tell_class(self.state.spec.class_.name, "forget_user", state.name)
        self.become(Phase.TERMINATING)
        self.journal("Gone", "nothing is left")
        kept = [labels[KEEPS]] if KEEPS in labels else []
        return MachineResult(
            name=state.name, cluster=state.cluster, uid=self.state.uid, kept=kept, journal=self.state.journal
        )

    def generation(self) -> str:
        snapshot = self.state.machine_class
        return f"{snapshot.name}/{snapshot.generation}" if snapshot else ""

    async def report(self) -> None:
        """Reports directly. The real one does so through an activity, which would stand among the pending ones here."""
        snapshot, state = self.state.machine_class, self.state
        if snapshot is None or self.reported == self.generation():
            return
        left, self.reported = self.reported.partition("/")[0], self.generation()
        if left not in ("", snapshot.name):
            await self.tell_class(left, "forget_user", state.name)
        fails = UPDATE_FAILS in state.labels and snapshot.generation > 1
        report = ClassReport(
            user=state.name,
            generation=snapshot.generation,
            applied=snapshot.generation - fails,
            state=UpdateState.FAILED if fails else UpdateState.UPDATED,
            reason="NotAuthorized" if fails else "",
            message="may not create tags" if fails else "",
            next_try=workflow.now() + timedelta(minutes=10) if fails else None,
            time=workflow.now(),
        )
        await self.tell_class(snapshot.name, "report", report)

    async def tell_class(self, name: str, signal: str, value: Any) -> None:
        handle = workflow.get_external_workflow_handle(class_id(self.state.cluster, name))
        with contextlib.suppress(ApplicationError):  # there is no such class
            await handle.signal(signal, value)

    @workflow.signal
    def class_changed(self, news: ClassNews) -> None:
        current = self.state.machine_class
        if current is None or news.machine_class.generation > current.generation:
            self.state.machine_class = news.machine_class
        else:
            self.reported = ""

    def become(self, phase: Phase) -> None:
        now, status = workflow.now(), self.state.status
        status.phase = phase
        state = OperationState.FAILED if phase is Phase.FAILED else OperationState.SUCCESSFUL
        status.last_operation = LastOperation(type=OperationType.CREATE, state=state, description="played", time=now)
        status.deadlines = {"health": now + timedelta(minutes=30)}
        reason = "Draining" if DRAINS in self.state.labels else "Playing"
        status.waiting_for = WaitingFor(reason=reason, message=f"plays {phase}", since=now)
        status.node_name, status.provider_id = f"node-{self.state.name}", f"aws:///eu-west-1/i-{self.state.name}"
        self.state.was_running |= phase is Phase.RUNNING
        self.journal(phase, f"{self.state.name} is {phase}")
        workflow.upsert_search_attributes(
            [
                attributes.PHASE.value_set(status.shown_phase),
                attributes.REASON.value_set(reason),
                attributes.NODE.value_set(status.node_name),
                attributes.PROVIDER_ID.value_set(status.provider_id),
                attributes.DEADLINE.value_set(status.deadlines["health"]),
            ]
        )

    def journal(self, reason: str, message: str) -> None:
        self.state.journal.append(Happening(time=workflow.now(), reason=reason, message=message))

    def once(self, intent: Intent, answer: str) -> str:
        """The first answer to an intent, however often and by whatever way it comes."""
        return self.state.intents.setdefault(intent.id, answer)

    @workflow.query
    def describe(self) -> MachineState:
        return self.state

    @workflow.signal
    def observe(self, fact: Any) -> None: ...

    @workflow.signal
    def turn(self, phase: Phase) -> None:
        """The machine falls ill, or is well again."""
        self.become(phase)

    @workflow.signal
    def take_node(self, name: str) -> None:
        """The machine says that this Node is its own."""
        self.state.status.node_name = name
        workflow.upsert_search_attributes([attributes.NODE.value_set(name)])

    def _delete(self, intent: DeleteIntent) -> Answer:
        now = workflow.now()
        self.state.deletion = self.state.deletion or Deletion(
            time=now, requested_by=intent.requested_by, reason=intent.reason, force=intent.force
        )
        return Answer(message=self.once(intent, "will drain, then delete"))

    @workflow.update
    def delete(self, intent: DeleteIntent) -> Answer:
        return self._delete(intent)

    @delete.validator
    def may_delete(self, intent: DeleteIntent) -> None:
        if REFUSES in self.state.labels and not intent.force:
            raise ApplicationError("a hook of alice holds it; use --force", type="Refused")

    @workflow.update
    def renew(self, intent: Intent) -> Answer:
        return self._renew(intent)

    def _renew(self, intent: Intent) -> Answer:
        if intent.id not in self.state.intents:
            self.again = True
        return Answer(message=self.once(intent, "continues in a new run"))

    @workflow.update
    def apply(self, intent: ApplyIntent) -> Answer:
        return self._apply(intent)

    def _apply(self, intent: ApplyIntent) -> Answer:
        current = self.state.machine_class
        assert current is not None
        newer = intent.machine_class.name != current.name or intent.machine_class.generation >= current.generation
        if intent.id not in self.state.intents and newer:
            self.state.spec, self.state.machine_class = intent.spec, intent.machine_class
            self.state.labels, self.state.annotations = intent.labels, intent.annotations
            workflow.upsert_search_attributes([attributes.CLASS.value_set(intent.machine_class.name)])
        return Answer(message=self.once(intent, f"configured; takes generation {intent.machine_class.generation}"))

    # -- preservation: `now` counts at once, whatever the phase --------------------------------------------------------

    def keep(self, until: datetime | None) -> None:
        p = self.state.status.preserve
        p.expiry_time, p.source = until, PreservedBy.ASKED if until else PreservedBy.NOBODY
        p.since = workflow.now() if until else None
        workflow.upsert_search_attributes(
            [
                attributes.PHASE.value_set(self.state.status.shown_phase),
                attributes.PRESERVED_UNTIL.value_set(until) if until else attributes.PRESERVED_UNTIL.value_unset(),
            ]
        )

    def _preserve(self, intent: PreserveIntent) -> Answer:
        now, value = workflow.now(), intent.value
        until = intent.until or now + (intent.lasts or self.state.spec.machine_preserve_timeout)
        if intent.id not in self.state.intents:
            self.state.status.preserve.own = PreserveRequest(
                value=value,
                time=now,
                requested_by=intent.requested_by,
                reason=intent.reason,
                lasts=intent.lasts,
                until=intent.until,
            )
            if value is not PreserveValue.WHEN_FAILED:
                self.keep(until if value is PreserveValue.NOW else None)
        kept = f"preserved until {until:%Y-%m-%d %H:%M:%S} UTC"
        return Answer(message=self.once(intent, kept if value is PreserveValue.NOW else f"takes {value}"))

    @workflow.update
    def preserve(self, intent: PreserveIntent) -> Answer:
        return self._preserve(intent)

    @workflow.signal(name="preserve")
    def preserve_signal(self, intent: PreserveIntent) -> None:
        self._preserve(intent)

    def _release(self, intent: ReleaseIntent) -> Answer:
        if intent.id not in self.state.intents:
            self.state.status.preserve.own = None
            self.keep(None)
        return Answer(message=self.once(intent, "is let go"))

    @workflow.update
    def release(self, intent: ReleaseIntent) -> Answer:
        return self._release(intent)

    @release.validator
    def may_release(self, intent: ReleaseIntent) -> None:
        p = self.state.status.preserve
        if p.expiry_time is None and p.own is None and intent.id not in self.state.intents:
            raise ApplicationError(f"machine {self.state.name} is not preserved", type=NOT_PRESERVED)

    @workflow.signal(name="release")
    def release_signal(self, intent: ReleaseIntent) -> None:
        self._release(intent)

    def _extend(self, intent: ExtendIntent) -> Answer:
        until = intent.until or workflow.now() + (intent.lasts or timedelta(0))
        if intent.id not in self.state.intents:
            self.keep(until)
        return Answer(message=self.once(intent, f"preserved until {until:%Y-%m-%d %H:%M:%S} UTC"))

    @workflow.update
    def extend(self, intent: ExtendIntent) -> Answer:
        return self._extend(intent)

    @extend.validator
    def may_extend(self, intent: ExtendIntent) -> None:
        if self.state.status.preserve.expiry_time is None:
            raise ApplicationError(f"machine {self.state.name} is not preserved", type=NOT_PRESERVED)

    @workflow.signal(name="extend")
    def extend_signal(self, intent: ExtendIntent) -> None:
        if self.state.status.preserve.expiry_time is not None:
            self._extend(intent)

    @workflow.signal(name="delete")
    def delete_signal(self, intent: DeleteIntent) -> None:
        self._delete(intent)

    @workflow.signal(name="renew")
    def renew_signal(self, intent: Intent) -> None:
        self._renew(intent)

    @workflow.signal(name="apply")
    def apply_signal(self, intent: ApplyIntent) -> None:
        self._apply(intent)


@workflow.defn(name="ClusterWorkflow")
class PlayedCluster:
    @workflow.init
    def __init__(self, state: ClusterState) -> None:
        self.state = state

    @workflow.run
    async def run(self, state: ClusterState) -> None:
        await workflow.wait_condition(lambda: self.state.removed)

    @workflow.query
    def describe(self) -> ClusterState:
        return self.state
