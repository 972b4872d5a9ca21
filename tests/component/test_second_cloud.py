"""A cloud that is unlike the first one, through the activities: nothing outside its own package knows that."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from activitykit import CLUSTER, Attempts, new_attempts
from clouds.drivers import FakeCloud, fake
from fakecloud import FAKE
from temporalio.exceptions import ApplicationErrorCategory

from activities.cloud.instances import InstancesActivities
from activities.cloud.listing import ListingActivities
from activities.cloud.machine import MachineActivities
from activities.temporal.uses import UsesActivities
from planners.machine.creation import still_making
from resources.calls.cloud import CreateInput, InstancesInput
from resources.calls.machine import Target
from resources.cluster.accounts import Account
from resources.cluster.state import UsesInput
from resources.errors import IN_PROGRESS, NOT_WANTED
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, OperationState, Phase
from resources.orphans import ListVmsInput

ACCOUNT = Account(provider=FAKE.name, scope="", secret_ref=SecretRef(name="credentials"))
LISTING = timedelta(seconds=60)


@pytest.fixture
async def attempts(tmp_path: Path) -> AsyncIterator[Attempts]:
    with fake() as cloud:
        async with new_attempts(cloud, tmp_path) as attempts:
            yield attempts


def creation(target: Target) -> CreateInput:
    now = datetime.now(UTC)
    return CreateInput(target=target, attempt=1, started=now, deadline=now + timedelta(minutes=20), class_name="c1")


def kinds(cloud: Any, uid: str) -> dict[str, int]:
    return {kind: len(ids) for kind, ids in cloud.left(uid).items()}


# -- creating ----------------------------------------------------------------------------------------------------------


async def test_a_creation_that_takes_longer_than_its_activity_may(attempts: Attempts) -> None:
    """This is no failure: the same call goes on with what is there, and nothing is made twice."""
    cloud: FakeCloud = attempts.cloud  # type: ignore[assignment]
    cloud.api.slow = True
    given, create = attempts.given(), MachineActivities(attempts.deps).create_machine
    uid, target = given.machine.uid, attempts.target(given)
    for what, there in (("network interface nic-", {"nic": 1}), ("VM vm-1", {"nic": 1, "vm": 1, "disk": 1})):
        failure = await attempts.fails(create, creation(target))
        assert (failure.type, failure.non_retryable, failure.category) == (
            IN_PROGRESS,
            True,
            ApplicationErrorCategory.BENIGN,
        )
        assert failure.message.startswith(what)
        info = failure.details[0]
        assert (info.account_id, kinds(cloud, uid)) == ("one", there)
        cloud.api.finish()
    waits = still_making(info, datetime.now(UTC), Phase.PENDING)
    assert (waits.phase, waits.state, waits.reason) == (Phase.PENDING, OperationState.PROCESSING, "CreatingVM")
    output = await attempts.attempt(create, creation(target))
    assert (output.provider_id, output.account_id) == ("fake:///vm-1", "one")
    assert kinds(cloud, uid) == {"nic": 1, "vm": 1, "disk": 1}
    assert attempts.client.started == [f"cluster/{CLUSTER}"]  # with the account, which is watched from now on


async def test_a_machine_that_leaves_while_its_vm_is_being_made(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud: FakeCloud = attempts.cloud  # type: ignore[assignment]
    cloud.api.slow, make = True, cloud.api._CreateNic

    def made_and_unwanted(account: str, name: str) -> Any:
        attempts.client.phase = str(Phase.TERMINATING)
        return make(account, name)

    monkeypatch.setattr(cloud.api, "_CreateNic", made_and_unwanted)
    given = attempts.given()
    failure = await attempts.fails(MachineActivities(attempts.deps).create_machine, creation(attempts.target(given)))
    assert failure.type == NOT_WANTED
    assert "network interface" in failure.message
    assert failure.details[0].account_id == "one"  # there is something to look for
    assert kinds(cloud, given.machine.uid) == {"nic": 1}


async def test_a_class_that_does_not_say_where_its_machines_are(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it there would be neither a watch nor a sweep, and nobody would know why."""
    classes = {
        "here": ClassSnapshot(name="here", provider=FAKE.name, provider_spec={}, secret_ref=ACCOUNT.secret_ref),
        "where": ClassSnapshot(name="where", provider="AWS", provider_spec={}, secret_ref=ACCOUNT.secret_ref),
        "what": ClassSnapshot(name="what", provider="Nobody's", provider_spec={}, secret_ref=ACCOUNT.secret_ref),
    }
    uses = UsesActivities(attempts.deps)

    async def users(_: UsesInput) -> dict[str, bool]:
        return dict.fromkeys(classes, True)

    async def asked(handle: Any, query: str, kind: type) -> ClassSnapshot:
        return classes[handle.id.rsplit("/", 1)[-1]]

    monkeypatch.setattr(uses, "_users", users)
    monkeypatch.setattr(uses, "_ask", asked)
    found = await attempts.attempt(uses.find_uses, UsesInput(cluster=CLUSTER))
    assert [(u.machine_class, u.account) for u in found.uses] == [("here", ACCOUNT)]
    assert "providerSpec.region is missing" in found.unplaced["where"]
    assert "has no driver" in found.unplaced["what"]
    assert (sorted(found.unplaced), found.unread) == (["what", "where"], [])


# -- watching and sweeping ---------------------------------------------------------------------------------------------


async def test_the_watch_and_the_sweep_of_an_account_without_a_region(attempts: Attempts) -> None:
    cloud: FakeCloud = attempts.cloud  # type: ignore[assignment]
    given = attempts.given()
    made = cloud.driver.create_machine(given.creation())
    swept = await attempts.attempt(
        ListingActivities(attempts.deps).list_vms, ListVmsInput(cluster=CLUSTER, account=ACCOUNT)
    )
    assert [(vm.provider_id, vm.machine, vm.uid, vm.account) for vm in swept.vms] == [
        (made.provider_id, given.machine.name, given.machine.uid, "Fake/default/credentials")
    ]

    watched = InstancesInput(cluster=CLUSTER, account=ACCOUNT, interval=LISTING, duration=timedelta(hours=1))
    watch, now = InstancesActivities(attempts.deps).watch_instances, datetime.now(UTC)
    await attempts.waits(watch, watched, now)
    cloud.api.things[made.provider_id.rsplit("/", 1)[-1]].ends = time.time()
    await attempts.waits(watch, watched, now + LISTING)
    told = [
        (argument.provider_id, argument.state) for name, argument in attempts.client.signals if name == "observe_vm"
    ]
    assert told == [(made.provider_id, "gone")]
