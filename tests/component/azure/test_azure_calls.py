"""What a machine asks of Azure, and what machines ask together."""

from __future__ import annotations

import pytest
from clouds.azure import AzureCloud
from clouds.drivers import Given, calls, delete_until_gone, machine, mark

from drivers.azure import places
from drivers.base import DriverSettings, MachineStatus, Making
from drivers.errors import DriverError

LIST, MAKE, SEE = "Resources_ListByResourceGroup", "VirtualMachines_CreateOrUpdate", "VirtualMachines_Get"


ONCE = ("VirtualMachineImages_Get", "Subnets_Get")
"""Asked once for all machines of a class."""


def asked(cloud: AzureCloud, since: int) -> list[str]:
    return [c.operation for c in calls(cloud, since=since) if c.operation not in ONCE]


def test_a_creation_that_follows_a_look_reads_nothing_before_it_makes_it(cloud: AzureCloud) -> None:
    given = machine(cloud)
    look_for(given)
    before = mark(cloud)
    made = cloud.driver.create_machine(given.creation())
    assert asked(cloud, before) == ["NetworkInterfaces_CreateOrUpdate", MAKE, SEE]
    assert made.addresses


@pytest.mark.parametrize("looked", [True, False])
def test_a_worker_finds_the_vm_that_another_one_has_made_meanwhile(cloud: AzureCloud, looked: bool) -> None:
    given, other = machine(cloud), cloud.driver_with(DriverSettings())
    if looked:
        look_for(given)
    first = other.create_machine(given.creation())
    assert cloud.driver.create_machine(given.creation()).provider_id == first.provider_id
    assert cloud.living(given.machine.uid) == [first.provider_id.rsplit("/", 1)[-1]]


def look_for(given: Given) -> None:
    with pytest.raises(DriverError, match="has no VM"):
        given.cloud.driver.get_machine_status(given.status(token=""))


def test_what_a_post_start_update_has_not_to_change_it_does_not_read(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    assert cloud.driver.update_machine(given.update(made.provider_id)).changed == []
    assert asked(cloud, before) == []


def test_a_deletion_is_one_listing_a_pass(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    delete_until_gone(given, made.provider_id)
    found = asked(cloud, before)
    assert found.count("VirtualMachines_Delete") == 1
    assert set(found) == {LIST, "VirtualMachines_Delete"}
    assert found.index("VirtualMachines_Delete") == 1


def test_creations_at_once_share_their_looks(cloud: AzureCloud) -> None:
    cloud.arm.settings.delays.create = 3600.0
    given = [machine(cloud) for _ in range(5)]
    driver = cloud.driver_with(DriverSettings()).driver

    def a_pass() -> list[MachineStatus | Making]:
        return [driver.create_machine(one.creation()) for one in given]

    assert all(isinstance(answer, Making) for answer in a_pass())
    before = mark(cloud)
    assert all(isinstance(answer, Making) for answer in a_pass())
    assert asked(cloud, before) == ["VirtualMachines_List"]
    cloud.do(cloud.arm.fast_forward)
    driver._known.together(driver._clients.get(places.place_of(given[0].spec), cloud.secret))._read_at -= 60.0
    before = mark(cloud)
    made = [vm for vm in a_pass() if isinstance(vm, MachineStatus)]
    assert {vm.name for vm in made} == {one.machine.name for one in given}
    assert set(asked(cloud, before)) == {"VirtualMachines_List", SEE}
