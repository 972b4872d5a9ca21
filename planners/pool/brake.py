"""What holds a pool back after failures, and for how long: the time after a storm, and machines that have not lasted.

pace.py keeps the counts; this module adds what time makes of them, and the words.
"""

from __future__ import annotations

from datetime import datetime

from planners.fleet import pace
from planners.fleet.steps import Wait
from planners.pool import repair
from planners.pool.view import Draft, ObservedPool, View
from resources.base import format_duration
from resources.fleet.revision import Pace
from resources.pool.manifest import MachineDeploymentSpec
from resources.words import utc


def follow(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> Pace:
    """The pace as it is now, to be kept and given to the next plan."""
    if not observed.braked:
        return observed.pace
    view = View(observed, spec, now)
    speed = view.pace
    proof = pace.proof_at(speed, view.made, now)
    if proof is not None and proof <= now:
        speed = pace.forgive(speed)
    return pace.after_storm(speed, repair.storm(view) is not None, now)


def next_look(view: View) -> list[datetime]:
    """Times at which waiting alone releases a brake."""
    speed = view.pace
    times = [speed.until]
    if view.observed.braked:
        times += [speed.repairs_from, pace.proof_at(speed, view.made, view.now)]
    return [t for t in times if t is not None]


def say(draft: Draft) -> None:
    """Says that a pool whose machines die young is not ready until one has lasted, even while all are there."""
    view = draft.view
    speed = view.pace
    if not speed.suspect or any(w.reason in pace.DEATHS for w in draft.waits):
        return
    count, bound = speed.joins_failed, format_duration(pace.LASTED)
    proof = pace.proof_at(speed, view.made, view.now)
    end = f", at {utc(proof)} at the earliest" if proof is not None else ""
    words = (
        f"{count} machines in a row failed before they had been Running for {bound}, and none has been Running that "
        "long since"
    )
    spared = "; until then no machine of an older revision that is in use is replaced" if view.rolling else ""
    last = f"; the last time: {speed.message}" if speed.reason in pace.DEATHS and speed.message else ""
    draft.waits.append(
        Wait("MachinesDieYoung", f"{words}: machines are created one at a time until one has{end}{spared}{last}")
    )
