"""Every call of a creation, an update and a deletion struck once, with every kind of fault, each pass by a worker that
knows nothing of the passes before: one VM, the right labels, and in the end nothing left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from clouds.drivers import again_and_again, calls, machine
from clouds.gcp import SPEC, GcpCloud

from drivers.base import Driver, DriverSettings, Evidence, Making
from drivers.errors import DriverError
from simulator.frame import FaultRule

KINDS: dict[str, dict[str, Any]] = {
    "lost reply": {"drop": True},
    "throttled": {"code": "rateLimitExceeded"},
    "out of order": {"code": "backendError"},
    "fails late": {"code": "INTERNAL_ERROR"},
}
"""`fails late`: a changing call is taken, and its operation fails; a read fails at once, as out of order."""
READS = ("instances.get", "disks.get", "disks.list", "zoneOperations.list", "zoneOperations.wait")
CHANGES = ("instances.insert", "instances.setLabels", "instances.setTags", "instances.delete", "disks.setLabels")
DISKS = [SPEC["disks"][0], {"type": "pd-ssd", "sizeGb": 20, "autoDelete": False}]
BEFORE: dict[str, Any] = {"disks": DISKS, "vmTags": {"cost": "a"}}
AFTER: dict[str, Any] = {"vmTags": {"cost": "b"}, "diskTags": {"d": "1"}, "tags": [*SPEC["tags"], "web"]}


def life(cloud: GcpCloud, rule: FaultRule | None = None) -> None:
    """The life of one machine; with a rule, its n-th call is struck."""
    if rule is not None:
        cloud.do(lambda: cloud.frame.faults.append(rule))
    given, made = machine(cloud, **BEFORE), []

    def create(driver: Driver) -> Any:
        return driver.create_machine(given.creation())

    def is_made(vm: Any) -> bool:
        if not isinstance(vm, Making):
            made.append(vm.provider_id)
        return bool(made)

    again_and_again(cloud, cloud.gce.settle, create, is_made)
    assert len(cloud.living(given.machine.uid)) == 1
    desired = {**given.spec, **AFTER}
    update = given.update(made[0], provider_spec=desired, last_applied_provider_spec=given.spec)
    again_and_again(cloud, cloud.gce.settle, lambda driver: driver.update_machine(update), lambda _: True)
    assert len(cloud.living(given.machine.uid)) == 1
    living = [i for i in cloud.gce._instances.records.values() if i.gone_at is None]
    instance = next(i for i in living if i.name == given.machine.name)
    assert (instance.labels.value["cost"], instance.labels.value["hostler-io-uid"]) == ("b", given.machine.uid)
    kept: list[str] = []

    def delete(driver: Driver) -> Any:
        answer = driver.delete_machine(given.deletion(made[0]))
        kept[:] = answer.kept
        return answer

    again_and_again(cloud, cloud.gce.settle, delete, lambda answer: answer.evidence is not Evidence.PRESENT)
    assert cloud.left(given.machine.uid) == {}
    assert len(kept) == 1  # the disk that the class keeps, released


def test_the_life_that_is_struck_has_every_kind_of_call(cloud: GcpCloud) -> None:
    life(cloud)
    made = {c.operation for c in calls(cloud)}
    assert made == {*READS, *CHANGES}


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        *((operation, kind) for operation in CHANGES for kind in KINDS),
        *((operation, kind) for operation in READS for kind in KINDS if kind != "fails late"),
    ],
)
def test_each_call_struck_once_or_twice(
    cloud: GcpCloud, operation: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.gcp.tokens.TOLD_WITHIN", timedelta(seconds=0.05))  # nobody remembers what was told
    struck = FaultRule(operation=operation, times=2, **KINDS[kind])
    life(cloud, struck)
    assert struck.hits >= 1  # a lost reply of the deletion leaves nothing to delete


@pytest.mark.parametrize("kind", ["lost reply", "throttled"])
def test_a_creation_is_struck_at_each_of_its_polls(cloud: GcpCloud, kind: str) -> None:
    """The worker that has begun the operation, and so polls it, loses every answer; another one goes on with it."""
    cloud.gce.settings.insert_delay = 60.0
    given, driver = machine(cloud), cloud.driver.driver
    assert isinstance(driver.create_machine(given.creation()), Making)
    struck = FaultRule(operation="zoneOperations.get", times=3, **KINDS[kind])
    cloud.do(lambda: cloud.frame.faults.append(struck))
    for _ in range(3):
        with pytest.raises(DriverError):
            driver.create_machine(given.creation())
    assert isinstance(driver.create_machine(given.creation()), Making)
    other = cloud.driver_with(DriverSettings()).driver
    assert isinstance(other.create_machine(given.creation()), Making)
    cloud.do(cloud.gce.fast_forward)
    assert {d.create_machine(given.creation()).provider_id for d in (driver, other)}
    assert len(cloud.living(given.machine.uid)) == 1
