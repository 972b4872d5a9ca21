"""The provider spec of Azure: what is refused, how tags are written, which Azure a location belongs to."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from clouds.azure import azure_spec

from planners.machine.hot_update import rolling_hash
from resources.clouds.azure.spec import TAG_RULES, AzureProviderSpec, realm_of
from resources.effects import Effect, effects

HOT = {"tags", "vmTags", "nicTags", "diskTags", "properties.networkProfile.ipForwarding"}
NONE = {
    *("apiVersion", "kind", "properties.networkProfile.networkInterfaces"),
    *("properties.storageProfile.osDisk.name", "properties.storageProfile.osDisk.managedDisk.id"),
    *("properties.osProfile.computerName", "properties.osProfile.adminPassword", "properties.osProfile.customData"),
}


def spec(**changes: Any) -> AzureProviderSpec:
    return AzureProviderSpec.model_validate({**azure_spec(), **changes})


def test_what_is_hot_and_what_has_no_effect() -> None:
    """All else needs another VM; the whole table is in docs/hot-updates.md."""
    by_effect = {e: {path for path, effect in effects(AzureProviderSpec) if effect is e} for e in Effect}
    assert by_effect[Effect.HOT] == HOT
    assert by_effect[Effect.NONE] == NONE
    assert by_effect[Effect.POST_START] == set()
    before, after = azure_spec(), {**azure_spec(networkProfile={"ipForwarding": False}), "vmTags": {"a": "b"}}
    assert rolling_hash("Azure", before) == rolling_hash("Azure", after)
    other = azure_spec(hardwareProfile={"vmSize": "Standard_D4s_v5"})
    assert rolling_hash("Azure", before) != rolling_hash("Azure", other)


def test_a_written_key_stays_as_it_is_and_twins_are_refused() -> None:
    for text in map("".join, itertools.product("aA-/.%", repeat=3)):
        check_key(text)


def check_key(text: str) -> None:
    written = TAG_RULES.key(text)
    assert TAG_RULES.key(written) == written
    assert not set(written) & set("<>%&\\?/")
    for other in ("a-a", "A/a", "..."):
        words = " ".join(w for _, w in spec(vmTags={text: "1", other: "2"}).mistakes())
        alike = text != other and written.lower() == TAG_RULES.key(other).lower()
        assert ("the same to Azure" in words) is alike


def test_must_tags_are_written_as_gardeners_tools_expect_them() -> None:
    assert spec().must_tags() == {"kubernetes.io-cluster-shoot--test--one": "1", "kubernetes.io-role-node": "1"}
    assert TAG_RULES.is_protected(TAG_RULES.key("hostler.io/uid"))
    assert not TAG_RULES.is_protected("cost")


def test_a_specific_tag_field_even_an_empty_one_replaces_tags() -> None:
    given = spec(tags={"all": "1"}, nicTags={"nic": "2"}, diskTags={})
    assert given.tag_sets() == {"vm": {"all": "1"}, "nic": {"nic": "2"}, "disk": {}}
    assert given.settled().tag_sets() == given.tag_sets()


DISK = {"lun": 0, "diskSizeGB": 10}
STORAGE = azure_spec()["properties"]["storageProfile"]
MISTAKES: list[tuple[dict[str, Any], str]] = [
    (azure_spec(evictionPolicy="Delete"), "properties.evictionPolicy"),
    (azure_spec(availabilitySet={"id": "/x"}), "properties.zone"),
    ({**azure_spec(), "cloudConfiguration": {"name": "AzureChina"}}, "cloudConfiguration.name"),
    (
        azure_spec(storageProfile={**STORAGE, "dataDisks": [{**DISK, "imageRef": {"urn": "a:b:c:d"}}]}),
        "properties.storageProfile.dataDisks[0].imageRef.urn",
    ),
    ({**azure_spec(), "vmTags": {"azure-team": "x"}}, "vmTags or tags"),
    ({**azure_spec(), "nicTags": {f"kubernetes.io/cluster/{name}": "1" for name in "ab"}}, "vmTags or tags"),
]


@pytest.mark.parametrize(("wrong", "path"), MISTAKES, ids=[path for _, path in MISTAKES])
def test_what_azure_would_refuse_is_refused_with_its_path(wrong: dict[str, Any], path: str) -> None:
    assert [p for p, _ in AzureProviderSpec.model_validate(wrong).mistakes()] == [path]
    assert spec().mistakes() == []


@pytest.mark.parametrize(
    "wrong",
    [
        azure_spec(storageProfile={**STORAGE, "dataDisks": [DISK, DISK]}),
        azure_spec(storageProfile={"imageReference": {"urn": "a:b:c:d", "id": "/x"}}),
        azure_spec(storageProfile={"imageReference": {"urn": "a:b"}}),
        azure_spec(availabilitySet={"id": "/x"}, virtualMachineScaleSet={"id": "/y"}),
    ],
)
def test_what_contradicts_itself_is_no_spec(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"exactly one|same lun|urn|give one of"):
        AzureProviderSpec.model_validate(wrong)


LOCATIONS = {
    "West Europe": "AzurePublic",
    "usgovvirginia": "AzureGovernment",
    "usdodeast": "AzureGovernment",
    "chinanorth3": "AzureChina",
}


@pytest.mark.parametrize(("location", "realm"), LOCATIONS.items())
def test_a_location_says_which_azure_it_is(location: str, realm: str) -> None:
    assert realm_of(location).name == realm
