"""One way to reach Temporal, for the command line, the SDK and the worker: the same conventions, the same converter."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from resources import names
from resources.converter import data_converter
from resources.endpoints import in_clear
from resources.settings import Settings, SettingsError
from resources.words import cause
from starter.sdk.errors import HostlerError, Refused, Unreachable
from starter.sdk.intents import new_id

if TYPE_CHECKING:
    from resources.manifests import ClusterManifest

CONNECT_TIMEOUT = 10.0
"""Seconds; an address that swallows packets must not hold up a command for minutes."""
LOOK_EVERY = 60.0
"""Seconds between two looks at what a worker's connection was made of."""

log = logging.getLogger(__name__)

# What the core's messages say of a server that refuses, and of TLS.
_REFUSED = re.compile(r"\b(PermissionDenied|Unauthenticated)\b")
_TLS = re.compile(
    r"(?:fatal alert: |InvalidCertificate\()(\w+)|(NoCertificatesPresented|PrivateKeyParseError|InconsistentKeys)"
)
# A server that refuses a certificate does so after the handshake, and the call that meets this may say no more.
_CUT = re.compile(r'after connection: .*message: "(transport error|operation was canceled)"')
_KEY = re.compile(r"[!-~]+")
# What the SDK raises for half a rotation (no TOML, no PEM, no metadata); and a server that does not answer.
_UNREADABLE = (RuntimeError, ValueError, TypeError)
_TROUBLES = (*_UNREADABLE, OSError, TimeoutError)


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

    def cluster_of(self, manifest: ClusterManifest, cluster: str | None = None) -> str:
        """The cluster: `cluster`, else the manifest's annotation, else the settings' map of its namespace, else the
        default."""
        from resources.manifests import cluster_of

        namespace = getattr(manifest.metadata, "namespace", None)  # custom resources of machine configs have none
        mapped = (name for name, c in sorted(self.settings.clusters.items()) if namespace in c.namespaces)
        return cluster_of(manifest, cluster, next(mapped, self.cluster))


def word(name: str) -> str:
    """The text, if it is a name: nothing else goes into ids and queries. Raises Refused."""
    if not names.is_name(name):
        raise Refused(f"{name!r} is not a name: use lower-case letters, digits, '-' and '.'")
    return name


def configured(settings: Settings) -> dict[str, Any]:
    """How Temporal is reached, as arguments of Client.connect: by temporal.toml (its profile) and TEMPORAL_*; where
    they say nothing, by `settings.temporal`.

    The files that they name are read. Raises SettingsError, which quotes no file.
    """
    try:
        config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    except OSError as e:
        raise SettingsError(f"Temporal's certificates: {e.filename} cannot be read: {e.strerror}") from None
    except _UNREADABLE as e:
        words = cause(e).splitlines()[0]  # the lines that follow quote the file
        raise SettingsError(f"temporal.toml or TEMPORAL_*: {words}") from None
    config.setdefault("target_host", settings.temporal.address)
    config.setdefault("namespace", settings.temporal.namespace)
    if settings.temporal.api_key_file is not None and "api_key" not in config:
        config["api_key"] = _read_key(settings.path(settings.temporal.api_key_file))
        config.setdefault("tls", True)
    if "api_key" in config:
        _check_key(config)
    return config


def _read_key(file: Path) -> str:
    try:
        key = file.read_text(encoding="ascii").strip()
    except OSError as e:
        raise SettingsError(f"temporal.apiKeyFile: {file} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"temporal.apiKeyFile: {file} is not ASCII text") from None
    if not key:
        raise SettingsError(f"temporal.apiKeyFile: {file} is empty")
    return key


def _check_key(config: dict[str, Any]) -> None:
    """Refuses a key that cannot be sent, before an error of the SDK quotes it, or that would be sent readably."""
    if not _KEY.fullmatch(config["api_key"]):
        raise SettingsError("Temporal's API key is empty, or has characters in it that no key has")
    if config["tls"] is False and in_clear(f"http://{config['target_host']}"):
        raise SettingsError(
            f"Temporal at {config['target_host']}: the API key would be sent unencrypted; do not disable TLS "
            "(temporal.toml, TEMPORAL_TLS)"
        )


async def connect(settings: Settings, **overrides: Any) -> Client:
    """Connects as `configured`. `overrides` go to Client.connect. Raises SettingsError, and RuntimeError, as
    Client.connect does, when nobody answers."""
    return await Client.connect(**{**configured(settings), "data_converter": data_converter, **overrides})


async def connected(settings: Settings, **overrides: Any) -> Client:
    """Like `connect`, for people: within a time limit, and a HostlerError with what to do when there is none."""
    try:
        return await asyncio.wait_for(connect(settings, **overrides), CONNECT_TIMEOUT)
    except (RuntimeError, TimeoutError) as e:
        raise _no_connection(configured(settings)["target_host"], e) from e


def _no_connection(address: str, error: Exception) -> HostlerError:
    """Why there is none: the words of the server, of TLS or of the operating system, out of the core's long message."""
    text = cause(error)
    said = re.search(r'message: "([^"]*)"', text)
    if _REFUSED.search(text):
        why = said.group(1).rstrip(".") if said else text
        return Refused(f"Temporal at {address} refuses: {why}: check the API key or the client certificate")
    if (found := _TLS.search(text) or _CUT.search(text)) is not None:
        why = found.group(found.lastindex or 0)
        return Unreachable(
            f"Temporal at {address}: no connection by TLS ({why}): check the authority and the name of the server's "
            "certificate, and the client certificate with its key (TEMPORAL_TLS_*, temporal.toml)"
        )
    why = said.group(1) if said else text
    if isinstance(error, TimeoutError):
        why = f"no answer within {CONNECT_TIMEOUT:.0f} s"
    return Unreachable(
        f"Temporal at {address} cannot be reached ({why}): start it (hostler up), or say where it is "
        "(TEMPORAL_ADDRESS, temporal.toml, or temporal.address in the settings)"
    )


@asynccontextmanager
async def followed(client: Client, settings: Settings, replace: Callable[[Client], None]) -> AsyncIterator[None]:
    """A context in which a connection has the credentials that the files of `configured` have now.

    API key and metadata change on the client itself. Certificates need a new connection: `replace` is given the client
    that has it. If none can be made, it is tried again at the next look, and the old one goes on meanwhile.
    """
    task = asyncio.create_task(_follow(client, settings, replace), name="Temporal's credentials")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(client: Client, settings: Settings, replace: Callable[[Client], None]) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            said = configured(settings)
            key, metadata = said.get("api_key"), said.get("rpc_metadata") or {}
            if (said.get("tls") or None) != (client.service_client.config.tls or None):
                client = await asyncio.wait_for(_reconnected(client, said), CONNECT_TIMEOUT)
                replace(client)
                log.info("reconnected to Temporal with new certificates")
            elif (key, metadata) != (client.api_key, client.rpc_metadata):
                client.api_key, client.rpc_metadata = key, metadata
                log.info("Temporal is called with a new API key or new metadata")
        except _TROUBLES as e:
            words = cause(e).splitlines()[0]  # the lines that follow quote the file
            log.warning("Temporal's credentials have changed, but cannot be used: %s", words)


async def _reconnected(client: Client, said: dict[str, Any]) -> Client:
    """Reconnects to the same server and namespace, whatever is configured now: a worker does not move to another on its
    own."""
    former = client.service_client.config
    fresh = await Client.connect(
        former.target_host,
        runtime=former.runtime,
        tls=said.get("tls"),
        api_key=said.get("api_key"),
        rpc_metadata=said.get("rpc_metadata") or {},
    )
    config: dict[str, Any] = {**client.config(), "service_client": fresh.service_client}
    return Client(**config)
