"""The simulated Compute Engine with the driver connected to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from clouds.drivers import Given, machine
from clouds.gcp import GcpCloud, gcp

from drivers.base import MachineStatus, UpdateMachineResponse


@pytest.fixture(autouse=True)
def no_google_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps out the credentials of the person who runs the tests; nor is a metadata server asked."""
    for name in [n for n in os.environ if n.startswith(("GOOGLE_", "GCE_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", os.devnull)
    monkeypatch.setattr("google.auth.compute_engine._metadata._NO_GCE_CHECK", True)  # read from NO_GCE_CHECK at import


@pytest.fixture(scope="package")
def running() -> Iterator[GcpCloud]:
    with gcp() as cloud:
        yield cloud


@pytest.fixture
def cloud(running: GcpCloud) -> Iterator[GcpCloud]:
    running.reset()
    yield running
    running.reset()


class Vm:
    """A machine with its VM, and what an operator sees and does of it."""

    def __init__(self, cloud: GcpCloud, **spec: Any) -> None:
        self.cloud = cloud
        self.given: Given = machine(cloud, **spec)
        self.made: MachineStatus = cloud.driver.create_machine(self.given.creation())
        self.name = self.given.machine.name

    @property
    def instance(self) -> dict[str, Any]:
        return self.call("instances.get", instance=self.name)

    @property
    def disks(self) -> dict[str, dict[str, Any]]:
        return {d["name"]: d for d in self.call("disks.list").get("items", ())}

    def call(self, operation: str, body: Any = None, **fields: Any) -> dict[str, Any]:
        """A call of somebody else, by another client; a changing one is over when this returns."""
        gce = self.cloud.driver.driver._clients.get(self.cloud.secret)
        answer: dict[str, Any] = gce.call(operation, body, zone="europe-west1-b", **fields)
        if "operationType" in answer:
            gce.finish(operation, answer, "europe-west1-b")
        return answer

    def update(self, **changes: Any) -> UpdateMachineResponse:
        desired = {**self.given.spec, **changes}
        request = self.given.update(
            self.made.provider_id, provider_spec=desired, last_applied_provider_spec=self.given.spec
        )
        response: UpdateMachineResponse = self.cloud.driver.update_machine(request)
        self.given.spec = desired
        return response


@pytest.fixture
def new_vm(cloud: GcpCloud) -> Any:
    return lambda **spec: Vm(cloud, **spec)
