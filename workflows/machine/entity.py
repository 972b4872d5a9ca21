"""What the phases of a machine share: its state, its words, its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from temporalio import workflow
from temporalio.common import Priority

from workflows.calls import Failure, Urgency, poller, share, short
from workflows.entity import NEVER, Entity, unheard
from workflows.machine.details import details
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from activities.cluster.node import NodeActivities
    from planners.machine.claims import CONTRADICTION
    from planners.machine.creation import Retry
    from planners.waits import REASON, Tries, wait_after
    from resources import attributes as at
    from resources.base import format_duration
    from resources.calls.cloud import UpdateOutput, VmLook
    from resources.calls.cluster import NodeLook, PreserveOutput, TellInput
    from resources.calls.machine import MachineRef, Target
    from resources.clouds import UnknownScope, indexed
    from resources.cluster.accounts import Account
    from resources.errors import MISSING_CREDENTIALS, WRONG_ACCOUNT, Code, ErrorClass
    from resources.machine.facts import NodeFacts
    from resources.machine.manifest import SecretRef
    from resources.machine.state import (
        ATTEMPTED_KEPT,
        FORMER_KEPT,
        AppliedSpec,
        ClassSnapshot,
        Condition,
        FailureStreak,
        LastOperation,
        MachineState,
        OperationState,
        OperationType,
        Phase,
        Status,
        WaitingFor,
    )
    from resources.names import cloud_queue, cluster_queue

IN_FLIGHT = {"CreatingVM", "HotUpdate", "PostStartUpdate", "NodeTemplate", "ReadyTaint"}
FINAL = ("creation", "health", "drain", "preserve")
"""Deadlines that end something for the machine; the others only say when to look at it or try again."""

PRESERVATION_TIMES = ("preserve", "preserve-warning", "protect")
"""Deadlines of preservation, for every wait of a machine that may be preserved."""

CALLS_RENEW = "calls-renew"
"""The patch of waits for a call's answer that also end their run after so many messages."""
CONTRADICTIONS = "contradictions"
"""The patch by which the pool is told that the cloud contradicts a kubelet, and lists show it."""

KUBERNETES = "Kubernetes API: "
"""The boundary's prefix for what the API server said."""

P = TypeVar("P")
R = TypeVar("R")


class HotUpdate(NamedTuple):
    """A hot update that is under way. The life goes on meanwhile: it takes as long as there is no worker."""

    handle: workflow.ActivityHandle[UpdateOutput]
    machine_class: ClassSnapshot
    applied: AppliedSpec
    """What the VM carries once the update has succeeded."""
    fields: str


class Looking(NamedTuple):
    """Fresh looks that are under way, side by side."""

    node: workflow.ActivityHandle[NodeLook]
    vm: workflow.ActivityHandle[VmLook]
    known: NodeFacts | None
    """What was known of the Node when they began."""

    @property
    def over(self) -> bool:
        return self.node.done() and self.vm.done()


class NodeCall(NamedTuple):
    """A call of preservation to the Node. The life goes on meanwhile."""

    handle: workflow.ActivityHandle[PreserveOutput]
    on: bool
    uncordon: bool


def account_of(machine_class: ClassSnapshot, provider_spec: dict[str, Any]) -> Account | None:
    """Where VMs of this provider spec are listed, with the class's credentials. None: the spec does not say where, so
    the create activity refuses it, and the cluster names the class in its journal."""
    of = machine_class
    try:
        return Account.of(of.provider, provider_spec, of.secret_ref, of.credentials_secret_ref)
    except UnknownScope:
        return None


class MachineEntity(Entity):
    """Phases are coroutines over this; handlers are in workflow.py."""

    s: MachineState

    def __init__(self, state: MachineState) -> None:
        super().__init__(state.journal, state.intents, state.status.deadlines)
        self.s = state
        self.updating: HotUpdate | None = None
        self.on_node: NodeCall | None = None
        self.weighing: Looking | None = None
        """The looks at the Lease that weigh a claim of the cloud."""
        self.deleting = False
        """Whether the VM is being deleted: the machine then waits for it to be gone."""
        self.telling: set[asyncio.Task[None]] = set()
        """Reports on their way to the pool."""
        self.told_all = False
        """Whether the pool has been told the end: nothing may be told after it."""
        self.compared: tuple[AppliedSpec, ClassSnapshot, bool] | None = None
        """Whether the updatable fields of the two differ."""

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self.s.status

    @property
    def ref(self) -> MachineRef:
        return MachineRef(cluster=self.s.cluster, name=self.s.name, uid=self.s.uid)

    @property
    def snapshot(self) -> ClassSnapshot:
        """The class, which every phase but the first has."""
        assert self.s.machine_class is not None
        return self.s.machine_class

    @property
    def leaving(self) -> bool:
        """Whether no phase before the end has anything left to do."""
        return self.s.deletion is not None or self.status.phase == Phase.FAILED

    @property
    def last_call(self) -> str:
        """The deadline that ends every pause: without a VM the creation's, with one the next fresh look."""
        return "confirm" if self.status.provider_id else "creation"

    @property
    def health_timeout(self) -> str:
        return format_duration(self.s.spec.health_timeout)

    @property
    def cloud(self) -> str:
        return cloud_queue(self.snapshot.provider, self.s.queue_prefix)

    @property
    def credentials(self) -> SecretRef:
        """The Secret by which its VM is looked after."""
        return self.snapshot.credentials_secret_ref or self.snapshot.secret_ref

    @property
    def account(self) -> Account | None:
        """The account whose calls are counted together; None where the class does not say it, as the create call will
        report."""
        now = self.snapshot
        return account_of(now, now.provider_spec)

    def attempted(self, spec: dict[str, Any]) -> None:
        """Remembers that the VM may carry parts of this provider spec."""
        if spec not in self.s.attempted_specs:
            self.s.attempted_specs = [*self.s.attempted_specs, spec][-ATTEMPTED_KEPT:]

    def target(self) -> Target:
        """The target of a call: by the class that the VM was made from, while there is one, with the newest
        credentials."""
        attempt, now = self.s.attempt, self.snapshot
        made_from = attempt.machine_class if attempt else now
        return Target(
            machine=self.ref,
            provider=made_from.provider,
            provider_spec=made_from.provider_spec,
            secret_ref=now.secret_ref,
            credentials_secret_ref=now.credentials_secret_ref,
            provider_id=self.status.provider_id,
            token=attempt.token if attempt else "",
            account_id=self.s.account_id,
            consistency=self.s.timings.consistency,
            poll=self.s.timings.poll,
        )

    # -- saying -------------------------------------------------------------------------------------------------------

    def waiting(
        self, reason: str, message: str, next_try: datetime | None = None, since: datetime | None = None
    ) -> None:
        former, trouble = self.status.waiting_for, self.s.trouble
        if trouble and trouble.reason == reason:
            since = trouble.since
        since = since or (former.since if former and former.reason == reason else workflow.now())
        self.status.waiting_for = WaitingFor(reason=reason, message=message, since=since, next_try=next_try)

    def in_trouble(self, reason: str) -> None:
        """Counts failures of one kind in a row, since the first: each try in between says that it is in flight."""
        former = self.s.trouble
        if former is None or former.reason != reason:
            self.s.trouble = FailureStreak(reason=reason, since=workflow.now())
        else:
            self.s.trouble = former.model_copy(update={"failures": former.failures + 1})

    def words_of_cloud(self, failure: Failure) -> str:
        """The failure's words, plus the credentials where the cloud refused them: the cloud's own words do not name
        them."""
        words = describe_failure(failure)
        by_cloud = failure.info.error_class == failure.kind == ErrorClass.AUTH and KUBERNETES not in words
        if self.s.machine_class is None or not by_cloud:
            return words
        return f"{words} (with the credentials of {self.credentials.namespace}/{self.credentials.name})"

    def operation(self, type: OperationType, state: OperationState, description: str, code: Code | None = None) -> None:
        self.status.last_operation = LastOperation(
            type=type, state=state, description=description, error_code=code, time=workflow.now()
        )

    def enter(self, phase: Phase, reason: str, message: str) -> None:
        """Changes the phase; the journal gets a line for every change and every new reason."""
        now, meter = workflow.now(), workflow.metric_meter()
        meter.create_counter("hostler_machine_phases", "Phases entered by machines").add(
            1, {"phase": str(phase), "reason": reason, "cluster": self.s.cluster}
        )
        if phase != self.status.phase or self.status.phase_since is None:
            since = self.status.phase_since or self.s.created or now
            meter.create_histogram_timedelta(
                "hostler_machine_phase_duration", "How long machines were in a phase that they have left"
            ).record(now - since, {"phase": str(self.status.phase), "cluster": self.s.cluster})
            self.status.phase_since = now
        self.status.phase = phase
        self.note(reason, message)

    def tell(self) -> None:
        """Tells the newest happening on the Node, and what was refused since the last. Nobody waits for it."""
        if not self.s.joined or self.status.node_name is None:
            return
        story = [*(h for h in self.refused if h not in self.journal[-1:]), *self.journal[-1:]]
        self.refused = []
        handle = self.start(
            NodeActivities.tell_node,
            TellInput(
                machine=self.ref,
                node_name=self.status.node_name,
                provider_id=self.status.provider_id,
                node_uid=self.s.joined_uid or "",
                story=story,
            ),
            queue=cluster_queue(self.s.cluster, self.s.queue_prefix),
            summary=f"Event {self.journal[-1].reason} on {self.status.node_name}",
        )
        unheard(handle)

    def condition(self, type: str, reason: str, message: str) -> None:
        """Sets a condition; it keeps its time while its reason is the same, like Kubernetes' lastTransitionTime."""
        now = Condition(type=type, reason=reason, message=message, since=workflow.now())
        for i, former in enumerate(self.status.conditions):
            if former.type == type:
                since = former.since if former.reason == reason else now.since
                self.status.conditions[i] = now.model_copy(update={"since": since})
                return
        self.status.conditions.append(now)

    def drop_condition(self, type: str) -> None:
        self.status.conditions[:] = [c for c in self.status.conditions if c.type != type]

    def fail(self, operation: OperationType, reason: str, message: str) -> None:
        """Makes the machine Failed. It stays so: the rest is its pool's choice, or a person's where there is no pool. A
        machine that is already being deleted continues with that."""
        if self.status.phase == Phase.TERMINATING:
            self.note(reason, message)
            return
        self.deadlines.clear()
        self.operation(operation, OperationState.FAILED, message)
        self.condition("Failed", reason, message)
        self.enter(Phase.FAILED, reason, message)
        self.tell()

    async def retry(self, retry: Retry, unless: Callable[[], bool] = lambda: False) -> None:
        """Records what a failed step makes of the machine, and waits for the next try."""
        if self.s.trouble is None or self.s.trouble.reason != retry.reason:
            self.in_trouble(retry.reason)
        if self.status.phase != retry.phase:
            self.enter(retry.phase, retry.reason, retry.message)
        else:
            self.note_news(retry.reason, retry.message)
        self.operation(retry.operation, retry.state, retry.message, retry.code)
        self.waiting(retry.reason, retry.message, retry.next_try)
        await self.pause(retry.next_try, unless)

    # -- calling ------------------------------------------------------------------------------------------------------

    def start(
        self,
        method: Callable[[Any, P], Coroutine[Any, Any, R]],
        input: P,
        *,
        queue: str,
        summary: str,
        polls: bool = False,
        urgency: Priority = Urgency.OTHER,
    ) -> workflow.ActivityHandle[R]:
        """Starts an activity. One that polls ends on its own only with success or bad news, and may be cancelled."""
        self.publish()
        timings = self.s.timings
        polled_by_cloud = self.s.machine_class is not None and queue == self.cloud
        handle: workflow.ActivityHandle[R] = workflow.start_activity_method(
            method,
            input,
            task_queue=queue,
            start_to_close_timeout=timings.call_timeout,
            heartbeat_timeout=timings.heartbeat,
            retry_policy=poller(timings.poll) if polls else short(timings.again),
            summary=summary,
            priority=share(urgency, self.account if polled_by_cloud else None),
        )
        if not polls:
            self.in_flight.add(handle)
            handle.add_done_callback(lambda h: self.in_flight.discard(handle))
        return handle

    async def answer(self, handle: workflow.ActivityHandle[R], *, repeats: bool = False) -> R:
        """The answer of a call whose effect must be known, however long it takes: an absent worker is a wait.

        While there is no VM, a creation deadline that passes meanwhile counts exactly then, and the answer is still
        awaited. `repeats`: the next run makes the same call on its own and finds done what was done, so a run that gets
        too long meanwhile ends.
        """

        def over() -> bool:
            return handle.done() or (repeats and self.too_long_for(handle))

        if self.status.provider_id is None:
            await self.until(over, "creation")
            self.failed_at_deadline()
        await self.beside(over)
        if not handle.done():
            await self.ask_anew(handle)
        answer = await handle
        self.s.trouble = None
        return answer

    def too_long_for(self, handle: workflow.ActivityHandle[Any]) -> bool:
        """Whether the run should end, and only this call is under way. After 10,000 messages the server would refuse
        the very deletion that ends the wait."""
        others = self.in_flight - {handle} or self.updating or self.on_node or self.weighing
        return not others and self.wants_renewal(self.s.messages) and workflow.patched(CALLS_RENEW)

    async def ask_anew(self, handle: workflow.ActivityHandle[Any]) -> None:
        """Ends the run."""
        self.drop(handle)
        await self.renew()

    async def polled(self, handle: workflow.ActivityHandle[R]) -> R:
        """The answer of a poller, which may take forever. A run that gets too long ends, and the next one polls
        afresh."""
        await self.beside(lambda: handle.done() or self.overlong)
        if not handle.done():
            self.drop(handle)
            await self.renew()
        answer = await handle
        self.s.trouble = None
        return answer

    async def beside(self, over: Callable[[], bool], *names: str) -> None:
        """Waits until it is over or one of these deadlines has passed; what preservation has to do is done
        meanwhile."""
        while not (over() or any(map(self.due, names))):
            if not self.attend():
                seen, times = self.attention(), (*(names or (NEVER,)), *PRESERVATION_TIMES)
                await self.until(lambda seen=seen: over() or self.attention() != seen, *times)  # type: ignore[misc]

    def attend(self) -> bool:
        """Whether preservation has changed something."""
        return False

    def attention(self) -> tuple[object, ...]:
        """What `attend` goes by, besides PRESERVATION_TIMES."""
        return ()

    async def back_off(self, failure: Failure, unless: Callable[[], bool] = lambda: False, way_out: str = "") -> None:
        """Says what went wrong, and waits as long as its class asks for. `way_out`: what else ends the wait."""
        message = "; ".join(filter(None, (self.words_of_cloud(failure), way_out)))
        reason = reason_of(failure)
        next_try = workflow.now() + wait_after(failure.info, self.s.timings, self.tried(reason))
        self.note_news(reason, message)
        self.waiting(reason, message, next_try)
        await self.pause(next_try, unless)

    def tried(self, reason: str) -> Tries:
        """Counts one more failure of this kind. The next wait grows with how many there were in a row, and at
        random."""
        self.in_trouble(reason)
        return self.tries(self.s.trouble.failures if self.s.trouble else 1)

    def tries(self, failures: int = 1) -> Tries:
        return Tries(failures, workflow.random().random()) if workflow.patched("spread-waits") else Tries()

    def wait_once(self, failure: Failure) -> timedelta:
        """The wait after a call beside others, whose failures are not counted."""
        return wait_after(failure.info, self.s.timings, self.tries())

    async def pause(self, until: datetime, unless: Callable[[], bool] = lambda: False) -> None:
        """Waits until then, or a deletion, the last call, or the condition.

        What is tried again forever must not grow a history forever: this is a safe point too, and the next run tries at
        once. Not while a VM is being created, which its deadline ends: there the pause keeps the lag window.
        """
        if self.status.provider_id or self.leaving:
            await self.renew_if_due()
        leaving = self.leaving
        deletion = self.s.deletion
        self.deadlines["retry"] = until
        await self.beside(
            lambda: self.leaving != leaving or self.s.deletion != deletion or unless(), "retry", self.last_call, "drain"
        )
        self.deadlines.pop("retry", None)

    def failed_at_deadline(self) -> bool:
        """Makes a machine without a VM Failed at its creation deadline; for one with a VM, fresh looks decide
        (confirm.py)."""
        if self.status.provider_id or not self.due("creation"):
            return False
        self.fail_creation()
        return True

    def fail_creation(self, found: str = "") -> None:
        """`found`: what the last look found, for a machine that has a VM."""
        operation = self.status.last_operation
        failed = operation.description if operation and operation.state == OperationState.FAILED else ""
        waited = self.status.waiting_for.message if self.status.waiting_for and not found else ""
        limit = format_duration(self.s.spec.creation_timeout)
        words = "; ".join(filter(None, (failed or waited, found)))
        self.fail(OperationType.CREATE, "CreationTimeout", f"not Running within creationTimeout ({limit}): {words}")

    # -- Entity -------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Makes at most one upsert per workflow task: only what changed, only before something is awaited."""
        status = self.status
        reason = status.waiting_for.reason if status.waiting_for else self._contradiction()
        values: dict[Any, Any] = {
            at.CLUSTER: self.s.cluster,
            at.POOL: self.s.owner.listed if self.s.owner else None,
            at.PHASE: status.shown_phase,
            at.REASON: reason or None,
            at.CLASS: self.s.spec.class_.name,
            at.NODE: status.node_name if self.s.joined else None,  # before that, it is only promised
            at.PROVIDER_ID: indexed(status.provider_id) if status.provider_id else None,
            at.PRESERVED_UNTIL: status.preserve.expiry_time,
            at.DEADLINE: min((t for name, t in self.deadlines.items() if name in FINAL), default=None),
        }
        # That a call is in flight can be read elsewhere.
        self.upsert(values, {at.REASON} if reason in IN_FLIGHT else ())
        show(details(self.s))

    def _contradiction(self) -> str:
        """The contradiction as a reason: a machine that waits for nothing looks well in a list, and yet a person should
        look."""
        there = any(c.type == CONTRADICTION for c in self.status.conditions)
        return CONTRADICTION if there and workflow.patched(CONTRADICTIONS) else ""

    def cancel_ignored(self) -> None:
        self.condition("CancelIgnored", "CancelIgnored", "a cancellation has no effect; use `hostler delete`")
        super().cancel_ignored()

    @property
    def to_end(self) -> str:
        return "use `hostler delete machine` to end it"

    @property
    def renewal_due(self) -> bool:
        """Whether a new run is due, nothing that must be known is in flight, and no answer is still to be taken. A
        poller dies with the run, and the next one starts it."""
        under_way = self.in_flight or self.updating or self.on_node or self.weighing
        return not under_way and self.wants_renewal(self.s.messages)

    @property
    def overlong(self) -> bool:
        return self.renewal_due and super().overlong

    async def renew_if_due(self) -> None:
        if self.renewal_due:
            await self.renew()

    def begin_anew(self) -> object:
        if self.on_node is not None:
            self.status.preserve.node_due = True  # nobody will get its answer
        return super().begin_anew()

    def new_life(self) -> MachineState:
        """The state of a machine that is recreated: what was asked for stays, what became of it does not."""
        state = self.s
        self.note(
            "Recreated", (f"the machine is created again; before, it had uid {state.uid} and {self.status.provider_id}")
        )
        former = dict.fromkeys(vm for vm in (*state.former_vms, *state.vms, self.status.provider_id) if vm)
        return MachineState(
            **{f: getattr(state, f) for f in ("name", "cluster", "namespace", "labels", "annotations", "spec")},
            machine_class=state.machine_class,
            queue_prefix=state.queue_prefix,
            timings=state.timings,
            journal=state.journal,
            intents=state.intents,
            life=state.life + 1,
            former_vms=list(former)[-FORMER_KEPT:],
        )


def describe_failure(failure: Failure) -> str:
    code = failure.info.provider_code
    return f"{failure.info.message} ({code})" if code and code not in failure.info.message else failure.info.message


def reason_of(failure: Failure) -> str:
    if failure.kind == WRONG_ACCOUNT:
        return WRONG_ACCOUNT
    return MISSING_CREDENTIALS if failure.kind == MISSING_CREDENTIALS else REASON[failure.info.error_class]
