"""Prometheus' text format, as far as tests of metrics need it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from machine.stubs import Machines, stubbed
from processes.children import free_port, get
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.testing import WorkflowEnvironment

from activities.census.census import Census
from activities.deps import Deps
from resources import attributes
from resources.converter import data_converter
from resources.settings import Settings, WorkerSettings

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Samples:
    samples = {}
    for line in text.splitlines():
        if found := re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line):
            name, labels, number = found.groups()
            samples[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))] = float(number)
    return samples


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The value of the only series with these labels (and perhaps others); None when there is none."""
    found = [n for (known, having), n in samples.items() if known == name and set(labels.items()) <= having]
    assert len(found) < 2, f"{name} {labels} is ambiguous: {found}"
    return found[0] if found else None


@dataclass
class Metered:
    """A client whose runtime serves metrics."""

    client: Client
    port: int

    def deps(self, prefix: str, interval: timedelta | None = None) -> Deps:
        return Deps(Settings(queue_prefix=prefix, worker=WorkerSettings(census=interval)), self.client)

    async def seen(self) -> Samples:
        return parse((await get(self.port, "/metrics"))[1])

    async def value(self, name: str, **labels: str) -> float | None:
        return value(await self.seen(), name, **labels)


@pytest.fixture
async def metered(temporal: WorkflowEnvironment) -> Metered:
    port = free_port()
    metrics = PrometheusConfig(bind_address=f"127.0.0.1:{port}", counters_total_suffix=True, unit_suffix=True)
    client = await Client.connect(
        temporal.client.service_client.config.target_host,
        namespace=temporal.client.namespace,
        data_converter=data_converter,
        runtime=Runtime(telemetry=TelemetryConfig(metrics=metrics)),
    )
    return Metered(client, port)


@contextlib.asynccontextmanager
async def stubbed_machines(metered: Metered) -> AsyncIterator[tuple[Machines, Census]]:
    async with stubbed(metered.client) as machines:
        yield machines, Census(metered.deps(machines.prefix))


def listed(name: str, deadline: timedelta | None = None, type: str = "MachineWorkflow", **said: str) -> Any:
    """A machine, or a class, as visibility lists it."""
    keys = {"cluster": attributes.CLUSTER, "phase": attributes.PHASE, "reason": attributes.REASON}
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(keys[k], v) for k, v in said.items()]
    if deadline is not None:
        pairs.append(SearchAttributePair(attributes.DEADLINE, NOW + deadline))
    return SimpleNamespace(id=name, workflow_type=type, typed_search_attributes=TypedSearchAttributes(pairs))


NOW = datetime.now(UTC)


class Visibility:
    """A client whose listings are a script: each is the machines of its pages, and perhaps an error after them."""

    def __init__(self, real: Client, *script: list[Any]) -> None:
        self.service_client = real.service_client
        self.script = list(script)
        self.asked = 0

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        self.asked += 1
        for item in self.script.pop(0) if len(self.script) > 1 else self.script[0]:
            if isinstance(item, Exception):
                raise item
            yield item
