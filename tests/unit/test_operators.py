"""What a person sees of a wait: reason, message, since when, the next try, and what can be done. It is always all of
it."""

from __future__ import annotations

import ast
import re
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from cli.pages import FILES
from entitykit import NOW, described, waits_for
from paths import ROOT

from activities.kube.client import Kube
from activities.kube.events import tell
from resources.calls.cloud import ResourceUpdate
from resources.calls.machine import MachineRef
from resources.cluster.news import Reachability
from resources.cluster.state import ClusterState
from resources.errors import ErrorClass, ErrorInfo
from resources.journal import Happening
from resources.machine.advice import step
from resources.machine.state import (
    AppliedSpec,
    Condition,
    FailureStreak,
    LastOperation,
    MachineState,
    OperationState,
    OperationType,
    Phase,
    UpdateTrouble,
)
from resources.reasons import REASONS, Kind, next_step, nothing_to_do
from starter.commands.describe import cluster_page
from starter.sdk.results import ClusterDescription, ClusterSummary, PendingActivity
from workflows.machine.details import details

WAITS = [name for name, reason in REASONS.items() if Kind.WAIT in reason.kind]
CONDITIONS = [name for name, reason in REASONS.items() if reason.kind & (Kind.CONDITION | Kind.FAILURE)]


def test_describe_says_all_of_a_wait() -> None:
    for reason in WAITS:
        state = waits_for(reason)
        shown = described(state)
        for words in (
            f"Reason:            {reason}",
            f"Message:           3 of 7 {reason.lower()} words",
            "Since:             2026-03-01 02:48:00 UTC (12m ago)",
            "Next try:          2026-03-01 03:05:00 UTC (in 5m)",
            f"What can be done:  {step(state, reason, page='machine')}",
        ):
            assert words in shown, reason


def test_the_web_uis_details_say_all_of_a_wait() -> None:
    for reason in WAITS:
        state = waits_for(reason)
        shown = details(state)
        for words in (
            f"**{reason}**",
            f"3 of 7 {reason.lower()} words",
            "since 2026-03-01 02:48:00 UTC",
            "next try 03:05:00 UTC",
            step(state, reason),
        ):
            assert words in shown, reason


def test_a_machine_that_failed_shows_what_held_it_up() -> None:
    """The reason on the page is what the machine lacked; the deadline is a condition. There is no VM to look at."""
    state = waits_for("OutOfCapacity")
    assert state.status.waiting_for is not None
    state.status.phase = Phase.FAILED
    state.held_up = FailureStreak(reason="OutOfCapacity", since=NOW)
    message = "no m5.large (for 20m); not Running within creationTimeout (20m)"
    state.status.waiting_for = state.status.waiting_for.model_copy(update={"message": message, "next_try": None})
    state.status.conditions = [Condition(type="Failed", reason="CreationTimeout", message=message, since=NOW)]
    shown, page = described(state), details(state)
    assert "Reason:            OutOfCapacity" in shown
    assert re.search(r"Failed +CreationTimeout +0s +as above", shown)
    assert "Failed by **OutOfCapacity**" in page
    assert "Failed: CreationTimeout: as above" in page
    for words in (shown, page):
        assert words.count("can be done") == 1
        assert "set another machine type" in words.lower()
        assert not re.search("tried again|inspect the VM|Nothing", words)


def test_a_machine_that_waits_for_nothing_shows_no_advice() -> None:
    state = waits_for("Settling")
    assert "can be done" in described(state)
    assert "can be done" in details(state)
    state.status.waiting_for = None
    assert "can be done" not in described(state)
    assert "can be done" not in details(state)


@pytest.mark.parametrize("reason", CONDITIONS)
def test_a_condition_comes_with_what_can_be_done(reason: str) -> None:
    """So does the failure of a Failed machine, which is a condition of that reason."""
    state = waits_for("Settling")
    state.status.conditions = [Condition(type="T", reason=reason, message="words", since=NOW)]
    advice = f"What can be done about {reason}: {step(state, reason, page='machine')}"
    assert (advice in described(state)) is not nothing_to_do(reason)
    state.status.conditions = []
    assert advice not in described(state)


def test_a_cluster_that_cannot_be_reached_comes_with_what_can_be_done() -> None:
    silent = Reachability(reachable=False, message="connection refused", time=NOW)
    state = ClusterState(name="prod", api=silent, clouds={"aws/eu-west-1/default/s": silent})
    summary = ClusterSummary(name="prod", phase="APIUnreachable", machines=3, configured=True)
    shown = "\n".join(cluster_page(ClusterDescription(summary=summary, state=state), NOW))
    for wait in ("APIUnreachable", "CloudUnreachable"):
        assert f"what can be done: {next_step(wait, 'prod')}" in shown
    state.api = Reachability(reachable=True, time=NOW)
    state.clouds = {}
    assert "can be done" not in "\n".join(cluster_page(ClusterDescription(summary=summary, state=state), NOW))


def test_a_machine_whose_workflow_was_terminated_comes_with_what_can_be_done() -> None:
    state = waits_for("Settling")
    state.status.conditions = [Condition(type="Failed", reason="HealthTimeout", message="words", since=NOW)]
    state.status.deadlines = {"creation": NOW}
    shown = described(state, "TERMINATED", "somebody ended its workflow")
    assert f"What can be done: {next_step('Terminated', 'prod', 'm-1')}" in shown
    assert "Phase:    Unknown, when its workflow ended" in shown
    assert "HealthTimeout" in shown  # its last words are still shown, and nothing that only a workflow that runs can do
    assert [shown.count(w) for w in ("Waiting for", "Times:", "can be done", "recreate")] == [0, 0, 1, 0]
    shown = described(state, "FAILED", "it never was a machine")
    assert f"What can be done: {next_step('WorkflowFailed', 'prod', 'm-1')}" in shown


def test_what_was_seen_last_stands_beside_the_wait() -> None:
    state, seen = waits_for("Draining"), "default/web-1 blocked by PDB web (0 disruptions allowed)"
    pending = (
        PendingActivity("drain_node", 7, running=False, last_failure=seen, waits=True),
        PendingActivity("tell_node", 2, running=False, last_failure="no such node"),
        PendingActivity("tell_node", 1, running=True),
    )
    shown = described(state, pending=pending)
    assert f"Seen last:         {seen}\n" in shown
    assert re.search(r"drain_node +7 +waits +as above", shown)
    assert re.search(r"tell_node +2 +waits +no such node", shown)  # nobody waits for it
    assert shown.count("tell_node") == 1  # one that goes well is no news
    state.status.waiting_for = None
    shown = described(state, pending=pending)
    assert "Seen last" not in shown
    assert re.search(rf"drain_node +7 +waits +{re.escape(seen)}", shown)


def test_a_message_stands_once_on_the_page() -> None:
    state = waits_for("HealthTimeout")
    assert state.status.waiting_for is not None
    message = state.status.waiting_for.message
    state.status.conditions = [Condition(type="Failed", reason="HealthTimeout", message=message, since=NOW)]
    state.status.last_operation = LastOperation(
        type=OperationType.HEALTH_CHECK, state=OperationState.FAILED, description=message, time=NOW
    )
    state.journal = [
        Happening(time=NOW, reason="HealthTimeout", message=message.removesuffix(" words")),
        Happening(time=NOW, reason="Drained", message="node-1 is drained"),
    ]
    shown = described(state)
    assert (shown.count(message), shown.count("as above"), shown.count("node-1 is drained")) == (1, 2, 1)


def test_times_are_in_words() -> None:
    state = waits_for("OutOfCapacity")
    assert state.status.waiting_for is not None
    soon, later = NOW + timedelta(minutes=5), NOW + timedelta(minutes=20)
    state.status.deadlines = {"creation": later, "retry": soon}
    shown = described(state)
    assert shown.count("Next try") == 1
    assert "Times:\n  Failed, if not Running:  2026-03-01 03:20:00 UTC (in 20m)" in shown
    state.status.waiting_for = None
    shown = described(state)
    assert "Times:\n  Next try:                2026-03-01 03:05:00 UTC (in 5m)\n  Failed, if" in shown


def with_update_trouble(next_try: datetime | None) -> MachineState:
    state = waits_for("UpdateFailed")
    assert state.status.waiting_for is not None
    message = state.status.waiting_for.message
    refused = ErrorInfo.of(ErrorClass.AUTH, "vol-1: CreateTags: UnauthorizedOperation: not you")
    state.status.last_applied_provider_spec = AppliedSpec(hash="c0ffee", provider_spec={})
    state.status.applied_generation = 3
    state.status.update_trouble = UpdateTrouble(
        reason="NotAuthorized",
        message=message,
        since=NOW - timedelta(minutes=12),
        time=NOW,
        next_try=next_try,
        resources=[
            ResourceUpdate(id="i-1", kind="instance", changed=["removed team", "set cost"]),
            ResourceUpdate(id="vol-1", kind="volume", error=refused),
        ],
    )
    state.status.conditions = [Condition(type="UpdateFailed", reason="NotAuthorized", message=message, since=NOW)]
    if next_try is not None:
        state.status.deadlines = {"update": next_try}
    return state


def test_a_hot_update_that_failed_says_what_became_of_each_resource() -> None:
    state = with_update_trouble(NOW + timedelta(minutes=5))
    assert state.status.waiting_for is not None
    shown = described(state)
    for words in (
        r"VM carries: +generation 3, spec hash c0ffee\n",
        r"Hot update:\n  Reason: +NotAuthorized\n  Message: +as above\n  Since: +2026-03-01 02:48:00 UTC \(12m ago\)\n",
        r"  Tried: +2026-03-01 03:00:00 UTC \(0s ago\)\n  Next try: +2026-03-01 03:05:00 UTC \(in 5m\)\n  RESOURCE",
        r"i-1 +instance +removed team, set cost +<none>\n",
        r"vol-1 +volume +<none> +CreateTags: UnauthorizedOperation: not you\n",
        r"UpdateFailed +NotAuthorized +0s +as above\n",
    ):
        assert re.search(words, shown), words
    assert shown.count(state.status.waiting_for.message) == 1
    assert f"What can be done about NotAuthorized: {next_step('NotAuthorized', 'prod', 'm-1')}" in shown
    assert "Times:" not in shown  # the only one stands above
    page = details(state)
    for words in (
        "- VM carries: generation 3, spec hash c0ffee\n",
        f"- UpdateFailed: NotAuthorized: as above. What can be done: {next_step('NotAuthorized', 'prod', 'm-1')}\n",
        "- instance i-1: removed team; set cost\n",
        "- volume vol-1: failed: CreateTags: UnauthorizedOperation: not you",
    ):
        assert words in page
    assert page.count("03:05:00") == 1


def test_a_hot_update_of_a_machine_that_waits_for_something_else_is_told_too() -> None:
    state = with_update_trouble(None)
    state.status.waiting_for = None
    shown = described(state)
    assert "Message:   3 of 7 updatefailed words\n" in shown
    assert "Next try:  when the class changes\n" in shown
    assert re.search(r"UpdateFailed +NotAuthorized +0s +as above", shown)
    assert "- UpdateFailed: NotAuthorized: 3 of 7 updatefailed words. What can be done" in details(state)
    state.status.update_trouble = None
    assert "Hot update:" not in described(state)


def test_a_node_that_has_not_joined_is_only_expected() -> None:
    state = waits_for("NodeNotSeen")
    state.status.node_name = "ip-10-0-0-8"
    assert "Node:     ip-10-0-0-8 (expected, not joined)\n" in described(state)
    state.joined = True
    assert "Node:     ip-10-0-0-8\n" in described(state)


# -- whoever waits says why -------------------------------------------------------------------------------------------


def messages(source: str) -> list[ast.expr]:
    """The messages of every call that reports a wait."""
    calls = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call))
    return [
        c.args[1] for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "waiting" and len(c.args) >= 2
    ]


def says_something(message: ast.expr) -> bool:
    """Whether the message has words of its own, or those of something that has them; never an empty string."""
    match message:
        case ast.Constant(value=value):
            return isinstance(value, str) and len(value.split()) > 1
        case ast.JoinedStr(values=parts):
            return any(isinstance(p, ast.Constant) and p.value.strip() for p in parts)
        case ast.BinOp(left=left):
            return says_something(left)
    return isinstance(message, ast.Name | ast.Attribute)


def test_no_wait_is_without_words() -> None:
    found = [(f.name, m) for f in FILES if f.is_relative_to(ROOT / "workflows") for m in messages(f.read_text())]
    assert len(found) >= 10
    assert [f"{name}:{m.lineno}" for name, m in found if not says_something(m)] == []


@pytest.mark.parametrize(
    "code", ['m.waiting("A", "")', 'm.waiting("A", "" + x)', 'm.waiting("A", f"{x}")', 'm.waiting("A", "words")']
)
def test_a_wait_without_words_is_seen(code: str) -> None:
    (message,) = messages(code)
    assert not says_something(message)


# -- Events -----------------------------------------------------------------------------------------------------------


async def test_the_type_of_an_event_is_the_registrys() -> None:
    kube = Written()
    node = {"metadata": {"name": "node-1", "uid": "u-1"}}
    story = [Happening(time=NOW, reason=reason, message="words") for reason in REASONS]
    await tell(cast(Kube, kube), node, MachineRef(cluster="prod", name="m-1", uid="u"), story)
    types = {event["reason"]: event["type"] for event in kube.written}
    assert types == {name: "Warning" if reason.warning else "Normal" for name, reason in REASONS.items()}


class Written:
    """An API server that takes whatever is to be written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def create(self, path: str, body: dict[str, Any]) -> None:
        self.written.append(body)
