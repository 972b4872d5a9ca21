"""One way to reach Temporal, for the command line, the SDK and the worker: the same conventions, the same converter."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from resources.converter import data_converter
from resources.settings import Settings
from starter.errors import Unreachable

CONNECT_TIMEOUT = 10.0
"""Seconds; an address that swallows packets must not hold up a command for minutes."""


async def connect(settings: Settings, **overrides: Any) -> Client:
    """A client by temporal.toml (profile) and TEMPORAL_*; where they are silent, by `settings.temporal`.

    `overrides` go to Client.connect. Raises RuntimeError, as Client.connect does, when nobody answers.
    """
    config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    config.setdefault("target_host", settings.temporal.address)
    config.setdefault("namespace", settings.temporal.namespace)
    return await Client.connect(**{**config, "data_converter": data_converter, **overrides})


async def connected(settings: Settings) -> Client:
    """As `connect`, for people: within a time, and Unreachable with what to do when nobody answers."""
    try:
        return await asyncio.wait_for(connect(settings), CONNECT_TIMEOUT)
    except (RuntimeError, TimeoutError) as e:
        address = ClientConfig.load_client_connect_config().get("target_host", settings.temporal.address)
        said = re.search(r'message: "([^"]*)"', str(e))  # the operating system's words, out of the core's long ones
        why = said.group(1) if said else str(e) or f"no answer within {CONNECT_TIMEOUT:.0f} s"
        raise Unreachable(
            f"Temporal at {address} cannot be reached ({why}): start it (hostler up), or say where it is "
            "(TEMPORAL_ADDRESS, temporal.toml, or temporal.address in the settings)"
        ) from e
