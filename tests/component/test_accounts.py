"""Which account is this? In another one no VM is found: nothing is believed gone, and nothing is made there."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activitykit import CONSISTENCY, Deeds, deeds, running
from driver_clouds import Given, calls, fault
from pydantic import SecretStr
from temporalio.exceptions import ActivityError, RetryState, TimeoutError, TimeoutType
from temporalio.service import RPCError, RPCStatusCode

from activities.boundary import SPREAD
from activities.cloud.instances import GONE, InstancesActivities
from activities.cloud.machine import MachineActivities
from activities.kube.client import KubeError
from drivers.errors import DriverError
from resources.calls.cloud import (
    CreateInput,
    DeleteInput,
    InstancesInput,
    StatusInput,
    StatusOutput,
    UpdateInput,
    VmLookInput,
)
from resources.calls.machine import Target
from resources.cluster.accounts import Account
from resources.errors import WRONG_ACCOUNT, ErrorClass, ErrorInfo
from resources.machine.manifest import SecretRef
from workflows.calls import SHORT, failure_of

__all__ = ["deeds", "running"]  # fixtures

SECRET = SecretRef(name="credentials")
KEY = "AWS/eu-west-1/default/credentials"


def exchange(deeds: Deeds, secret: Mapping[str, SecretStr]) -> None:
    """Sets what the Secret holds from now on."""
    folder = deeds.deps.settings.secrets.directory
    assert folder is not None
    for key, value in secret.items():
        (folder / SECRET.namespace / SECRET.name / key).write_text(value.get_secret_value())


def made(deeds: Deeds) -> tuple[Given, Target]:
    """A VM in the account that the Secret opens."""
    given = deeds.given()
    vm = deeds.cloud.driver.create_machine(given.creation())
    deeds.runs(given, vm.provider_id)
    target = deeds.target(given, vm.provider_id)
    return given, target.model_copy(update={"account_id": vm.account_id})


def forget(deeds: Deeds, given: Given) -> None:
    """The VM dies, and its own account no longer knows it."""
    (vm,) = deeds.cloud.living(given.machine.uid)
    deeds.cloud.do(lambda: setattr(deeds.cloud.ec2.settings, "terminated_visible", 0.0))
    deeds.cloud.do(lambda: deeds.cloud.ec2.kill(vm))


def creation(target: Target) -> CreateInput:
    now = datetime.now(UTC)
    return CreateInput(target=target, attempt=1, started=now, deadline=now + timedelta(minutes=20))


def check_words(deeds: Deeds, message: str) -> None:
    for word in (deeds.cloud.account, deeds.cloud.other_account, "default/credentials"):
        assert word in message


def look(deeds: Deeds, target: Target) -> tuple[Any, Any]:
    return MachineActivities(deeds.deps).look_at_vm, VmLookInput(target=target)


def watch(deeds: Deeds, target: Target) -> tuple[Any, Any]:
    since = datetime.now(UTC) - 2 * CONSISTENCY
    return MachineActivities(deeds.deps).watch_machine, StatusInput(target=target, since=since, interval=target.poll)


def update(deeds: Deeds, target: Target) -> tuple[Any, Any]:
    return MachineActivities(deeds.deps).update_machine, UpdateInput(target=target)


def hot_update(deeds: Deeds, target: Target) -> tuple[Any, Any]:
    changed = target.model_copy(update={"provider_spec": {**target.provider_spec, "vmTags": {"cost": "b"}}})
    update = UpdateInput(target=changed, last_applied=target.provider_spec)
    return MachineActivities(deeds.deps).update_machine, update


def delete(deeds: Deeds, target: Target) -> tuple[Any, Any]:
    return MachineActivities(deeds.deps).delete_machine, DeleteInput(target=target)


Deed = Callable[[Deeds, Target], tuple[Callable[[Any], Awaitable[Any]], Any]]


@pytest.mark.parametrize("deed", [look, watch, update, hot_update, delete])
async def test_what_another_account_does_not_know_is_not_gone(deeds: Deeds, deed: Deed) -> None:
    given, target = made(deeds)
    exchange(deeds, deeds.cloud.other_secret)
    method, input = deed(deeds, target)
    for _ in range(2):
        failure = await deeds.fails(method, input)
        assert (failure.type, failure.details[0].error_class) == (WRONG_ACCOUNT, ErrorClass.AUTH)
        assert failure.non_retryable
        check_words(deeds, failure.message)
    assert len(deeds.cloud.living(given.machine.uid)) == 1
    exchange(deeds, deeds.cloud.secret)
    if deed in (watch, delete):
        assert target.provider_id
        assert target.provider_id.rsplit("/", 1)[-1] in await deeds.waits(method, input)
    else:
        await deeds.attempt(method, input)


async def test_in_its_own_account_what_is_gone_is_believed(deeds: Deeds) -> None:
    given, target = made(deeds)
    forget(deeds, given)
    assert (await deeds.attempt(*look(deeds, target))).state == GONE
    output = await deeds.attempt(*watch(deeds, target))
    assert output == StatusOutput(gone=True, message=output.message)
    assert "finds nothing" in await deeds.waits(*delete(deeds, target))
    assert len(calls(deeds.cloud, deeds.cloud.whose)) == 1  # it is remembered


async def test_who_cannot_say_whose_credentials_are_believes_nothing(deeds: Deeds) -> None:
    _, target = made(deeds)
    exchange(deeds, deeds.cloud.other_secret)
    fault(deeds.cloud, deeds.cloud.whose, deeds.cloud.codes[ErrorClass.TRANSIENT], times=None)
    for deed in (look, watch, delete):
        failure = await deeds.fails(*deed(deeds, target))
        assert failure.type == str(ErrorClass.TRANSIENT)


async def test_a_deletion_learns_the_account_of_a_vm_that_was_made_before_it_was_recorded(deeds: Deeds) -> None:
    _, target = made(deeds)
    old = target.model_copy(update={"account_id": ""})
    assert "still there" in await deeds.waits(*delete(deeds, old))
    exchange(deeds, deeds.cloud.other_secret)
    check_words(deeds, (await deeds.fails(*delete(deeds, old))).message)


# -- creating ----------------------------------------------------------------------------------------------------------


def launches(deeds: Deeds) -> int:
    return len([c for c in calls(deeds.cloud, deeds.cloud.create) if c.error is None])


async def test_a_create_call_whose_reply_was_lost_is_not_made_again_in_another_account(deeds: Deeds) -> None:
    given = deeds.given()
    create, input = MachineActivities(deeds.deps).create_machine, creation(deeds.target(given))
    fault(deeds.cloud, deeds.cloud.create, drop=True)
    lost = await deeds.fails(create, input)
    assert deeds.client.beats[-1]["account"] == deeds.cloud.account  # the server had it before the call was made
    told = lost.details[0].account_id
    exchange(deeds, deeds.cloud.other_secret)
    again = await deeds.fails(create, input)  # Temporal's next try, with the heartbeat of the last one
    deeds.heartbeat = ()
    target = input.target.model_copy(update={"account_id": told})
    later = await deeds.fails(create, creation(target))  # the workflow's next try, with what the failure told
    for failure in (again, later):
        assert failure.type == WRONG_ACCOUNT
        check_words(deeds, failure.message)
        assert failure.details[0].account_id in ("", deeds.cloud.account)
    assert launches(deeds) == 1
    exchange(deeds, deeds.cloud.secret)
    output = await deeds.attempt(create, creation(target))
    assert (output.adopted, output.account_id, launches(deeds)) == (True, deeds.cloud.account, 1)


async def test_after_a_refusal_another_account_may_serve(deeds: Deeds) -> None:
    """A Secret that was wrong from the beginning is corrected: nothing was made, so nothing has to be proved."""
    given = deeds.given()
    create, input = MachineActivities(deeds.deps).create_machine, creation(deeds.target(given))
    fault(deeds.cloud, deeds.cloud.create, deeds.cloud.codes[ErrorClass.AUTH])
    refused = await deeds.fails(create, input)
    assert refused.details[0].account_id == ""
    exchange(deeds, deeds.cloud.other_secret)
    output = await deeds.attempt(create, input)
    assert (output.adopted, output.account_id) == (False, deeds.cloud.other_account)


async def test_a_refusal_does_not_undo_what_is_unknown_of_the_call_before(deeds: Deeds) -> None:
    given = deeds.given()
    create, input = MachineActivities(deeds.deps).create_machine, creation(deeds.target(given))
    fault(deeds.cloud, deeds.cloud.create, deeds.cloud.codes[ErrorClass.TRANSIENT])
    await deeds.fails(create, input)
    fault(deeds.cloud, deeds.cloud.create, deeds.cloud.codes[ErrorClass.AUTH])
    refused = await deeds.fails(create, input)
    assert refused.details[0].account_id == deeds.cloud.account


async def test_nothing_is_made_before_the_account_is_known_and_recorded(
    deeds: Deeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, input = MachineActivities(deeds.deps).create_machine, creation(deeds.target(deeds.given()))
    fault(deeds.cloud, deeds.cloud.whose, deeds.cloud.codes[ErrorClass.TRANSIENT])
    assert (await deeds.fails(create, input)).type == str(ErrorClass.TRANSIENT)

    async def refuse(details: Any) -> None:
        raise RPCError("this attempt has timed out", RPCStatusCode.NOT_FOUND, b"")

    with monkeypatch.context() as given_up:
        handle = deeds.client.get_async_activity_handle(task_token=b"")
        given_up.setattr(handle, "heartbeat", refuse)
        given_up.setattr(deeds.client, "get_async_activity_handle", lambda **_: handle)
        await deeds.fails(create, input)
    assert calls(deeds.cloud, deeds.cloud.create) == []
    assert (await deeds.attempt(create, input)).account_id == deeds.cloud.account


async def test_an_attempt_that_fell_silent_tells_its_account_too() -> None:
    details = [{"message": "the VM is being created", "account": "1"}]
    silent = TimeoutError("no heartbeat", type=TimeoutType.HEARTBEAT, last_heartbeat_details=details)
    failed = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="create_machine",
        activity_id="1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    failed.__cause__ = silent
    assert failure_of(failed).info == ErrorInfo.of(ErrorClass.TRANSIENT, "no answer: no heartbeat").model_copy(
        update={"account_id": "1"}
    )


async def test_no_vm_is_made_where_the_clusters_others_are_not(deeds: Deeds) -> None:
    """A new machine has no account yet: what counts is where the cluster has its VMs of the same Secret."""
    create, input = MachineActivities(deeds.deps).create_machine, creation(deeds.target(deeds.given()))
    deeds.client.owners = {KEY: deeds.cloud.account}
    exchange(deeds, deeds.cloud.other_secret)
    refused = await deeds.fails(create, input)
    assert (refused.type, refused.details[0].error_class) == (WRONG_ACCOUNT, ErrorClass.AUTH)
    check_words(deeds, refused.message)
    assert "create a class with a new Secret" in refused.message
    assert refused.details[0].account_id == ""  # nothing may have been made there
    assert calls(deeds.cloud, deeds.cloud.create) == []
    exchange(deeds, deeds.cloud.secret)
    output = await deeds.attempt(create, input)
    assert (output.adopted, output.account_id) == (False, deeds.cloud.account)


async def test_of_many_creations_one_asks_where_the_others_are(deeds: Deeds) -> None:
    create, target = MachineActivities(deeds.deps).create_machine, deeds.target(deeds.given())

    def another() -> CreateInput:
        uid = str(uuid.uuid4())
        ref = target.machine.model_copy(update={"name": f"m-{uid[:8]}", "uid": uid})
        return creation(target.model_copy(update={"machine": ref, "token": uid}))

    deeds.client.owners = {KEY: deeds.cloud.account}
    asked = []
    for _ in range(3):
        before = deeds.client.described.count("cluster/demo")
        await deeds.attempt(create, another())
        asked.append(deeds.client.described.count("cluster/demo") - before)
    assert asked[0] > asked[1] == asked[2]
    exchange(deeds, deeds.cloud.other_secret)  # that the former one was right says nothing about this one
    assert (await deeds.fails(create, another())).type == WRONG_ACCOUNT


async def test_where_the_cluster_has_no_vm_any_account_will_do(deeds: Deeds) -> None:
    create, input = MachineActivities(deeds.deps).create_machine, creation(deeds.target(deeds.given()))
    deeds.client.owners = {f"{KEY}-of-another-class": deeds.cloud.account}
    exchange(deeds, deeds.cloud.other_secret)
    assert (await deeds.attempt(create, input)).account_id == deeds.cloud.other_account


@pytest.mark.parametrize("asked", [None, 7.0], ids=["by the policy", "as the cloud asks"])
async def test_machines_that_were_throttled_together_do_not_try_again_together(
    deeds: Deeds, monkeypatch: pytest.MonkeyPatch, asked: float | None
) -> None:
    """Temporal's own waits of 1, 2, 4, … s are the same for all."""
    _, target = made(deeds)

    def throttled(*_: object, **__: object) -> None:
        raise DriverError(ErrorClass.THROTTLED, "too many calls", retry_after=asked)

    monkeypatch.setattr(deeds.deps, "call", throttled)
    deeds.policy = SHORT
    waits: dict[int, list[float]] = {}
    for _ in range(20):
        for deeds.tried in range(4):
            failure = await deeds.fails(*look(deeds, target))
            assert failure.next_retry_delay is not None
            waits.setdefault(deeds.tried, []).append(failure.next_retry_delay.total_seconds())
    for attempt, found in waits.items():
        usual = asked or 2 ** (attempt - 1)
        assert all(usual <= w <= usual * (1 + SPREAD) for w in found)
        assert max(found) - min(found) > usual * SPREAD / 3


# -- the watch of an account -------------------------------------------------------------------------------------------


def account_watch(deeds: Deeds) -> tuple[Any, InstancesInput]:
    account = Account(provider="AWS", region="eu-west-1", secret_ref=SECRET)
    input = InstancesInput(cluster="demo", account=account, interval=timedelta(seconds=60), duration=timedelta(hours=1))
    return InstancesActivities(deeds.deps).watch_instances, input


def told(deeds: Deeds) -> list[tuple[str, object]]:
    """Signals: their names with what matters."""
    heard = [(name, news) for name, news in deeds.client.signals if name not in ("vms_told", "account_news")]
    return [(name, getattr(news, "state", getattr(news, "reachable", None))) for name, news in heard]


@pytest.mark.parametrize("others", [0, 1], ids=["nothing there", "another VM of the cluster there"])
async def test_a_watch_does_not_take_another_accounts_listing_for_its_own(deeds: Deeds, others: int) -> None:
    given, _ = made(deeds)
    for _ in range(others):
        deeds.cloud.driver.create_machine(deeds.given().creation(secret=deeds.cloud.other_secret))
    assert "1 VMs" in await deeds.waits(*account_watch(deeds))
    exchange(deeds, deeds.cloud.other_secret)
    for _ in range(2):
        check_words(deeds, await deeds.waits(*account_watch(deeds)))
    assert told(deeds) == [("cloud_reachability", True), ("cloud_reachability", False)]
    exchange(deeds, deeds.cloud.secret)
    forget(deeds, given)
    await deeds.waits(*account_watch(deeds))
    assert told(deeds)[2:] == [("observe_vm", GONE), ("cloud_reachability", True)]


async def test_the_next_run_of_a_watch_knows_the_account(deeds: Deeds) -> None:
    """It begins without VMs: another account's VMs are not the cluster's, and finding none is no answer."""
    made(deeds)
    watch, input = account_watch(deeds)
    await deeds.waits(watch, input)
    (kept,) = [news for name, news in deeds.client.signals if name == "vms_told"]
    assert kept.owner == deeds.cloud.account
    deeds.heartbeat = ()
    exchange(deeds, deeds.cloud.other_secret)
    words = await deeds.waits(watch, input.model_copy(update={"owner": kept.owner}))
    assert deeds.cloud.other_account in words
    assert deeds.cloud.account in words
    assert told(deeds)[-1] == ("cloud_reachability", False)


def heard_of_account(deeds: Deeds) -> list[tuple[str, str]]:
    return [(news.opened, news.owner) for name, news in deeds.client.signals if name == "account_news"]


async def test_machines_are_told_once_that_their_secret_opens_another_account(deeds: Deeds) -> None:
    """The next run of the watch, which has not seen their VMs, tells them that it opens theirs again."""
    made(deeds)
    watch, input = account_watch(deeds)
    await deeds.waits(watch, input)
    exchange(deeds, deeds.cloud.other_secret)
    for _ in range(2):
        await deeds.waits(watch, input)
    assert heard_of_account(deeds) == [(deeds.cloud.other_account, deeds.cloud.account)]
    kept = [news for name, news in deeds.client.signals if name == "vms_told"][-1]
    deeds.heartbeat = ()
    input = input.model_copy(update={"owner": kept.owner, "opened": kept.opened})
    await deeds.waits(watch, input)
    exchange(deeds, deeds.cloud.secret)
    for _ in range(2):
        await deeds.waits(watch, input)
    assert heard_of_account(deeds)[1:] == [("", deeds.cloud.account)]


@pytest.mark.parametrize("anew", [False, True], ids=["it saw the VMs", "a new run"])
async def test_an_account_without_a_machines_vm_is_forgotten_though_another_one_is_open(
    deeds: Deeds, anew: bool
) -> None:
    """The last machine is gone, which only its own account could say; the Secret was changed before a listing."""
    made(deeds)
    watch, input = account_watch(deeds)
    await deeds.waits(watch, input)
    exchange(deeds, deeds.cloud.other_secret)
    if anew:
        deeds.heartbeat, input = (), input.model_copy(update={"owner": deeds.cloud.account})
    check_words(deeds, await deeds.waits(watch, input))
    deeds.client.vms.clear()
    assert "0 VMs" in await deeds.waits(watch, input)
    assert told(deeds)[-1] == ("cloud_reachability", True)
    kept = [news for name, news in deeds.client.signals if name == "vms_told"][-1]
    assert (kept.owner, kept.opened) == ("", "")


async def test_another_cause_is_told_and_the_same_is_not(deeds: Deeds, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Secret that cannot be read is a cause, too."""
    made(deeds)
    await deeds.waits(*account_watch(deeds))
    exchange(deeds, deeds.cloud.other_secret)
    for _ in range(2):
        await deeds.waits(*account_watch(deeds))

    async def unreadable(provider: str, secret_ref: SecretRef) -> Mapping[str, SecretStr]:
        raise KubeError(500, "InternalError", "etcd is away")

    monkeypatch.setattr(deeds.deps, "credentials", unreadable)
    for _ in range(2):
        assert "etcd is away" in await deeds.waits(*account_watch(deeds))
    said = [news.message for name, news in deeds.client.signals if name == "cloud_reachability"]
    assert [bool(s) for s in said] == [False, True, True]
    assert said[2] == "etcd is away"


async def test_a_watch_that_was_begun_before_accounts_were_told_learns_anew(deeds: Deeds) -> None:
    made(deeds)
    deeds.heartbeat = ({"message": "", "known": {"aws:///eu-west-1/i-0123456789abcdef0": "lost"}, "told": {}},)
    exchange(deeds, deeds.cloud.other_secret)
    assert "0 VMs" in await deeds.waits(*account_watch(deeds))
    exchange(deeds, deeds.cloud.secret)
    assert "1 VMs" in await deeds.waits(*account_watch(deeds))
    assert told(deeds) == [("cloud_reachability", True)]


# -- credentials that are rotated meanwhile ----------------------------------------------------------------------------


async def test_a_secret_that_was_rotated_between_reading_and_calling_is_read_again(
    deeds: Deeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = made(deeds)
    rotated = deeds.cloud.rotate("AKIAHOSTLERROTATED03")
    old, read = deeds.cloud.secret, []

    async def credentials(provider: str, secret_ref: SecretRef) -> Mapping[str, SecretStr]:
        read.append(secret_ref)
        return rotated if len(read) == 2 else old

    monkeypatch.setattr(deeds.deps, "credentials", credentials)
    assert (await deeds.attempt(*look(deeds, target))).account_id == deeds.cloud.account
    failure = await deeds.fails(*look(deeds, target))  # read twice, refused once: they are the same
    assert (failure.type, len(read)) == (str(ErrorClass.AUTH), 4)
