"""Whether the Secrets that a class names are where a worker will look for them. No value is kept or shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from resources.machine.manifest import USER_DATA, SecretRef
from resources.machine.state import ClassSnapshot
from resources.manifests import MachineClass
from resources.settings import Settings, SettingsError
from resources.userdata import UserDataError, doubts, unpack
from starter.sdk.errors import HostlerError

PATIENCE = 5.0
"""Seconds; nobody waits longer for a warning."""


@dataclass(frozen=True)
class Needed:
    """A Secret that a class names, and what must be in it."""

    namespace: str
    name: str
    key: str = ""
    """"": any."""

    def __str__(self) -> str:
        return f"Secret {self.namespace}/{self.name}"


class CannotLook(Exception):
    """Nobody here can see the source; the message says why."""

    def __init__(self, why: str, *, by_design: bool = False) -> None:
        super().__init__(why)
        self.by_design = by_design
        """Whether nobody here is meant to see it."""


def needed(settings: Settings, of: MachineClass | ClassSnapshot) -> Iterator[Needed]:
    """The Secrets of a class. Its credentials may be missing where the settings have the account's own."""
    yield _of(of.secret_ref, USER_DATA)
    cloud = settings.clouds.get(of.provider.lower())
    if of.credentials_secret_ref and not (cloud and cloud.default_secret):
        yield _of(of.credentials_secret_ref)


def _of(ref: SecretRef, key: str = "") -> Needed:
    return Needed(ref.namespace, ref.name, key)


@dataclass(frozen=True)
class Looked:
    missing: dict[Needed, str]
    """What is missing of each."""
    odd: dict[Needed, str]
    """What is wrong, or looks so, with the user data in one."""


async def missing(settings: Settings, wanted: Iterable[Needed]) -> dict[Needed, str]:
    """What is missing of each. Raises CannotLook where that cannot be seen from here."""
    return (await look(settings, wanted)).missing


async def look(settings: Settings, wanted: Iterable[Needed]) -> Looked:
    """Looks at each in the source. Raises CannotLook where that cannot be seen from here."""
    from starter.sdk.apply.sources import open_source  # the Kubernetes client takes a second to import

    if settings.secrets.source == "environment":
        raise CannotLook("Secrets are in the worker's environment, which only the worker sees", by_design=True)
    found = Looked({}, {})
    try:
        async with asyncio.timeout(PATIENCE), open_source(settings) as source:
            for one in dict.fromkeys(wanted):
                values = await source.read(one.namespace, one.name)
                if values is None:
                    found.missing[one] = f"does not exist in {source.place}"
                elif one.key and one.key not in values:
                    found.missing[one] = f"in {source.place} has no key {one.key!r}"
                elif words := odd(one, values):
                    found.odd[one] = words
    except TimeoutError:
        raise CannotLook(f"no answer within {PATIENCE:g} s") from None
    except (HostlerError, SettingsError) as e:
        raise CannotLook(str(e)) from None
    return found


def odd(one: Needed, values: Mapping[str, bytes]) -> str:
    """What is wrong, or looks so, with the user data among these values; "" where nothing is, or none is needed."""
    if one.key != USER_DATA or USER_DATA not in values:
        return ""
    try:
        return "; ".join(doubts(unpack(values[USER_DATA]).text))
    except UserDataError as e:
        return f"it {e}, and no VM is made with it"
