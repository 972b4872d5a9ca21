"""The providerIDs of Azure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resources.clouds.base import ProviderIDs


def _key(provider_id: str) -> str:
    """Gardener writes `azure:///<location>/<vm>`, the cloud-controller-manager
    `azure:///subscriptions/…/virtualMachines/<vm>`: a VM of ours has a name that no other has. Azure takes names, and
    answers with them, in any case."""
    return f"azure/{provider_id.rsplit('/', 1)[-1].lower()}"


def _indexed(provider_id: str) -> str:
    """The VM's name alone: of the two spellings, one has a location and the other has none. Visibility is asked for
    whole values, so whoever has only the other one could not ask for one with a location."""
    return f"azure:///{provider_id.rsplit('/', 1)[-1].lower()}"


def _at(provider_id: str, spec: Mapping[str, Any]) -> str:
    location = spec.get("location")
    return f"azure:///{location}/{provider_id.rsplit('/', 1)[-1].lower()}" if location else provider_id


IDS = ProviderIDs("azure", _key, _indexed, _at)
