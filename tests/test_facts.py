"""The facts of a Node that its machine hears of: annotations that people set there, and what is no news."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment
from watchkit import World, new_world

from activities.facts import digest, project
from resources.names import MARKED_ANNOTATION, PRIORITY_ANNOTATION

MARK = {MARKED_ANNOTATION: "2026-01-31T12:00:00Z"}


def node(**annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "n-1", "creationTimestamp": "2026-01-31T12:00:00Z"}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata}


def told(**annotations: str) -> str:
    return digest(project(node(**annotations), 1, 1))


def test_of_the_annotations_only_those_that_a_machine_reads_are_facts() -> None:
    given = {**MARK, PRIORITY_ANNOTATION: "1", "example.com/theirs": "x"}
    assert project(node(**given), 1, 1).annotations == {**MARK, PRIORITY_ANNOTATION: "1"}
    assert project(node(), 1, 1).annotations == {}


def test_each_of_them_is_news_and_others_are_none() -> None:
    digests = [told(), told(**MARK), told(**{MARKED_ANNOTATION: "soon"}), told(**{PRIORITY_ANNOTATION: "1"})]
    assert len(set(digests)) == 4
    assert told(**{"example.com/theirs": "x"}) == told()


def test_a_node_without_them_has_the_digest_that_it_had_before_there_were_any() -> None:
    """Else an upgrade would tell every machine of every cluster the same again."""
    assert told() == "nn1x+zGMFIA="


# -- the watch --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def world(temporal: WorkflowEnvironment) -> AsyncIterator[World]:
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        yield world


async def test_a_mark_that_somebody_sets_or_takes_away_is_told(world: World) -> None:
    await world.joined()
    await world.patch("n-1", {"metadata": {"annotations": MARK}})
    assert (await world.told("m-1", 2))[-1].annotations == MARK
    await world.patch("n-1", {"metadata": {"annotations": {MARKED_ANNOTATION: None}}})
    assert (await world.told("m-1", 3))[-1].annotations == {}
    await world.patch("n-1", {"metadata": {"annotations": {"example.com/theirs": "x"}}})
    await world.only_this_change("m-1", 3)
