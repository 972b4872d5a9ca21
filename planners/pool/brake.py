"""What holds a pool back after failures, and for how long: the time after a storm, and machines that have not lasted.

pace.py keeps the counts; this module adds what time makes of them, and the words.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from planners.pool import pace, repair
from planners.pool.steps import Wait
from planners.pool.view import Draft, Observed, View
from resources.base import format_duration
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Pace

COOLDOWN = timedelta(minutes=5)
"""The rest after a storm before the next repair begins: a share of ill machines that falls below the limit for a moment
says little. It is about as long as a node takes to come back after an outage and be found well."""


def follow(observed: Observed, spec: MachineDeploymentSpec, now: datetime) -> Pace:
    """The pace as it is now, to be kept and given to the next plan."""
    if not observed.braked:
        return observed.pace
    view = View(observed, spec, now)
    speed = pace.of(observed.pace, observed.revision)
    proof = proof_at(view, speed)
    if proof is not None and proof <= now:
        speed = pace.forgive(speed)
    if repair.storm(view) is not None:
        return speed.model_copy(update={"storm": True, "repairs_from": None})
    if speed.storm:
        return speed.model_copy(update={"storm": False, "repairs_from": now + COOLDOWN})
    return speed


def proof_at(view: View, speed: Pace) -> datetime | None:
    """When a machine made no earlier than those that failed has lasted, or will have. None: there is nothing to prove,
    or no such machine."""
    if speed.newest is None:
        return None
    running = [m for m in view.new.values() if m.created >= speed.newest and not pace.dead(m)]
    lasting = [m.since + pace.LASTED for m in running if m.phase is Phase.RUNNING]
    return view.now if any(m.lasted for m in running) else min(lasting, default=None)


def next_look(view: View) -> list[datetime]:
    """Times at which waiting alone releases a brake."""
    speed = view.pace
    times = [speed.until]
    if view.observed.braked:
        times += [speed.repairs_from, proof_at(view, speed)]
    return [t for t in times if t is not None]


def say(draft: Draft) -> None:
    """Says that a pool whose machines die young is not ready until one has lasted, even while all are there."""
    view = draft.view
    speed = view.pace
    if not speed.suspect or any(w.reason in pace.DEATHS for w in draft.waits):
        return
    count, bound = speed.joins_failed, format_duration(pace.LASTED)
    proof = proof_at(view, speed)
    end = f", at {proof:%Y-%m-%d %H:%M:%S} at the earliest" if proof is not None else ""
    words = (
        f"{count} machines in a row failed before they had been Running for {bound}, and none has been Running that "
        "long since"
    )
    spared = "; until then no machine of an older revision that is in use is replaced" if view.rolling else ""
    draft.waits.append(
        Wait("MachinesDieYoung", f"{words}: machines are created one at a time until one has{end}{spared}")
    )
