"""The facts of a Node that its machine hears of: annotations that people set there, and what is no news."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment
from watchkit import World, new_world

from activities.kube.facts import digest, project
from resources.names import (
    MARKED_ANNOTATION,
    PRESERVE_ANNOTATION,
    PRIORITY_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
)

MARK = {MARKED_ANNOTATION: "2026-01-31T12:00:00Z"}
PROTECTED = {SCALE_DOWN_DISABLED: "true"}
FREE = {SCALE_DOWN_DISABLED: "false"}
KEPT = {SCALE_DOWN_DISABLED_BY_PRESERVATION: "m-1"}
NOW = {PRESERVE_ANNOTATION: "now"}


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


@pytest.mark.parametrize(
    ("there", "read"),
    [
        (NOW, NOW),
        (NOW | FREE, NOW | FREE),
        (NOW | PROTECTED | KEPT, NOW | PROTECTED),
        (PROTECTED | KEPT, PROTECTED),
        (FREE | KEPT, FREE),
        (KEPT, {SCALE_DOWN_DISABLED: ""}),
        (FREE, {}),
        (PROTECTED | {SCALE_DOWN_DISABLED_BY: "p"}, {}),
    ],
    ids=[
        "asked for",
        "asked for, and given free before",
        "asked for and preserved",
        "preserved",
        "preserved, and given free",
        "preserved, and the protection taken away",
        "given free",
        "a rollout's marks",
    ],
)
def test_scale_down_disabled_is_a_fact_where_preservation_has_to_do_with_it(
    there: dict[str, str], read: dict[str, str]
) -> None:
    assert project(node(**there), 1, 1).annotations == read
    assert (told(**there) == told()) is (read == {})


def test_a_node_without_them_has_the_digest_that_it_had_before_there_were_any() -> None:
    """Otherwise an upgrade would tell every machine of every cluster the same again."""
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


async def test_of_a_preserved_node_it_is_told_that_somebody_has_given_it_free(world: World) -> None:
    await world.joined()
    for ours in (PROTECTED | {SCALE_DOWN_DISABLED_BY: "p"}, {SCALE_DOWN_DISABLED: None, SCALE_DOWN_DISABLED_BY: None}):
        await world.patch("n-1", {"metadata": {"annotations": ours}})  # a rollout's marks are no news
    await world.patch("n-1", {"metadata": {"annotations": PROTECTED | KEPT}})
    assert (await world.told("m-1", 2))[-1].annotations == PROTECTED
    await world.patch("n-1", {"metadata": {"annotations": FREE}})
    assert (await world.told("m-1", 3))[-1].annotations == FREE
    await world.patch("n-1", {"metadata": {"annotations": {SCALE_DOWN_DISABLED: None}}})
    assert (await world.told("m-1", 4))[-1].annotations == {SCALE_DOWN_DISABLED: ""}
