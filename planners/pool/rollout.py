"""How old machines are replaced by new ones: how many at a time, which first, and what holds it up.

Sources: Kubernetes' rolling deployments (rolling.go) as machine-controller-manager has them (deployment_rolling.go; MCM
U1, U2, U7), but every count is of machines rather than of what sets of them were told to be: a VM counts until the
cloud has confirmed that it is gone. Cluster API's rollout planner: each step says why.
"""

from __future__ import annotations

from planners.fleet.order import deletion_key, preserved
from planners.fleet.steps import MarkNodes, Wait
from planners.pool import gates, preservation, progress, repair
from planners.pool.view import Draft, View
from planners.words import named, some
from resources.fleet.member import Vm
from resources.machine.state import Phase
from resources.pool.state import Gate


def gate(view: View) -> Wait | None:
    """What holds up the rollout as a whole, for now: the first of all that does."""
    return next(iter(holding(view)), None)


def holding(view: View) -> list[Wait]:
    rollout, left = view.observed.rollout, f"{some(len(view.old))} of older revisions are left"
    if view.spec.paused or (rollout and rollout.gate is Gate.PAUSED):
        return [Wait("RolloutPaused", f"The rollout is paused; {left}")]
    if rollout and rollout.gate is Gate.ABORTED:
        why = gates.refused(view)
        return [Wait("RolloutAborted", f"The rollout was aborted{f': {why}' if why else ''}; {left}")]
    if waits := gates.holding(view):
        return waits
    # An outage ends no trouble that was there before: that is the cause still, and its time goes on.
    if not view.observed.lasting and (unseen := _unreachable(view, left)):
        return [unseen]
    if storming := repair.storm(view):
        return [storming]
    if progress.stopped(view):
        words = (
            f"The rollout has stopped: {some(len(view.waited_for))} of revision {view.observed.revision} did not "
            f"become available within {view.spec.progress_deadline_seconds}s ({named(view.waited_for)}); {left} and "
            "stay"
        )
        return [Wait("ProgressDeadlineExceeded", words)]
    unseen = _unreachable(view, left)
    return [unseen] if unseen else []


def _unreachable(view: View, left: str) -> Wait | None:
    if view.observed.reachable:
        return None
    return Wait("Unreachable", f"The API server or the cloud does not answer: nothing is replaced; {left}")


def replace_old(draft: Draft) -> None:
    """Deletes as many old machines as the budget allows: first those that are not available, then by age of their
    revision; within one in deletion order.

    An example: replicas 4, maxUnavailable 1, maxSurge 1, so the floor is 3 available and 5 VMs are the most.

    | new (available) | old (available) | room          | deleted                            |
    |-----------------|-----------------|---------------|------------------------------------|
    | 1 (0)           | 4 (4)           | 5 - 3 - 1 = 1 | 1 old                              |
    | 2 (0)           | 3 (3)           | 5 - 3 - 2 = 0 | none: both new ones may still fail |
    | 2 (2)           | 3 (3)           | 5 - 3 - 0 = 2 | 2 old                              |
    | 2 (1)           | 3 (2)           | 5 - 3 - 1 = 1 | the old one that is not available  |

    The third row leaves 3 available, the floor, and room for 2 more new machines."""
    view = draft.view
    if view.old and view.spec.strategy.rolling is None:
        words = f"{some(len(view.old))} of older revisions stay until somebody deletes them (strategy OnDelete)"
        draft.wait("OnDelete", words)
    if not view.rolling:
        _say_what_is_left(draft)
        return
    if held := holding(view):
        draft.waits += held
        return
    limits = view.limits
    olds = view.old
    if progress.held(view):  # at its canary: what is preserved is not replaced
        olds = {n: m for n, m in view.old.items() if not (m.stays or preserved(m, view.now))}
    # What is there beyond the floor if every new machine still on its way fails. So a bad image cannot eat its way
    # through old machines that are ill, and those in use never become fewer than the floor.
    staying = view.old.keys() - olds.keys() - view.available
    room = len(view.active) - limits.floor - len(view.waited_for) - len(staying) - len(view.lent)
    room = max(0, min(room, len(view.old) - (limits.replicas - limits.rolled)))
    order = sorted(olds, key=lambda n: (n in view.available, olds[n].revision, deletion_key(n, olds[n], view.now)))
    unavailable = [n for n in order if n not in view.available][:room]
    ready = [n for n in order if n in view.available][: room - len(unavailable)]
    if view.pace.suspect:  # a machine that may be there only for a moment replaces nobody
        ready = []
    floor = f"at least {limits.floor} (replicas {limits.replicas} - maxUnavailable {limits.unavailable})"
    words = f"{len(view.old)} of older revisions"
    draft.delete(unavailable, "ReplacedUnavailable", f" of {words} that are not available: nothing in use is lost")
    draft.delete(ready, "Replaced", f" of {words}: {len(view.available)} available, {floor} needed")
    _say_what_is_waited_for(draft, bool(unavailable or ready), floor)


def _say_what_is_waited_for(draft: Draft, moving: bool, floor: str) -> None:
    view = draft.view
    limits, revision = view.limits, view.observed.revision
    if progress.canary_waits(view):
        pause = view.spec.strategy.rolling.pause_after if view.spec.strategy.rolling else None
        words = f"{len(view.new)} of {limits.replicas} machines are of revision {revision} (pauseAfter {pause})"
        draft.wait(
            "Canary",
            f"{words}: resume the rollout to continue; {some(len(view.old))} of older revisions stay until then",
        )
    elif not moving and view.waited_for:
        words = f"Waiting for {len(view.waited_for)} of {len(view.new)} machines of revision {revision} to be available"
        words += f"; until then no old one in use is deleted: {len(view.available)} available, {floor} must be"
        if failed := _failed_since(view):
            draft.wait("NewMachinesFail", f"{words}; {some(failed)} of this revision failed early")
        else:
            draft.wait("NewMachinesNotReady", words)
    elif not moving and view.lent:
        words = f"{some(len(view.lent))} lent to a config pool ({named(sorted(view.lent))})"
        draft.wait("MachinesLent", f"{words}: until they are back no old one in use is deleted, {floor} must be")


def _failed_since(view: View) -> int:
    """New machines that failed since the last one became available."""
    rollout = view.observed.rollout
    return len(progress.failed(view)) + max(0, rollout.lost) if rollout and view.observed.braked else 0


def _say_what_is_left(draft: Draft) -> None:
    """Says that nothing old is left but machines that are kept for a look while the rollout is paused."""
    view = draft.view
    if view.unfinished and view.spec.paused and (staying := preservation.staying_failed(view)):
        words = (
            f"to be replaced when it is resumed: {some(len(staying))} kept for inspection ({named(sorted(staying))})"
        )
        draft.wait("RolloutPaused", f"The rollout is paused; {words}")


def mark_nodes(draft: Draft) -> None:
    """Nodes about to be replaced take work only where nothing else does, and no autoscaler removes them midway (MCM
    U13; design pools.md). Every ending takes the marks off again: complete, undone, aborted, stopped."""
    view, rollout = draft.view, draft.view.observed.rollout
    if not view.observed.reachable:
        return
    going = view.rolling and not (rollout and rollout.gate is Gate.ABORTED) and not progress.stopped(view)
    paused = view.spec.paused or (rollout is not None and rollout.gate is Gate.PAUSED) or bool(gates.holding(view))
    joined = (Phase.RUNNING, Phase.UNKNOWN)
    there = {n: m for n, m in view.active.items() if m.vm is not Vm.GONE}
    old = {n: m for n, m in there.items() if going and n in view.old}
    on = [n for n, m in old.items() if not paused and not m.node_marked and m.phase in joined]
    off = [n for n, m in there.items() if m.node_marked and n not in old]
    if on:
        words = f"Marking {some(len(on), 'node')} that the rollout of revision {view.observed.revision} will replace"
        draft.do(MarkNodes(tuple(sorted(on)), True, "RolloutMarks", words))
    if off:
        words = f"Removing the rollout's marks from {some(len(off), 'node')} that will not be replaced"
        draft.do(MarkNodes(tuple(sorted(off)), False, "RolloutMarks", words))
