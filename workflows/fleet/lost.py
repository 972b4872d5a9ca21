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


async def meet(f: FleetEntity) -> None:
    """Meets the machines of a former workflow of this owner, once: they say how they are, so that none is made beside
    them. Waits for visibility if it does not answer."""
    s = f.s
    while not s.searched:
        found: list[MembersFound] = []
        failed: list[bool] = []
        f.start(
            MemberActivities.find_members,
            f.ref,
            queue=workflow_queue(s.queue_prefix),
            summary=f"find the machines of {f.owner} that already exist",
            done=found.append,
            failed=partial(failed.append, True),
        )
        while not (found or failed):
            await f.until(lambda: f.call_over, NEVER)
            await f.collect()
        if found:
            s.searched = True
            s.expected = list(dict.fromkeys(n for n in (*s.expected, *found[0].names) if n not in s.members))
            f.found(found[0])
            return
        await f.patience()


async def meet_again(f: FleetEntity) -> None:
    """Meets machines again after a reset: those made since then are there, and nothing is known of them. A call that
    was under way at the reset has come to its end, and visibility knows what it made."""
    if not f.was_reset:
        return
    f.was_reset, f.s.searched = False, False
    f.note("Reset", "the workflow was reset; machines that were created since then are searched for")
    await workflow.sleep(f.s.timings.heartbeat, summary="wait for calls from before the reset")
    await meet(f)


def expect(f: FleetEntity) -> None:
    """Asks the machines that were found until each has said how it is, or is found to be gone."""
    s, now = f.s, workflow.now()
    if not s.expected:
        f.deadlines.pop("expected", None)
        return
    words = f"{some(len(s.expected))} of an earlier workflow of this {f.owner.word} did not report yet"
    f.waits_for("MembersSilent", f"{words}: {named(s.expected)}")
    if "expected" not in f.deadlines or f.due("expected"):
        f.deadlines["expected"] = now + PATIENCE
        members.ask(f, s.expected)


def count(f: FleetEntity) -> None:
    """Counts, from time to time, the members against those that visibility lists."""
    s, now = f.s, workflow.now()
    if "census" not in f.deadlines:
        f.deadlines["census"] = now + CENSUS
    elif f.due("census"):
        f.deadlines["census"] = now + CENSUS
        s.registered = False  # the cluster's workflow may be another one by now
        f.start(
            MemberActivities.find_members,
            f.ref,
            queue=workflow_queue(s.queue_prefix),
            summary="look for machines whose workflow was terminated",
            done=partial(_counted, f),
        )


def _counted(f: FleetEntity, found: MembersFound) -> None:
    """Visibility is late, and decides nothing: those that it does not list are looked at one by one."""
    known = set(found.names) | set(f.s.unstarted)
    if missing := sorted(set(f.s.members) - known):
        members.ask(f, missing)
    if strangers := sorted(set(found.names) - set(f.s.members)):
        members.ask(f, strangers)
