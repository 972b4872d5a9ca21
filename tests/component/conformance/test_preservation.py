"""Preservation: machine-controller-manager's cases about the Node, and the one that it has no test for.
docs/conformance.md is the table; most of its cases are rows of tests/unit/test_preservation_rows.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from preservation.planner import ASKED, AUTO, FULL, NOBODY, F, R, U, machine, settle

from activities.cluster.preserve import preserve_patch
from planners.machine.preservation import AskPool, Preserve
from resources.calls.cluster import PreserveInput
from resources.calls.machine import MachineRef
from resources.machine.preservation import PreservedBy
from resources.names import (
    CORDON_ANNOTATION,
    PRESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
)
from simulator.kube.patches import merge

MACHINE = MachineRef(cluster="demo", name="m-1", uid="u-1")
NODE_UID = "n-u-1"
Object = dict[str, Any]


def node(says: dict[str, str] | None = None, cordoned: bool = False) -> Object:
    spec = {"unschedulable": True} if cordoned else {}
    return {
        "metadata": {"name": "n-1", "uid": NODE_UID, "resourceVersion": "1", "annotations": says or {}},
        "spec": spec,
    }


def written(found: Object, **more: Any) -> Object:
    """The Node after the activity has written it."""
    input = PreserveInput(machine=MACHINE, node_name="n-1", node_uid=NODE_UID, **more)
    after: Object = merge(found, preserve_patch(found, input))
    return after


def said(found: Object) -> dict[str, str]:
    return dict(found["metadata"]["annotations"])


def parts(whole: dict[str, str]) -> Iterator[dict[str, str]]:
    """What may be on the Node when not all of it was written."""
    for count in range(len(whole) + 1):
        yield from map(dict, combinations(whole.items(), count))


def test_k17_what_was_interrupted_is_completed() -> None:
    """Whatever part somebody has removed, the next write completes it, and the end leaves nothing of ours."""
    begun = said(written(node(), on=True))
    assert begun == {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY_PRESERVATION: "m-1"}
    for part in parts(begun):
        found = written(node(part), on=True)
        assert (said(found)[SCALE_DOWN_DISABLED], said(found).keys()) == ("true", begun.keys())
        assert said(written(found, on=True)) == said(found)
        theirs = {SCALE_DOWN_DISABLED: "true"}
        assert said(written(found, on=False)) == (theirs if part == theirs else {})
    over = written(node({**begun, PRESERVE_ANNOTATION: "now"}), on=False, clear="now")
    assert said(over) == {}
    assert said(written(over, on=False, clear="now")) == {}


@pytest.mark.parametrize(
    ("cordon", "stays"),
    [
        pytest.param({}, True, id="K18"),
        pytest.param({CORDON_ANNOTATION: "m-2"}, True, id="another machine's drain"),
        pytest.param({CORDON_ANNOTATION: "m-1"}, False, id="its own drain"),
    ],
)
def test_k18_a_persons_cordon_stays(cordon: dict[str, str], stays: bool) -> None:
    """It stays when the preservation begins, when the machine is well again, and when the preservation ends."""
    found = node(cordon, cordoned=True)
    for more in ({"on": True}, {"on": True, "uncordon": True}, {"on": False, "uncordon": True}, {"on": False}):
        found = written(found, **more)
        assert bool(found["spec"].get("unschedulable")) is (stays or more == {"on": True})


@pytest.mark.parametrize("value", ["true", "false"])
def test_k20_scale_down_disabled_that_a_person_has_set_stays(value: str) -> None:
    """It has no marker of ours, or one that remembers the person; ours goes."""
    theirs = node({SCALE_DOWN_DISABLED: value})
    assert said(written(theirs, on=False)) == {SCALE_DOWN_DISABLED: value}
    during = written(theirs, on=True)
    assert said(during)[SCALE_DOWN_DISABLED] == "true"
    assert said(written(during, on=False)) == {SCALE_DOWN_DISABLED: value}
    assert said(written(written(node(), on=True), on=False)) == {}


MOMENTS = ("Running", "Unknown", "Failed", "drained", "asked its pool")


@pytest.mark.parametrize("value", ["now", "when-failed"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("grant", [NOBODY, AUTO], ids=["its pool has none", "a slot is on its way"])
def test_preservation_set_in_the_same_instant_as_failure(value: str, moment: str, grant: PreservedBy) -> None:
    """Whichever comes first by a moment, the machine is wanted, its pool is told so, and it is kept."""
    o = machine(R)
    steps: tuple[dict[str, Any], ...] = (
        {"phase": R},
        {"phase": U},
        {"phase": F},
        {"drained": True},
        {"granted": grant},
    )
    for name, step in zip(MOMENTS, steps, strict=True):
        before: dict[str, Any] = {"node_value": value} if name == moment else {}
        o, made = settle(replace(o, **step, **before))
    if o.expiry is None:
        assert isinstance(made[-1], AskPool)
        assert value in made[-1].message, "it says that it is asked for"
        o, made = settle(replace(o, granted=ASKED))
    kept = [m for m in made if isinstance(m, Preserve)]
    assert (o.phase, o.expiry, o.source) == (F, FULL, ASKED)
    assert all(m.source is ASKED for m in kept)
