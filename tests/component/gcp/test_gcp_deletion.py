"""Deletions: what is kept, what a creation has left behind, protection, and what proves an end."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.drivers import calls, delete_until_gone, fault, machine, mark, mutating
from clouds.gcp import SPEC, GcpCloud

from drivers.base import Evidence
from drivers.errors import DriverError
from resources.errors import ErrorClass

BOOT = SPEC["disks"][0]
KEPT = {"type": "pd-ssd", "sizeGb": 20, "autoDelete": False}


def test_a_vm_whose_disks_go_with_it_costs_a_read_and_a_call(cloud: GcpCloud, new_vm: Any) -> None:
    cloud.set_delays(boot=0.0, terminate=60.0)
    vm = new_vm()
    before = mark(cloud)
    first = cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id))
    assert [c.operation for c in calls(cloud, since=before)] == ["instances.get", "instances.delete"]
    assert first.going == [vm.made.provider_id]
    before = mark(cloud)
    again = cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id, going=first.going))
    assert (again.evidence, again.going) == (Evidence.PRESENT, first.going)
    assert [c.operation for c in calls(cloud, since=before)] == ["instances.get"]


def test_a_kept_disk_is_protected_before_the_vm_goes(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm(disks=[BOOT, KEPT], diskTags={"theirs": "1"})
    kept = vm.instance["disks"][1]["source"].rsplit("/", 1)[-1]
    first = cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id))
    assert mutating(cloud)[-1] == "disks.setLabels"
    assert "waits for the labels of what is kept" in first.left[0]
    last = delete_until_gone(vm.given, vm.made.provider_id)
    assert (last.evidence, last.kept) == (Evidence.TERMINATED, [kept])
    assert cloud.left(vm.given.machine.uid) == {}
    labels = cloud.do(lambda: next(d.labels.value for d in cloud.gce._disks.records.values() if d.name == kept))
    assert "hostler-io-released-by" in labels
    assert "hostler-io-uid" not in labels
    assert labels["theirs"] == "1"
    assert cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id)).kept == [kept]  # it stays


@pytest.mark.parametrize("asked", [True, False])
def test_protection_is_lifted_where_the_class_asked_for_it(cloud: GcpCloud, new_vm: Any, asked: bool) -> None:
    vm = new_vm(deletionProtection=True)
    if not asked:
        vm.given.spec = SPEC
        with pytest.raises(DriverError, match="--no-deletion-protection") as refused:
            cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id))
        assert refused.value.error_class is ErrorClass.CONFLICT
        assert len(cloud.living(vm.given.machine.uid)) == 1
        number = vm.instance["id"]
        vm.call("instances.setDeletionProtection", resource=number, deletion_protection=False)
    delete_until_gone(vm.given, vm.made.provider_id)
    assert cloud.left(vm.given.machine.uid) == {}


def test_the_next_life_of_a_name_is_not_hit(cloud: GcpCloud, new_vm: Any) -> None:
    former = new_vm()
    delete_until_gone(former.given, former.made.provider_id)
    given = machine(cloud, name=former.name, cluster=former.given.machine.cluster)
    cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    with pytest.raises(DriverError, match="belongs to another machine"):
        cloud.driver.delete_machine(former.given.deletion(former.made.provider_id))
    answer = cloud.driver.delete_machine(former.given.deletion())
    assert answer.evidence is Evidence.TERMINATED  # by its own operation, beside the next life's VM
    assert mutating(cloud, before) == []
    assert len(cloud.living(given.machine.uid)) == 1


def test_a_disk_left_behind_goes_and_one_that_is_in_use_waits(cloud: GcpCloud, new_vm: Any) -> None:
    """A partial disk: what carries the uid and no VM has."""
    vm = new_vm()
    disk = vm.instance["disks"][0]["source"].rsplit("/", 1)[-1]
    cloud.do(lambda: setattr(cloud.gce._instances.records[_number(cloud, vm.name)].disks[0], "auto_delete", False))
    vm.call("instances.delete", instance=vm.name)
    assert cloud.left(vm.given.machine.uid) == {"disks": [disk]}
    fault(cloud, "disks.delete", "resourceInUseByAnotherResource")
    waits = cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id))
    assert (waits.evidence, waits.left) == (Evidence.PRESENT, [f"{disk} READY"])
    delete_until_gone(vm.given, vm.made.provider_id)
    assert cloud.left(vm.given.machine.uid) == {}


def _number(cloud: GcpCloud, name: str) -> str:
    return next(n for n, i in cloud.gce._instances.records.items() if i.name == name and i.gone_at is None)


def test_v10_a_vm_that_others_deleted_is_not_found_and_they_are_named(cloud: GcpCloud, new_vm: Any) -> None:
    """V10: a missing VM is not found."""
    vm = new_vm()
    vm.call("instances.delete", instance=vm.name)
    with pytest.raises(DriverError, match=r"is terminated: .*@.* deleted it") as gone:
        cloud.driver.get_machine_status(vm.given.status(vm.made.provider_id))
    assert gone.value.error_class is ErrorClass.NOT_FOUND


@pytest.mark.parametrize(("spec", "words"), [({}, "zone is missing"), ({"zone": 7}, "zone is missing")])
def test_v10_a_spec_without_a_place_is_an_error_before_any_call(
    cloud: GcpCloud, spec: dict[str, Any], words: str
) -> None:
    """V10: missing zone: error before any call."""
    given = machine(cloud)
    given.spec = spec
    for ask in (
        lambda: cloud.driver.delete_machine(given.deletion()),
        lambda: cloud.driver.get_machine_status(given.status()),
        lambda: cloud.driver.list_machines(given.listing()),
    ):
        with pytest.raises(DriverError, match=words) as refused:
            ask()
        assert refused.value.error_class is ErrorClass.INVALID
    assert calls(cloud) == []
