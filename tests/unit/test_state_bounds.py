"""States stay under their bound whatever comes, and what is decoded can be encoded and decoded again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifekit import examples

from activities.kube.facts import project
from planners.fleet.hearing import first_heard
from planners.fleet.revisions import KEPT, Wanted, revise
from planners.machine.membership import mark_of, report_of
from planners.machine_config.budget import MOST
from resources.base import EARLIEST, LATEST, LONGEST
from resources.cluster.news import ClusterNews, Reachability
from resources.cluster.state import ClusterState, Pause
from resources.control_plane.spec import DOMAINS_MOST, ControlPlaneSpec
from resources.control_plane.state import ControlPlaneState, HostNews, SetCondition
from resources.converter import data_converter
from resources.fleet.member import Member, Vm
from resources.fleet.membership import MemberReport
from resources.fleet.revision import Revision
from resources.fleet.state import FleetWait
from resources.intents import Intent
from resources.journal import Happening, Note
from resources.machine.facts import NodeFacts
from resources.machine.hooks import HookChange
from resources.machine.manifest import HOOKS_MOST, HookKind, MachineTemplate
from resources.machine.placement import Placement
from resources.machine.preservation import PreserveIntent, PreserveRequest
from resources.machine.state import (
    INTENTS_KEPT,
    JOURNAL_LENGTH,
    ClassSnapshot,
    Condition,
    MachineState,
    Mark,
    Phase,
    Status,
)
from resources.machine_config.state import ConfigDrain, ConfigStory, Loan, MachineConfigPoolState, Reservation
from resources.machine_config.view import LISTED
from resources.names import MARKED_ANNOTATION, PRESERVE_ANNOTATION, PRIORITY_ANNOTATION
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import PoolState
from workflows.machine_config.story import FORMER_KEPT, UNTOLD_KEPT

MIB = 1 << 20
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "9999-12-31T23:59:59-14:00"
LOADED = examples("m-1")
CLASS = ClassSnapshot.of(LOADED.classes[0])
LONG = st.builds(lambda piece, n: piece * n, st.text(min_size=1, max_size=4), st.sampled_from([1, 300, 2000, 240_000]))
"""Texts as somebody may write them: with any characters, and as long as the API server accepts."""


async def travels(state: Any) -> int:
    """Sends it through the next run, unchanged; returns its size in bytes."""
    payloads = await data_converter.encode([state])
    (again,) = await data_converter.decode(payloads, [type(state)])
    assert await data_converter.encode([again]) == payloads
    return len(payloads[0].data)


def node(annotations: dict[str, str], **more: Any) -> dict[str, Any]:
    metadata = {"name": "n-1", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}
    return {"metadata": metadata, "spec": {"providerID": "aws:///eu-west-1/i-1"}, "status": more}


def machine(**more: Any) -> MachineState:
    found = MachineState(name="m-1", cluster="demo", spec=LOADED.machines[0].spec, machine_class=CLASS, **more)
    found.status.phase, found.status.phase_since = Phase.RUNNING, NOW
    return found


def pool(**more: Any) -> PoolState:
    template = {"spec": {"class": {"name": CLASS.name}}}
    return PoolState(
        name="p1", cluster="demo", spec=MachineDeploymentSpec.model_validate({"template": template}), **more
    )


# -- whatever comes ----------------------------------------------------------------------------------------------------


@given(text=LONG)
@settings(max_examples=8)
async def test_a_control_plane_under_its_bound(text: str) -> None:
    """Ten machines that say the worst of themselves, and failure domains as large as a manifest may have them."""
    domains = {f"d{n}": {"subnet": "s" * 1200} for n in range(DOMAINS_MOST)}
    spec = {"template": {"spec": {"class": {"name": CLASS.name}}}, "failureDomains": domains}
    report = MemberReport(machine="m-1", seq=1, phase=Phase.FAILED, since=NOW, message=text)
    news = HostNews(trouble=report.message, placement=Placement(index=1, failure_domain="d" * 253))
    s = ControlPlaneState(
        name="cluster",
        cluster="demo",
        spec=ControlPlaneSpec.model_validate(spec),
        journal=[Happening(time=NOW, reason=text, message=text)] * JOURNAL_LENGTH,
        waits=[FleetWait(reason=text, message=text, since=NOW)] * 20,
        hosts={f"m{n}": news for n in range(10)},
        members={f"m{n}": Member(1, NOW, NOW, placement=news.placement) for n in range(10)},
        unmanaged={f"node-{n}": "m" * 253 for n in range(1000)},
        conditions=[SetCondition(type=text, status=True, reason=text, message=text, since=NOW)] * 3,
    )
    assert await travels(s) < MIB


@given(text=LONG)
@settings(max_examples=8)
async def test_a_machine_under_its_bound(text: str) -> None:
    conditions = [{"type": f"{text}{i}", "status": text, "reason": text, "message": text} for i in range(120)]
    addresses = [{"type": "Hostname", "address": f"{i}{text}"} for i in range(300)]
    facts = project(node({PRESERVE_ANNOTATION: text}, conditions=conditions, addresses=addresses), 1, 1, [text] * 5)
    change = HookChange(
        kind=HookKind.PRE_DRAIN, name="A" * 256, owner="o" * 512, time=NOW, requested_by=text, reason=text
    )
    s = machine(
        node=facts,
        journal=[Happening(time=NOW, reason=text, message=text)] * JOURNAL_LENGTH,
        intents={f"{i}": Happening(time=NOW, reason="", message=text).message for i in range(INTENTS_KEPT)},
        parked=text,
    )
    s.hooks.added = [change] * (2 * HOOKS_MOST)
    s.status.preserve.own = PreserveRequest.of(PreserveIntent(requested_by=text, reason=text), NOW)
    s.status.conditions = [Condition(type=text, reason=text, message=text, since=NOW)] * 10
    s = MachineState.model_validate_json(s.model_dump_json(by_alias=True))
    s.status = Status.model_validate({**s.status.model_dump(by_alias=True), "kept": [text] * 200, "left": [text] * 200})
    assert await travels(s) < MIB


@given(text=LONG)
@settings(max_examples=8)
async def test_a_pool_and_a_cluster_under_theirs(text: str) -> None:
    happening, intent = Happening(time=NOW, reason=text, message=text), Intent(requested_by=text, reason=text)
    revision = Revision(
        counter=1,
        machine_class=CLASS,
        hash="h",
        template=MachineTemplate.model_validate({"spec": {"class": {"name": CLASS.name}}}),
        created=NOW,
        requested_by=intent.requested_by,
        reason=intent.reason,
    )
    news = ClusterNews(time=NOW, message=text, silent={f"c{i}": text for i in range(20)}, reason=text, paused_by=text)
    p = pool(
        journal=[happening] * JOURNAL_LENGTH,
        revisions=[revision] * KEPT,
        intents=dict.fromkeys(map(str, range(INTENTS_KEPT)), intent.reason),
        waits=[FleetWait(reason=text, message=text, since=NOW)] * 20,
        news=news,
        members={f"p1-{i:058}": Member(1, NOW, NOW) for i in range(5000)},
    )
    assert await travels(p) < 1.2 * MIB, "5,000 machines are 0.7 of it"
    cluster = ClusterState(
        name="demo",
        journal=[happening] * JOURNAL_LENGTH,
        news=news,
        pause=Pause(time=NOW, requested_by=text, reason=text),
        clouds={str(i): Reachability(reachable=False, message=text, time=NOW) for i in range(50)},
    )
    assert await travels(cluster) < MIB
    assert len(Note(reason=text, message=text).model_dump_json()) < 2000


@settings(max_examples=10, deadline=None)
@given(LONG)
async def test_a_config_pool_under_its_bound(text: str) -> None:
    """As many nodes under way as may be, each of a borrowed machine, in a pool that selects 20,000 machines."""
    happening, names = Happening(time=NOW, reason=text, message=text), [f"node-{i:050}" for i in range(MOST)]
    config = f"rendered-worker-{'a' * 32}"
    story = ConfigStory(config=config, began=NOW, progress_at=NOW, untold=[happening] * UNTOLD_KEPT, message=text)
    s = MachineConfigPoolState(
        name="worker",
        reservations={name: Reservation("u" * 36, config, NOW) for name in names},
        loans={name: Loan(owner="p1", node=name, asked=NOW, granted=NOW, again=NOW) for name in names},
        drains={name: ConfigDrain("u" * 36, f"drain-{config}", NOW, text[:1000]) for name in names[:LISTED]},
        machines={f"p1-{i:050}": "worker" for i in range(20_000)},
        story=story,
        former=[story] * FORMER_KEPT,
        journal=[happening] * JOURNAL_LENGTH,
        intents=dict.fromkeys(map(str, range(INTENTS_KEPT)), story.message),
        waits=[FleetWait(reason=text, message=text, since=NOW)] * 12,
    )
    assert await travels(s) < MIB


async def test_ten_long_values_of_an_annotation() -> None:
    """Each used to be kept in the journal, as its Node had it: 2.4 MB."""
    s = machine()
    for n in range(10):
        facts = project(node({PRESERVE_ANNOTATION: str(n) * 240_000}), 1, n)
        s.journal.append(
            Happening(time=NOW, reason="PreserveUnreadable", message=facts.annotations[PRESERVE_ANNOTATION])
        )
        s.node = facts
    assert await travels(s) < 20_000
    assert "characters more)" in s.journal[0].message


def test_revisions_are_forgotten_where_they_are_large() -> None:
    revisions: tuple[Revision, ...] = ()
    template = MachineTemplate.model_validate({"spec": {"class": {"name": CLASS.name}}})
    for n in range(30):
        spec = {**CLASS.provider_spec, "ami": f"ami-{n}", "nobodyKnows": "x" * 60_000}
        wanted = Wanted(template, CLASS.model_copy(update={"provider_spec": spec}))
        revisions = revise(revisions, {}, wanted, 50, NOW).revisions
    assert [r.counter for r in revisions] == [26, 27, 28, 29, 30], "the newest, and what has 256 KiB of those before it"


# -- a Node's annotations ----------------------------------------------------------------------------------------------


async def test_a_mark_of_the_year_9999_is_its_machines_trouble() -> None:
    """It used to make the pool's state one that no run could decode."""
    facts = project(node({MARKED_ANNOTATION: HOSTILE, PRIORITY_ANNOTATION: "9" * 900}), 1, 1)
    mark = mark_of(facts.annotations, None, NOW)
    assert mark == Mark(text=HOSTILE, time=NOW), "as one that cannot be read, it counts from now on"
    report = report_of(machine(mark=mark, node=facts))
    assert report.priority is None
    assert await travels(pool(members={"m-1": first_heard(report, [])})) > 0


@pytest.mark.parametrize(
    "marked", [HOSTILE, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "1970-01-01T00:00:01Z"]
)
async def test_a_report_with_a_time_that_nobody_means(marked: str) -> None:
    """It comes from an older machine, or from somebody who sends signals by hand."""
    told = report_of(machine()).model_dump(mode="json", by_alias=True) | {"marked": marked, "seq": 2**63 - 1}
    member = first_heard(type(report_of(machine())).model_validate(told), [])
    assert member.marked in (EARLIEST, LATEST)
    assert await travels(pool(members={"m-1": member})) > 0


def test_milliseconds_near_1970_are_no_seconds() -> None:
    of_an_older_worker = {**pool().model_dump(mode="json", by_alias=True), "members": {"m": [1, 1000, 15_000_000_000]}}
    found = PoolState.model_validate(of_an_older_worker).members["m"]
    assert (found.created, found.since) == (EARLIEST, EARLIEST)
    kept = Member(1, NOW, NOW, vm=Vm.LIVES)
    (again,) = PoolState.model_validate_json(pool(members={"m": kept}).model_dump_json(by_alias=True)).members.values()
    assert again == kept


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "n" * 3000), ("uid", "u" * 3000), ("name", "\ud800"), ("creationTimestamp", "soon"), ("uid", 5)],
)
def test_a_node_without_an_identity_cannot_be_read(field: str, value: Any) -> None:
    there = node({})
    there["metadata"][field] = value
    with pytest.raises(ValueError, match=field if field != "creationTimestamp" else "is not a time"):
        project(there, 1, 1)


# -- what an older worker wrote ----------------------------------------------------------------------------------------


def test_a_state_with_durations_that_had_no_limit() -> None:
    old = machine().model_dump(mode="json", by_alias=True)
    old["spec"] |= {"creationTimeout": "80000000h", "healthTimeout": "999999h", "drainTimeout": "P999999999D"}
    found = MachineState.model_validate(old).spec
    assert (found.creation_timeout, found.health_timeout, found.drain_timeout) == (LONGEST, LONGEST, LONGEST)
    assert found.machine_preserve_timeout == timedelta(hours=72)
    old = pool().model_dump(mode="json", by_alias=True)
    old["spec"] |= {"minReadySeconds": 10**12, "progressDeadlineSeconds": 10**13, "machinePreserveTimeout": "999999h"}
    old["spec"]["template"]["spec"] |= {"drainTimeout": "999999h"}
    spec = PoolState.model_validate(old).spec
    assert spec.min_ready_seconds < (spec.progress_deadline_seconds or 0) == LONGEST.total_seconds()
    assert spec.template.spec.drain_timeout == spec.machine_preserve_timeout == LONGEST


def test_facts_of_an_older_watch_are_cut() -> None:
    told = {"epoch": 1, "seq": 1, "exists": True, "reason": "x" * 240_000, "addresses": ["a"] * 5000}
    found = NodeFacts.model_validate(told)
    assert len(found.reason) < 1001
    assert len(found.addresses) == 100
