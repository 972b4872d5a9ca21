"""How far a rollout is, what holds it, and when it has stopped.

Sources: Kubernetes' DeploymentProgressing and progressDeadlineSeconds; here the clock runs only while new machines are
waited for: an old one that drains for an hour is no failure of the new revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from planners.pool.steps import Delete, Step
from planners.pool.view import Observed, View
from resources.machine import Phase
from resources.machine_deployment import MachineDeploymentSpec
from resources.pool import Gate, Member, Rollout, Trouble, Vm


def follow(observed: Observed, spec: MachineDeploymentSpec, now: datetime) -> Rollout | None:
    """The rollout's story as it is now, to be kept and given to the next plan. None: nothing old has a VM."""
    view = View(observed, spec, now)
    old = sum(1 for m in view.members.values() if m.revision != observed.revision and m.vm is not Vm.GONE)
    if not old:
        return None
    available = len(view.new.keys() & view.available)
    story = observed.rollout
    if story is None or story.revision != observed.revision:
        proven = available > 0
        return Rollout(
            revision=observed.revision,
            began=now,
            progress_at=now,
            available=available,
            old_left=old,
            proven=proven,
            canary_passed=observed.back,
        )
    more, fewer = available > story.available, old < story.old_left
    held = spec.paused or observed.cluster_paused or story.gate is Gate.PAUSED or not observed.reachable
    return story.model_copy(
        update={
            "available": max(available, story.available),
            "old_left": min(old, story.old_left),
            "proven": story.proven or available > 0,
            "lost": 0 if more else story.lost,
            "held_since": (story.held_since or now) if held else None,
            "progress_at": now if more or fewer else _set_forward(view, story, now, held),
        }
    )


def _set_forward(view: View, story: Rollout, now: datetime, held: bool) -> datetime:
    """Once it is held no more, the time that it was held for does not count; and what had stopped is stopped still."""
    if held or story.held_since is None:
        return story.progress_at
    return _counts_from(view, story) + (now - story.held_since)


def _counts_from(view: View, story: Rollout) -> datetime:
    """Of the progress deadline."""
    return max([story.progress_at, *sorted(_waited_for_since(view.new[n]) for n in view.waited_for)[:1]])


def lose(rollout: Rollout | None, steps: Iterable[Step], members: Mapping[str, Member]) -> Rollout | None:
    """The story once these steps are taken: new machines that never joined are remembered when they are replaced."""
    if rollout is None:
        return None
    gone = [n for s in steps if isinstance(s, Delete) and s.reason == "NeverJoined" for n in s.names]
    lost = sum(1 for n in gone if members[n].revision == rollout.revision)
    return rollout.model_copy(update={"lost": rollout.lost + lost})


def resume(rollout: Rollout, observed: Observed, spec: MachineDeploymentSpec, now: datetime) -> Rollout:
    """A person lets it go on: past its pause, its lost machines, its deadline, and its canary where that is reached."""
    passed = rollout.canary_passed or canary_waits(View(observed, spec, now))
    kept = sum(
        1
        for m in observed.members.values()
        if m.revision == rollout.revision and m.phase is Phase.FAILED and m.trouble is Trouble.JOIN and not m.leaving
    )
    return rollout.model_copy(
        update={"gate": Gate.OPEN, "canary_passed": passed, "lost": -kept, "progress_at": now, "held_since": None}
    )


def stops_at(view: View) -> datetime | None:
    """When the rollout stops unless a new machine becomes available. None: no clock runs."""
    seconds, rollout = view.spec.progress_deadline_seconds, view.observed.rollout
    if seconds is None or rollout is None or not view.waited_for or not view.rolling:
        return None
    deadline = _counts_from(view, rollout) + timedelta(seconds=seconds)
    if rollout.held_since is not None and rollout.held_since < deadline:
        return None
    return deadline


def _waited_for_since(member: Member) -> datetime:
    """One that was Running and is ill is waited for from then on."""
    ill = member.phase is Phase.UNKNOWN or member.trouble is Trouble.HEALTH
    return member.since if ill else member.created


def stopped(view: View) -> bool:
    deadline = stops_at(view)
    return deadline is not None and view.now >= deadline


def canary_reached(view: View) -> bool:
    """Its canary was available, and no person has let the rollout go on since; nor does a canary that fails later."""
    rollout, limits = view.observed.rollout, view.limits
    available = max(rollout.available if rollout else 0, len(view.new.keys() & view.available))
    return view.rolling and limits.rolled < limits.replicas and available >= limits.rolled


def canary_waits(view: View) -> bool:
    """For a person and nothing else: it is there, and available or kept for a look."""
    there = len(view.new) >= view.limits.rolled and all(view.new[n].stays for n in view.waited_for)
    return canary_reached(view) and there


def held(view: View) -> bool:
    """It goes on when a person says so: it is paused, aborted, at its canary, or stopped. After an outage and a storm
    it goes on by itself, and until then nothing is replaced anyway."""
    rollout = view.observed.rollout
    gate = rollout.gate if rollout else Gate.OPEN
    return view.spec.paused or gate is not Gate.OPEN or canary_reached(view) or stopped(view)


def overrides(view: View) -> bool:
    """No Failed machine is preserved, of either revision (seed 003, notes 1 and 2), while a rollout runs: else it would
    not end. One that is held does not run. Of a pool that shall have no machines all go anyway."""
    return view.observed.deleted or view.limits.replicas == 0 or (view.unfinished and not held(view))
