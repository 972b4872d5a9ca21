"""Which operations are asked for, and how one goes."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.azure import AzureCloud
from clouds.drivers import calls, machine, mark

from drivers.azure import operations, places
from drivers.azure.calls import Clients
from drivers.base import DriverSettings
from drivers.errors import OperationFailed
from drivers.operations import Course
from resources.errors import BegunOperation


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        (
            "{endpoint}/subscriptions/{subscription}/providers/Microsoft.Compute/locations/x/operations/1?api-version=2024-07-01",
            True,
        ),
        (
            "{endpoint}/SUBSCRIPTIONS/{subscription}/providers/Microsoft.Network/locations/x/operations/1?api-version=2024-07-01",
            True,
        ),
        ("{endpoint}/subscriptions/{other}/providers/Microsoft.Compute/locations/x/operations/1", False),
        ("{endpoint}/subscriptions/{subscription}/../{other}/operations/1", False),
        ("https://management.azure.com.example.com/subscriptions/{subscription}/operations/1", False),
        ("https://somebody@127.0.0.1/subscriptions/{subscription}/operations/1", False),
        ("http://[/subscriptions/{subscription}/operations/1", False),
        ("/subscriptions/{subscription}/operations/1", False),
        ("", False),
    ],
)
def test_an_operation_is_asked_for_at_the_accounts_own_endpoint_alone(
    cloud: AzureCloud, address: str, asked: bool
) -> None:
    """Whoever is asked gets the account's token; a heartbeat is no place that nobody else writes to."""
    words = {"endpoint": cloud.endpoint, "subscription": cloud.account, "other": cloud.other_account}
    begun = BegunOperation(call="VirtualMachines_CreateOrUpdate", what="VM x", address=address.format(**words))
    given, before = machine(cloud), mark(cloud)
    cloud.driver.create_machine(given.creation(begun=begun))  # which is as if there were none
    made = [c.operation for c in calls(cloud, since=before)]
    assert ("Operations_Get" in made) is asked
    assert len(cloud.living(given.machine.uid)) == 1


@pytest.mark.parametrize(
    ("status", "answer", "ends"),
    [
        (200, {"status": "InProgress"}, Course.GOES_ON),
        (202, {}, Course.GOES_ON),
        (202, {"status": "Succeeded"}, Course.OVER),
        (200, {"status": "Updating"}, Course.GOES_ON),
        (200, {"name": "what was made"}, Course.OVER),
        (204, {}, Course.OVER),
        (200, {"status": "Failed", "error": {"code": "AllocationFailed", "message": "no room"}}, "AllocationFailed"),
        (200, {"status": "Canceled"}, "Canceled"),
        (
            200,
            {
                "status": "Failed",
                "error": {"code": "ResourceOperationFailure", "details": [{"code": "SkuNotAvailable"}]},
            },
            "SkuNotAvailable",
        ),
    ],
)
def test_how_an_operation_goes_by_its_status_or_else_by_https(
    status: int, answer: dict[str, Any], ends: Any, monkeypatch: pytest.MonkeyPatch, cloud: AzureCloud
) -> None:
    place = places.place_of(cloud.spec())
    arm = Clients(DriverSettings(endpoint=cloud.endpoint)).get(place, cloud.secret)
    monkeypatch.setattr(arm, "poll", lambda address: (status, answer))
    address = f"{cloud.endpoint}/subscriptions/{cloud.account}/providers/x/operations/1"
    begun = BegunOperation(call="Disks_Delete", what="disk-1", address=address)
    if isinstance(ends, Course):
        assert operations.course(arm, begun) is ends
        return
    with pytest.raises(OperationFailed, match=f"^Disks_Delete: {ends}: ") as failure:
        operations.course(arm, begun)
    assert failure.value.provider_code == ends
