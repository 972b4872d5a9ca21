"""How fast a pool makes machines: a slow start, and one back-off.

A failure counts by when it struck in a machine's life, however it was noticed: before the machine had lasted it says
something about the next machine, after that it does not.

Sources: Kubernetes' slowStartBatch and machine-controller-manager's S9, S10 (1, 2, 4, … as long as they succeed, 100 at
most, stop at the first failing batch); kubelet's CrashLoopBackOff (forgiven after ten minutes); field cases P13 (three
machines in a row that never join) and P19 (a back-off is a pool's, with jitter, and grows with each window rather than
with each failing machine).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from planners.waits import REASON, WAIT
from resources.base import format_duration
from resources.errors import PASSING, ErrorClass
from resources.fleet.member import Member, Trouble, Vm
from resources.fleet.revision import Pace
from resources.machine.state import Phase

CAP = 100
"""The most machines made, or deleted, in one step."""
LEAVING = 500
"""The most machines on their way out at the same time. Each is drained, is looked up in the cloud, and tells its pool,
its class and its cluster of its end: those three workflows bear no more at once."""
LASTED = timedelta(minutes=10)
"""How long a machine must be Running at a stretch to have lasted: kubelet forgives a container that crashed after as
long."""
JOINS = 3
ONE_IN = 20
"""How many machines may fail one after another before they have lasted until the pool backs off: three, and in a large
pool one in twenty of its replicas, since of a thousand a few always do."""
JOIN_WAIT = timedelta(minutes=5)
NEVER_JOIN = "MachinesNeverJoin"
DIE_YOUNG = "MachinesDieYoung"
DEATHS = (NEVER_JOIN, DIE_YOUNG)
"""Reasons of a back-off that a new VM does not end, since making VMs was never in doubt."""
LONGEST = timedelta(hours=1)
JITTER = 0.2
COOLDOWN = timedelta(minutes=5)
"""The rest after a storm before the next repair begins: a share of ill machines that falls below the limit for a moment
says little. It is about as long as a node takes to come back after an outage and be found well."""
NO_SIGN = PASSING | {ErrorClass.CONFLICT}
"""Errors that say nothing about the next machine."""
COMING = (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF)


# -- lives ------------------------------------------------------------------------------------------------------------


def has_lasted(member: Member, now: datetime) -> bool:
    return member.lasted or (member.phase is Phase.RUNNING and now - member.since >= LASTED)


def dead(member: Member) -> bool:
    """Whether it is Failed, or without its VM."""
    return member.phase is Phase.FAILED or member.vm is Vm.GONE


def died_young(member: Member) -> bool:
    """Whether it failed before it had lasted, whatever noticed it. A cloud that had no VM to give is not the machine's
    failure."""
    return member.trouble is Trouble.JOIN or (member.trouble in (Trouble.HEALTH, Trouble.GONE) and not member.lasted)


def patience(replicas: int) -> int:
    """How many machines may die young in a row before a pool of this size backs off."""
    return max(JOINS, replicas // ONE_IN)


def most_in_an_hour(replicas: int, ceiling: int) -> int:
    """The most VMs that the pool makes within an hour, beyond replacements that people ask for, whatever fails and
    however fast (I15). `ceiling`: how many VMs it may have at the same time.

    No two windows open within JOIN_WAIT, nor three within LASTED more: the second one in a row waits twice as long, and
    a row ends only when a machine has lasted. In each window as many machines may come up as the pool may have, and die
    then, and as many as `patience` may be replaced before it backs off again. And each machine that has lasted may die
    after that. Machines that never join are far fewer: `patience`, and one more with each window, of 5, 10, 20, 40 and
    60 minutes.
    """
    hour = timedelta(hours=1)
    windows = 2 * -(-hour // (JOIN_WAIT + LASTED)) + 1
    return windows * (ceiling + patience(replicas) - 1) + hour // LASTED * ceiling


# -- the pace ---------------------------------------------------------------------------------------------------------


def of(pace: Pace, revision: int) -> Pace:
    """The pace of a revision. A new revision starts afresh: it may correct what was wrong with the old one, but not
    what was wrong around it."""
    if pace.revision == revision:
        return pace
    return Pace(revision=revision, storm=pace.storm, repairs_from=pace.repairs_from)


def backing_off(pace: Pace, now: datetime) -> bool:
    """Whether the pool waits because machines die young: then nothing is given up for another one either."""
    return pace.reason in DEATHS and pace.until is not None and now < pace.until


def refused(pace: Pace) -> bool:
    """Whether the last create calls failed: they are tried again after the back-off, and until one has its VM the same
    trouble lasts."""
    return bool(pace.reason) and pace.reason not in DEATHS


def coming(pace: Pace, member: Member) -> bool:
    """Whether it counts against the window: it is on its way to a VM, or, where none has lasted, to Running."""
    if pace.suspect:
        return member.phase in COMING and not dead(member)
    return member.vm is Vm.UNBORN


def allowance(pace: Pace, coming: int, now: datetime) -> int:
    """How many more may be made now, with so many on the way."""
    if pace.until is not None and now < pace.until:
        return 0
    return max(0, min(pace.window, CAP) - coming)


def lived(
    pace: Pace, former: Member, member: Member, message: str, replicas: int, now: datetime, jitter: float
) -> Pace:
    """The pace after what became of a machine of the revision. `jitter`: 0 to 1, from the workflow's own random
    source."""
    if former.vm is Vm.UNBORN and member.vm is Vm.LIVES:
        pace = born(pace)
    if former.phase in COMING and member.phase is Phase.RUNNING:
        pace = joined(pace)
    struck = former.trouble is Trouble.NONE and not former.leaving
    if struck and died_young(member) and not has_lasted(member, now):
        pace = failed_young(pace, member, message, replicas, now, jitter)
    return pace


def born(pace: Pace, count: int = 1) -> Pace:
    """The pace once so many machines got their VM: with each success one more may be on the way, so each batch is twice
    the one before. The cloud gives again what it refused; whether machines last is another question."""
    wider = pace if pace.suspect else _wider(pace, count)
    if pace.reason in DEATHS:
        return wider
    return wider.model_copy(update={"until": None, "reason": "", "message": ""})


def joined(pace: Pace, count: int = 1) -> Pace:
    """The pace once so many machines are Running. Where machines have died young, only one that lasts forgives that."""
    if pace.suspect:
        return _wider(pace, count)
    return pace if pace.joins_failed else pace.model_copy(update={"backoffs": 0})


def _wider(pace: Pace, count: int) -> Pace:
    return pace.model_copy(update={"window": min(CAP, pace.window + count)})


def forgive(pace: Pace) -> Pace:
    """A machine has lasted, or a person wants another try: what was counted against the revision is forgotten."""
    over = {"until": None, "reason": "", "message": ""} if pace.reason in DEATHS else {}
    return pace.model_copy(update={"joins_failed": 0, "backoffs": 0, "newest": None, "suspect": False, **over})


def create_failed(
    pace: Pace,
    error: ErrorClass,
    message: str,
    now: datetime,
    jitter: float,
    wait: timedelta | None = None,
    reason: str = "",
) -> Pace:
    """The pace after a machine's create call failed. Failures within a window are the same trouble: they neither
    prolong it nor make the next one longer. `wait` and `reason`: replace the error class's own."""
    if error in NO_SIGN or (pace.until is not None and now < pace.until):
        return pace
    reason = REASON[error] if reason in ("", *DEATHS) else reason  # anybody may send a report
    return _back_off(pace, reason, message, WAIT[error] if wait is None else wait, now, jitter)


def failed_young(pace: Pace, member: Member, message: str, replicas: int, now: datetime, jitter: float) -> Pace:
    """The pace after a machine failed before it had lasted: the pool waits after the third in a row, and after each of
    the next."""
    count = pace.joins_failed + 1
    newest = max(member.created, pace.newest or member.created)
    failed = pace.model_copy(update={"joins_failed": count, "newest": newest})
    if backing_off(pace, now) or (count < patience(replicas) and not pace.suspect):
        return failed
    suspected = failed.model_copy(update={"suspect": True})
    if member.trouble in (Trouble.JOIN, Trouble.CREATE):
        words = f"{count} machines in a row never joined; the last one: {message}"
        return _back_off(suspected, NEVER_JOIN, words, JOIN_WAIT, now, jitter)
    words = f"{count} machines in a row failed before they had been Running for {format_duration(LASTED)}"
    return _back_off(suspected, DIE_YOUNG, f"{words}; the last one: {message}", JOIN_WAIT, now, jitter)


def _back_off(pace: Pace, reason: str, message: str, wait: timedelta, now: datetime, jitter: float) -> Pace:
    """A back-off that the cloud caused is not cut short."""
    wait = min(wait * (1 << min(pace.backoffs, 8)), max(wait, LONGEST)) * (1 + JITTER * jitter)
    until = max(now + wait, pace.until or now)
    return pace.model_copy(
        update={"window": 1, "backoffs": pace.backoffs + 1, "until": until, "reason": reason, "message": message}
    )


# -- what time makes of it --------------------------------------------------------------------------------------------


def proof_at(pace: Pace, newest: Mapping[str, Member], now: datetime) -> datetime | None:
    """When a machine made no earlier than those that failed has lasted, or will have. None: there is nothing to prove,
    or no such machine. `newest`: the machines of the pace's revision that stay."""
    if pace.newest is None:
        return None
    running = [m for m in newest.values() if m.created >= pace.newest and not dead(m)]
    lasting = [m.since + LASTED for m in running if m.phase is Phase.RUNNING]
    return now if any(m.lasted for m in running) else min(lasting, default=None)


def after_storm(pace: Pace, stormy: bool, now: datetime) -> Pace:
    """The pace with the rest that follows a storm."""
    if stormy:
        return pace.model_copy(update={"storm": True, "repairs_from": None})
    if pace.storm:
        return pace.model_copy(update={"storm": False, "repairs_from": now + COOLDOWN})
    return pace
