"""Protection of a Node from cluster-autoscaler: rollouts, preservations and people come and go in any order, and at the
end the Node has what a person wants (I10)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.cluster.marks import marks_patch
from activities.cluster.preserve import preserve_patch
from activities.kube.rewrite import Object
from resources.calls.cluster import PreserveInput
from resources.calls.machine import MachineRef
from resources.names import (
    ROLLOUT_TAINT,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
)

MACHINE = MachineRef(cluster="demo", name="m-1", uid="u-1")
PROVIDER_ID = "aws:///eu-west-1/i-1"
PERSON: dict[str, str | None] = {"person: true": "true", "person: false": "false", "person: none": None}
OURS = ("mark", "unmark", "preserve", "end")
OPS = (*OURS, *PERSON)
DEPTH = 5


def node(**annotations: str) -> Object:
    metadata = {"name": "n-1", "resourceVersion": "7", "annotations": annotations}
    return {"metadata": metadata, "spec": {"providerID": PROVIDER_ID}}


def patch_of(found: Object, op: str) -> Object:
    if op in ("mark", "unmark"):
        return marks_patch(found, "p", on=op == "mark")
    wanted = PreserveInput(machine=MACHINE, node_name="n-1", provider_id=PROVIDER_ID, on=op == "preserve")
    return preserve_patch(found, wanted)


def patched(found: Object, patch: Object) -> Object:
    """The Node, patched as an API server merges."""
    annotations = found["metadata"]["annotations"] | (patch.get("metadata") or {}).get("annotations", {})
    kept = {k: v for k, v in annotations.items() if v is not None}
    spec = found["spec"] | patch.get("spec", {})
    return {"metadata": {**found["metadata"], "annotations": kept}, "spec": spec}


@dataclass(frozen=True)
class World:
    """A Node, and beside it what each party wants, in the plainest form."""

    node: Object = field(default_factory=node)
    wish: str | None = None
    """What the person wants."""
    marked: bool = False
    preserved: bool = False
    edited: bool = False
    """A person has changed the annotation since the machine looked at it last."""

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"]["annotations"]
        return found

    def possible(self, op: str) -> bool:
        """Everything except a person's `true` in place of ours: nobody could tell the two apart."""
        markers = {SCALE_DOWN_DISABLED_BY, SCALE_DOWN_DISABLED_BY_PRESERVATION}
        return op != "person: true" or not markers & self.annotations.keys()

    def after(self, op: str) -> World:
        if op in PERSON:
            value = PERSON[op]
            if self.annotations.get(SCALE_DOWN_DISABLED) == value:
                return self
            changed = patched(self.node, {"metadata": {"annotations": {SCALE_DOWN_DISABLED: value}}})
            return World(changed, value, self.marked, self.preserved, True)
        patch = patch_of(self.node, op)
        if patch:
            assert patch["metadata"]["resourceVersion"] == "7", "a change in between would be lost"
        changed = patched(self.node, patch)
        assert patch_of(changed, op) == {}, f"{op} is not done at once"
        marked, preserved = self.marked, self.preserved
        if op in ("mark", "unmark"):
            marked = op == "mark"
        else:
            preserved = op == "preserve"
        return World(changed, self.wish, marked, preserved, self.edited and op != "preserve")

    def check(self) -> None:
        shown = self.annotations.get(SCALE_DOWN_DISABLED)
        taints = [t["key"] for t in self.node["spec"].get("taints", ())]
        assert taints == [ROLLOUT_TAINT] * self.marked
        assert (SCALE_DOWN_DISABLED_BY_PRESERVATION in self.annotations) is self.preserved
        if not self.marked and not self.preserved:
            assert self.annotations == ({} if self.wish is None else {SCALE_DOWN_DISABLED: self.wish})
        elif self.preserved:
            assert shown == "true" or self.edited, "whatever a rollout did meanwhile"
        elif self.wish is not None:
            assert shown == self.wish, "a rollout takes a person at his word"


BEGINNINGS = [World(node(**({} if v is None else {SCALE_DOWN_DISABLED: v})), v) for v in (None, "true", "false")]


@pytest.mark.parametrize("begun", BEGINNINGS, ids=["nothing before", "true before", "false before"])
def test_every_order_of_a_few_steps_leaves_what_a_person_wants(begun: World) -> None:
    paths, ends = [(begun, 0)], 0
    while paths:
        world, depth = paths.pop()
        for op in OPS if depth < DEPTH else ():
            if world.possible(op):
                after = world.after(op)
                after.check()
                ends += not (after.marked or after.preserved)
                paths.append((after, depth + 1))
    assert ends > 1000


@given(st.sampled_from(BEGINNINGS), st.lists(st.sampled_from(OPS), min_size=DEPTH, max_size=40))
@settings(max_examples=200)
def test_so_does_every_long_order(world: World, ops: list[str]) -> None:
    for op in ops:
        if world.possible(op):
            world = world.after(op)
            world.check()
    world = world.after("end").after("unmark")
    world.check()


# -- by example -------------------------------------------------------------------------------------------------------


def run(begun: Object, *ops: str) -> dict[str, str]:
    for op in ops:
        begun = patched(begun, patch_of(begun, op))
    found: dict[str, str] = begun["metadata"]["annotations"]
    return found


TRUE = {SCALE_DOWN_DISABLED: "true"}
FALSE = {SCALE_DOWN_DISABLED: "false"}
BY_ROLLOUT = {SCALE_DOWN_DISABLED_BY: "p"}


def kept(words: str = "m-1") -> dict[str, str]:
    return {SCALE_DOWN_DISABLED_BY_PRESERVATION: words}


@pytest.mark.parametrize(
    ("before", "while_it_lasts"),
    [({}, "m-1"), (TRUE, "m-1=true"), (FALSE, "m-1=false"), ({SCALE_DOWN_DISABLED: "yes"}, "m-1=yes")],
    ids=["nothing", "true", "false", "what cluster-autoscaler does not know"],
)
def test_the_marker_remembers_what_a_person_had_set(before: dict[str, str], while_it_lasts: str) -> None:
    assert run(node(**before), "preserve") == TRUE | kept(while_it_lasts)
    assert run(node(**before), "preserve", "end") == before


def test_false_that_a_person_sets_meanwhile_is_set_to_true_and_counts_afterwards() -> None:
    """Seed 003, note 6."""
    changed = node(**FALSE, **kept())
    assert run(changed, "preserve") == TRUE | kept("m-1=false")
    assert run(changed, "preserve", "end") == run(changed, "end") == FALSE


def test_a_preservation_outlives_a_rollout_and_the_other_way() -> None:
    both = TRUE | BY_ROLLOUT | kept()
    assert run(node(), "mark", "preserve") == run(node(), "preserve", "mark") == both
    assert run(node(**both), "unmark") == TRUE | kept()
    assert run(node(**both), "end") == TRUE | BY_ROLLOUT
    assert run(node(**both), "end", "unmark") == run(node(**both), "unmark", "end") == {}


def test_a_rollout_protects_no_node_that_a_person_has_given_free() -> None:
    assert run(node(**FALSE), "preserve", "mark") == TRUE | kept("m-1=false")
    assert run(node(**FALSE), "preserve", "mark", "end") == FALSE


def test_who_takes_away_what_is_a_rollouts_is_not_overruled_by_it_after_a_preservation() -> None:
    assert run(node(**BY_ROLLOUT), "preserve") == TRUE | BY_ROLLOUT | kept("m-1=")
    assert run(node(**BY_ROLLOUT), "preserve", "end") == BY_ROLLOUT
    assert run(node(**BY_ROLLOUT), "preserve", "end", "unmark") == {}


def test_another_machines_marker_is_taken_over_and_never_taken_away() -> None:
    theirs = TRUE | kept("m-2=true")
    assert run(node(**theirs), "end") == theirs
    assert run(node(**theirs), "preserve") == TRUE | kept("m-1=true")
