"""A running simulator with its Compute Engine, and Google's own clients connected to it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from google.api_core.client_options import ClientOptions
from google.auth.credentials import Credentials
from google.cloud import compute_v1 as compute
from google.oauth2 import service_account
from simulated.support import served

from simulator.clouds.gce import Gce, World
from simulator.frame import Call, FaultRule, Frame, Lag

T = TypeVar("T")

PROJECT, OTHER_PROJECT = World().projects
ZONE = World().zones[0]
IMAGE = "projects/debian-cloud/global/images/family/debian-12"


def key_credentials(n: int = 0, **changes: Any) -> service_account.Credentials:
    """Credentials of a service account's key, as the SDK makes them of the file that a person downloads."""
    info = {**json.loads(World().service_accounts[n].key_file()), **changes}
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    return service_account.Credentials.from_service_account_info(info, scopes=scopes)


def instance(name: str, **changes: Any) -> compute.Instance:
    """What a driver would insert."""
    disk = compute.AttachedDiskInitializeParams(
        source_image=IMAGE, disk_size_gb=30, disk_type=f"zones/{ZONE}/diskTypes/pd-ssd", labels={"l": "1"}
    )
    fields = {
        "name": name,
        "machine_type": f"zones/{ZONE}/machineTypes/n2-standard-4",
        "can_ip_forward": True,
        "labels": {"cluster": "c1"},
        "tags": compute.Tags(items=["node"]),
        "disks": [compute.AttachedDisk(boot=True, auto_delete=True, device_name="boot", initialize_params=disk)],
        "network_interfaces": [
            compute.NetworkInterface(
                subnetwork="regions/europe-west1/subnetworks/nodes",
                alias_ip_ranges=[compute.AliasIpRange(ip_cidr_range="/24", subnetwork_range_name="pods")],
            )
        ],
        "metadata": compute.Metadata(items=[compute.Items(key="user-data", value="#cloud-config")]),
        "service_accounts": [compute.ServiceAccount(email="default", scopes=["cloud-platform"])],
    }
    return compute.Instance(**{**fields, **changes})


def spot(action: str = "STOP") -> compute.Scheduling:
    return compute.Scheduling(provisioning_model="SPOT", instance_termination_action=action)


@dataclass
class GceStack:
    """The simulated Compute Engine, seen by a caller of one project and from behind the curtain."""

    gce: Gce
    url: str
    loop: asyncio.AbstractEventLoop

    def __post_init__(self) -> None:
        self.empty = self.do(self.gce.dump)

    def do(self, work: Callable[[], T]) -> T:
        """Runs it where the simulator runs."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def client(self, kind: Callable[..., Any], credentials: Credentials | None = None) -> Any:
        options = ClientOptions(api_endpoint=self.url)
        return kind(credentials=credentials or key_credentials(), client_options=options)

    @cached_property
    def instances(self) -> Any:
        return self.client(compute.InstancesClient)

    @cached_property
    def disks(self) -> Any:
        return self.client(compute.DisksClient)

    @cached_property
    def operations(self) -> Any:
        return self.client(compute.ZoneOperationsClient)

    # -- calls

    def begin(self, inserted: compute.Instance, request_id: str = "", **more: Any) -> compute.Operation:
        request = compute.InsertInstanceRequest(
            project=PROJECT, zone=ZONE, instance_resource=inserted, request_id=request_id or str(uuid.uuid4())
        )
        return self.instances.insert_unary(request, **more)

    def wait(self, operation: compute.Operation) -> compute.Operation:
        """The operation at its end, however it ends."""
        return self.operations.wait(project=PROJECT, zone=ZONE, operation=operation.name)

    def done(self, operation: compute.Operation) -> compute.Operation:
        ended = self.wait(operation)
        assert not ended.error.errors, ended.error.errors
        return ended

    def insert(self, name: str, **changes: Any) -> compute.Instance:
        """An instance whose insert is over."""
        self.done(self.begin(instance(name, **changes)))
        return self.get(name)

    def get(self, name: str) -> compute.Instance:
        return self.instances.get(project=PROJECT, zone=ZONE, instance=name)

    def call(self, verb: str, name: str, **arguments: Any) -> compute.Operation:
        """A changing call about an instance; its operation has only begun."""
        method = getattr(self.instances, f"{verb}_unary")
        return method(project=PROJECT, zone=ZONE, instance=name, **arguments)

    def list(self, **query: Any) -> Any:
        return self.instances.list(compute.ListInstancesRequest(project=PROJECT, zone=ZONE, **query))

    def disk_names(self) -> set[str]:
        return {disk.name for disk in self.disks.list(project=PROJECT, zone=ZONE)}

    # -- the other side

    def fault(self, operation: str, **rule: Any) -> None:
        self.do(lambda: self.gce.frame.faults.append(FaultRule(service="gce", operation=operation, **rule)))

    def calls(self, operation: str = "*") -> list[Call]:
        return self.do(lambda: self.gce.frame.calls("gce", operation))

    def living(self) -> dict[str, str]:
        """Ids of the instances that there are, by name."""
        return self.do(lambda: {vm.name: vm.instance_id for vm in self.gce.instances()})

    def half_way(self) -> None:
        """Whatever has begun has half of its time behind it, as if all of it were long."""

        def half() -> None:
            for operation in self.gce._operations.records.values():
                operation.half = operation.half and operation.begun
            self.gce.settle()

        self.do(half)

    def reset(self) -> None:
        """Nothing was ever made, and nothing goes wrong; an insert takes no time."""

        def reset() -> None:
            self.gce.load(self.empty)
            self.gce.frame.clear_faults()
            self.gce.frame.reset_journal()
            self.gce.frame.lag = Lag()
            self.gce.authenticator.disabled.clear()

        self.do(reset)
        self.set_delays()

    def set_delays(self, insert: float = 0.0, boot: float = 0.0, terminate: float = 0.0, change: float = 0.0) -> None:
        settings = self.gce.settings
        settings.insert_delay, settings.boot_delay = insert, boot
        settings.terminate_delay, settings.change_delay = terminate, change


@contextmanager
def gce_stack() -> Iterator[GceStack]:
    with served(lambda: Gce(Frame())) as (gce, loop, url):
        yield GceStack(gce, url, loop)
