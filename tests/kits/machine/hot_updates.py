"""A class as a workflow and its machines on a `Stack`, as an operator changes the one and looks at the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import yaml
from lifekit import DEADLINE, Stack, asked, eventually, examples
from temporalio.client import WorkflowHandle

from drivers.aws.calls import Ec2
from resources.machine.state import MachineState, Phase
from resources.machine_class.state import ClassState
from resources.manifests import MachineClass
from resources.names import TAG_UID, class_id, machine_id
from resources.timings import Timings
from simulator.frame import Call
from starter.sdk.client import HostlerClient
from starter.sdk.results import Applied
from workflows.machine import MachineWorkflow
from workflows.machine_class import MachineClassWorkflow

MUST = {"kubernetes.io/cluster/shoot--hostler--demo": "1", "kubernetes.io/role/node": "1"}
COST_A = {"tags": {**MUST, "cost": "a", "team": "x"}, "vmTags": None, "nicTags": None, "diskTags": None}
"""The same tags on every resource."""
COST_B = {"tags": {**MUST, "cost": "b"}}
"""One tag changed, one removed."""
A, B = {"cost": "a", "team": "x"}, {"cost": "b"}
"""What a resource carries then, besides its must-tags."""
CALM = Timings.fast().model_copy(update={"heartbeat": timedelta(seconds=30)})
"""Timings where calls are counted: a heartbeat that is late on a busy machine would repeat them."""
PATIENT = CALM.model_copy(update={"retry": {}})
"""Production's waits after a failure, which nobody waits for here."""


@dataclass
class Hot:
    stack: Stack
    timings: Timings = CALM
    manifest: MachineClass = field(default_factory=lambda: examples().classes[0])

    def __post_init__(self) -> None:
        self.stack.started[self.id] = self.handle  # it ends with the test

    @property
    def id(self) -> str:
        return class_id(self.stack.cluster, self.manifest.metadata.name)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.stack.client.get_workflow_handle_for(MachineClassWorkflow.run, self.id)

    @property
    def client(self) -> HostlerClient:
        settings = self.stack.settings.model_copy(update={"timings": self.timings})
        return HostlerClient(self.stack.client, settings, requested_by="tester")

    # -- the class ----------------------------------------------------------------------------------------------------

    def changed(self, **fields: Any) -> MachineClass:
        """The class with fields of its provider spec replaced; None takes one out."""
        spec = {**self.manifest.provider_spec, **fields}
        return self.manifest.model_copy(update={"provider_spec": {k: v for k, v in spec.items() if v is not None}})

    async def apply(self, **fields: Any) -> Applied:
        self.manifest = self.changed(**fields)
        return (await self.client.apply(self.manifest))[-1]

    async def everywhere(self, **fields: Any) -> ClassState:
        """Applies the change, and waits until every machine says that it has it."""
        await self.apply(**fields)
        return await self.done()

    async def done(self) -> ClassState:
        return await eventually(self.of_class, lambda s: s.updated, "the class on all machines")

    async def of_class(self) -> ClassState:
        return await asked(self.handle, MachineClassWorkflow.describe)

    # -- machines -----------------------------------------------------------------------------------------------------

    async def machines(self, *names: str, **spec: Any) -> list[MachineState]:
        """Machines of the class as it was last applied, once they are Running and the class knows it."""
        await self.client.apply(self.manifest, *(examples(name, **spec).machines[0] for name in names))
        for name in names:
            self.stack.started[name] = self.stack.client.get_workflow_handle_for(
                MachineWorkflow.run, machine_id(self.stack.cluster, name)
            )
        running = [await self.stack.phase(Phase.RUNNING, name) for name in names]
        await eventually(self.of_class, lambda s: {*names} <= {*s.users} and s.updated, "all users known")
        return running

    async def machine(self, **spec: Any) -> MachineState:
        (running,) = await self.machines("m-1", **spec)
        return running

    async def failed(self, reason: str, name: str = "m-1") -> MachineState:
        """Waits until its hot update has failed for this reason."""

        def has_failed(s: MachineState) -> bool:
            return s.status.update_trouble is not None and s.status.update_trouble.reason == reason

        return await eventually(lambda: self.stack.state(name), has_failed, f"the update of {name} failed")

    async def mended(self, name: str = "m-1") -> MachineState:
        """Waits until nothing troubles its hot update any longer."""
        return await eventually(
            lambda: self.stack.state(name), lambda s: s.status.update_trouble is None, f"{name} updated after all"
        )

    # -- the cloud ----------------------------------------------------------------------------------------------------

    def of(self, machine: MachineState) -> dict[str, list[str]]:
        """Ids of what carries the machine's uid, by kind: instances, volumes, networkInterfaces."""
        return self.stack.leftovers(machine.uid)

    def all(self, machine: MachineState) -> list[str]:
        return sorted(id for ids in self.of(machine).values() for id in ids)

    def extra(self, resource: str) -> dict[str, str]:
        """The tags without must-tags."""
        return {k: v for k, v in self.stack.tags(resource).items() if not is_must(k)}

    def must(self, resource: str) -> dict[str, str]:
        return {k: v for k, v in self.stack.tags(resource).items() if is_must(k)}

    def each(self, machine: MachineState) -> list[dict[str, str]]:
        """The extra tags of each resource that it has."""
        return [self.extra(id) for id in self.all(machine)]

    def extras(self, machine: MachineState) -> dict[str, list[dict[str, str]]]:
        """The same, by kind."""
        return {kind: [self.extra(id) for id in ids] for kind, ids in self.of(machine).items()}

    def mark(self) -> int:
        """The number of the last call so far."""
        return max((c.n for c in self.stack.calls("*")), default=0)

    def calls(self, since: int, operation: str = "*") -> list[Call]:
        return [c for c in self.stack.calls(operation) if c.n > since]

    def changing(self, since: int) -> list[str]:
        """The changing calls, in order."""
        return [c.operation for c in self.calls(since) if c.mutating]

    # -- what others attach -------------------------------------------------------------------------------------------

    def instance(self, machine: MachineState) -> dict[str, Any]:
        (reservation,) = self.stack.ec2().describe_instances(InstanceIds=[instance_id(machine)])["Reservations"]
        (found,) = reservation["Instances"]
        return dict(found)

    def attach_volume(self, machine: MachineState, device: str, **tags: str) -> str:
        ec2, zone = self.stack.ec2(), self.instance(machine)["Placement"]["AvailabilityZone"]
        made = ec2.create_volume(
            AvailabilityZone=zone, Size=5, VolumeType="gp3", TagSpecifications=_specification("volume", tags)
        )
        ec2.attach_volume(Device=device, InstanceId=instance_id(machine), VolumeId=made["VolumeId"])
        return str(made["VolumeId"])

    def make_nic(self, machine: MachineState, **tags: str) -> str:
        """Makes a NIC in the machine's subnet, attached to nothing."""
        subnet, specification = self.instance(machine)["SubnetId"], _specification("network-interface", tags)
        made = self.stack.ec2().create_network_interface(SubnetId=subnet, TagSpecifications=specification)
        return str(made["NetworkInterface"]["NetworkInterfaceId"])

    def attach_nic(self, machine: MachineState, index: int, **tags: str) -> str:
        nic = self.make_nic(machine, **tags)
        self.stack.ec2().attach_network_interface(
            DeviceIndex=index, InstanceId=instance_id(machine), NetworkInterfaceId=nic
        )
        return nic


def is_must(key: str) -> bool:
    return key == "Name" or key.startswith((*MUST, "hostler.io/"))


def instance_id(machine: MachineState) -> str:
    return str(machine.status.provider_id).rsplit("/", 1)[-1]


def ours(machine: MachineState) -> dict[str, str]:
    """The tag by which a resource is known as the machine's."""
    return {TAG_UID: machine.uid}


def _specification(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]


def reasons(state: MachineState) -> list[str]:
    return [h.reason for h in state.journal]


def said(state: MachineState, reason: str) -> list[str]:
    return [h.message for h in state.journal if h.reason == reason]


class Gate:
    """Holds the driver's first call of an operation, before it is sent, until it is opened."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.reached = threading.Event()
        self._opened = threading.Event()

    def pass_through(self, operation: str) -> None:
        if operation == self.operation and not self.reached.is_set():
            self.reached.set()
            assert self._opened.wait(DEADLINE), f"nobody opened the gate before {operation}"

    async def held(self) -> None:
        async def look() -> bool:
            return self.reached.is_set()

        await eventually(look, what=f"{self.operation} called")

    def open(self) -> None:
        self._opened.set()


@contextmanager
def gate(monkeypatch: pytest.MonkeyPatch, operation: str) -> Iterator[Gate]:
    held, real = Gate(operation), Ec2.call

    def call(self: Ec2, name: str, **parameters: Any) -> Any:
        held.pass_through(name)
        return real(self, name, **parameters)

    monkeypatch.setattr(Ec2, "call", call)
    try:
        yield held
    finally:
        held.open()  # its thread must end before its worker does


def named(manifest: MachineClass, name: str) -> MachineClass:
    return manifest.model_copy(update={"metadata": manifest.metadata.model_copy(update={"name": name})})


def tags(hot: Hot, **changed: str) -> dict[str, Any]:
    """The VM's tags in the examples, some of them changed."""
    return {**hot.manifest.provider_spec["vmTags"], **changed}


def text(manifest: MachineClass) -> str:
    return yaml.safe_dump(manifest.model_dump(mode="json", by_alias=True, exclude_none=True))


async def users(of: Hot, *names: str) -> Any:
    """Waits until the class has these users, and they are done."""
    return await eventually(of.of_class, lambda s: set(s.users) == {*names} and s.updated, f"users {names}")
