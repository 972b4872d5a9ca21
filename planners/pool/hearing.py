"""What a machine's report makes of what its pool knows: of the member, and of the pace.

A report is a whole snapshot; one that was overtaken by a newer one changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from planners.pool import pace
from planners.waits import WAIT
from resources.machine import Phase
from resources.membership import MemberReport
from resources.pool import Keep, Member, Pace, Permit, Released, Revision, Trouble, Vm, priority_of
from resources.preservation import PreservedBy
from resources.timings import Timings

ON_THE_WAY = (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF)


def hear(member: Member, report: MemberReport, revisions: Sequence[Revision], template: int = 0) -> Member:
    """The member as it reports itself. What the pool alone decides (revision, deleting, marks on its Node) stays, but
    for a repair that it refuses.

    `template`: the newest generation of the template, which the newest revision has.
    """
    wanted = revisions[-1].counter if revisions and 0 < template <= report.template else member.revision
    made_from = next((r for r in revisions if r.counter == wanted), None)
    priority = report.priority
    if priority is None:
        priority = priority_of(made_from.template.metadata.annotations) if made_from else member.priority
    return member._replace(
        since=report.since,
        phase=report.phase,
        vm=report.vm,
        trouble=report.trouble,
        permit=_permit(member.permit, report),
        priority=priority,
        marked=report.marked or member.marked,  # a person may have marked it here
        preserved_until=report.preserved_until,
        preserved_by=report.preserved_by,
        keep=report.keep,
        kept=_kept(member, report),
        released=_released(member, report),
        deleting=member.deleting and not _refused(member, report),
        repair=member.repair and not _refused(member, report),
        drained=report.drained,
        template=report.template,
        seq=report.seq,
    )


def _kept(member: Member, report: MemberReport) -> PreservedBy:
    """The pool's word stays until the machine is preserved, or can be so no more: it is not Failed any more, or leaves,
    or is not to be preserved. A word on request counts only as long as somebody asks for it: else it would be a slot
    that nobody has granted."""
    open_still = report.phase is Phase.FAILED and report.preserved_until is None and report.vm is not Vm.GONE
    withdrawn = member.kept is PreservedBy.ASKED and report.keep is Keep.SLOT
    return member.kept if open_still and report.keep is not Keep.NEVER and not withdrawn else PreservedBy.NOBODY


def _released(member: Member, report: MemberReport) -> Released:
    """Until it goes; and until it is not the pool's own any more, because it is well again or somebody asks for it."""
    still = report.phase is Phase.FAILED and report.preserved_by is not PreservedBy.ASKED
    about_to_be = _kept(member, report) is PreservedBy.AUTO
    return member.released if still and (about_to_be or report.preserved_until is not None) else Released.NO


def _refused(member: Member, report: MemberReport) -> bool:
    """A repair's deletion, by a machine that is to be preserved. A report may have been on its way when the pool
    decided, so only these two words are a refusal, whether the deletion has reached the machine yet or not: it decides
    by the same state when it does. If the request is withdrawn before that, the machine goes and says so, and nothing
    but a place in the pool was kept for it meanwhile. One that is not Failed was adopted meanwhile: its new life knows
    of no repair, and is judged anew. Any other deletion is never taken back."""
    wants = report.keep is Keep.ASKED or report.preserved_until is not None
    anew = report.phase is not Phase.FAILED
    return member.repair and report.phase is not Phase.TERMINATING and (wants or anew)


def _permit(permit: Permit, report: MemberReport) -> Permit:
    """One that was given stays until the machine has taken its question back; a Failed one has used it. One that is
    preserved is repaired once it is drained: no other machine waits for its turn to end."""
    if report.phase is Phase.FAILED and report.drained and report.preserved_until is not None:
        return Permit.NONE
    if report.asks:
        return permit if permit is Permit.GRANTED else Permit.ASKED
    return permit if report.phase is Phase.FAILED and permit is Permit.GRANTED else Permit.NONE


def first_heard(report: MemberReport, revisions: Sequence[Revision]) -> Member:
    """Of a machine that was there before its pool's workflow: of the newest revision that is made alike, else of none,
    and so an old one."""
    alike = [r for r in revisions if (r.machine_class.name, r.hash) == (report.machine_class, report.hash)]
    revision = alike[-1].counter if alike else 0
    return hear(Member(revision, report.since, report.since), report, revisions)


def pace_after(
    speed: Pace, former: Member, report: MemberReport, timings: Timings, now: datetime, jitter: float
) -> Pace:
    """How fast the pool may go on. `speed` is the newest revision's, and so must the machine be."""
    if former.vm is Vm.UNBORN and report.vm is Vm.LIVES:
        speed = pace.born(speed)
    if former.phase in ON_THE_WAY and report.phase is Phase.RUNNING:
        speed = pace.joined(speed)
    if former.trouble is not Trouble.JOIN and report.trouble is Trouble.JOIN:
        speed = pace.never_joined(speed, f"{report.machine}: {report.message}", now, jitter)
    elif report.failure is not None and report.phase in ON_THE_WAY:
        error = report.failure.error_class
        wait = timings.retry.get(error, WAIT[error])
        speed = pace.create_failed(speed, error, f"{report.machine}: {report.failure.message}", now, jitter, wait)
    return speed
