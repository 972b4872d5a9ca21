"""The machine as its kubelet sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Power(StrEnum):
    """What a VM's state means to its kubelet, whatever the cloud calls it."""

    OFF = "off"
    """Nothing runs on it: not yet, or no longer. Its disk stays."""
    ON = "on"
    GONE = "gone"
    """For good, with its disk."""


class Vm(Protocol):
    """What a kubelet needs of a cloud's VM; simulator.clouds has them."""

    @property
    def instance_id(self) -> str:
        """The id that no other VM of its cloud has at any time, such as AWS's i-…, Azure's vmId, GCE's number."""

    @property
    def name(self) -> str:
        """The name that its owner gave it, or empty; rules of knobs match it."""

    @property
    def power(self) -> Power: ...
    @property
    def private_dns_name(self) -> str:
        """The host name, under which its kubelet registers the Node."""

    @property
    def private_ip(self) -> str: ...
    @property
    def zone(self) -> str:
        """Empty: the cloud has none, and the Node has no such label."""

    @property
    def region(self) -> str:
        """Empty: the cloud has none, and the Node has no such label."""

    @property
    def provider_id(self) -> str:
        """The providerID as the cloud's controller manager writes it. No VM of any other cloud has it: its scheme names
        the cloud."""

    @property
    def instance_type(self) -> str: ...
    @property
    def size(self) -> Size:
        """What its type gives to the node."""

    @property
    def user_data(self) -> bytes:
        """The user data as the VM reads it: decoded."""


@dataclass(frozen=True)
class Size:
    """What an instance type gives to its node; the defaults are those of a type that nobody described."""

    cpus: int = 2
    memory_mib: int = 8192
    architecture: str = "amd64"
    """In Go's words, as Kubernetes wants it: amd64, arm64."""
    pods: int = 110


@dataclass(frozen=True)
class Registration:
    """How the kubelet presents its machine: what user data and knobs made of it."""

    node_name: str
    provider_id: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
