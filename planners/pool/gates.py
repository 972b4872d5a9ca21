"""What holds up what nobody waits for, rollouts and hot updates, though the machines would allow it: a revision that
needs a person's approval, the pool that goes first, a freeze, and the time outside the maintenance windows.

Replicas, repairs, deletions and what has begun are not held up. Sources: Gardener's maintenance time window (shoot
spec.maintenance.timeWindow), and its rolling of a worker's zones, which are deployments of their own (seed 002).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from planners.fleet.steps import Wait
from planners.fleet.template import pending
from planners.pool.view import Draft, Gates, UpdateTurn, View
from planners.words import some
from resources.base import EARLIEST, LATEST, format_duration, later
from resources.maintenance import Freeze, Opening, is_open, joined
from resources.names import UPDATES_AFTER_ANNOTATION
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Consent, Gate, PoolState, Predecessor
from resources.words import utc


def of(s: PoolState) -> Gates:
    """What the pool knows of its gates."""
    freezes = tuple(f for f in (s.freeze, s.news.freeze if s.news else None) if f is not None)
    return Gates(calendar=s.calendar, opened=s.opened, freezes=freezes, before=s.before)


def holding(view: View) -> list[Wait]:
    """All that holds up the rollout, each with since when, until when, and who can change it."""
    found = [_approval(view), _order(view), *_closed(view, "the rollout")]
    return [wait for wait in found if wait is not None]


# -- when it is open --------------------------------------------------------------------------------------------------


def openings(spec: MachineDeploymentSpec, gates: Gates, now: datetime) -> tuple[Opening, ...] | None:
    """When voluntary things may begin, as far as is known; None: always. Before its windows are worked out, never."""
    windows, freezes = spec.maintenance.windows, [f for f in gates.freezes if f.holds(now)]
    if not windows and not freezes:
        return None
    calendar = gates.calendar
    known = calendar.openings if calendar is not None and calendar.windows == windows else []
    found = [*known, *([gates.opened] if gates.opened else [])] if windows else [Opening(begin=EARLIEST, end=LATEST)]
    return tuple(_clipped(joined(found), freezes))


def _clipped(found: Iterable[Opening], freezes: Iterable[Freeze]) -> list[Opening]:
    """What the freezes leave of them."""
    left = list(found)
    for freeze in freezes:
        until = freeze.until
        left = [] if until is None else [Opening(begin=max(o.begin, until), end=o.end) for o in left if o.end > until]
    return left


def to_work_out(spec: MachineDeploymentSpec, gates: Gates, now: datetime) -> bool:
    """Whether it must be worked out what the windows come to: they are others, or those that were known are over."""
    windows, calendar = spec.maintenance.windows, gates.calendar
    if not windows or (calendar is not None and calendar.windows == windows and calendar.problem):
        return False
    return calendar is None or calendar.windows != windows or all(o.end <= now for o in calendar.openings)


def _closed(view: View, what: str) -> list[Wait]:
    """The waits for a freeze to end, or else for the next window."""
    spec, gates, now = view.spec, view.observed.gates, view.now
    if frozen := [f for f in gates.freezes if f.holds(now)]:
        return [Wait("Frozen", f"Frozen {' and '.join(f.words for f in frozen)}: {what} waits")]
    found = openings(spec, gates, now)
    if found is None or is_open(found, now):
        return []
    windows = "; ".join(w.words for w in spec.maintenance.windows)
    if gates.calendar is not None and gates.calendar.problem:
        return [Wait("MaintenanceWindow", f"{what} waits: {gates.calendar.problem} ({windows})")]
    to_come = next((o.begin for o in found if o.begin > now), None)
    begins = f"next window begins at {utc(to_come)}" if to_come else "when the next window begins is being worked out"
    return [Wait("MaintenanceWindow", f"Outside the maintenance windows {what} waits: {begins} ({windows})")]


def say_updates(draft: Draft) -> None:
    """Says that a changed template waits too, where no rollout says it."""
    view = draft.view
    said = {w.reason for w in draft.waits}
    if waiting := view.observed.gates.updates:
        words = f"a hot update of {some(waiting)}"
        draft.waits += [w for w in _closed(view, words) if w.reason not in said]
    if turn := view.observed.gates.turn:
        words = f"Machines of pool {turn.pool} take their changed template first ({UPDATES_AFTER_ANNOTATION})"
        draft.waits.append(Wait("UpdatesAfterPool", f"{words}, as both share one budget: {some(turn.waiting)} wait"))


# -- the order of updates ----------------------------------------------------------------------------------------------


def turn(s: PoolState) -> UpdateTurn | None:
    """Whose machines take the newest template before these may; None: nobody's, they have it, or there is nobody to
    tell."""
    first = s.annotations.get(UPDATES_AFTER_ANNOTATION, "")
    if not first or s.deleted or s.turn >= s.template:
        return None
    waiting = len(pending(s.members, s.template))
    return UpdateTurn(first, waiting) if waiting else None


# -- approval ---------------------------------------------------------------------------------------------------------


def asked_for(view: View) -> Consent | None:
    """What a new revision begins with. Going back needs no approval: it undoes what was approved, or was not. Nor does
    the first revision."""
    s = view.observed
    another = s.approved != s.revision if s.approved else view.rolling
    wanted = view.spec.approval.required and not s.back and another
    return Consent(asked=view.now) if wanted else None


def expires_at(view: View) -> datetime | None:
    """When the rollout is aborted unless somebody approves it; None: it does not wait for that."""
    rollout = view.observed.rollout
    if rollout is None or rollout.consent is None or rollout.consent.given or rollout.gate is Gate.ABORTED:
        return None
    return later(rollout.consent.asked, view.spec.approval.timeout) if view.spec.approval.required else None


def expired(view: View) -> bool:
    """Whether nobody has approved it in time."""
    until = expires_at(view)
    return until is not None and view.now >= until


def _approval(view: View) -> Wait | None:
    until = expires_at(view)
    if until is None:
        return None
    made = f"; until then machines are made of revision {view.making}" if view.unapproved else ""
    return Wait(
        "Approval",
        f"Revision {view.observed.revision} waits for a person's approval and is aborted at {utc(until)} without one "
        f"(approval.timeout {format_duration(view.spec.approval.timeout)}); {some(len(view.old))} of older revisions "
        f"stay{made or ' until then'}",
    )


def say_approval(draft: Draft) -> None:
    """Says that the newest revision is not approved where no rollout does, as there is no old machine, or with
    OnDelete."""
    view = draft.view
    if view.rolling or not view.unapproved:
        return
    draft.waits.append(_approval(view) or Wait("RolloutAborted", refused(view)))


def refused(view: View) -> str:
    """The words of a revision that a person has rejected, or nobody approved in time; "" for any other."""
    rollout = view.observed.rollout
    consent = rollout.consent if rollout is not None else None
    if consent is None or rollout is None or consent.given is not None or not consent.words:
        return ""
    made = f"; machines are made of revision {view.making}" if view.unapproved else ""
    return f"revision {rollout.revision} was {consent.words}{made}"


# -- the order of pools -----------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """What a pool whose rollout waits asks about the one before it."""

    pool: str
    machine_class: str
    """"": whichever it has."""
    known: Predecessor | None
    """The last answer."""


def question(view: View) -> Question | None:
    """What to ask; None: nothing, for it does not matter or no longer changes anything."""
    rollout, after = view.observed.rollout, view.spec.rolls_after
    if after is None or rollout is None or rollout.unordered or not view.rolling:
        return None
    known = _standing(view)
    wanted = after.class_ or ""
    return None if known is not None and _lets_go(known) else Question(after.pool, wanted, known)


def _standing(view: View) -> Predecessor | None:
    """The last answer, if it is one to what is asked now."""
    known, after = view.observed.gates.before, view.spec.rolls_after
    if known is None or after is None:
        return None
    same = (known.revision, known.pool, known.class_) == (view.observed.revision, after.pool, after.class_ or "")
    return known if same else None


def _lets_go(known: Predecessor) -> bool:
    return known.complete or known.gone


def _order(view: View) -> Wait | None:
    asks = question(view)
    if asks is None:
        return None
    wanted = f" with class {asks.machine_class}" if asks.machine_class else ""
    stands = asks.known.message if asks.known is not None else "it is being asked"
    return Wait("AfterPool", f"Pool {asks.pool} is to be rolled out{wanted} first (rollsAfter): {stands}")


# -- times ------------------------------------------------------------------------------------------------------------


def next_look(view: View) -> list[datetime]:
    """Times at which waiting alone opens or shuts something that matters now."""
    gates, now = view.observed.gates, view.now
    times = [until] if (until := expires_at(view)) is not None else []
    if not view.rolling and not gates.updates:
        return times
    times += [f.until for f in gates.freezes if f.until is not None and f.holds(now)]
    times += [time for o in openings(view.spec, gates, now) or () for time in (o.begin, o.end) if time < LATEST]
    return times
