"""How an activity is told which machine, VM or Node it is called for."""

from __future__ import annotations

from pydantic import Field

from resources.base import Document, Key, Name, Span, Value
from resources.machine.manifest import SecretRef


class MachineRef(Value):
    cluster: Name
    name: Name
    uid: Key


class Target(Value):
    """Everything that a driver call needs to know about a machine. References only, never a secret's value."""

    machine: MachineRef
    provider: Name
    provider_spec: Document
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None = None
    provider_id: Key | None = Field(default=None, alias="providerID")
    token: Key = ""
    """The idempotency token of the attempt."""
    account_id: Key = ""
    """The account that its VM was made in, in the cloud's own words, or may have been made in by a call whose answer is
    not known; "": not known, or there was no such call."""
    consistency: Span
    poll: Span


class StaleNode(Value):
    """A Node that a new VM would have been mistaken for."""

    name: Name
    uid: Key
    provider_id: Key = Field(default="", alias="providerID")
    """The providerID of the VM that it was, where the Node says so."""


class AtNode(Value):
    """Which Node an activity may touch: names are reused, so it must have this providerID, or be this object."""

    machine: MachineRef
    node_name: Name
    provider_id: Key | None = Field(default=None, alias="providerID")
    node_uid: Key = ""
    """The uid of the Node object that the machine knows as its own; "" if it knows none."""
