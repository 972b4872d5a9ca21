"""The rollout of a rendered config is told to a workflow of its own, for people: each step with its reason, and how it
ended. The pool decides; a story that nobody hears holds up nothing."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of
from workflows.machine_config.pool_entity import ConfigPoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.configs import ConfigActivities
    from planners.machine_config.pool import STALLED
    from planners.machine_config.status import complete
    from resources.journal import Happening
    from resources.machine_config.state import (
        ConfigRolloutEnd,
        ConfigRolloutNews,
        ConfigRolloutOutcome,
        ConfigRolloutState,
        ConfigStory,
    )
    from resources.machine_config.view import ConfigPoolView
    from resources.names import config_rollout_id

UNTOLD_KEPT = 50
AGAIN = timedelta(seconds=30)
"""When what could not be told is told again."""
FORMER_KEPT = 3
"""How many rollouts that have ended are kept until their workflows are told."""


def follow(pool: ConfigPoolEntity, view: ConfigPoolView, steps: list[Happening]) -> None:
    """Follows each plan: begins the story of a new rollout, keeps what is to be told, ends one that is over."""
    s, now, facts = pool.s, workflow.now(), view.pool
    assert facts is not None
    if s.story is not None and s.story.config != facts.target:
        over(pool, f"the pool is to have {facts.target}", ConfigRolloutOutcome.SUPERSEDED)
    closed = facts.paused or facts.refused or not facts.target
    if s.story is None and not closed and (view.counts.candidates or s.reservations):
        s.story = ConfigStory(config=facts.target, former=facts.completed, began=now, progress_at=now)
        pool.note("ConfigRolloutBegan", f"{view.counts.candidates} nodes are to get {facts.target}")
    if s.story is None:
        return
    held = facts.paused or pool.held(now) is not None
    s.story = _clocked(s.story, held=held).model_copy(update={"untold": [*s.story.untold, *steps][-UNTOLD_KEPT:]})
    if complete(facts, view.counts) and not s.reservations:
        words = f"{view.counts.done} of {view.counts.machines} nodes have it"
        over(pool, words, ConfigRolloutOutcome.COMPLETE)


def _clocked(story: ConfigStory, held: bool) -> ConfigStory:
    """The story, whose clock stands still while somebody holds it."""
    now = workflow.now()
    if held:
        return story.model_copy(update={"held_since": story.held_since or now})
    if story.held_since is None:
        return story
    return story.model_copy(update={"held_since": None, "progress_at": story.progress_at + (now - story.held_since)})


def over(pool: ConfigPoolEntity, message: str, outcome: ConfigRolloutOutcome = ConfigRolloutOutcome.FAILED) -> None:
    """Ends the story, if there is one."""
    s = pool.s
    if s.story is None:
        return
    story, s.story = s.story, None
    words = f"rollout of {story.config}: {message}"
    if outcome is ConfigRolloutOutcome.COMPLETE:
        pool.note("ConfigRolloutComplete", words)
    elif outcome is ConfigRolloutOutcome.SUPERSEDED:
        pool.note("ConfigRolloutSuperseded", words)
    else:
        pool.note("ConfigRolloutFailed", words)
    ended = story.model_copy(update={"outcome": str(outcome), "message": message})
    s.former = [*s.former, ended][-FORMER_KEPT:]
    workflow.metric_meter().create_counter(
        "hostler_config_rollouts", "Rollouts of machine configs that have ended, by outcome"
    ).add(1, {"outcome": str(outcome), "cluster": s.cluster, "pool": s.name})


def due(pool: ConfigPoolEntity) -> bool:
    """Whether there is something to tell, and it can be told now."""
    s = pool.s
    if pool.signals or "story" in pool.deadlines:
        return pool.due("story")
    return bool(s.former) or (s.story is not None and (not s.story.started or _is_new(pool, s.story)))


async def tell(pool: ConfigPoolEntity) -> None:
    """Starts the story's workflow where it is not there yet, and tells what is new: one thing after the other, for an
    end closes a workflow that the next story may need again."""
    s = pool.s
    pool.due_then("story")
    if not due(pool):
        return
    try:
        if s.former:
            story = s.former[0] if s.former[0].started else await _begun(pool, s.former[0])
            del s.former[0]
            _send(pool, story, "end", _end(pool, story))
        elif s.story is not None:
            s.story = s.story if s.story.started else await _begun(pool, s.story)
            _tell_news(pool, s.story)
    except ActivityError as e:
        pool.note_news("ConfigRolloutUntold", failure_of(e).info.message)
        pool.no_later("story", workflow.now() + AGAIN)


async def last(pool: ConfigPoolEntity) -> None:
    """Tells the end of the oldest story where its workflow is there: one that never began needs no end."""
    story = pool.s.former.pop(0)
    if story.started:
        _send(pool, story, "end", _end(pool, story))
    await workflow.wait_condition(lambda: not pool.signals)


async def _begun(pool: ConfigPoolEntity, story: ConfigStory) -> ConfigStory:
    s = pool.s
    await pool.call(
        ConfigActivities.start_config_rollout,
        ConfigRolloutState(
            pool=s.name,
            cluster=s.cluster,
            config=story.config,
            former=story.former,
            began=story.began,
            queue_prefix=s.queue_prefix,
            timings=s.timings,
        ),
        queue=pool.in_client,
        summary=f"begin the story of the rollout of {story.config}",
    )
    return story.model_copy(update={"started": True})


def _news(pool: ConfigPoolEntity, story: ConfigStory) -> ConfigRolloutNews:
    return ConfigRolloutNews(
        counts=pool.s.counts,
        steps=story.untold,
        waits=pool.s.waits,
        paused=story.held_since is not None,
        stalls_at=story.progress_at + STALLED if story.held_since is None else None,
        time=workflow.now(),
    )


def _but_time(news: ConfigRolloutNews) -> object:
    return news.model_dump(exclude={"time", "steps"})


def _is_new(pool: ConfigPoolEntity, story: ConfigStory) -> bool:
    return bool(story.untold) or pool.news_told != _but_time(_news(pool, story))


def _tell_news(pool: ConfigPoolEntity, story: ConfigStory) -> None:
    news = _news(pool, story)
    pool.news_told = _but_time(news)
    pool.s.story = story.model_copy(update={"untold": []})
    _send(pool, story, "news", news)


def _end(pool: ConfigPoolEntity, story: ConfigStory) -> ConfigRolloutEnd:
    return ConfigRolloutEnd(
        outcome=ConfigRolloutOutcome(story.outcome),
        message=story.message,
        counts=pool.s.counts if story.outcome == ConfigRolloutOutcome.COMPLETE else None,
        steps=story.untold,
        time=workflow.now(),
    )


def _send(pool: ConfigPoolEntity, story: ConfigStory, name: str, message: object) -> None:
    """Sends it. A workflow that is not there, although the story goes on, is started again."""
    handle = workflow.get_external_workflow_handle(config_rollout_id(pool.s.cluster, pool.s.name, story.config))

    def missing(_: str) -> None:
        now = pool.s.story
        if name == "news" and now is not None and now.config == story.config:
            pool.s.story = now.model_copy(update={"started": False})
            pool.no_later("story", workflow.now() + AGAIN)

    pool.signal(partial(handle.signal, name, message), failed=missing)
