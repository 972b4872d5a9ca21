"""Nothing that arrives makes a workflow fail its tasks, or its state unreadable (I16).

`HOSTLER_FUZZ=10000` sends so many messages instead of a few hundred; `HOSTLER_FUZZ_SEED` sends others.
"""

from __future__ import annotations

import collections
import inspect
import json
import os
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from inboundkit import CONVERTER, Fuzz, Player, Tape, TaskFailed, in_thread, payload, tape
from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import WorkflowInboundInterceptor
from test_replay import HISTORIES, load

import worker
from resources.sound import unreadable
from workflows import entity, inbound, runner
from workflows.machine import MachineWorkflow

CASES = int(os.environ.get("HOSTLER_FUZZ", "400"))
SEED = int(os.environ.get("HOSTLER_FUZZ_SEED", "1"))
HOWS = ("missing", "extra", "wrong", "extreme")
DOORS = ("signal", "update", "query", "start")


@pytest.fixture(scope="module")
async def tapes() -> list[Tape]:
    return [await tape(file.stem, load(file)) for file in HISTORIES]


class Case(NamedTuple):
    tape: Tape
    share: float
    door: str
    name: str
    hints: list[Any]
    how: str

    def __str__(self) -> str:
        return f"{self.tape.name} at {self.share:.2f}: {self.how} {self.door} {self.name}"


def cases(tapes: list[Tape], chance: random.Random) -> list[Case]:
    """Every message of every entity, in every way, at a point of one of its lives; over and over, up to CASES."""
    kinds: dict[str, list[Tape]] = collections.defaultdict(list)
    for t in tapes:
        kinds[str(t.definition.name)].append(t)
    made: list[Case] = []
    while len(made) < CASES:
        for lives in kinds.values():
            d = lives[0].definition
            messages = [
                *(("signal", name, s.arg_types) for name, s in d.signals.items()),
                *(("update", name, u.arg_types) for name, u in d.updates.items()),
                *(("query", name, q.arg_types) for name, q in d.queries.items()),
                ("start", str(d.name), d.arg_types),
            ]
            for door, name, hints in messages:
                for how in HOWS:
                    made.append(Case(chance.choice(lives), chance.random(), door, str(name), list(hints or ()), how))
    chance.shuffle(made)
    return made[:CASES]


def run(case: Case, fuzz: Fuzz, player: Player) -> None:
    """Raises TaskFailed, or AssertionError where it was not refused, or the state cannot be read."""
    arguments = fuzz.payloads(case.hints, case.how)
    must_be_refused = case.how == "extra" or (bool(case.hints) and case.how != "extreme")
    if case.door == "start":
        player.start(arguments)
        assert player.over == "fail_workflow_execution" or not must_be_refused, "it has begun"
    else:
        player.play(case.share)
        if player.over:
            return
        deliver(case, arguments, player, must_be_refused)
    for _ in range(3):
        if player.over:
            return
        readable(player)
        player.ring()
    if not player.over:
        player.send(signal_workflow={"signal_name": "renew", "input": [payload(b"{}")], "originating_event_id": 1})
    if not player.over:
        readable(player)


def deliver(case: Case, arguments: list[Any], player: Player, must_be_refused: bool) -> None:
    if case.door == "signal":
        player.send(signal_workflow={"signal_name": case.name, "input": arguments, "originating_event_id": 1})
        if must_be_refused:
            assert f"signal {case.name!r}" in refusals(player), "nobody has said so"
    elif case.door == "update":
        update = {"id": "u", "protocol_instance_id": "u", "name": case.name, "input": arguments, "run_validator": True}
        answers = [c.update_response for c in player.send(do_update=update) if c.HasField("update_response")]
        assert len(answers) >= 1
        if must_be_refused:
            assert f"update {case.name!r}" in answers[0].rejected.message, answers
    else:
        answer = player.query(case.name, *arguments)
        assert answer.HasField("failed") or not must_be_refused
        if must_be_refused:
            assert f"query {case.name!r}" in answer.failed.message


def state(player: Player) -> Any:
    answer = player.query("describe")
    assert answer.HasField("succeeded"), answer.failed.message
    hint = player.tape.definition.arg_types
    assert hint
    (found,) = CONVERTER.from_payloads([answer.succeeded.response], hint)
    return found


def readable(player: Player) -> None:
    found = state(player)
    assert unreadable(found, type(found)) == ""


def refusals(player: Player) -> str:
    return " | ".join(h.message for h in state(player).journal if h.reason == "Refused")


async def found_wrong(tapes: list[Tape], count: int) -> dict[str, str]:
    wrong: dict[str, str] = {}
    for n, case in enumerate(cases(tapes, random.Random(SEED))[:count]):
        chance = random.Random(f"{SEED}/{n}")
        fuzz = Fuzz(chance, odd=chance.choice([0.02, 0.1, 1.0]))
        try:
            await in_thread(case.tape, lambda p, c=case, f=fuzz: run(c, f, p))  # type: ignore[misc]
        except (TaskFailed, AssertionError, ValueError) as e:
            wrong[f"{n}: {case}"] = f"{type(e).__name__}: {str(e)[:300]}"
    return wrong


async def test_whatever_arrives_is_taken_or_refused_in_words(tapes: list[Tape]) -> None:
    wrong = await found_wrong(tapes, CASES)
    assert not wrong, f"{len(wrong)} of {CASES}, e.g. {dict(list(wrong.items())[:20])}"


def lets_through(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at what arrives."""
    patch.setattr(runner, "admit", lambda defn, act: None)


def believes(patch: pytest.MonkeyPatch) -> None:
    """What fits its type is taken."""
    patch.setattr(inbound, "fault", lambda value, hint: "")


def stands_aside(patch: pytest.MonkeyPatch) -> None:
    """An error of a handler is the SDK's affair."""
    patch.setattr(inbound.Inbound, "handle_signal", WorkflowInboundInterceptor.handle_signal)


# A start that is not refused fails in the SDK's hands, which never awaits what it had begun.
@pytest.mark.filterwarnings("ignore:coroutine '_WorkflowInstanceImpl:RuntimeWarning")
@pytest.mark.parametrize("saboteur", [lets_through, believes, stands_aside])
async def test_a_boundary_that_is_not_there_is_seen(
    tapes: list[Tape], monkeypatch: pytest.MonkeyPatch, saboteur: Callable[[pytest.MonkeyPatch], None]
) -> None:
    saboteur(monkeypatch)
    assert await found_wrong(tapes, 150)


# -- one by one -------------------------------------------------------------------------------------------------------


def of(tapes: list[Tape], name: str) -> Tape:
    return next(t for t in tapes if t.name == name)


def signal(name: str, *arguments: bytes, **headers: Any) -> dict[str, Any]:
    inputs = [payload(a) for a in arguments]
    return {"signal_name": name, "input": inputs, "headers": headers, "originating_event_id": 1}


def test_the_types_of_all_arguments_are_known() -> None:
    """The boundary takes their number for that of a handler's parameters."""
    for each in worker.WORKFLOWS:
        definition = workflow._Definition.must_from_class(each)
        for handler in (*definition.signals.values(), *definition.updates.values(), *definition.queries.values()):
            assert len(inspect.signature(handler.fn).parameters) == 1 + len(handler.arg_types or ()), handler.name


async def test_a_refusal_adds_no_command_and_nobody_forges_one(tapes: list[Tape]) -> None:
    """No command: so a later worker, which may take the message, replays the history all the same."""

    def deed(player: Player) -> None:
        player.play(0.6)
        assert player.send(signal_workflow=signal("delete")) == []
        assert player.send(signal_workflow=signal("no_such", b"{}")) == []
        said = refusals(player)
        assert "signal 'delete' takes one argument, Intent as JSON; it came with none" in said
        assert "there is no signal 'no_such'" in said
        forged = {inbound.HEADER: payload(b"forged")}
        assert player.send(signal_workflow=signal("renew", b"{}", **forged))  # it begins a new run
        assert player.over == "continue_as_new_workflow_execution"

    await in_thread(of(tapes, "class-hot-life"), deed)


async def test_an_error_of_a_handler_is_a_line_and_the_sdks_own_is_none(
    tapes: list[Tape], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(error: Exception) -> None:
        def want_renewal(self: Any) -> str:
            raise error

        monkeypatch.setattr(MachineWorkflow, "want_renewal", want_renewal)

    def deed(player: Player) -> None:
        player.play(0.6)
        breaks(OverflowError("date value out of range"))
        player.send(signal_workflow=signal("renew", b"{}"))
        assert "signal 'renew' failed by an error of Hostler's own" in refusals(player)
        update = {"id": "u", "protocol_instance_id": "u", "name": "renew", "input": [payload(b"{}")]}
        answers = [c.update_response for c in player.send(do_update={**update, "run_validator": True})]
        assert "OverflowError: date value out of range" in answers[-1].rejected.message
        breaks(workflow.NondeterminismError("not the same"))
        with pytest.raises(TaskFailed, match="not the same"):
            player.send(signal_workflow=signal("renew", b"{}"))

    await in_thread(of(tapes, "machine-whole-life"), deed)


async def test_what_was_refused_is_told_with_the_next_event(tapes: list[Tape]) -> None:
    def deed(player: Player) -> None:
        player.play(0.6)
        for _ in range(2):  # the same again is no news
            assert player.send(signal_workflow=signal("scale", b'{"replicas": "many"}')) == []
        commands = player.send(signal_workflow=signal("preserve", b'{"value": "now"}'))
        calls = [c.schedule_activity for c in commands if c.HasField("schedule_activity")]
        (told,) = [json.loads(c.arguments[0].data) for c in calls if c.activity_type == "tell_node"]
        assert [h["reason"] for h in told["story"]] == ["Refused", "Preserved"]

    await in_thread(of(tapes, "machine-whole-life"), deed)


async def test_a_state_that_the_next_run_could_not_read_begins_none(
    tapes: list[Tape], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["at: Input should be a valid datetime"]
    monkeypatch.setattr(entity, "unreadable", lambda state, hint: words[0])

    def deed(player: Player) -> None:
        player.play(0.6)
        player.send(signal_workflow=signal("renew", b"{}"))
        assert not player.over
        found = state(player)
        assert found.parked == f"ValueError: the next run could not read its state: {words[0]}"
        words[0] = ""
        player.send(signal_workflow=signal("renew", b"{}"))
        assert player.over == "continue_as_new_workflow_execution"

    await in_thread(of(tapes, "class-hot-life"), deed)


async def test_a_life_that_only_turns_is_parked(tapes: list[Tape]) -> None:
    """A deadline that nobody knows, and nobody clears: once it froze the worker."""
    start = {"name": "demo", "deadlines": {"odd": "2020-01-01T00:00:00Z"}}

    def deed(player: Player) -> None:
        player.start([payload(json.dumps(start).encode())])
        assert player.over == "continue_as_new_workflow_execution"
        assert "deadlines that have passed: ['odd']" in str(player.handed_over)

    await in_thread(of(tapes, "cluster-whole-life"), deed)


async def test_a_summary_is_cut_and_an_id_that_is_too_long_is_refused() -> None:
    assert inbound.brief("drain node-1") == "drain node-1"
    cut = inbound.brief("drain \x1b" + "💥" * 500)
    assert cut.startswith("drain \N{REPLACEMENT CHARACTER}💥")
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= 400
    with pytest.raises(ApplicationError, match="too long"):
        inbound._check_id("task queue", "x" * 1001)
