"""The pods of a drain: machine-controller-manager's cases R1 to R11 (pkg/util/provider/drain/drain_test.go).

docs/conformance.md is the table.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from apiserver.simulated import PODS
from machine.drains import CLAIMS, VOLUMES, Drain

from activities.drain.budgets import misconfigured
from resources.calls.drain import DrainOutput

OTHER = "n-2"
IN_USE: dict[str, Any] = {
    "metadata": {"name": "web", "generation": 2},
    "status": {"observedGeneration": 2, "expectedPods": 3, "currentHealthy": 3, "disruptionsAllowed": 0},
}
OTHERWISE: dict[str, dict[str, Any]] = {
    "not seen by its controller": {"observedGeneration": 1},
    "no pods": {"expectedPods": 0, "currentHealthy": 0},
    "a sick pod": {"currentHealthy": 2},
    "an eviction under way": {"disruptedPods": {"web-1": "2031-01-01T00:00:00Z"}},
    "one allowed": {"disruptionsAllowed": 1},
}


async def test_r01_ten_pods_are_evicted_and_seen_gone(drain: Drain) -> None:
    names = [f"web-{n}" for n in range(10)]
    for name in names:
        await drain.pod(name)
    await drain.waits()
    assert sorted(drain.evicted()) == names
    for name in names:
        await drain.stopped(name)
    assert await drain.once() == DrainOutput(pods=10)
    assert len(drain.evicted()) == 10


async def with_volumes(drain: Drain, *names: str) -> None:
    for name in names:
        await drain.claim(name)
        await drain.attach(name)
        await drain.stateful(f"db-{name}", name)


async def test_r03_two_pods_with_a_volume_each_go_one_after_the_other(drain: Drain) -> None:
    await with_volumes(drain, "a", "b")
    await drain.waits()
    await drain.stopped("db-a")
    for _ in range(3):
        await drain.waits()
        assert drain.evicted() == ["db-a"]  # while its volume is here
        drain.later(30)
    await drain.detach("a")
    await drain.attach("a", node=OTHER)
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b"]


async def test_r04_its_volume_is_waited_for_on_another_node(drain: Drain) -> None:
    bound = {"reattach_timeout": timedelta(seconds=30)}
    await with_volumes(drain, "a", "b")
    await drain.waits(**bound)
    await drain.stopped("db-a")
    await drain.detach("a")
    assert "pv-a of default/db-a to attach to another node" in await drain.waits(**bound)
    drain.later(20)
    await drain.waits(**bound)
    assert drain.evicted() == ["db-a"]
    drain.later(20)
    await drain.waits(**bound)
    assert drain.evicted() == ["db-a", "db-b"]


async def test_r05_a_volume_that_two_pods_share_is_not_waited_for(drain: Drain) -> None:
    """The end of the first one does not detach it."""
    await drain.claim("both")
    await drain.attach("both")
    await drain.stateful("db-1", "both")
    await drain.stateful("db-2", "both")
    await with_volumes(drain, "z")
    for name, then in (("db-1", "db-2"), ("db-2", "db-z")):
        await drain.waits()
        assert drain.evicted()[-1] == name
        await drain.stopped(name)
        await drain.waits()
        assert drain.evicted()[-1] == then
    assert await drain.attached() == {"pv-both", "pv-z"}


async def test_r06_of_two_volumes_only_its_own_is_waited_for(drain: Drain) -> None:
    for name in ("both", "own"):
        await drain.claim(name)
        await drain.attach(name)
    await drain.stateful("db-1", "both", "own")
    await drain.stateful("db-2", "both")
    await drain.waits()
    assert drain.evicted() == ["db-1"]
    await drain.stopped("db-1")
    assert "waiting for volume pv-own of default/db-1 to detach" in await drain.waits()
    await drain.detach("own")
    await drain.attach("own", node=OTHER)
    await drain.waits()
    assert drain.evicted() == ["db-1", "db-2"]


async def test_r07_both_kinds_go_at_the_same_time(drain: Drain) -> None:
    names = [f"web-{n}" for n in range(10)]
    for name in names:
        await drain.pod(name)
    await with_volumes(drain, "a", "b")
    await drain.waits()
    assert sorted(drain.evicted()) == ["db-a", *names]
    await drain.stopped("db-a")
    await drain.detach("a")
    await drain.attach("a", node=OTHER)
    going = r"(; default/web-\d is terminating, grace until [\d:]+ UTC){3}; 7 more terminating"
    assert re.fullmatch(f"1 of 12 pods gone{going}, force at 14:05 UTC", await drain.waits())
    assert sorted(drain.evicted()) == ["db-a", "db-b", *names]


async def test_r08_by_force_all_at_once_also_when_evictions_are_refused(drain: Drain) -> None:
    await with_volumes(drain, "a", "b")
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    await drain.waits(force=True)
    assert await drain.names() == set()
    assert (await drain.once(force=True)).pods == 3


async def test_r09_a_long_grace_period_ends_with_the_drains_deadline(drain: Drain) -> None:
    """At that deadline the workflow asks for force."""
    await drain.pod("slow", grace=7200)
    await drain.waits()
    for _ in range(3):
        drain.later(1800)
        assert (await drain.waits()).startswith("0 of 1 pods gone")
    assert drain.calls("delete pods") == []
    await drain.waits(force=True)
    assert (await drain.once(force=True)).pods == 1


async def test_r09_what_outlasts_its_grace_period_has_two_minutes_more(drain: Drain) -> None:
    await drain.pod("held", grace=60, finalizers=["example.com/hold"])
    await drain.waits()
    drain.later(170)
    await drain.waits()
    drain.later(20)
    assert (await drain.once()).left == ["default/held: still terminating after its grace period"]
    await drain.kube.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("otherwise", [None, *OTHERWISE])
def test_r10_when_a_budget_is_misconfigured(otherwise: str | None) -> None:
    status = {**IN_USE["status"], **(OTHERWISE[otherwise] if otherwise else {})}
    assert misconfigured({**IN_USE, "status": status}) == (otherwise is None)


async def test_r11_volumes_that_are_missing_or_never_attached_are_not_waited_for(drain: Drain) -> None:
    """One pod has all of these: it is gone, and the next one goes."""
    await drain.claim("no-volume")
    await drain.kube.patch(f"{VOLUMES}/pv-no-volume", {"metadata": {"finalizers": None}})
    await drain.kube.delete(f"{VOLUMES}/pv-no-volume")
    await drain.claim("nfs", {"nfs": {"server": "nfs.example.com", "path": "/"}})
    await drain.claim("detached")
    unbound = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await drain.kube.create(CLAIMS, {"metadata": {"name": "unbound"}, "spec": unbound})
    await drain.stateful("db-a", "no-claim", "no-volume", "nfs", "detached", "unbound")
    await with_volumes(drain, "b")
    await drain.waits()
    assert drain.evicted() == ["db-a"]
    assert (await drain.kube.get(f"{PODS}/db-a"))["metadata"]["deletionTimestamp"]
    await drain.stopped("db-a")
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05 UTC"
    assert drain.evicted() == ["db-a", "db-b"]
