"""Azure: how its providerIDs are read. Nodes of it are told apart already; its spec and driver are not there yet."""

from __future__ import annotations

from resources.clouds.base import ProviderIDs

IDS = ProviderIDs("azure", key=str.lower, indexed=str.lower)
"""The API takes and answers them in whatever case."""
