"""One way to reach Temporal, for the command line, the SDK and the worker: the same conventions, the same converter."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from resources.converter import data_converter
from resources.settings import Settings


async def connect(settings: Settings, **overrides: Any) -> Client:
    """A client by temporal.toml (profile) and TEMPORAL_*; where they are silent, by `settings.temporal`.

    `overrides` go to Client.connect. Raises RuntimeError, as Client.connect does, when nobody answers.
    """
    config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    config.setdefault("target_host", settings.temporal.address)
    config.setdefault("namespace", settings.temporal.namespace)
    return await Client.connect(**{**config, "data_converter": data_converter, **overrides})
