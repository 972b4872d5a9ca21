"""A worker's connection to Temporal while its certificates and its API key rotate.

The dev server knows neither, so a door in front of it wants certificates; a key is seen where the SDK would send it.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from apiserver.certificates import write_certificates
from apiserver.simulated import new_certificate
from lifekit import eventually
from temporalio import workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from watchkit import Door

from resources.settings import Settings, SettingsError, TemporalSettings
from starter.sdk import connection
from starter.sdk.connection import configured, connect, followed


@workflow.defn(sandboxed=False)
class Greeting:
    @workflow.run
    async def run(self) -> str:
        return "hello"


class TlsDoor(Door):
    """A door that lets in clients with a certificate of the authority in `trusted`."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address)
        self.server_files, self.trusted = folder, folder / "ca.crt"

    async def open(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.trusted))
        context.load_cert_chain(self.server_files / "server.crt", self.server_files / "server.key")
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        self.port = self.server.sockets[0].getsockname()[1]


@pytest.fixture
async def door(
    temporal: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TlsDoor]:
    """A door that temporal.toml leads to, with a certificate that it accepts."""
    write_certificates(tmp_path)
    door = TlsDoor(temporal.client.service_client.config.target_host, tmp_path)
    await door.open()
    serve(door.trusted, tmp_path)
    write_profile(tmp_path, door.port)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    monkeypatch.setattr(connection, "LOOK_EVERY", 0.1)
    yield door
    door.shut()


def serve(ca_file: Path, folder: Path) -> None:
    """Gives the profile's files a new certificate of that authority."""
    certificate, key = new_certificate(ca_file, "worker")
    (folder / "client.crt").write_text(certificate)
    (folder / "client.key").write_text(key)


def write_profile(folder: Path, port: int, more: str = "") -> None:
    (folder / "temporal.toml").write_text(
        f'[profile.default]\naddress = "localhost:{port}"\nnamespace = "default"\n{more}'
        f'[profile.default.tls]\nserver_ca_cert_path = "{folder}/ca.crt"\n'
        f'client_cert_path = "{folder}/client.crt"\nclient_key_path = "{folder}/client.key"\n'
    )


async def test_certificates(temporal: WorkflowEnvironment, door: TlsDoor, tmp_path: Path) -> None:
    """The worker's connection is made again with the present ones, and the worker goes on."""
    client, queue = await connect(Settings()), f"q-{uuid.uuid4().hex}"
    given: list[Client] = []

    def replace(fresh: Client) -> None:
        worker.client = fresh
        given.append(fresh)

    async def greets() -> str:
        greeting = temporal.client.execute_workflow(Greeting.run, id=uuid.uuid4().hex, task_queue=queue)
        return await asyncio.wait_for(greeting, 30)

    worker = Worker(client, task_queue=queue, workflows=[Greeting])
    async with worker, followed(client, Settings(), replace):
        assert await greets() == "hello"
        another = tmp_path / "another"
        another.mkdir()
        write_certificates(another)
        door.shut()
        door.trusted = another / "ca.crt"
        await door.open()
        (tmp_path / "client.key").write_text("half of a rotation")
        serve(door.trusted, tmp_path)

        async def replaced() -> int:
            return len(given)

        await eventually(replaced, what="a new connection")
        assert await greets() == "hello"
    assert len(given) == 1
    assert given[0].data_converter is client.data_converter
    with pytest.raises(RPCError):  # the former certificate no longer opens the door
        await client.service_client.check_health()


async def test_an_api_key(door: TlsDoor, tmp_path: Path) -> None:
    """It changes on the client itself; a profile that cannot be read changes nothing."""
    write_profile(tmp_path, door.port, 'api_key = "first"\n')
    client = await connect(Settings())

    async def key() -> str | None:
        return client.api_key

    def replace(_: Client) -> None:
        raise AssertionError("a key needs no new connection")

    async with followed(client, Settings(), replace):
        assert await key() == "first"
        (tmp_path / "temporal.toml").write_text("[profile")
        await asyncio.sleep(3 * connection.LOOK_EVERY)
        assert await key() == "first"
        write_profile(tmp_path, door.port, 'api_key = "second"\ngrpc_meta = { team = "a" }\n')
        await eventually(key, lambda seen: seen == "second", "the second key")
        assert dict(client.rpc_metadata)["team"] == "a"
        assert await client.service_client.check_health()


@pytest.mark.parametrize(
    ("key", "variables", "says"),
    [
        ("se cret", {}, "empty, or has characters in it that no key has"),
        ("", {}, "is empty"),
        ("secret", {"TEMPORAL_TLS": "false"}, "at temporal.example:7233: the API key would be sent unencrypted"),
        ("s\u00e9cret", {}, "is not ASCII text"),
        ("secret", {"TEMPORAL_TLS_CLIENT_CERT_PATH": "nowhere.crt"}, "certificates: nowhere.crt cannot be read"),
    ],
)
def test_a_key_that_is_not_sent(
    key: str, variables: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is said before anything connects, and without the key."""
    (tmp_path / "key").write_text(key)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    temporal = TemporalSettings(address="temporal.example:7233", api_key_file=tmp_path / "key")
    with pytest.raises(SettingsError, match=says) as refused:
        configured(Settings(temporal=temporal))
    assert not key or key not in str(refused.value)
