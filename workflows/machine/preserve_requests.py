"""What people and pools want of a machine's preservation: each by update and by signal, like every intent."""

from __future__ import annotations

from temporalio import workflow

from workflows.entity import Refusal, intent
from workflows.machine import membership, preserve
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from planners.machine.intents import (
        PreservationIntent,
        can_be_extended,
        has_effect,
        preservation,
        preserved_failed,
        refusal,
    )
    from resources.base import later
    from resources.errors import NOT_PRESERVED
    from resources.fleet.membership import PreserveGrant, SlotTaken
    from resources.machine.intents import RepairIntent
    from resources.machine.preservation import (
        ExtendIntent,
        Preservation,
        PreservedBy,
        PreserveIntent,
        PreserveValue,
        Release,
        ReleaseIntent,
    )
    from resources.machine.state import Phase
    from resources.words import by_whom, utc


class NothingPreserved(Refusal):
    type = NOT_PRESERVED


class Preservable(MachineEntity):
    """The handlers; preserve.py decides what follows."""

    def attend(self) -> bool:
        return preserve.step(self)

    def attention(self) -> tuple[object, ...]:
        return *preserve.what_counts(self), preserve.calls(self)

    # -- from its pool ------------------------------------------------------------------------------------------------

    @workflow.signal
    def preserve_granted(self, grant: PreserveGrant) -> None:
        """Takes the pool's grant. A late one changes nothing: the machine is preserved, well again, or leaves."""
        self.s.messages += 1
        p = self.status.preserve
        if self.s.deletion is None and self.status.phase is Phase.FAILED and p.expiry_time is None:
            p.granted = grant.by
            self.note("PreserveGranted", f"{self.s.owner}" + (f": {grant.reason}" if grant.reason else ""))

    @workflow.signal
    def slot_taken(self, news: SlotTaken) -> None:
        """Takes back a slot, only of a machine that nobody has asked for."""
        self.s.messages += 1
        p = self.status.preserve
        if self.status.phase is Phase.FAILED and p.expiry_time is not None and p.source is PreservedBy.AUTO:
            p.release = Release(time=workflow.now(), requested_by=str(self.s.owner), reason=news.reason, slot=True)

    @workflow.signal
    def repair(self, intent: RepairIntent) -> None:
        """Deletes the machine, unless a fresh look at its Node finds that it is to be preserved. An intent that comes
        twice, or when the machine is well again, changes nothing, and its pool hears how it is."""
        self.s.messages += 1
        if self.s.deletion is not None or (intent.id and intent.id in self.s.intents):
            return
        self.once(intent, lambda: "taken")
        if self.status.phase is Phase.FAILED:
            self.s.repair = intent
        else:
            membership.tell(self, again=True)

    def _change(self, intent: PreservationIntent) -> Preservation:
        """Changes the preservation, and returns it."""
        self.status.preserve = preservation(self.status.preserve, intent, workflow.now())
        return self.status.preserve

    # -- preserve -----------------------------------------------------------------------------------------------------

    def _want(self, intent: PreserveIntent) -> str:
        state, p = self.s, self._change(intent)
        if intent.value == PreserveValue.FALSE:
            then = "; it is Failed, so its VM is deleted" if preserved_failed(self.s) else ""
            return f"machine {state.name} is not preserved and will not be, not even by its pool{then}"
        if p.expiry_time is not None:
            return f"machine {state.name} is preserved already, until {utc(p.expiry_time)}"
        if intent.value == PreserveValue.WHEN_FAILED:
            return f"machine {state.name} will be preserved when it fails"
        if self.status.phase is Phase.RUNNING:
            until = intent.until or later(workflow.now(), intent.lasts or state.spec.machine_preserve_timeout)
            return f"machine {state.name} is preserved until {utc(until)}"
        if self.status.phase is Phase.FAILED:
            then = (
                ", unless its pool decides otherwise"
                if state.owner
                else "; when the preservation expires, its VM is deleted"
            )
            return f"machine {state.name} will be preserved when it is drained{then}"
        return f"machine {state.name} will be preserved when it is Running or Failed; it is {self.status.phase}"

    # -- release ------------------------------------------------------------------------------------------------------

    def _release(self, intent: ReleaseIntent) -> str:
        if not has_effect(self._change(intent)):
            return f"the request for machine {self.s.name} is withdrawn"
        then = "; it is Failed, so its VM is deleted" if preserved_failed(self.s) else ""
        return f"machine {self.s.name} is released{then}"

    # -- extend -------------------------------------------------------------------------------------------------------

    def _extend(self, intent: ExtendIntent) -> str:
        former, p = self.status.preserve.expiry_time, self._change(intent)
        assert former is not None
        assert p.expiry_time is not None
        by = by_whom(intent.requested_by, intent.reason)
        self.note("PreservationMoved", f"until {utc(p.expiry_time)} instead of {utc(former)}{by}")
        self.tell()
        return f"machine {self.s.name} is preserved until {utc(p.expiry_time)}"

    def _no_change(self, intent: PreservationIntent) -> str:
        return refusal(self.s, intent, workflow.now())

    def _no_release(self, intent: PreservationIntent) -> str:
        """Why nothing can be released or extended, of a type that tells programs so."""
        return NothingPreserved(self._no_change(intent))

    def _no_extension(self, intent: ExtendIntent) -> str:
        return self._no_change(intent) if can_be_extended(self.s) else self._no_release(intent)

    preserve = intent(PreserveIntent, _want, _no_change)
    release = intent(ReleaseIntent, _release, _no_release)
    extend = intent(ExtendIntent, _extend, _no_extension)
