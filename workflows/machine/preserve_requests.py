"""What people and pools want of a machine's preservation: each by update and by signal, as every intent."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.machine import membership, preserve
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from planners.intents import (
        PreservationIntent,
        can_be_extended,
        has_effect,
        kept_failed,
        preservation,
        refusal,
    )
    from planners.preservation import moment
    from resources.base import later
    from resources.errors import NOT_PRESERVED
    from resources.machine import Phase
    from resources.membership import PreserveGrant, SlotTaken
    from resources.messages import Answer, RepairIntent
    from resources.preservation import (
        ExtendIntent,
        Preservation,
        PreservedBy,
        PreserveIntent,
        PreserveValue,
        Release,
        ReleaseIntent,
    )


class Preservable(MachineEntity):
    """The handlers; what comes of them is preserve.py's."""

    def attend(self) -> bool:
        return preserve.step(self)

    def attention(self) -> tuple[object, ...]:
        return *preserve.what_counts(self), preserve.calls(self)

    # -- from its pool ------------------------------------------------------------------------------------------------

    @workflow.signal
    def preserve_granted(self, grant: PreserveGrant) -> None:
        """One that comes late changes nothing: the machine is preserved, well again, or leaves."""
        self.s.messages += 1
        p = self.status.preserve
        if self.s.deletion is None and self.status.phase is Phase.FAILED and p.expiry_time is None:
            p.granted = grant.by
            self.note("PreserveGranted", f"{self.s.owner}" + (f": {grant.reason}" if grant.reason else ""))

    @workflow.signal
    def slot_taken(self, news: SlotTaken) -> None:
        """Only of one that nobody has asked for."""
        self.s.messages += 1
        p = self.status.preserve
        if self.status.phase is Phase.FAILED and p.expiry_time is not None and p.source is PreservedBy.AUTO:
            p.release = Release(time=workflow.now(), requested_by=str(self.s.owner), reason=news.reason, slot=True)

    @workflow.signal
    def repair(self, intent: RepairIntent) -> None:
        """It is deleted, unless a fresh look at its Node finds that it is to be preserved. One that comes twice, or
        when it is well again, changes nothing, and its pool hears how it is."""
        self.s.messages += 1
        if self.s.deletion is not None or (intent.id and intent.id in self.s.intents):
            return
        self.once(intent, lambda: "taken")
        if self.status.phase is Phase.FAILED:
            self.s.repair = intent
        else:
            membership.tell(self, again=True)

    def _change(self, intent: PreservationIntent) -> Preservation:
        """As it is from now on."""
        self.status.preserve = preservation(self.status.preserve, intent, workflow.now())
        return self.status.preserve

    # -- preserve -----------------------------------------------------------------------------------------------------

    @workflow.update(name="preserve")
    def preserve(self, intent: PreserveIntent) -> Answer:
        return self.once(intent, lambda: self._want(intent))

    @preserve.validator
    def check_preserve(self, intent: PreserveIntent) -> None:
        _refuse(refusal(self.s, intent, workflow.now()))

    @workflow.signal(name="preserve")
    def preserve_by_signal(self, intent: PreserveIntent) -> None:
        if words := refusal(self.s, intent, workflow.now()):
            self.note("Refused", words)
        else:
            self.once(intent, lambda: self._want(intent))

    def _want(self, intent: PreserveIntent) -> str:
        s, p = self.s, self._change(intent)
        if intent.value == PreserveValue.FALSE:
            then = "; it had Failed, so its VM is deleted" if kept_failed(self.s) else ""
            return f"machine {s.name} is not preserved, also not by its pool{then}"
        if p.expiry_time is not None:
            return f"machine {s.name} is preserved already, until {moment(p.expiry_time)}"
        if intent.value == PreserveValue.WHEN_FAILED:
            return f"machine {s.name} will be preserved when it fails"
        if self.status.phase is Phase.RUNNING:
            until = intent.until or later(workflow.now(), intent.lasts or s.spec.machine_preserve_timeout)
            return f"machine {s.name} is preserved until {moment(until)}"
        if self.status.phase is Phase.FAILED:
            then = ", unless its pool says otherwise" if s.owner else "; when its time ends, its VM is deleted"
            return f"machine {s.name} will be preserved when it is drained{then}"
        return f"machine {s.name} will be preserved when it is Running or Failed; it is {self.status.phase}"

    # -- release ------------------------------------------------------------------------------------------------------

    @workflow.update(name="release")
    def release(self, intent: ReleaseIntent) -> Answer:
        return self.once(intent, lambda: self._release(intent))

    @release.validator
    def check_release(self, intent: ReleaseIntent) -> None:
        _refuse(refusal(self.s, intent, workflow.now()), NOT_PRESERVED)

    @workflow.signal(name="release")
    def release_by_signal(self, intent: ReleaseIntent) -> None:
        if words := refusal(self.s, intent, workflow.now()):
            self.note("Refused", words)
        else:
            self.once(intent, lambda: self._release(intent))

    def _release(self, intent: ReleaseIntent) -> str:
        if not has_effect(self._change(intent)):
            return f"the request for machine {self.s.name} is withdrawn"
        then = "; it had Failed, so its VM is deleted" if kept_failed(self.s) else ""
        return f"machine {self.s.name} is released{then}"

    # -- extend -------------------------------------------------------------------------------------------------------

    @workflow.update(name="extend")
    def extend(self, intent: ExtendIntent) -> Answer:
        return self.once(intent, lambda: self._extend(intent))

    @extend.validator
    def check_extend(self, intent: ExtendIntent) -> None:
        _refuse(refusal(self.s, intent, workflow.now()), "Refused" if can_be_extended(self.s) else NOT_PRESERVED)

    @workflow.signal(name="extend")
    def extend_by_signal(self, intent: ExtendIntent) -> None:
        if words := refusal(self.s, intent, workflow.now()):
            self.note("Refused", words)
        else:
            self.once(intent, lambda: self._extend(intent))

    def _extend(self, intent: ExtendIntent) -> str:
        former, p = self.status.preserve.expiry_time, self._change(intent)
        assert former is not None
        assert p.expiry_time is not None
        by = f" by {intent.requested_by}" if intent.requested_by else ""
        why = f": {intent.reason}" if intent.reason else ""
        self.note("PreservationMoved", f"until {moment(p.expiry_time)} instead of {moment(former)}{by}{why}")
        self.tell()
        return f"machine {self.s.name} is preserved until {moment(p.expiry_time)}"


def _refuse(words: str, kind: str = "Refused") -> None:
    if words:
        raise ApplicationError(words, type=kind, non_retryable=True)
