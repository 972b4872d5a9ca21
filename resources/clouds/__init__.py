"""The clouds: what the rest of Hostler must know of each without its driver.

The registry below is the only place that names clouds, except for their own packages (tests/unit/test_house.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from resources.base import cut
from resources.clouds import aws, azure, gcp
from resources.clouds.base import (
    Provider,
    ProviderIDs,
    ProviderSpec,
    Simulation,
    TagRules,
    Tags,
    UnknownScope,
)
from resources.clouds.domain import FailureDomain

__all__ = [
    "PROVIDERS",
    "FailureDomain",
    "Provider",
    "ProviderIDs",
    "ProviderSpec",
    "Simulation",
    "TagRules",
    "Tags",
    "UnknownProvider",
    "UnknownScope",
    "annotation_mistakes",
    "at_place",
    "has_place",
    "imaged_as",
    "in_domain",
    "indexed",
    "launch_annotations",
    "place_of",
    "provider_key",
    "provider_of",
    "scope_of",
    "simulations",
]

PROVIDERS: dict[str, Provider] = {p.name: p for p in (aws.PROVIDER, azure.PROVIDER, gcp.PROVIDER)}


class UnknownProvider(UnknownScope):
    """The cloud is unknown; the message names the known ones."""


def provider_of(name: str) -> Provider:
    """The provider of this name. Raises UnknownProvider."""
    found = PROVIDERS.get(name)
    if found is None:
        known = ", ".join(sorted(PROVIDERS))
        raise UnknownProvider(f"provider {cut(repr(name), 100)} has no driver; there are drivers for {known}")
    return found


def simulations() -> dict[str, Simulation]:
    """The clouds that can be simulated, by their name in the settings (`clouds.<name>`)."""
    return {p.name.lower(): p.simulation for p in PROVIDERS.values() if p.simulation is not None}


def launch_annotations(provider: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """Those of a node template's annotations that this cloud's driver reads at a launch."""
    known = PROVIDERS[provider].annotations if provider in PROVIDERS else {}
    return {key: value for key, value in annotations.items() if key in known}


def annotation_mistakes(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Keys of a node template's annotations that some cloud's driver reads and cannot, and why. Which cloud's machines
    they are, the class says, which may not be known yet."""
    found = []
    for key, read in ((k, r) for provider in PROVIDERS.values() for k, r in provider.annotations.items()):
        try:
            read(annotations.get(key, ""))
        except ValueError as e:
            found.append((key, str(e)))
    return found


def scope_of(provider: str, spec: dict[str, Any]) -> str:
    """Where the machines of a provider spec are, as one text. Raises UnknownScope."""
    return provider_of(provider).spec.scope(spec)


def place_of(provider: str, scope: str) -> dict[str, Any]:
    """The part of a provider spec that a scope is made of. Raises UnknownProvider."""
    return provider_of(provider).spec.place(scope)


def in_domain(provider: str, spec: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The provider spec of a machine in the failure domain with these fields; without any it is the class's own. One
    that cannot be read stays as it is: whoever makes a VM says what is wrong with it."""
    if not fields:
        return dict(spec)
    return _changed(provider, spec, lambda read: read.in_domain(fields))


def imaged_as(provider: str, spec: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The provider spec with the boot images of the other one. Where either cannot be read, it stays as it is."""
    return _changed(provider, spec, lambda read: read.imaged_as(type(read).model_validate(other)))


def _changed(provider: str, spec: Mapping[str, Any], change: Callable[[ProviderSpec], ProviderSpec]) -> dict[str, Any]:
    try:
        changed = change(provider_of(provider).spec.model_validate(spec))
    except (UnknownProvider, ValidationError):
        return dict(spec)
    return changed.model_dump(mode="json", by_alias=True, exclude_unset=True)


def provider_key(provider_id: str) -> str:
    """What identifies a VM in a providerID, whoever wrote it. One with an unknown scheme is taken as it is."""
    return _ids(provider_id).key(provider_id)


def indexed(provider_id: str) -> str:
    """The spelling of a VM in HostlerProviderID: the only one by which visibility can be asked for it."""
    return _ids(provider_id).indexed(provider_id)


def has_place(provider_id: str) -> bool:
    """Whether the spelling in HostlerProviderID is the driver's, which says where the VM is."""
    return _ids(provider_id).at is None


def at_place(provider_id: str, provider_spec: Mapping[str, Any]) -> str:
    """The driver's spelling of what stands in HostlerProviderID, of a VM at the place of this spec."""
    ids = _ids(provider_id)
    return ids.at(provider_id, provider_spec) if ids.at is not None else provider_id


def _ids(provider_id: str) -> ProviderIDs:
    scheme = provider_id.partition("://")[0]
    registered = next((p.ids for p in PROVIDERS.values() if p.ids.scheme == scheme), None)
    return registered or ProviderIDs(scheme)
