"""deploy/aws/policy.json against the simulator's journal. (tests/unit/test_deploy.py holds it to the driver's text.)"""

from __future__ import annotations

import json
from typing import Any

from clouds.aws import KEPT_DISK, NIC, ROOT_DISK
from clouds.drivers import AwsCloud, calls, delete_until_gone, machine
from paths import ROOT

from drivers.base import DriverSettings, Evidence


def test_two_lives_call_all_that_the_policy_allows_and_nothing_else(cloud: AwsCloud) -> None:
    driver = cloud.driver_with(DriverSettings())  # it knows no image yet

    # One has one interface, takes a class's changes, and is diagnosed.
    spec: dict[str, Any] = {"srcAndDstChecksEnabled": False, "vmTags": {"team": "x"}, "blockDevices": [ROOT_DISK]}
    given = machine(cloud, **spec)
    vm = driver.create_machine(given.creation()).provider_id
    driver.update_machine(given.update(vm))
    desired = {**given.spec, "vmTags": {"cost": "b"}, "instanceMetadataOptions": {"httpTokens": "required"}}
    driver.update_machine(given.update(vm, provider_spec=desired, last_applied_provider_spec=given.spec))
    driver.get_machine_status(given.status(vm, diagnose=True))
    driver.list_machines(given.listing())
    assert delete_until_gone(given, vm).evidence is Evidence.TERMINATED

    # The other has two, which take prefixes; it dies, and leaves what nobody keeps any longer.
    nics = [{**NIC, "ipv6PrefixCount": 1}, {**NIC, "deleteOnTermination": False}]
    given = machine(cloud, srcAndDstChecksEnabled=False, networkInterfaces=nics, blockDevices=[ROOT_DISK, KEPT_DISK])
    vm = driver.create_machine(given.creation()).provider_id
    driver.update_machine(given.update(vm))
    cloud.do(lambda: cloud.ec2.kill(vm.rsplit("/", 1)[-1]))
    given.spec = cloud.spec()
    assert delete_until_gone(given, vm).evidence is Evidence.TERMINATED

    statements = json.loads((ROOT / "deploy" / "aws" / "policy.json").read_text())["Statement"]
    actions = [a for s in statements for a in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"])]
    called = {f"{c.service}:{c.operation}" for c in calls(cloud)}
    # EC2 passes a role where RunInstances names one; whose the credentials are may be asked without a right.
    assert called - {"sts:GetCallerIdentity"} == set(actions) - {"iam:PassRole"}
