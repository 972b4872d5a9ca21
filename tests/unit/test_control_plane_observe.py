"""What a control plane makes of what its machines report, and of machines that it finds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from control_plane.cases import NOW
from pools.workflow import snapshot

from planners.control_plane.adoption import domain_of, index_in, place_of, revision_of
from planners.control_plane.alike import SetWanted, differing
from planners.control_plane.observe import observe
from planners.control_plane.view import Host, Observed
from planners.machine.domain import domain_digest
from resources.control_plane.spec import ControlPlaneSpec
from resources.control_plane.state import ControlPlaneState, HostNews
from resources.fleet.member import Member, Permit, PreserveWish, Vm
from resources.fleet.membership import PlaceNews
from resources.fleet.revision import Revision
from resources.machine.manifest import MachineTemplate
from resources.machine.placement import Placement
from resources.machine.preservation import PreservedBy
from resources.machine.state import ClassSnapshot, Phase

DOMAINS = {zone: {"placement": {"availabilityZone": f"eu-west-1{zone}"}} for zone in "abc"}
TEMPLATE = MachineTemplate.model_validate({"spec": {"class": {"name": "c1"}}})


def made(zone: str = "", **more: Any) -> ClassSnapshot:
    """A class, of a VM in this zone."""
    found = snapshot(**more)
    return found.model_copy(update={"provider_spec": {**found.provider_spec, **(DOMAINS[zone] if zone else {})}})


def revision(counter: int, **more: Any) -> Revision:
    return Revision(counter=counter, machine_class=made(**more), hash=str(counter), template=TEMPLATE, created=NOW)


def seen(member: dict[str, Any], news: HostNews | None = None, **state: Any) -> Host:
    """A machine as the plan sees it: of revision 1, Running since an hour, at index 0."""
    (host,) = whole(member, news, **state).hosts
    return host


def whole(member: dict[str, Any], news: HostNews | None = None, **state: Any) -> Observed:
    hour = NOW - timedelta(hours=1)
    fields = {"revision": 1, "created": hour, "since": hour, "phase": Phase.RUNNING, "vm": Vm.LIVES, **member}
    given = {"cluster": "demo", "spec": ControlPlaneSpec(template=TEMPLATE), "revisions": [revision(1)], **state}
    members = {"m": Member(**{"placement": Placement(index=0), **fields})}
    there = ControlPlaneState(name="cluster", members=members, hosts={"m": news} if news else {}, **given)
    return observe(there, NOW)


def ago(minutes: int) -> dict[str, Any]:
    return {"phase": Phase.UNKNOWN, "since": NOW - timedelta(minutes=minutes)}


WANTED = HostNews(place=PlaceNews(joined=True, held=True, wanted=True))
HELD = HostNews(place=PlaceNews(joined=True, node_ready=True, held=True))


@pytest.mark.parametrize(
    ("member", "news", "then"),
    [
        pytest.param({}, None, {"ready": True, "joined": True, "leaving": False}, id="running"),
        pytest.param(ago(5), None, {"ready": True, "joined": True}, id="a reboot"),
        pytest.param(ago(25), None, {"ready": False}, id="not ready for too long"),
        pytest.param({"phase": Phase.PENDING}, None, {"ready": False, "joined": False}, id="on its way"),
        pytest.param({"phase": Phase.TERMINATING}, HELD, {"ready": True, "leaving": True, "held": True}, id="held"),
        pytest.param(
            {"phase": Phase.TERMINATING}, HELD.model_copy(update={"lifted": True}), {"held": False}, id="lifted"
        ),
        pytest.param(
            {"phase": Phase.TERMINATING},
            HostNews(place=PlaceNews(joined=True)),
            {"held": False, "ready": False},
            id="somebody removed the hook",
        ),
        pytest.param({"deleting": True}, None, {"leaving": True, "held": True}, id="told, and not begun"),
        pytest.param({"permit": Permit.ASKED, **ago(12)}, None, {"asks": True}, id="ill"),
        pytest.param(
            {"phase": Phase.FAILED, "vm": Vm.GONE},
            HostNews(trouble="gone"),
            {"asks": True, "failure": "gone"},
            id="dead",
        ),
        pytest.param(
            {"phase": Phase.FAILED, "keep": PreserveWish.ASKED},
            None,
            {"asks": False, "leaving": True},
            id="kept for a look on request",
        ),
        pytest.param(
            {"permit": Permit.ASKED, **ago(12)},
            WANTED,
            {"asks": True, "wanted": True, "leaving": False},
            id="ill, and to be kept",
        ),
        pytest.param(
            {"permit": Permit.GRANTED, **ago(12)},
            WANTED,
            {"asks": False, "leaving": True, "held": True},
            id="it may be Failed",
        ),
        pytest.param(
            {"phase": Phase.FAILED}, WANTED, {"leaving": True, "held": True, "ready": False}, id="Failed, and held"
        ),
        pytest.param(
            {"phase": Phase.FAILED, "vm": Vm.GONE}, WANTED, {"asks": False, "leaving": False}, id="nothing to look at"
        ),
        pytest.param(
            {"preserved_until": NOW + timedelta(hours=1)},
            None,
            {"wanted": True, "leaving": False},
            id="preserved, and well",
        ),
    ],
)
def test_a_machine_as_the_plan_sees_it(member: dict[str, Any], news: HostNews | None, then: dict[str, Any]) -> None:
    host = seen(member, news)
    assert {field: getattr(host, field) for field in then} == then


def test_one_that_is_preserved_is_none_of_its_machines() -> None:
    """From when it is drained: it waits for our word, then has it. Taken back, it is replaced like any other."""
    failed = {"phase": Phase.FAILED, "drained": True}
    later = NOW + timedelta(hours=1)
    for member, granting, preserved, asks in (
        ({**failed, "keep": PreserveWish.ASKED}, ("m",), ("m",), None),
        ({**failed, "keep": PreserveWish.ASKED, "granted": PreservedBy.ASKED}, (), ("m",), None),
        ({**failed, "preserved_until": later}, (), ("m",), None),
        ({**failed, "keep": PreserveWish.NEVER}, (), (), True),
    ):
        found = whole(member, WANTED)
        asking = {h.asks for h in found.hosts} or {None}
        assert (found.granting, found.preserved, asking) == (granting, preserved, {asks})


def test_a_reboot_is_looked_at_again_when_it_is_over() -> None:
    assert seen(ago(5)).ready_until == NOW + timedelta(minutes=15)


def test_one_whose_workflow_was_ended_is_not_ready() -> None:
    host = seen({}, lost={"m": "TERMINATED"})
    assert (host.ready, host.failure) == (False, "its workflow was ended from outside (TERMINATED)")


@pytest.mark.parametrize(
    ("there", "spec", "news", "words"),
    [
        pytest.param("", {}, "", "", id="nothing"),
        pytest.param("a", DOMAINS, domain_digest(DOMAINS["a"]), "", id="in its domain"),
        pytest.param("", DOMAINS, "", "failure domain of its own instead of a", id="in none"),
        pytest.param("a", {}, "", "failure domain a instead of none", id="the set has none any more"),
        pytest.param("a", DOMAINS, "old", "failure domain a has other fields now", id="its fields changed"),
    ],
)
def test_a_machine_in_another_failure_domain_is_outdated(
    there: str, spec: dict[str, Any], news: str, words: str
) -> None:
    control_plane = ControlPlaneSpec(template=TEMPLATE, failure_domains=spec)
    place = {"placement": Placement(index=0, failure_domain=there)}
    assert seen(place, HostNews(place=PlaceNews(domain=news)), spec=control_plane).outdated == words


def test_what_differs_is_named() -> None:
    of = made()
    bigger = of.model_copy(update={"provider_spec": {**of.provider_spec, "machineType": "m5.xlarge"}})
    second = revision(2).model_copy(update={"machine_class": bigger})
    assert seen({}, revisions=[revision(1), second]).outdated == "machineType"
    assert seen({}, revisions=[revision(1), revision(2, name="c2")]).outdated == "class c1 instead of c2"
    assert seen({"revision": 0}).outdated == "not made from this template"


def test_boot_images_and_the_place_make_no_difference() -> None:
    assert differing(made(image=1), made(image=2), {}) == ()
    assert differing(made("a"), made("b"), DOMAINS["c"]) == ()
    assert differing(made("a"), made("b"), {}) == ("placement.availabilityZone",)
    assert SetWanted(TEMPLATE, made("b", image=2), domains=DOMAINS).made_like(made("a"))
    assert not SetWanted(TEMPLATE, made(name="c2")).made_like(made())


# -- machines that it finds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "index"), [("master-2", 2), ("demo-master-x7k2p-0", 0), ("machine-a", None), ("m-20260101", None)]
)
def test_the_index_in_a_name(name: str, index: int | None) -> None:
    """C-F09: a name without an index has none."""
    assert index_in(name) == index


def test_a_machine_without_an_index_in_its_name_gets_one() -> None:
    """C-P05, where upstream stops: the index of its failure domain, else the lowest that is free."""
    assigned = {0: "a", 1: "b", 2: "c"}
    assert place_of("x", made("b"), {0}, assigned, DOMAINS) == Placement(index=1, failure_domain="b")
    assert place_of("x", made("b"), {0, 1}, assigned, DOMAINS) == Placement(index=2, failure_domain="b")
    assert place_of("x", None, {0, 1, 2}, {}, {}) == Placement(index=3)
    assert place_of("x-1", made("c"), {1}, assigned, DOMAINS) == Placement(index=1, failure_domain="c")


def test_what_a_found_machine_was_made_from() -> None:
    assert domain_of(made("b"), DOMAINS) == "b"
    assert domain_of(made(), DOMAINS) == ""
    revisions = [revision(1), revision(2, name="other")]
    assert revision_of(made("b", image=7), revisions, DOMAINS["b"]) == 2, "whatever its class is called"
    assert revision_of(made("b"), revisions, {}) == 0
    assert revision_of(None, revisions, {}) == 0
