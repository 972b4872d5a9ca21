"""The simulated Azure as its SDK sees it: the rules of the real service that a machine's driver depends on."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.compute.aio import ComputeManagementClient as AioClient
from clouds.arm import (
    COMPUTE,
    DEADLINE,
    GROUP,
    LOCATION,
    NETWORK,
    OTHER,
    SUBNET,
    SUBSCRIPTION,
    UBUNTU,
    NoCredential,
    Served,
    event_loop,
    refusal,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from simulator.clouds.arm import Arm, Delays, World
from simulator.frame import Frame, Lag
from simulator.kubelet.machine import Power

VM_ID = f"{COMPUTE}/virtualMachines"


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with event_loop() as loop:
        yield loop


@pytest.fixture
def azure(loop: asyncio.AbstractEventLoop) -> Iterator[Served]:
    served = Served(loop)
    yield served
    served.close()


def gone(azure: Served, *ids: str) -> list[bool]:
    return [azure.http("GET", i)[0] == 404 for i in ids]


# -------------------------------------------------------------------------------------------------- reads, writes


def test_the_sdk_itself_refuses_tokens_over_plain_http(azure: Served) -> None:
    """So whoever speaks to the simulator brings a policy of its own, or says at each call that it may."""

    class Credential(NoCredential):
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            return AccessToken(azure.token, int(time.time()) + 3600)

    settings = {k: v for k, v in azure.settings(azure.token).items() if k != "authentication_policy"}
    client = ComputeManagementClient(Credential(), SUBSCRIPTION, **settings)
    with pytest.raises(ServiceRequestError, match="non-TLS"):
        list(client.virtual_machines.list_all())
    assert list(client.virtual_machines.list_all(enforce_https=False)) == []


def test_networks(azure: Served) -> None:
    address = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16", "fd00::/48"]}}
    subnets = [{"name": "s1", "properties": {"addressPrefixes": ["10.0.1.0/24", "fd00::/64"]}}]
    body = {"location": LOCATION, "properties": {**address, "subnets": subnets}}
    network = azure.network.virtual_networks.begin_create_or_update(GROUP, "vnet", body).result(DEADLINE)
    assert network.subnets[0].id == f"{NETWORK}/virtualNetworks/vnet/subnets/s1"
    assert azure.network.subnets.get(GROUP, "vnet", "s1").address_prefixes == ["10.0.1.0/24", "fd00::/64"]
    assert [s.name for s in azure.network.subnets.list(GROUP, "vnet")] == ["s1"]
    assert refusal(lambda: azure.network.subnets.get(GROUP, "vnet", "s2")) == (404, "NotFound")
    assert refusal(lambda: azure.network.subnets.get(GROUP, "other", "s2")) == (404, "ParentResourceNotFound")
    azure.nic("nic1", network.subnets[0].id)
    delete = azure.network.virtual_networks.begin_delete
    assert refusal(lambda: delete(GROUP, "vnet")) == (400, "InUseSubnetCannotBeDeleted")
    azure.network.network_interfaces.begin_delete(GROUP, "nic1").result(DEADLINE)
    delete(GROUP, "vnet").result(DEADLINE)
    assert gone(azure, network.id) == [True]


def test_nics_have_addresses_and_an_etag(azure: Served) -> None:
    dual = SUBNET.replace("/nodes", "/dual")
    configurations = [
        {"name": "v4", "properties": {"primary": True, "subnet": {"id": dual}}},
        {"name": "v6", "properties": {"subnet": {"id": dual}, "privateIPAddressVersion": "IPv6"}},
    ]
    nic = azure.nic("nic1", ipConfigurations=configurations, enableIPForwarding=True, enableAcceleratedNetworking=True)
    assert (nic.enable_ip_forwarding, nic.enable_accelerated_networking) == (True, True)
    assert [c.private_ip_address for c in nic.ip_configurations] == ["10.250.32.4", "fd00:da7a:0:1::4"]
    assert (nic.provisioning_state, nic.mac_address[:9]) == ("Succeeded", "00-0D-3A-")
    interfaces = azure.network.network_interfaces
    assert interfaces.update_tags(GROUP, "nic1", {"tags": {"x": "y"}}).tags == {"x": "y"}
    # What was read can be written: the address stays, the etag does not.
    read = azure.http("GET", nic.id)[1]
    read["properties"]["enableIPForwarding"] = False
    status, written = azure.http("PUT", nic.id, read, If_Match=read["etag"])
    assert (status, written["properties"]["enableIPForwarding"]) == (200, False)
    again = azure.network.network_interfaces.get(GROUP, "NIC1")
    assert again.ip_configurations[0].private_ip_address == "10.250.32.4"
    assert again.etag != read["etag"]
    assert azure.http("PUT", nic.id, read, If_Match=read["etag"])[1]["error"]["code"] == "PreconditionFailed"
    assert azure.nic("nic2", dual).ip_configurations[0].private_ip_address == "10.250.32.5"


def test_a_vm_lives_and_takes_its_own_with_it(azure: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.clouds.arm.operations.LONGEST_POLL", 0)  # seconds; the SDK waits as Azure says
    azure.delays.create = azure.delays.terminate = 60.0
    body = azure.vm_body("vm1", azure.nic("vm1-nic").id)
    poller = azure.compute.virtual_machines.begin_create_or_update(GROUP, "vm1", body)
    assert poller.status() == "InProgress"
    assert azure.compute.virtual_machines.get(GROUP, "vm1").provisioning_state == "Creating"
    azure.call(azure.arm.fast_forward)
    vm = poller.result(DEADLINE)
    assert (vm.provisioning_state, vm.zones, vm.tags) == ("Succeeded", ["1"], {"cluster": "c1"})
    assert vm.os_profile.custom_data is None
    view = azure.compute.virtual_machines.get(GROUP, "vm1", expand="instanceView").instance_view
    assert [s.code for s in view.statuses] == ["ProvisioningState/succeeded", "PowerState/running"]
    azure.delays.create = 0.0
    assert azure.create("vm1", body).vm_id == vm.vm_id  # the same wish again changes nothing
    machines = azure.compute.virtual_machines
    assert [v.name for v in machines.list(GROUP)] == [v.name for v in machines.list_all()] == ["vm1"]
    disks = {d.name: d for d in azure.compute.disks.list_by_resource_group(GROUP)}
    assert {n: (d.disk_size_gb, d.disk_state, d.managed_by, d.tags) for n, d in disks.items()} == {
        "vm1-os-disk": (64, "Attached", vm.id, {"cluster": "c1"}),
        "vm1-0-data-disk": (16, "Attached", vm.id, {"cluster": "c1"}),
    }
    assert f"/resourceGroups/{GROUP.upper()}/" in vm.storage_profile.os_disk.managed_disk.id
    assert azure.network.network_interfaces.get(GROUP, "vm1-nic").virtual_machine.id == vm.id
    ending = machines.begin_delete(GROUP, "vm1", force_deletion=True)
    assert machines.get(GROUP, "vm1").provisioning_state == "Deleting"
    assert refusal(lambda: machines.begin_start(GROUP, "vm1")) == (409, "OperationNotAllowed")
    assert refusal(lambda: azure.create("vm1", body)) == (409, "OperationNotAllowed")
    azure.call(azure.arm.fast_forward)
    ending.result(DEADLINE)
    assert gone(azure, vm.id, f"{NETWORK}/networkInterfaces/vm1-nic", disks["vm1-os-disk"].id) == [True] * 3
    machines.begin_delete(GROUP, "vm1").result(DEADLINE)  # once more: it is gone already


def test_what_is_detached_outlives_its_vm(azure: Served) -> None:
    nic = azure.nic("vm1-nic")
    body = azure.vm_body("vm1", nic.id)
    del body["properties"]["storageProfile"]["osDisk"]["deleteOption"]
    body["properties"]["networkProfile"]["networkInterfaces"] = [{"id": nic.id}]
    azure.create("vm1", body)
    azure.compute.virtual_machines.begin_delete(GROUP, "vm1").result(DEADLINE)
    disks = {d.name: (d.disk_state, d.managed_by) for d in azure.compute.disks.list()}
    assert disks == {"vm1-os-disk": ("Unattached", None)}
    assert azure.network.network_interfaces.get(GROUP, "vm1-nic").virtual_machine is None


def test_disks_by_themselves_and_attached(azure: Served) -> None:
    made = {"createOption": "FromImage", "imageReference": {"id": next(iter(World().image_ids))}}
    body = {"location": LOCATION, "zones": ["1"], "sku": {"name": "Premium_LRS"}, "properties": {"creationData": made}}
    disks = azure.compute.disks
    disk = disks.begin_create_or_update(GROUP, "d1", body).result(DEADLINE)
    assert (disk.disk_size_gb, disk.disk_state, disk.provisioning_state) == (30, "Unattached", "Succeeded")
    data = [{"lun": 1, "createOption": "Attach", "managedDisk": {"id": disk.id}}]
    properties = azure.vm_body("vm1", "")["properties"]
    vm = azure.vm("vm1", storageProfile={**properties["storageProfile"], "dataDisks": data})
    assert refusal(lambda: disks.begin_delete(GROUP, "d1")) == (409, "OperationNotAllowed")
    profile = {"storageProfile": {"dataDisks": [{**data[0], "toBeDetached": True}]}}
    azure.compute.virtual_machines.begin_update(GROUP, "vm1", {"properties": profile}).result(DEADLINE)
    assert disks.get(GROUP, "d1").disk_state == "Unattached"
    tagged = disks.begin_update(GROUP, "d1", {"tags": {"t": "1"}}).result(DEADLINE)
    assert (tagged.tags, tagged.provisioning_state) == ({"t": "1"}, "Succeeded")
    disks.begin_delete(GROUP, "d1").result(DEADLINE)
    assert [d.name for d in disks.list()] == ["vm1-os-disk"]
    assert vm.id


def test_an_operation_goes_on_for_another_poller(azure: Served) -> None:
    """The continuation token is enough, as in another process; and Location as well as Azure-AsyncOperation."""
    azure.delays.create, azure.delays.terminate = 0.2, 60.0
    body = azure.vm_body("vm1", azure.nic("vm1-nic").id)
    machines = azure.compute.virtual_machines
    token = machines.begin_create_or_update(GROUP, "vm1", body).continuation_token()
    poller = machines.begin_create_or_update(GROUP, "vm1", None, continuation_token=token)
    assert poller.result(DEADLINE).provisioning_state == "Succeeded"
    request = urllib.request.Request(
        f"{azure.url}{VM_ID}/vm1?api-version=2024-07-01",
        method="DELETE",
        headers={"Authorization": f"Bearer {azure.token}"},
    )
    with urllib.request.urlopen(request) as answer:
        location, operation = answer.headers["Location"], answer.headers["Azure-AsyncOperation"]
    paths = [link.removeprefix(azure.url) for link in (location, operation)]
    assert [azure.http("GET", p)[0] for p in paths] == [202, 200]
    azure.call(azure.arm.fast_forward)
    assert [azure.http("GET", p)[0] for p in paths] == [204, 200]
    assert azure.http("GET", paths[1])[1]["status"] == "Succeeded"


def test_a_later_operation_preempts_the_earlier_one(azure: Served) -> None:
    azure.delays.create = 60.0
    body = azure.vm_body("vm1", azure.nic("vm1-nic").id)
    azure.compute.virtual_machines.begin_create_or_update(GROUP, "vm1", body, polling=False)
    azure.compute.virtual_machines.begin_delete(GROUP, "vm1").result(DEADLINE)
    (made,) = [
        o
        for o in azure.call(azure.arm.dump)["operations"].values()
        if o["verb"] == "create" and "/virtualmachines/" in o["target"]
    ]
    place = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{LOCATION}"
    answer = azure.http("GET", f"{place}/operations/{made['id']}")[1]
    assert (answer["status"], answer["error"]["code"]) == ("Canceled", "OperationPreempted")
    status, answer = azure.http("GET", f"{place}/operationResults/{made['id']}")
    assert (status, answer["error"]["code"]) == (409, "OperationPreempted")


def test_power(azure: Served) -> None:
    azure.vm("vm1", diagnosticsProfile={"bootDiagnostics": {"enabled": True}})
    machines = azure.compute.virtual_machines
    for act, power in (
        (machines.begin_power_off, "stopped"),
        (machines.begin_start, "running"),
        (machines.begin_deallocate, "deallocated"),
        (machines.begin_start, "running"),
        (machines.begin_restart, "running"),
    ):
        act(GROUP, "vm1").result(DEADLINE)
        assert azure.power("vm1")[-1] == f"PowerState/{power}"
    shown = {v.name: v.instance_view.statuses[-1].code for v in machines.list_all(status_only="true")}
    assert shown == {"vm1": "PowerState/running"}
    assert refusal(lambda: machines.simulate_eviction(GROUP, "vm1")) == (409, "OperationNotAllowed")
    azure.call(lambda: azure.arm.set_console("vm1", "login: "))
    log = machines.retrieve_boot_diagnostics_data(GROUP, "vm1").serial_console_log_blob_uri
    with urllib.request.urlopen(log) as answer:
        assert answer.read() == b"login: "
    azure.call(lambda: azure.arm.impair("vm1", True))
    assert machines.instance_view(GROUP, "vm1").vm_agent.statuses[0].display_status == "Not Ready"


def test_spot_vms_are_taken_back(azure: Served) -> None:
    spot = {"priority": "Spot", "billingProfile": {"maxPrice": -1}}
    azure.vm("vm1", **spot, evictionPolicy="Deallocate")
    azure.vm("vm2", **spot, evictionPolicy="Delete")
    for name in ("vm1", "vm2"):
        azure.compute.virtual_machines.simulate_eviction(GROUP, name)
    assert azure.power("vm1") == ["ProvisioningState/succeeded", "PowerState/deallocated"]
    assert gone(azure, f"{VM_ID}/vm2", f"{NETWORK}/networkInterfaces/vm2-nic") == [True, True]


def test_what_a_driver_looks_up(azure: Served) -> None:
    sizes = {s.name: s for s in azure.compute.resource_skus.list(filter=f"location eq '{LOCATION}'")}
    capabilities = {c.name: c.value for c in sizes["Standard_D4s_v5"].capabilities}
    assert (capabilities["vCPUs"], capabilities["MemoryGB"]) == ("4", "16")
    assert list(azure.compute.resource_skus.list(filter="location eq 'mars'")) == []
    of = (LOCATION, "kinvolk", "flatcar-container-linux-free", "stable-gen2")
    newest = azure.compute.virtual_machine_images.list(*of, top=1, orderby="name desc")[0].name
    assert azure.compute.virtual_machine_images.get(*of, newest).plan.product == "flatcar-container-linux-free"
    assert azure.compute.availability_sets.get(GROUP, "nodes").platform_fault_domain_count == 3
    assert azure.compute.virtual_machine_scale_sets.get(GROUP, "nodes").orchestration_mode == "Flexible"
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    assert azure.http("GET", group)[1]["location"] == LOCATION
    assert azure.http("GET", f"/subscriptions/{SUBSCRIPTION}")[1]["subscriptionId"] == SUBSCRIPTION


def test_terms_are_accepted_before_what_they_sell_is_made(azure: Served) -> None:
    plan = {"name": "stable-gen2", "product": "flatcar-container-linux-free", "publisher": "kinvolk"}
    body = azure.vm_body("vm1", azure.nic("vm1-nic").id)
    image = {"publisher": "kinvolk", "offer": plan["product"], "sku": plan["name"], "version": "4459.2.2"}
    body["properties"]["storageProfile"]["imageReference"] = image
    assert refusal(lambda: azure.create("vm1", body)) == (400, "VMMarketplaceInvalidInput")
    body["plan"] = plan
    assert refusal(lambda: azure.create("vm1", body)) == (400, "MarketplacePurchaseEligibilityFailed")
    terms = (
        f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/publishers/"
        "kinvolk/offers/flatcar-container-linux-free/plans/stable-gen2/agreements/current?api-version=2021-01-01"
    )
    agreement = azure.http("GET", terms)[1]
    assert agreement["properties"]["accepted"] is False
    agreement["properties"]["accepted"] = True
    assert azure.http("PUT", terms, agreement)[0] == 200
    assert azure.create("vm1", body).plan.name == "stable-gen2"


def test_groups_go_with_everything_in_them(azure: Served) -> None:
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g1"
    assert azure.http("HEAD", group)[0] == 404
    assert azure.http("PUT", group, {"location": LOCATION})[0] == 201
    assert azure.http("HEAD", group)[0] == 204
    body = {"location": LOCATION, "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}}
    disk = azure.compute.disks.begin_create_or_update("g1", "d1", body).result(DEADLINE)
    azure.delays.resource = 60.0
    assert azure.http("DELETE", group)[0] == 202
    begin = azure.compute.disks.begin_create_or_update
    assert refusal(lambda: begin("g1", "d2", body)) == (409, "ResourceGroupBeingDeleted")
    azure.call(azure.arm.fast_forward)
    assert refusal(lambda: azure.compute.disks.get("g1", disk.name)) == (404, "ResourceGroupNotFound")


def test_pages(azure: Served) -> None:
    azure.arm.settings.page = 2
    for n in range(5):
        azure.nic(f"nic{n}")
    names = [n.name for n in azure.network.network_interfaces.list_all()]
    assert names == [n.name for n in azure.network.network_interfaces.list(GROUP)] == [f"nic{n}" for n in range(5)]
    assert len(azure.journal("NetworkInterfaces_ListAll")) == 3


def test_aio_clients_see_the_same(azure: Served) -> None:
    azure.vm("vm1")

    class Credential(NoCredential):
        async def close(self) -> None: ...

    async def ask() -> list[str]:
        async with AioClient(Credential(), SUBSCRIPTION, **azure.settings(azure.token)) as client:
            before = [v.name async for v in client.virtual_machines.list(GROUP)]
            await (await client.virtual_machines.begin_delete(GROUP, "vm1")).result()
            return before + [v.name async for v in client.virtual_machines.list(GROUP)]

    assert asyncio.run(ask()) == ["vm1"]


# ------------------------------------------------------------------------------------- tags, listings by tag, graph


def graph(azure: Served, query: str, token: str | None = None, **options: Any) -> tuple[int, Any]:
    body = {"subscriptions": [SUBSCRIPTION], "query": query, "options": options}
    return azure.http("POST", "/providers/Microsoft.ResourceGraph/resources?api-version=2022-10-01", body, token=token)


def test_tags_of_each_resource_by_themselves(azure: Served) -> None:
    vm = azure.vm("vm1")
    machines = azure.compute.virtual_machines
    updated = machines.begin_update(GROUP, "vm1", {"tags": {"cluster": "c1", "k": "v"}}).result(DEADLINE)
    assert (updated.tags, updated.hardware_profile.vm_size) == ({"cluster": "c1", "k": "v"}, "Standard_D4s_v5")
    scope = f"{vm.id}/providers/Microsoft.Resources/tags/default"

    def change(operation: str, **tags: str) -> Any:
        body = {"operation": operation, "properties": {"tags": tags}}
        return azure.http("PATCH", scope, body)[1]["properties"]["tags"]

    assert change("Merge", CLUSTER="c2", x="y") == {"CLUSTER": "c2", "k": "v", "x": "y"}  # names in any case
    assert change("Delete", k="other", x="y") == {"CLUSTER": "c2", "k": "v"}  # only with the value that it has
    assert change("Replace", a="b") == {"a": "b"} == azure.http("GET", scope)[1]["properties"]["tags"]
    assert azure.compute.disks.get(GROUP, "vm1-os-disk").tags == {"cluster": "c1"}


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ({f"k{n}": "" for n in range(51)}, "TooManyTags"),
        ({"kubernetes.io/role": "1"}, "InvalidTagNameCharacters"),
        ({"k" * 513: ""}, "InvalidTagNameLength"),
        ({"k": "v" * 257}, "InvalidTagValueLength"),
        ({"microsoft-x": ""}, "ReservedTagNamePrefix"),
        ({"": ""}, "InvalidTagName"),
    ],
)
def test_tags_have_limits(azure: Served, tags: dict[str, str], code: str) -> None:
    fifty = {"k" * 510 + f"{n:02}": "v/" * 128 for n in range(50)}
    body = {"location": LOCATION, "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}}
    begin = azure.compute.disks.begin_create_or_update
    assert len(begin(GROUP, "d0", {**body, "tags": fifty}).result(DEADLINE).tags) == 50
    assert refusal(lambda: begin(GROUP, "d1", {**body, "tags": tags})) == (400, code)


def test_resources_of_any_type_are_listed_by_tag_and_by_name(azure: Served) -> None:
    azure.vm("vm1")
    azure.vm("vm2")
    azure.compute.virtual_machines.begin_update(GROUP, "vm2", {"tags": {"cluster": "c2"}}).result(DEADLINE)

    def names(wanted: str) -> list[str]:
        quoted = urllib.parse.quote(wanted)
        path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/resources?$expand=provisioningState&$filter="
        status, answer = azure.http("GET", path + quoted)
        assert status == 200, answer
        assert {r["provisioningState"] for r in answer["value"]} <= {"Succeeded"}
        by_tag = wanted.startswith("tagName")  # for which Azure shows none
        assert all(("tags" in r) is not by_tag for r in answer["value"])
        return sorted(r["name"] for r in answer["value"])

    assert names("tagName eq 'Cluster' and tagValue eq 'c2'") == ["vm2"]
    assert names("substringof('VM1', name)") == ["vm1", "vm1-0-data-disk", "vm1-nic", "vm1-os-disk"]
    with pytest.raises(AssertionError, match="NotImplemented"):
        names("name eq 'vm1'")


def test_resource_graph_knows_a_few_shapes(azure: Served) -> None:
    azure.vm("vm1")
    azure.vm("vm2")
    both = (
        "Resources | where type in~ ('Microsoft.Compute/virtualMachines', 'microsoft.compute/disks') "
        f"| where resourceGroup =~ '{GROUP.upper()}' | where tags['cluster'] == 'c1' "
        "| project id, name, type, properties | order by id asc"
    )
    rows = graph(azure, both)[1]["data"]
    assert [r["name"] for r in rows] == [
        "vm1-0-data-disk",
        "vm1-os-disk",
        "vm2-0-data-disk",
        "vm2-os-disk",
        "vm1",
        "vm2",
    ]
    state = next(r for r in rows if r["name"] == "vm1")["properties"]["extended"]["instanceView"]["powerState"]["code"]
    assert state == "PowerState/running"
    paged, skip = [], ""
    while True:
        answer = graph(azure, both, **{"$top": 4, **({"$skipToken": skip} if skip else {})})[1]
        paged += [r["name"] for r in answer["data"]]
        skip = answer.get("$skipToken", "")
        if not skip:
            break
    assert paged == [r["name"] for r in rows]
    assert graph(azure, "Resources | where tags contains 'CLUSTER' | where name =~ 'VM1'")[1]["count"] == 1
    for unknown in (
        "Resources | take 1",
        "Resources | where a matches 'x'",
        "ResourceChanges",
        "Resources | where a == 1",
    ):
        status, answer = graph(azure, unknown)
        assert (status, answer["error"]["details"][0]["code"]) == (400, "InvalidQuery")
    other = azure.login(1)
    assert graph(azure, both, token=other)[1]["error"]["code"] == "AuthorizationFailed"


# ------------------------------------------------------------------------------------------------- what is refused


def test_what_is_not_there(azure: Served) -> None:
    compute, network = azure.compute, azure.network
    assert refusal(lambda: compute.virtual_machines.get("norg", "vm")) == (404, "ResourceGroupNotFound")
    assert refusal(lambda: compute.virtual_machines.get(GROUP, "vm")) == (404, "ResourceNotFound")
    assert refusal(lambda: network.network_interfaces.get(GROUP, "nic")) == (404, "ResourceNotFound")
    assert refusal(lambda: azure.nic("nic", SUBNET + "x")) == (400, "InvalidResourceReference")
    body = azure.vm_body("vm1", f"{NETWORK}/networkInterfaces/nic")
    assert refusal(lambda: azure.create("vm1", body)) == (404, "NotFound")
    unknown = f"/subscriptions/{'0' * 8}-0000-0000-0000-{'0' * 12}"
    assert azure.http("GET", unknown)[1]["error"]["code"] == "SubscriptionNotFound"


def test_only_the_bearer_of_a_token_may_ask(azure: Served) -> None:
    path = f"/subscriptions/{SUBSCRIPTION}"
    assert azure.http("GET", path, token="")[1]["error"]["code"] == "AuthenticationFailed"
    assert azure.http("GET", path, token="guessed")[1]["error"]["code"] == "InvalidAuthenticationToken"
    other = azure.login(1)
    assert azure.http("GET", path, token=other)[1]["error"]["code"] == "AuthorizationFailed"
    assert azure.http("GET", f"/subscriptions/{OTHER}", token=other)[0] == 200
    azure.arm.authenticator.lifetime = -1.0
    status, answer = azure.http("GET", path, token=azure.login())
    assert (status, answer["error"]["code"]) == (401, "ExpiredAuthenticationToken")


def test_tokens_by_secret_assertion_and_machine(azure: Served) -> None:
    path = f"/subscriptions/{SUBSCRIPTION}"
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    token = azure.login(client_secret="", client_assertion="hostler-federated-token", client_assertion_type=kind)
    assert azure.http("GET", path, token=token)[0] == 200
    machine = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/"
    token = azure.http("GET", machine, token="", Metadata="true")[1]["access_token"]
    assert azure.http("GET", path, token=token)[0] == 200
    assert azure.http("GET", machine, token="")[0] == 400
    for wrong, code in (
        ({"client_secret": "wrong"}, 7000215),
        ({"client_id": "nobody"}, 700016),
        ({"client_secret": "", "client_assertion": "wrong", "client_assertion_type": kind}, 700027),
    ):
        with pytest.raises(AssertionError, match=str(code)):
            azure.login(**wrong)
    assert "wrong" not in str([c.request for c in azure.journal("Token_Get")])


def test_a_certificate_signs_in(azure: Served) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hostler")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    client_id, client = next(iter(azure.arm.authenticator.clients.items()))

    def assertion(**claims: Any) -> dict[str, str]:
        head = {"alg": "PS256", "typ": "JWT"}
        body = {"iss": client_id, "sub": client_id, "exp": time.time() + 60, **claims}
        signed = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, body))
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        signature = base64.urlsafe_b64encode(key.sign(signed, pss, hashes.SHA256())).rstrip(b"=")
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        whole = (signed + b"." + signature).decode()
        return {"client_secret": "", "client_assertion": whole, "client_assertion_type": kind}

    with pytest.raises(AssertionError, match="700027"):
        azure.login(**assertion())  # a certificate that the application does not have
    client.certificates.append(certificate.public_bytes(serialization.Encoding.PEM).decode())
    assert azure.http("GET", f"/subscriptions/{SUBSCRIPTION}", token=azure.login(**assertion()))[0] == 200
    for wrong in ({"exp": time.time() - 60}, {"iss": "another"}):
        with pytest.raises(AssertionError, match="700027"):
            azure.login(**assertion(**wrong))


def test_preconditions(azure: Served) -> None:
    vm = azure.vm("vm1")
    body = azure.vm_body("vm1", f"{NETWORK}/networkInterfaces/vm1-nic")
    begin = azure.compute.virtual_machines.begin_create_or_update
    again = lambda: begin(GROUP, "vm1", body, match_condition=MatchConditions.IfMissing)  # noqa: E731
    assert refusal(again) == (412, "PreconditionFailed")
    stale = lambda: begin(GROUP, "vm1", body, etag='"7"', match_condition=MatchConditions.IfNotModified)  # noqa: E731
    assert refusal(stale) == (412, "PreconditionFailed")
    fresh = begin(GROUP, "vm1", body, etag=vm.etag, match_condition=MatchConditions.IfNotModified).result(DEADLINE)
    assert fresh.etag != vm.etag


def test_what_a_vm_cannot_change(azure: Served) -> None:
    azure.vm("vm1")
    for path, value in (
        ("osProfile.customData", "b3RoZXI="),
        ("osProfile.computerName", "other"),
        ("storageProfile.osDisk.name", "other"),
        ("priority", "Spot"),
    ):
        body = azure.vm_body("vm1", f"{NETWORK}/networkInterfaces/vm1-nic")
        *parts, last = path.split(".")
        inner = body["properties"]
        for part in parts:
            inner = inner[part]
        inner[last] = value
        assert refusal(lambda body=body: azure.create("vm1", body)) == (409, "PropertyChangeNotAllowed"), path


def test_what_a_vm_can_change(azure: Served) -> None:
    """Another size, and another NIC in place of the one it had, which is free again."""
    vm = azure.vm("vm1")
    nic = azure.nic("nic2")
    wanted = {
        "hardwareProfile": {"vmSize": "standard_d8s_v5"},
        "networkProfile": {"networkInterfaces": [{"id": nic.id.upper().replace("/SUBSCRIPTIONS", "/subscriptions")}]},
    }
    updated = azure.compute.virtual_machines.begin_update(GROUP, "VM1", {"properties": wanted}).result(DEADLINE)
    assert (updated.hardware_profile.vm_size, updated.vm_id) == ("Standard_D8s_v5", vm.vm_id)
    has = {n.name: n.virtual_machine and n.virtual_machine.id for n in azure.network.network_interfaces.list(GROUP)}
    assert has == {"vm1-nic": None, "nic2": vm.id}
    wrong = {"hardwareProfile": {"vmSize": "Standard_B2s"}}
    azure.nic("nic2", enableAcceleratedNetworking=True)
    begin = azure.compute.virtual_machines.begin_update
    code = "VMSizeIsNotPermittedToEnableAcceleratedNetworking"
    assert refusal(lambda: begin(GROUP, "vm1", {"properties": wrong})) == (400, code)


def changed(path: str, value: Any) -> Any:
    def change(body: dict[str, Any]) -> None:
        *parts, last = path.split(".")
        inner: Any = body
        for part in parts:
            inner = inner[int(part)] if part.isdigit() else inner[part]
        inner[last] = value

    return change


STORAGE, OS = "properties.storageProfile", "properties.osProfile"
REFUSED: list[tuple[str, Any, int, str]] = [
    ("location", "mars", 400, "LocationNotAvailableForResourceType"),
    ("location", None, 400, "LocationRequired"),
    ("zones", ["9"], 400, "InvalidAvailabilityZone"),
    ("properties.hardwareProfile.vmSize", "Standard_X", 400, "InvalidParameter"),
    ("properties.hardwareProfile.vmSize", "Standard_D2ps_v5", 400, "BadRequest"),  # another architecture
    ("properties.availabilitySet", {"id": f"{COMPUTE}/availabilitySets/nodes"}, 400, "BadRequest"),  # and a zone
    ("properties.virtualMachineScaleSet", {"id": f"{COMPUTE}/virtualMachineScaleSets/x"}, 404, "NotFound"),
    ("properties.evictionPolicy", "Delete", 400, "BadRequest"),
    (f"{STORAGE}.imageReference", {**UBUNTU, "version": "1"}, 404, "PlatformImageNotFound"),
    (f"{STORAGE}.imageReference", {"id": f"{COMPUTE}/images/x"}, 404, "ImageNotFound"),
    (f"{STORAGE}.osDisk.diskSizeGB", 8, 400, "InvalidParameter"),
    (f"{STORAGE}.osDisk.diskSizeGB", "8", 400, "InvalidRequestContent"),
    (f"{STORAGE}.osDisk.managedDisk.storageAccountType", "Gold", 400, "InvalidParameter"),
    (f"{STORAGE}.dataDisks.0.name", "vm1-os-disk", 409, "ConflictingUserInput"),
    (f"{STORAGE}.dataDisks.0.lun", 64, 400, "InvalidParameter"),
    (f"{OS}.customData", "not base64", 400, "InvalidParameter"),
    (f"{OS}.customData", "A" * 87384, 400, "InvalidParameter"),
    (f"{OS}.adminUsername", "root", 400, "InvalidParameter"),
    (f"{OS}.linuxConfiguration.ssh", {"publicKeys": []}, 400, "InvalidParameter"),
    ("properties.networkProfile", {"networkInterfaces": []}, 400, "InvalidParameter"),
    ("properties.applicationProfile", {"galleryApplications": []}, 501, "NotImplemented"),
    ("identity", {"type": "SystemAssigned"}, 501, "NotImplemented"),
]


@pytest.mark.parametrize(("path", "value", "status", "code"), REFUSED)
def test_bodies_that_are_refused(azure: Served, path: str, value: Any, status: int, code: str) -> None:
    body = azure.vm_body("vm1", azure.nic("vm1-nic").id)
    body["properties"]["storageProfile"]["osDisk"]["name"] = "vm1-os-disk"
    if code == "ConflictingUserInput":
        given = {"location": LOCATION, "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}}
        azure.compute.disks.begin_create_or_update(GROUP, "vm1-os-disk", given).result(DEADLINE)
    changed(path, value)(body)
    assert refusal(lambda: azure.create("vm1", body)) == (status, code)
    assert gone(azure, f"{VM_ID}/vm1") == [True]
    assert [d.name for d in azure.compute.disks.list() if d.name == "vm1-0-data-disk"] == []


def test_what_is_in_use_stays(azure: Served) -> None:
    azure.vm("vm1")
    assert refusal(lambda: azure.compute.disks.begin_delete(GROUP, "vm1-os-disk")) == (409, "OperationNotAllowed")
    delete = azure.network.network_interfaces.begin_delete
    assert refusal(lambda: delete(GROUP, "vm1-nic")) == (400, "NicInUse")
    body = azure.vm_body("vm2", f"{NETWORK}/networkInterfaces/vm1-nic")
    assert refusal(lambda: azure.create("vm2", body)) == (400, "NicInUse")


def test_quotas(azure: Served) -> None:
    azure.vm("vm1")
    azure.arm.quotas.limits["standardDSv5Family"] = 7
    nic = azure.nic("vm2-nic")
    assert refusal(lambda: azure.create("vm2", azure.vm_body("vm2", nic.id))) == (409, "OperationNotAllowed")
    usages = {u.name.value: (u.current_value, u.limit) for u in azure.compute.usage.list(LOCATION)}
    assert usages["standardDSv5Family"] == (4, 7)
    spot = azure.vm_body("vm2", nic.id, priority="Spot")
    assert azure.create("vm2", spot).provisioning_state == "Succeeded"  # counts elsewhere
    azure.compute.virtual_machines.begin_deallocate(GROUP, "vm1").result(DEADLINE)
    azure.vm("vm3")


def test_a_subnet_is_full(azure: Served) -> None:
    tiny = SUBNET.replace("/nodes", "/tiny")
    for n in range(3):
        azure.nic(f"nic{n}", tiny)
    assert refusal(lambda: azure.nic("nic3", tiny)) == (400, "SubnetIsFull")


def test_versions_paths_and_fields_that_nobody_knows(azure: Served) -> None:
    vms = f"{VM_ID}?api-version="
    assert azure.http("GET", vms)[1]["error"]["code"] == "MissingApiVersionParameter"
    assert azure.http("GET", vms + "new")[1]["error"]["code"] == "InvalidApiVersionParameter"
    assert azure.http("GET", f"{COMPUTE}/galleries")[1]["error"]["code"] == "InvalidResourceType"
    assert azure.http("POST", f"{VM_ID}/vm1/reimage")[0] == 404
    assert azure.http("DELETE", VM_ID)[0] == 405
    assert azure.http("GET", f"{VM_ID}?$top=1")[1]["error"]["code"] == "NotImplemented"
    assert azure.http("PUT", f"{VM_ID}/vm1", raw=b"{")[1]["error"]["code"] == "InvalidRequestContent"


# ------------------------------------------------------------------------------------------- faults, lag, journal


def test_a_refused_creation_reserves_its_nics(azure: Served) -> None:
    """For 180 seconds, for a VM of that name."""
    nic = azure.nic("nic1")
    azure.fault("VirtualMachines_CreateOrUpdate", "SkuNotAvailable")
    assert refusal(lambda: azure.create("vm1", azure.vm_body("vm1", nic.id))) == (409, "SkuNotAvailable")
    assert gone(azure, f"{VM_ID}/vm1") == [True]
    delete = azure.network.network_interfaces.begin_delete
    assert refusal(lambda: delete(GROUP, "nic1")) == (400, "NicReservedForAnotherVm")
    other = azure.vm_body("vm2", nic.id)
    assert refusal(lambda: azure.create("vm2", other)) == (400, "NicReservedForAnotherVm")
    azure.call(azure.arm.fast_forward)
    azure.create("vm2", other)


@pytest.mark.parametrize("code", ["AllocationFailed", "ZonalAllocationFailed", "OverconstrainedZonalAllocationRequest"])
def test_allocation_fails_at_the_operations_end(azure: Served, code: str) -> None:
    nic = azure.nic("vm1-nic")
    azure.fault("VirtualMachines_CreateOrUpdate", code)
    assert refusal(lambda: azure.create("vm1", azure.vm_body("vm1", nic.id))) == (200, code)
    assert azure.compute.virtual_machines.get(GROUP, "vm1").provisioning_state == "Failed"
    assert azure.power("vm1") == [f"ProvisioningState/failed/{code}"]
    assert [v.power for v in azure.call(azure.arm.machines)] == [Power.OFF]
    assert refusal(lambda: azure.network.network_interfaces.begin_delete(GROUP, nic.name)) == (400, "NicInUse")
    azure.compute.virtual_machines.begin_delete(GROUP, "vm1").result(DEADLINE)
    assert gone(azure, nic.id, f"{COMPUTE}/disks/vm1-os-disk") == [True, True]


def test_a_late_end_of_any_operation_and_a_vm_that_runs_all_the_same(azure: Served) -> None:
    azure.fault("VirtualMachines_CreateOrUpdate", "OSProvisioningTimedOut")
    with pytest.raises(Exception, match="OSProvisioningTimedOut"):
        azure.vm("vm1")
    assert azure.power("vm1") == ["ProvisioningState/failed/OSProvisioningTimedOut", "PowerState/running"]
    azure.fault("NetworkInterfaces_CreateOrUpdate", "InternalServerError", status=200)
    assert refusal(lambda: azure.nic("nic1")) == (200, "InternalServerError")
    assert azure.network.network_interfaces.get(GROUP, "nic1").provisioning_state == "Failed"
    azure.fault("VirtualMachines_Delete", "InternalServerError", status=200)
    delete = azure.compute.virtual_machines.begin_delete
    assert refusal(lambda: delete(GROUP, "vm1").result(DEADLINE)) == (200, "InternalServerError")
    delete(GROUP, "vm1").result(DEADLINE)


def test_throttled(azure: Served) -> None:
    azure.fault("VirtualMachines_List", "TooManyRequests", headers={"Retry-After": "1"})
    patient = ComputeManagementClient(NoCredential(), SUBSCRIPTION, **{**azure.settings(azure.token), "retry_total": 2})
    began = time.monotonic()
    assert list(patient.virtual_machines.list(GROUP)) == []
    assert time.monotonic() - began >= 1.0
    azure.fault("VirtualMachines_List", "OperationNotAllowed", status=429)
    assert refusal(lambda: list(azure.compute.virtual_machines.list(GROUP))) == (429, "OperationNotAllowed")


def test_a_reply_is_lost(azure: Served) -> None:
    azure.fault("NetworkInterfaces_CreateOrUpdate", drop=True)
    with pytest.raises(ServiceResponseError):
        azure.nic("nic1")
    assert azure.network.network_interfaces.get(GROUP, "nic1").name == "nic1"
    (call,) = azure.journal("NetworkInterfaces_CreateOrUpdate")
    assert (call.dropped, call.mutating, call.result) == (True, True, {"ids": [f"{NETWORK}/networkInterfaces/nic1"]})


def test_the_journal_has_no_secrets(azure: Served) -> None:
    azure.vm("vm1")
    (call,) = azure.journal("VirtualMachines_CreateOrUpdate")
    profile = call.request["body"]["properties"]["osProfile"]
    assert profile["customData"].startswith("sha256:")
    assert profile["adminUsername"] == "core"
    assert call.caller == azure.arm.world.principals[0].client_id
    told = str([c.model_dump() for c in azure.journal()])
    assert "I2Nsb3Vk" not in told
    assert azure.token not in told
    assert azure.arm.world.principals[0].secret not in told


def test_reads_lag_behind_writes(azure: Served) -> None:
    azure.call(lambda: setattr(azure.frame, "lag", Lag(describe_after_create=600, tags=600)))
    body = {"location": LOCATION, "tags": {"a": "b"}, "properties": {"creationData": {"createOption": "Empty"}}}
    poller = azure.compute.disks.begin_create_or_update(GROUP, "d1", body, polling=False)
    assert poller.result().tags == {"a": "b"}  # whoever writes is told what was written
    assert refusal(lambda: azure.compute.disks.get(GROUP, "d1")) == (404, "ResourceNotFound")
    assert list(azure.compute.disks.list()) == []
    azure.call(lambda: setattr(azure.frame, "lag", Lag(tags=600)))
    assert azure.compute.disks.get(GROUP, "d1").tags == {}
    azure.call(lambda: setattr(azure.frame, "lag", Lag()))
    assert azure.compute.disks.get(GROUP, "d1").tags == {"a": "b"}


# ---------------------------------------------------------------------------------------------- behind the curtain


def test_a_kubelet_hears_of_its_vm(azure: Served) -> None:
    heard: list[tuple[str, Power]] = []
    azure.call(lambda: azure.arm.subscribe(lambda vm: heard.append((vm.name, vm.power))))
    made = azure.vm("vm1")
    (vm,) = azure.call(azure.arm.machines)
    assert (vm.instance_id, vm.zone, vm.region) == (made.vm_id, f"{LOCATION}-1", LOCATION)
    assert (vm.size.cpus, vm.size.memory_mib) == (4, 16384)
    assert (vm.user_data, vm.private_dns_name, vm.private_ip) == (b"#cloud", "vm1", "10.250.0.4")
    assert vm.provider_id == f"azure://{made.id}"
    azure.compute.virtual_machines.begin_power_off(GROUP, "vm1").result(DEADLINE)
    azure.call(lambda: azure.arm.kill(made.vm_id))
    assert list(dict.fromkeys(heard)) == [("vm1", Power.OFF), ("vm1", Power.ON), ("vm1", Power.GONE)]
    assert [(r.id, r.gone) for r in azure.call(azure.arm.resources) if r.vm] == [(made.vm_id, True)]
    assert azure.call(lambda: azure.arm.has_vm(made.vm_id))
    assert not azure.call(lambda: azure.arm.has_vm("vm1"))


def test_the_world_can_be_told_by_another_process(azure: Served) -> None:
    made = azure.vm("vm1", priority="Spot")

    def tell(verb: str, **body: Any) -> int:
        return azure.http("POST", f"/_world/{verb}", {"instanceId": made.vm_id, **body})[0]

    assert tell("set_console", text="x") == tell("impair", impaired=True) == tell("evict") == tell("kill") == 200
    assert [tell("impair"), tell("impair", impaired=True), tell("explode")] == [400, 404, 404]


def test_everything_survives_a_restart(azure: Served) -> None:
    azure.delays.create = 60.0
    azure.fault("VirtualMachines_CreateOrUpdate", "AllocationFailed")
    azure.compute.virtual_machines.begin_create_or_update(
        GROUP, "vm1", azure.vm_body("vm1", azure.nic("vm1-nic").id), polling=False
    )
    azure.http("DELETE", f"/subscriptions/{SUBSCRIPTION}/resourceGroups/shoot--demo--networks")
    state = azure.call(azure.arm.dump)

    async def again() -> tuple[Any, Any]:
        arm = Arm(Frame(), delays=Delays())
        arm.load(state)
        dumped = arm.dump()
        arm.fast_forward()
        return dumped, arm.dump()

    dumped, later = asyncio.run(again())
    assert dumped == state
    (vm,) = later["virtualMachines"].values()
    assert (vm["provisioning"], vm["failure"]) == ("Failed", "AllocationFailed")
    assert [g for g in later["groups"] if g.endswith("--networks")] == [
        f"/subscriptions/{OTHER}/resourcegroups/shoot--demo--networks"
    ]
