"""Machines that are there and not known: of a former workflow, of a run that was reset, or ended from outside."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from temporalio import workflow

from workflows.entity import NEVER
from workflows.fleet import members
from workflows.fleet.entity import PATIENCE, FleetEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.members import MemberActivities
    from planners.words import named, some
    from resources.fleet.membership import MembersFound
    from resources.names import workflow_queue

CENSUS = timedelta(minutes=30)
"""The time between two looks for machines whose workflow was ended from outside: they cannot tell it."""


async def meet(fleet: FleetEntity) -> None:
    """Meets the machines of a former workflow of this owner, once: they say how they are, so that none is made beside
    them. Waits for visibility if it does not answer."""
    state = fleet.s
    while not state.searched:
        found: list[MembersFound] = []
        failed: list[bool] = []
        fleet.start(
            MemberActivities.find_members,
            fleet.ref,
            queue=workflow_queue(state.queue_prefix),
            summary=f"find the machines of {fleet.owner} that already exist",
            done=found.append,
            failed=partial(failed.append, True),
        )
        while not (found or failed):
            await fleet.until(lambda: fleet.call_over, NEVER)
            await fleet.collect()
        if found:
            state.searched = True
            state.expected = list(
                dict.fromkeys(n for n in (*state.expected, *found[0].names) if n not in state.members)
            )
            fleet.found(found[0])
            return
        await fleet.patience()


async def meet_again(fleet: FleetEntity) -> None:
    """Meets machines again after a reset: those made since then are there, and nothing is known of them. A call that
    was under way at the reset has come to its end, and visibility knows what it made."""
    if not fleet.was_reset:
        return
    fleet.was_reset, fleet.s.searched = False, False
    fleet.note("Reset", "the workflow was reset; machines that were created since then are searched for")
    await workflow.sleep(fleet.s.timings.heartbeat, summary="wait for calls from before the reset")
    await meet(fleet)


def expect(fleet: FleetEntity) -> None:
    """Asks the machines that were found until each has said how it is, or is found to be gone."""
    state, now = fleet.s, workflow.now()
    if not state.expected:
        fleet.deadlines.pop("expected", None)
        return
    words = f"{some(len(state.expected))} of an earlier workflow of this {fleet.owner.word} did not report yet"
    fleet.waits_for("MembersSilent", f"{words}: {named(state.expected)}")
    if "expected" not in fleet.deadlines or fleet.due("expected"):
        fleet.deadlines["expected"] = now + PATIENCE
        members.ask(fleet, state.expected)


def count(fleet: FleetEntity) -> None:
    """Counts, from time to time, the members against those that visibility lists."""
    state, now = fleet.s, workflow.now()
    if "census" not in fleet.deadlines:
        fleet.deadlines["census"] = now + CENSUS
    elif fleet.due("census"):
        fleet.deadlines["census"] = now + CENSUS
        state.registered = False  # the cluster's workflow may be another one by now
        fleet.start(
            MemberActivities.find_members,
            fleet.ref,
            queue=workflow_queue(state.queue_prefix),
            summary="look for machines whose workflow was terminated",
            done=partial(_counted, fleet),
        )


def _counted(fleet: FleetEntity, found: MembersFound) -> None:
    """Visibility is late, and decides nothing: those that it does not list are looked at one by one."""
    known = set(found.names) | set(fleet.s.unstarted)
    if missing := sorted(set(fleet.s.members) - known):
        members.ask(fleet, missing)
    if strangers := sorted(set(found.names) - set(fleet.s.members)):
        members.ask(fleet, strangers)
