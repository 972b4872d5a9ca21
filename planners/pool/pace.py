"""How fast a pool makes machines: a slow start, and one back-off.

Sources: Kubernetes' slowStartBatch and machine-controller-manager's S9, S10 (1, 2, 4, … as long as they succeed, 100 at
most, stop at the first failing batch); field cases P13 (three machines in a row that never join) and P19 (a back-off is
a pool's, with jitter, and grows with each window rather than with each failing machine).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from planners.waits import REASON, WAIT
from resources.errors import ErrorClass
from resources.pool import Pace

CAP = 100
"""Machines made, and machines deleted, in one step."""
LEAVING = 500
"""Machines on their way out at the same time. Each is drained, is looked at in the cloud, and tells its pool, its class
and its cluster of its end: those three workflows bear no more at once."""
JOINS = 3
JOIN_WAIT = timedelta(minutes=5)
NEVER_JOIN = "MachinesNeverJoin"
LONGEST = timedelta(hours=1)
JITTER = 0.2
PASSING = (ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.CONFLICT)
"""Errors that say nothing about the next machine."""


def of(pace: Pace, revision: int) -> Pace:
    """A new revision begins anew: what was wrong may be mended by it."""
    return pace if pace.revision == revision else Pace(revision=revision)


def allowance(pace: Pace, unborn: int, now: datetime) -> int:
    """How many more may be made now, with so many on the way to a VM."""
    if pace.until is not None and now < pace.until:
        return 0
    return max(0, min(pace.window, CAP) - unborn)


def born(pace: Pace, count: int = 1) -> Pace:
    """So many got their VM: with each success one more may be on the way, so each batch is twice the one before. What
    the cloud refused it gives again; that machines join is not said by it."""
    wider = pace.model_copy(update={"window": min(CAP, pace.window + count)})
    if pace.reason == NEVER_JOIN:
        return wider
    return wider.model_copy(update={"until": None, "reason": "", "message": ""})


def joined(pace: Pace) -> Pace:
    """A machine is Running: what was counted against the revision is forgiven."""
    return pace.model_copy(update={"joins_failed": 0, "backoffs": 0})


def create_failed(
    pace: Pace, error: ErrorClass, message: str, now: datetime, jitter: float, wait: timedelta | None = None
) -> Pace:
    """A machine's create call failed. `jitter`: 0 to 1, from the workflow's own chance; `wait`: instead of the class's
    own."""
    if error in PASSING:
        return pace
    return _back_off(pace, REASON[error], message, WAIT[error] if wait is None else wait, now, jitter)


def never_joined(pace: Pace, message: str, now: datetime, jitter: float) -> Pace:
    """A machine had no node within its creationTimeout: with the third in a row the pool waits."""
    failed = pace.model_copy(update={"joins_failed": pace.joins_failed + 1})
    if failed.joins_failed < JOINS:
        return failed
    words = f"{failed.joins_failed} machines in a row never joined; the last: {message}"
    return _back_off(failed, NEVER_JOIN, words, JOIN_WAIT, now, jitter)


def _back_off(pace: Pace, reason: str, message: str, wait: timedelta, now: datetime, jitter: float) -> Pace:
    """Failures within a window are the same trouble: they neither prolong it nor make the next one longer."""
    if pace.until is not None and now < pace.until:
        return pace
    wait = min(wait * (1 << min(pace.backoffs, 8)), max(wait, LONGEST)) * (1 + JITTER * jitter)
    return pace.model_copy(
        update={"window": 1, "backoffs": pace.backoffs + 1, "until": now + wait, "reason": reason, "message": message}
    )
