"""A creation and a deletion that take their time, struck at each look at them: every pass is by a worker that knows
nothing of the passes before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from clouds.azure import AzureCloud
from clouds.drivers import Given, fault, machine

from drivers.base import DeleteMachineResponse, Driver, DriverSettings, Evidence, MachineStatus, Making
from drivers.errors import DriverError
from resources.errors import PASSING, ErrorClass
from simulator.clouds.arm import Delays

T = TypeVar("T")
MOST = 40
KINDS: dict[str, dict[str, Any]] = {
    "lost reply": {"drop": True},
    "throttled": {"code": "TooManyRequests"},
    "out of order": {"code": "InternalServerError"},
}


@pytest.fixture
def slow(cloud: AzureCloud) -> AzureCloud:
    """Nothing is done when the call that begins it returns."""
    cloud.arm.settings.delays = Delays(create=60.0, terminate=60.0, resource=30.0)
    return cloud


def wanted(cloud: AzureCloud) -> Given:
    """A machine with a disk of each kind: made with the VM, and before it."""
    image = next(name for name in cloud.arm.world.image_ids if name.startswith("/CommunityGalleries"))
    properties = cloud.spec()["properties"]
    from_image = {"lun": 0, "diskSizeGB": 40, "imageRef": {"communityGalleryImageID": image}}
    disks = [from_image, {"lun": 1, "diskSizeGB": 20}]
    return machine(
        cloud, properties={**properties, "storageProfile": {**properties["storageProfile"], "dataDisks": disks}}
    )


def passes(cloud: AzureCloud, at: int | None = None, kind: str = "") -> Iterator[Driver]:
    """A driver for each pass; in the pass of this number the first call is struck that is no login."""
    for number in range(MOST):
        if number == at:
            fault(cloud, "*s_*", **KINDS[kind])
        yield cloud.driver_with(DriverSettings()).driver
        cloud.do(cloud.arm.fast_forward)
    raise AssertionError("it never ended")


def repeated(drivers: Iterator[Driver], do: Callable[[Driver], T], done: Callable[[T], bool]) -> tuple[T, int]:
    """The answer that ends it, and in which pass; an error is one that passes."""
    for number, driver in enumerate(drivers, 1):
        try:
            answer = do(driver)
        except DriverError as e:
            if e.error_class not in PASSING:
                raise
        else:
            if done(answer):
                return answer, number
    raise AssertionError


def create(given: Given, drivers: Iterator[Driver]) -> tuple[str, int]:
    def made(answer: MachineStatus | Making) -> bool:
        return not isinstance(answer, Making)

    answer, number = repeated(drivers, lambda driver: driver.create_machine(given.creation()), made)
    assert isinstance(answer, MachineStatus)
    return answer.provider_id, number


def delete(given: Given, provider_id: str | None, drivers: Iterator[Driver]) -> int:
    def gone(answer: DeleteMachineResponse) -> bool:
        return answer.evidence is not Evidence.PRESENT

    return repeated(drivers, lambda driver: driver.delete_machine(given.deletion(provider_id)), gone)[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", range(4))
def test_a_creation_struck_at_each_look_makes_one_vm(slow: AzureCloud, at: int, kind: str) -> None:
    given = wanted(slow)
    made, took = create(given, passes(slow, at, kind))
    assert took == 5  # interface, disk, VM, the look that finds it made, and the one that was struck
    assert [made.rsplit("/", 1)[-1]] == slow.living(given.machine.uid)
    assert {k: len(v) for k, v in slow.left(given.machine.uid).items()} == {
        "virtualMachines": 1,
        "networkInterfaces": 1,
        "disks": 3,
    }
    delete(given, made, passes(slow))
    assert slow.left(given.machine.uid) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", range(2))
def test_a_deletion_struck_at_each_look_leaves_nothing(slow: AzureCloud, at: int, kind: str) -> None:
    given = wanted(slow)
    made, _ = create(given, passes(slow))
    assert delete(given, made, passes(slow, at, kind)) == 3
    assert slow.left(given.machine.uid) == {}


@pytest.mark.parametrize("after", range(1, 5))
def test_a_creation_that_is_given_up_at_any_look_leaves_nothing(slow: AzureCloud, after: int) -> None:
    """Its machine is deleted in the middle: no providerID is known yet."""
    given = wanted(slow)
    for driver in (d for _, d in zip(range(after), passes(slow), strict=False)):
        driver.create_machine(given.creation())
    assert slow.left(given.machine.uid) != {}
    delete(given, None, passes(slow))
    assert slow.left(given.machine.uid) == {}


@pytest.mark.parametrize("code", ["ZonalAllocationFailed", "SkuNotAvailable", "QuotaExceeded"])
def test_a_creation_that_fails_late_clears_up_by_itself_and_the_next_one_succeeds(slow: AzureCloud, code: str) -> None:
    given = wanted(slow)
    slow.arm.settings.delays.reservation = 0.0
    fault(slow, slow.create, code)
    with pytest.raises(DriverError) as failed:
        create(given, passes(slow))
    assert failed.value.provider_code == code
    assert failed.value.error_class in (ErrorClass.CAPACITY, ErrorClass.QUOTA)
    slow.do(slow.arm.fast_forward)
    assert slow.left(given.machine.uid) == {}
    made, _ = create(given, passes(slow))
    assert [made.rsplit("/", 1)[-1]] == slow.living(given.machine.uid)
