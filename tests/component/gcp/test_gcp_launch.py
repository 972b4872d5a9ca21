"""What an instance is made from, whose a name is, and operations that take time or fail late."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest
from clouds.drivers import calls, fault, machine, mark, mutating
from clouds.gcp import SPEC, GcpCloud
from pydantic import SecretStr

from drivers.base import DriverSettings, Making, VmState
from drivers.errors import DriverError
from drivers.gcp import launch
from resources.errors import ErrorClass

BOOT = SPEC["disks"][0]
MUST = {"kubernetes-io-cluster-shoot--test--one", "kubernetes-io-role-node"}


def body(cloud: GcpCloud, user_data: str = "#cloud-config\n", compressed: bool = False, **spec: Any) -> dict[str, Any]:
    given = machine(cloud, **spec)
    request = given.creation(user_data=SecretStr(user_data), compressed=compressed)
    return launch.instance(request, launch.parse_spec(given.spec))


def test_the_spec_in_the_words_of_the_api(cloud: GcpCloud) -> None:
    made = body(
        cloud,
        disks=[
            {**BOOT, "autoDelete": False, "provisionedIops": 3000, "encryption": {"kmsKeyName": "k"}},
            {"type": "SCRATCH", "interface": "NVME"},
        ],
        networkInterfaces=[
            {
                "network": "nodes",
                "subnetwork": "projects/host/regions/europe-west1/subnetworks/nodes",
                "stackType": "IPV4_IPV6",
                "ipv6accessType": "EXTERNAL",
                "useAliasIPs": True,
                "ipCidrRange": "/24",
                "subnetworkRangeName": "pods",
            }
        ],
        gpu={"acceleratorType": "nvidia-l4", "count": 1},
        scheduling={"provisioningModel": "SPOT"},
        canIpForward=True,
        deletionProtection=True,
        metadata=[{"key": "a", "value": "1"}],
        serviceAccounts=[{"email": "default", "scopes": ["s"]}],
        shieldedInstanceConfiguration={"enableSecureBoot": True},
        advancedMachineFeatures={"threadsPerCore": 1},
    )
    zone = "zones/europe-west1-b"
    assert made["machineType"] == f"{zone}/machineTypes/n2-standard-2"
    boot, local = made["disks"]
    assert (boot["autoDelete"], boot["boot"], boot["diskEncryptionKey"]) == (False, True, {"kmsKeyName": "k"})
    assert boot["initializeParams"]["diskType"] == f"{zone}/diskTypes/pd-ssd"
    assert local == {
        "type": "SCRATCH",
        "autoDelete": True,
        "interface": "NVME",
        "initializeParams": {"diskType": f"{zone}/diskTypes/local-ssd"},
    }
    (nic,) = made["networkInterfaces"]
    assert nic["network"] == "global/networks/nodes"
    assert nic["subnetwork"].startswith("projects/host/")
    assert nic["aliasIpRanges"] == [{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}]
    assert [c["type"] for c in nic["accessConfigs"]] == ["ONE_TO_ONE_NAT"]
    assert [c["type"] for c in nic["ipv6AccessConfigs"]] == ["DIRECT_IPV6"]
    assert made["scheduling"] == {
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
        "preemptible": True,
        "provisioningModel": "SPOT",
    }
    assert made["guestAccelerators"] == [
        {"acceleratorType": f"{zone}/acceleratorTypes/nvidia-l4", "acceleratorCount": 1}
    ]
    assert (made["canIpForward"], made["deletionProtection"]) == (True, True)
    assert made["shieldedInstanceConfig"] == {"enableSecureBoot": True}
    assert made["advancedMachineFeatures"] == {"threadsPerCore": 1}


def test_must_tags_are_labels_of_everything_and_network_tags(new_vm: Any) -> None:
    vm = new_vm(vmTags={"cost": "a"}, diskTags={"d": "1"}, tags=[*MUST, "web"])
    labels, (disk,) = vm.instance["labels"], vm.disks.values()
    assert {*labels} & {*disk["labels"]} >= MUST
    assert {labels["hostler-io-uid"], disk["labels"]["hostler-io-uid"]} == {vm.given.machine.uid}
    assert (labels["cost"], disk["labels"]["d"]) == ("a", "1")
    assert {*vm.instance["tags"]["items"]} == {*MUST, "web"}
    named = new_vm(labels=dict.fromkeys(MUST, "1"), tags=["web"])  # where Gardener's manifest has them as labels only
    assert {*named.instance["tags"]["items"]} == {*MUST, "web"}


@pytest.mark.parametrize(
    ("text", "key"), [("#!/bin/sh\n", "startup-script"), ("#cloud-config\n", "user-data"), ("{}", "user-data")]
)
def test_user_data_goes_to_whoever_reads_it(cloud: GcpCloud, text: str, key: str) -> None:
    assert {i["key"]: i["value"] for i in body(cloud, text)["metadata"]["items"]} == {key: text}


def test_compressed_user_data_is_said_to_be_base64(cloud: GcpCloud) -> None:
    items = {i["key"]: i["value"] for i in body(cloud, "#!/bin/sh\n", compressed=True)["metadata"]["items"]}
    assert items["user-data-encoding"] == "base64"
    assert gzip.decompress(base64.b64decode(items["user-data"])) == b"#!/bin/sh\n"


def test_what_is_too_much_is_refused_before_any_call(cloud: GcpCloud) -> None:
    full = [*MUST, *(f"t{n}" for n in range(62))]
    assert len(body(cloud, tags=full)["tags"]["items"]) == 64
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"user_data": "x" * (256 * 1024 + 1)}, "accepts at most 262144"),
        ({"vmTags": {f"k{n}": "" for n in range(60)}}, "the cloud accepts 64"),
        ({"tags": [*full, "one-more"]}, "65 network tags, but Google accepts 64"),
    ]
    for change, words in wrong:
        with pytest.raises(DriverError, match=words) as refused:
            body(cloud, **change)
        assert refused.value.error_class is ErrorClass.INVALID
    given = machine(cloud, name="worker.1")
    with pytest.raises(DriverError, match="named like its machine"):
        cloud.driver.create_machine(given.creation())
    assert calls(cloud) == []


def test_a_creation_is_made_of_passes_and_of_one_insert(cloud: GcpCloud) -> None:
    """Another worker, which knows nothing of it, is answered with the same operation."""
    cloud.gce.settings.insert_delay = 60.0
    given = machine(cloud)
    drivers = [cloud.driver.driver, cloud.driver_with(DriverSettings()).driver]
    made = [driver.create_machine(given.creation()) for driver in (*drivers, *drivers)]
    assert isinstance(made[0], Making)
    assert made == [Making(what=f"VM {given.machine.name}", again=made[0].again, begun=made[0].begun)] * 4
    assert [c.operation for c in calls(cloud)] == ["instances.insert"] * 2 + ["zoneOperations.get"] * 2
    cloud.do(cloud.gce.fast_forward)
    ids = {driver.create_machine(given.creation()).provider_id for driver in drivers}
    assert len(ids) == len(cloud.living(given.machine.uid)) == 1


def test_an_operation_that_google_no_longer_knows_is_asked_for_by_another_insert(cloud: GcpCloud) -> None:
    cloud.gce.settings.insert_delay = 60.0
    given, driver = machine(cloud), cloud.driver.driver
    driver.create_machine(given.creation())
    fault(cloud, "zoneOperations.get", "notFound")
    assert isinstance(driver.create_machine(given.creation()), Making)
    assert mutating(cloud) == ["instances.insert"] * 2
    cloud.do(cloud.gce.fast_forward)
    driver.create_machine(given.creation())
    assert len(cloud.living(given.machine.uid)) == 1


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED", "INTERNAL_ERROR"])
def test_an_operation_that_fails_late_leaves_nothing_and_may_be_repeated(cloud: GcpCloud, code: str) -> None:
    given = machine(cloud)
    fault(cloud, "instances.insert", code, times=2)
    for _ in range(2):
        with pytest.raises(DriverError, match=code):
            cloud.driver.create_machine(given.creation())
    assert cloud.left(given.machine.uid) == {}
    cloud.driver.create_machine(given.creation())
    assert len(cloud.living(given.machine.uid)) == 1


def test_a_failure_is_told_of_by_a_worker_that_did_not_see_it_begin(cloud: GcpCloud) -> None:
    """It is told once more than needed, rather than never: the next try begins another operation."""
    given = machine(cloud)
    fault(cloud, "instances.insert", "QUOTA_EXCEEDED")
    with pytest.raises(DriverError):
        cloud.driver.create_machine(given.creation())
    other = cloud.driver_with(DriverSettings())
    with pytest.raises(DriverError, match="QUOTA_EXCEEDED"):
        other.create_machine(given.creation())
    other.create_machine(given.creation())
    assert len(cloud.living(given.machine.uid)) == 1


def test_a_vm_of_another_owner_is_a_conflict_with_words(cloud: GcpCloud) -> None:
    """P23: 409 of our own uid is ours; that of another owner is not."""
    first = machine(cloud, name="worker-1")
    cloud.driver.create_machine(first.creation())
    second = machine(cloud, name="worker-1")
    with pytest.raises(DriverError, match="another owner") as taken:
        cloud.driver.create_machine(second.creation())
    assert taken.value.error_class is ErrorClass.CONFLICT
    assert first.machine.uid in taken.value.message
    assert cloud.living(second.machine.uid) == []
    again = first.creation(token="another-attempt")
    assert cloud.driver.create_machine(again).uid == first.machine.uid  # adopted
    assert len(mutating(cloud)) == 3


def test_a_disk_that_a_former_life_has_left_is_not_taken_for_a_new_one(cloud: GcpCloud, new_vm: Any) -> None:
    kept = {**BOOT, "autoDelete": False}
    vm = new_vm(disks=[kept])
    (left,) = vm.disks
    vm.call("instances.delete", instance=vm.name)
    given = machine(cloud, name=vm.name, disks=[kept])
    cloud.driver.create_machine(given.creation())
    names = cloud.left(given.machine.uid)["disks"]
    assert len(names) == 1
    assert left not in names


def test_a_lost_network_tag_or_label_loses_nothing(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm()
    before = vm.instance
    vm.call("instances.setTags", {"items": ["x"], "fingerprint": before["tags"]["fingerprint"]}, instance=vm.name)
    assert cloud.driver.get_machine_status(vm.given.status()).provider_id == vm.made.provider_id
    assert len(cloud.driver.list_machines(vm.given.listing()).machines) == 1


def test_a_preempted_vm_is_stopped_and_not_gone(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm(scheduling={"provisioningModel": "SPOT"})
    number = vm.instance["id"]
    cloud.do(lambda: cloud.gce.kill(number))
    cloud.do(cloud.gce.fast_forward)
    status = cloud.driver.get_machine_status(vm.given.status(vm.made.provider_id))
    assert status.state is VmState.STOPPED


def test_the_console_is_read_for_a_diagnosis(cloud: GcpCloud, new_vm: Any) -> None:
    vm = new_vm()
    number = vm.instance["id"]
    cloud.do(lambda: cloud.gce.set_console(number, "booting\ntoken: abcdef.0123456789abcdef\n"))
    before = mark(cloud)
    said = cloud.driver.get_machine_status(vm.given.status(vm.made.provider_id, diagnose=True)).console
    assert "booting" in said
    assert "0123456789abcdef" not in said
    assert len(calls(cloud, since=before)) == 2
