"""A hot update with errors and with reads that lag; and metadata options, which fail apart from tags."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.aws import AFTER, ALWAYS, BEFORE, DATA_DISK, MUST, ROOT_DISK, Vm, attach_volume, operations, resources, tags
from clouds.drivers import AwsCloud, calls, fault, mark, mutating

from planners.machine.hot_update import may_carry
from resources.errors import ErrorClass

# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("denied", [0, 1, 2])
def test_denied_for_one_resource_the_other_two_are_updated(vm: Vm, denied: int) -> None:
    wrong = vm.all[denied]
    others = [r for r in vm.all if r != wrong]
    fault(vm.cloud, "*Tags", "UnauthorizedOperation", match=wrong, **ALWAYS)
    error = vm.refused(**AFTER)
    assert (error.error_class, error.provider_code) == (ErrorClass.AUTH, "UnauthorizedOperation")
    assert wrong in error.message
    assert [vm.extra(r) for r in others] == [{"cost": "b"}] * 2
    assert vm.extra(wrong) == {"cost": "a", "team": "x"}
    by_id = {r.id: r for r in error.resources}
    assert {r for r, u in by_id.items() if u.error} == {wrong}
    assert by_id[wrong].error is not None
    assert by_id[wrong].error.error_class is ErrorClass.AUTH
    assert by_id[wrong].changed == []
    assert [by_id[r].changed for r in others] == [["removed team", "set cost"]] * 2
    vm.cloud.do(vm.cloud.frame.clear_faults)
    vm.update(**AFTER)
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3


def test_one_bad_tag_does_not_keep_the_good_ones_from_being_set(vm: Vm) -> None:
    good = {f"good-{n}": "1" for n in range(6)}
    fault(vm.cloud, "CreateTags", "InvalidParameterValue", match='"bad"', **ALWAYS)
    before = mark(vm.cloud)
    error = vm.refused(vmTags={**MUST, **good, "bad": "1"}, nicTags=BEFORE["tags"], diskTags=BEFORE["tags"])
    assert error.error_class is ErrorClass.INVALID
    assert f"{vm.id}, tag bad: CreateTags: InvalidParameterValue" in error.message
    assert "good" not in error.message
    assert vm.extra(vm.id) == good
    (result,) = error.resources
    assert sorted(result.changed) == ["removed cost", "removed team", *(f"set {k}" for k in sorted(good))]
    assert len(calls(vm.cloud, "CreateTags", before)) < 8  # halves, not one by one


def test_too_many_tags_are_no_single_tags_fault(vm: Vm) -> None:
    fault(vm.cloud, "CreateTags", "TagLimitExceeded", **ALWAYS)
    before = mark(vm.cloud)
    vm.refused(vmTags={**BEFORE["tags"], "one": "1", "two": "1"}, nicTags=BEFORE["tags"], diskTags=BEFORE["tags"])
    assert len(calls(vm.cloud, "CreateTags", before)) == 1


def test_throttled_in_the_middle_it_goes_on_and_asks_for_no_resource_alone(vm: Vm) -> None:
    before = mark(vm.cloud)
    fault(vm.cloud, "DeleteTags", "RequestLimitExceeded", headers={"Retry-After": "7"})
    error = vm.refused(**AFTER)
    assert (error.error_class, error.retry_after) == (ErrorClass.THROTTLED, 7.0)
    assert mutating(vm.cloud, before) == ["DeleteTags", "CreateTags"]
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b", "team": "x"}] * 3
    assert all(r.error and r.changed == ["set cost"] for r in error.resources)
    assert len(error.resources) == 3
    vm.update(**AFTER)
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3


def test_a_class_that_is_set_back_after_a_half_failed_update_leaves_nothing_of_it(vm: Vm) -> None:
    tried = {"tags": {**MUST, "cost": "b", "new": "1"}, "instanceMetadataOptions": {"httpTokens": "required"}}
    fault(vm.cloud, "*Tags", "UnauthorizedOperation", match=vm.volumes[0], **ALWAYS)
    vm.refused(**tried)
    assert vm.extra(vm.id) == {"cost": "b", "new": "1"}
    vm.cloud.do(vm.cloud.frame.clear_faults)
    carried = may_carry("AWS", vm.given.spec, [{**vm.given.spec, **tried}], vm.given.spec)
    request = vm.given.update(vm.made.provider_id, last_applied_provider_spec=carried)
    vm.cloud.driver.update_machine(request)
    assert [vm.extra(r) for r in vm.all] == [{"cost": "a", "team": "x"}] * 3


def test_of_several_errors_the_longer_wait_counts(vm: Vm) -> None:
    fault(vm.cloud, "DeleteTags", "RequestLimitExceeded")
    fault(vm.cloud, "CreateTags", "UnauthorizedOperation", match=vm.nics[0], **ALWAYS)
    error = vm.refused(**AFTER)
    assert error.error_class is ErrorClass.AUTH
    assert "RequestLimitExceeded" in error.message
    assert "UnauthorizedOperation" in error.message


def test_a_read_that_fails_does_not_stop_the_others(vm: Vm) -> None:
    fault(vm.cloud, "DescribeVolumes", "InternalError")
    error = vm.refused(**AFTER)
    assert error.error_class is ErrorClass.TRANSIENT
    assert {r.id for r in error.resources} == {vm.id, *vm.nics}
    assert [vm.extra(r).get("cost") for r in vm.all] == ["b", "a", "b"]


def test_a_lost_reply_is_transient_and_the_next_run_ends_it(vm: Vm) -> None:
    fault(vm.cloud, "CreateTags", drop=True)
    assert vm.refused(**AFTER).error_class is ErrorClass.TRANSIENT
    before = mark(vm.cloud)
    vm.update(**AFTER)
    assert mutating(vm.cloud, before) == ["DeleteTags", "CreateTags"]  # idempotent: the same calls
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3


def test_more_than_50_tags_with_those_of_others_is_invalid_with_the_count(vm: Vm) -> None:
    room = 50 - len(vm.tags(vm.id))
    foreign = [{"Key": f"foreign-{n}", "Value": ""} for n in range(room)]
    vm.ec2.create_tags(Resources=[vm.id], Tags=foreign)
    before = mark(vm.cloud)
    more = {"tags": {**BEFORE["tags"], "one": "1", "two": "1"}}
    error = vm.refused(**more)
    assert error.error_class is ErrorClass.INVALID
    assert f"{vm.id}: it would have 52 tags" in error.message
    assert "remove 2 from vmTags or tags" in error.message
    assert resources(vm.cloud, "CreateTags", before) == [sorted([*vm.volumes, *vm.nics])]  # the others got their change
    # What is removed makes room, since it goes first.
    vm.update(tags={**MUST, "one": "1", "two": "1"})
    assert len(vm.tags(vm.id)) == 50
    assert {"one", "two"} <= {*vm.tags(vm.id)}


def test_tags_of_aws_itself_do_not_count(vm: Vm) -> None:
    """EC2 user guide, Tag restrictions. Nobody can set them through the API, so the test writes them behind it."""
    others = {f"foreign-{n}": "" for n in range(49 - len(vm.tags(vm.id)))} | {"aws:autoscaling:groupName": "g"}
    carried = vm.tags(vm.id)
    vm.cloud.do(lambda: vm.cloud.ec2._tags.write(vm.id, {**carried, **others}))
    assert len(vm.tags(vm.id)) == 50
    vm.update(tags={**BEFORE["tags"], "one": "1"})
    assert vm.tags(vm.id)["one"] == "1"
    assert vm.refused({"tags": {**BEFORE["tags"], "one": "1"}}, tags={**BEFORE["tags"], "one": "1", "two": "1"})


# -- lag --------------------------------------------------------------------------------------------------------------


def test_reads_that_lag_make_the_same_idempotent_call_again(vm: Vm) -> None:
    vm.ec2.create_tags(Resources=vm.all, Tags=[{"Key": "x", "Value": "y"}])
    vm.cloud.do(lambda: setattr(vm.cloud.frame.lag, "tags", 3600.0))
    runs = []
    for _ in range(2):
        before = mark(vm.cloud)
        vm.update(**AFTER)
        runs.append([(c.operation, c.request) for c in calls(vm.cloud, "*Tags", before)])
    assert runs[0] == runs[1]
    assert [op for op, _ in runs[0]] == ["DeleteTags", "CreateTags"]
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b", "x": "y"}] * 3
    assert tags(vm.instance)["cost"] == "a"  # reads still lag


def test_there_and_back_within_the_lag_ends_where_it_began(vm: Vm) -> None:
    vm.cloud.do(lambda: setattr(vm.cloud.frame.lag, "tags", 3600.0))
    vm.update(**AFTER)
    vm.update(AFTER, **BEFORE)
    assert [vm.extra(r) for r in vm.all] == [{"cost": "a", "team": "x"}] * 3


def test_a_vm_whose_own_tags_are_not_seen_yet_is_updated_with_its_disks_and_nics(cloud: AwsCloud, ec2: Any) -> None:
    cloud.frame.lag.tags = 3600.0
    vm = Vm(cloud, ec2, blockDevices=[ROOT_DISK, DATA_DISK])
    before = mark(cloud)
    other = attach_volume(vm, "/dev/xvdaa")  # in no place of the spec: without tags it is not known to be ours
    vm.update(**AFTER)
    assert resources(cloud, "CreateTags", before) == [sorted(vm.all)]
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 4
    assert vm.tags(other) == {}


# -- metadata options -------------------------------------------------------------------------------------------------


def options(vm: Vm) -> dict[str, Any]:
    return {k: vm.instance["MetadataOptions"][k] for k in ("HttpTokens", "HttpPutResponseHopLimit", "HttpEndpoint")}


def test_metadata_options_change_in_place_and_only_what_differs(vm: Vm) -> None:
    before = mark(vm.cloud)
    strict = {"instanceMetadataOptions": {"httpTokens": "required", "httpEndpoint": "enabled"}}
    response = vm.update(**strict)
    assert operations(vm.cloud, before) == ["DescribeInstances", "ModifyInstanceMetadataOptions"]
    assert options(vm) == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"}
    assert [(r.id, r.kind) for r in response.resources] == [(vm.id, "instance")]
    assert "metadata option HttpTokens=required" in response.resources[0].changed
    before = mark(vm.cloud)
    vm.update(strict, instanceMetadataOptions={**strict["instanceMetadataOptions"], "httpPutResponseHopLimit": 2})
    (call,) = calls(vm.cloud, "ModifyInstanceMetadataOptions", before)
    assert call.request == {"InstanceId": vm.id, "HttpPutResponseHopLimit": 2}
    assert options(vm) == {"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "HttpEndpoint": "enabled"}


def test_an_option_that_left_the_spec_is_left_as_it_is(vm: Vm) -> None:
    strict = {"instanceMetadataOptions": {"httpTokens": "required"}}
    vm.update(**strict)
    before = mark(vm.cloud)
    assert vm.update(strict, instanceMetadataOptions=None).changed == []
    assert mutating(vm.cloud, before) == []
    assert options(vm)["HttpTokens"] == "required"
    vm.update(strict, instanceMetadataOptions={"httpTokens": "optional"})
    assert options(vm)["HttpTokens"] == "optional"


def test_tags_and_options_fail_apart(vm: Vm) -> None:
    strict = {"instanceMetadataOptions": {"httpTokens": "required"}}
    fault(vm.cloud, "ModifyInstanceMetadataOptions", "UnauthorizedOperation")
    error = vm.refused(**AFTER, **strict)
    assert error.error_class is ErrorClass.AUTH
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3
    (instance,) = (r for r in error.resources if r.id == vm.id)
    assert instance.changed == ["removed team", "set cost"]
    assert instance.error is not None
    fault(vm.cloud, "*Tags", "UnauthorizedOperation", match=vm.id, **ALWAYS)
    assert vm.refused(AFTER, tags=MUST, **strict).error_class is ErrorClass.AUTH
    assert options(vm)["HttpTokens"] == "required"
