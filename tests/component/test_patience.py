"""Waits and watches go on when Temporal does not answer for a moment (starter/sdk/patience.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cli.place import Place, class_yaml, impatient, machine_yaml, place, text, working
from pools.behind_cli import Machines, played, pool_yaml
from temporalio.service import RPCError, RPCStatusCode, WorkflowService

from resources.manifests import AnyManifest, load_manifests
from resources.settings import load_settings
from starter.commands import forms, rollout_follow, rows
from starter.commands.rollout_view import RolloutLines
from starter.sdk import patience
from starter.sdk.client import HostlerClient
from starter.sdk.errors import Interrupted, Unreachable, translated
from starter.sdk.fleet.waiting import RolloutVerdict, Stand

__all__ = ["impatient", "place", "working"]  # fixtures
EVERY = 17  # more reads than one look makes, so that the next one has a chance
READS = (
    "describe_workflow_execution",
    "get_workflow_execution_history",
    "list_workflow_executions",
    "query_workflow",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE", 0.01)
    for looks in (patience, rows):
        monkeypatch.setattr(looks, "INTERVAL", 0.05)


# -- the rule ---------------------------------------------------------------------------------------------------------


class Temporal:
    """Answers after this many failures."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.asked = failures, error, 0

    async def look(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error
        return "answer"


async def test_it_asks_again() -> None:
    temporal = Temporal(3, Interrupted("gone for a moment"))
    assert await patience.patiently(temporal.look) == "answer"
    assert temporal.asked == 4


async def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SILENCE", 0.05)
    temporal = Temporal(10**9, Interrupted("gone for good"))
    with pytest.raises(Interrupted, match="gone for good"):
        await patience.patiently(temporal.look)
    assert temporal.asked > 1


async def test_what_asking_again_does_not_mend() -> None:
    temporal = Temporal(1, Unreachable("namespace prod does not exist"))
    with pytest.raises(Unreachable, match="namespace prod"):
        await patience.patiently(temporal.look)
    assert temporal.asked == 1


@pytest.mark.parametrize("name", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
def test_what_passes(name: str) -> None:
    with pytest.raises(Interrupted, match="no longer answers: operation was canceled; try again"), translated():
        raise RPCError("operation was canceled", RPCStatusCode[name], b"")


# -- who waits --------------------------------------------------------------------------------------------------------


class Cuts:
    """Every few reads of this process are cut off, as by a server that takes its connections down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.cut = 0
        self.on = False
        for name in READS:
            monkeypatch.setattr(WorkflowService, name, self._cutting(getattr(WorkflowService, name)))

    def _cutting(self, real: Any) -> Any:
        async def call(service: WorkflowService, *args: Any, **kwargs: Any) -> Any:
            self.reads += self.on
            if self.on and self.reads % EVERY == 1:
                self.cut += 1
                raise RPCError("operation was canceled", RPCStatusCode.CANCELLED, b"")
            return await real(service, *args, **kwargs)

        return call


@pytest.fixture
async def machines(place: Place) -> AsyncIterator[Machines]:
    async with played(place) as machines:
        yield machines


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuts]:
    cuts = Cuts(monkeypatch)
    yield cuts
    cuts.on = False  # what ends with the test reads too


def client_of(place: Place) -> HostlerClient:
    return HostlerClient(place.client, load_settings(place.settings_file), requested_by="tester")


def parsed(*documents: dict[str, Any]) -> list[AnyManifest]:
    loaded = load_manifests(text(*documents), "test")
    return [*loaded.classes, *loaded.pools, *loaded.machines]


async def test_waits_for_pools_classes_and_rollouts(place: Place, machines: Machines, cuts: Cuts) -> None:
    hostler = client_of(place)
    await hostler.apply(*parsed(class_yaml(), pool_yaml()))
    cuts.on = True
    await hostler.pools.wait("p1")
    await hostler.classes.wait("c1")
    waited = cuts.cut
    cuts.on = False
    await hostler.pools.restart("p1")
    cuts.on = True
    await rollout_follow.follow(hostler, ["p1"], RolloutLines(), None)
    assert 0 < waited < cuts.cut


async def test_the_last_look_at_a_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal does not answer just when the rollout is done and its story is asked how it ended."""
    done = SimpleNamespace(
        name="p1", revision=2, verdict=RolloutVerdict(Stand.DONE, ""), story=SimpleNamespace(running=True)
    )

    async def look(client: Any, name: str) -> Any:
        return done

    monkeypatch.setattr(rollout_follow.rollout_look, "look", look)
    temporal, finished = Temporal(2, Interrupted("gone for a moment")), []
    client: Any = SimpleNamespace(pools=SimpleNamespace(rollout_result=lambda name, revision: temporal.look()))
    view: Any = SimpleNamespace(running=contextlib.nullcontext, show=lambda look, now: None, finish=finished.append)
    await rollout_follow.follow(client, ["p1"], view, None)
    assert (temporal.asked, finished) == (3, [done])


async def test_waits_for_machines(working: Place, cuts: Cuts) -> None:
    hostler = client_of(working)
    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    cuts.on = True
    await hostler.wait("m1", "Running")
    assert cuts.cut > 0


async def test_what_is_watched(capsys: pytest.CaptureFixture[str]) -> None:
    looks, enough = 0, asyncio.Event()

    async def fetch() -> list[int]:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise Interrupted("gone for a moment")
        if looks == 4:
            enough.set()
        return [looks]

    columns = [rows.Column("NAME", lambda n: "p1"), rows.Column("READY", lambda n: n)]
    listing = rows.Listing(columns, fetch, lambda n: ("pool", "p1"), None, "nothing", "READY")  # type: ignore[arg-type]
    watching = asyncio.create_task(rows.show([listing], forms.Form(), forms.Manner(watch=True)))
    await enough.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert capsys.readouterr().out.split()[:6] == ["NAME", "READY", "p1", "1", "p1", "3"]
