"""The three-way merge of a node template (MCM, syncNodeTemplates; field case P39)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.cluster.merge import merge_map, merge_request, merge_taints, template_patch
from resources.machine.manifest import NodeTemplate, Taint
from resources.names import PRESERVE_ANNOTATION


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


# there, given before, in the template -> what should stand there
REQUESTS: dict[str, tuple[str | None, str | None, str | None, str | None]] = {
    "a first request": (None, None, "now", "now"),
    "a person was there first": ("false", None, "now", "false"),
    "it has been fulfilled or withdrawn, and something else was edited": (None, "now", "now", None),
    "a person has answered, and something else was edited": ("false", "now", "now", "false"),
    "it stands": ("now", "now", "now", "now"),
    "another request": ("now", "now", "when-failed", "when-failed"),
    "another request after the first is over": (None, "now", "when-failed", "when-failed"),
    "another request, but a person has answered": ("false", "now", "when-failed", "false"),
    "it is taken out of the template": ("now", "now", None, None),
    "it is taken out, and a person has answered": ("false", "now", None, "false"),
    "the template has nothing to say": ("when-failed", None, None, "when-failed"),
}


@pytest.mark.parametrize(("live", "given", "wanted", "result"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_to_preserve_is_made_once(
    live: str | None, given: str | None, wanted: str | None, result: str | None
) -> None:
    assert merge_request(live, given, wanted) == result

    def template(value: str | None) -> NodeTemplate:
        annotations = {"own": "1"} if value is None else {"own": "1", PRESERVE_ANNOTATION: value}
        return NodeTemplate.model_validate({"metadata": {"annotations": annotations}})

    node = {"metadata": {"annotations": {} if live is None else {PRESERVE_ANNOTATION: live}}}
    changed: dict[str, Any] = {"own": "1"}
    if result != live:
        changed[PRESERVE_ANNOTATION] = result
    expected = {"metadata": {"annotations": changed}}
    assert template_patch(node, template(given), template(wanted)) == expected
    # A new Node object: what was asked of the former one has been asked.
    assert template_patch(node, None, template(wanted), given or "") == expected


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
