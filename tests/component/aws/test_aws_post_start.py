"""What is applied once after the start (seed 000)."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.aws import NIC, instance_of
from clouds.drivers import AwsCloud, calls, fault, machine, mark, mutating

from drivers.errors import DriverError
from resources.errors import ErrorClass


@pytest.mark.parametrize("checks", [None, True])
def test_nothing_to_do_after_the_start_is_no_call(cloud: AwsCloud, checks: bool | None) -> None:
    given = machine(cloud, srcAndDstChecksEnabled=checks, networkInterfaces=[{**NIC, "ipv6PrefixCount": 0}])
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    assert cloud.driver.update_machine(given.update(made.provider_id)).changed == []
    assert calls(cloud, since=before) == []
    off = {**given.spec, "srcAndDstChecksEnabled": False}
    assert len(cloud.driver.update_machine(given.update(made.provider_id, provider_spec=off)).changed) == 1
    assert mutating(cloud, before) == ["ModifyInstanceAttribute"]


def test_source_dest_check_of_one_interface(cloud: AwsCloud, ec2: Any) -> None:
    given = machine(cloud, srcAndDstChecksEnabled=False)
    made = cloud.driver.create_machine(given.creation())
    assert instance_of(ec2, made.provider_id)["SourceDestCheck"] is True
    before = mark(cloud)
    first = cloud.driver.update_machine(given.update(made.provider_id))
    again = cloud.driver.update_machine(given.update(made.provider_id))
    assert (len(first.changed), again.changed) == (1, [])
    assert mutating(cloud, before) == ["ModifyInstanceAttribute"]
    assert instance_of(ec2, made.provider_id)["SourceDestCheck"] is False


def test_source_dest_check_of_several_interfaces_leaves_efa_out(cloud: AwsCloud, ec2: Any) -> None:
    wanted = [NIC, NIC, {**NIC, "interfaceType": "efa"}]
    given = machine(cloud, machineType="c5n.18xlarge", srcAndDstChecksEnabled=False, networkInterfaces=wanted)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    assert len(cloud.driver.update_machine(given.update(made.provider_id)).changed) == 2
    assert mutating(cloud, before) == ["ModifyNetworkInterfaceAttribute"] * 2
    nics = instance_of(ec2, made.provider_id)["NetworkInterfaces"]
    checks = {n["Attachment"]["DeviceIndex"]: n["SourceDestCheck"] for n in nics}
    assert checks == {0: False, 1: False, 2: True}


def prefixes(ec2: Any, provider_id: str) -> list[int]:
    nics = instance_of(ec2, provider_id)["NetworkInterfaces"]
    return [len(n.get("Ipv6Prefixes") or []) for n in sorted(nics, key=lambda n: int(n["Attachment"]["DeviceIndex"]))]


def test_ipv6_prefixes_end_with_exactly_so_many(cloud: AwsCloud, ec2: Any) -> None:
    nics: list[dict[str, Any]] = [
        {**NIC, "ipv6AddressCount": 1, "ipv6PrefixCount": 2},
        NIC,
        {**NIC, "ipv6PrefixCount": 1},
    ]
    given = machine(cloud, networkInterfaces=nics)
    made = cloud.driver.create_machine(given.creation())
    assert prefixes(ec2, made.provider_id) == [0, 0, 0]  # none at launch
    fault(cloud, "AssignIpv6Addresses", drop=True)
    with pytest.raises(DriverError) as lost:
        cloud.driver.update_machine(given.update(made.provider_id))
    assert lost.value.error_class is ErrorClass.TRANSIENT
    assert prefixes(ec2, made.provider_id) == [2, 0, 1]  # the lost one took effect, and the other was not skipped
    before = mark(cloud)
    assert cloud.driver.update_machine(given.update(made.provider_id)).changed == []
    more = {**given.spec, "networkInterfaces": [{**nics[0], "ipv6PrefixCount": 3}, *nics[1:]]}
    cloud.driver.update_machine(given.update(made.provider_id, provider_spec=more))
    assert [c.request["Ipv6PrefixCount"] for c in calls(cloud, "AssignIpv6Addresses", before)] == [1]
    assert prefixes(ec2, made.provider_id) == [3, 0, 1]


def test_errors_after_the_start_are_one_of_the_longer_wait(cloud: AwsCloud, ec2: Any) -> None:
    given = machine(cloud, srcAndDstChecksEnabled=False, networkInterfaces=[{**NIC, "ipv6PrefixCount": 1}, NIC])
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "ModifyNetworkInterfaceAttribute", "RequestLimitExceeded")
    fault(cloud, "AssignIpv6Addresses", "PrivateIpAddressLimitExceeded")
    before = mark(cloud)
    with pytest.raises(DriverError) as both:
        cloud.driver.update_machine(given.update(made.provider_id))
    in_order = ["ModifyNetworkInterfaceAttribute", "ModifyNetworkInterfaceAttribute", "AssignIpv6Addresses"]
    assert mutating(cloud, before) == in_order  # seed 000, *AWS Provider Changes*
    assert both.value.error_class is ErrorClass.QUOTA
    assert "RequestLimitExceeded" in both.value.message
    assert "PrivateIpAddressLimitExceeded" in both.value.message
    checks = [n["SourceDestCheck"] for n in instance_of(ec2, made.provider_id)["NetworkInterfaces"]]
    assert sorted(checks) == [False, True]  # the second interface had its turn
