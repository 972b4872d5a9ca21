"""A hot update: tags of instance, volumes and NICs (seed 002, field case P69)."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.aws import (
    AFTER,
    BEFORE,
    DATA_DISK,
    MUST,
    NIC,
    READS,
    ROOT_DISK,
    Vm,
    attach_nic,
    attach_volume,
    operations,
    resources,
)
from clouds.drivers import AwsCloud, calls, mark, mutating

from drivers.aws.calls import Ec2
from drivers.base import UpdateMachineResponse
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.names import TAG_UID

# -- which tags, in how many calls ------------------------------------------------------------------------------------


def test_one_changed_and_one_removed_tag_are_five_calls_for_all_resources(vm: Vm) -> None:
    """P69: a -> b, team removed, on instance, volume and NIC; 0 replacements."""
    must, before = {r: vm.must(r) for r in vm.all}, mark(vm.cloud)
    response = vm.update(**AFTER)
    assert operations(vm.cloud, before) == [*READS, "DeleteTags", "CreateTags"]
    assert resources(vm.cloud, "CreateTags", before) == [sorted(vm.all)]
    (created,), (deleted,) = (calls(vm.cloud, op, before) for op in ("CreateTags", "DeleteTags"))
    assert created.request["Tags"] == [{"Key": "cost", "Value": "b"}]
    assert deleted.request["Tags"] == [{"Key": "team"}]
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3
    assert {r: vm.must(r) for r in vm.all} == must
    assert [(r.id, r.kind, r.changed, r.error) for r in response.resources] == [
        (r, kind, ["removed team", "set cost"], None)
        for r, kind in zip(vm.all, ("instance", "volume", "network-interface"), strict=True)
    ]
    assert response.changed == [f"{r}: removed team, set cost" for r in vm.all]
    assert vm.instance["State"]["Name"] == "running"


def test_equal_specs_are_no_call_at_all(vm: Vm) -> None:
    before = mark(vm.cloud)
    assert vm.update() == UpdateMachineResponse()
    # Fields that roll, fields that are ignored, and `tags` where every specific field replaces it.
    assert vm.update(ami="ami-2", monitoring=True, srcAndDstChecksEnabled=False) == UpdateMachineResponse()
    specific = {"vmTags": {"v": "1"}, "nicTags": {}, "diskTags": {}}
    assert vm.update(specific, tags={**MUST, "cost": "z"}) == UpdateMachineResponse()
    assert operations(vm.cloud, before) == []
    vm.update(**AFTER)
    assert operations(vm.cloud, before)


def test_only_the_kinds_whose_tags_change_are_read_and_written(vm: Vm) -> None:
    before = mark(vm.cloud)
    vm.update(vmTags={"cost": "b"})
    assert operations(vm.cloud, before) == ["DescribeInstances", "DeleteTags", "CreateTags"]
    assert vm.extra(vm.id) == {"cost": "b"}
    assert [vm.extra(r) for r in (*vm.volumes, *vm.nics)] == [{"cost": "a", "team": "x"}] * 2
    before = mark(vm.cloud)
    vm.update(diskTags={"cost": "a", "team": "x", "more": "1"})
    assert operations(vm.cloud, before) == ["DescribeInstances", "DescribeVolumes", "CreateTags"]


PRECEDENCE: list[tuple[dict[str, Any], list[dict[str, str]]]] = [
    ({"tags": {**MUST, "all": "1"}}, [{"all": "1"}, {"all": "1"}, {"all": "1"}]),
    ({"tags": {**MUST, "all": "1"}, "vmTags": {"v": "1"}}, [{"v": "1"}, {"all": "1"}, {"all": "1"}]),
    ({"tags": {**MUST, "all": "1"}, "diskTags": {}}, [{"all": "1"}, {}, {"all": "1"}]),
    (
        {"tags": None, "vmTags": {**MUST, "v": "1"}, "diskTags": {"d": "1"}, "nicTags": {"n": "1"}},
        [{"v": "1"}, {"d": "1"}, {"n": "1"}],
    ),
    ({"tags": None, "vmTags": MUST}, [{}, {}, {}]),
]


@pytest.mark.parametrize(("fields", "expected"), PRECEDENCE)
def test_precedence(vm: Vm, fields: dict[str, Any], expected: list[dict[str, str]]) -> None:
    """Seed 002: a specific field, even an empty one, replaces `tags` for its resource. As at launch."""
    vm.update(**fields)
    assert [vm.extra(r) for r in vm.all] == expected
    launched = Vm(vm.cloud, vm.ec2, blockDevices=[ROOT_DISK], **fields)
    assert [launched.extra(r) for r in launched.all] == expected


def test_foreign_tags_are_never_touched(vm: Vm) -> None:
    foreign = {"x": "y", "kubernetes.io/cluster/other": "shared"}
    vm.ec2.create_tags(Resources=vm.all, Tags=[{"Key": k, "Value": v} for k, v in foreign.items()])
    vm.update(**AFTER)
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b", **foreign}] * 3
    vm.update(AFTER, tags=MUST)
    assert [vm.extra(r) for r in vm.all] == [foreign] * 3
    # A tag that the class names from now on is the class's, and goes with it.
    vm.update({"tags": MUST}, tags={**MUST, "x": "z"})
    assert {vm.tags(r)["x"] for r in vm.all} == {"z"}
    vm.update({"tags": {**MUST, "x": "z"}}, tags=MUST)
    assert not any("x" in vm.tags(r) for r in vm.all)


def test_what_somebody_changed_by_hand_is_set_right_with_the_next_change(vm: Vm) -> None:
    vm.ec2.create_tags(Resources=vm.nics, Tags=[{"Key": "team", "Value": "by hand"}])
    before = mark(vm.cloud)
    vm.update(tags={**MUST, "cost": "b", "team": "x"})
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b", "team": "x"}] * 3
    assert sorted(map(len, resources(vm.cloud, "CreateTags", before))) == [1, 2]


# -- must-tags --------------------------------------------------------------------------------------------------------


def test_the_class_does_not_give_must_tags(vm: Vm) -> None:
    must = {r: vm.must(r) for r in vm.all}
    ours = {"Name": "x", TAG_UID: "another", "hostler.io/released-by": "me", "hostler.io/owner": "me"}
    vm.update(tags={**MUST, **ours, "cost": "b"})
    assert {r: vm.must(r) for r in vm.all} == must
    vm.update(
        {"tags": {**MUST, **ours, "cost": "b"}}, tags={**MUST, "cost": "b", "more": "1"}
    )  # out of the class again
    assert {r: vm.must(r) for r in vm.all} == must
    assert vm.extra(vm.id) == {"cost": "b", "more": "1"}


REFUSED: list[tuple[dict[str, str], str]] = [
    (
        {"kubernetes.io/cluster/shoot--test--two": "1", "kubernetes.io/role/node": "1"},
        "shoot--test--two may not be add",
    ),
    ({**MUST, "kubernetes.io/cluster/shoot--test--two": "1"}, "shoot--test--two may not be added"),
    ({"kubernetes.io/role/node": "1"}, "shoot--test--one may not be removed"),
    ({"kubernetes.io/cluster/shoot--test--one": "2", "kubernetes.io/role/node": "1"}, "may not be changed"),
    ({"kubernetes.io/cluster/shoot--test--one": "1"}, "kubernetes.io/role/node may not be removed"),
]


@pytest.mark.parametrize(("named", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_a_change_of_must_tags_is_refused_before_any_call(vm: Vm, named: dict[str, str], words: str) -> None:
    carried, before = vm.tags(vm.id), mark(vm.cloud)
    with pytest.raises(DriverError, match=words) as refused:
        vm.update(tags={**named, "cost": "b"})
    assert refused.value.error_class is ErrorClass.INVALID
    assert operations(vm.cloud, before) == []
    assert vm.tags(vm.id) == carried
    vm.update(**AFTER)
    assert vm.extra(vm.id) == {"cost": "b"}


def test_a_class_without_must_tags_may_begin_to_name_those_that_its_machines_carry(cloud: AwsCloud, ec2: Any) -> None:
    vm = Vm(cloud, ec2, tags={"cost": "a"})
    carried, before = vm.must(vm.id) | vm.tags(vm.id), mark(cloud)
    (own,) = (k for k in carried if k.startswith("kubernetes.io/cluster/"))
    assert vm.update(tags={"cost": "a", own: "1"}) == UpdateMachineResponse()
    with pytest.raises(DriverError, match=r"must-tags of worker-.* would differ in .*shoot--two") as refused:
        vm.update(tags={"cost": "a", "kubernetes.io/cluster/shoot--two": "1"})
    assert refused.value.error_class is ErrorClass.INVALID
    assert operations(cloud, before) == []
    vm.update(tags={"cost": "b", own: "1"})
    assert vm.tags(vm.id) == {**carried, "cost": "b"}


# -- which resources --------------------------------------------------------------------------------------------------


def test_several_disks_and_nics_are_still_two_changing_calls(cloud: AwsCloud, ec2: Any) -> None:
    vm = Vm(cloud, ec2, blockDevices=[ROOT_DISK, DATA_DISK], networkInterfaces=[NIC, NIC])
    before = mark(cloud)
    vm.update(**AFTER)
    assert len(vm.all) == 5
    assert operations(cloud, before) == [*READS, "DeleteTags", "CreateTags"]
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 5


def test_what_we_attached_later_is_ours_and_what_others_attached_is_not(vm: Vm) -> None:
    later = attach_volume(vm, "/dev/sdg", **{TAG_UID: vm.given.machine.uid, "team": "x"})
    csi = attach_volume(vm, "/dev/xvdaa", **{"ebs.csi.aws.com/cluster": "true", "team": "x"})
    bare = attach_volume(vm, "/dev/xvdab", a="")
    cni = attach_nic(vm, 1, **{"node.k8s.amazonaws.com/instance_id": vm.id, "team": "x"})
    others = {r: vm.tags(r) for r in (csi, bare, cni)}
    before = mark(vm.cloud)
    vm.update(**AFTER)
    assert operations(vm.cloud, before) == [*READS, "DeleteTags", "CreateTags"]
    assert resources(vm.cloud, "CreateTags", before) == [sorted([*vm.all, later])]
    assert vm.tags(later) == {TAG_UID: vm.given.machine.uid, "cost": "b"}
    assert {r: vm.tags(r) for r in others} == others


def test_what_others_attached_in_a_place_of_the_spec_is_theirs_all_the_same(cloud: AwsCloud, ec2: Any) -> None:
    vm = Vm(cloud, ec2, blockDevices=[ROOT_DISK, DATA_DISK])
    ours = next(d["Ebs"]["VolumeId"] for d in vm.instance["BlockDeviceMappings"] if d["DeviceName"] == "/dev/sdf")
    ec2.detach_volume(VolumeId=ours)
    theirs = attach_volume(vm, "/dev/sdf", team="x")
    vm.update(**AFTER)
    assert vm.tags(theirs) == {"team": "x"}
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 4  # the detached one is still the machine's


def test_a_vm_that_is_gone_or_another_machines_is_not_updated(vm: Vm, ec2: Any) -> None:
    other = Vm(vm.cloud, ec2)
    request = vm.given.update(other.made.provider_id, provider_spec={**vm.given.spec, **AFTER})
    before = mark(vm.cloud)
    with pytest.raises(DriverError, match="it belongs to another machine") as conflict:
        vm.cloud.driver.update_machine(request.model_copy(update={"last_applied_provider_spec": vm.given.spec}))
    assert conflict.value.error_class is ErrorClass.CONFLICT
    ec2.terminate_instances(InstanceIds=[vm.id])
    vm.cloud.do(vm.cloud.ec2.fast_forward)
    with pytest.raises(DriverError, match="terminated") as gone:
        vm.update(**AFTER)
    assert gone.value.error_class is ErrorClass.NOT_FOUND
    assert mutating(vm.cloud, before) == ["TerminateInstances"]
    other.update(**AFTER)
    assert other.extra(other.id) == {"cost": "b"}


def test_the_vms_own_region_counts_whatever_the_class_says_now(vm: Vm) -> None:
    vm.update(**AFTER, region="eu-central-1", machineType="m5.xlarge", networkInterfaces=[{"subnetID": "subnet-9"}])
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3


def test_a_volume_that_vanished_meanwhile_is_no_error_and_is_said(vm: Vm, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = attach_volume(vm, "/dev/sdg", **{TAG_UID: vm.given.machine.uid, "cost": "a", "team": "x"})
    real = Ec2.call

    def vanish(self: Ec2, operation: str, **parameters: Any) -> Any:
        if operation == "DeleteTags" and vm.tags(volume):
            vm.ec2.detach_volume(VolumeId=volume)
            vm.ec2.delete_volume(VolumeId=volume)
        return real(self, operation, **parameters)

    monkeypatch.setattr(Ec2, "call", vanish)
    before = mark(vm.cloud)
    response = vm.update(**AFTER)
    assert [vm.extra(r) for r in vm.all] == [{"cost": "b"}] * 3
    assert {r.id: r.changed for r in response.resources}[volume] == ["gone meanwhile"]
    assert resources(vm.cloud, "CreateTags", before) == [sorted(vm.all)]  # the vanished one is not asked for again


def test_from_tags_to_specific_fields_as_documented(vm: Vm) -> None:
    """docs/hot-updates.md, *Migrating*: nothing changes until a key leaves a field."""
    every = dict.fromkeys(("vmTags", "nicTags", "diskTags"), BEFORE["tags"])
    before = mark(vm.cloud)
    assert vm.update(**every) == UpdateMachineResponse()
    assert vm.update({**BEFORE, **every}, tags=None) == UpdateMachineResponse()
    assert operations(vm.cloud, before) == []
    vm.update({"tags": {}, **every}, nicTags={"cost": "a"}, diskTags={"cost": "a"})
    assert mutating(vm.cloud, before) == ["DeleteTags"]
    assert [vm.extra(r) for r in vm.all] == [{"cost": "a", "team": "x"}, {"cost": "a"}, {"cost": "a"}]
