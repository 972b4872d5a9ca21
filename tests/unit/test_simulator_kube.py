"""The parts of the simulated API server that need no server: patches, selectors, schemas, history, columns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kube import patches, schema, tables
from simulator.kube.codec import decode
from simulator.kube.errors import ApiError, FieldErrors
from simulator.kube.jsonpath import JsonPathError, compile_path
from simulator.kube.objects import Obj
from simulator.kube.requests import parse
from simulator.kube.resources import LEASES, NODES, PODS
from simulator.kube.selectors import Selector, matches_label_selector, parse_labels
from simulator.kube.selectors import parse as parse_selector
from simulator.kube.store import Store

JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


# -- patches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_table_of_rfc_7386(target: Obj, patch: Obj, result: Obj) -> None:
    assert patches.merge(target, patch) == result


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_once_and_leaves_its_target_alone(target: Obj, patch: Obj) -> None:
    before = repr(target)
    once = patches.merge(target, patch)
    assert patches.merge(once, patch) == once
    assert repr(target) == before


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ([{"name": "a", "v": 1}], [{"name": "a", "v": 2}], [{"name": "a", "v": 2}]),
        ([{"name": "a", "v": 1}], [{"name": "b"}], [{"name": "a", "v": 1}, {"name": "b"}]),
        ([{"name": "a"}, {"name": "b"}], [{"$patch": "delete", "name": "a"}], [{"name": "b"}]),
        ([{"name": "a"}], [{"$patch": "replace"}, {"name": "c"}], [{"name": "c"}]),
    ],
)
def test_strategic_merge_of_a_keyed_list(target: list[Any], patch: list[Any], result: list[Any]) -> None:
    assert patches.strategic_merge({"containers": target}, {"containers": patch}) == {"containers": result}


def test_strategic_merge_knows_its_directives() -> None:
    merge = patches.strategic_merge
    assert merge({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}) == {"finalizers": ["a", "b"]}
    assert merge({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {"finalizers": ["b"]}
    assert merge({"a": 1, "b": 2}, {"$retainKeys": ["b"], "c": 3}) == {"b": 2, "c": 3}
    assert merge({"m": {"a": 1}}, {"m": {"$patch": "replace", "b": 2}}) == {"m": {"b": 2}}
    ordered = {"env": [{"name": "b"}], "$setElementOrder/env": [{"name": "b"}, {"name": "a"}]}
    assert merge({"env": [{"name": "a"}]}, ordered) == {"env": [{"name": "b"}, {"name": "a"}]}
    assert merge({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}) == {"taints": [{"key": "b"}]}
    with pytest.raises(ApiError, match="merge key"):
        merge({}, {"containers": [{"image": "i"}]})


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/l/0", "value": 0}, {"l": [0, 1, 2], "m": {"a/b": 1}}),
        ({"op": "add", "path": "/l/-", "value": 3}, {"l": [1, 2, 3], "m": {"a/b": 1}}),
        ({"op": "replace", "path": "/m/a~1b", "value": 9}, {"l": [1, 2], "m": {"a/b": 9}}),
        ({"op": "remove", "path": "/l/0"}, {"l": [2], "m": {"a/b": 1}}),
        ({"op": "move", "from": "/l", "path": "/k"}, {"k": [1, 2], "m": {"a/b": 1}}),
        ({"op": "copy", "from": "/l/1", "path": "/c"}, {"l": [1, 2], "m": {"a/b": 1}, "c": 2}),
        ({"op": "test", "path": "/l/1", "value": 2}, {"l": [1, 2], "m": {"a/b": 1}}),
    ],
)
def test_json_patch_operations(operation: Obj, result: Obj) -> None:
    target = {"l": [1, 2], "m": {"a/b": 1}}
    assert patches.json_patch(target, [operation]) == result
    assert target == {"l": [1, 2], "m": {"a/b": 1}}


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "test", "path": "/l/1", "value": 3}, 422),
        ({"op": "replace", "path": "/nope", "value": 3}, 422),
        ({"op": "remove", "path": "/nope"}, 422),
        ({"op": "add", "path": "/l/7", "value": 3}, 422),
        ({"op": "nonsense", "path": "/l"}, 400),
        ({"op": "add", "path": "l", "value": 3}, 400),
    ],
)
def test_json_patch_refusals(operation: Obj, status: int) -> None:
    with pytest.raises(ApiError) as refused:
        patches.json_patch({"l": [1, 2]}, [operation])
    assert refused.value.status == status


# -- selectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a b", "=b", "a in b", "a in (b", "a=(b", ",", "a,", "a>b", "a==b==c"])
def test_what_is_no_label_selector_is_400(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(text)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("text", "labels", "chosen"),
    [
        ("", {}, True),
        ("a in (b, c),d", {"a": "c", "d": ""}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b)", {}, True),
        ("a!=b", {}, True),
        ("a=", {"a": ""}, True),
        ("n>2", {"n": "3"}, True),
        ("n<2", {"n": "x"}, False),
        ("example.com/a", {"example.com/a": "1"}, True),
        ("! a", {"a": "1"}, False),
    ],
)
def test_label_selector_strings(text: str, labels: dict[str, str], chosen: bool) -> None:
    assert all(holds(labels) for holds in parse_labels(text)) is chosen


def test_label_selector_objects() -> None:
    labels = {"a": "1"}
    assert not matches_label_selector(None, labels)
    assert matches_label_selector({}, labels)
    for operator, values, chosen in (
        ("In", ["1"], True),
        ("NotIn", ["1"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ):
        expression = {"key": "a", "operator": operator, "values": values}
        assert matches_label_selector({"matchExpressions": [expression]}, labels) is chosen


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "query", "operation", "namespace", "name"),
    [
        ("GET", "/api/v1/nodes", {}, "list nodes", "", ""),
        ("GET", "/api/v1/nodes", {"watch": "true"}, "watch nodes", "", ""),
        ("GET", "/api/v1/nodes/n", {}, "get nodes", "", "n"),
        ("PATCH", "/api/v1/nodes/n/status", {}, "patch nodes/status", "", "n"),
        ("POST", "/api/v1/namespaces/d/pods/p/eviction", {}, "create pods/eviction", "d", "p"),
        ("DELETE", "/api/v1/namespaces/d/pods", {}, "deletecollection pods", "d", ""),
        ("GET", "/api/v1/namespaces/d", {}, "get namespaces", "", "d"),
        ("PUT", "/api/v1/namespaces/d/status", {}, "update namespaces/status", "", "d"),
        ("GET", "/apis/apps/v1/deployments", {}, "list deployments", "", ""),
        ("GET", "/apis/apps/v1", {}, "get /apis/apps/v1", "", ""),
    ],
)
def test_requests_are_named_as_kubernetes_does(
    method: str, path: str, query: dict[str, str], operation: str, namespace: str, name: str
) -> None:
    info = parse(method, path, query)
    assert (info.operation, info.namespace, info.name) == (operation, namespace, name)


# -- schemas -----------------------------------------------------------------------------------------------------------


def problems(value: Any, of: Obj) -> str:
    errors = FieldErrors()
    schema.validate(value, of, "f", errors)
    try:
        errors.check(NODES, "n")
    except ApiError as e:
        return e.message
    return ""


@pytest.mark.parametrize(
    ("of", "good", "bad"),
    [
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 2, 3),
        ({"type": "number", "multipleOf": 2}, 4, 3),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "ab", "a"),
        ({"type": "string", "pattern": "^a"}, "ab", "b"),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", "today"),
        ({"type": "string", "nullable": True}, None, 1),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a"], ["a", "b"]),
        ({"type": "array", "items": {"type": "string"}}, ["a"], [1]),
        ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "b"], ["a", "a"]),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
            [{"k": 1}, {"k": 2}],
            [{"k": 1, "v": 1}, {"k": 1, "v": 2}],
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "1"}),
        ({"type": "object", "minProperties": 1}, {"a": 1}, {}),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, 4),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, True),
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, 4, 2),
        ({"not": {"enum": ["x"]}}, "y", "x"),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, "10%", 1.5),
        ({"type": "boolean"}, True, 1),
        ({"type": "integer"}, 1, True),
    ],
)
def test_schema_keywords(of: Obj, good: Any, bad: Any) -> None:
    assert problems(good, of) == ""
    assert problems(bad, of)


def test_pruning_keeps_what_the_schema_names_or_preserves() -> None:
    of = {
        "properties": {
            "a": {"type": "object", "properties": {"b": {}}},
            "free": {"x-kubernetes-preserve-unknown-fields": True},
            "list": {"items": {"properties": {"k": {}}}},
            "map": {"additionalProperties": {"properties": {"k": {}}}},
        }
    }
    value = {
        "a": {"b": 1, "c": 2},
        "free": {"x": 1},
        "list": [{"k": 1, "z": 2}],
        "map": {"any": {"k": 1, "z": 2}},
        "gone": 1,
    }
    assert sorted(schema.prune(value, of)) == ["a.c", "gone", "list[0].z", "map.any.z"]
    assert value == {"a": {"b": 1}, "free": {"x": 1}, "list": [{"k": 1}], "map": {"any": {"k": 1}}}


def test_defaults_reach_into_lists_and_replace_a_null() -> None:
    of = {
        "properties": {
            "a": {"default": {"x": 1}},
            "l": {"items": {"properties": {"d": {"default": 5}}}},
            "n": {"default": 1, "nullable": True},
        }
    }
    value: Obj = {"a": None, "l": [{}, {"d": 6}], "n": None}
    schema.apply_defaults(value, of)
    assert value == {"a": {"x": 1}, "l": [{"d": 5}, {"d": 6}], "n": None}


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (-5, "<invalid>"),
    ],
)
def test_ages_are_shown_as_kubectl_does(seconds: int, shown: str) -> None:
    assert tables.human_duration(seconds) == shown


def test_json_paths_find_fields_indexes_and_filtered_entries() -> None:
    obj = {
        "spec": {"replicas": 3, "list": [1, 2]},
        "metadata": {"annotations": {"example.com/a": "x"}},
        "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    for path, found in (
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        (".spec.list[1]", [2]),
        (".spec.list[*]", [1, 2]),
        (".spec.list[7]", []),
        (r".metadata.annotations.example\.com/a", ["x"]),
        (".metadata.annotations['example.com/a']", ["x"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".nope.nope", []),
    ):
        assert compile_path(path)([obj]) == found, path
    for path in ("..spec", ".spec[1:2]", "", ".spec[?(@.a>1)]"):
        with pytest.raises(JsonPathError):
            compile_path(path)


# -- codec and store ---------------------------------------------------------------------------------------------------


def test_times_and_empty_fields_are_kept_as_go_would() -> None:
    node = {
        "metadata": {"name": "n", "labels": {"startTime": "a label, no time"}, "finalizers": []},
        "spec": {"taints": [{"key": "a", "timeAdded": "2026-01-01T02:00:00.5+02:00"}], "unschedulable": False},
        "status": None,
    }
    assert decode(NODES, node) == {
        "metadata": {"name": "n", "labels": {"startTime": "a label, no time"}},
        "spec": {"taints": [{"key": "a", "timeAdded": "2026-01-01T00:00:00Z"}]},
    }
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T02:00:00.000001+02:00"}}
    assert decode(LEASES, lease)["spec"]["renewTime"] == "2026-01-01T00:00:00.000001Z"
    with pytest.raises(ApiError, match="cannot be handled as a Node"):
        decode(NODES, {"metadata": {"creationTimestamp": "yesterday"}})


def pod(name: str, node: str = "", **labels: str) -> Obj:
    return {"metadata": {"name": name, "namespace": "d", "labels": labels}, "spec": {"nodeName": node}}


async def test_a_write_reaches_only_the_watchers_it_concerns() -> None:
    collection = (store := Store(history=100))[PODS]
    selectors = {n: parse_selector(PODS, fields=f"spec.nodeName={n}") for n in ("n1", "n2")}
    mine, other = (collection.subscribe(s, store.version) for s in selectors.values())
    everything = collection.subscribe(Selector(), store.version)
    store.put(PODS, pod("p", "n1"))
    assert [len(s.queue) for s in (mine, other, everything)] == [1, 0, 1]
    store.put(PODS, pod("p", "n2"))
    assert [[kind for kind, _ in s.queue] for s in (mine, other)] == [["ADDED", "DELETED"], ["ADDED"]]
    for subscription in (mine, other, everything):
        collection.unsubscribe(subscription)
    assert collection.subscriptions() == []


async def test_history_is_bounded_and_its_floor_is_known() -> None:
    collection = (store := Store(history=3))[PODS]
    start = store.version
    for i in range(5):
        store.put(PODS, pod(f"p{i}"))
    assert collection.floor == start + 2
    told = collection.subscribe(Selector(), collection.floor)
    assert [item.name for _, item in told.queue] == ["p2", "p3", "p4"]


async def test_a_watcher_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.kube.store.QUEUE_LIMIT", 2)
    collection = (store := Store(history=100))[PODS]
    slow = collection.subscribe(Selector(), store.version)
    for i in range(2):
        store.put(PODS, pod(f"p{i}"))
    assert not slow.ended
    store.put(PODS, pod("p3"))
    assert slow.ended
    async with asyncio.timeout(5):
        await slow.wait(60)
