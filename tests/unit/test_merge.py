"""The three-way merge of a node template (MCM, syncNodeTemplates; field case P39)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.cluster.merge import merge_map, merge_taints, template_patch
from resources.machine.manifest import NodeTemplate, Taint


@pytest.mark.parametrize(
    ("live", "last", "wanted", "patch"),
    [
        pytest.param({}, {}, {"a": "1"}, {"a": "1"}, id="added"),
        pytest.param({"a": "1"}, {"a": "1"}, {"a": "1"}, {}, id="there: nothing"),
        pytest.param({"a": "9"}, {"a": "1"}, {"a": "1"}, {"a": "1"}, id="a manual edit of our key is reverted"),
        pytest.param({"a": "1"}, {"a": "1"}, {}, {"a": None}, id="no longer wanted: removed"),
        pytest.param({}, {"a": "1"}, {}, {}, id="removed by somebody already: nothing"),
        pytest.param({"x": "user"}, {}, {}, {}, id="a node-only key is never touched"),
        pytest.param({"x": "user"}, {"a": "1"}, {"b": "2"}, {"b": "2"}, id="nor by other changes"),
    ],
)
def test_merge_map(live: dict[str, str], last: dict[str, str], wanted: dict[str, str], patch: dict[str, Any]) -> None:
    assert merge_map(live, last, wanted) == patch


def taint(key: str, value: str | None = None, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"key": key, "effect": effect, **({"value": value} if value is not None else {})}


def model(key: str, value: str | None = None, effect: str = "NoSchedule") -> Taint:
    return Taint.model_validate(taint(key, value, effect))


@pytest.mark.parametrize(
    ("live", "last", "wanted", "result"),
    [
        pytest.param([], [], [model("a")], [taint("a")], id="added"),
        pytest.param([taint("a")], [model("a")], [model("a")], None, id="there: nothing"),
        pytest.param([], [model("a")], [model("a")], None, id="P39: removed by another actor, never added again"),
        pytest.param([taint("a")], [model("a")], [], [], id="no longer wanted: removed"),
        pytest.param([taint("a", "1")], [model("a", "1")], [model("a", "2")], [taint("a", "2")], id="another value"),
        pytest.param([taint("user")], [], [], None, id="a foreign taint stays"),
        pytest.param(
            [taint("user"), taint("a")], [model("a")], [model("b")], [taint("user"), taint("b")], id="beside others"
        ),
        pytest.param(
            [taint("a", effect="NoExecute")],
            [],
            [model("a")],
            [taint("a", effect="NoExecute"), taint("a")],
            id="identity is key and effect",
        ),
    ],
)
def test_merge_taints(
    live: list[dict[str, Any]], last: list[Taint], wanted: list[Taint], result: list[dict[str, Any]] | None
) -> None:
    assert merge_taints(live, last, wanted) == result


def test_only_a_patch_with_taints_carries_the_resource_version() -> None:
    """The list of taints is atomic: without it another actor's change in between would be undone."""
    node = {"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": [taint("user")]}}
    labels = NodeTemplate.model_validate({"metadata": {"labels": {"a": "1"}}})
    assert template_patch(node, None, labels) == {"metadata": {"labels": {"a": "1"}}}
    taints = NodeTemplate.model_validate({"spec": {"taints": [taint("a")]}})
    patch = template_patch(node, None, taints)
    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [taint("user"), taint("a")]}}
    assert template_patch(node, None, NodeTemplate()) == {}


keys = st.sampled_from("abcd")
maps = st.dictionaries(keys, st.sampled_from("12"), max_size=4)


@given(maps, maps, maps)
def test_merging_twice_changes_nothing(live: dict[str, str], last: dict[str, str], wanted: dict[str, str]) -> None:
    patched = dict(live)
    for key, value in merge_map(live, last, wanted).items():
        if value is None:
            del patched[key]
        else:
            patched[key] = value
    assert wanted.items() <= patched.items()
    assert {k: v for k, v in live.items() if k not in last and k not in wanted}.items() <= patched.items()
    assert merge_map(patched, wanted, wanted) == {}
