"""The simulated controllers' rules and caches, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from simulator.client import KubeClient, Obj, WatchEvent
from simulator.controllers import disruption
from simulator.controllers.informer import Informer
from simulator.controllers.objects import matches
from simulator.controllers.scheduling import Room, quantity, requested, selects_node, tolerates, untolerated


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "other"}, False),
        ({"key": "k"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "v"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Obj, tolerated: bool) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert tolerates(toleration, taint) is tolerated
    assert (untolerated([taint], [toleration], "NoSchedule", "NoExecute") is None) is tolerated
    assert untolerated([taint], [], "NoExecute") is None


def test_node_selection() -> None:
    node = {"metadata": {"name": "n", "labels": {"zone": "a", "size": "3"}}}

    def required(*terms: Obj) -> Obj:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return {"affinity": {"nodeAffinity": rule}}

    def term(key: str, operator: str, *values: str) -> Obj:
        return {"key": key, "operator": operator, "values": list(values)}

    in_a, in_b = term("zone", "In", "a"), term("zone", "In", "b")
    assert selects_node({"nodeSelector": {"zone": "a"}}, node)
    assert not selects_node({"nodeSelector": {"zone": "b"}}, node)
    assert selects_node(required({"matchExpressions": [in_b]}, {"matchExpressions": [in_a]}), node)
    assert not selects_node(required({"matchExpressions": [in_a, in_b]}), node)
    assert selects_node(required({"matchExpressions": [term("size", "Gt", "2"), term("size", "Lt", "4")]}), node)
    assert not selects_node(required({"matchExpressions": [term("zone", "Gt", "2")]}), node)
    assert selects_node(required({"matchFields": [term("metadata.name", "In", "n")]}), node)
    assert not selects_node(required({}), node)  # an empty term selects nothing


def test_label_selectors() -> None:
    labels = {"a": "1"}
    assert matches({}, labels)
    assert not matches(None, labels)
    assert matches({"matchLabels": {"a": "1"}}, labels)
    assert not matches({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, labels)
    assert matches({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, labels)


@pytest.mark.parametrize(
    ("text", "value"), [("250m", 0.25), ("2", 2.0), (4, 4.0), ("1Ki", 1024.0), ("1.5Gi", 1.5 * 2**30), ("1e3", 1e3)]
)
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == value
    with pytest.raises(ValueError, match="not a resource quantity"):
        quantity(f"{text}x")


def test_room() -> None:
    asked = requested(
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}] * 3}, "metadata": {}}
    )
    assert Room(0.3, 3 * 2**30, 1).lacking(asked) is None
    assert Room(0.2, 3 * 2**30, 1).lacking(asked) == "Insufficient cpu"
    assert Room(0.3, 2 * 2**30, 1).lacking(asked) == "Insufficient memory"
    assert Room(1, 2**40, 0).lacking(asked) == "Too many pods"


@pytest.mark.parametrize(("value", "total", "scaled"), [(2, 10, 2), ("50%", 5, 3), ("0%", 5, 0), ("100%", 3, 3)])
def test_percentages_are_rounded_up(value: int | str, total: int, scaled: int) -> None:
    assert disruption._scaled(value, total) == scaled


class ScriptedClient(KubeClient):
    """Answers one list, then plays watch events as they are put in."""

    def __init__(self, listed: Obj) -> None:
        self.listed = listed
        self.events: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def list(self, resource: str, namespace: str | None = None, **params: str) -> Obj:
        return self.listed

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
        while True:
            yield await self.events.get()


async def test_a_cache_knows_its_own_writes_before_the_watch_tells_them() -> None:
    def obj(name: str, version: int) -> Obj:
        return {"metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": str(version)}}

    client = ScriptedClient({"metadata": {"resourceVersion": "10"}, "items": [obj("old", 5)]})
    cache = Informer(client, "pods")
    changed = asyncio.Event()
    cache.listen(changed)

    async def told(type_: str, event: Obj) -> set[tuple[str, str]]:
        changed.clear()
        client.events.put_nowait(WatchEvent(type_, event))
        await asyncio.wait_for(changed.wait(), 10)
        return known()

    def known() -> set[tuple[str, str]]:
        return {(o["metadata"]["name"], o["metadata"]["resourceVersion"]) for o in cache}

    cache.remember(obj("early", 11))  # the list that is under way was taken before this write
    running = asyncio.create_task(cache.run())
    try:
        await asyncio.wait_for(cache.synced.wait(), 10)
        assert known() == {("old", "5"), ("early", "11")}
        cache.remember(obj("old", 13))
        assert await told("MODIFIED", obj("old", 12)) == {("old", "13"), ("early", "11")}  # older than our own write
        assert await told("DELETED", obj("early", 14)) == {("old", "13")}
        cache.remember(obj("early", 11))  # an answer that comes after the news of the object's end
        assert known() == {("old", "13")}
        cache.forget(obj("old", 13))
        assert known() == set()
    finally:
        running.cancel()
