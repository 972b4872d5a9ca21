"""The simulated Compute Engine, asked by Google's own clients."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from clouds.gce import IMAGE, OTHER_PROJECT, PROJECT, ZONE, GceStack, gce_stack, instance, key_credentials, spot
from google.api_core import exceptions as errors
from google.api_core.client_options import ClientOptions
from google.auth import compute_engine, identity_pool
from google.auth.compute_engine import _metadata
from google.auth.exceptions import OAuthError, RefreshError
from google.auth.transport.requests import Request
from google.cloud import compute_v1 as compute
from simulated.process import Http, eventually, fast, kube_http
from simulated.support import condition, is_ready, token_secret, user_data

from simulator.clouds.gce import World
from simulator.clouds.gce.server import LONGEST_WAIT
from simulator.clouds.gce.world import POOL
from simulator.server import CloudSettings, SimulatorThread


@pytest.fixture(scope="module")
def running() -> Iterator[GceStack]:
    with gce_stack() as stack:
        yield stack


@pytest.fixture
def gce(running: GceStack) -> GceStack:
    running.reset()
    return running


def reasons(error: errors.GoogleAPICallError) -> list[str]:
    return [item["reason"] for item in error.errors]


# -- inserts


def test_an_instance_has_all_that_was_asked_for(gce: GceStack) -> None:
    more = {"scheduling": spot(), "shielded_instance_config": compute.ShieldedInstanceConfig(enable_secure_boot=True)}
    got = gce.insert("vm1", **more)
    assert (got.status, dict(got.labels), list(got.tags.items)) == ("RUNNING", {"cluster": "c1"}, ["node"])
    assert got.machine_type.endswith(f"/zones/{ZONE}/machineTypes/n2-standard-4")
    assert got.zone == f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}"
    assert got.self_link == f"{got.zone}/instances/vm1"
    assert got.id > 2**32
    assert (got.can_ip_forward, got.shielded_instance_config.enable_secure_boot) == (True, True)
    assert (got.scheduling.provisioning_model, got.scheduling.preemptible) == ("SPOT", True)
    assert {i.key: i.value for i in got.metadata.items} == {"user-data": "#cloud-config"}
    (nic,) = got.network_interfaces
    assert (nic.name, nic.network_i_p) == ("nic0", "10.250.0.2")
    assert nic.network.endswith(f"projects/{PROJECT}/global/networks/nodes")
    assert [a.ip_cidr_range for a in nic.alias_ip_ranges] == ["100.96.1.0/24"]
    assert all([got.label_fingerprint, got.tags.fingerprint, got.metadata.fingerprint, nic.fingerprint])
    (disk,) = got.disks
    assert (disk.boot, disk.auto_delete, disk.source) == (True, True, f"{got.zone}/disks/vm1")
    assert got.creation_timestamp


def test_an_insert_takes_its_time(gce: GceStack) -> None:
    gce.set_delays(insert=60.0, boot=60.0)
    operation = gce.begin(instance("vm1"))
    assert (operation.operation_type, operation.status.name) == ("insert", "PENDING")
    assert operation.target_link.endswith(f"{ZONE}/instances/vm1")
    assert gce.get("vm1").status == "PROVISIONING"
    gce.half_way()
    assert gce.get("vm1").status == "STAGING"
    gce.do(gce.gce.fast_forward)
    assert gce.get("vm1").status == "RUNNING"
    ended = gce.done(operation)
    assert (ended.id, ended.status.name, ended.progress) == (operation.id, "DONE", 100)
    assert ended.target_id == gce.get("vm1").id


def test_the_sdks_own_result_waits(gce: GceStack) -> None:
    """`result()` asks with a client of its own, which knows no endpoint: it is given one."""
    gce.set_delays(insert=0.2)
    client = gce.client(compute.InstancesClient)
    client.transport._extended_operations_services["zone_operations"] = gce.operations
    client.insert(project=PROJECT, zone=ZONE, instance_resource=instance("vm1")).result(timeout=10)
    assert gce.get("vm1").status == "RUNNING"
    gce.fault("instances.insert", code="QUOTA_EXCEEDED")
    with pytest.raises(errors.Forbidden, match="Quota 'CPUS' exceeded"):
        client.insert(project=PROJECT, zone=ZONE, instance_resource=instance("vm2")).result(timeout=10)


def test_a_request_id_is_one_operation_for_ever(gce: GceStack) -> None:
    id = str(uuid.uuid4())
    first = gce.begin(instance("vm1"), id)
    assert gce.begin(instance("vm1"), id).name == first.name
    assert first.client_operation_id == id
    with pytest.raises(errors.Conflict) as taken:
        gce.begin(instance("vm1"))
    assert reasons(taken.value) == ["alreadyExists"]
    gce.done(gce.call("delete", "vm1"))
    assert gce.begin(instance("vm1"), id).name == first.name
    assert gce.living() == {}
    gce.insert("vm1")
    for wrong in ("1", str(uuid.UUID(int=0))):
        with pytest.raises(errors.BadRequest, match="non-zero UUID"):
            gce.begin(instance("vm2"), wrong)


def other_disks(**changes: Any) -> dict[str, Any]:
    params = compute.AttachedDiskInitializeParams(source_image=changes.pop("source_image", IMAGE), **changes)
    return {"disks": [compute.AttachedDisk(boot=True, initialize_params=params)]}


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("Bad_Name", {}, errors.BadRequest, "resource.name"),
    ("vm-", {}, errors.BadRequest, "resource.name"),
    ("vm1", {"machine_type": f"zones/{ZONE}/machineTypes/x9"}, errors.BadRequest, "'x9' does not exist in zone"),
    ("vm1", {"machine_type": ""}, errors.BadRequest, "resource.machineType"),
    ("vm1", {"labels": {"A": "b"}}, errors.BadRequest, "resource.labels"),
    ("vm1", {"labels": {"a": "b.c"}}, errors.BadRequest, "Label values"),
    ("vm1", {"labels": {f"k{n}": "" for n in range(65)}}, errors.BadRequest, "at most 64"),
    ("vm1", {"tags": compute.Tags(items=["a_b"])}, errors.BadRequest, "resource.tags"),
    ("vm1", {"tags": compute.Tags(items=["a", "a"])}, errors.BadRequest, "Duplicate"),
    ("vm1", {"metadata": compute.Metadata(items=[compute.Items(key="a b", value="")])}, errors.BadRequest, "metadata"),
    ("vm1", {"disks": []}, errors.BadRequest, "boot disk"),
    ("vm1", other_disks(source_image="global/images/no"), errors.NotFound, "images/no"),
    ("vm1", other_disks(disk_type=f"zones/{ZONE}/diskTypes/no"), errors.BadRequest, "diskType"),
    ("vm1", other_disks(disk_size_gb=1), errors.BadRequest, "smaller than the image"),
    ("vm1", {"network_interfaces": []}, errors.BadRequest, "network interface"),
    ("vm1", {"network_interfaces": [compute.NetworkInterface(network="global/networks/no")]}, errors.BadRequest, "no"),
    ("vm1", {"network_interfaces": [compute.NetworkInterface(subnetwork="no")]}, errors.BadRequest, "subnetwork"),
    ("vm1", {"scheduling": compute.Scheduling(preemptible=True, automatic_restart=True)}, errors.BadRequest, "false"),
    ("vm1", {"hostname": "vm1.example.com"}, errors.BadRequest, "does not emulate the field 'resource.hostname'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "kind", "words"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED])
def test_an_insert_that_is_refused_makes_nothing(
    gce: GceStack, name: str, changes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        gce.begin(instance(name, **changes))
    assert (gce.living(), gce.disk_names()) == ({}, set())
    gce.insert("vm1")


def test_an_unknown_zone_method_and_parameter_are_refused(gce: GceStack) -> None:
    with pytest.raises(errors.BadRequest, match="Unknown zone"):
        list(gce.instances.list(project=PROJECT, zone="mars-1a"))
    gce.insert("vm1")
    with pytest.raises(errors.BadRequest, match=r"does not emulate POST .*/suspend"):
        gce.call("suspend", "vm1")
    request = compute.DeleteDiskRequest(project=PROJECT, zone=ZONE, disk="no")
    with pytest.raises(errors.NotFound):
        gce.disks.delete_unary(request)
    headers = {"Authorization": f"Bearer {gce.do(lambda: gce.gce.authenticator.for_the_machine())}"}
    url = f"{gce.url}/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances?fields=items"
    assert "the parameter 'fields'" in requests.get(url, headers=headers, timeout=10).json()["error"]["message"]


LATE = [
    ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, "does not have enough resources"),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503, "resource type:compute"),
    ("QUOTA_EXCEEDED", 403, "Quota 'CPUS'"),
    ("SOMETHING_NEW", 400, "SOMETHING_NEW by fault rule"),
]


@pytest.mark.parametrize(("code", "status", "words"), LATE, ids=[row[0] for row in LATE])
def test_an_insert_that_fails_late_is_seen_and_leaves_nothing(
    gce: GceStack, code: str, status: int, words: str
) -> None:
    gce.set_delays(insert=60.0)
    gce.fault("instances.insert", code=code)
    operation = gce.begin(instance("vm1"))
    assert gce.get("vm1").status == "PROVISIONING"
    assert gce.disk_names() == {"vm1"}
    gce.do(gce.gce.fast_forward)
    ended = gce.wait(operation)
    assert ([e.code for e in ended.error.errors], ended.http_error_status_code) == ([code], status)
    assert words in ended.error.errors[0].message
    with pytest.raises(errors.NotFound):
        gce.get("vm1")
    assert gce.disk_names() == set()
    gce.set_delays()
    gce.insert("vm1")


EARLY: list[tuple[dict[str, Any], type[errors.GoogleAPICallError]]] = [
    ({"code": "rateLimitExceeded"}, errors.Forbidden),
    ({"code": "quotaExceeded"}, errors.Forbidden),
    ({"code": "rateLimitExceeded", "status": 429, "headers": {"Retry-After": "7"}}, errors.TooManyRequests),
    ({"code": "backendError"}, errors.ServiceUnavailable),
    ({"code": "internalError"}, errors.InternalServerError),
]


@pytest.mark.parametrize(("rule", "kind"), EARLY)
def test_a_call_that_is_refused_makes_nothing(
    gce: GceStack, rule: dict[str, Any], kind: type[errors.GoogleAPICallError]
) -> None:
    gce.fault("instances.insert", **rule)
    with pytest.raises(kind) as refused:
        gce.begin(instance("vm1"))
    assert reasons(refused.value) == [rule["code"]]
    assert gce.living() == {}
    if "headers" in rule:
        assert refused.value.response.headers["Retry-After"] == "7"


def test_a_lost_answer(gce: GceStack) -> None:
    gce.fault("instances.insert", drop=True)
    with pytest.raises(requests.ConnectionError):
        gce.begin(instance("vm1"))
    assert [*gce.living()] == ["vm1"]
    assert [(c.dropped, c.mutating, c.status) for c in gce.calls("instances.insert")] == [(True, True, 200)]


# -- lists


@pytest.fixture
def three(gce: GceStack) -> GceStack:
    gce.insert("vm1", labels={"cluster": "c1", "role": "a"})
    gce.insert("vm2", labels={"cluster": "c1"})
    gce.insert("vm3", labels={"cluster": "c2"}, tags=compute.Tags(items=["other"]))
    gce.done(gce.call("stop", "vm3"))
    return gce


FILTERS = {
    "labels.cluster=c1": "1 2",
    "labels.cluster = zzz": "",
    "labels.cluster:*": "1 2 3",
    "labels.role:*": "1",
    "labels.cluster != c1": "3",
    "name=vm1": "1",
    "name eq vm[12]": "1 2",
    "name ne vm1": "2 3",
    'name = "vm*"': "1 2 3",
    '(name="vm1") AND (status="RUNNING")': "1",
    '(labels.cluster = "c1") (labels.role = "a")': "1",
    '(name = "vm1") OR (name = "vm3")': "1 3",
    'labels.cluster = "c1" AND ((name = "vm2") OR (name = "vm3"))': "2",
    'status != "RUNNING"': "3",
    "tags.items = other": "3",
    "scheduling.preemptible = true": "",
    'creationTimestamp > "2020-01-01"': "1 2 3",
}


@pytest.mark.parametrize(("text", "names"), FILTERS.items())
def test_filters(three: GceStack, text: str, names: str) -> None:
    assert [i.name.removeprefix("vm") for i in three.list(filter=text)] == names.split()


@pytest.mark.parametrize("text", ["name=", "(name=vm1", "name vm1", "NOT name=vm1", "-name=vm1", "name eq ("])
def test_a_filter_that_is_not_understood_is_refused(gce: GceStack, text: str) -> None:
    with pytest.raises(errors.BadRequest, match="filter"):
        list(gce.list(filter=text))


def test_pages_miss_nothing_when_something_leaves(three: GceStack) -> None:
    pages = three.list(max_results=1).pages
    first = next(pages)
    three.done(three.call("delete", "vm1"))
    assert [i.name for page in (first, *pages) for i in page.items] == ["vm1", "vm2", "vm3"]
    newest = three.list(order_by="creationTimestamp desc", max_results=1)
    assert [i.name for i in newest] == ["vm3", "vm2"]


def test_an_aggregated_list_says_where(three: GceStack) -> None:
    scopes = {zone: [i.name for i in s.instances] for zone, s in three.instances.aggregated_list(project=PROJECT)}
    assert scopes == {f"zones/{z}": (["vm1", "vm2", "vm3"] if z == ZONE else []) for z in World().zones}


def test_lists_lag_where_a_get_does_not(gce: GceStack) -> None:
    vm = gce.insert("vm1")
    gce.gce.frame.lag.tags = 60.0
    labels = compute.InstancesSetLabelsRequest(labels={"cluster": "c9"}, label_fingerprint=vm.label_fingerprint)
    gce.done(gce.call("set_labels", "vm1", instances_set_labels_request_resource=labels))
    assert dict(gce.get("vm1").labels) == {"cluster": "c9"}
    assert [dict(i.labels) for i in gce.list(filter="labels.cluster=c1")] == [{"cluster": "c1"}]
    gce.gce.frame.lag.describe_after_create = 60.0
    gce.done(gce.begin(instance("vm2")))
    with pytest.raises(errors.NotFound):
        gce.get("vm2")
    assert [i.name for i in gce.list()] == ["vm1"]
    gce.gce.frame.lag.describe_after_create = gce.gce.frame.lag.tags = 0.0
    assert {i.name: dict(i.labels)["cluster"] for i in gce.list()} == {"vm1": "c9", "vm2": "c1"}


# -- changes


def set_labels(value: str, vm: compute.Instance, mark: str) -> dict[str, Any]:
    body = compute.InstancesSetLabelsRequest(labels={"k": value}, label_fingerprint=mark or vm.label_fingerprint)
    return {"instances_set_labels_request_resource": body}


def set_tags(value: str, vm: compute.Instance, mark: str) -> dict[str, Any]:
    return {"tags_resource": compute.Tags(items=[value], fingerprint=mark or vm.tags.fingerprint)}


def set_metadata(value: str, vm: compute.Instance, mark: str) -> dict[str, Any]:
    items = [compute.Items(key="k", value=value)]
    return {"metadata_resource": compute.Metadata(items=items, fingerprint=mark or vm.metadata.fingerprint)}


def set_aliases(value: str, vm: compute.Instance, mark: str) -> dict[str, Any]:
    alias = compute.AliasIpRange(ip_cidr_range=f"10.99.{len(value)}.0/24")
    nic = compute.NetworkInterface(alias_ip_ranges=[alias], fingerprint=mark or vm.network_interfaces[0].fingerprint)
    return {"network_interface": "nic0", "network_interface_resource": nic}


GUARDED: dict[str, tuple[Callable[..., dict[str, Any]], Callable[[compute.Instance], Any], Any]] = {
    "set_labels": (set_labels, lambda i: dict(i.labels), {"k": "x"}),
    "set_tags": (set_tags, lambda i: list(i.tags.items), ["x"]),
    "set_metadata": (set_metadata, lambda i: {m.key: m.value for m in i.metadata.items}, {"k": "x"}),
    "update_network_interface": (
        set_aliases,
        lambda i: [a.ip_cidr_range for a in i.network_interfaces[0].alias_ip_ranges],
        ["10.99.1.0/24"],
    ),
}


@pytest.mark.parametrize("verb", GUARDED)
def test_a_change_names_what_it_has_read(gce: GceStack, verb: str) -> None:
    body, read, expected = GUARDED[verb]
    vm = gce.insert("vm1")
    with pytest.raises(errors.PreconditionFailed) as stale:
        gce.call(verb, "vm1", **body("x", vm, "bad="))
    assert reasons(stale.value) == ["conditionNotMet"]
    gce.set_delays(change=60.0)
    first, second = (gce.call(verb, "vm1", **body(value, vm, "")) for value in ("x", "yy"))
    assert read(gce.get("vm1")) == read(vm)  # not yet
    gce.do(gce.gce.fast_forward)
    gce.done(first)
    assert read(gce.get("vm1")) == expected
    ended = gce.wait(second)
    assert ([e.code for e in ended.error.errors], ended.http_error_status_code) == (["CONDITION_NOT_MET"], 412)
    assert read(gce.get("vm1")) == expected


def test_what_only_a_stopped_instance_takes(gce: GceStack) -> None:
    gce.insert("vm1")
    type_ = compute.InstancesSetMachineTypeRequest(machine_type=f"zones/{ZONE}/machineTypes/n2-standard-8")
    resources = compute.InstancesSetMachineResourcesRequest(
        guest_accelerators=[
            compute.AcceleratorConfig(
                accelerator_count=1, accelerator_type=f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4"
            )
        ]
    )
    with pytest.raises(errors.BadRequest):
        gce.call("set_machine_type", "vm1", instances_set_machine_type_request_resource=type_)
    gce.done(gce.call("stop", "vm1"))
    assert gce.get("vm1").status == "TERMINATED"
    gce.done(gce.call("set_machine_type", "vm1", instances_set_machine_type_request_resource=type_))
    gce.done(gce.call("set_machine_resources", "vm1", instances_set_machine_resources_request_resource=resources))
    account = compute.InstancesSetServiceAccountRequest(email="other@example.com", scopes=["cloud-platform"])
    gce.done(gce.call("set_service_account", "vm1", instances_set_service_account_request_resource=account))
    gce.done(gce.call("set_scheduling", "vm1", scheduling_resource=compute.Scheduling(on_host_maintenance="TERMINATE")))
    gce.done(gce.call("start", "vm1"))
    vm = gce.get("vm1")
    assert (vm.service_accounts[0].email, vm.scheduling.on_host_maintenance) == ("other@example.com", "TERMINATE")
    assert (vm.status, vm.machine_type.rpartition("/")[2], len(vm.guest_accelerators)) == (
        "RUNNING",
        "n2-standard-8",
        1,
    )


# -- ends


def protect(gce: GceStack, protection: bool) -> None:
    request = compute.SetDeletionProtectionInstanceRequest(
        project=PROJECT, zone=ZONE, resource="vm1", deletion_protection=protection
    )
    gce.done(gce.instances.set_deletion_protection_unary(request))


def test_protection_is_for_deletions(gce: GceStack) -> None:
    gce.insert("vm1", deletion_protection=True)
    with pytest.raises(errors.BadRequest, match="protected against deletion") as refused:
        gce.call("delete", "vm1")
    assert reasons(refused.value) == ["invalidResourceUsage"]
    protect(gce, False)
    protect(gce, True)
    with pytest.raises(errors.BadRequest):
        gce.call("delete", "vm1")
    protect(gce, False)
    gce.done(gce.call("delete", "vm1"))
    assert gce.living() == {}


def test_a_deletion_takes_its_time_and_its_disks(gce: GceStack) -> None:
    kept = compute.AttachedDisk(initialize_params=compute.AttachedDiskInitializeParams(disk_size_gb=5))
    vm = gce.insert("vm1", disks=[*instance("x").disks, kept])
    assert gce.disk_names() == {"vm1", "vm1-1"}
    gce.set_delays(terminate=60.0)
    first, second = gce.call("delete", "vm1"), gce.call("delete", str(vm.id))
    assert gce.get("vm1").status == "STOPPING"
    with pytest.raises(errors.BadRequest) as early:
        gce.call("set_labels", "vm1", **set_labels("x", vm, ""))
    assert reasons(early.value) == ["resourceNotReady"]
    gce.do(gce.gce.fast_forward)
    gce.done(first)
    assert [e.code for e in gce.wait(second).error.errors] == ["RESOURCE_NOT_FOUND"]
    with pytest.raises(errors.NotFound) as gone:
        gce.get("vm1")
    assert reasons(gone.value) == ["notFound"]
    with pytest.raises(errors.NotFound):
        gce.call("delete", "vm1")
    assert gce.disk_names() == {"vm1-1"}
    assert {(r.kind, r.gone) for r in gce.do(gce.gce.resources)} == {("instances", True), ("disks", False)}


def test_an_id_is_of_one_life(gce: GceStack) -> None:
    before = gce.insert("vm1")
    gce.done(gce.call("delete", "vm1"))
    after = gce.insert("vm1")
    with pytest.raises(errors.NotFound):
        gce.call("delete", str(before.id))
    assert gce.get(str(after.id)).name == "vm1"


def test_a_deletion_that_fails_late_leaves_it_as_it_was(gce: GceStack) -> None:
    gce.insert("vm1")
    gce.fault("instances.delete", code="INTERNAL_ERROR")
    ended = gce.wait(gce.call("delete", "vm1"))
    assert [e.code for e in ended.error.errors] == ["INTERNAL_ERROR"]
    assert gce.get("vm1").status == "RUNNING"
    gce.done(gce.call("delete", "vm1"))


@pytest.mark.parametrize(("scheduling", "status"), [(spot(), "TERMINATED"), (spot("DELETE"), None), (None, None)])
def test_a_vm_that_dies_behind_everyones_back(
    gce: GceStack, scheduling: compute.Scheduling | None, status: str | None
) -> None:
    """A spot VM is preempted, and the zone's operations say so; any other is deleted."""
    vm = gce.insert("vm1", **({"scheduling": scheduling} if scheduling else {}))
    gce.do(lambda: gce.gce.kill(str(vm.id)))
    if status is None:
        assert gce.living() == {}
    else:
        assert gce.get("vm1").status == status
    query = f'operationType = "compute.instances.preempted" AND targetId = {vm.id}'
    request = compute.ListZoneOperationsRequest(project=PROJECT, zone=ZONE, filter=query)
    assert [o.user for o in gce.operations.list(request)] == (["system"] if scheduling else [])
    if status is not None:
        gce.done(gce.call("start", "vm1"))
        assert gce.get("vm1").status == "RUNNING"


# -- disks and operations


def test_disks(gce: GceStack) -> None:
    gce.insert("vm1")
    disk = gce.disks.get(project=PROJECT, zone=ZONE, disk="vm1")
    assert (disk.size_gb, dict(disk.labels), disk.status) == (30, {"l": "1"}, "READY")
    assert [user.rpartition("/")[2] for user in disk.users] == ["vm1"]
    body = compute.ZoneSetLabelsRequest(labels={"q": "1"}, label_fingerprint=disk.label_fingerprint)
    gce.done(
        gce.disks.set_labels_unary(project=PROJECT, zone=ZONE, resource="vm1", zone_set_labels_request_resource=body)
    )
    assert dict(gce.disks.get(project=PROJECT, zone=ZONE, disk=str(disk.id)).labels) == {"q": "1"}
    with pytest.raises(errors.PreconditionFailed):
        gce.disks.set_labels_unary(project=PROJECT, zone=ZONE, resource="vm1", zone_set_labels_request_resource=body)
    with pytest.raises(errors.BadRequest, match="already being used by") as used:
        gce.disks.delete_unary(project=PROJECT, zone=ZONE, disk="vm1")
    assert reasons(used.value) == ["resourceInUseByAnotherResource"]


def test_a_disk_is_attached_and_detached(gce: GceStack) -> None:
    gce.insert("vm1")
    gce.done(gce.disks.insert_unary(project=PROJECT, zone=ZONE, disk_resource=compute.Disk(name="data", size_gb=5)))
    attached = compute.AttachedDisk(source=f"zones/{ZONE}/disks/data", device_name="data")
    gce.done(gce.call("attach_disk", "vm1", attached_disk_resource=attached))
    assert [d.device_name for d in gce.get("vm1").disks] == ["boot", "data"]
    gce.done(gce.call("set_disk_auto_delete", "vm1", auto_delete=True, device_name="data"))
    assert gce.get("vm1").disks[1].auto_delete
    gce.done(gce.call("detach_disk", "vm1", device_name="data"))
    gce.done(gce.disks.delete_unary(project=PROJECT, zone=ZONE, disk="data"))
    assert gce.disk_names() == {"vm1"}


def test_operations_are_found_by_what_they_are_about(gce: GceStack) -> None:
    id = str(uuid.uuid4())
    inserted = gce.begin(instance("vm1"), id)
    reset = gce.call("reset", "vm1")
    assert gce.operations.get(project=PROJECT, zone=ZONE, operation=reset.name).operation_type == "reset"

    def found(query: str) -> list[str]:
        request = compute.ListZoneOperationsRequest(project=PROJECT, zone=ZONE, filter=query)
        return [o.name for o in gce.operations.list(request)]

    assert found(f'clientOperationId = "{id}"') == [inserted.name]
    assert found(f'(targetLink = "{inserted.target_link}") AND (operationType = "reset")') == [reset.name]
    with pytest.raises(errors.NotFound):
        gce.operations.get(project=PROJECT, zone=ZONE, operation="operation-no")


def test_a_wait_ends_with_its_operation(gce: GceStack) -> None:
    gce.set_delays(insert=0.3)
    started = time.monotonic()
    gce.done(gce.begin(instance("vm1")))
    assert 0.25 < time.monotonic() - started < LONGEST_WAIT


def test_what_is_the_same_for_everybody(gce: GceStack) -> None:
    type_ = gce.client(compute.MachineTypesClient).get(project=PROJECT, zone=ZONE, machine_type="n2-standard-4")
    assert (type_.guest_cpus, type_.memory_mb) == (4, 16384)
    image = gce.client(compute.ImagesClient).get_from_family(project="kinvolk-public", family="flatcar-stable")
    assert image.name == "flatcar-stable-4459-2-2"
    assert [z.name for z in gce.client(compute.ZonesClient).list(project=PROJECT)] == list(World().zones)
    networks = gce.client(compute.NetworksClient)
    networks.insert_unary(project=PROJECT, network_resource=compute.Network(name="more"))
    assert [n.name for n in networks.list(project=PROJECT)] == ["default", "more", "nodes"]
    more = compute.Subnetwork(name="more", network="global/networks/more", ip_cidr_range="10.8.0.0/16")
    subnetworks = gce.client(compute.SubnetworksClient)
    subnetworks.insert_unary(project=PROJECT, region=World().region, subnetwork_resource=more)
    nic = compute.NetworkInterface(network="global/networks/more", stack_type="IPV4_IPV6")
    assert gce.insert("vm1", network_interfaces=[nic]).network_interfaces[0].network_i_p == "10.8.0.2"
    assert gce.client(compute.ProjectsClient).get(project=PROJECT).id == int(World().projects[PROJECT].number)


# -- callers


def federated(gce: GceStack, path: str, **more: Any) -> identity_pool.Credentials:
    info = {
        "audience": POOL,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{gce.url}/v1/token",
        "credential_source": {"file": path},
        **more,
    }
    return identity_pool.Credentials.from_info(info, scopes=["https://www.googleapis.com/auth/cloud-platform"])


def test_a_key_signs_its_own_tokens_or_has_them_made(gce: GceStack) -> None:
    gce.insert("vm1")
    made = key_credentials(token_uri=f"{gce.url}/token")
    made.refresh(Request())
    assert made.token.startswith("ya29.")
    plain = {"Authorization": f"Bearer {made.token}"}
    url = f"{gce.url}/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances/vm1"
    assert requests.get(url, headers=plain, timeout=10).json()["name"] == "vm1"
    assert {c.caller for c in gce.calls("instances.*")} == {World().service_accounts[0].email}
    gce.gce.authenticator.disabled.add(World().service_accounts[0].key_id)
    with pytest.raises(errors.Unauthorized) as refused:
        gce.get("vm1")
    assert reasons(refused.value) == ["authError"]
    with pytest.raises(RefreshError):
        made.refresh(Request())


def test_another_identity_provider(gce: GceStack, tmp_path: Any) -> None:
    (token := tmp_path / "token").write_text("hostler-web-identity-token")
    account = World().service_accounts[0].email
    impersonation = f"{gce.url}/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
    for credentials in (
        federated(gce, str(token)),
        federated(gce, str(token), service_account_impersonation_url=impersonation),
    ):
        gce.client(compute.InstancesClient, credentials).list(project=PROJECT, zone=ZONE)
    assert [c.caller for c in gce.calls("instances.list")] == ["principal:hostler", account]
    token.write_text("another")
    with pytest.raises(OAuthError, match="rejected"):
        federated(gce, str(token)).refresh(Request())


def test_the_metadata_server(gce: GceStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", gce.url.removeprefix("http://"), raising=False)  # read once
    monkeypatch.setenv("GCE_METADATA_HOST", gce.url.removeprefix("http://"))
    gce.client(compute.InstancesClient, compute_engine.Credentials()).list(project=PROJECT, zone=ZONE)
    assert [c.caller for c in gce.calls("instances.list")] == [World().service_accounts[0].email]


def test_a_caller_has_rights_in_its_own_project_alone(gce: GceStack) -> None:
    gce.insert("vm1")
    other = gce.client(compute.InstancesClient, key_credentials(1))
    with pytest.raises(errors.Forbidden, match=f"'compute.instances.get' permission for 'projects/{PROJECT}'"):
        other.get(project=PROJECT, zone=ZONE, instance="vm1")
    assert list(other.list(project=OTHER_PROJECT, zone=ZONE)) == []
    forged = gce.client(compute.InstancesClient, key_credentials(private_key=World().service_accounts[1].private_key))
    with pytest.raises(errors.Unauthorized):
        forged.list(project=PROJECT, zone=ZONE)
    assert requests.get(f"{gce.url}/compute/v1/projects/{PROJECT}/zones", timeout=10).status_code == 401


def test_the_journal_holds_no_secret(gce: GceStack) -> None:
    made = [compute.Items(key="user-data", value="canary-user-data"), compute.Items(key="plain", value="shown")]
    vm = gce.insert("vm1", metadata=compute.Metadata(items=made))
    metadata = compute.Metadata(items=made, fingerprint=vm.metadata.fingerprint)
    gce.done(gce.call("set_metadata", "vm1", metadata_resource=metadata))
    text = json.dumps([call.model_dump(mode="json") for call in gce.calls()])
    assert "canary" not in text
    assert text.count("shown") == 2


# -- in the whole simulator


def test_its_vms_join_and_live_on_after_a_restart(tmp_path: Path) -> None:
    settings = fast(state_dir=tmp_path, clouds={"gcp": CloudSettings()})

    def asked(simulator: SimulatorThread) -> Any:
        return compute.InstancesClient(
            credentials=key_credentials(), client_options=ClientOptions(api_endpoint=simulator.cloud_urls["gcp"])
        )

    def node(simulator: SimulatorThread) -> Any:
        path = "/api/v1/nodes/vm1"
        return eventually(
            lambda: kube_http(simulator.kubeconfig)("GET", path), lambda a: a[0] == 200 and is_ready(a[1])
        )[1]

    with SimulatorThread(settings) as simulator:
        kube_http(simulator.kubeconfig)("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())
        metadata = compute.Metadata(items=[compute.Items(key="user-data", value=user_data().decode())])
        asked(simulator).insert_unary(project=PROJECT, zone=ZONE, instance_resource=instance("vm1", metadata=metadata))
        joined = node(simulator)
        assert joined["spec"]["providerID"] == f"gce://{PROJECT}/{ZONE}/vm1"
        assert joined["metadata"]["labels"]["topology.kubernetes.io/zone"] == ZONE
        assert joined["status"]["capacity"]["cpu"] == "4"
        shown = asked(simulator).get_serial_port_output(project=PROJECT, zone=ZONE, instance="vm1")
        assert "Successfully registered node" in shown.contents
        request = compute.GetSerialPortOutputInstanceRequest(
            project=PROJECT, zone=ZONE, instance="vm1", start=shown.next_
        )
        assert shown.contents not in asked(simulator).get_serial_port_output(request).contents
    with SimulatorThread(settings) as simulator:
        assert node(simulator)["metadata"]["uid"] == joined["metadata"]["uid"]
        vm = asked(simulator).get(project=PROJECT, zone=ZONE, instance="vm1")
        assert (vm.status, vm.tags.items) == ("RUNNING", ["node"])
        admin = Http(simulator.admin_url)
        assert admin("POST", "/gce/kill", {"instanceId": "vm2"})[0] == 404
        assert admin("POST", "/gce/kill", {"instanceId": vm.name})[0] == 200
        silent = lambda: condition(kube_http(simulator.kubeconfig).get("/api/v1/nodes/vm1"), "Ready")["status"]  # noqa: E731
        eventually(silent, lambda status: status == "Unknown")
        assert [r["gone"] for r in admin.get("/gce/resources")] == [True]
