"""The cloud accounts of a cluster, and who uses them."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import Field

from resources.base import Key, Name, Value
from resources.clouds import place_of, scope_of
from resources.machine.manifest import SecretRef

FAIRNESS_KEY_BYTES = 64
"""Temporal's own limit; it refuses a command with a longer one."""


class Account(Value):
    """A cloud account as a machine's class names it: what is listed in one go, and shares the cloud's limits."""

    provider: Name
    scope: Name = Field(alias="region")
    """The place within the account, in the words of the provider's spec (resources.clouds.scope_of), such as its
    region. On the wire it keeps the name from when every cloud had regions."""
    secret_ref: SecretRef
    """The Secret with the credentials."""

    @classmethod
    def of(
        cls, provider: str, provider_spec: dict[str, Any], secret_ref: SecretRef, credentials: SecretRef | None
    ) -> Account:
        """The account for a spec. Raises UnknownScope for a spec that does not say where its machines are, or that
        names an unknown cloud: there is nothing that could be listed."""
        return cls(provider=provider, scope=scope_of(provider, provider_spec), secret_ref=credentials or secret_ref)

    @property
    def key(self) -> str:
        where = f"{self.provider}/{self.scope}" if self.scope else self.provider
        return f"{where}/{self.secret_ref.namespace}/{self.secret_ref.name}"

    @property
    def place(self) -> dict[str, Any]:
        """The part of a provider spec that a call needs and that concerns no single machine. Raises UnknownProvider."""
        return place_of(self.provider, self.scope)

    @property
    def fairness_key(self) -> str:
        """`key`, cut to the length that Temporal takes: a share of a task queue is kept for each."""
        if len(self.key.encode()) <= FAIRNESS_KEY_BYTES:
            return self.key
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:16]
        return f"{self.key.encode()[: FAIRNESS_KEY_BYTES - 17].decode(errors='ignore')}~{digest}"


class Announcement(Value):
    """Which account a machine's VM is in. As a signal of the cluster (`announce`) it only comes from older workers."""

    provider_id: Key = Field(alias="providerID")
    machine: Name
    account: Account | None = None
    machine_class: Name = ""


class AccountUse(Value):
    """Which account a class's VMs are in (signal `use_account` of a cluster): one per class, however many machines."""

    machine_class: Name
    """Name of the machines' class; "" if it is not known."""
    account: Account
