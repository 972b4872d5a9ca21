"""A watch of a server that is frozen, busy or refuses it, and while its credentials rotate."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import watchkit
import yaml
from apiserver.simulated import NODES, KubeTarget
from lifekit import eventually
from temporalio.testing import WorkflowEnvironment
from watchkit import SilentDoor, World, new_world

import activities.kube.client
import activities.watch.follow
import activities.watch.liveness
from resources.errors import ErrorClass
from resources.settings import ClusterSettings

PATIENCE = 1.0  # seconds that a call of these tests may take
WELL = ("KubeletReady", "kubelet is posting ready status")
EVERY, QUIET = 0.3, 0.6  # seconds between two probes of these tests, and for an answer


@pytest.fixture
async def probed(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world behind a door that can go silent; the watch itself has its whole patience, the probe beside it has
    little."""
    monkeypatch.setattr(watchkit, "Door", SilentDoor)
    for name, seconds in {"PROBE_EVERY": EVERY, "PROBE_PATIENCE": QUIET, "PROBE_AGAIN": 0.1}.items():
        monkeypatch.setattr(activities.watch.liveness, name, seconds)
    monkeypatch.setattr(activities.kube.client, "CALL_TIMEOUT", PATIENCE)
    async with new_world(temporal.client) as world, world.worker():
        await world.watch()
        yield world


async def test_a_frozen_server_is_found_beside_the_watch(probed: World) -> None:
    """Its outage counts from its last answer; when it is over, all is listed, and only news is told."""
    world = probed
    await world.watched()
    world.silent_door.freeze()
    frozen = datetime.now(UTC)
    state = await eventually(world.state, lambda state: state.api and not state.api.reachable, "unreachable")
    assert state.api is not None
    assert state.api.since is not None
    assert state.api.since < frozen + timedelta(seconds=EVERY)
    assert state.api.since < state.api.time - timedelta(seconds=QUIET)
    assert "no answer" in state.api.message
    lists = len(world.calls("list nodes"))
    await world.ready("n-1", True, *WELL)
    world.silent_door.thaw()
    assert (await world.told("m-1", 3))[-1].ready
    await eventually(world.reachable, lambda reachable: reachable is True, "reachable")
    await world.only_this_change("m-1", 3)
    assert len(world.calls("list nodes")) > lists
    assert await world.reasons() == ["APIUnreachable", "APIReachable"]
    assert (await world.attempt()).attempt == 1


@pytest.mark.parametrize(
    "livez",
    [
        {"code": "Unauthorized", "status": 401},
        pytest.param({"code": "Forbidden", "status": 403}, marks=pytest.mark.exhaustive),
        {"code": "TooManyRequests", "headers": {"Retry-After": "1"}},
        pytest.param({"code": "ServiceUnavailable", "headers": {"Retry-After": "1"}}, marks=pytest.mark.exhaustive),
        {"code": "InternalError", "status": 500},
        {"drop": True, "times": 1},
    ],
    ids=lambda fields: fields.get("code", "one lost answer"),
)
async def test_what_is_no_silence(probed: World, monkeypatch: pytest.MonkeyPatch, livez: dict[str, Any]) -> None:
    """The server refuses us, is busy, is not well and serves all the same, or has lost one connection."""
    world = probed
    # All of it is an answer, however long a busy computer takes for one: nothing here waits for a patience to end.
    monkeypatch.setattr(activities.watch.liveness, "PROBE_PATIENCE", 60.0)
    monkeypatch.setattr(activities.kube.client, "CALL_TIMEOUT", 60.0)
    await world.watched()
    rule = world.fault("get /livez", **{"times": None, **livez})

    async def struck() -> int:
        return int(rule.hits)

    await eventually(struck, lambda hits: hits >= livez.get("times", 4), "probes")
    await world.only_this_change("m-1", 2)
    lists = len(world.calls("list nodes")) - 1
    unwell = rule.hits if livez.get("status") == 500 else 0
    assert unwell - 1 <= lists <= unwell  # the last one may be on its way
    assert await world.reasons() == (["APIRefused"] if livez.get("status") == 401 else [])
    assert await world.reachable()


async def test_an_event_loop_that_is_held_up_is_no_silent_server(probed: World) -> None:
    """An answer that came while others had the loop has not been looked at yet."""
    world = probed
    kube = await activities.kube.client.ApiServers(world.settings).get(world.name)
    probe = asyncio.create_task(kube.alive(QUIET))
    for _ in range(5):
        await asyncio.sleep(0)
        time.sleep(QUIET)  # noqa: ASYNC251 - it is what others do to the loop
    await probe
    await kube.close()


async def test_an_answer_that_stops_in_the_middle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The beginning of one is no answer."""
    monkeypatch.setattr(activities.kube.client, "CALL_TIMEOUT", PATIENCE)

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()

    server = await asyncio.start_server(half, "127.0.0.1", 0)
    kubeconfig = yaml.safe_load(KubeTarget("http://x", "t", tmp_path).kubeconfig())
    kubeconfig["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    kube = await activities.kube.client.Kube.connect("demo", ClusterSettings(), str(tmp_path / "kubeconfig"))
    try:
        with pytest.raises(activities.kube.client.KubeError) as e:
            await kube.get(NODES)
        assert e.value.silent
        assert e.value.error_class == ErrorClass.TRANSIENT  # like any outage: a look that meets it decides nothing (F5)
    finally:
        await kube.close()
        server.close()


# -- credentials that rotate ------------------------------------------------------------------------------------------


async def test_a_watch_whose_token_is_rotated(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch begins again with the new one, and nobody hears of it."""
    monkeypatch.setattr(activities.watch.follow, "SERVER_TIMEOUT", 2)  # seconds, as the server is asked to end a watch
    async with new_world(temporal.client) as world:
        tokens = rotate(world)
        next(tokens)
        async with world.worker():
            await world.watch()
            await world.watched()
            next(tokens)
            refused = await eventually(lambda: _refused(world), bool, "a watch that was refused")
            await world.only_this_change("m-1", 2)
            assert await _refused(world) == refused  # once
            assert len(world.calls("list nodes")) == 1
            await world.undisturbed()


async def test_a_watch_whose_token_is_revoked(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported as what it is, and the next token is taken up without help."""
    monkeypatch.setattr(activities.watch.follow, "SERVER_TIMEOUT", 2)
    async with new_world(temporal.client) as world:
        tokens = rotate(world)
        token = next(tokens)
        async with world.worker():
            await world.watch()
            await world.watched()
            world.api.revoke_token(token)
            state = await eventually(world.state, lambda state: state.api and not state.api.reachable, "blind")
            assert state.api is not None
            assert state.api.refused
            next(tokens)
            await eventually(world.reachable, lambda reachable: reachable is True, "reachable")
            await world.only_this_change("m-1", 2)
            assert await world.reasons() == ["APIRefused", "APIReachable"]
            assert (await world.attempt()).attempt == 1


def rotate(world: World) -> Iterator[str]:
    """The token file of the watch's kubeconfig gets a new token; the former one is revoked."""
    file = world.file.parent / "kubeconfig"
    kubeconfig = yaml.safe_load(file.read_text())
    kubeconfig["users"][0]["user"] = {"tokenFile": "token"}
    file.write_text(yaml.safe_dump(kubeconfig))
    former = None
    while True:
        token = uuid.uuid4().hex
        world.api.admit_token(token)
        (file.parent / "token").write_text(token)
        if former:
            world.api.revoke_token(former)
        former = token
        yield token


async def _refused(world: World) -> int:
    return sum(call.status == 401 for call in world.frame.calls())
