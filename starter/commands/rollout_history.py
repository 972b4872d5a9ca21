"""`hostler rollout history`: the revisions of a pool, and what became of their rollouts; those of the control plane,
which has no rollouts with a story of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starter.commands import fleets
from starter.commands.kinds import POOL

if TYPE_CHECKING:
    from resources.fleet.revision import Revision
    from resources.pool.state import RolloutCounts
    from starter.sdk.client import HostlerClient
    from starter.sdk.fleet.results import Numbers
    from starter.sdk.pools.results import RolloutListed

COLUMNS = ("REVISION", "AGE", "CLASS", "GENERATION", "MACHINES", "ROLLOUT", "BY", "REASON")


async def table(client: HostlerClient, kind: str, name: str, *, titled: bool) -> list[str]:
    """The table, oldest first, as kubectl has it. Without a worker it has the rollouts that Temporal keeps."""
    from starter.outlet import warn
    from starter.output import Table
    from starter.sdk.errors import NoAnswer

    stories: dict[int, RolloutListed] = {}
    for story in await _stories(client, kind, name):
        stories.setdefault(story.revision, story)  # the newest first: an older one is of a former life
    try:
        summary = await fleets.shelf_of(client, kind).summary(name)
    except NoAnswer as e:
        warn(f"{e}; shown are only revisions whose rollouts Temporal still keeps")
        rows = [_told(r) for _, r in sorted(stories.items())]
    else:
        rows = _rows(summary, stories)
    lines = Table(COLUMNS).lines(rows)
    return [fleets.label(kind, name), *lines] if titled else lines


async def _stories(client: HostlerClient, kind: str, name: str) -> list[RolloutListed]:
    return await client.pools.rollouts(name) if kind == POOL else []


def _rows(summary: Numbers, stories: dict[int, RolloutListed]) -> list[tuple[str, ...]]:
    from starter.output import age

    now, rows = datetime.now(UTC), list[tuple[str, ...]]()
    for r in summary.revisions:
        story = stories.get(r.revision)
        cells = (str(r.revision), age(now - r.created), r.machine_class, str(r.generation), str(r.machines))
        rows.append((*cells, story.phase if story else "", r.requested_by, r.reason))
    return rows


def _told(r: RolloutListed) -> tuple[str, ...]:
    from starter.output import age

    return (str(r.revision), age(datetime.now(UTC) - r.began), "", "", "", r.phase, "", r.reason)


async def page(client: HostlerClient, kind: str, name: str, number: int) -> list[str]:
    """Everything that is known of one revision: what machines are made from, and the story of its rollout."""
    from starter.outlet import warn
    from starter.sdk.errors import NoAnswer, NotFound

    shelf, revision, others = fleets.shelf_of(client, kind), None, list[int]()
    try:
        state = await shelf.get(name)
        others = [r.counter for r in state.revisions]
        revision = state.find(number)
    except NoAnswer as e:
        warn(str(e))
    story = next((r for r in await _stories(client, kind, name) if r.revision == number), None)
    if revision is None and story is None:
        known = f"; the revisions are {', '.join(map(str, others))}" if others else ""
        raise NotFound(
            f"revision {number} of {shelf.noun} {name} is not known{known}: `hostler rollout history "
            f"{name if kind == POOL else shelf.noun} --cluster {client.cluster}` lists them"
        )
    now = datetime.now(UTC)
    lines = [f"{fleets.label(kind, name)} with revision {number}"]
    lines += _made_from(revision, now) if revision else []
    if story is None and kind == POOL:
        return [*lines, "", "It replaced no machine, or Temporal no longer keeps its story."]
    return lines + (_story(story, now) if story else [])


def _made_from(revision: Revision, now: datetime) -> list[str]:
    from starter.output import dump, fields, moment

    mine = revision.machine_class
    pairs = [
        ("Created", moment(revision.created, now)),
        ("By", revision.requested_by),
        ("Reason", revision.reason),
        ("Class", mine.words),
    ]
    made_from = {
        "template": revision.template.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "providerSpec": mine.provider_spec,
    }
    return [*fields(pairs), "", *dump([made_from], "yaml", single=True).splitlines()]


def _story(story: RolloutListed, now: datetime) -> list[str]:
    from starter.output import fields, moment

    told = story.result or story.state
    message = f": {story.result.message}" if story.result else ""
    pairs = [
        ("Rollout", f"{story.phase}{message}"),
        ("Began", moment(story.began, now)),
        ("Ended", moment(story.ended, now)),
        ("Machines", _numbers(told.counts) if told else ""),
    ]
    lines = ["", *fields(pairs)]
    if told is None or not told.steps:
        return lines
    dropped = told.steps_dropped
    left_out = f" (the first and the newest; {dropped} between them were dropped)" if dropped else ""
    steps = [f"  {s.time:%Y-%m-%d %H:%M:%SZ} {s.reason}: {s.message}" for s in told.steps]
    return [*lines, f"Steps{left_out}:", *steps]


def _numbers(c: RolloutCounts) -> str:
    lost = f", {c.lost} never joined" if c.lost else ""
    old = f"{c.old} old one{'s' if c.old != 1 else ''}"
    return f"{c.updated} of {c.replicas} updated, {c.available} of them available, {old} left{lost}"
