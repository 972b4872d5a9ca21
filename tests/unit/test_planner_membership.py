"""planners/machine/membership.py: what a machine's state makes of its report. Given a state, then a report; no
Temporal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lifekit import examples

from planners.machine.hot_update import rolling_hash
from planners.machine.membership import mark_of, report_of, template_applied, with_revision, without_its_node
from resources.base import read_time
from resources.errors import ErrorClass, ErrorInfo
from resources.fleet.member import Trouble, Vm
from resources.fleet.membership import CreateFailure, MemberReport, PlaceNews
from resources.machine.facts import NodeFacts, VmFacts
from resources.machine.manifest import NodeTemplate
from resources.machine.state import (
    Attempt,
    ClassSnapshot,
    Condition,
    Deletion,
    FailureStreak,
    MachineState,
    Mark,
    Phase,
    Status,
)
from resources.names import MARKED_ANNOTATION, PRIORITY_ANNOTATION

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
VM = "aws:///eu-west-1/i-1"
TEMPLATE = NodeTemplate.model_validate({"metadata": {"labels": {"zone": "a"}}})
DELETED = Deletion(time=NOW)


def failed(reason: str) -> list[Condition]:
    return [Condition(type="Failed", reason=reason, message=f"it is {reason}", since=NOW)]


def vm(state: str) -> VmFacts:
    return VmFacts(epoch=1, seq=1, provider_id=VM, state=state)


def node(**annotations: str) -> NodeFacts:
    return NodeFacts(epoch=1, seq=1, exists=True, name="node-1", annotations=annotations)


def machine(phase: Phase = Phase.PENDING, **fields: Any) -> MachineState:
    """A pool's machine. `has_vm` False: there is none; `conditions` are the status's."""
    loaded = examples()
    status = Status(phase=phase, phase_since=NOW, conditions=fields.pop("conditions", []))
    if fields.pop("has_vm", True):
        status.provider_id = VM
    new = MachineState(
        name="m-1",
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        pool="p",
        template=3,
        status=status,
    )
    return new.model_copy(update=fields)


# -- VM and trouble ---------------------------------------------------------------------------------------------------

RAN: dict[str, Any] = {"was_running": True, "joined": True}
# given: phase, what is known -> then: vm, trouble
CASES: dict[str, tuple[Phase, dict[str, Any], Vm, Trouble]] = {
    "not made yet": (Phase.PENDING, {"has_vm": False}, Vm.UNBORN, Trouble.NONE),
    "made": (Phase.PENDING, {}, Vm.LIVES, Trouble.NONE),
    "running": (Phase.RUNNING, RAN, Vm.LIVES, Trouble.NONE),
    "ill is no trouble yet": (Phase.UNKNOWN, RAN, Vm.LIVES, Trouble.NONE),
    "stopped is not gone": (Phase.UNKNOWN, {**RAN, "vm": vm("stopped")}, Vm.LIVES, Trouble.NONE),
    "gone behind our back": (Phase.UNKNOWN, {**RAN, "vm": vm("gone")}, Vm.GONE, Trouble.GONE),
    "never made in time": (
        Phase.FAILED,
        {"has_vm": False, "conditions": failed("CreationTimeout")},
        Vm.UNBORN,
        Trouble.JOIN,
    ),
    "never joined in time": (Phase.FAILED, {"conditions": failed("CreationTimeout")}, Vm.LIVES, Trouble.JOIN),
    "joined and never ran": (
        Phase.FAILED,
        {"joined": True, "conditions": failed("CreationTimeout")},
        Vm.LIVES,
        Trouble.JOIN,
    ),
    "stopped before it joined": (Phase.FAILED, {"conditions": failed("VMStopped")}, Vm.LIVES, Trouble.JOIN),
    "stale node": (Phase.FAILED, {"conditions": failed("StaleNode")}, Vm.LIVES, Trouble.JOIN),
    "gone before it joined": (Phase.FAILED, {"conditions": failed("VMGone")}, Vm.GONE, Trouble.JOIN),
    "the same, as the watch saw it": (Phase.PENDING, {"vm": vm("gone")}, Vm.GONE, Trouble.JOIN),
    "joined, and gone before it ran": (Phase.PENDING, {"joined": True, "vm": vm("gone")}, Vm.GONE, Trouble.JOIN),
    "ran, and Failed by it": (Phase.FAILED, {**RAN, "conditions": failed("VMGone")}, Vm.GONE, Trouble.GONE),
    "never joined, and gone later": (
        Phase.FAILED,
        {"vm": vm("gone"), "conditions": failed("CreationTimeout")},
        Vm.GONE,
        Trouble.JOIN,
    ),
    "ill for too long": (Phase.FAILED, {**RAN, "conditions": failed("HealthTimeout")}, Vm.LIVES, Trouble.HEALTH),
    "ill, and gone": (
        Phase.FAILED,
        {**RAN, "vm": vm("gone"), "conditions": failed("HealthTimeout")},
        Vm.GONE,
        Trouble.GONE,
    ),
    "deleted": (Phase.TERMINATING, {**RAN, "deletion": DELETED}, Vm.LIVES, Trouble.NONE),
    "deleted, seen gone by the watch": (
        Phase.TERMINATING,
        {**RAN, "deletion": DELETED, "vm": vm("gone")},
        Vm.GONE,
        Trouble.NONE,
    ),
    "deleted, confirmed gone": (
        Phase.TERMINATING,
        {**RAN, "deletion": DELETED, "vm_gone": True},
        Vm.GONE,
        Trouble.NONE,
    ),
    "deleted before there was anything": (
        Phase.TERMINATING,
        {"has_vm": False, "deletion": DELETED, "vm_gone": True},
        Vm.GONE,
        Trouble.NONE,
    ),
    "failed and deleted is a repair still": (
        Phase.TERMINATING,
        {**RAN, "deletion": DELETED, "conditions": failed("HealthTimeout")},
        Vm.LIVES,
        Trouble.HEALTH,
    ),
    "the same, and its VM goes by that": (
        Phase.TERMINATING,
        {**RAN, "deletion": DELETED, "vm": vm("gone"), "conditions": failed("HealthTimeout")},
        Vm.GONE,
        Trouble.HEALTH,
    ),
    "never joined and deleted": (
        Phase.TERMINATING,
        {"deletion": DELETED, "vm_gone": True, "conditions": failed("CreationTimeout")},
        Vm.GONE,
        Trouble.JOIN,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_vm_and_trouble(case: str) -> None:
    phase, given, wanted, trouble = CASES[case]
    report = report_of(machine(phase, **given))
    assert (report.phase, report.vm, report.trouble) == (phase, wanted, trouble)
    assert bool(report.message) is (trouble is not Trouble.NONE)


def test_the_message_is_the_failures() -> None:
    assert report_of(machine(Phase.FAILED, conditions=failed("HealthTimeout"))).message == "it is HealthTimeout"
    gone = report_of(machine(Phase.UNKNOWN, vm=vm("gone")))
    assert gone.message == f"{VM} was deleted by somebody"


@pytest.mark.parametrize(
    ("phase", "given", "drained"),
    [
        (Phase.FAILED, {"joined": False}, True),  # nothing runs there
        (Phase.FAILED, {"joined": True}, False),
        (Phase.FAILED, {"joined": True, "drained": True}, True),
        (Phase.TERMINATING, {"joined": True, "drained": True, "deletion": DELETED}, False),
        (Phase.RUNNING, {"joined": True}, False),
    ],
)
def test_drained_is_said_of_failed_machines(phase: Phase, given: dict[str, Any], drained: bool) -> None:
    assert report_of(machine(phase, conditions=failed("X"), **given)).drained is drained


def test_a_plain_report() -> None:
    made = report_of(machine(asks_permit=True, template_applied=2), ended=True)
    assert made == MemberReport(
        machine="m-1", seq=0, phase=Phase.PENDING, since=NOW, vm=Vm.LIVES, asks=True, template=2, ended=True
    )


# -- failed create calls ----------------------------------------------------------------------------------------------


def test_a_failed_call_is_in_one_report() -> None:
    info = ErrorInfo.of(ErrorClass.QUOTA, "10 of 10")
    streak = FailureStreak(reason="QuotaExceeded", since=NOW)
    calls = {"create_failure": info, "create_failures": 2, "failures_told": 1, "trouble": streak}
    given = machine(Phase.CRASH_LOOP_BACK_OFF, has_vm=False, **calls)
    report = report_of(given)
    said = CreateFailure(error_class=ErrorClass.QUOTA, message="10 of 10", reason="QuotaExceeded")
    assert (report.failure, report.failures) == (said, 2)
    report = report_of(given.model_copy(update={"failures_told": 2}))
    assert (report.failure, report.failures) == (None, 2)


# -- annotations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "priority"),
    [
        ({}, None),
        ({PRIORITY_ANNOTATION: "1"}, 1),
        ({PRIORITY_ANNOTATION: "-5"}, -5),
        ({PRIORITY_ANNOTATION: "1st"}, None),
    ],
    ids=["none", "1", "-5", "no number"],
)
def test_priority(annotations: dict[str, str], priority: int | None) -> None:
    assert report_of(machine(node=node(**annotations))).priority == priority
    assert report_of(machine()).priority is None


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31T12:00:00Z", NOW),
        (" 2026-01-31T13:00:00+01:00 ", NOW),
        ("2026-01-31T12:00:00.25Z", NOW + timedelta(seconds=0.25)),
        ("2026-01-31T12:00:00", NOW),  # without a zone
        ("soon", None),
        ("", None),
        ("1769860800", None),
        ("9999-99-99T00:00:00Z", None),
    ],
)
def test_times(text: str, time: datetime | None) -> None:
    assert read_time(text) == time


def test_a_mark_keeps_its_time_until_it_is_changed_or_taken_away() -> None:
    readable, odd = {MARKED_ANNOTATION: "2026-01-31T12:00:00Z"}, {MARKED_ANNOTATION: "soon"}
    assert mark_of({}, None, NOW) is None
    assert mark_of(readable, None, NOW + timedelta(days=1)) == Mark(text="2026-01-31T12:00:00Z", time=NOW)
    first = mark_of(odd, None, NOW)
    assert first == Mark(text="soon", time=NOW)
    assert mark_of(odd, first, NOW + timedelta(days=1)) == first
    other = mark_of({MARKED_ANNOTATION: "at once"}, first, NOW + timedelta(days=1))
    assert other == Mark(text="at once", time=NOW + timedelta(days=1))
    assert mark_of({}, first, NOW) is None
    assert report_of(machine(mark=first)).marked == NOW


# -- the template and the revision ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "applied"),
    [
        ({}, 3),  # no Node yet that should have it
        ({"joined": True}, 2),
        ({"joined": True, "deletion": DELETED}, 3),
    ],
    ids=["no node", "not on the node", "leaving"],
)
def test_the_template_is_the_newest_that_the_node_has(given: dict[str, Any], applied: int) -> None:
    state = machine(Phase.RUNNING, template_applied=2, **given)
    state.spec = state.spec.model_copy(update={"node_template": TEMPLATE})
    assert template_applied(state) == applied
    state.status.last_applied_node_template = TEMPLATE
    assert template_applied(state) == 3


def test_to_one_that_failed_nothing_is_brought_any_more() -> None:
    state = machine(Phase.FAILED, joined=True, template_applied=2)
    state.spec = state.spec.model_copy(update={"node_template": TEMPLATE})
    assert template_applied(state) == 3


def test_the_revision_is_what_the_vm_was_made_from() -> None:
    """The class goes on; the attempt keeps what was asked for."""
    now = machine()
    assert now.machine_class is not None
    spec = now.machine_class.provider_spec
    newer = now.machine_class.model_copy(update={"name": "newer", "provider_spec": {**spec, "ami": "ami-2"}})
    report = report_of(now)
    before = with_revision(report, now.model_copy(update={"machine_class": newer}))
    assert (before.machine_class, before.rolling_hash) == ("newer", rolling_hash("AWS", newer.provider_spec))
    attempt = Attempt(number=1, token="t", started=NOW, machine_class=now.machine_class)
    after = with_revision(report, now.model_copy(update={"machine_class": newer, "attempt": attempt}))
    assert (after.machine_class, after.rolling_hash) == (now.machine_class.name, rolling_hash("AWS", spec))
    assert after.hash == rolling_hash("AWS", spec, version=1) != before.hash
    assert with_revision(report, now.model_copy(update={"machine_class": None})) == report


@pytest.mark.parametrize(
    ("phase", "there", "counts"),
    [
        (Phase.PENDING, Vm.LIVES, False),
        (Phase.RUNNING, Vm.LIVES, False),
        (Phase.UNKNOWN, Vm.LIVES, True),
        (Phase.TERMINATING, Vm.LIVES, True),
        (Phase.TERMINATING, Vm.GONE, False),
        (Phase.FAILED, Vm.LIVES, False),
    ],
)
def test_its_node_is_told_only_where_the_phase_does_not_say_it(phase: Phase, there: Vm, counts: bool) -> None:
    """What an owner goes by (planners/control_plane/observe.py) is the same with each of them."""
    place = PlaceNews(joined=True, node_ready=True)

    told = MemberReport(machine="m", seq=1, phase=phase, since=NOW, vm=there, place=place)
    said = without_its_node(told).place
    assert said is not None
    assert said == place.model_copy(update={"node_ready": counts})
    assert without_its_node(told.model_copy(update={"place": None})).place is None
