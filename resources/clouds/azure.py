"""Azure: how its providerIDs are read. Its Nodes can already be told apart; its spec and driver do not exist yet."""

from __future__ import annotations

from resources.clouds.base import ProviderIDs

IDS = ProviderIDs("azure", key=str.lower, indexed=str.lower)
"""The API takes them, and answers with them, in any case."""
