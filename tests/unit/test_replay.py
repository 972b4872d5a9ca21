"""Recorded histories replay, and hold no secret. A change that breaks one needs a patch marker and a new recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from histories.record import FLOWS, IDENTITY
from histories.recorded import HISTORIES, found_in, load, replayer
from paths import ROOT
from temporalio import workflow

import worker
from workflows.cluster import workflow as cluster
from workflows.control_plane import nodes
from workflows.fleet import lending, revise
from workflows.fleet import life as fleet
from workflows.machine import create, hot_update, membership, terminate
from workflows.machine import workflow as life
from workflows.machine_class import workflow as machine_class
from workflows.machine_class.holding import HeldNews
from workflows.machine_config import configs, drains, loans, looks
from workflows.machine_config import rollout as config_rollout
from workflows.pool import gates, rollout
from workflows.pool import workflow as pool


async def replay(file: Path, strict: bool = False) -> None:
    history = load(file)
    await replayer(history, worker.sandbox(strict)).replay_workflow(history)


def test_every_flow_is_recorded() -> None:
    assert {f.stem for f in HISTORIES} >= {f"{kind}-{flow}" for flow, (_, kinds) in FLOWS.items() for kind in kinds}


@pytest.mark.parametrize(
    "life", ["machine-hot-life", "class-hot-life", "pool-pool-life", "machine-preserved-life", "pool-slot"]
)
def test_a_run_that_goes_on_in_another_is_recorded(life: str) -> None:
    """It is recorded with the state that it hands over, and what the next run makes of it."""
    first, second = (load(HISTORIES[0].with_name(f"{life}{n}.json")) for n in ("", "-2"))
    handed = first.events[-1].workflow_execution_continued_as_new_event_attributes
    taken = second.events[0].workflow_execution_started_event_attributes
    assert handed.new_execution_run_id == taken.original_execution_run_id
    assert handed.input == taken.input
    assert handed.input.payloads


@pytest.mark.parametrize("file", HISTORIES, ids=lambda f: f.stem)
async def test_replays(file: Path) -> None:
    await replay(file)


OF_EACH_KIND = (
    *("machine-hot-life", "class-hot-life", "pool-pool-life", "rollout-pool-life", "cluster-whole-life"),
    *("machineconfigs-configs-life", "machineconfigpool-configs-life", "configrollout-configs-life"),
)


@pytest.mark.parametrize(
    "file",
    [pytest.param(f, id=f.stem, marks=[] if f.stem in OF_EACH_KIND else pytest.mark.exhaustive) for f in HISTORIES],
)
async def test_replays_in_the_strict_sandbox(file: Path) -> None:
    """The sandbox sees the same forbidden calls in each life of a kind."""
    await replay(file, strict=True)


def without(phase: Any, phases: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(p for p in phases if p is not phase)


async def _nothing(pool: Any) -> None:
    pass


BREAKS = {
    "machine-whole-life": (life, "BIRTH", without(create.create, life.BIRTH)),
    "machine-hot-life": (hot_update, "_due", lambda m: False),
    "machine-hot-life-2": (life, "END", without(terminate.delete, life.END)),
    "class-hot-life": (machine_class, "to_tell", lambda users, generation, limit, now: []),
    "class-hot-life-2": (machine_class, "to_tell", lambda users, generation, limit, now: []),
    "pool-pool-life": (pool, "mark", lambda p: None),
    "pool-pool-life-2": (fleet, "decide", lambda f: None),
    "machine-pool-life": (membership, "_send", lambda m, report: None),
    "rollout-pool-life": (rollout.RolloutWorkflow, "publish", lambda self: None),
    "class-pool-life": (machine_class, "to_tell", lambda users, generation, limit, now: []),
    "cluster-pool-life": (cluster, "untold", lambda s, now: []),
    "controlplane-held-life": (nodes, "look", lambda cp: None),
    "class-gated-pool": (HeldNews, "say", lambda news, waiting: None),
    "machineconfigs-configs-life": (configs.MachineConfigsWorkflow, "_begin_watch", lambda self: None),
    "machineconfigpool-configs-life": (drains, "start", lambda pool: None),
    "configrollout-configs-life": (config_rollout.ConfigRolloutWorkflow, "publish", lambda self: None),
    "machineconfigs-strays-life": (drains, "start", lambda owner: None),
    "machineconfigpool-strays-life": (looks, "untaint", _nothing),
    "pool-lending-pool": (lending, "judge", lambda fleet: None),
    "machineconfigpool-borrowing-pool": (loans, "_asked_again", lambda pool: workflow.now()),
    "pool-pool-in-turn": (gates, "_turn", lambda pool: None),
    "pool-corrected-pool": (revise, "supersede", lambda fleet, generation: None),
    "cluster-silent-cloud": (cluster, "silent_clouds", lambda s: []),
}
"""Changes that do not fit the recordings: a life without one of its phases or without hot updates, a class that tells
nobody; a pool that marks no node or does nothing, a machine that does not report to it, a rollout that does not show in
lists, a cluster that sends its pools no news, a control plane that does not look at its Nodes; a class that does not
say that machines wait; a pool that does not wait for its turn, or has no new template; a cluster that hides a silent
cloud; a config pool that asks again without end."""


@pytest.mark.parametrize("recorded", BREAKS)
async def test_a_breaking_change_is_seen(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKS[recorded])
    with pytest.raises(Exception, match=r"TMPRL1100|[Nn]ondeterminism"):
        await replay(HISTORIES[0].with_name(f"{recorded}.json"))


PLANTED = ["canary-", "hostler-simulator-secret", "token-secret"]


@pytest.mark.parametrize("file", HISTORIES, ids=lambda f: f.stem)
def test_no_secret_is_in_it(file: Path) -> None:
    """The recorder planted secrets: a line of the user data, and the credentials of the examples. Payloads are decoded
    from JSON's base64."""
    texts = [event.SerializeToString() for event in load(file).events]
    assert found_in([*PLANTED, IDENTITY], texts) == [IDENTITY], "it has looked at something, and found nothing else"


def test_a_secret_is_seen() -> None:
    texts = [event.SerializeToString() for event in load(HISTORIES[0]).events]
    assert found_in(PLANTED, [*texts, b"user data with canary-1234"]) == ["canary-"]


def test_no_history_names_a_machine() -> None:
    paths = (str(ROOT), str(Path.home()))
    assert [file.name for file in HISTORIES if any(path in file.read_text() for path in paths)] == []
