"""A hot update: labels of the VM and its disks, network tags and metadata (seed 002, field case P69)."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.drivers import calls, fault, mark, mutating
from clouds.gcp import SPEC, GcpCloud

from drivers.base import UpdateMachineResponse
from drivers.errors import DriverError, PartialUpdate
from resources.errors import ErrorClass

BOOT = SPEC["disks"][0]
DATA = {"type": "pd-ssd", "sizeGb": 20}
MUST = SPEC["tags"]


def test_one_changed_and_one_removed_label_are_three_calls(cloud: GcpCloud, new_vm: Any) -> None:
    """P69: a -> b, team removed; 0 replacements, and what others have set stays."""
    vm = new_vm(vmTags={"cost": "a", "team": "x"})
    theirs = {"labels": {**vm.instance["labels"], "theirs": "1"}, "labelFingerprint": vm.instance["labelFingerprint"]}
    vm.call("instances.setLabels", theirs, instance=vm.name)
    before, labels = mark(cloud), vm.instance["labels"]
    before = mark(cloud)
    response = vm.update(vmTags={"cost": "b"})
    assert [c.operation for c in calls(cloud, since=before)] == [
        "instances.get", "instances.setLabels", "zoneOperations.wait",
    ]  # fmt: skip
    assert vm.instance["labels"] == {k: v for k, v in {**labels, "cost": "b"}.items() if k != "team"}
    assert response.changed == [f"{vm.name}: removed team, set cost"]
    assert [(r.id, r.kind, r.error) for r in response.resources] == [(vm.name, "instance", None)]


def test_everything_that_is_hot_in_one_update(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm(disks=[BOOT, {**DATA, "labels": {"d": "1"}}, {"type": "SCRATCH", "interface": "NVME"}])
    before = mark(cloud)
    response = vm.update(
        vmTags={"A.b": "C"},
        tags=[*MUST, "web"],
        metadata=[{"key": "m", "value": "1"}],
        diskTags={"all": "1"},
        disks=[BOOT, {**DATA, "labels": {"d": "2"}}, {"type": "SCRATCH", "interface": "NVME"}],
    )
    assert mutating(cloud, before) == [
        "instances.setLabels", "instances.setTags", "instances.setMetadata", "disks.setLabels", "disks.setLabels",
    ]  # fmt: skip
    instance, disks = vm.instance, vm.disks
    assert {*instance["tags"]["items"]} == {*MUST, "web"}
    metadata = {i["key"]: i["value"] for i in instance["metadata"]["items"]}
    assert metadata == {"user-data": vm.given.user_data, "m": "1"}  # the user data stays
    boot, data = (disks[d["source"].rsplit("/", 1)[-1]]["labels"] for d in instance["disks"][:2])
    assert (boot["all"], data["all"], data["d"]) == ("1", "1", "2")
    assert "d" not in boot
    assert [r.kind for r in response.resources] == ["instance", "disk", "disk"]
    assert vm.update() == UpdateMachineResponse()
    before = mark(cloud)
    vm.update(tags=[*MUST], metadata=[])
    assert {*vm.instance["tags"]["items"]} == {*MUST}
    assert [i["key"] for i in vm.instance["metadata"]["items"]] == ["user-data"]


def test_the_user_data_of_a_vm_is_nothing_that_a_class_changes(cloud: GcpCloud, new_vm: Any) -> None:
    """It is the attempt's, with a token in it, and stays whatever a class's metadata say."""
    vm = new_vm()
    vm.update(metadata=[{"key": "user-data", "value": "b"}, {"key": "m", "value": "1"}])
    vm.update(metadata=[{"key": "m", "value": "2"}])
    metadata = {i["key"]: i["value"] for i in vm.instance["metadata"]["items"]}
    assert metadata == {"user-data": vm.given.user_data, "m": "2"}


def test_fields_that_roll_and_equal_specs_are_no_call(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm()
    before = mark(cloud)
    assert vm.update(machineType="n2-standard-4", canIpForward=True, tags=MUST[::-1]) == UpdateMachineResponse()
    assert calls(cloud, since=before) == []
    vm.update(vmTags={"a": "1"})
    assert calls(cloud, since=before)


@pytest.mark.parametrize("code", ["conditionNotMet", "CONDITION_NOT_MET"])
def test_what_somebody_else_changed_meanwhile_is_read_and_planned_again(
    cloud: GcpCloud, new_vm: Any, code: str
) -> None:
    vm = new_vm(diskTags={"d": "1"})
    for operation in ("instances.setLabels", "instances.setTags", "disks.setLabels"):
        fault(cloud, operation, code, times=2)
    vm.update(vmTags={"a": "1"}, tags=[*MUST, "web"], diskTags={"d": "2"})
    assert vm.instance["labels"]["a"] == "1"
    assert "web" in vm.instance["tags"]["items"]
    assert [d["labels"]["d"] for d in vm.disks.values() if d["name"].startswith(vm.name)] == ["2"]
    fault(cloud, "instances.setLabels", code, times=None)
    with pytest.raises(PartialUpdate) as given_up:
        vm.update(vmTags={"a": "2"})
    assert given_up.value.error_class is ErrorClass.CONFLICT


def test_an_alias_ip_range_is_added_and_the_nodes_own_stays(cloud: GcpCloud, new_vm: Any) -> None:
    """A Node's podCIDR never changes: without its range its pods would be cut off."""
    first = {**SPEC["networkInterfaces"][0], "subnetwork": "nodes", "useAliasIPs": True, "ipCidrRange": "/24"}
    vm = new_vm(networkInterfaces=[{**first, "subnetworkRangeName": "pods"}])
    (own,) = vm.instance["networkInterfaces"][0]["aliasIpRanges"]
    before, last = mark(cloud), vm.given.spec
    fault(cloud, "instances.updateNetworkInterface", "conditionNotMet")
    wanted = {**first, "subnetworkRangeName": "pods", "ipCidrRange": "/26"}
    assert vm.update(networkInterfaces=[wanted]).changed == [f"{vm.name}: set alias IP range of nic0: /26"]
    assert mutating(cloud, before) == ["instances.updateNetworkInterface"] * 2
    kept, added = vm.instance["networkInterfaces"][0]["aliasIpRanges"]
    assert (kept, added["subnetworkRangeName"], added["ipCidrRange"][-3:]) == (own, "pods", "/26")
    before, vm.given.spec = mark(cloud), last  # the answer was lost
    vm.update(networkInterfaces=[wanted])
    vm.update(networkInterfaces=[{**wanted, "useAliasIPs": False}])
    assert mutating(cloud, before) == []
    assert len(vm.instance["networkInterfaces"][0]["aliasIpRanges"]) == 2


def test_an_error_at_one_resource_does_not_keep_the_others_from_their_labels(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm(diskTags={"d": "1"})
    fault(cloud, "instances.setLabels", "forbidden")
    with pytest.raises(PartialUpdate) as partial:
        vm.update(vmTags={"a": "1"}, diskTags={"d": "2"})
    assert partial.value.error_class is ErrorClass.AUTH
    assert [(r.kind, r.error is None) for r in partial.value.resources] == [("instance", False), ("disk", True)]
    assert [d["labels"]["d"] for d in vm.disks.values() if d["name"].startswith(vm.name)] == ["2"]


@pytest.mark.parametrize("operation", ["disks.get", "disks.setLabels"])
def test_a_disk_that_vanished_meanwhile_is_no_error_and_is_said(cloud: GcpCloud, new_vm: Any, operation: str) -> None:
    vm = new_vm(diskTags={"d": "1"})
    fault(cloud, operation, "notFound")
    done = vm.update(vmTags={"a": "1"}, diskTags={"d": "2"})
    assert [r.changed for r in done.resources] == [["set a"], ["gone meanwhile"]]


def test_a_disk_is_known_by_its_name_and_one_that_is_not_attached_is_said(cloud: GcpCloud, new_vm: Any) -> None:
    """Google's list has no gap where a disk was detached: the next one, or one that somebody attaches, is there."""
    disks = [BOOT, {**DATA, "labels": {"d": "1"}}, {**DATA, "labels": {"d": "2"}}]
    vm, other = new_vm(disks=disks), new_vm(disks=disks)
    one, two = (d["source"].rsplit("/", 1)[-1] for d in vm.instance["disks"][1:])
    theirs = other.instance["disks"][1]["source"].rsplit("/", 1)[-1]

    def swap() -> None:
        found = {i.name: i.disks for i in cloud.gce._instances.records.values() if i.gone_at is None}
        mine, yours = found[vm.name], found[other.name]
        del mine[1]
        mine.append(yours.pop(1))

    cloud.do(swap)
    wanted = [BOOT, {**DATA, "labels": {"d": "one"}}, {**DATA, "labels": {"d": "two"}}]
    with pytest.raises(PartialUpdate, match=r"disks\[1\] is not attached, so its labels are not changed") as partial:
        vm.update(disks=wanted)
    assert partial.value.error_class is ErrorClass.CONFLICT
    labels = {name: disk["labels"]["d"] for name, disk in vm.disks.items() if "d" in disk["labels"]}
    assert (labels[one], labels[two], labels[theirs]) == ("1", "two", "1")


def test_one_bad_entry_does_not_keep_the_good_ones_from_being_set(cloud: GcpCloud, new_vm: Any) -> None:
    """An organization's policy, for example, that knows which metadata may be set."""
    vm, policy = new_vm(diskTags={"d": "1"}), "Constraint constraints/compute.requireOsLogin violated for project 1"
    good = [{"key": f"good-{n}", "value": "1"} for n in range(6)]
    fault(cloud, "instances.setMetadata", "conditionNotMet", match='"enable-oslogin"', message=policy, times=None)
    fault(cloud, "disks.setLabels", "invalid", match='"bad"', times=None)
    before = mark(cloud)
    with pytest.raises(PartialUpdate) as partial:
        vm.update(
            metadata=[*good, {"key": "enable-oslogin", "value": "FALSE"}], diskTags={"bad": "1", "d": "2", "e": "1"}
        )
    assert partial.value.error_class is ErrorClass.INVALID
    assert f"{vm.name}, metadata enable-oslogin: instances.setMetadata: conditionNotMet" in partial.value.message
    assert "label bad: disks.setLabels: invalid" in partial.value.message
    assert "good" not in partial.value.message
    assert {i["key"] for i in vm.instance["metadata"]["items"]} == {"user-data", *(g["key"] for g in good)}
    (labels,) = [d["labels"] for d in vm.disks.values() if d["name"].startswith(vm.name)]
    assert (labels["d"], labels["e"], "bad" in labels) == ("2", "1", False)
    assert len(calls(cloud, "instances.setMetadata", before)) < 8  # halves, not one by one


def test_must_tags_never_change_and_limits_count_those_of_others(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm()
    before = mark(cloud)
    for change in ({"tags": ["kubernetes-io-cluster-other", MUST[1]]}, {"tags": MUST[1:]}):
        with pytest.raises(DriverError, match="nothing is changed") as refused:
            vm.update(**change)
        assert refused.value.error_class is ErrorClass.INVALID
    assert calls(cloud, since=before) == []
    body = {"items": [*MUST, *(f"theirs-{n}" for n in range(61))]}
    body["fingerprint"] = vm.instance["tags"]["fingerprint"]
    vm.call("instances.setTags", body, instance=vm.name)
    with pytest.raises(PartialUpdate, match="65 tags, including those of others"):
        vm.update(tags=[*MUST, "a", "b"])
    vm.update(tags=[*MUST, "a"])
    assert len(vm.instance["tags"]["items"]) == 64


def test_another_machines_vm_is_not_touched(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm()
    theirs = {**vm.instance["labels"], "hostler-io-uid": "another"}
    body = {"labels": theirs, "labelFingerprint": vm.instance["labelFingerprint"]}
    vm.call("instances.setLabels", body, instance=vm.name)
    with pytest.raises(DriverError, match="belongs to another machine") as refused:
        vm.update(vmTags={"a": "1"})
    assert refused.value.error_class is ErrorClass.CONFLICT
    with pytest.raises(DriverError, match="belongs to another machine"):
        cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id))
