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


def follow(pool: PoolEntity, steps: Sequence[Step]) -> None:
    """Follows each plan: begins the story of a new rollout, keeps what is to be told, ends those that are over."""
    state, now, view = pool.s, workflow.now(), pool.view()
    if state.rollout is not None and state.story < state.revision and not state.deleted:
        state.story = state.revision
        state.stories[state.revision] = RolloutStory()
    _begin_all(pool)
    for counter, story in list(state.stories.items()):
        if story.outcome:
            continue
        if counter == state.revision:
            lines = [Happening(time=now, reason=step.reason, message=step.message) for step in steps]
            told = [*story.untold, *lines][-UNTOLD_KEPT:]
            story = story.model_copy(update={"untold": told, "counts": _counts(state, view)})
        state.stories[counter] = _ended(pool, counter, story, view)
    tell(pool, view)


def _begin_all(pool: PoolEntity) -> None:
    """Begins those whose workflow is not there yet; a story of an older revision would only be told its end."""
    for counter, story in list(pool.s.stories.items()):
        if story.started or counter in pool.beginning or STORIES in pool.later:
            continue
        if counter == pool.s.revision:
            pool.beginning.add(counter)
            _begin(pool, counter)
        else:
            del pool.s.stories[counter]


def _begin(pool: PoolEntity, counter: int) -> None:
    state, newest = pool.s, pool.s.revisions[-1]
    former = sorted({m.revision for m in state.members.values()} - {counter})
    pool.start(
        MemberActivities.start_rollout,
        RolloutState(
            pool=state.name,
            cluster=state.cluster,
            revision=counter,
            former=former,
            machine_class=newest.machine_class.name,
            generation=newest.machine_class.based_on,
            requested_by=newest.requested_by,
            reason=newest.reason,
            queue_prefix=state.queue_prefix,
            timings=state.timings,
        ),
        queue=workflow_queue(state.queue_prefix),
        summary=f"begin the story of rollout {counter}",
        done=partial(_begun, pool, counter),
        failed=partial(_not_begun, pool, counter),
    )


def _begun(pool: PoolEntity, counter: int, _: None) -> None:
    pool.beginning.discard(counter)
    if counter in pool.s.stories:
        pool.s.stories[counter] = pool.s.stories[counter].model_copy(update={"started": True})


def _not_begun(pool: PoolEntity, counter: int) -> None:
    pool.beginning.discard(counter)
    pool.later.add(STORIES)


def _ended(pool: PoolEntity, counter: int, story: RolloutStory, view: View) -> RolloutStory:
    state = pool.s
    if counter != state.revision:
        if story.undone:
            outcome, message = RolloutOutcome.UNDONE, f"revision {state.revision} goes back to an earlier one"
            pool.note("RolloutUndone", f"rollout of revision {counter}: {message}")
        else:
            outcome, message = RolloutOutcome.SUPERSEDED, f"revision {state.revision} came before it was complete"
            pool.note("RolloutSuperseded", f"rollout of revision {counter}: {message}")
    elif state.deleted:
        outcome, message = RolloutOutcome.FAILED, "the pool is deleted"
        pool.note("RolloutFailed", f"rollout of revision {counter}: {message}")
    elif not complete(view):
        return story
    elif not view.limits.replicas:
        outcome, message = RolloutOutcome.FAILED, "the pool has no machines any longer"
        pool.note("RolloutFailed", f"rollout of revision {counter}: {message}")
    else:
        counts = story.counts
        most = "all" if counts.available == counts.updated else counts.available
        words = f"{counts.updated} of {counts.replicas} machines are of this revision, {most} available"
        outcome, message = RolloutOutcome.COMPLETE, words
        pool.note("RolloutComplete", f"rollout of revision {counter}: {message}")
    workflow.metric_meter().create_counter("hostler_rollouts", "Rollouts that have ended, by outcome").add(
        1, {"outcome": str(outcome), "cluster": state.cluster, "pool": state.name}
    )
    return story.model_copy(update={"outcome": str(outcome), "message": message})


def tell(pool: PoolEntity, view: View) -> None:
    """Tells what is new. The end comes only when all else has been taken: it closes the workflow."""
    state = pool.s
    for counter, story in list(state.stories.items()):
        if not story.started:
            continue
        if story.outcome:
            if not pool.signals:
                del state.stories[counter]
                _send(pool, counter, "end", _end(story))
        elif counter == state.revision:
            news = _news(pool, story, view)
            if news.steps or pool.told_news != _but_time(news):
                pool.told_news = _but_time(news)
                state.stories[counter] = story.model_copy(update={"untold": []})
                _send(pool, counter, "news", news)


def _news(pool: PoolEntity, story: RolloutStory, view: View) -> RolloutNews:
    state = pool.s
    gate = Gate.PAUSED if view.spec.paused else state.rollout.gate if state.rollout else Gate.OPEN
    return RolloutNews(
        counts=_counts(state, view),
        steps=story.untold,
        waits=state.waits,
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


def _counts(state: PoolState, view: View) -> RolloutCounts:
    """The counts of the newest revision's rollout."""
    return RolloutCounts(
        replicas=view.limits.replicas,
        updated=len(view.new),
        available=len(view.new.keys() & view.available),
        old=view.old_left,
        lost=max(0, state.rollout.lost) if state.rollout else 0,
    )


def end_former(pool: PoolEntity, revisions: Sequence[int]) -> None:
    """Ends rollouts of a former workflow of this pool, which nobody follows any longer."""
    words = "the pool's earlier workflow was ended by somebody"
    for counter in revisions:
        _send(pool, counter, "end", RolloutEnd(outcome=RolloutOutcome.FAILED, message=words, time=workflow.now()))


def _send(pool: PoolEntity, counter: int, name: str, message: RolloutNews | RolloutEnd) -> None:
    handle = workflow.get_external_workflow_handle(rollout_id(pool.s.cluster, pool.s.name, counter))
    pool.signal(partial(handle.signal, name, message))
