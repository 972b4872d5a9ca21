"""What a machine's workflow has on record, and how it is shown: its state, the words for it, its search attributes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from temporalio import workflow

from workflows.calls import Failure
from workflows.entity import Entity
from workflows.machine.details import details
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from planners.machine.claims import CONTRADICTION
    from planners.machine.creation import IN_FLIGHT
    from resources import attributes as at
    from resources.base import format_duration
    from resources.calls.machine import MachineRef, Target
    from resources.clouds import UnknownScope, indexed
    from resources.cluster.accounts import Account
    from resources.errors import Code, ErrorClass
    from resources.machine.manifest import SecretRef
    from resources.machine.state import (
        ATTEMPTED_KEPT,
        FORMER_KEPT,
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
    from resources.names import cloud_queue

FINAL = ("creation", "health", "drain", "preserve")
"""Deadlines that end something for the machine; the others only say when to look at it or try again."""
CONTRADICTIONS = "contradictions"
"""The patch by which the pool is told that the cloud contradicts a kubelet, and lists show it."""
KUBERNETES = "Kubernetes API: "
"""The boundary's prefix for what the API server said."""


def account_of_spec(machine_class: ClassSnapshot, provider_spec: dict[str, Any]) -> Account | None:
    """Where VMs of this provider spec are listed, with the class's credentials. None: the spec does not say where, so
    the create activity refuses it, and the cluster names the class in its journal."""
    of = machine_class
    try:
        return Account.of(of.provider, provider_spec, of.secret_ref, of.credentials_secret_ref)
    except UnknownScope:
        return None


class MachineRecord(Entity):
    """An entity whose state is a machine's. What it does is in `MachineEntity`."""

    s: MachineState

    def __init__(self, state: MachineState) -> None:
        super().__init__(state.journal, state.intents, state.status.deadlines)
        self.s = state

    # -- what it is ----------------------------------------------------------------------------------------------------

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
    def health_timeout(self) -> str:
        return format_duration(self.s.spec.health_timeout)

    # -- its account, and what a call is about -------------------------------------------------------------------------

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
        return account_of_spec(now, now.provider_spec)

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

    # -- what is said of it --------------------------------------------------------------------------------------------

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

    def operation(self, type: OperationType, state: OperationState, description: str, code: Code | None = None) -> None:
        self.status.last_operation = LastOperation(
            type=type, state=state, description=description, error_code=code, time=workflow.now()
        )

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
        words = failure.words
        by_cloud = failure.info.error_class == failure.kind == ErrorClass.AUTH and KUBERNETES not in words
        if self.s.machine_class is None or not by_cloud:
            return words
        return f"{words} (with the credentials of {self.credentials.namespace}/{self.credentials.name})"

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

    # -- what is shown -------------------------------------------------------------------------------------------------

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

    # -- the next life -------------------------------------------------------------------------------------------------

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
