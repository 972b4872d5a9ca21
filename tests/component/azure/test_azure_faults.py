"""Every call of a creation, an update and a deletion struck, with every kind of fault, each pass by a worker that knows
nothing of the passes before: one VM, the right tags, and in the end nothing left. Then creations that fail for good."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.azure import AzureCloud
from clouds.drivers import MOST, Given, again_and_again, calls, fault, machine

from drivers.base import DeleteMachineRequest, DeleteMachineResponse, Driver, DriverSettings, Evidence, Making
from drivers.errors import DriverError
from resources.errors import ErrorClass
from simulator.frame import FaultRule

KINDS: dict[str, dict[str, Any]] = {
    "lost reply": {"drop": True},
    "throttled": {"code": "TooManyRequests"},
    "out of order": {"code": "InternalServerError"},
}
DATA = {"name": "data", "lun": 0, "diskSizeGB": 20, "storageAccountType": "Premium_LRS"}
OPERATIONS = (
    "NetworkInterfaces_CreateOrUpdate",
    "NetworkInterfaces_Get",
    "VirtualMachines_CreateOrUpdate",
    "VirtualMachines_Get",
    "VirtualMachines_Delete",
    "Tags_UpdateAtScope",
    "Subnets_Get",
    "VirtualMachineImages_Get",
    "Resources_ListByResourceGroup",
)


def ended(cloud: AzureCloud, deletion: DeleteMachineRequest) -> None:
    def is_gone(answer: DeleteMachineResponse) -> bool:
        return answer.evidence is not Evidence.PRESENT

    again_and_again(cloud, cloud.arm.fast_forward, lambda driver: driver.delete_machine(deletion), is_gone)


def life(cloud: AzureCloud, rule: FaultRule | None = None) -> None:
    """The life of one machine with a data disk; with a rule, its calls are struck."""
    if rule is not None:
        cloud.do(lambda: cloud.frame.faults.append(rule))
    spec = cloud.spec()
    storage = {**spec["properties"]["storageProfile"], "dataDisks": [DATA]}
    given = machine(cloud, properties={**spec["properties"], "storageProfile": storage}, vmTags={"cost": "a"})
    made: list[str] = []

    def create(driver: Driver) -> Any:
        return driver.create_machine(given.creation())

    def is_made(vm: Any) -> bool:
        if not isinstance(vm, Making):
            made.append(vm.provider_id)
        return bool(made)

    again_and_again(cloud, cloud.arm.fast_forward, create, is_made)
    assert len(cloud.living(given.machine.uid)) == 1
    desired = {**given.spec, "vmTags": {"cost": "b"}, "nicTags": {"n": "1"}, "diskTags": {"d": "1"}}
    update = given.update(made[0], provider_spec=desired, last_applied_provider_spec=given.spec)
    again_and_again(cloud, cloud.arm.fast_forward, lambda driver: driver.update_machine(update), lambda _: True)
    assert len(cloud.living(given.machine.uid)) == 1
    its = [r for r in cloud.do(cloud.arm.resources) if given.machine.uid in r.tags.values()]
    wanted = {"virtualMachines": ("cost", "b"), "networkInterfaces": ("n", "1"), "disks": ("d", "1")}
    assert {r.kind for r in its} == wanted.keys()
    assert all(wanted[r.kind] in r.tags.items() for r in its)
    ended(cloud, given.deletion(made[0]))
    assert cloud.left(given.machine.uid) == {}


def test_the_life_that_is_struck_has_every_kind_of_call(cloud: AzureCloud) -> None:
    life(cloud)
    assert {c.operation for c in calls(cloud)} == set(OPERATIONS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_call_struck_twice(cloud: AzureCloud, operation: str, kind: str) -> None:
    struck = FaultRule(operation=operation, times=2, **KINDS[kind])
    life(cloud, struck)
    assert struck.hits >= 1  # a lost reply of the deletion leaves nothing to delete


def create(cloud: AzureCloud, given: Given) -> Any:
    return cloud.driver_with(DriverSettings()).create_machine(given.creation())


def create_whole(cloud: AzureCloud, given: Given) -> None:
    for _ in range(MOST):
        cloud.do(cloud.arm.fast_forward)
        create(cloud, given)


@pytest.mark.parametrize("code", ["SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed"])
def test_a_creation_without_capacity_leaves_nothing(cloud: AzureCloud, code: str) -> None:
    """Refused at once, or failed late: the network interface goes too, since the next try may be in another zone, or
    never come (machine-controller-manager-provider-azure #216)."""
    given = machine(cloud)
    cloud.do(lambda: cloud.frame.faults.append(FaultRule(operation="VirtualMachines_CreateOrUpdate", code=code)))
    cloud.arm.settings.delays.reservation = 0.0  # of its network interface
    with pytest.raises(DriverError) as refused:
        create_whole(cloud, given)
    assert (refused.value.error_class, refused.value.provider_code) == (ErrorClass.CAPACITY, code)
    cloud.do(cloud.arm.fast_forward)
    ended(cloud, given.deletion(None))
    assert cloud.left(given.machine.uid) == {}


def test_a_vm_whose_creation_has_failed_is_no_machines_vm(cloud: AzureCloud) -> None:
    """A worker that begins again looks for a VM first: it must not take this one over, but clear it away and say why
    there is none, without the user data that Azure quotes."""
    given = machine(cloud)
    given.user_data = "#cloud-config\ntoken: canary-of-user-data\n"
    words = "no room for canary-of-user-data"
    fault(cloud, cloud.create, "AllocationFailed", message=words)
    cloud.arm.settings.delays.create = 3600.0
    assert isinstance(one_pass(cloud, given), Making)
    cloud.do(cloud.arm.fast_forward)
    assert len(cloud.living(given.machine.uid)) == 1
    with pytest.raises(DriverError) as unknown:
        cloud.driver.get_machine_status(given.status(token=""))
    assert unknown.value.error_class is ErrorClass.NOT_FOUND
    with pytest.raises(DriverError, match=r"AllocationFailed: no room for \*\*\*") as failure:
        one_pass(cloud, given)
    assert failure.value.error_class is ErrorClass.CAPACITY
    ended(cloud, given.deletion(None))
    assert cloud.left(given.machine.uid) == {}


def test_a_later_pass_whose_image_is_gone_clears_away_what_was_made(cloud: AzureCloud) -> None:
    given = machine(cloud)
    cloud.arm.settings.delays.resource = 3600.0
    assert isinstance(one_pass(cloud, given), Making)
    cloud.do(cloud.arm.fast_forward)
    assert list(cloud.left(given.machine.uid)) == ["networkInterfaces"]
    fault(cloud, "VirtualMachineImages_Get", "PlatformImageNotFound")
    with pytest.raises(DriverError, match="PlatformImageNotFound"):
        one_pass(cloud, given)
    cloud.do(cloud.arm.fast_forward)
    assert cloud.left(given.machine.uid) == {}


def one_pass(cloud: AzureCloud, given: Given) -> Any:
    """Runs one pass by a worker that knows nothing of those before."""
    return cloud.driver_with(DriverSettings()).driver.create_machine(given.creation())


def test_a_resource_group_that_is_gone_holds_nothing(cloud: AzureCloud) -> None:
    """V8."""
    given = machine(cloud)
    vm = create(cloud, given)
    missing = given.deletion(vm.provider_id)
    cloud.do(lambda: cloud.frame.faults.append(FaultRule(operation="*", code="ResourceGroupNotFound", times=None)))
    assert cloud.driver.delete_machine(missing).evidence is not Evidence.PRESENT


def test_a_vm_that_was_evicted_is_stopped_and_not_gone(cloud: AzureCloud) -> None:
    given = machine(cloud)
    vm = create(cloud, given)
    cloud.do(lambda: cloud.arm.evict(next(m.instance_id for m in cloud.arm.machines() if m.name in vm.provider_id)))
    cloud.do(cloud.arm.fast_forward)
    assert cloud.driver.get_machine_status(given.status(vm.provider_id)).state == "stopped"
    ended(cloud, given.deletion(vm.provider_id))
    assert cloud.left(given.machine.uid) == {}
