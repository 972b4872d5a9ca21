"""What is asked of Google again and again: once for all, and not at all where it is known."""

from __future__ import annotations

from typing import Any

from clouds.drivers import calls, machine, mark
from clouds.gcp import GcpCloud

from drivers.base import DriverSettings, MachineStatus, Making, VmState


def asked(cloud: GcpCloud, since: int) -> list[str]:
    return [c.operation for c in calls(cloud, since=since)]


def test_a_vm_that_we_had_deleted_is_looked_at_without_its_operation(cloud: GcpCloud, new_vm: Any) -> None:
    cloud.set_delays(boot=0.0, terminate=3600.0)
    vm = new_vm()
    cloud.driver.delete_machine(vm.given.deletion(vm.made.provider_id))
    before = mark(cloud)
    assert cloud.driver.get_machine_status(vm.given.status(vm.made.provider_id)).state is VmState.TERMINATING
    (listed,) = cloud.driver.list_machines(vm.given.listing()).machines
    assert listed.state is VmState.TERMINATING
    assert asked(cloud, before) == ["instances.get", "instances.list"]


def test_a_vm_that_somebody_else_had_deleted_is_asked_about_once(cloud: GcpCloud, new_vm: Any) -> None:
    cloud.set_delays(boot=0.0, terminate=3600.0)
    vm = new_vm()
    vm.cloud.driver.driver._clients.get(cloud.secret).call("instances.delete", zone="europe-west1-b", instance=vm.name)
    before = mark(cloud)
    looks = [cloud.driver.get_machine_status(vm.given.status(vm.made.provider_id)).state for _ in range(3)]
    assert looks == [VmState.TERMINATING] * 3
    assert asked(cloud, before).count("zoneOperations.list") == 1


def test_creations_at_once_share_their_looks(cloud: GcpCloud) -> None:
    cloud.gce.settings.insert_delay = 3600.0
    given = [machine(cloud) for _ in range(5)]
    driver = cloud.driver_with(DriverSettings()).driver

    def a_pass() -> list[MachineStatus | Making]:
        return [driver.create_machine(one.creation()) for one in given]

    assert all(isinstance(answer, Making) for answer in a_pass())
    before = mark(cloud)
    assert all(isinstance(answer, Making) for answer in a_pass())
    assert asked(cloud, before) == ["zoneOperations.list"]
    cloud.do(cloud.gce.fast_forward)
    (together,) = driver._together._table.values()
    together._read_at -= 60.0
    made = [vm for vm in a_pass() if isinstance(vm, MachineStatus)]
    assert {vm.name for vm in made} == {one.machine.name for one in given}


def test_a_creation_alone_asks_for_its_own_operation(cloud: GcpCloud) -> None:
    cloud.gce.settings.insert_delay = 3600.0
    given, driver = machine(cloud), cloud.driver_with(DriverSettings()).driver
    before = mark(cloud)
    assert all(isinstance(driver.create_machine(given.creation()), Making) for _ in range(3))
    assert asked(cloud, before) == ["instances.insert", "zoneOperations.get", "zoneOperations.get"]
