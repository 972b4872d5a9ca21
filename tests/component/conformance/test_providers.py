"""What machine-controller-manager's AWS provider is tested for, V1 to V6 but V4 (tests/aws), on the real driver and
the simulated EC2. docs/conformance.md is the table."""

from __future__ import annotations

import pytest
from activitykit import OneMachine, instance
from clouds.drivers import AwsCloud, calls, delete_until_gone, fault, machine, mark, mutating
from temporalio.exceptions import ApplicationError

from drivers.errors import DriverError
from resources.errors import CODE_OF, Code, ErrorClass

NOWHERE = "aws:///eu-west-1/i-0123456789abcdef0"


def names(cloud: AwsCloud, resources: list[str]) -> set[str]:
    return {cloud.do(lambda r=r: cloud.ec2._tags.of(r))["Name"] for r in resources}


def test_v1_the_tag_name_is_the_machines_own(cloud: AwsCloud) -> None:
    """It is so at launch, and in a hot update too: a class that changes it changes nothing."""
    class_tags = cloud.spec()["tags"]
    given = machine(cloud, tags={**class_tags, "Name": "web"})
    vm = cloud.driver.create_machine(given.creation()).provider_id
    every = [r for ids in cloud.left(given.machine.uid).values() for r in ids]
    assert len(every) == 3
    assert names(cloud, every) == {given.machine.name}
    before = mark(cloud)
    for changed in ({**class_tags, "Name": "db"}, class_tags):
        desired = {**given.spec, "tags": changed}
        request = given.update(vm, provider_spec=desired, last_applied_provider_spec=given.spec)
        assert cloud.driver.update_machine(request).changed == []
    assert mutating(cloud, before) == []
    desired = {**given.spec, "tags": {**class_tags, "Name": "db", "team": "x"}}
    cloud.driver.update_machine(given.update(vm, provider_spec=desired, last_applied_provider_spec=given.spec))
    assert mutating(cloud, before) == ["CreateTags"]
    assert names(cloud, every) == {given.machine.name}
    assert sorted(every) == sorted(r for ids in cloud.left(given.machine.uid).values() for r in ids)


@pytest.mark.parametrize(
    ("code", "error_class", "canonical"),
    [
        pytest.param("InsufficientInstanceCapacity", ErrorClass.CAPACITY, Code.RESOURCE_EXHAUSTED, id="V2"),
        pytest.param("InsufficientVolumeCapacity", ErrorClass.CAPACITY, Code.RESOURCE_EXHAUSTED, id="V2: volumes"),
        pytest.param("InstanceLimitExceeded", ErrorClass.QUOTA, Code.RESOURCE_EXHAUSTED, id="V2: a limit"),
        pytest.param("InternalError", ErrorClass.TRANSIENT, Code.UNAVAILABLE, id="V2: internal"),
        pytest.param("SomethingQuiteNew", ErrorClass.UNKNOWN, Code.UNKNOWN, id="V2: unheard of"),
    ],
)
def test_v2_what_resource_exhausted_is(cloud: AwsCloud, code: str, error_class: ErrorClass, canonical: Code) -> None:
    fault(cloud, "RunInstances", code)
    with pytest.raises(DriverError) as refused:
        cloud.driver.create_machine(machine(cloud).creation())
    assert (refused.value.error_class, refused.value.info.code) == (error_class, canonical)
    assert CODE_OF[error_class] == canonical


async def test_v3_reads_that_do_not_show_the_new_vm(one: OneMachine) -> None:
    """The creation needs no read after its write, so there is nothing to time out: it has its VM, and so does the next
    try, whatever reads show."""
    one.cloud.frame.lag.describe_after_create = 3600.0
    first = await one.create()
    second = await one.create()
    assert first.provider_id == second.provider_id
    assert one.living() == [instance(first.provider_id)]
    fault(one.cloud, "RunInstances", "InternalError")
    with pytest.raises(ApplicationError):
        await one.create()
    assert one.living() == [instance(first.provider_id)]


@pytest.mark.parametrize("hot", [False, True], ids=["V5", "V5: hot update"])
def test_v5_setting_up_what_does_not_exist(cloud: AwsCloud, hot: bool) -> None:
    given = machine(cloud, srcAndDstChecksEnabled=False, tags={**cloud.spec()["tags"], "cost": "b"})
    last = {"last_applied_provider_spec": cloud.spec()} if hot else {}
    with pytest.raises(DriverError) as missing:
        cloud.driver.update_machine(given.update(NOWHERE, **last))
    assert missing.value.error_class is ErrorClass.NOT_FOUND
    assert mutating(cloud) == []
    vm = cloud.driver.create_machine(given.creation()).provider_id
    before = mark(cloud)
    cloud.driver.update_machine(given.update(vm, **last))
    assert mutating(cloud, before) == (["CreateTags"] if hot else ["ModifyInstanceAttribute"])


def test_v6_a_listing_of_several_pages(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.set_page(monkeypatch, 5)
    given = [machine(cloud, f"worker-{n}", cluster="c-1") for n in range(11)]
    made = {cloud.driver.create_machine(m.creation()).provider_id for m in given}
    before = mark(cloud)
    listed = cloud.driver.list_machines(given[0].listing()).machines
    assert {vm.provider_id for vm in listed} == made
    assert len(calls(cloud, "DescribeInstances", before)) == 3
    for m in given:
        delete_until_gone(m)
    assert cloud.driver.list_machines(given[0].listing()).machines == []
