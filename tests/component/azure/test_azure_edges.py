"""Others' tags beside ours, a failed interface, a lock, a resource group that is gone, and names at their limits."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.azure import KEY_UID, AzureCloud
from clouds.drivers import Given, calls, delete_until_gone, fault, machine, mark, mutating

from drivers.azure import places
from drivers.azure.calls import Arm
from drivers.azure.tags import merge
from drivers.base import Evidence
from drivers.errors import DriverError, PartialUpdate
from resources.clouds.azure.spec import TAG_RULES
from resources.errors import ErrorClass
from simulator.frame import Lag

KINDS = {"vm": "virtualMachines", "nic": "networkInterfaces", "disk": "disks"}


def change(cloud: AzureCloud, given: Given, vm: str, **spec: Any) -> Any:
    desired = {**given.spec, **spec}
    return cloud.driver.update_machine(given.update(vm, provider_spec=desired, last_applied_provider_spec=given.spec))


def tags(cloud: AzureCloud, given: Given, kind: str) -> dict[str, str]:
    found = [r for r in cloud.do(cloud.arm.resources) if r.kind == KINDS[kind] and given.machine.uid in r.tags.values()]
    return dict(found[0].tags)


def put(cloud: AzureCloud, given: Given, kind: str, more: dict[str, str]) -> None:
    """Somebody else tags it."""
    arm = cloud.driver.driver._clients.get(places.place_of(given.spec), cloud.secret)
    (found,) = [
        r
        for r in arm.resources(f"tagName eq '{KEY_UID}' and tagValue eq '{given.machine.uid}'")
        if r["type"].endswith(KINDS[kind])
    ]
    merge(arm, found["id"], more)


@pytest.mark.parametrize("kind", KINDS)
def test_others_tags_stay_and_count_towards_the_limit(cloud: AzureCloud, kind: str) -> None:
    given = machine(cloud, **{f"{kind}Tags": {"cost": "a", "team": "x"}})
    made = cloud.driver.create_machine(given.creation())
    cloud.driver.update_machine(given.update(made.provider_id))  # the disks' own
    room = TAG_RULES.limit - len(tags(cloud, given, kind))
    put(cloud, given, kind, {f"theirs-{n}": "1" for n in range(room)})
    before = mark(cloud)
    with pytest.raises(PartialUpdate, match="including those of others") as full:
        change(cloud, given, made.provider_id, **{f"{kind}Tags": {"cost": "b", "team": "x", "new": "1"}})
    assert full.value.error_class is ErrorClass.INVALID
    assert mutating(cloud, before) == []
    change(cloud, given, made.provider_id, **{f"{kind}Tags": {"COST": "b", "new": "1"}})  # team makes room
    carried = tags(cloud, given, kind)
    assert {k.lower(): v for k, v in carried.items() if k.lower() in ("cost", "team", "new")} == {
        "cost": "b",
        "new": "1",
    }
    assert len(carried) == TAG_RULES.limit
    assert sum(k.startswith("theirs-") for k in carried) == room


def test_a_must_tag_never_changes(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    with pytest.raises(DriverError, match="nothing is changed") as refused:
        change(cloud, given, made.provider_id, tags={"kubernetes.io/role/node": "1"})
    assert refused.value.error_class is ErrorClass.INVALID
    assert calls(cloud, since=before) == []


def test_what_is_another_machines_is_not_touched(cloud: AzureCloud) -> None:
    given, wanted = machine(cloud), {"vmTags": {"a": "1"}, "nicTags": {"a": "1"}, "diskTags": {"a": "1"}}
    made = cloud.driver.create_machine(given.creation())
    put(cloud, given, "disk", {KEY_UID: "another"})
    before = mark(cloud)
    done = change(cloud, given, made.provider_id, **wanted)
    assert [r.kind for r in done.resources] == ["virtual machine", "network interface"]
    assert len(mutating(cloud, before)) == 2
    put(cloud, given, "vm", {KEY_UID: "another"})
    before = mark(cloud)
    with pytest.raises(DriverError, match="belongs to another machine") as refused:
        change(cloud, given, made.provider_id, vmTags={"b": "1"})
    assert refused.value.error_class is ErrorClass.CONFLICT
    assert mutating(cloud, before) == []


def test_one_resource_that_fails_does_not_keep_the_others_from_their_tags(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, cloud.tagging, "AuthorizationFailed", match="virtualMachines")
    with pytest.raises(PartialUpdate) as partial:
        change(cloud, given, made.provider_id, vmTags={"a": "1"}, nicTags={"b": "1"}, diskTags={"c": "1"})
    assert partial.value.error_class is ErrorClass.AUTH
    assert [(r.kind, r.error is None) for r in partial.value.resources] == [
        ("virtual machine", False),
        ("disk", True),
        ("network interface", True),
    ]
    assert (tags(cloud, given, "disk")["c"], tags(cloud, given, "nic")["b"]) == ("1", "1")


def test_a_disk_that_vanished_meanwhile_is_no_error_and_is_said(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, cloud.tagging, "ResourceNotFound", match="/disks/")
    done = change(cloud, given, made.provider_id, vmTags={"a": "1"}, diskTags={"c": "1"})
    assert [(r.kind, r.changed) for r in done.resources] == [
        ("virtual machine", ["set a"]),
        ("disk", ["gone meanwhile"]),
    ]


def test_one_bad_tag_does_not_keep_the_good_ones_from_being_set(cloud: AzureCloud) -> None:
    """A policy of the subscription, for example, that knows which cost centers there are."""
    given, good = machine(cloud), {f"good-{n}": "1" for n in range(6)}
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, cloud.tagging, "RequestDisallowedByPolicy", match='"bad"', times=None)
    before = mark(cloud)
    with pytest.raises(PartialUpdate, match="tag bad: Tags_UpdateAtScope: RequestDisallowedByPolicy") as partial:
        change(cloud, given, made.provider_id, vmTags={**good, "bad": "1"}, nicTags={}, diskTags={})
    assert partial.value.error_class is ErrorClass.INVALID
    assert "good" not in partial.value.message
    assert good.items() <= tags(cloud, given, "vm").items()
    (result,) = partial.value.resources
    assert sorted(result.changed) == [f"set {k}" for k in sorted(good)]
    assert len(calls(cloud, cloud.tagging, before)) < 8  # halves, not one by one
    cloud.do(cloud.frame.clear_faults)
    fault(cloud, cloud.tagging, "TooManyTags", times=None)
    before = mark(cloud)
    with pytest.raises(PartialUpdate):
        change(cloud, given, made.provider_id, vmTags={"c": "1", "d": "1"}, nicTags={}, diskTags={})
    assert len(calls(cloud, cloud.tagging, before)) == 1  # too many are no single tag's fault


def test_an_interface_that_somebody_changes_meanwhile_is_a_conflict_and_the_next_pass_goes_on(
    cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    off = {**given.spec["properties"], "networkProfile": {"ipForwarding": False}}
    real, theirs = Arm.call, [{"theirs": "1"}]

    def meanwhile(arm: Arm, operation: str, *args: Any, **more: Any) -> Any:
        answer = real(arm, operation, *args, **more)
        if operation == "NetworkInterfaces_Get" and theirs:
            put(cloud, given, "nic", theirs.pop())
        return answer

    monkeypatch.setattr(Arm, "call", meanwhile)
    with pytest.raises(PartialUpdate, match="PreconditionFailed") as conflict:
        change(cloud, given, made.provider_id, properties=off)
    assert conflict.value.error_class is ErrorClass.CONFLICT
    (changed,) = change(cloud, given, made.provider_id, properties=off).changed
    assert changed.endswith("IP forwarding off")
    assert tags(cloud, given, "nic")["theirs"] == "1"


def test_a_name_in_another_spelling_is_the_same_tag(cloud: AzureCloud) -> None:
    given = machine(cloud, vmTags={"cost": "a"})
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    change(cloud, given, made.provider_id, vmTags={"Cost": "b"})
    assert len(mutating(cloud, before)) == 1, "removed first, it would be gone for a moment"
    assert {k.lower(): v for k, v in tags(cloud, given, "vm").items()}["cost"] == "b"


def test_ip_forwarding_takes_the_classs_tags_along_however_late_reads_are(cloud: AzureCloud) -> None:
    """The interface is written whole, as it was read: that read may not show the tags of a moment ago."""
    given = machine(cloud, nicTags={"team": "a", "old": "1"})
    made = cloud.driver.create_machine(given.creation())
    off = {**given.spec["properties"], "networkProfile": {"ipForwarding": False}}
    cloud.frame.lag = Lag(tags=60.0)
    change(cloud, given, made.provider_id, properties=off, nicTags={"team": "b"})
    assert "NetworkInterfaces_CreateOrUpdate" in mutating(cloud)
    carried = tags(cloud, given, "nic")
    assert (carried["team"], "old" in carried, carried[KEY_UID]) == ("b", False, given.machine.uid)


@pytest.mark.parametrize("kind", ["nic", "disk"])
@pytest.mark.parametrize("tagged", [True, False])
def test_what_a_vm_leaves_behind_goes(cloud: AzureCloud, kind: str, tagged: bool) -> None:
    """Somebody has changed what was made to go with its VM; without tags its name tells whose it is."""
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    name = made.provider_id.rsplit("/", 1)[-1]

    def lose_the_vm() -> None:
        (vm,) = [m for m in cloud.arm._machines.store.records.values() if given.machine.uid in m.tags.values()]
        parts = [*cloud.arm._interfaces.store.records.values(), *cloud.arm._disks.store.records.values()]
        (part,) = [p for p in parts if p.id.rsplit("/", 1)[-1] == f"{name}{'-nic' if kind == 'nic' else '-os-disk'}"]
        if kind == "nic":
            part.delete_with_vm = False
        else:
            vm.properties["storageProfile"]["osDisk"]["deleteOption"] = "Detach"
        if not tagged:
            part.tags.clear()
        cloud.arm._machines.end(vm)
        left.append(part.id)

    left: list[str] = []
    cloud.do(lose_the_vm)
    assert there(cloud, left[0])
    delete_until_gone(given, made.provider_id)
    assert not there(cloud, left[0])


def there(cloud: AzureCloud, resource_id: str) -> bool:
    return any(r.id.lower() == resource_id.lower() for r in cloud.do(cloud.arm.resources))


def test_a_lock_is_said_in_azures_words(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "VirtualMachines_Delete", "ScopeLocked")
    with pytest.raises(DriverError, match="ScopeLocked") as locked:
        cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert locked.value.error_class is ErrorClass.CONFLICT
    delete_until_gone(given, made.provider_id)
    assert cloud.left(given.machine.uid) == {}


def test_v8_in_a_resource_group_that_is_gone_no_vm_is(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "*s_*", "ResourceGroupNotFound", times=None)
    assert cloud.driver.delete_machine(given.deletion(made.provider_id)).evidence is Evidence.NOT_FOUND
    with pytest.raises(DriverError) as gone:
        cloud.driver.get_machine_status(given.status(made.provider_id))
    assert gone.value.error_class is ErrorClass.NOT_FOUND
    assert cloud.driver.list_machines(given.listing(provider_ids=[made.provider_id])).machines == []


def test_names_keep_azures_limits_and_what_is_made_is_found_by_them(cloud: AzureCloud) -> None:
    """Azure takes 64 characters for a VM and 80 for a disk."""
    image = next(name for name in cloud.arm.world.image_ids if name.startswith("/CommunityGalleries"))
    properties = cloud.spec()["properties"]
    data = [
        {"name": "d" * 70, "lun": 62, "diskSizeGB": 10},
        {"name": "d" * 70, "lun": 63, "diskSizeGB": 40, "imageRef": {"communityGalleryImageID": image}},
    ]
    storage = {**properties["storageProfile"], "dataDisks": data}
    given = machine(cloud, name="m." * 100 + "m", properties={**properties, "storageProfile": storage})
    made = cloud.driver.create_machine(given.creation())
    left = cloud.left(given.machine.uid)
    assert len(left["disks"]) == 3
    delete_until_gone(given, made.provider_id)
    assert cloud.left(given.machine.uid) == {}
