"""One way to reach Temporal, for the command line, the SDK and the worker: the same conventions, the same converter."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from resources import names
from resources.converter import data_converter
from resources.machine.manifest import Machine
from resources.manifests import MachineClass, cluster_of
from resources.pool.manifest import MachineDeployment
from resources.settings import Settings
from starter.sdk.errors import Refused, Unreachable
from starter.sdk.intents import new_id

CONNECT_TIMEOUT = 10.0
"""Seconds; an address that swallows packets must not hold up a command for minutes."""
LOOK_EVERY = 60.0
"""Seconds between two looks at what a worker's connection was made of."""

log = logging.getLogger(__name__)

# What half a rotation raises (no TOML, no such file, no PEM, no metadata), or a server that does not answer.
_TROUBLES = (RuntimeError, OSError, ValueError, TypeError, TimeoutError)


@dataclass(frozen=True)
class Connection:
    """A connection to Temporal, and on whose behalf it asks: what every part of the SDK is made from."""

    temporal: Client
    settings: Settings
    cluster: str
    """The cluster for a call that names none."""
    requested_by: str
    """The person who asks, for journals."""

    @cached_property
    def queue(self) -> str:
        """The task queue of the workflows."""
        return names.workflow_queue(self.settings.queue_prefix)

    def where(self, cluster: str | None) -> str:
        """The cluster, for ids and queries. Raises Refused for what is not a name."""
        return word(cluster or self.cluster)

    def by(self, reason: str = "") -> dict[str, Any]:
        """What every intent says of its sender, with an id of its own."""
        return {"id": new_id(), "requested_by": self.requested_by, "reason": reason}

    def cluster_of(self, manifest: Machine | MachineClass | MachineDeployment, cluster: str | None = None) -> str:
        """The cluster: `cluster`, else the manifest's annotation, else the settings' map of its namespace, else the
        default."""
        namespace = manifest.metadata.namespace
        mapped = (name for name, c in sorted(self.settings.clusters.items()) if namespace in c.namespaces)
        return cluster_of(manifest, cluster, next(mapped, self.cluster))


def word(name: str) -> str:
    """Only a name goes into ids and queries. Raises Refused."""
    if not names.is_name(name):
        raise Refused(f"{name!r} is not a name: use lower-case letters, digits, '-' and '.'")
    return name


async def connect(settings: Settings, **overrides: Any) -> Client:
    """Connects by temporal.toml (profile) and TEMPORAL_*; where they say nothing, by `settings.temporal`.

    `overrides` go to Client.connect. Raises RuntimeError, as Client.connect does, when nobody answers.
    """
    config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    config.setdefault("target_host", settings.temporal.address)
    config.setdefault("namespace", settings.temporal.namespace)
    return await Client.connect(**{**config, "data_converter": data_converter, **overrides})


async def connected(settings: Settings) -> Client:
    """Like `connect`, for people: within a time limit, and Unreachable with what to do when nobody answers."""
    try:
        return await asyncio.wait_for(connect(settings), CONNECT_TIMEOUT)
    except (RuntimeError, TimeoutError) as e:
        address = ClientConfig.load_client_connect_config().get("target_host", settings.temporal.address)
        said = re.search(r'message: "([^"]*)"', str(e))  # the operating system's words, out of the core's long message
        why = said.group(1) if said else str(e) or f"no answer within {CONNECT_TIMEOUT:.0f} s"
        raise Unreachable(
            f"Temporal at {address} cannot be reached ({why}): start it (hostler up), or say where it is "
            "(TEMPORAL_ADDRESS, temporal.toml, or temporal.address in the settings)"
        ) from e


@asynccontextmanager
async def followed(client: Client, replace: Callable[[Client], None]) -> AsyncIterator[None]:
    """A context in which a connection has the credentials that temporal.toml and the files named there have now.

    API key and metadata change on the client itself. Certificates need a new connection: `replace` is given the client
    that has it. If none can be made, it is tried again at the next look, and the old one goes on meanwhile.
    """
    known = dict(ClientConfig.load_client_connect_config())
    task = asyncio.create_task(_follow(client, known, replace), name="Temporal's credentials")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(client: Client, known: dict[str, Any], replace: Callable[[Client], None]) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            said: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
            if said.get("tls") != known.get("tls"):
                client = await asyncio.wait_for(_reconnected(client, said), CONNECT_TIMEOUT)
                replace(client)
                log.info("reconnected to Temporal with new certificates")
            elif any(said.get(key) != known.get(key) for key in ("api_key", "rpc_metadata")):
                client.api_key = said.get("api_key")
                client.rpc_metadata = said.get("rpc_metadata") or {}
                log.info("Temporal is called with a new API key or new metadata")
        except _TROUBLES as e:
            words = (str(e) or type(e).__name__).splitlines()[0]  # the lines that follow quote the file
            log.warning("Temporal's credentials have changed, but cannot be used: %s", words)
        else:
            known = said


async def _reconnected(client: Client, said: dict[str, Any]) -> Client:
    """Reconnects to the same server and namespace, whatever is configured now: a worker does not move to another on its
    own."""
    former = client.service_client.config
    fresh = await Client.connect(
        former.target_host,
        runtime=former.runtime,
        tls=said.get("tls", False),
        api_key=said.get("api_key"),
        rpc_metadata=said.get("rpc_metadata") or {},
    )
    config: dict[str, Any] = {**client.config(), "service_client": fresh.service_client}
    return Client(**config)
