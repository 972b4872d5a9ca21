"""planners/machine/hot_update.py: what a changed spec means, and the tags of one resource as a plan. Rows cite
their source."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from clouds.drivers import registered
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from drivers.tags import TagPlan, TooManyTags, plan_tags
from planners.machine.hot_update import Difference, applied_after, compare, may_carry, rolling_hash, with_updatable
from resources.clouds import PROVIDERS
from resources.clouds.aws.spec import AwsProviderSpec
from resources.effects import Effect, effects
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot

NIC = {"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]}
MUST = {"kubernetes.io/cluster/one": "1", "kubernetes.io/role/node": "1"}
SPEC: dict[str, Any] = {
    "ami": "ami-1",
    "region": "eu-west-1",
    "machineType": "m5.large",
    "blockDevices": [{"ebs": {"volumeSize": 20}}],
    "networkInterfaces": [NIC],
    "tags": {**MUST, "cost": "a"},
}

# -- comparing --------------------------------------------------------------------------------------------------------

COMPARED: list[tuple[str, dict[str, Any], Difference]] = [
    ("nothing", {}, Difference()),
    ("P69: a tag's value", {"tags": {**MUST, "cost": "b"}}, Difference(hot=("tags",))),
    ("an empty specific field replaces `tags`", {"diskTags": {}}, Difference(hot=("diskTags",))),
    (
        "IMDSv2",
        {"instanceMetadataOptions": {"httpTokens": "required"}},
        Difference(hot=("instanceMetadataOptions.httpTokens",)),
    ),
    ("options that say nothing", {"instanceMetadataOptions": {}}, Difference()),
    (
        "seed 000: post-start is never hot",
        {"srcAndDstChecksEnabled": False, "networkInterfaces": [{**NIC, "ipv6PrefixCount": 1}]},
        Difference(rolls=("networkInterfaces[0].ipv6PrefixCount", "srcAndDstChecksEnabled")),
    ),
    ("unmarked", {"machineType": "m5.xlarge"}, Difference(rolls=("machineType",))),
    (
        "within lists",
        {"blockDevices": [{"ebs": {"volumeSize": 30}}], "networkInterfaces": [NIC, {"subnetID": "subnet-2"}]},
        Difference(rolls=("blockDevices[0].ebs.volumeSize", "networkInterfaces[1].subnetID")),
    ),
    ("both", {"ami": "ami-2", "vmTags": {"x": "1"}}, Difference(hot=("vmTags",), rolls=("ami",))),
    ("ignored fields", {"monitoring": True, "kmsKeyID": "k", "kind": "x"}, Difference()),
    ("unknown fields", {"amii": "ami-2"}, Difference()),
    ("the same in other words", {"networkInterfaces": [{"subnet_id": "subnet-1", "securityGroupIDs": ["sg-1"]}]},
     Difference()),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), [r[1:] for r in COMPARED], ids=[r[0] for r in COMPARED])
def test_compare(change: dict[str, Any], expected: Difference) -> None:
    assert compare("AWS", SPEC, {**SPEC, **change}) == expected
    assert bool(expected) == (expected != Difference())


def test_a_spec_that_is_not_valid_is_compared_as_it_is() -> None:
    wrong = {**SPEC, "machineType": 7}
    assert compare("AWS", wrong, {**wrong, "ami": "ami-2"}).rolls == ("ami",)
    assert compare("AWS", SPEC, wrong).rolls == ("machineType",)


def test_of_a_provider_without_a_model_everything_rolls() -> None:
    assert compare("Other", {"tags": {"a": "1"}}, {"tags": {}, "x": 1}) == Difference(rolls=("tags", "x"))
    assert not compare("Other", SPEC, copy.deepcopy(SPEC))


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("another cluster", {"kubernetes.io/cluster/two": "1"}, ["kubernetes.io/cluster/one", "kubernetes.io/cluster/two"]),
    ("one more cluster", {"kubernetes.io/cluster/one": "1", "kubernetes.io/cluster/two": "1"}, ["cluster/two"]),
    ("no cluster", {}, ["kubernetes.io/cluster/one may not be removed"]),
    ("another value", {"kubernetes.io/cluster/one": "owned"}, ["kubernetes.io/cluster/one may not be changed"]),
]


@pytest.mark.parametrize(("cluster", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_must_tags_may_not_change(cluster: dict[str, str], words: list[str]) -> None:
    """Design drivers.md: naming another cluster, and changing or removing them on an existing machine, are refused."""
    tags = {"kubernetes.io/role/node": "1", "cost": "b", **cluster}
    refused = compare("AWS", SPEC, {**SPEC, "tags": tags}).refused
    assert len(refused) == len(words)
    assert all(any(w in r for r in refused) for w in words), refused


def test_another_role_is_refused_too() -> None:
    tags = {"kubernetes.io/cluster/one": "1", "kubernetes.io/role/integration-test": "1"}
    assert len(compare("AWS", SPEC, {**SPEC, "tags": tags}).refused) == 2


def test_must_tags_may_move_between_fields_and_a_class_without_may_begin_to_name_them() -> None:
    moved = {k: v for k, v in SPEC.items() if k != "tags"} | {"vmTags": {**MUST, "cost": "a"}, "diskTags": {}}
    assert compare("AWS", SPEC, moved) == Difference(hot=("diskTags", "tags", "vmTags"))
    assert compare("AWS", {**SPEC, "tags": {}}, SPEC) == Difference(hot=("tags",))


# -- what a VM carries afterwards -------------------------------------------------------------------------------------


def test_applied_after_takes_the_updatable_fields_and_nothing_else() -> None:
    applied = {**SPEC, "vm_tags": {"old": "1"}}
    desired = {k: v for k, v in SPEC.items() if k != "tags"}
    desired |= {"ami": "ami-2", "nicTags": {"n": "1"}, "instanceMetadataOptions": {"httpTokens": "required"}}
    after = applied_after("AWS", applied, desired)
    expected = {k: v for k, v in SPEC.items() if k != "tags"}
    expected |= {"nicTags": {"n": "1"}, "instanceMetadataOptions": {"httpTokens": "required"}}
    assert after == expected  # `tags` and `vm_tags` are gone, ami is what the VM was made from
    assert compare("AWS", after, desired) == Difference(rolls=("ami",))
    assert applied_after("Other", SPEC, {}) == SPEC


# -- tags -------------------------------------------------------------------------------------------------------------

PLANNED: list[tuple[str, dict[str, str], dict[str, str], dict[str, str], TagPlan]] = [
    ("nothing to do", {"a": "1"}, {"a": "1"}, {"a": "1"}, TagPlan()),
    ("a new key", {}, {"a": "1"}, {}, TagPlan(set={"a": "1"})),
    ("P69: another value", {"cost": "a"}, {"cost": "b"}, {"cost": "a"}, TagPlan(set={"cost": "b"})),
    ("P69: removed, ours", {"team": "x"}, {}, {"team": "x"}, TagPlan(remove=("team",))),
    ("P69: foreign stays", {"cost": "a"}, {"cost": "a"}, {"cost": "a", "x": "y"}, TagPlan()),
    ("ours with another's value is removed", {"team": "x"}, {}, {"team": "y"}, TagPlan(remove=("team",))),
    ("removed, and gone already", {"team": "x"}, {}, {}, TagPlan()),
    ("foreign, desired from now on", {}, {"x": "1"}, {"x": "y"}, TagPlan(set={"x": "1"})),
    ("foreign, desired with the value it has", {}, {"x": "y"}, {"x": "y"}, TagPlan()),
    ("ours, changed by hand", {"a": "1"}, {"a": "1"}, {"a": "2"}, TagPlan(set={"a": "1"})),
    ("must-tags named otherwise", {"Name": "m-1"}, {"Name": "x"}, {"Name": "m-1"}, TagPlan()),
    ("must-tags taken out", {"Name": "m-1"}, {}, {"Name": "m-1"}, TagPlan()),
    ("an empty value is a value", {}, {"a": ""}, {}, TagPlan(set={"a": ""})),
]


@pytest.mark.parametrize(("last", "desired", "actual", "plan"), [r[1:] for r in PLANNED], ids=[r[0] for r in PLANNED])
def test_plan(last: dict[str, str], desired: dict[str, str], actual: dict[str, str], plan: TagPlan) -> None:
    assert plan_tags(last, desired, actual, {"Name"}, 50) == plan
    assert bool(plan) == bool(plan.set or plan.remove)


def test_the_limit_counts_foreign_and_must_tags() -> None:
    foreign = {f"foreign-{n}": "" for n in range(7)}
    assert plan_tags({}, {"a": "1", "b": "1"}, foreign, {"Name"}, 10).set == {"a": "1", "b": "1"}
    with pytest.raises(TooManyTags, match=r"11 tags.*may have 10") as more:
        plan_tags({}, {"a": "1", "b": "1", "c": "1"}, foreign, {"Name"}, 10)
    assert (more.value.count, more.value.limit) == (11, 10)
    # What goes makes room; and a plan that only removes is never too much.
    assert plan_tags({"old": "1"}, {"a": "1"}, {**foreign, "b": "", "old": "1"}, {"Name"}, 10).remove == ("old",)
    assert plan_tags({"old": "1"}, {}, {**foreign, "old": "1"}, {"Name"}, 3).remove == ("old",)


KEYS = [f"k{n}" for n in range(6)]
PROTECTED = {"k0", "k1"}
TAGS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "1", "2"]))


def applied(plan: TagPlan, actual: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in {**actual, **plan.set}.items() if k not in plan.remove}


@given(TAGS, TAGS, TAGS)
def test_properties(last: dict[str, str], desired: dict[str, str], actual: dict[str, str]) -> None:
    plan = plan_tags(last, desired, actual, PROTECTED, 50)
    touched = {*plan.set, *plan.remove}
    assert not touched & PROTECTED, "a must-tag is in the plan"
    assert touched <= {*last, *desired}, "a foreign key is in the plan"
    assert not {*plan.set} & {*plan.remove}
    assert all(actual.get(k) != v for k, v in plan.set.items()), "a key that does not differ is in the plan"
    after = applied(plan, actual)
    assert {k: v for k, v in after.items() if k in desired and k not in PROTECTED} == {
        k: v for k, v in desired.items() if k not in PROTECTED
    }
    assert not {*after} & ({*last} - {*desired} - PROTECTED), "what was ours and is not desired is still there"
    assert not plan_tags(last, desired, after, PROTECTED, 50), "the second time it does something"
    assert not plan_tags(desired, desired, after, PROTECTED, 50)


@given(TAGS, TAGS, TAGS, st.integers(0, 2**16))
def test_the_order_of_keys_does_not_matter(
    last: dict[str, str], desired: dict[str, str], actual: dict[str, str], seed: int
) -> None:
    def shuffled(tags: dict[str, str]) -> dict[str, str]:
        pairs = list(tags.items())
        random.Random(seed).shuffle(pairs)
        return dict(pairs)

    plan = plan_tags(last, desired, actual, PROTECTED, 50)
    again = plan_tags(shuffled(last), shuffled(desired), shuffled(actual), PROTECTED, 50)
    assert (list(plan.set.items()), plan.remove) == (list(again.set.items()), again.remove)


@given(TAGS)
def test_no_difference_is_no_plan(tags: dict[str, str]) -> None:
    assert not plan_tags(tags, tags, tags, set(), 50)
    assert plan_tags(tags, {**tags, "new": "1"}, tags, set(), 50) == TagPlan(set={"new": "1"})


@given(TAGS, TAGS, TAGS, st.integers(1, 8))
def test_a_resource_never_carries_more_than_it_may(
    last: dict[str, str], desired: dict[str, str], actual: dict[str, str], limit: int
) -> None:
    actual = {**actual, **dict.fromkeys(PROTECTED, "1")}
    free = plan_tags(last, desired, actual, PROTECTED, 50)
    count = len(applied(free, actual))
    if count > limit and {*free.set} - {*actual}:
        with pytest.raises(TooManyTags) as more:
            plan_tags(last, desired, actual, PROTECTED, limit)
        assert more.value.count == count
    else:
        assert plan_tags(last, desired, actual, PROTECTED, limit) == free
        assert count <= max(limit, len(actual))


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "tags": TAGS,
        "vmTags": TAGS,
        "ami": st.sampled_from(["ami-1", "ami-2"]),
        "instanceMetadataOptions": st.fixed_dictionaries(
            {}, optional={"httpTokens": st.sampled_from(["required", "optional"])}
        ),
    },
)


@given(SPECS, SPECS)
def test_after_a_hot_update_only_what_rolls_is_different(first: dict[str, Any], second: dict[str, Any]) -> None:
    a, b = {**SPEC, "tags": {}, **first}, {**SPEC, "tags": {}, **second}
    before, after = compare("AWS", a, b), compare("AWS", applied_after("AWS", a, b), b)
    assert after.hot == ()
    assert after.rolls == before.rolls


def _examples() -> list[tuple[str, dict[str, Any]]]:
    """Each cloud's provider spec as its example has it."""
    documents = [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "examples").glob("*/class.yaml"))]
    return [(d["provider"], d["providerSpec"]) for d in documents]


def _changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}-2"
        case [*_, dict(last)]:
            return [*value, {k: f"{v}-2" for k, v in last.items()}]
        case list():
            return [*value, "more"]
        case _:
            return {**(value or {}), "changed": "1"}


@pytest.mark.parametrize(("provider", "spec"), _examples(), ids=lambda v: v if isinstance(v, str) else "")
def test_each_updatable_field_of_a_cloud_is_updated_by_one_call(provider: str, spec: dict[str, Any]) -> None:
    """A field that an update does not reach would be updated again and again, without end."""
    hot = {p for p, effect in effects(PROVIDERS[provider].spec) if effect is Effect.HOT and "." not in p and p in spec}
    assert hot, "the example has none"
    for path in hot:
        wanted = {**spec, path: _changed(spec[path])}
        assert compare(provider, spec, wanted).hot == (path,)
        assert not compare(provider, applied_after(provider, spec, wanted), wanted)


# -- after an update that failed half-way -----------------------------------------------------------------------------


def test_a_class_that_is_taken_in_part_says_of_which_generations_it_is() -> None:
    """A pool's machine, through three generations of its class and back."""

    def of(generation: int, **changed: Any) -> ClassSnapshot:
        spec = {**SPEC, **changed}
        return ClassSnapshot(
            name="c", generation=generation, provider="AWS", provider_spec=spec, secret_ref=SecretRef(name="s")
        )

    second = with_updatable(of(1), of(2, ami="ami-2"))
    assert (second.provider_spec, second.words) == (SPEC, "c, generation 1, with the updatable fields of 2")
    newest = of(3, ami="ami-3", vmTags={"x": "1"})
    third = with_updatable(second, newest)
    assert third.words == "c, generation 1, with the updatable fields of 3"
    assert with_updatable(third, newest) == third, "told once more"
    again = with_updatable(third, of(4))
    assert (again, again.words) == (of(4), "c, generation 4"), "the class itself went back"
    assert with_updatable(of(1), of(2, vmTags={"x": "1"})).words == "c, generation 2"


def test_without_a_failed_update_the_vm_carries_what_was_applied() -> None:
    assert may_carry("AWS", SPEC, [], {**SPEC, "tags": {}}) == SPEC
    invalid = {**SPEC, "machineType": 7, "vmTags": {"x": "1"}}  # it never came to a call
    assert may_carry("AWS", SPEC, [invalid], SPEC) == SPEC
    assert may_carry("Other", SPEC, [{}], {}) == SPEC


def test_what_a_failed_update_has_set_is_ours_when_the_class_is_set_back() -> None:
    attempted = {
        **SPEC,
        "tags": {**MUST, "cost": "b", "new": "1"},
        "instanceMetadataOptions": {"httpTokens": "required"},
    }
    carried = may_carry("AWS", SPEC, [attempted], SPEC)
    for kind in ("vmTags", "nicTags", "diskTags"):
        assert carried[kind] == {**MUST, "cost": "b", "new": "1"}
    assert carried["instanceMetadataOptions"] == {"httpTokens": "required"}
    assert {k: v for k, v in carried.items() if k in SPEC} == {**SPEC, "tags": MUST}  # the rest is in the others
    assert not compare("AWS", carried, SPEC).refused


TRIED = st.lists(SPECS, min_size=1, max_size=3)


@given(SPECS, TRIED, SPECS, st.randoms(use_true_random=False))
def test_whatever_failed_updates_have_done_the_next_one_makes_it_right(
    applied_: dict[str, Any], tried: list[dict[str, Any]], goal: dict[str, Any], chance: random.Random
) -> None:
    """It does so even when each key of each resource is as any of the specs had it; foreign ones are there too."""
    specs = [AwsProviderSpec.model_validate({**SPEC, "tags": {}, **s}) for s in (applied_, *tried, goal)]
    first, *others, last = ({**SPEC, "tags": {}, **s} for s in (applied_, *tried, goal))
    carried = AwsProviderSpec.model_validate(may_carry("AWS", first, others, last))
    for kind in ("vm", "nic", "disk"):
        states, desired = [s.tags_for(kind) for s in specs[:-1]], specs[-1].tags_for(kind)  # type: ignore[arg-type]
        ours = {k for state in states for k in state}
        actual = {k: v for k in sorted(ours) if (v := chance.choice(states).get(k)) is not None} | {"foreign": "1"}
        before = carried.tags_for(kind)  # type: ignore[arg-type]
        after = applied(plan_tags(before, desired, actual, set(), 50), actual)
        assert after == {**desired, "foreign": "1"}
        wrong = {k: v for k, v in actual.items() if k != "foreign"} != desired
        assert not wrong or before != desired, "a driver that compares the specs would not look"


# -- updatable fields within lists and objects: the made-up cloud ------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def _the_made_up_cloud() -> Iterator[None]:
    with registered():
        yield


FAKE_SPEC: dict[str, Any] = {
    "image": "image-1",
    "flavour": "small",
    "labels": {**MUST, "cost": "a"},
    "disks": [{"sizeGb": 10, "labels": {"d": "1"}}, {"size_gb": 20}],
}

NESTED: list[tuple[str, dict[str, Any], Difference]] = [
    ("labels of a disk", {"disks": [{"sizeGb": 10}, {"sizeGb": 20, "labels": {"x": "1"}}]},
     Difference(hot=("disks[0].labels", "disks[1].labels"))),
    ("size and labels", {"disks": [{"sizeGb": 11, "labels": {}}, {"sizeGb": 20}]},
     Difference(hot=("disks[0].labels",), rolls=("disks[0].sizeGb",))),
    ("another disk comes with its labels", {"disks": [*FAKE_SPEC["disks"], {"sizeGb": 5, "labels": {"x": "1"}}]},
     Difference(rolls=("disks[2].labels", "disks[2].sizeGb"))),
    ("a disk goes", {"disks": FAKE_SPEC["disks"][:1]}, Difference(rolls=("disks[1].sizeGb",))),
    ("in an object that was not given", {"console": {"log": True}}, Difference(hot=("console.log",))),
    ("beside what rolls", {"console": {"log": True, "device": "tty"}},
     Difference(hot=("console.log",), rolls=("console.device",))),
    ("ignored, and after the start", {"comment": "x", "network": "n"}, Difference(rolls=("network",))),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), [r[1:] for r in NESTED], ids=[r[0] for r in NESTED])
def test_updatable_fields_at_any_depth(change: dict[str, Any], expected: Difference) -> None:
    desired = {**FAKE_SPEC, **change}
    assert compare("Fake", FAKE_SPEC, desired) == expected
    assert (rolling_hash("Fake", FAKE_SPEC) != rolling_hash("Fake", desired)) is bool(expected.rolls)
    after = applied_after("Fake", FAKE_SPEC, desired)
    assert compare("Fake", after, desired) == Difference(rolls=expected.rolls), "it would be called for without end"
    assert compare("Fake", FAKE_SPEC, after) == Difference(hot=expected.hot)


def test_must_tags_are_known_as_the_cloud_writes_them() -> None:
    assert len(compare("Fake", FAKE_SPEC, {**FAKE_SPEC, "labels": {"kubernetes.io/role/node": "1"}}).refused) == 1
    written = {"kubernetes-io_cluster_one": "1", "kubernetes-io_role_node": "1", "cost": "b"}
    assert compare("Fake", FAKE_SPEC, {**FAKE_SPEC, "labels": written}) == Difference(hot=("labels",))


LABELS = st.fixed_dictionaries({"sizeGb": st.sampled_from([1, 2])}, optional={"labels": TAGS})
FAKE_SPECS = st.fixed_dictionaries(
    {"disks": st.lists(LABELS, max_size=3)},
    optional={
        "labels": TAGS,
        "console": st.fixed_dictionaries({}, optional={"log": st.booleans(), "device": st.sampled_from(["a", "b"])}),
    },
)


@given(FAKE_SPECS, FAKE_SPECS)
def test_a_nested_update_leaves_nothing_to_call_for(first: dict[str, Any], second: dict[str, Any]) -> None:
    a, b = {**FAKE_SPEC, "labels": {}, **first}, {**FAKE_SPEC, "labels": {}, **second}
    before, after = compare("Fake", a, b), compare("Fake", applied_after("Fake", a, b), b)
    assert (after.hot, after.rolls) == ((), before.rolls)
    assert (rolling_hash("Fake", a) != rolling_hash("Fake", b)) is bool(before.rolls)


def test_what_a_failed_nested_update_has_set_is_ours() -> None:
    tried = {
        **FAKE_SPEC,
        "disks": [
            {"sizeGb": 10, "labels": {"d": "2", "new": "1"}},
            {"sizeGb": 20},
            {"sizeGb": 5, "labels": {"x": "1"}},
        ],
        "console": {"log": True},
    }
    carried = may_carry("Fake", FAKE_SPEC, [tried], FAKE_SPEC)
    assert [disk.get("labels") for disk in carried["disks"]] == [{"d": "2", "new": "1"}, {}]  # it has no third
    assert carried["console"] == {"log": True}
    assert compare("Fake", carried, FAKE_SPEC).hot == ("console.log", "disks[0].labels")
