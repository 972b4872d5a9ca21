"""The contract of drivers/base.py, on every cloud that has a driver."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from clouds.drivers import CLOUDS, Cloud, Given, calls, delete_until_gone, fake, fault, machine, mark, mutating
from pydantic import SecretStr
from temporalio.common import MetricMeter

from activities.metered import MeteredDriver
from drivers.base import (
    DriverSettings,
    Evidence,
    GetVolumeIDsRequest,
    Making,
    NameTaken,
    UpdateMachineResponse,
    VmState,
)
from drivers.errors import DriverError, IdempotencyMismatch
from resources.errors import Code, ErrorClass


@pytest.fixture(scope="module", params=sorted(CLOUDS))
def running(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with CLOUDS[request.param]() as cloud:
        yield cloud


@pytest.fixture
def cloud(running: Cloud, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    row = request.node.originalname
    if row in running.refuses:
        pytest.skip(f"{running.provider}: {running.refuses[row]}")
    running.reset()
    yield running
    running.reset()


def test_what_a_cloud_refuses_is_a_row_of_the_contract(cloud: Cloud) -> None:
    assert not [row for row in cloud.refuses if row not in globals()]


# -- creating ----------------------------------------------------------------------------------------------------------


def test_create_answers_with_the_vm_and_status_reads_the_same(cloud: Cloud) -> None:
    cloud.set_delays(boot=60.0, terminate=0.0)
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    assert made.state is VmState.PENDING
    assert made.node_name
    assert (made.uid, made.name) == (given.machine.uid, given.machine.name)
    assert made.addresses
    assert cloud.driver.get_machine_status(given.status(made.provider_id)) == made


def test_the_same_token_never_makes_a_second_vm(cloud: Cloud) -> None:
    given = machine(cloud)
    ids = {cloud.driver.create_machine(given.creation()).provider_id for _ in range(3)}
    assert len(ids) == 1
    assert len(cloud.living(given.machine.uid)) == 1


def test_concurrent_creations_with_one_token_make_one_vm(cloud: Cloud) -> None:
    given = machine(cloud)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: cloud.driver.create_machine(given.creation()), range(4)))
    assert len({m.provider_id for m in made}) == 1
    assert len(cloud.living(given.machine.uid)) == 1


def test_a_lost_reply_is_transient_and_the_repeated_call_finds_its_vm(cloud: Cloud) -> None:
    given = machine(cloud)
    fault(cloud, cloud.create, drop=True)
    with pytest.raises(DriverError) as lost:
        cloud.driver.create_machine(given.creation())
    assert lost.value.error_class is ErrorClass.TRANSIENT
    assert [c.operation for c in calls(cloud, cloud.create)] == [cloud.create]  # the driver itself tries once
    made = cloud.driver.create_machine(given.creation())
    assert [made.provider_id.rsplit("/", 1)[-1]] == cloud.living(given.machine.uid)


def test_another_request_with_the_same_token_is_a_mismatch(cloud: Cloud) -> None:
    given = machine(cloud)
    cloud.driver.create_machine(given.creation())
    with pytest.raises(IdempotencyMismatch) as mismatch:
        cloud.driver.create_machine(given.creation(user_data=SecretStr("#cloud-config\nother: true\n")))
    assert not mismatch.value.terminated
    assert len(cloud.living(given.machine.uid)) == 1


def test_the_token_of_a_dead_vm_is_a_mismatch_that_says_so(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    delete_until_gone(given, made.provider_id)
    with pytest.raises(IdempotencyMismatch) as mismatch:
        cloud.driver.create_machine(given.creation())
    assert mismatch.value.terminated
    assert cloud.living(given.machine.uid) == []


def test_a_failed_creation_may_be_repeated_with_its_token(cloud: Cloud) -> None:
    given = machine(cloud)
    fault(cloud, cloud.create, cloud.codes[ErrorClass.CAPACITY])
    with pytest.raises(DriverError):
        cloud.driver.create_machine(given.creation())
    assert cloud.living(given.machine.uid) == []
    cloud.driver.create_machine(given.creation())
    assert len(cloud.living(given.machine.uid)) == 1


def test_create_needs_no_read_after_the_write(cloud: Cloud) -> None:
    cloud.frame.lag.describe_after_create = 60.0
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    assert made.node_name
    with pytest.raises(DriverError) as unseen:  # the lag is there, reads do not see the VM
        cloud.driver.get_machine_status(given.status(made.provider_id))
    assert unseen.value.error_class is ErrorClass.NOT_FOUND


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_vm_is_adopted_by_its_uid_alone(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    found = cloud.driver.get_machine_status(given.status(token=""))
    assert found.provider_id == made.provider_id
    other = machine(cloud, name="worker-2", cluster=given.machine.cluster)
    with pytest.raises(DriverError) as missing:
        cloud.driver.get_machine_status(other.status())
    assert (missing.value.error_class, missing.value.code) == (ErrorClass.NOT_FOUND, Code.NOT_FOUND)


def test_a_vm_is_found_by_its_token_while_its_tags_lag(cloud: Cloud) -> None:
    cloud.frame.lag.tags = 60.0
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    with pytest.raises(DriverError):
        cloud.driver.get_machine_status(given.status(token=""))
    assert cloud.driver.get_machine_status(given.status()).provider_id == made.provider_id


def test_two_living_vms_of_one_machine_are_a_conflict_that_names_both(cloud: Cloud) -> None:
    given = machine(cloud)
    ids = [cloud.driver.create_machine(given.creation(token=t)).provider_id for t in ("attempt-1", "attempt-2")]
    with pytest.raises(DriverError) as two:
        cloud.driver.get_machine_status(given.status())
    assert two.value.error_class is ErrorClass.CONFLICT
    assert all(i.rsplit("/", 1)[-1] in two.value.message for i in ids)


def test_a_living_vm_of_the_name_is_found_with_the_uid_in_one_listing(cloud: Cloud) -> None:
    """It is of a former life, and none may be made beside it. A VM on its way out takes no name."""
    cloud.set_delays(boot=0.0, terminate=60.0)
    former = machine(cloud)
    made = cloud.driver.create_machine(former.creation())
    given = another_life(former)
    before = mark(cloud)
    with pytest.raises(NameTaken) as taken:
        cloud.driver.get_machine_status(given.status())
    assert [(vm.provider_id, vm.uid) for vm in taken.value.vms] == [(made.provider_id, former.machine.uid)]
    assert taken.value.error_class is ErrorClass.CONFLICT
    assert all(word in taken.value.message for word in (made.provider_id, former.machine.uid, given.machine.name))
    assert len(calls(cloud, since=before)) <= 2  # by tags, and by token: no call more than for the uid alone
    cloud.driver.delete_machine(former.deletion(made.provider_id))
    with pytest.raises(DriverError) as missing:
        cloud.driver.get_machine_status(given.status())
    assert missing.value.error_class is ErrorClass.NOT_FOUND


def test_each_living_vm_of_the_name_is_told_of(cloud: Cloud) -> None:
    cloud.set_delays(boot=0.0, terminate=60.0)
    former = machine(cloud)
    made = cloud.driver.create_machine(former.creation())
    given = another_life(former)
    own = cloud.driver.create_machine(given.creation())
    assert cloud.driver.get_machine_status(given.status()).provider_id == own.provider_id
    third = another_life(former)
    with pytest.raises(NameTaken) as taken:
        cloud.driver.get_machine_status(third.status())
    assert {vm.uid for vm in taken.value.vms} == {former.machine.uid, given.machine.uid}
    for life, vm in ((former, made), (given, own)):
        cloud.driver.delete_machine(life.deletion(vm.provider_id))
    with pytest.raises(DriverError) as missing:
        cloud.driver.get_machine_status(third.status())
    assert missing.value.error_class is ErrorClass.NOT_FOUND


def test_another_installations_vm_takes_no_name_and_one_without_a_tag_may_be_ours(cloud: Cloud) -> None:
    ours, theirs, untagged = "here", "there", ""
    for theirs_is, taken in ((theirs, False), (untagged, True), (ours, True)):
        former = machine(cloud)
        former.machine = former.machine.model_copy(update={"installation": theirs_is})
        made = cloud.driver.create_machine(former.creation())
        assert made.installation == (theirs_is or None)
        given = another_life(former)
        given.machine = given.machine.model_copy(update={"installation": ours})
        with pytest.raises(DriverError) as answer:
            cloud.driver.get_machine_status(given.status())
        assert isinstance(answer.value, NameTaken) is taken
        listed = cloud.driver.list_machines(given.listing()).machines
        assert [vm.installation for vm in listed] == [theirs_is or None]  # the caller decides which are its own


def test_a_post_start_update_with_nothing_to_do_is_no_call(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    assert cloud.driver.update_machine(given.update(made.provider_id)).changed == []
    assert calls(cloud, since=before) == []


def test_the_post_start_update_adds_the_tag_of_the_installation(cloud: Cloud) -> None:
    """A VM that was made before there was such a tag gets it; where tagging is not allowed, it lives without."""
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    given.machine = given.machine.model_copy(update={"installation": "here"})
    update = given.update(made.provider_id, untagged=True)
    rule = fault(cloud, cloud.tagging, cloud.codes[ErrorClass.AUTH])
    assert "without the tag" in " ".join(cloud.driver.update_machine(update).changed)
    assert rule.hits == 1
    cloud.driver.update_machine(update)
    assert cloud.driver.get_machine_status(given.status(made.provider_id)).installation == "here"


def another_life(former: Given) -> Given:
    """Another life of the same cluster and machine name."""
    return Given(former.cloud, former.machine.model_copy(update={"uid": str(uuid.uuid4())}), former.spec)


def test_reads_change_nothing(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True))
    cloud.driver.get_machine_status(given.status())
    cloud.driver.list_machines(given.listing())
    cloud.driver.get_account(given.whose())
    cloud.driver.get_volume_ids(GetVolumeIDsRequest(persistent_volume_specs=[{"csi": {"driver": "x"}}]))
    assert len(calls(cloud, since=before)) >= 4  # they were calls, and the journal has them
    other = machine(cloud)
    cloud.driver.create_machine(other.creation())
    assert mutating(cloud, before) == [*cloud.creation]  # the only change is the creation that followed


def test_get_volume_ids_makes_no_call(cloud: Cloud) -> None:
    given = machine(cloud)
    cloud.driver.get_volume_ids(GetVolumeIDsRequest(persistent_volume_specs=[{"csi": {"driver": "x"}}]))
    cloud.driver.list_machines(given.listing())
    assert len(calls(cloud)) == 1


def test_list_machines_reads_all_pages_of_its_cluster_only(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.set_page(monkeypatch, 5)
    first = machine(cloud)
    cluster = first.machine.cluster
    mine = [first] + [machine(cloud, name=f"worker-{n}", cluster=cluster) for n in range(2, 13)]
    with ThreadPoolExecutor(4) as pool:
        made = {m.provider_id for m in pool.map(lambda g: cloud.driver.create_machine(g.creation()), mine)}
    cloud.driver.create_machine(machine(cloud).creation())
    before = mark(cloud)
    listed = cloud.driver.list_machines(first.listing()).machines
    assert len(calls(cloud, since=before)) == -(-12 * cloud.listings // 5)
    assert {m.provider_id for m in listed} == made
    assert {m.uid for m in listed} == {g.machine.uid for g in mine}


def test_list_machines_reads_the_vms_that_it_is_asked_for_in_one_call(cloud: Cloud) -> None:
    """Whosever they are; what has ended, or never was, is left out."""
    cloud.set_delays(boot=0.0, terminate=60.0)
    first, second, third = (machine(cloud) for _ in range(3))
    vms = [cloud.driver.create_machine(g.creation()).provider_id for g in (first, second, third)]
    cloud.driver.delete_machine(first.deletion(vms[0]))
    cloud.set_delays(boot=0.0, terminate=0.0)
    delete_until_gone(third, vms[2])
    before = mark(cloud)
    listed = cloud.driver.list_machines(first.listing(provider_ids=vms)).machines
    assert {vm.provider_id: vm.state for vm in listed} == {vms[0]: VmState.TERMINATING, vms[1]: VmState.RUNNING}
    assert len(calls(cloud, since=before)) == 1


# -- updating in place -------------------------------------------------------------------------------------------------


def test_an_update_in_place_changes_the_same_vm_and_needs_no_call_for_equal_specs(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    desired = {**given.spec, **cloud.hot}
    before = mark(cloud)
    same = given.update(made.provider_id, last_applied_provider_spec=given.spec)
    assert cloud.driver.update_machine(same) == UpdateMachineResponse()
    assert calls(cloud, since=before) == []  # not even a read
    changed = given.update(made.provider_id, provider_spec=desired, last_applied_provider_spec=given.spec)
    response = cloud.driver.update_machine(changed)
    assert response.changed
    assert [r.error for r in response.resources] == [None] * len(response.resources)
    assert mutating(cloud, before)
    assert cloud.create not in mutating(cloud, before)
    assert cloud.living(given.machine.uid) == [made.provider_id.rsplit("/", 1)[-1]]
    assert cloud.driver.get_machine_status(given.status(made.provider_id)).uid == given.machine.uid  # must-tags stay
    before = mark(cloud)
    cloud.driver.update_machine(
        given.update(made.provider_id, provider_spec=desired, last_applied_provider_spec=desired)
    )
    assert calls(cloud, since=before) == []


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "going"])
def test_an_update_in_place_of_a_vm_that_is_gone_is_not_found_and_changes_nothing(cloud: Cloud, gone: bool) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    if gone:
        delete_until_gone(given, made.provider_id)
    else:
        cloud.set_delays(0.0, 60.0)
        cloud.driver.delete_machine(given.deletion(made.provider_id))
    before = mark(cloud)
    desired = {**given.spec, **cloud.hot}
    with pytest.raises(DriverError) as refused:
        cloud.driver.update_machine(
            given.update(made.provider_id, provider_spec=desired, last_applied_provider_spec=given.spec)
        )
    assert refused.value.error_class is ErrorClass.NOT_FOUND
    assert calls(cloud, since=before)
    assert mutating(cloud, before) == []


# -- deleting ----------------------------------------------------------------------------------------------------------


def test_delete_until_gone_leaves_nothing(cloud: Cloud) -> None:
    given = machine(cloud)
    cloud.set_delays(boot=0.0, terminate=60.0)
    made = cloud.driver.create_machine(given.creation())
    first = cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert first.evidence is Evidence.PRESENT
    assert any(made.provider_id.rsplit("/", 1)[-1] in left for left in first.left)
    dying = cloud.driver.get_machine_status(given.status(made.provider_id))
    assert dying.state is VmState.TERMINATING
    cloud.fast_forward()
    last = delete_until_gone(given, made.provider_id)
    assert (last.evidence, last.left, last.kept) == (cloud.ended, [], [])
    assert cloud.left(given.machine.uid) == {}
    with pytest.raises(DriverError, match="has no VM") as gone:
        cloud.driver.get_machine_status(given.status(made.provider_id))
    assert gone.value.error_class is ErrorClass.NOT_FOUND


def test_delete_of_a_vm_that_is_gone_changes_nothing(cloud: Cloud) -> None:
    given, other = machine(cloud), machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    delete_until_gone(given, made.provider_id)
    survivor = cloud.driver.create_machine(other.creation())
    before = mark(cloud)
    assert cloud.driver.delete_machine(given.deletion(made.provider_id)).evidence is cloud.ended
    assert mutating(cloud, before) == []
    assert cloud.driver.delete_machine(other.deletion(survivor.provider_id)).evidence is Evidence.PRESENT
    assert len(mutating(cloud, before)) == 1


def test_delete_of_what_never_existed_is_not_found(cloud: Cloud) -> None:
    given, other = machine(cloud), machine(cloud)
    cloud.driver.create_machine(other.creation())
    before = mark(cloud)
    response = cloud.driver.delete_machine(given.deletion())
    assert (response.evidence, response.left, response.kept) == (Evidence.NOT_FOUND, [], [])
    assert mutating(cloud, before) == []
    assert len(cloud.living(other.machine.uid)) == 1


def test_delete_finds_every_vm_of_the_uid(cloud: Cloud) -> None:
    given = machine(cloud)
    ids = [cloud.driver.create_machine(given.creation(token=t)).provider_id for t in ("attempt-1", "attempt-2")]
    delete_until_gone(given, ids[0])
    assert cloud.left(given.machine.uid) == {}


def test_delete_finds_a_vm_by_its_token_while_tags_lag(cloud: Cloud) -> None:
    cloud.frame.lag.tags = 60.0
    given = machine(cloud)
    cloud.driver.create_machine(given.creation())
    delete_until_gone(given)
    assert cloud.left(given.machine.uid) == {}


def test_delete_after_a_lost_reply_goes_on(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "*", drop=True, times=3)
    for _ in range(3):
        with pytest.raises(DriverError) as lost:
            cloud.driver.delete_machine(given.deletion(made.provider_id))
        assert lost.value.error_class is ErrorClass.TRANSIENT
    delete_until_gone(given, made.provider_id)
    assert cloud.left(given.machine.uid) == {}


# -- failing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", list(ErrorClass))
def test_every_class_of_error_is_told_apart(cloud: Cloud, wanted: ErrorClass) -> None:
    given = machine(cloud)
    code = cloud.codes[wanted]
    fault(cloud, cloud.create, code)
    with pytest.raises(DriverError) as failure:
        cloud.driver.create_machine(given.creation())
    assert (failure.value.error_class, failure.value.provider_code) == (wanted, code)
    assert code in failure.value.message
    assert cloud.living(given.machine.uid) == []


def test_a_code_that_nobody_knows_is_logged(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    given, driver = machine(cloud), MeteredDriver(cloud.provider, cloud.driver, MetricMeter.noop)
    for wanted in (ErrorClass.INVALID, ErrorClass.UNKNOWN):
        fault(cloud, cloud.create, cloud.codes[wanted])
        with pytest.raises(DriverError):
            driver.create_machine(given.creation())
    (said,) = [r.message for r in caplog.records if "which no table of errors has" in r.message]
    assert said.startswith(f"{cloud.provider}: create_machine failed with the code {cloud.codes[ErrorClass.UNKNOWN]},")


def test_no_answer_in_time_is_transient(cloud: Cloud) -> None:
    given = machine(cloud)
    hasty = cloud.driver_with(DriverSettings(timeout=timedelta(seconds=0.5)))
    fault(cloud, "*", delay=5.0)
    with pytest.raises(DriverError) as failure:
        hasty.list_machines(given.listing())
    assert failure.value.error_class is ErrorClass.TRANSIENT
    assert hasty.list_machines(given.listing()).machines == []


def test_wrong_credentials_are_an_auth_error(cloud: Cloud) -> None:
    given = machine(cloud)
    with pytest.raises(DriverError) as failure:
        cloud.driver.create_machine(given.creation(secret=cloud.wrong_secret))
    assert failure.value.error_class is ErrorClass.AUTH
    assert "canary" not in failure.value.message


# -- accounts ----------------------------------------------------------------------------------------------------------


def test_a_vm_tells_its_account_whoever_reads_it(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    by_id = cloud.driver.get_machine_status(given.status(made.provider_id))
    by_uid = cloud.driver.get_machine_status(given.status())
    (listed,) = cloud.driver.list_machines(given.listing()).machines
    deleted = cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert {x.account_id for x in (made, by_id, by_uid, listed, deleted)} == {cloud.account}


def test_credentials_tell_their_account_and_need_be_asked_only_once(cloud: Cloud) -> None:
    driver, given = cloud.driver_with(DriverSettings()), machine(cloud)
    for _ in range(2):
        assert driver.get_account(given.whose()) == cloud.account
        assert driver.get_account(given.whose(secret=cloud.other_secret)) == cloud.other_account
    assert len(calls(cloud, cloud.whose)) == 2
    no_place = given.whose(provider_spec={}, provider_id=cloud.driver.create_machine(given.creation()).provider_id)
    assert driver.get_account(no_place) == cloud.account


def test_another_account_finds_nothing_and_says_who_it_is(cloud: Cloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    elsewhere: dict[str, Any] = {"secret": cloud.other_secret}
    for provider_id in (made.provider_id, None):
        with pytest.raises(DriverError) as unknown:
            cloud.driver.get_machine_status(given.status(provider_id, **elsewhere))
        assert unknown.value.error_class is ErrorClass.NOT_FOUND
        answer = cloud.driver.delete_machine(given.deletion(provider_id, **elsewhere))
        assert (answer.evidence, answer.account_id) == (Evidence.NOT_FOUND, "")
    assert cloud.driver.list_machines(given.listing(**elsewhere)).machines == []
    assert cloud.driver.get_account(given.whose(**elsewhere)) == cloud.other_account
    assert len(cloud.living(given.machine.uid)) == 1
    # A token is an account's own: the same one there is another VM's.
    other = cloud.driver.create_machine(given.creation(**elsewhere))
    assert other.account_id == cloud.other_account
    assert len(cloud.living(given.machine.uid)) == 2


def test_who_they_are_is_not_believed_of_credentials_that_cannot_be_asked(cloud: Cloud) -> None:
    driver, given = cloud.driver_with(DriverSettings()), machine(cloud)
    fault(cloud, cloud.whose, cloud.codes[ErrorClass.TRANSIENT])
    with pytest.raises(DriverError) as silent:
        driver.get_account(given.whose())
    assert silent.value.error_class is ErrorClass.TRANSIENT
    with pytest.raises(DriverError) as refused:
        driver.get_account(given.whose(secret=cloud.wrong_secret))
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in refused.value.message
    assert driver.get_account(given.whose()) == cloud.account


def test_a_spec_that_is_wrong_is_refused_before_any_call(cloud: Cloud) -> None:
    given = machine(cloud)
    with pytest.raises(DriverError) as failure:
        cloud.driver.create_machine(given.creation(provider_spec={**given.spec, **cloud.wrong}))
    assert failure.value.error_class is ErrorClass.INVALID
    assert calls(cloud) == []
    cloud.driver.create_machine(given.creation())
    assert mutating(cloud) == [*cloud.creation]


def everything_said(error: BaseException) -> str:
    """The error's text, and that of everything chained to it."""
    chained: list[Any] = [error, error.__cause__, error.__context__]
    return " ".join(f"{e!r} {getattr(e, '__dict__', {})}" for e in chained if e is not None)


def test_no_secret_is_in_any_error(cloud: Cloud) -> None:
    canary = "canary-of-user-data"
    given = machine(cloud)
    given.user_data = f"#cloud-config\ntoken: {canary}\n"
    encoded = base64.b64encode(given.user_data.encode()).decode()
    own = [v.get_secret_value() for k, v in cloud.secret.items() if k not in cloud.harmless]
    secrets = [canary, encoded, *own]
    for said in secrets:
        fault(cloud, cloud.create, cloud.codes[ErrorClass.INVALID], message=f"'{said}' is wrong")
        with pytest.raises(DriverError, match="is wrong") as failure:
            cloud.driver.create_machine(given.creation())
        assert said not in everything_said(failure.value)
    assert not any(s in repr(given.creation()) for s in secrets)


# -- creations that take several calls (drivers.base.Making) -----------------------------------------------------------


def test_a_creation_that_takes_several_calls_makes_everything_once() -> None:
    """Each call is one pass that says what is being made; a lost reply of one costs nothing."""
    with fake() as cloud:
        cloud.api.slow = True
        given = machine(cloud)
        made: list[Any] = []
        for _ in range(2):
            fault(cloud, "Create*", drop=True)
            with pytest.raises(DriverError):
                cloud.driver.create_machine(given.creation())
            made += [cloud.driver.create_machine(given.creation()) for _ in range(2)]
            cloud.api.finish()
        assert [type(m) for m in made] == [Making] * 4
        assert [m.what.rsplit(" ", 1)[0] for m in made] == ["network interface"] * 2 + ["VM"] * 2
        vm = cloud.driver.create_machine(given.creation())
        assert {kind: len(ids) for kind, ids in cloud.left(given.machine.uid).items()} == {"nic": 1, "vm": 1, "disk": 1}
        assert [vm.provider_id.rsplit("/", 1)[-1]] == cloud.living(given.machine.uid)


def test_what_was_made_apart_goes_where_no_vm_ever_came() -> None:
    with fake() as cloud:
        cloud.api.slow = True
        given = machine(cloud)
        cloud.driver.create_machine(given.creation())
        assert list(cloud.left(given.machine.uid)) == ["nic"]
        assert delete_until_gone(given).evidence is Evidence.NOT_FOUND
        assert cloud.left(given.machine.uid) == {}
