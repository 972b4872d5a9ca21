"""What only Azure does: interfaces and disks apart from the VM, reservations, tags of implicit disks, logins."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.azure import AzureCloud
from clouds.drivers import Given, calls, delete_until_gone, fault, machine, mark, mutating
from pydantic import SecretStr

from drivers.azure.credentials import from_secret
from drivers.base import DriverSettings, Evidence, Making
from drivers.errors import DriverError
from resources.errors import ErrorClass


def storage(cloud: AzureCloud, **changes: Any) -> dict[str, Any]:
    properties = cloud.spec()["properties"]
    return {**properties, "storageProfile": {**properties["storageProfile"], **changes}}


def tags(cloud: AzureCloud, given: Given, kind: str) -> dict[str, str]:
    (found,) = [r for r in cloud.do(cloud.arm.resources) if r.kind == kind and given.machine.uid in r.tags.values()]
    return found.tags


# -- creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"subnetInfo": {"vnetName": "shoot--demo", "subnetName": "nobody"}},
        {"urn": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:0.0.1"},
    ],
    ids=["subnet", "image"],
)
def test_v7_what_is_missing_is_said_before_anything_is_made(cloud: AzureCloud, wrong: dict[str, Any]) -> None:
    if "urn" in wrong:
        wrong = {"properties": storage(cloud, imageReference=wrong)}
    with pytest.raises(DriverError) as missing:
        cloud.driver.create_machine(machine(cloud, **wrong).creation())
    assert missing.value.error_class is ErrorClass.NOT_FOUND
    assert mutating(cloud) == []
    cloud.driver.create_machine(machine(cloud).creation())
    assert mutating(cloud) == [*cloud.creation]


def test_v7_a_late_failure_is_cleared_up_and_a_reserved_interface_is_waited_for(cloud: AzureCloud) -> None:
    """P29: the reservation is a wait with its words, and no failure; in the end nothing is left."""
    given = machine(cloud)
    fault(cloud, cloud.create, "SkuNotAvailable")
    with pytest.raises(DriverError, match="stays for now: reserved by Azure") as failure:
        cloud.driver.create_machine(given.creation())
    assert (failure.value.error_class, failure.value.provider_code) == (ErrorClass.CAPACITY, "SkuNotAvailable")
    first = cloud.driver.delete_machine(given.deletion())
    assert first.evidence is Evidence.PRESENT
    assert ["reserved by Azure" in left for left in first.left] == [True]
    cloud.do(cloud.arm.fast_forward)
    assert delete_until_gone(given).evidence is Evidence.NOT_FOUND
    assert cloud.left(given.machine.uid) == {}


def test_a_disk_from_an_image_is_made_before_its_vm_and_goes_with_it(cloud: AzureCloud) -> None:
    image = next(name for name in cloud.arm.world.image_ids if name.startswith("/CommunityGalleries"))
    data = {"lun": 0, "diskSizeGB": 40, "imageRef": {"communityGalleryImageID": image}}
    given = machine(cloud, properties=storage(cloud, dataDisks=[data]))
    made = cloud.driver.create_machine(given.creation())
    assert mutating(cloud) == [cloud.creation[0], "Disks_CreateOrUpdate", cloud.creation[1]]
    assert {k: len(v) for k, v in cloud.left(given.machine.uid).items()} == {
        "virtualMachines": 1,
        "networkInterfaces": 1,
        "disks": 2,
    }
    delete_until_gone(given, made.provider_id)
    assert cloud.left(given.machine.uid) == {}


def test_an_id_without_a_subscription_is_of_the_credentials_own(cloud: AzureCloud) -> None:
    """OpenShift's manifests write ids so; Azure knows whole ones only."""
    image = next(name for name in cloud.arm.world.image_ids if name.endswith("/images/nodes"))
    ours = image[image.index("/resourceGroups/") :]
    cloud.driver.create_machine(machine(cloud, properties=storage(cloud, imageReference={"id": ours})).creation())
    nobodys = storage(cloud, imageReference={"id": f"{ours}-of-nobody"})
    with pytest.raises(DriverError, match="images/nodes-of-nobody' is not found"):
        cloud.driver.create_machine(machine(cloud, properties=nobodys).creation())


def test_a_creation_that_takes_time_is_begun_once_and_costs_one_call_a_look(cloud: AzureCloud) -> None:
    cloud.arm.settings.delays.create = 60.0
    given = machine(cloud)
    assert isinstance(cloud.driver.driver.create_machine(given.creation()), Making)
    before = mark(cloud)
    for _ in range(3):  # other workers
        looked = cloud.driver_with(DriverSettings()).driver.create_machine(given.creation())
        assert isinstance(looked, Making)
    assert [c.operation for c in calls(cloud, since=before)] == ["VirtualMachines_Get"] * 3
    cloud.do(cloud.arm.fast_forward)
    made = cloud.driver.driver.create_machine(given.creation())
    assert [made.provider_id.rsplit("/", 1)[-1]] == cloud.living(given.machine.uid)


# -- listing and deleting ----------------------------------------------------------------------------------------------


def test_v9_what_has_no_vm_is_listed_and_goes(cloud: AzureCloud) -> None:
    """An interface whose VM was never made: the reply of the throttled call said nothing about one."""
    given = machine(cloud)
    cloud.arm.settings.delays.reservation = 0.0
    fault(cloud, cloud.create, "TooManyRequests")
    with pytest.raises(DriverError):
        cloud.driver.create_machine(given.creation())
    (orphan,) = cloud.driver.list_machines(given.listing()).machines
    assert (orphan.uid, orphan.name) == (given.machine.uid, given.machine.name)
    assert cloud.driver.list_machines(machine(cloud).listing()).machines == []
    assert list(cloud.left(given.machine.uid)) == ["networkInterfaces"]
    nobody = given.deletion(orphan.provider_id, provider_spec={**given.spec, "properties": {}}, token="")
    assert cloud.driver.delete_machine(nobody).evidence is Evidence.PRESENT
    assert delete_until_gone(given).evidence is Evidence.NOT_FOUND
    assert cloud.left(given.machine.uid) == {}


# -- updating ----------------------------------------------------------------------------------------------------------


def test_disks_get_their_own_tags_after_the_start(cloud: AzureCloud) -> None:
    given = machine(cloud, vmTags={"a": "vm", "v": "1"}, diskTags={"a": "disk"})
    made = cloud.driver.create_machine(given.creation())
    cloud.driver.update_machine(given.update(made.provider_id))
    carried = tags(cloud, given, "disks")
    assert (carried["a"], "v" in carried) == ("disk", False)
    assert carried["hostler.io-uid"] == given.machine.uid
    assert (tags(cloud, given, "virtualMachines")["a"], tags(cloud, given, "virtualMachines")["v"]) == ("vm", "1")
    assert cloud.driver.update_machine(given.update(made.provider_id)).changed == []


def test_a_change_of_tags_costs_one_listing_and_one_call_a_resource(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    desired = {**given.spec, "vmTags": {"a": "1"}, "nicTags": {"b": "1"}, "diskTags": {"c": "1"}}
    update = given.update(made.provider_id, provider_spec=desired, last_applied_provider_spec=given.spec)
    cloud.driver.update_machine(update)
    made_calls = [c.operation for c in calls(cloud, since=before)]
    assert made_calls == ["Resources_ListByResourceGroup", *["Tags_UpdateAtScope"] * 3]
    for kind, key in (("virtualMachines", "a"), ("networkInterfaces", "b"), ("disks", "c")):
        assert {k: v for k, v in tags(cloud, given, kind).items() if k in "abc"} == {key: "1"}
        assert tags(cloud, given, kind)["kubernetes.io-role-node"] == "1"


def test_ip_forwarding_is_changed_in_place(cloud: AzureCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    before = mark(cloud)
    properties = {**given.spec["properties"], "networkProfile": {"ipForwarding": False}}
    desired = {**given.spec, "properties": properties}
    update = given.update(made.provider_id, provider_spec=desired, last_applied_provider_spec=given.spec)
    (changed,) = cloud.driver.update_machine(update).changed
    assert changed.endswith("-nic: IP forwarding off")
    assert mutating(cloud, before) == ["NetworkInterfaces_CreateOrUpdate"]
    assert cloud.driver.update_machine(update).changed == []
    assert mutating(cloud, before) == ["NetworkInterfaces_CreateOrUpdate"]


# -- credentials -------------------------------------------------------------------------------------------------------

FULL = {"subscriptionID": "s", "tenantID": "t", "clientID": "c"}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"tenantID": "t", "clientSecret": "canary"}, "subscriptionID is missing"),
        ({**FULL, "tenantID": "", "clientSecret": "canary"}, "tenantID is missing"),
        ({**FULL, "clientID": "", "clientSecret": "canary"}, "clientID is missing"),
        ({**FULL, "clientSecret": "canary", "clientCertificate": "canary"}, "give one of them"),
        (FULL, "give one of them"),
    ],
)
def test_a_secret_that_is_incomplete_is_told_by_the_key(given: dict[str, str], missing: str) -> None:
    with pytest.raises(DriverError, match=missing) as refused:
        from_secret({k: SecretStr(v) for k, v in given.items()})
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in str(refused.value)


def test_gardeners_earlier_keys_are_read_and_a_managed_identity_needs_none() -> None:
    names = ("azureSubscriptionId", "azureTenantId", "azureClientId", "azureClientSecret")
    old = from_secret({name: SecretStr(name[-2:]) for name in names})
    assert (old.subscription, old.tenant, old.client, old.secret) == ("Id", "Id", "Id", "et")
    openshifts = ("azure_subscription_id", "azure_tenant_id", "azure_client_id", "azure_client_secret", "azure_region")
    theirs = from_secret({name: SecretStr(name[-2:]) for name in openshifts})
    assert (theirs.subscription, theirs.tenant, theirs.client, theirs.secret) == ("id", "id", "id", "et")
    managed = from_secret({"subscriptionID": SecretStr("s"), "userData": SecretStr("x")})
    assert (managed.subscription, managed.tenant, managed.secret) == ("s", "", "")
    assert from_secret({"userData": SecretStr("x")}).subscription == ""
    assert "et" not in repr(old).replace("Credentials", "")


def test_a_token_that_azure_no_longer_takes_is_replaced_once_without_an_error(cloud: AzureCloud) -> None:
    given, driver = machine(cloud), cloud.driver_with(DriverSettings())
    driver.create_machine(given.creation())
    cloud.do(cloud.arm.authenticator.tokens.clear)
    assert len(driver.list_machines(given.listing()).machines) == 1
    assert [c.operation for c in cloud.frame.calls(operation=cloud.login)][-1:] == [cloud.login]


def test_a_workload_identitys_token_is_read_from_its_file(cloud: AzureCloud, tmp_path: Any) -> None:
    (token,) = cloud.arm.world.principals[0].federated_tokens
    file = tmp_path / "token"
    file.write_text("canary-of-nobody")
    secret = {k: v for k, v in cloud.secret.items() if k != "clientSecret"}
    secret["workloadIdentityTokenFile"] = SecretStr(str(file))
    given = machine(cloud)
    with pytest.raises(DriverError) as refused:
        cloud.driver_with(DriverSettings()).list_machines(given.listing(secret=secret))
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in refused.value.message
    file.write_text(token)
    assert cloud.driver_with(DriverSettings()).get_account(given.whose(secret=secret)) == cloud.account
