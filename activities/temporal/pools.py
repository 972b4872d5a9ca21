"""What a pool asks about its gates: how the pool before it stands, whether that one's machines have the changed
template, and what its maintenance windows come to."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from activities.base import Activities
from activities.boundary import NotYet
from activities.temporal.classes import MUTE
from resources.maintenance import Calendar, CalendarInput, coming
from resources.names import pool_id
from resources.owner import OwnerRef
from resources.pool.gates import SAYS_WHY, PoolLook
from resources.pool.intents import PoolSummary
from resources.pool.state import Predecessor

LOOK_AGAIN = timedelta(seconds=5)
"""The wait between two looks at a pool that stands as it did."""


class PoolActivities(Activities):
    role = "workflows"

    @activity.defn
    async def work_out_windows(self, input: CalendarInput) -> Calendar:
        """Works out the next openings by this worker's time zone database. An unknown zone is an answer too."""
        try:
            return Calendar(windows=input.windows, openings=coming(input.windows, input.after))
        except ValueError as e:
            return Calendar(windows=input.windows, problem=str(e))

    @activity.defn
    async def look_at_pool(self, input: PoolLook) -> Predecessor:
        """Says how a pool stands. A poller: as long as it stands as is known, it is looked at again."""
        found = await self._standing(input)
        if found == input.known:
            raise NotYet(f"pool {input.pool}: {found.message}", LOOK_AGAIN)
        return found

    @activity.defn
    async def await_templates(self, input: OwnerRef) -> None:
        """Waits until no machine of a pool takes a changed template, or is yet to be told of it. A poller; a pool that
        is gone or goes holds up nobody."""
        try:
            found = await self._summary(input.cluster, input.name)
        except WorkflowQueryRejectedError:
            return
        except WorkflowQueryFailedError as e:
            raise NotYet(f"pool {input.name} cannot answer: {e}", LOOK_AGAIN) from None
        except RPCError as e:
            if e.status == RPCStatusCode.NOT_FOUND:
                return
            if e.status in MUTE:
                raise NotYet(f"pool {input.name} does not answer", LOOK_AGAIN) from None
            raise
        if found.template_busy and not found.deleted:
            words = f"{found.template_busy} of pool {input.name} come first, as they share one budget"
            raise NotYet(f"machines are not told of the template yet: {words}", LOOK_AGAIN)

    async def _summary(self, cluster: str, pool: str) -> PoolSummary:
        handle = self.deps.client.get_workflow_handle(pool_id(cluster, pool))
        found: PoolSummary = await handle.query(
            "summary", result_type=PoolSummary, reject_condition=QueryRejectCondition.NOT_OPEN
        )
        return found

    async def _standing(self, input: PoolLook) -> Predecessor:
        try:
            summary = await self._summary(input.cluster, input.pool)
        except WorkflowQueryRejectedError as e:
            if e.status == WorkflowExecutionStatus.COMPLETED:
                return input.answer("it is gone", gone=True)
            return input.answer("somebody ended its workflow; apply its manifest again")
        except WorkflowQueryFailedError as e:
            return input.answer(f"it cannot answer: {e}")
        except RPCError as e:
            if e.status == RPCStatusCode.NOT_FOUND:
                return input.answer("it does not exist", gone=True)
            if e.status in MUTE:
                return input.answer("it does not answer")
            raise
        return _judged(input, summary)


def _judged(input: PoolLook, of: PoolSummary) -> Predecessor:
    if of.deleted:
        return input.answer("it is being deleted")
    if of.parked:
        return input.answer("it is parked because of an internal error")
    if input.class_ not in ("", of.machine_class):
        return input.answer(f"it has class {of.machine_class}")
    if of.rolled_out:
        return input.answer("it is rolled out", complete=True)
    why = next((w for w in of.waits if w.reason in SAYS_WHY), None)
    if why is None:
        return input.answer("its machines are being replaced")
    # What it says of a pool before it would repeat itself for ever where two wait for each other.
    said = why.reason if why.reason == "AfterPool" else f"{why.reason}: {why.message}"
    return input.answer(f"it waits by {said}")
