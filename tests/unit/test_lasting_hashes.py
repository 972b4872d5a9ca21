"""Hashes that outlive a release: no pool rolls, and no machine says anything, because a model has one more field or a
spec is spelled otherwise.

Given a pool whose newest revision was made from SPEC, when its class is applied again as a row says, it rolls or does
not.
"""

from __future__ import annotations

import copy
import functools
import operator
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Union

import pytest
from pools.planner import EPOCH, member, report
from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from activities.kube import facts
from planners.fleet.hearing import first_heard, hear
from planners.fleet.revisions import Wanted, revise
from planners.machine.hot_update import compare, is_hash_of, rolling_hash
from planners.machine.membership import digest_of, report_of, with_revision
from resources.base import Manifest
from resources.canonical import Empty, canonical
from resources.clouds import PROVIDERS
from resources.effects import effects
from resources.fleet.membership import member_state
from resources.fleet.revision import Revision
from resources.fleet.state import FleetState
from resources.machine.facts import NodeFacts
from resources.machine.manifest import MachineTemplate, SecretRef
from resources.machine.placement import Placement
from resources.machine.state import ClassSnapshot
from resources.owner import Owner
from workflows.fleet.revise import but_class

Row = tuple[str, dict[str, Any], dict[str, Any]]

NIC: dict[str, Any] = {"subnetID": "subnet-1", "securityGroupIDs": ["sg-1", "sg-2"]}
DISK: dict[str, Any] = {"ebs": {"volumeSize": 20, "volumeType": "gp3"}}
SPEC: dict[str, Any] = {
    "ami": "ami-1",
    "region": "eu-west-1",
    "machineType": "m5.large",
    "blockDevices": [DISK],
    "networkInterfaces": [NIC],
    "tags": {"kubernetes.io/cluster/one": "1"},
}


def nic(**fields: Any) -> dict[str, Any]:
    return {"networkInterfaces": [{**NIC, **fields}]}


def disk(**fields: Any) -> dict[str, Any]:
    return {"blockDevices": [{**DISK, "ebs": {**DISK["ebs"], **fields}}]}


TWO_NICS = {"networkInterfaces": [NIC, {"subnetID": "subnet-2"}]}
TWO_DISKS = {"blockDevices": [{**DISK, "deviceName": "/root"}, {"deviceName": "/dev/sdb", "ebs": {"volumeSize": 5}}]}

SAME: list[Row] = [
    ("the default of deleteOnTermination of a disk", {}, disk(deleteOnTermination=True)),
    ("and of a network interface", {}, nic(deleteOnTermination=True)),
    ("deviceIndex as the place is", {}, nic(deviceIndex=0)),
    ("the first network card", {}, nic(networkCardIndex=0)),
    ("the ordinary interface", {}, nic(interfaceType="interface")),
    ("the order of security groups", {}, nic(securityGroupIDs=["sg-2", "sg-1"])),
    ("one of them twice", {}, nic(securityGroupIDs=["sg-1", "sg-2", "sg-1"])),
    ("no IPv6 addresses", {}, nic(ipv6AddressCount=0, ipv6PrefixCount=0)),
    ("the primary of no IPv6 address", {}, nic(primaryIpv6=False)),
    ("the primary of one", nic(ipv6AddressCount=1), nic(ipv6AddressCount=1, primaryIpv6=True)),
    ("the order of interfaces with indexes", TWO_NICS,
     {"networkInterfaces": [{"subnetID": "subnet-2", "deviceIndex": 1}, {**NIC, "deviceIndex": 0}]}),
    ("the order of disks with names", TWO_DISKS, {"blockDevices": TWO_DISKS["blockDevices"][::-1]}),
    ("the root device by its name", {}, {"blockDevices": [{**DISK, "deviceName": "/root"}]}),
    ("0 is not given (MCM)", {}, disk(iops=0, throughput=0)),
    ("checks that are on", {}, {"srcAndDstChecksEnabled": True}),
    ("empty texts", {}, {"keyName": "", "placement": {"availabilityZone": "", "groupId": ""}} | nic(description="")),
    ("empty tables", {}, {"placement": {}, "capacityReservation": {}, "instanceMarketOptions": {}}),
    ("nothing by its name", {}, {"keyName": None, "iam": None, "cpuOptions": None, "spotPrice": None}),
    ("Python's names", {}, {"networkInterfaces": [{"subnet_id": "subnet-1", "securityGroupIDs": ["sg-1", "sg-2"]}]}),
    ("what is ignored or not known", {}, {"monitoring": False, "ebsOptimized": True, "unknown": [1]}),
    ("what is updated in place", {}, {"tags": {}, "vmTags": {"a": "1"}, "instanceMetadataOptions": {}}),
]  # fmt: skip
"""What it was made from, and what it is made from now, besides SPEC: RunInstances is asked for the same."""

OTHER: list[Row] = [
    ("another image", {}, {"ami": "ami-2"}),
    ("a disk that stays", {}, disk(deleteOnTermination=False)),
    ("an interface that stays", {}, nic(deleteOnTermination=False)),
    ("another place", {}, nic(deviceIndex=1)),
    ("another card", {}, nic(networkCardIndex=1)),
    ("another security group", {}, nic(securityGroupIDs=["sg-1", "sg-3"])),
    ("one less", {}, nic(securityGroupIDs=["sg-1"])),
    ("interfaces without indexes, in another order", TWO_NICS,
     {"networkInterfaces": TWO_NICS["networkInterfaces"][::-1]}),
    ("an address that is not the primary", nic(ipv6AddressCount=1), nic(ipv6AddressCount=1, primaryIpv6=False)),
    ("the subnet decides, or nobody", {}, nic(associatePublicIPAddress=False)),
    ("the account decides, or nobody", {}, disk(encrypted=False)),
    ("checks that are off", {}, {"srcAndDstChecksEnabled": False}),
    ("the image's own root disk, or ours", {"blockDevices": []}, {"blockDevices": [{}]}),
    ("an empty spot price is the on-demand price", {}, {"spotPrice": ""}),
]  # fmt: skip


def ids(rows: list[Row]) -> list[str]:
    return [row[0] for row in rows]


HOOK = {"name": "etcd", "owner": "clusteroperator/etcd"}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "class": {"name": "c1"},
        "nodeTemplate": {"spec": {"taints": [{"key": "k", "value": "", "effect": "NoSchedule"}]}},
        "lifecycleHooks": {"preDrain": [HOOK]},
    },
}


def of_spec(spec: dict[str, Any]) -> ClassSnapshot:
    return ClassSnapshot(name="c1", provider="AWS", provider_spec=spec, secret_ref=SecretRef(name="s"))


def wants(spec: dict[str, Any]) -> Wanted:
    return Wanted(MachineTemplate.model_validate(TEMPLATE), of_spec(spec))


def stored(spec: dict[str, Any], hash: str | None = None) -> Revision:
    """The spec as a pool's state has it; its hash may be of any release."""
    made = wants(spec)
    found = rolling_hash("AWS", spec) if hash is None else hash
    return Revision(counter=1, machine_class=made.machine_class, hash=found, template=made.template, created=EPOCH)


def rolls(made_from: Revision, spec: dict[str, Any]) -> bool:
    return revise([made_from], {"m": member(1)}, wants(spec), 10, EPOCH).rolls


# -- spellings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "now"), [r[1:] for r in SAME], ids=ids(SAME))
def test_another_spelling_does_not_roll(before: dict[str, Any], now: dict[str, Any]) -> None:
    a, b = {**SPEC, **before}, {**SPEC, **now}
    assert a != b
    assert not rolls(stored(a), b)
    assert not compare("AWS", a, b).rolls
    assert rolling_hash("AWS", a) == rolling_hash("AWS", b)


@pytest.mark.parametrize(("before", "now"), [r[1:] for r in OTHER], ids=ids(OTHER))
def test_what_makes_another_vm_rolls(before: dict[str, Any], now: dict[str, Any]) -> None:
    a, b = {**SPEC, **before}, {**SPEC, **now}
    assert rolls(stored(a), b)
    assert compare("AWS", a, b).rolls


def test_an_empty_field_of_tags_is_no_missing_one() -> None:
    """It replaces the deprecated `tags` for its resource."""
    assert compare("AWS", SPEC, {**SPEC, "nicTags": {}}).hot == ("nicTags",)


def test_what_is_not_given_is_not_in_the_form_that_is_compared() -> None:
    class Inner(Manifest):
        a: int | None = None

    class Given(Manifest):
        needed: str
        texts: list[str] = Field(default_factory=list)
        word: str | None = None
        on: bool | None = True
        few: list[str] = Field(default=["x"])
        inner: Inner = Inner()
        empty: Annotated[str | None, Empty.COUNTS] = None

    given = {"needed": "", "texts": [], "word": "", "on": True, "few": ["x"], "inner": {"a": None}, "odd": 1}
    assert canonical(Given.model_validate(given)) == {"needed": ""}
    asked = {"texts": [""], "word": "w", "on": None, "few": [], "inner": {"a": 0}, "empty": ""}
    assert canonical(Given.model_validate({"needed": "n", **asked})) == {"needed": "n", **asked}


# -- stored hashes ----------------------------------------------------------------------------------------------------

GOLDEN = [
    ({}, "f340d209779f870a", "2:c69d736e77067c70"),
    (TWO_NICS, "e0751f5f1bc1580d", "2:c8b9f63ba630d4ba"),
    (TWO_DISKS | {"srcAndDstChecksEnabled": False, "spotPrice": ""}, "6eb3864e04b8d220", "2:f48a3739fb1ae88e"),
    (
        {"cpuOptions": {"coreCount": 2, "threadsPerCore": 1}, "placement": {"tenancy": "dedicated"}},
        "737e3ca72297add4",
        "2:151cdd9284458848",
    ),
]
"""Version 1 and version 2. They never change: states and workers of other releases have them."""


@pytest.mark.parametrize(("change", "former", "now"), GOLDEN)
def test_the_hash_of_a_spec_stays_what_it_is(change: dict[str, Any], former: str, now: str) -> None:
    spec = {**SPEC, **change}
    assert (rolling_hash("AWS", spec, version=1), rolling_hash("AWS", spec)) == (former, now)
    assert is_hash_of(former, "AWS", spec)
    assert is_hash_of(now, "AWS", spec)
    assert not is_hash_of(now, "AWS", {**spec, "ami": "ami-2"})
    assert not is_hash_of(now.replace("2:", "3:"), "AWS", spec)  # a newer release's, which nobody here can make


@pytest.mark.parametrize("hash", ["f340d209779f870a", "2:0123456789abcdef", "3:0123456789abcdef", "h"])
def test_a_stored_hash_of_any_release_rolls_nothing(hash: str) -> None:
    """The spec that it was made from is there, and is read by today's model."""
    made = revise([stored(SPEC, hash)], {"m": member(1)}, wants({**SPEC, "tags": {}}), 10, EPOCH)
    assert (made.rolls, [r.hash for r in made.revisions]) == (False, [hash])  # machines to come are named as before
    assert rolls(stored(SPEC, hash), {**SPEC, "ami": "ami-2"})


def test_a_run_that_began_with_version_1_ends_with_it() -> None:
    """What its history says stays so."""
    former = stored(SPEC, rolling_hash("AWS", SPEC, version=1))
    spelled = Wanted(former.template, of_spec({**SPEC, **nic(deviceIndex=0)}), hashing=1)
    made = revise([former], {}, spelled, 10, EPOCH)
    assert (made.rolls, made.revisions[-1].hash) == (True, rolling_hash("AWS", {**SPEC, **nic(deviceIndex=0)}, 1))
    assert revise([former], {}, Wanted(former.template, of_spec(SPEC), hashing=1), 10, EPOCH).rolls is False


@pytest.mark.parametrize(
    ("said", "counter"),
    [
        ({"hash": rolling_hash("AWS", SPEC, 1)}, 1),  # by a machine on an older worker
        ({"hash": "of a model with more fields", "rolling_hash": rolling_hash("AWS", SPEC)}, 1),
        ({"hash": rolling_hash("AWS", SPEC, 1), "rolling_hash": "3:0123456789abcdef"}, 0),
        ({"hash": rolling_hash("AWS", {**SPEC, "ami": "ami-2"}, 1)}, 0),
    ],
)
def test_a_machine_is_of_the_revision_whose_spec_has_its_hash(said: dict[str, str], counter: int) -> None:
    heard = report(machine_class="c1", seq=5, **said)
    assert first_heard(heard, [stored(SPEC, "of another release")]).revision == counter


# -- placements -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", [None, Placement(index=1, zone="eu-west-1b", failure_domain="rack-7")])
def test_a_placement_is_in_no_hash(placement: Placement | None) -> None:
    """Machines of one revision may differ in it: a machine's owner, which gave it, knows it again by its report."""
    made_from = stored(SPEC)
    state = member_state(FleetState(name="p", revisions=[made_from]), Owner(name="p"), "m1", made_from, placement)
    state.status.phase_since = EPOCH
    said = with_revision(report_of(state), state)
    assert (said.placement, said.rolling_hash) == (placement, rolling_hash("AWS", SPEC))
    known = first_heard(said, [made_from])
    assert (known.revision, known.placement) == (1, placement)
    assert hear(known, said.model_copy(update={"placement": None}), [made_from]).placement == placement
    assert revise([made_from], {"m1": known}, wants(SPEC), 10, EPOCH).rolls is False


# -- a release with one more field ------------------------------------------------------------------------------------


class Added(Manifest):
    depth: int = 3
    words: list[str] = Field(default_factory=list)


OPTIONAL: dict[str, tuple[Any, Any, Any]] = {
    "text": (str | None, None, "x"),
    "list": (list[str], [], ["x"]),
    "table": (dict[str, str], {}, {"x": "1"}),
    "switch": (bool, True, False),
    "number": (int, 0, 1),
    "model": (Added, Added(), {"depth": 4}),
    "models": (list[Added], [], [{"depth": 4}]),
}
"""Type, default, another value."""


def models(root: type[BaseModel]) -> set[type[BaseModel]]:
    """The models, with those within them."""
    found = {root}
    for info in root.model_fields.values():
        for inner in _within(info.annotation):
            found |= models(inner)
    return found


def _within(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _within(inner)


@functools.cache
def grown(root: type[BaseModel], which: type[BaseModel]) -> Any:
    """The model as a later release has it: one of the models within it, `which`, has one more field of each kind. To
    make a model takes long, so they are not made one by one."""
    fields: dict[str, Any] = {}
    for name, info in root.model_fields.items():
        if which in {m for inner in _within(info.annotation) for m in models(inner)}:
            newer: FieldInfo = copy.copy(info)
            newer.annotation = _replaced(info.annotation, which)
            if newer.default_factory is not None and newer.default_factory in models(root):
                newer.default_factory = grown(newer.default_factory, which)  # type: ignore[type-var]
            fields[name] = (newer.annotation, newer)
    if root is which:
        fields |= {f"added_{kind}": (annotation, default) for kind, (annotation, default, _) in OPTIONAL.items()}
    return create_model(root.__name__, __base__=root, **fields)


def _replaced(annotation: Any, which: type[BaseModel]) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return grown(annotation, which) if which in models(annotation) else annotation
    args = tuple(_replaced(a, which) for a in typing.get_args(annotation))
    origin = typing.get_origin(annotation)
    if not args:
        return annotation
    return functools.reduce(operator.or_, args) if origin in (Union, types.UnionType) else origin[args]


SPEC_OF = {name: provider.spec for name, provider in PROVIDERS.items()}
SPECS = [(provider, m) for provider, of in PROVIDERS.items() for m in sorted(models(of.spec), key=str)]
FULL: dict[str, Any] = SPEC | TWO_NICS | TWO_DISKS | {
    "iam": {"name": "nodes"},
    "instanceMetadataOptions": {"httpTokens": "required"},
    "cpuOptions": {"coreCount": 2, "threadsPerCore": 1},
    "capacityReservation": {"capacityReservationPreference": "open"},
    "instanceMarketOptions": {"marketType": "spot"},
    "placement": {"tenancy": "dedicated"},
}  # fmt: skip
"""A spec with an object of each model."""


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[BaseModel]], None]:
    def release(provider: str, which: type[BaseModel]) -> None:
        known = SPEC_OF[provider]
        monkeypatch.setitem(PROVIDERS, provider, replace(PROVIDERS[provider], spec=grown(known, which)))

    return release


@pytest.mark.parametrize(("provider", "which"), SPECS, ids=[f"{p}-{m.__name__}" for p, m in SPECS])
def test_one_more_field_of_a_provider_spec_rolls_nothing(provider: str, which: type[BaseModel], later: Any) -> None:
    hashed, revision, paths = rolling_hash(provider, FULL), stored(FULL), len(dict(effects(SPEC_OF[provider])))
    later(provider, which)
    assert len(dict(effects(PROVIDERS[provider].spec))) >= paths + len(OPTIONAL), "they are there"
    assert rolling_hash(provider, FULL) == hashed
    assert not compare(provider, FULL, {**FULL, "unknown": 1})
    assert not rolls(revision, copy.deepcopy(FULL))


@pytest.mark.parametrize("kind", OPTIONAL)
def test_whoever_asks_for_the_new_field_gets_it(kind: str, later: Any) -> None:
    later("AWS", SPEC_OF["AWS"])
    _, default, another = OPTIONAL[kind]
    added = f"added{kind.title()}"
    usual, asked = {**SPEC, added: to_jsonable_python(default)}, {**SPEC, added: another}
    assert not rolls(stored(SPEC), usual)
    assert rolls(stored(SPEC), asked)
    assert not rolls(stored(asked, rolling_hash("AWS", SPEC)), asked)  # written before the release that knows it


@pytest.mark.parametrize("which", sorted(models(Revision), key=str), ids=lambda m: m.__name__)
def test_one_more_field_of_what_a_pool_keeps_changes_nothing(which: type[BaseModel]) -> None:
    """The field is in its manifest, in its class or its own: the template is the same too, so no machine is told of
    one."""
    newer = grown(Revision, which)
    kept = newer.model_validate_json(stored(FULL).model_dump_json(by_alias=True))
    again = {"template": TEMPLATE, "machine_class": of_spec(FULL).model_dump()}
    applied = newer.model_validate(kept.model_dump() | again)
    wanted = Wanted(applied.template, applied.machine_class)
    assert not revise([kept], {}, wanted, 10, EPOCH).rolls
    assert but_class(kept.template) == but_class(applied.template)
    assert kept.template.spec.class_ == applied.template.spec.class_
    assert "added_text" in str(kept), "they are there"


REPORT = report(machine="m-1", since=EPOCH)
NODE = NodeFacts(epoch=1, seq=2, exists=True, name="n-1", created=EPOCH, ready=True, addresses=["10.0.0.1"])


@pytest.mark.parametrize(
    ("said", "digest", "pinned"),
    [(REPORT, digest_of, "863ab07aefc2211e"), (NODE, facts.digest, "SP1quBZVvpY=")],
    ids=["of a machine to its pool", "of a watch to a machine"],
)
def test_one_more_field_is_no_news(said: BaseModel, digest: Callable[[Any], str], pinned: str) -> None:
    """What was told last is kept as a digest, for as long as the machine or the watch lives."""
    assert digest(said) == pinned
    newer = grown(type(said), type(said))
    assert digest(newer.model_validate(said.model_dump())) == pinned
    for kind, (_, _, another) in OPTIONAL.items():
        assert digest(newer.model_validate(said.model_dump() | {f"added_{kind}": another})) != pinned, kind
