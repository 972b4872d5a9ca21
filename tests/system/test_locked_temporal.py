"""Hostler at a Temporal server that lets in only clients with a certificate and a token with roles.

It is Temporal's own server with both of its locks. Temporal Cloud has one of them at a namespace; its API keys are such
tokens to a client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from lifekit import EXAMPLES, Stack, eventually, hostler, new_stack
from processes.locked_temporal import ADMIN, NAMESPACE, NEEDED, LockedTemporal

import worker
from resources.machine.state import Phase
from resources.settings import load_settings
from starter.sdk import connection
from starter.sdk.connection import connect

pytestmark = pytest.mark.skipif(NEEDED is not None, reason=str(NEEDED))

WRITER = f"{NAMESPACE}:write"


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LockedTemporal]:
    """The server, and variables that name a certificate."""
    for variable, file in (("SERVER_CA_CERT", "ca.crt"), ("CLIENT_CERT", "client.crt"), ("CLIENT_KEY", "client.key")):
        monkeypatch.setenv(f"TEMPORAL_TLS_{variable}_PATH", str(tmp_path / file))
    server = LockedTemporal(tmp_path)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def stack(server: LockedTemporal, tmp_path: Path) -> AsyncIterator[Stack]:
    """A cloud and a cluster, whose settings have an administrator's token in a file; a worker's comes later."""
    key, temporal = tmp_path / "api-key", {"address": server.address, "namespace": NAMESPACE}
    key.write_text(server.token(ADMIN))
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump({"temporal": {**temporal, "apiKeyFile": "api-key"}}))
    async with new_stack(await connect(load_settings(file))) as stack:
        content = yaml.safe_load(stack.settings_file.read_text())
        content["temporal"] = {**temporal, "apiKeyFile": str(key)}
        stack.settings_file.write_text(yaml.safe_dump(content))
        stack.settings = load_settings(stack.settings_file)
        yield stack


async def test_who_gets_in(
    server: LockedTemporal, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "api-key"

    async def said(*words: str, code: int, has: str = "") -> str:
        key.write_text(has or server.token(ADMIN))
        return await hostler(stack, *words, expect=code, errors=True)

    machines = ("get", "machines")
    assert "is ready for Hostler" in await said("setup", "--create-namespace", code=0)
    assert "No machines found" in await said(*machines, code=0, has=server.token(f"{NAMESPACE}:read"))
    apply = ("apply", "-f", str(EXAMPLES))
    refused = "check the API key or the client certificate"
    assert refused in await said(*apply, code=1, has=server.token(f"{NAMESPACE}:read"))
    assert refused in await said(*machines, code=1, has=(expired := server.token(WRITER, lasts=-1)))
    assert refused in await said(*machines, code=1, has=server.token("another:write"))
    assert refused in await said("doctor", code=1, has=expired)
    monkeypatch.delenv("TEMPORAL_TLS_CLIENT_CERT_PATH")
    monkeypatch.delenv("TEMPORAL_TLS_CLIENT_KEY_PATH")
    assert "check the authority and the name of the server's certificate" in await said(*machines, code=3)
    monkeypatch.delenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH")
    assert "no connection by TLS (UnknownIssuer)" in await said(*machines, code=3)


async def test_a_life_while_token_and_certificate_change(
    server: LockedTemporal,
    stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker is a writer of the namespace, and goes on with the second token after the first has expired."""
    monkeypatch.setattr(connection, "LOOK_EVERY", 0.1)
    caplog.set_level(logging.DEBUG)
    key = tmp_path / "api-key"
    await hostler(stack, "setup", "--create-namespace")
    lasts = 5.0
    expires = time.time() + lasts
    key.write_text(first := server.token(WRITER, lasts=lasts))
    client = await connect(stack.settings)
    stack.client = client
    async with worker.running(client, stack.settings) as workers:
        await stack.create("m-1")
        key.write_text(second := server.token(WRITER))
        await stack.phase(Phase.RUNNING, "m-1")
        server.certificate(tmp_path)

        async def reconnected() -> bool:
            return all(each.client is not client for each in workers) and time.time() > expires

        await eventually(reconnected, what="a connection with the new certificate, and the end of the first token")
        assert "Running" in await hostler(stack, "get", "machines")
        stack.client = workers[0].client
        handle = stack.started["m-1"] = stack.client.get_workflow_handle(stack.started["m-1"].id)
        assert "deleted" in await hostler(stack, "delete", "machine", "m-1", "--wait")
        await handle.result()
    assert len(stack.launched()) == 1
    assert "with new certificates" in caplog.text
    assert first not in caplog.text
    assert second not in caplog.text
