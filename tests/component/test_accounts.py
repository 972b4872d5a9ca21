"""Which account is this? In another one no VM is found: nothing is believed gone, and nothing is made there."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activitykit import CONSISTENCY, Attempts, attempts, running
from clouds.drivers import Given, calls, fault
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
from resources.errors import WRONG_ACCOUNT, BegunOperation, ErrorClass, ErrorInfo
from resources.machine.manifest import SecretRef
from workflows.calls import SHORT, failure_of

__all__ = ["attempts", "running"]  # fixtures

SECRET = SecretRef(name="credentials")
KEY = "AWS/eu-west-1/default/credentials"


def exchange(attempts: Attempts, secret: Mapping[str, SecretStr]) -> None:
    """Sets what the Secret holds from now on."""
    folder = attempts.deps.settings.secrets.directory
    assert folder is not None
    for key, value in secret.items():
        (folder / SECRET.namespace / SECRET.name / key).write_text(value.get_secret_value())


def made(attempts: Attempts) -> tuple[Given, Target]:
    """A VM in the account that the Secret opens."""
    given = attempts.given()
    vm = attempts.cloud.driver.create_machine(given.creation())
    attempts.runs(given, vm.provider_id)
    target = attempts.target(given, vm.provider_id)
    return given, target.model_copy(update={"account_id": vm.account_id})


def forget(attempts: Attempts, given: Given) -> None:
    """The VM dies, and its own account no longer knows it."""
    (vm,) = attempts.cloud.living(given.machine.uid)
    attempts.cloud.do(lambda: setattr(attempts.cloud.ec2.settings, "terminated_visible", 0.0))
    attempts.cloud.do(lambda: attempts.cloud.ec2.kill(vm))


def creation(target: Target) -> CreateInput:
    now = datetime.now(UTC)
    return CreateInput(target=target, attempt=1, started=now, deadline=now + timedelta(minutes=20))


def check_words(attempts: Attempts, message: str) -> None:
    for word in (attempts.cloud.account, attempts.cloud.other_account, "default/credentials"):
        assert word in message


def look(attempts: Attempts, target: Target) -> tuple[Any, Any]:
    return MachineActivities(attempts.deps).look_at_vm, VmLookInput(target=target)


def watch(attempts: Attempts, target: Target) -> tuple[Any, Any]:
    since = datetime.now(UTC) - 2 * CONSISTENCY
    return MachineActivities(attempts.deps).watch_machine, StatusInput(target=target, since=since, interval=target.poll)


def update(attempts: Attempts, target: Target) -> tuple[Any, Any]:
    return MachineActivities(attempts.deps).update_machine, UpdateInput(target=target)


def hot_update(attempts: Attempts, target: Target) -> tuple[Any, Any]:
    changed = target.model_copy(update={"provider_spec": {**target.provider_spec, "vmTags": {"cost": "b"}}})
    update = UpdateInput(target=changed, last_applied=target.provider_spec)
    return MachineActivities(attempts.deps).update_machine, update


def delete(attempts: Attempts, target: Target) -> tuple[Any, Any]:
    return MachineActivities(attempts.deps).delete_machine, DeleteInput(target=target)


Ask = Callable[[Attempts, Target], tuple[Callable[[Any], Awaitable[Any]], Any]]


@pytest.mark.parametrize("ask", [look, watch, update, hot_update, delete])
async def test_what_another_account_does_not_know_is_not_gone(attempts: Attempts, ask: Ask) -> None:
    given, target = made(attempts)
    exchange(attempts, attempts.cloud.other_secret)
    method, input = ask(attempts, target)
    for _ in range(2):
        failure = await attempts.fails(method, input)
        assert (failure.type, failure.details[0].error_class) == (WRONG_ACCOUNT, ErrorClass.AUTH)
        assert failure.non_retryable
        check_words(attempts, failure.message)
    assert len(attempts.cloud.living(given.machine.uid)) == 1
    exchange(attempts, attempts.cloud.secret)
    if ask in (watch, delete):
        assert target.provider_id
        assert target.provider_id.rsplit("/", 1)[-1] in await attempts.waits(method, input)
    else:
        await attempts.attempt(method, input)


async def test_in_its_own_account_what_is_gone_is_believed(attempts: Attempts) -> None:
    given, target = made(attempts)
    forget(attempts, given)
    assert (await attempts.attempt(*look(attempts, target))).state == GONE
    output = await attempts.attempt(*watch(attempts, target))
    assert output == StatusOutput(gone=True, message=output.message)
    assert "finds nothing" in await attempts.waits(*delete(attempts, target))
    assert len(calls(attempts.cloud, attempts.cloud.whose)) == 1  # it is remembered


async def test_who_cannot_say_whose_credentials_are_believes_nothing(attempts: Attempts) -> None:
    _, target = made(attempts)
    exchange(attempts, attempts.cloud.other_secret)
    fault(attempts.cloud, attempts.cloud.whose, attempts.cloud.codes[ErrorClass.TRANSIENT], times=None)
    for ask in (look, watch, delete):
        failure = await attempts.fails(*ask(attempts, target))
        assert failure.type == str(ErrorClass.TRANSIENT)


async def test_a_deletion_learns_the_account_of_a_vm_that_was_made_before_it_was_recorded(attempts: Attempts) -> None:
    _, target = made(attempts)
    old = target.model_copy(update={"account_id": ""})
    assert "still there" in await attempts.waits(*delete(attempts, old))
    exchange(attempts, attempts.cloud.other_secret)
    check_words(attempts, (await attempts.fails(*delete(attempts, old))).message)


# -- creating ----------------------------------------------------------------------------------------------------------


def launches(attempts: Attempts) -> int:
    return len([c for c in calls(attempts.cloud, attempts.cloud.create) if c.error is None])


async def test_a_create_call_whose_reply_was_lost_is_not_made_again_in_another_account(attempts: Attempts) -> None:
    given = attempts.given()
    create, input = MachineActivities(attempts.deps).create_machine, creation(attempts.target(given))
    fault(attempts.cloud, attempts.cloud.create, drop=True)
    lost = await attempts.fails(create, input)
    assert attempts.client.beats[-1]["account"] == attempts.cloud.account  # the server had it before the call was made
    told = lost.details[0].account_id
    exchange(attempts, attempts.cloud.other_secret)
    again = await attempts.fails(create, input)  # Temporal's next try, with the heartbeat of the last one
    attempts.heartbeat = ()
    target = input.target.model_copy(update={"account_id": told})
    later = await attempts.fails(create, creation(target))  # the workflow's next try, with what the failure told
    for failure in (again, later):
        assert failure.type == WRONG_ACCOUNT
        check_words(attempts, failure.message)
        assert failure.details[0].account_id in ("", attempts.cloud.account)
    assert launches(attempts) == 1
    exchange(attempts, attempts.cloud.secret)
    output = await attempts.attempt(create, creation(target))
    assert (output.adopted, output.account_id, launches(attempts)) == (True, attempts.cloud.account, 1)


async def test_after_a_refusal_another_account_may_serve(attempts: Attempts) -> None:
    """A Secret that was wrong from the beginning is corrected: nothing was made, so nothing has to be proved."""
    given = attempts.given()
    create, input = MachineActivities(attempts.deps).create_machine, creation(attempts.target(given))
    fault(attempts.cloud, attempts.cloud.create, attempts.cloud.codes[ErrorClass.AUTH])
    refused = await attempts.fails(create, input)
    assert refused.details[0].account_id == ""
    exchange(attempts, attempts.cloud.other_secret)
    output = await attempts.attempt(create, input)
    assert (output.adopted, output.account_id) == (False, attempts.cloud.other_account)


async def test_a_refusal_does_not_undo_what_is_unknown_of_the_call_before(attempts: Attempts) -> None:
    given = attempts.given()
    create, input = MachineActivities(attempts.deps).create_machine, creation(attempts.target(given))
    fault(attempts.cloud, attempts.cloud.create, attempts.cloud.codes[ErrorClass.TRANSIENT])
    await attempts.fails(create, input)
    fault(attempts.cloud, attempts.cloud.create, attempts.cloud.codes[ErrorClass.AUTH])
    refused = await attempts.fails(create, input)
    assert refused.details[0].account_id == attempts.cloud.account


async def test_nothing_is_made_before_the_account_is_known_and_recorded(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, input = MachineActivities(attempts.deps).create_machine, creation(attempts.target(attempts.given()))
    fault(attempts.cloud, attempts.cloud.whose, attempts.cloud.codes[ErrorClass.TRANSIENT])
    assert (await attempts.fails(create, input)).type == str(ErrorClass.TRANSIENT)

    async def refuse(details: Any) -> None:
        raise RPCError("this attempt has timed out", RPCStatusCode.NOT_FOUND, b"")

    with monkeypatch.context() as given_up:
        handle = attempts.client.get_async_activity_handle(task_token=b"")
        given_up.setattr(handle, "heartbeat", refuse)
        given_up.setattr(attempts.client, "get_async_activity_handle", lambda **_: handle)
        await attempts.fails(create, input)
    assert calls(attempts.cloud, attempts.cloud.create) == []
    assert (await attempts.attempt(create, input)).account_id == attempts.cloud.account


async def test_an_attempt_that_fell_silent_tells_its_account_and_its_operation_too() -> None:
    begun = BegunOperation(call="CreateVm", what="VM vm-1", address="vm-1")
    details = [{"message": "the VM is being created", "account": "1", "begun": begun.model_dump(mode="json")}]
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
        update={"account_id": "1", "begun": begun}
    )


async def test_no_vm_is_made_where_the_clusters_others_are_not(attempts: Attempts) -> None:
    """A new machine has no account yet: what counts is where the cluster has its VMs of the same Secret."""
    create, input = MachineActivities(attempts.deps).create_machine, creation(attempts.target(attempts.given()))
    attempts.client.owners = {KEY: attempts.cloud.account}
    exchange(attempts, attempts.cloud.other_secret)
    refused = await attempts.fails(create, input)
    assert (refused.type, refused.details[0].error_class) == (WRONG_ACCOUNT, ErrorClass.AUTH)
    check_words(attempts, refused.message)
    assert "create a class with a new Secret" in refused.message
    assert refused.details[0].account_id == ""  # nothing may have been made there
    assert calls(attempts.cloud, attempts.cloud.create) == []
    exchange(attempts, attempts.cloud.secret)
    output = await attempts.attempt(create, input)
    assert (output.adopted, output.account_id) == (False, attempts.cloud.account)


async def test_of_many_creations_one_asks_where_the_others_are(attempts: Attempts) -> None:
    create, target = MachineActivities(attempts.deps).create_machine, attempts.target(attempts.given())

    def another() -> CreateInput:
        uid = str(uuid.uuid4())
        ref = target.machine.model_copy(update={"name": f"m-{uid[:8]}", "uid": uid})
        return creation(target.model_copy(update={"machine": ref, "token": uid}))

    attempts.client.owners = {KEY: attempts.cloud.account}
    asked = []
    for _ in range(3):
        before = attempts.client.described.count("cluster/demo")
        await attempts.attempt(create, another())
        asked.append(attempts.client.described.count("cluster/demo") - before)
    assert asked[0] > asked[1] == asked[2]
    exchange(attempts, attempts.cloud.other_secret)  # that the former one was right says nothing about this one
    assert (await attempts.fails(create, another())).type == WRONG_ACCOUNT


async def test_where_the_cluster_has_no_vm_any_account_will_do(attempts: Attempts) -> None:
    create, input = MachineActivities(attempts.deps).create_machine, creation(attempts.target(attempts.given()))
    attempts.client.owners = {f"{KEY}-of-another-class": attempts.cloud.account}
    exchange(attempts, attempts.cloud.other_secret)
    assert (await attempts.attempt(create, input)).account_id == attempts.cloud.other_account


@pytest.mark.parametrize("asked", [None, 7.0], ids=["by the policy", "as the cloud asks"])
async def test_machines_that_were_throttled_together_do_not_try_again_together(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, asked: float | None
) -> None:
    """Temporal's own waits of 1, 2, 4, … s are the same for all."""
    _, target = made(attempts)

    def throttled(*_: object, **__: object) -> None:
        raise DriverError(ErrorClass.THROTTLED, "too many calls", retry_after=asked)

    monkeypatch.setattr(attempts.deps, "call", throttled)
    attempts.policy = SHORT
    waits: dict[int, list[float]] = {}
    for _ in range(20):
        for attempts.tried in range(4):
            failure = await attempts.fails(*look(attempts, target))
            assert failure.next_retry_delay is not None
            waits.setdefault(attempts.tried, []).append(failure.next_retry_delay.total_seconds())
    for attempt, found in waits.items():
        usual = asked or 2 ** (attempt - 1)
        assert all(usual <= w <= usual * (1 + SPREAD) for w in found)
        assert max(found) - min(found) > usual * SPREAD / 3


# -- the watch of an account -------------------------------------------------------------------------------------------


def account_watch(attempts: Attempts) -> tuple[Any, InstancesInput]:
    account = Account(provider="AWS", region="eu-west-1", secret_ref=SECRET)
    input = InstancesInput(cluster="demo", account=account, interval=timedelta(seconds=60), duration=timedelta(hours=1))
    return InstancesActivities(attempts.deps).watch_instances, input


def told(attempts: Attempts) -> list[tuple[str, object]]:
    """Signals: their names with what matters."""
    heard = [(name, news) for name, news in attempts.client.signals if name not in ("vms_told", "account_news")]
    return [(name, getattr(news, "state", getattr(news, "reachable", None))) for name, news in heard]


@pytest.mark.parametrize("others", [0, 1], ids=["nothing there", "another VM of the cluster there"])
async def test_a_watch_does_not_take_another_accounts_listing_for_its_own(attempts: Attempts, others: int) -> None:
    given, _ = made(attempts)
    for _ in range(others):
        attempts.cloud.driver.create_machine(attempts.given().creation(secret=attempts.cloud.other_secret))
    assert "1 VM of" in await attempts.waits(*account_watch(attempts))
    exchange(attempts, attempts.cloud.other_secret)
    for _ in range(2):
        check_words(attempts, await attempts.waits(*account_watch(attempts)))
    assert told(attempts) == [("cloud_reachability", True), ("cloud_reachability", False)]
    exchange(attempts, attempts.cloud.secret)
    forget(attempts, given)
    await attempts.waits(*account_watch(attempts))
    assert told(attempts)[2:] == [("observe_vm", GONE), ("cloud_reachability", True)]


async def test_the_next_run_of_a_watch_knows_the_account(attempts: Attempts) -> None:
    """It begins without VMs: another account's VMs are not the cluster's, and finding none is no answer."""
    made(attempts)
    watch, input = account_watch(attempts)
    await attempts.waits(watch, input)
    (kept,) = [news for name, news in attempts.client.signals if name == "vms_told"]
    assert kept.owner == attempts.cloud.account
    attempts.heartbeat = ()
    exchange(attempts, attempts.cloud.other_secret)
    words = await attempts.waits(watch, input.model_copy(update={"owner": kept.owner}))
    assert attempts.cloud.other_account in words
    assert attempts.cloud.account in words
    assert told(attempts)[-1] == ("cloud_reachability", False)


def heard_of_account(attempts: Attempts) -> list[tuple[str, str]]:
    return [(news.opened, news.owner) for name, news in attempts.client.signals if name == "account_news"]


async def test_machines_are_told_once_that_their_secret_opens_another_account(attempts: Attempts) -> None:
    """The next run of the watch, which has not seen their VMs, tells them that it opens theirs again."""
    made(attempts)
    watch, input = account_watch(attempts)
    await attempts.waits(watch, input)
    exchange(attempts, attempts.cloud.other_secret)
    for _ in range(2):
        await attempts.waits(watch, input)
    assert heard_of_account(attempts) == [(attempts.cloud.other_account, attempts.cloud.account)]
    kept = [news for name, news in attempts.client.signals if name == "vms_told"][-1]
    attempts.heartbeat = ()
    input = input.model_copy(update={"owner": kept.owner, "opened": kept.opened})
    await attempts.waits(watch, input)
    exchange(attempts, attempts.cloud.secret)
    for _ in range(2):
        await attempts.waits(watch, input)
    assert heard_of_account(attempts)[1:] == [("", attempts.cloud.account)]


@pytest.mark.parametrize("anew", [False, True], ids=["it saw the VMs", "a new run"])
async def test_an_account_without_a_machines_vm_is_forgotten_though_another_one_is_open(
    attempts: Attempts, anew: bool
) -> None:
    """The last machine is gone, which only its own account could say; the Secret was changed before a listing."""
    made(attempts)
    watch, input = account_watch(attempts)
    await attempts.waits(watch, input)
    exchange(attempts, attempts.cloud.other_secret)
    if anew:
        attempts.heartbeat, input = (), input.model_copy(update={"owner": attempts.cloud.account})
    check_words(attempts, await attempts.waits(watch, input))
    attempts.client.vms.clear()
    assert "0 VMs" in await attempts.waits(watch, input)
    assert told(attempts)[-1] == ("cloud_reachability", True)
    kept = [news for name, news in attempts.client.signals if name == "vms_told"][-1]
    assert (kept.owner, kept.opened) == ("", "")


async def test_another_cause_is_told_and_the_same_is_not(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Secret that cannot be read is a cause, too."""
    made(attempts)
    await attempts.waits(*account_watch(attempts))
    exchange(attempts, attempts.cloud.other_secret)
    for _ in range(2):
        await attempts.waits(*account_watch(attempts))

    async def unreadable(provider: str, secret_ref: SecretRef) -> Mapping[str, SecretStr]:
        raise KubeError(500, "InternalError", "etcd is away")

    monkeypatch.setattr(attempts.deps, "credentials", unreadable)
    for _ in range(2):
        assert "etcd is away" in await attempts.waits(*account_watch(attempts))
    said = [news for name, news in attempts.client.signals if name == "cloud_reachability"]
    assert [(bool(news.message), news.unasked) for news in said] == [(False, False), (True, False), (True, True)]
    assert said[2].words == "cannot be asked: its Secret cannot be read: etcd is away"


async def test_a_watch_that_was_begun_before_accounts_were_told_learns_anew(attempts: Attempts) -> None:
    made(attempts)
    attempts.heartbeat = ({"message": "", "known": {"aws:///eu-west-1/i-0123456789abcdef0": "lost"}, "told": {}},)
    exchange(attempts, attempts.cloud.other_secret)
    assert "0 VMs" in await attempts.waits(*account_watch(attempts))
    exchange(attempts, attempts.cloud.secret)
    assert "1 VM of" in await attempts.waits(*account_watch(attempts))
    assert told(attempts) == [("cloud_reachability", True)]


# -- credentials that are rotated meanwhile ----------------------------------------------------------------------------


async def test_a_secret_that_was_rotated_between_reading_and_calling_is_read_again(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = made(attempts)
    rotated = attempts.cloud.rotate("AKIAHOSTLERROTATED03")
    old, read = attempts.cloud.secret, []

    async def credentials(provider: str, secret_ref: SecretRef) -> Mapping[str, SecretStr]:
        read.append(secret_ref)
        return rotated if len(read) == 2 else old

    monkeypatch.setattr(attempts.deps, "credentials", credentials)
    assert (await attempts.attempt(*look(attempts, target))).account_id == attempts.cloud.account
    failure = await attempts.fails(*look(attempts, target))  # read twice, refused once: they are the same
    assert (failure.type, len(read)) == (str(ErrorClass.AUTH), 4)
