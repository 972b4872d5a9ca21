"""The registry of clouds: what each spec model must be for the planners, and where an account is."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Union

import pytest
from clouds.drivers import registered
from fakecloud import FAKE, FakeProviderSpec
from pydantic import BaseModel, ValidationError

from drivers.base import load_driver
from drivers.errors import DriverError
from resources.clouds import PROVIDERS, UnknownProvider, UnknownScope, indexed, provider_key, provider_of
from resources.cluster.accounts import Account
from resources.effects import Effect, effects, inner_model
from resources.machine.manifest import SecretRef

SECRET = SecretRef(name="credentials")
MODELS = [*(p.spec for p in PROVIDERS.values()), FakeProviderSpec]


def parts(model: type[BaseModel]) -> Iterator[tuple[str, bool, type[BaseModel]]]:
    """Field, whether it is a list's or may be missing, and the model of each object below a model."""
    for name, info in model.model_fields.items():
        inner, suffix = inner_model(info.annotation)
        if inner is not None:
            optional = typing.get_origin(info.annotation) in (Union, types.UnionType)
            yield name, bool(suffix) or optional, inner
            yield from parts(inner)


def unfit(model: type[BaseModel]) -> list[str]:
    """Objects that may be missing and have an updatable field beside others, but no field that is always given and
    rolls: nothing would show whether such an object is there."""
    found = []
    for name, may_be_missing, inner in parts(model):
        marks = {path: effect for path, effect in effects(inner) if "." not in path}
        mixed = Effect.HOT in marks.values() and set(marks.values()) != {Effect.HOT}
        if may_be_missing and mixed and not _needs_what_rolls(inner):
            found.append(name)
    return found


def _needs_what_rolls(model: type[BaseModel]) -> bool:
    """Whether hot fields alone are refused: one of the others is always given."""
    hot = {n for n, info in model.model_fields.items() if info.is_required() and Effect.HOT in info.metadata}
    try:
        model.model_validate({name: {} for name in hot})
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("model", MODELS)
def test_what_the_planner_of_hot_updates_needs_of_a_model(model: type[BaseModel]) -> None:
    assert not unfit(model)


def test_a_model_that_the_planner_could_not_go_by_is_seen() -> None:
    class Disk(BaseModel):
        size: int | None = None
        labels: typing.Annotated[dict[str, str], Effect.HOT]

    class Spec(BaseModel):
        disks: list[Disk]

    assert unfit(Spec) == ["disks"]


def test_an_account_is_where_its_spec_says() -> None:
    aws = Account.of("AWS", {"region": "eu-west-1", "rest": 7}, SECRET, None)
    assert aws.model_dump(mode="json", by_alias=True) == {
        "provider": "AWS",
        "region": "eu-west-1",  # this is how older workers know it
        "secretRef": {"name": "credentials", "namespace": "default"},
    }
    assert Account.model_validate(aws.model_dump(mode="json", by_alias=True)) == aws
    assert (aws.key, aws.place) == ("AWS/eu-west-1/default/credentials", {"region": "eu-west-1"})
    with registered():
        fake = Account.of(FAKE.name, {}, SECRET, SecretRef(name="others"))
        assert (fake.key, fake.fairness_key, fake.place) == (*["Fake/default/others"] * 2, {})


class Grouped(FakeProviderSpec):
    SCOPE: typing.ClassVar = ("location", "resourceGroup")
    location: str
    resource_group: str


def test_a_scope_of_several_fields_is_one_text_and_back() -> None:
    for spelling in ("resourceGroup", "resource_group"):
        assert Grouped.scope({"location": "west", spelling: "g-1"}) == "west/g-1"
    assert Grouped.place("west/g-1") == {"location": "west", "resourceGroup": "g-1"}


WRONG: list[dict[str, Any]] = [
    {},
    {"location": "west"},
    {"location": "west", "resourceGroup": "a/b"},
    {"location": "west", "resourceGroup": 7},
    {"location": "w" * 200, "resourceGroup": "g" * 200},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_spec_that_does_not_say_where_is_an_error_with_the_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnknownScope, match=r"providerSpec\.(location|resourceGroup)"):
        Grouped.scope(wrong)
    with pytest.raises(UnknownScope, match=r"providerSpec\.region is missing"):
        Account.of("AWS", {"ami": "ami-1"}, SECRET, None)


def test_a_cloud_that_nobody_knows_is_an_error_with_those_that_there_are() -> None:
    for ask in (lambda: provider_of("Awz"), lambda: Account.of("Awz", {"region": "x"}, SECRET, None)):
        with pytest.raises(UnknownProvider, match="'Awz' has no driver; there are drivers for AWS"):
            ask()
    with pytest.raises(DriverError, match="'Awz' has no driver"):
        load_driver("Awz")


@pytest.mark.parametrize(
    ("provider_id", "key", "spelling"),
    [
        ("aws:///eu-west-1/i-1", "aws/i-1", "aws:///eu-west-1/i-1"),
        ("aws:///eu-west-1a/i-1", "aws/i-1", "aws:///eu-west-1/i-1"),
        ("aws:///us-east-1-bos-1a/i-1", "aws/i-1", "aws:///us-east-1/i-1"),
        ("azure:///WestEurope/VM-1", "azure/vm-1", "azure:///vm-1"),
        (
            "azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/VM-1",
            "azure/vm-1",
            "azure:///vm-1",
        ),
        ("gce:///p/z/n", "gce/p/z/n", "gce:///p/z/n"),
        ("gce://p/z/n", "gce/p/z/n", "gce:///p/z/n"),  # as the cloud-controller-manager writes it
        ("none://p/z/N", "none://p/z/N", "none://p/z/N"),
        ("", "", ""),
    ],
)
def test_how_provider_ids_are_read(provider_id: str, key: str, spelling: str) -> None:
    assert (provider_key(provider_id), indexed(provider_id)) == (key, spelling)


def test_no_two_clouds_give_the_same_key() -> None:
    """What is kept by VM, in watches and in visibility, mixes clouds: an id alone may be another cloud's too."""
    schemes = {p.ids.scheme for p in PROVIDERS.values()} | {"azure", "gce", "unheard-of"}
    assert len(schemes) > 3
    for read in (provider_key, indexed):
        assert len({read(f"{scheme}:///eu-west-1/i-1") for scheme in schemes}) == len(schemes)


def test_a_cloud_writes_tags_in_its_own_way_and_must_tags_are_known_again() -> None:
    rules = FAKE.spec.TAGS
    must = rules.key("kubernetes.io/cluster/shoot--One")
    assert must == rules.key(must) == "kubernetes-io_cluster_shoot--one"
    assert rules.is_must(must)
    assert rules.is_protected(rules.key("hostler.io/uid"))
    assert not rules.is_protected("cost")
    refused = list(rules.refusals({must: "1"}, {rules.key("kubernetes.io/cluster/other"): "1"}))
    assert len(refused) == 2
