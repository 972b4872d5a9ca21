"""A control plane in numbers and by index: what each index waits for, in a few words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from planners.control_plane.summary import awaited, summarize
from planners.control_plane.view import Host, Observed
from resources.control_plane.spec import ControlPlaneSpec, State, UpdateStrategy
from resources.control_plane.state import ControlPlaneState, SetCondition
from resources.fleet.member import Member
from resources.fleet.revision import Pace
from resources.fleet.state import FleetWait
from resources.machine.placement import Placement
from resources.machine.state import Phase
from workflows.control_plane.details import details

NOW = datetime(2026, 3, 1, 3, tzinfo=UTC)


def old(**more: Any) -> Host:
    return Host("old-0", 0, NOW - timedelta(days=9), **more)


def new(**more: Any) -> Host:
    return Host("new-0", 0, NOW, **more)


def observed(*hosts: Host, **more: Any) -> Observed:
    others = [Host(f"other-{i}", i, NOW) for i in (1, 2)]
    return Observed(**{"replicas": 3, "strategy": UpdateStrategy.ROLLING_UPDATE, "hosts": (*hosts, *others), **more})


OUTDATED = {"outdated": "instanceType"}
LEAVING = {"leaving": True, "held": True}
COMING: dict[str, Any] = {"ready": False, "joined": False}
ON_DELETE = {"strategy": UpdateStrategy.ON_DELETE}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (observed(new()), ""),
        (observed(old(**OUTDATED)), "its turn to get a replacement"),
        (observed(old(**OUTDATED), new(**COMING)), "new-0 to become ready"),
        (
            observed(old(**OUTDATED), new(**COMING, failure="no such image")),
            "new-0, which cannot become ready: no such image",
        ),
        (observed(old(**OUTDATED), new()), "its turn to lose the machine that is no longer needed"),
        (observed(old(**LEAVING)), "its turn to get a replacement"),
        (observed(old(**LEAVING), new(**COMING)), "new-0 to become ready"),
        (observed(old(**LEAVING), new()), "its turn: old-0 is held until then"),
        (observed(old(leaving=True), new()), "old-0 to be drained and gone"),
        (observed(), "its turn to get a machine"),
        (observed(old(ready=False)), "old-0 to become ready again"),
        (observed(old(ready=False, asks=True)), "its turn: old-0 is unhealthy, and is replaced"),
        (observed(old(**OUTDATED), **ON_DELETE), "a person: hostler delete machine old-0"),
        (observed(old(**OUTDATED), **ON_DELETE, unmanaged=("x",)), "a person: UnmanagedNodes"),
        (observed(old(**OUTDATED), state=State.INACTIVE), "a person: the control plane is Inactive"),
        (observed(old(**OUTDATED), paused="alice paused it"), "a person: it is paused"),
        (observed(old(**OUTDATED), unseen="the API is away"), "an answer: its machines cannot be seen"),
    ],
)
def test_what_an_index_waits_for(seen: Observed, words: str) -> None:
    assert awaited(seen, 0) == words


def state(**more: Any) -> ControlPlaneState:
    spec = ControlPlaneSpec.model_validate({"template": {"spec": {"class": {"name": "c1"}}}})
    return ControlPlaneState(**{"name": "cluster", "cluster": "prod", "spec": spec, **more})


def test_numbers_and_indexes() -> None:
    """A machine that is Running and not ready is said so; conditions have the times that the state keeps."""
    place = Placement(index=0, failure_domain="eu-west-1a")
    members = {
        host.name: Member(1, host.created, NOW, phase=Phase.RUNNING, placement=place) for host in observed(old()).hosts
    }
    since = NOW - timedelta(minutes=4)
    known = [
        SetCondition(type=t, status=t == "Progressing", reason="r", since=since) for t in ("Degraded", "Progressing")
    ]
    seen = observed(old(**OUTDATED, ready=False), domains={0: "eu-west-1b"})
    found = summarize(state(members=members, conditions=known), seen)
    assert (found.machines, found.ready, found.updated, found.unavailable) == (3, 2, 2, 1)
    assert (found.quorum, found.serving, found.rolled_out, found.all_available) == (2, 2, False, False)
    first = found.indexes[0]
    assert (first.index, first.failure_domain, first.done) == (0, "eu-west-1b", False)
    (host,) = first.hosts
    assert (host.name, host.ready, host.outdated, host.failure_domain) == ("old-0", False, "instanceType", "eu-west-1a")
    assert [i.done for i in found.indexes] == [False, True, True]
    told = {c.type: (c.status, c.reason, c.since) for c in found.conditions}
    assert told == {
        "Available": (False, "UnavailableReplicas", None),
        "Degraded": (False, "AsExpected", since),
        "Progressing": (True, "NeedsUpdateReplicas", since),
    }
    assert found.degraded is None


def test_its_page_says_what_the_cloud_said_of_new_machines() -> None:
    """The wait for a replacement takes its time; why it does not come is what the cloud has said."""
    full = Pace(reason="OutOfCapacity", message="RunInstances: InsufficientInstanceCapacity")
    wait = FleetWait(reason="ReplacementComing", message="cp-1 is not ready", since=NOW)
    shown = details(state(pace=full, waits=[wait]), observed(old()))
    said = "New machines failed last by **OutOfCapacity**: RunInstances: InsufficientInstanceCapacity"
    assert said in shown
    assert shown.index(said) < shown.index("**ReplacementComing** since")
    told = wait.model_copy(update={"message": f"backs off: {full.message}"})
    assert "failed last" not in details(state(pace=full, waits=[told]), observed(old()))
