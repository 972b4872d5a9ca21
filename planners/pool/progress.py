"""How far a rollout has come, what holds it, and when it has stopped.

Sources: Kubernetes' DeploymentProgressing and progressDeadlineSeconds; here the clock runs only while new machines are
awaited: an old one that drains for an hour is no failure of the new revision. A machine made in place of one that
failed is not progress until it is available.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from planners.fleet.pace import dead, died_young
from planners.fleet.steps import Delete, Step
from planners.pool import gates
from planners.pool.view import ObservedPool, View
from resources.base import later
from resources.fleet.member import Member, Trouble
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Consent, Gate, Rollout


def follow(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> Rollout | None:
    """The rollout's story as it is now, to be kept and given to the next plan. None: nothing old has a VM, and nobody's
    approval is wanting."""
    view = View(observed, spec, now)
    story = observed.rollout
    begins = story is None or story.revision != observed.revision
    consent = gates.asked_for(view) if begins else None
    old = view.old_left
    if not (old or view.unapproved or (consent is not None and observed.approved)):
        return None
    available = len(view.new.keys() & view.available)
    if story is None or begins:
        proven = available > 0
        return Rollout(
            revision=observed.revision,
            began=now,
            progress_at=now,
            available=available,
            old_left=old,
            proven=proven,
            canary_passed=observed.back,
            waiting_since=_waiting_since(view, None),
            consent=consent,
        )
    more, fewer = available > story.available, old < story.old_left
    if gates.expired(view):
        consent = story.consent.model_copy(update={"expired": now}) if story.consent is not None else None
        story = story.model_copy(update={"gate": Gate.ABORTED, "consent": consent})
    held = spec.paused or observed.cluster_paused or story.gate is Gate.PAUSED or not observed.reachable
    held = held or bool(gates.holding(view))
    return story.model_copy(
        update={
            "available": max(available, story.available),
            "old_left": min(old, story.old_left),
            "proven": story.proven or available > 0,
            "lost": 0 if more else story.lost,
            "held_since": (story.held_since or now) if held else None,
            "progress_at": now if more or fewer else _set_forward(view, story, now, held),
            "waiting_since": _waiting_since(view, None if more else story),
        }
    )


def _waiting_since(view: View, story: Rollout | None) -> datetime | None:
    """The time since which the rollout has waited. Until a lost machine is made up for, it is the same wait, even where
    none is on its way."""
    if not view.observed.braked:
        return None
    if story is not None and story.waiting_since is not None and (view.waited_for or story.lost > 0):
        return story.waiting_since
    return _first_waited_for(view)


def _first_waited_for(view: View) -> datetime | None:
    return min((_waited_for_since(view.new[n]) for n in view.waited_for), default=None)


def _set_forward(view: View, story: Rollout, now: datetime, held: bool) -> datetime:
    """Once the rollout is no longer held, the time it was held does not count; what had stopped remains stopped."""
    if held or story.held_since is None:
        return story.progress_at
    return _counts_from(view, story) + (now - story.held_since)


def _counts_from(view: View, story: Rollout) -> datetime:
    """When the progress deadline's clock began."""
    since = story.waiting_since or _first_waited_for(view)
    return max(story.progress_at, since) if since else story.progress_at


def lose(
    rollout: Rollout | None, steps: Iterable[Step], members: Mapping[str, Member], braked: bool = True
) -> Rollout | None:
    """The story once these steps are taken: it remembers new machines that failed before they had lasted when they are
    replaced."""
    if rollout is None:
        return None
    replaced = [(s.reason, members[n]) for s in steps if isinstance(s, Delete) for n in s.names]
    own = [(reason, m) for reason, m in replaced if m.revision == rollout.revision]
    lost = sum(1 for reason, m in own if reason == "NeverJoined" or (braked and _lost(reason, m, rollout.began)))
    return rollout.model_copy(update={"lost": rollout.lost + lost})


def _lost(reason: str, member: Member, began: datetime) -> bool:
    return reason in ("VMGone", "Unhealthy") and died_young(member) and member.since >= began


def resume(
    rollout: Rollout, observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime, at_once: bool = False
) -> Rollout:
    """A person resumes the rollout: past its pause, its lost machines, its deadline, and its canary where that is
    reached. One that was aborted asks for its approval anew. `at_once`: also past the pool before it."""
    view = View(observed, spec, now)
    passed = rollout.canary_passed or canary_waits(view)
    kept = len(failed(view))
    consent = rollout.consent
    if consent is not None and rollout.gate is Gate.ABORTED:
        consent = Consent(asked=now)
    return rollout.model_copy(
        update={
            "gate": Gate.OPEN,
            "canary_passed": passed,
            "lost": -kept,
            "progress_at": now,
            "held_since": None,
            "consent": consent,
            "unordered": rollout.unordered or at_once,
        }
    )


def failed(view: View) -> dict[str, Member]:
    """New machines that failed during the rollout before they had lasted, and are still there. Those that an undo has
    made new failed before it."""
    if not view.observed.braked:
        return {n: m for n, m in view.new.items() if m.phase is Phase.FAILED and m.trouble is Trouble.JOIN}
    began = view.observed.rollout.began if view.observed.rollout else None
    young = {n: m for n, m in view.new.items() if dead(m) and died_young(m)}
    return {n: m for n, m in young.items() if began is None or m.since >= began}


def stops_at(view: View) -> datetime | None:
    """When the rollout stops unless a new machine becomes available. None: no clock runs."""
    seconds, rollout = view.spec.progress_deadline_seconds, view.observed.rollout
    if seconds is None or rollout is None or not view.waited_for or not view.rolling:
        return None
    deadline = later(_counts_from(view, rollout), timedelta(seconds=seconds))
    if rollout.held_since is not None and rollout.held_since < deadline:
        return None
    return deadline


def _waited_for_since(member: Member) -> datetime:
    """The time since which a machine has been awaited; for one that was Running, since it fell ill."""
    ill = member.phase is Phase.UNKNOWN or member.trouble is Trouble.HEALTH
    return member.since if ill else member.created


def stopped(view: View) -> bool:
    deadline = stops_at(view)
    return deadline is not None and view.now >= deadline


def canary_reached(view: View) -> bool:
    """Whether its canary was available and no person has resumed the rollout since; a canary that fails later changes
    nothing."""
    rollout, limits = view.observed.rollout, view.limits
    available = max(rollout.available if rollout else 0, len(view.new.keys() & view.available))
    return view.rolling and limits.rolled < limits.replicas and available >= limits.rolled


def canary_waits(view: View) -> bool:
    """Whether the rollout waits for a person and nothing else: the canary is there, and available or kept for a
    look."""
    there = len(view.new) >= view.limits.rolled and all(view.new[n].stays for n in view.waited_for)
    return canary_reached(view) and there


def held(view: View) -> bool:
    """Whether it does not run for long: it is paused, aborted, at a gate, at its canary, or stopped. After an outage
    and a storm it continues on its own, and until then nothing is replaced anyway."""
    rollout = view.observed.rollout
    gate = rollout.gate if rollout else Gate.OPEN
    shut = view.spec.paused or gate is not Gate.OPEN or bool(gates.holding(view))
    return shut or canary_reached(view) or stopped(view)


def overrides(view: View) -> bool:
    """Whether no Failed machine is preserved, of either revision (seed 003, notes 1 and 2), because a rollout runs and
    would otherwise not end. One that is held does not run. In a pool that shall have no machines, all go anyway."""
    return view.observed.deleted or view.limits.replicas == 0 or (view.unfinished and not held(view))
