"""How a machine's report changes what its owner knows: the member, and the pace.

A report is a whole snapshot; one that a newer one has overtaken changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from planners.fleet import pace
from planners.machine.hot_update import is_hash_of
from planners.waits import WAIT
from resources.fleet.member import Member, Permit, PreserveWish, Released, Trouble, Vm
from resources.fleet.membership import MemberReport
from resources.fleet.revision import Pace, Revision
from resources.machine.preservation import PreservedBy
from resources.machine.priority import priority_of
from resources.machine.state import ClassSnapshot, Phase
from resources.timings import Timings


def hear(member: Member, report: MemberReport, revisions: Sequence[Revision], template: int = 0) -> Member:
    """The member as it reports itself. What the pool alone decides (revision, deleting, marks on its Node) stays,
    except for a repair that the machine refuses.

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
        trouble=_trouble(member, report),
        permit=_permit(member.permit, report),
        priority=priority,
        marked=report.marked or member.marked,  # a person may have marked it here
        preserved_until=report.preserved_until,
        preserved_by=report.preserved_by,
        keep=report.keep,
        granted=_granted(member, report),
        released=_released(member, report),
        deleting=member.deleting and not _refused(member, report),
        repair=member.repair and not _refused(member, report),
        drained=report.drained,
        template=report.template,
        seq=report.seq,
        lasted=_lasted(member, report),
        contradicted=report.contradicted,
        placement=report.placement or member.placement,
    )


def _lasted(member: Member, report: MemberReport) -> bool:
    """Kept for when it is no longer Running: a machine that once had ten good minutes failed late, whatever follows."""
    ran = member.phase is Phase.RUNNING and report.phase is not Phase.RUNNING
    return member.lasted or (ran and report.since - member.since >= pace.LASTED)


def _trouble(member: Member, report: MemberReport) -> Trouble:
    """Once it is deleted, a machine no longer says that its VM was gone before: it remains a repair until it has
    ended."""
    going = report.phase is Phase.TERMINATING and report.trouble is Trouble.NONE
    return member.trouble if going and member.trouble is Trouble.GONE else report.trouble


def _granted(member: Member, report: MemberReport) -> PreservedBy:
    """The pool's word stays until the machine is preserved, or no longer can be: it is no longer Failed, leaves, or is
    not to be preserved. A word on request counts only while somebody asks for it: otherwise it would be a slot that
    nobody has granted."""
    open_still = report.phase is Phase.FAILED and report.preserved_until is None and report.vm is not Vm.GONE
    withdrawn = member.granted is PreservedBy.ASKED and report.keep is PreserveWish.SLOT
    stands = open_still and report.keep is not PreserveWish.NEVER and not withdrawn
    return member.granted if stands else PreservedBy.NOBODY


def _released(member: Member, report: MemberReport) -> Released:
    """Stays until the machine goes, or until the pool no longer preserves it, because it is well again or somebody asks
    for it."""
    still = report.phase is Phase.FAILED and report.preserved_by is not PreservedBy.ASKED
    about_to_be = _granted(member, report) is PreservedBy.AUTO
    return member.released if still and (about_to_be or report.preserved_until is not None) else Released.NO


def _refused(member: Member, report: MemberReport) -> bool:
    """Whether a machine that is to be preserved refuses a repair's deletion. A report may have been on its way when the
    pool decided, so only these two words are a refusal, whether the deletion has reached the machine yet or not: the
    machine decides by the same state when it arrives. If the request is withdrawn before that, the machine goes and
    says so, and meanwhile only a place in the pool was kept for it. A machine that is not Failed was adopted meanwhile:
    its new life knows of no repair, and is judged anew. Any other deletion is never taken back."""
    wants = report.keep is PreserveWish.ASKED or report.preserved_until is not None
    anew = report.phase is not Phase.FAILED
    return member.repair and report.phase is not Phase.TERMINATING and (wants or anew)


def _permit(permit: Permit, report: MemberReport) -> Permit:
    """A granted permit stays until the machine takes its question back. A Failed machine has used it, and so has one
    whose VM was gone before it was replaced. A preserved machine counts as repaired once it is drained: no other
    machine waits for its turn to end."""
    if report.vm is Vm.GONE and permit is Permit.GRANTED:
        return permit
    if report.phase is Phase.FAILED and report.drained and report.preserved_until is not None:
        return Permit.NONE
    if report.asks:
        return permit if permit is Permit.GRANTED else Permit.ASKED
    return permit if report.phase is Phase.FAILED and permit is Permit.GRANTED else Permit.NONE


def first_heard(report: MemberReport, revisions: Sequence[Revision]) -> Member:
    """The member for a machine older than its pool's workflow: of the newest revision that is made alike, or else of
    none, which makes it an old one."""
    alike = [r for r in revisions if _made_from(report, r.machine_class)]
    revision = alike[-1].counter if alike else 0
    return hear(Member(revision, report.since, report.since), report, revisions)


def _made_from(report: MemberReport, of: ClassSnapshot) -> bool:
    hash = report.rolling_hash or report.hash  # a machine on an older worker only gives the second
    return report.machine_class == of.name and is_hash_of(hash, of.provider, of.provider_spec)


def pace_after(
    speed: Pace,
    former: Member,
    heard: Member,
    report: MemberReport,
    replicas: int,
    timings: Timings,
    now: datetime,
    jitter: float,
    braked: bool = True,
) -> Pace:
    """How fast the pool may go on. `speed` is the newest revision's, and the machine must be of that revision; `heard`:
    the member as it has reported itself; `braked`: as in `ObservedPool`."""
    message = f"{report.machine}: {report.message}"
    if braked:
        after = pace.lived(speed, former, heard, message, replicas, now, jitter)
        if report.unanswered and former.trouble is Trouble.NONE and not former.leaving:
            after = pace.failed_young(after, heard, message, replicas, now, jitter)  # nobody has counted what was made
    else:
        after = _lived_before_there_were_brakes(speed, former, heard, message, now, jitter)
    died = former.trouble is Trouble.NONE and report.trouble is not Trouble.NONE
    if died or report.failure is None or report.phase not in pace.COMING:
        return after
    error, reason = report.failure.error_class, report.failure.reason
    wait = timings.retry.get(error, WAIT[error])
    return pace.create_failed(after, error, f"{report.machine}: {report.failure.message}", now, jitter, wait, reason)


def _lived_before_there_were_brakes(
    speed: Pace, former: Member, heard: Member, message: str, now: datetime, jitter: float
) -> Pace:
    """The rules of runs older than the brakes: one Running machine forgave everything, and only one that never joined
    counted."""
    if former.vm is Vm.UNBORN and heard.vm is Vm.LIVES:
        speed = pace.born(speed)
    if former.phase in pace.COMING and heard.phase is Phase.RUNNING:
        speed = speed.model_copy(update={"joins_failed": 0, "backoffs": 0})
    if former.trouble is not Trouble.JOIN and heard.trouble is Trouble.JOIN:
        if speed.until is not None and now < speed.until:
            return speed.model_copy(update={"joins_failed": speed.joins_failed + 1})
        return pace.failed_young(speed, heard, message, 0, now, jitter).model_copy(update={"suspect": False})
    return speed
