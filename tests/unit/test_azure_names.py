"""How Azure's resources and tags are named."""

from __future__ import annotations

import uuid

import pytest
from clouds.azure import azure_spec
from hypothesis import given
from hypothesis import strategies as st

from drivers.azure import places
from drivers.base import Identity
from resources.clouds import PROVIDERS, at_place, has_place
from resources.clouds.azure.spec import AzureProviderSpec, written_key

KEYS = st.text("ab./<>%&\\?-_", max_size=6)
NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,80}[a-z0-9]", fullmatch=True)
IDS = PROVIDERS["Azure"].ids


@given(KEYS)
def test_a_key_is_written_once(key: str) -> None:
    written = written_key(key)
    assert not set(written) & set("<>%&\\?/")
    assert written_key(written) == written


@pytest.mark.parametrize("field", ["tags", "vmTags", "nicTags", "diskTags"])
def test_two_keys_that_would_become_one_are_refused(field: str) -> None:
    """Also two that differ by case only: Azure's names of tags do not."""
    for one, other in (("a/b", "a-b"), ("team", "Team")):
        spec = AzureProviderSpec.model_validate({**azure_spec(), field: {one: "1", other: "2"}})
        assert any(field in where for where, _ in spec.mistakes())
    fine = AzureProviderSpec.model_validate({**azure_spec(), field: {"a/b": "1", "a/c": "2"}})
    assert fine.mistakes() == []


@given(NAMES, st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_what_is_made_for_a_vm_names_it(machine: str, token: str, other: str) -> None:
    identity = Identity(cluster="c", name=machine, uid=str(uuid.UUID(int=7)))
    vm = places.vm_name(identity, token)
    assert len(vm) <= places.NAME_LENGTH
    assert "." not in vm
    assert places.vm_name(identity, token) == vm
    assert (places.vm_name(identity, other) == vm) == (token == other)
    made = [places.nic_name(vm), places.data_disk_name(vm, 3, None), places.data_disk_name(vm, 3, "data")]
    assert {places.vm_made_for(name) for name in made} == {vm}
    assert places.vm_made_for(vm) == places.vm_made_for(f"{machine}-nics") == ""


@pytest.mark.parametrize(
    "spelling",
    [
        "azure:///WestEurope/M-1-0123456789",
        "azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/m-1-0123456789",
    ],
)
def test_the_machines_and_the_nodes_provider_id_are_one(spelling: str) -> None:
    """A Node would never find its machine otherwise."""
    ours = places.provider_id("westeurope", "m-1-0123456789")
    assert (IDS.key(spelling), IDS.indexed(spelling)) == (IDS.key(ours), IDS.indexed(ours))
    assert not has_place(spelling)
    assert at_place(IDS.indexed(spelling), {"location": "westeurope", "resourceGroup": "g"}) == ours
