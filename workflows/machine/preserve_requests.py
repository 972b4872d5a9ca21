"""What people and pools want of a machine's preservation: each by update and by signal, as every intent."""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.machine import membership, preserve
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from planners.preservation import ASKED_FOR, on_node
    from resources.errors import NOT_PRESERVED
    from resources.machine import Phase
    from resources.membership import PreserveGrant, SlotTaken
    from resources.messages import Answer, RepairIntent
    from resources.names import PRESERVE_ANNOTATION
    from resources.preservation import (
        ExtendIntent,
        PreservedBy,
        PreserveIntent,
        PreserveValue,
        Release,
        ReleaseIntent,
        Request,
    )


LONGEST = timedelta(days=3650)


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
            self.note("PreserveGranted", f"pool {self.s.pool}" + (f": {grant.reason}" if grant.reason else ""))

    @workflow.signal
    def slot_taken(self, news: SlotTaken) -> None:
        """Only of one that nobody has asked for."""
        self.s.messages += 1
        p = self.status.preserve
        if self.status.phase is Phase.FAILED and p.expiry_time is not None and p.source is PreservedBy.AUTO:
            p.release = Release(time=workflow.now(), requested_by=f"pool {self.s.pool}", reason=news.reason, slot=True)

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

    # -- preserve -----------------------------------------------------------------------------------------------------

    @workflow.update(name="preserve")
    def preserve(self, intent: PreserveIntent) -> Answer:
        return self.once(intent, lambda: self._want(intent))

    @preserve.validator
    def check_preserve(self, intent: PreserveIntent) -> None:
        _refuse(self._no_preservation(intent))

    @workflow.signal(name="preserve")
    def preserve_by_signal(self, intent: PreserveIntent) -> None:
        if refusal := self._no_preservation(intent):
            self.note("Refused", refusal)
        else:
            self.once(intent, lambda: self._want(intent))

    def _no_preservation(self, intent: PreserveIntent) -> str | None:
        s, p = self.s, self.status.preserve
        if intent.id and intent.id in s.intents:
            return None
        if s.deletion is not None:
            return f"machine {s.name} is being deleted; it cannot be preserved any more"
        if wrong := _wrong_time(intent.lasts, intent.until):
            return wrong
        there, timed = on_node(p.node_value, p.last), intent.lasts is not None or intent.until is not None
        other = bool(there) and there != intent.value
        if p.expiry_time is not None and intent.value != PreserveValue.FALSE and (other or timed):
            return (
                f"machine {s.name} is preserved already, until {_time(p.expiry_time)}; to move that: "
                f"`hostler extend {s.name} --cluster {s.cluster} --for 24h`"
            )
        return self._stronger(there, intent.value, timed) if other else None

    def _stronger(self, there: str, value: PreserveValue, timed: bool) -> str:
        """Never how to remove it: that would end what the annotation has caused, or keeps from being deleted."""
        node = self.s.node.name if self.s.node else ""
        then = ", then ask again" if timed else ""
        if value == PreserveValue.FALSE and self._kept_failed():
            then = "; it has Failed, so its VM is deleted then"
        return (
            f"node {node} carries the annotation preserve={there}, which is stronger; change it there: "
            f"`kubectl annotate --overwrite node {node} {PRESERVE_ANNOTATION}={value}`{then}"
        )

    def _want(self, intent: PreserveIntent) -> str:
        s, p = self.s, self.status.preserve
        p.own = Request.of(intent, workflow.now())
        if intent.value == PreserveValue.FALSE:
            then = "; it had Failed, so its VM is deleted" if self._kept_failed() else ""
            return f"machine {s.name} is not preserved, also not by its pool{then}"
        p.release = None
        if p.expiry_time is not None:
            return f"machine {s.name} is preserved already, until {_time(p.expiry_time)}"
        if intent.value == PreserveValue.WHEN_FAILED:
            return f"machine {s.name} will be preserved when it fails"
        if self.status.phase is Phase.RUNNING:
            until = intent.until or workflow.now() + (intent.lasts or s.spec.machine_preserve_timeout)
            return f"machine {s.name} is preserved until {_time(until)}"
        if self.status.phase is Phase.FAILED:
            then = ", unless its pool says otherwise" if s.pool else "; when its time ends, its VM is deleted"
            return f"machine {s.name} will be preserved when it is drained{then}"
        return f"machine {s.name} will be preserved when it is Running or Failed; it is {self.status.phase}"

    # -- release ------------------------------------------------------------------------------------------------------

    @workflow.update(name="release")
    def release(self, intent: ReleaseIntent) -> Answer:
        return self.once(intent, lambda: self._release(intent))

    @release.validator
    def check_release(self, intent: ReleaseIntent) -> None:
        _refuse(self._no_release(intent), NOT_PRESERVED)

    @workflow.signal(name="release")
    def release_by_signal(self, intent: ReleaseIntent) -> None:
        if refusal := self._no_release(intent):
            self.note("Refused", refusal)
        else:
            self.once(intent, lambda: self._release(intent))

    def _no_release(self, intent: ReleaseIntent) -> str | None:
        s, p = self.s, self.status.preserve
        if intent.id and intent.id in s.intents:
            return None
        if s.deletion is not None:
            return f"machine {s.name} is being deleted already"
        if p.expiry_time is None and p.own is None and on_node(p.node_value, p.last) not in ASKED_FOR:
            return f"machine {s.name} is not preserved, and nobody has asked for it; there is nothing to release"
        return None

    def _release(self, intent: ReleaseIntent) -> str:
        p = self.status.preserve
        p.own = None
        if p.expiry_time is None and on_node(p.node_value, p.last) not in ASKED_FOR:
            return f"the request for machine {self.s.name} is withdrawn"
        p.release = Release(time=workflow.now(), requested_by=intent.requested_by, reason=intent.reason)
        then = "; it had Failed, so its VM is deleted" if self._kept_failed() else ""
        return f"machine {self.s.name} is released{then}"

    def _kept_failed(self) -> bool:
        return self.status.phase is Phase.FAILED and self.status.preserve.expiry_time is not None

    # -- extend -------------------------------------------------------------------------------------------------------

    @workflow.update(name="extend")
    def extend(self, intent: ExtendIntent) -> Answer:
        return self.once(intent, lambda: self._extend(intent))

    @extend.validator
    def check_extend(self, intent: ExtendIntent) -> None:
        kept = self.s.deletion is None and self.status.preserve.expiry_time is not None
        _refuse(self._no_extension(intent), "Refused" if kept else NOT_PRESERVED)

    @workflow.signal(name="extend")
    def extend_by_signal(self, intent: ExtendIntent) -> None:
        if refusal := self._no_extension(intent):
            self.note("Refused", refusal)
        else:
            self.once(intent, lambda: self._extend(intent))

    def _no_extension(self, intent: ExtendIntent) -> str | None:
        s = self.s
        if intent.id and intent.id in s.intents:
            return None
        if s.deletion is not None or self.status.preserve.expiry_time is None:
            return f"machine {s.name} is not preserved; `hostler preserve {s.name} --cluster {s.cluster}` begins it"
        if self.status.preserve.release is not None:
            return f"machine {s.name} is being released"
        if intent.lasts is None and intent.until is None:
            return "neither how long nor until when is given"
        return _wrong_time(intent.lasts, intent.until)

    def _extend(self, intent: ExtendIntent) -> str:
        p, former = self.status.preserve, self.status.preserve.expiry_time
        assert former is not None
        p.expiry_time = intent.until or workflow.now() + (intent.lasts or timedelta(0))
        p.warned = False
        by = f" by {intent.requested_by}" if intent.requested_by else ""
        why = f": {intent.reason}" if intent.reason else ""
        self.note("PreservationMoved", f"until {_time(p.expiry_time)} instead of {_time(former)}{by}{why}")
        self.tell()
        return f"machine {self.s.name} is preserved until {_time(p.expiry_time)}"


def _wrong_time(lasts: timedelta | None, until: datetime | None) -> str | None:
    if lasts is not None and until is not None:
        return "both how long and until when are given; give one"
    now = workflow.now()
    if until is not None and until <= now:
        return f"{_time(until)} has passed"
    if (lasts is not None and lasts > LONGEST) or (until is not None and until > now + LONGEST):
        return f"that is more than {LONGEST.days} days"
    return None


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _refuse(words: str | None, kind: str = "Refused") -> None:
    if words is not None:
        raise ApplicationError(words, type=kind, non_retryable=True)
