"""A rollout is told to a workflow of its own, for people: each step with its reason, and how it ended.

The pool decides; a story that nobody hears holds up nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from temporalio import workflow

from workflows.pool.entity import PoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.members import MemberActivities
    from planners.fleet.steps import Step
    from planners.pool import progress
    from planners.pool.plan import complete
    from planners.pool.view import View
    from resources.journal import Happening
    from resources.names import rollout_id, workflow_queue
    from resources.pool.rollout import RolloutEnd, RolloutNews, RolloutOutcome, RolloutState
    from resources.pool.state import Gate, PoolState, RolloutCounts, RolloutStory

UNTOLD_KEPT = 100
STORIES = "stories"


def follow(p: PoolEntity, steps: Sequence[Step]) -> None:
    """After each plan: begins the story of a new rollout, keeps what is to be told, ends those that are over."""
    s, now, view = p.s, workflow.now(), p.view()
    if s.rollout is not None and s.story < s.revision and not s.deleted:
        s.story = s.revision
        s.stories[s.revision] = RolloutStory()
    _begin_all(p)
    for counter, story in list(s.stories.items()):
        if story.outcome:
            continue
        if counter == s.revision:
            lines = [Happening(time=now, reason=step.reason, message=step.message) for step in steps]
            told = [*story.untold, *lines][-UNTOLD_KEPT:]
            story = story.model_copy(update={"untold": told, "counts": _counts(s, view)})
        s.stories[counter] = _ended(p, counter, story, view)
    tell(p, view)


def _begin_all(p: PoolEntity) -> None:
    """Begins those whose workflow is not there yet; a story of an older revision would only be told its end."""
    for counter, story in list(p.s.stories.items()):
        if story.started or counter in p.beginning or STORIES in p.later:
            continue
        if counter == p.s.revision:
            p.beginning.add(counter)
            _begin(p, counter)
        else:
            del p.s.stories[counter]


def _begin(p: PoolEntity, counter: int) -> None:
    s, newest = p.s, p.s.revisions[-1]
    former = sorted({m.revision for m in s.members.values()} - {counter})
    p.start(
        MemberActivities.start_rollout,
        RolloutState(
            pool=s.name,
            cluster=s.cluster,
            revision=counter,
            former=former,
            machine_class=newest.machine_class.name,
            generation=newest.machine_class.generation,
            requested_by=newest.requested_by,
            reason=newest.reason,
            queue_prefix=s.queue_prefix,
            timings=s.timings,
        ),
        queue=workflow_queue(s.queue_prefix),
        summary=f"begin the story of rollout {counter}",
        done=partial(_begun, p, counter),
        failed=partial(_not_begun, p, counter),
    )


def _begun(p: PoolEntity, counter: int, _: None) -> None:
    p.beginning.discard(counter)
    if counter in p.s.stories:
        p.s.stories[counter] = p.s.stories[counter].model_copy(update={"started": True})


def _not_begun(p: PoolEntity, counter: int) -> None:
    p.beginning.discard(counter)
    p.later.add(STORIES)


def _ended(p: PoolEntity, counter: int, story: RolloutStory, view: View) -> RolloutStory:
    s = p.s
    if counter != s.revision:
        if story.undone:
            outcome, message = RolloutOutcome.UNDONE, f"revision {s.revision} goes back to an earlier one"
            p.note("RolloutUndone", f"rollout of revision {counter}: {message}")
        else:
            outcome, message = RolloutOutcome.SUPERSEDED, f"revision {s.revision} came before it was complete"
            p.note("RolloutSuperseded", f"rollout of revision {counter}: {message}")
    elif s.deleted:
        outcome, message = RolloutOutcome.FAILED, "the pool is deleted"
        p.note("RolloutFailed", f"rollout of revision {counter}: {message}")
    elif not complete(view):
        return story
    elif not view.limits.replicas:
        outcome, message = RolloutOutcome.FAILED, "the pool has no machines any longer"
        p.note("RolloutFailed", f"rollout of revision {counter}: {message}")
    else:
        counts = story.counts
        most = "all" if counts.available == counts.updated else counts.available
        words = f"{counts.updated} of {counts.replicas} machines are of this revision, {most} available"
        outcome, message = RolloutOutcome.COMPLETE, words
        p.note("RolloutComplete", f"rollout of revision {counter}: {message}")
    workflow.metric_meter().create_counter("hostler_rollouts", "Rollouts that have ended, by outcome").add(
        1, {"outcome": str(outcome), "cluster": s.cluster, "pool": s.name}
    )
    return story.model_copy(update={"outcome": str(outcome), "message": message})


def tell(p: PoolEntity, view: View) -> None:
    """Tells what is new. The end comes only when all else has been taken: it closes the workflow."""
    s = p.s
    for counter, story in list(s.stories.items()):
        if not story.started:
            continue
        if story.outcome:
            if not p.signals:
                del s.stories[counter]
                _send(p, counter, "end", _end(story))
        elif counter == s.revision:
            news = _news(p, story, view)
            if news.steps or p.told_news != _but_time(news):
                p.told_news = _but_time(news)
                s.stories[counter] = story.model_copy(update={"untold": []})
                _send(p, counter, "news", news)


def _news(p: PoolEntity, story: RolloutStory, view: View) -> RolloutNews:
    s = p.s
    gate = Gate.PAUSED if view.spec.paused else s.rollout.gate if s.rollout else Gate.OPEN
    return RolloutNews(
        counts=_counts(s, view),
        steps=story.untold,
        waits=s.waits,
        gate=gate,
        stops_at=progress.stops_at(view),
        time=workflow.now(),
    )


def _but_time(news: RolloutNews) -> RolloutNews:
    return news.model_copy(update={"time": None, "steps": []})


def _end(story: RolloutStory) -> RolloutEnd:
    return RolloutEnd(
        outcome=RolloutOutcome(story.outcome),
        message=story.message,
        counts=story.counts,
        steps=story.untold,
        time=workflow.now(),
    )


def _counts(s: PoolState, view: View) -> RolloutCounts:
    """The counts of the newest revision's rollout."""
    return RolloutCounts(
        replicas=view.limits.replicas,
        updated=len(view.new),
        available=len(view.new.keys() & view.available),
        old=view.old_left,
        lost=max(0, s.rollout.lost) if s.rollout else 0,
    )


def end_former(p: PoolEntity, revisions: Sequence[int]) -> None:
    """Ends rollouts of a former workflow of this pool, which nobody follows any longer."""
    words = "the pool's earlier workflow was ended by somebody"
    for counter in revisions:
        _send(p, counter, "end", RolloutEnd(outcome=RolloutOutcome.FAILED, message=words, time=workflow.now()))


def _send(p: PoolEntity, counter: int, name: str, message: RolloutNews | RolloutEnd) -> None:
    handle = workflow.get_external_workflow_handle(rollout_id(p.s.cluster, p.s.name, counter))
    p.signal(partial(handle.signal, name, message))
