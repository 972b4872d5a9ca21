"""The watch of a cloud account between two listings: a silent cloud is noticed soon, one that refuses is not called
silent."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from activitykit import Attempts, attempts, running
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError

from activities.cloud import instances
from activities.cloud.instances import PROBE_EVERY, InstancesActivities
from drivers.base import (
    GetAccountRequest,
    GetMachineStatusRequest,
    ListMachinesRequest,
    ListMachinesResponse,
    MachineStatus,
    VmState,
)
from drivers.errors import DriverError
from resources import attributes as at
from resources.calls.cloud import InstancesInput
from resources.cluster.accounts import Account
from resources.cluster.news import CloudReachability
from resources.errors import ErrorClass
from resources.machine.facts import VmFacts
from resources.machine.manifest import SecretRef

__all__ = ["attempts", "running"]  # fixtures

NOW = datetime(2030, 2, 3, tzinfo=UTC)
LISTING = timedelta(seconds=60)
VM = MachineStatus(provider_id="aws:///eu-west-1/i-1", node_name="n-1", name="m-1", state=VmState.RUNNING)


class Cloud:
    """One VM. A frozen cloud takes calls and answers none of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.vms = [VM]
        self.account = ""
        self.frozen = False
        self.error: ErrorClass | None = None
        self.thawed = threading.Event()

    def list_machines(self, _: ListMachinesRequest) -> ListMachinesResponse:
        self._answer("list")
        return ListMachinesResponse(machines=[vm.model_copy(update={"account_id": self.account}) for vm in self.vms])

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        self._answer("read")
        if request.provider_id != VM.provider_id:
            raise DriverError(ErrorClass.NOT_FOUND, "no such VM")
        return VM

    def get_account(self, _: GetAccountRequest) -> str:
        return self.account

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if self.frozen:
            self.thawed.wait(60)
        if self.error:
            raise DriverError(self.error, "in its own words")


class Watch:
    def __init__(self, attempts: Attempts, cloud: Cloud) -> None:
        self.attempts, self.cloud, self.now = attempts, cloud, NOW
        account = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="credentials"))
        self.input = InstancesInput(cluster="demo", account=account, interval=LISTING, duration=timedelta(hours=1))

    async def attempt(self) -> ApplicationError:
        """Makes the next attempt, as late as the one before it has said."""
        failure = await self.attempts.fails(
            InstancesActivities(self.attempts.deps).watch_instances, self.input, self.now
        )
        assert failure.next_retry_delay is not None
        self.now += failure.next_retry_delay
        return failure

    @property
    def told(self) -> list[VmFacts]:
        return [argument for name, argument in self.attempts.client.signals if name == "observe_vm"]

    @property
    def news(self) -> list[CloudReachability]:
        return [argument for name, argument in self.attempts.client.signals if name == "cloud_reachability"]


@pytest.fixture
def watch(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    cloud = Cloud()
    monkeypatch.setattr(instances, "PROBE_PATIENCE", 0.3)
    monkeypatch.setattr(attempts.deps, "driver", lambda _: cloud)
    yield Watch(attempts, cloud)
    cloud.thawed.set()


async def test_one_vm_is_read_between_two_listings(watch: Watch) -> None:
    reads = LISTING // PROBE_EVERY
    for _ in range(reads + 2):
        await watch.attempt()
    assert watch.cloud.calls == ["list", *["read"] * reads, "list"]
    assert [n.reachable for n in watch.news] == [True]


async def test_a_cloud_that_is_silent_between_two_listings(watch: Watch) -> None:
    """Its outage counts from its last answer, which was to a read; when it is over, all is listed."""
    for _ in range(3):
        await watch.attempt()
    last = watch.now - PROBE_EVERY
    watch.cloud.frozen = True
    failure = await watch.attempt()
    assert "no answer within 0.3 s" in failure.message
    assert watch.news[-1].reachable is False
    assert watch.news[-1].since == last
    await watch.attempt()
    assert len(watch.news) == 2
    assert watch.now - last <= 3 * PROBE_EVERY  # by attempts; each takes PROBE_PATIENCE more
    watch.cloud.frozen = False
    watch.cloud.thawed.set()
    watch.cloud.calls.clear()
    await watch.attempt()
    assert watch.cloud.calls == ["read", "list"]
    assert watch.news[-1].reachable


@pytest.mark.parametrize(
    ("error", "calls", "reachable"),
    [
        (ErrorClass.THROTTLED, ["read"], True),  # it is busy: it answers
        (ErrorClass.AUTH, ["read", "list"], False),  # what it says is the listing's to judge
        (ErrorClass.TRANSIENT, ["read"], False),
    ],
)
async def test_what_a_read_is_answered(watch: Watch, error: ErrorClass, calls: list[str], reachable: bool) -> None:
    await watch.attempt()
    watch.cloud.calls.clear()
    watch.cloud.error = error
    await watch.attempt()
    assert watch.cloud.calls == calls
    assert watch.news[-1].reachable is reachable


class Listed:
    """Stands in place of visibility: two machines of the class, one of another, each with its VM."""

    def __init__(self, *machines: tuple[str, str, str]) -> None:
        self.machines = machines

    async def __call__(self, query: str) -> AsyncIterator[SimpleNamespace]:
        for name, vm, machine_class in self.machines:
            said = [SearchAttributePair(at.PROVIDER_ID, vm), SearchAttributePair(at.CLASS, machine_class)]
            yield SimpleNamespace(id=f"machine/demo/{name}", typed_search_attributes=TypedSearchAttributes(said))


GONE_VM, OTHERS_VM = "aws:///eu-west-1/i-2", "aws:///eu-west-1/i-3"


async def test_a_watch_that_was_lost_with_all_that_it_knew(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines of its classes are told of their VMs once more, even of one that is gone; none a second time."""
    listed = Listed(("m-1", VM.provider_id, "big"), ("m-2", GONE_VM, "big"), ("m-3", OTHERS_VM, "small"))
    monkeypatch.setattr(watch.attempts.client, "list_workflows", listed, raising=False)
    watch.cloud.account = "1"
    watch.input = watch.input.model_copy(update={"remember": ["big"]})
    for _ in range(2):
        await watch.attempt()
        watch.now += LISTING
    assert [(f.provider_id, f.state) for f in watch.told] == [(VM.provider_id, "running"), (GONE_VM, "gone")]
    told = [argument for name, argument in watch.attempts.client.signals if name == "vms_told"]
    assert [(t.told, t.owner) for t in told] == [({}, "1")]


async def test_a_vm_is_remembered_by_its_drivers_own_spelling(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Visibility has an Azure VM's name alone, and a machine takes news only of the VM as its driver names it."""
    listed = Listed(("m-2", "azure:///vm-2", "big"))
    monkeypatch.setattr(watch.attempts.client, "list_workflows", listed, raising=False)
    watch.cloud.account = "1"
    account = Account(provider="Azure", region="westeurope/g", secret_ref=SecretRef(name="credentials"))
    watch.input = watch.input.model_copy(update={"remember": ["big"], "account": account})
    await watch.attempt()
    assert [(f.provider_id, f.state) for f in watch.told] == [("azure:///westeurope/vm-2", "gone")]


async def test_vms_of_which_nobody_knows_that_they_were_in_this_account(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Secret opens another account now, or the account has lost all its VMs: an empty list does not say which."""
    listed = Listed(("m-2", GONE_VM, "big"))
    monkeypatch.setattr(watch.attempts.client, "list_workflows", listed, raising=False)
    watch.input = watch.input.model_copy(update={"remember": ["big"]})
    watch.cloud.vms = []
    await watch.attempt()
    assert watch.told == []
    assert watch.cloud.calls == ["list"]
