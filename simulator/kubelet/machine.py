"""The machine as its kubelet sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Vm(Protocol):
    """What a kubelet needs of a cloud's VM; simulator.clouds has them."""

    @property
    def instance_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def private_dns_name(self) -> str: ...
    @property
    def private_ip(self) -> str: ...
    @property
    def zone(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def provider_id(self) -> str: ...
    @property
    def instance_type(self) -> str: ...
    @property
    def user_data(self) -> bytes: ...


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
