"""Nothing that arrives makes a workflow fail its tasks, or its state unreadable (I16).

`HOSTLER_FUZZ=10000` sends that many messages instead of a few hundred; `HOSTLER_FUZZ_SEED` sends others.
"""

from __future__ import annotations

import collections
import inspect
import json
import os
import random
from collections.abc import Callable
from datetime import UTC
from typing import Any, NamedTuple

import pytest
from entitykit import Fuzz, payload
from histories.recorded import (
    CONVERTER,
    HISTORIES,
    Player,
    Tape,
    TaskFailed,
    definition_of,
    in_thread,
    load,
    state,
    tape,
)
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import WorkflowInboundInterceptor

import worker
from resources.names import (
    class_id,
    cluster_id,
    config_pool_id,
    config_rollout_id,
    machine_configs_id,
    machine_id,
    pool_id,
    rollout_id,
)
from resources.orders import too_far_ahead
from resources.sound import unreadable
from workflows import entity, inbound, runner
from workflows.entity import REFUSED_KEPT
from workflows.machine import MachineWorkflow

CASES = int(os.environ.get("HOSTLER_FUZZ", "400"))
SEED = int(os.environ.get("HOSTLER_FUZZ_SEED", "1"))
PARTS, USUAL = 8, 4
"""The cases in parts that run side by side; those after the usual ones run where what is exhaustive does."""
FEW_LIVES = 3
HOWS = ("missing", "extra", "wrong", "extreme", "ahead")
DOORS = ("signal", "update", "query", "start")
TAKES_THE_FUTURE = ("machine-contradicted-pool",)
"""Histories recorded before such numbers were refused, with one in them: their runs go on as they were."""
FAR = "9999-12-31T00:00:00Z"
BAD_IDS = 0.1
"""The share of starts with an id that their argument does not make."""
OWN_IDS: dict[str, Callable[[Any], str]] = {
    "MachineWorkflow": lambda s: machine_id(s.cluster, s.name),
    "MachineDeploymentWorkflow": lambda s: pool_id(s.cluster, s.name),
    "MachineClassWorkflow": lambda s: class_id(s.cluster, s.name),
    "ClusterWorkflow": lambda s: cluster_id(s.name),
    "RolloutWorkflow": lambda s: rollout_id(s.cluster, s.pool, s.revision),
    "MachineConfigsWorkflow": lambda s: machine_configs_id(s.name),
    "MachineConfigPoolWorkflow": lambda s: config_pool_id(s.cluster, s.name),
    "ConfigRolloutWorkflow": lambda s: config_rollout_id(s.cluster, s.pool, s.config),
}
"""Ids of each entity; a sweep may have any."""


TAPES: dict[str, Tape] = {}


async def of(life: str) -> Tape:
    """The tape of a recorded life, made when the first test asks for it."""
    if life not in TAPES:
        TAPES[life] = await tape(life, load(HISTORIES[0].with_name(f"{life}.json")))
    return TAPES[life]


def lives(most: int) -> list[str]:
    """Recorded lives, at most so many of each kind of entity; the seed chooses."""
    kinds: dict[str, list[str]] = collections.defaultdict(list)
    for file in HISTORIES:
        kinds[file.stem.partition("-")[0]].append(file.stem)
    chance = random.Random(SEED)
    return [life for names in kinds.values() for life in chance.sample(names, min(most, len(names)))]


class Case(NamedTuple):
    tape: Tape
    share: float
    door: str
    name: str
    hints: list[Any]
    how: str

    def __str__(self) -> str:
        return f"{self.tape.name} at {self.share:.2f}: {self.how} {self.door} {self.name}"


def cases(tapes: list[Tape], chance: random.Random, count: int) -> list[Case]:
    """So many cases: every message of every entity, in every way, at a point of one of its lives, again and again."""
    kinds: dict[str, list[Tape]] = collections.defaultdict(list)
    for t in tapes:
        kinds[str(t.definition.name)].append(t)
    made: list[Case] = []
    while len(made) < count:
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
    return made[:count]


def run(case: Case, arguments: list[Payload], player: Player) -> None:
    """Raises TaskFailed, or AssertionError where it was not refused, or the state cannot be read."""
    must_be_refused = case.how == "extra" or (bool(case.hints) and case.how in ("missing", "wrong"))
    if case.how == "ahead" and case.door != "query" and case.tape.name not in TAKES_THE_FUTURE:
        must_be_refused = lies_ahead(case, arguments, player)
    if case.door == "start":
        player.start(arguments)
        must_be_refused |= case.share < BAD_IDS and str(case.tape.definition.name) in OWN_IDS
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


def lies_ahead(case: Case, arguments: list[Any], player: Player) -> bool:
    """Whether it lies in the far future, or cannot be read for another reason."""
    try:
        values = CONVERTER.from_payloads(arguments, case.hints)
    except Exception:
        return True
    return bool(too_far_ahead(values, player.last.timestamp.ToDatetime(UTC)))


def id_for(case: Case, arguments: list[Any]) -> str:
    """The id of a start: as its argument makes it, except for some."""
    if case.door != "start" or case.share < BAD_IDS:
        return "foo" if case.door == "start" else ""
    try:
        (state,) = CONVERTER.from_payloads(arguments, case.hints)
        return OWN_IDS[str(case.tape.definition.name)](state)
    except Exception:  # it cannot be read, and is refused for that; or it is a sweep's
        return ""


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


def readable(player: Player) -> None:
    found = state(player)
    assert unreadable(found, type(found)) == ""


def refusals(player: Player) -> str:
    return " | ".join(h.message for h in state(player).journal if h.reason == "Refused")


async def found_wrong(
    most: int, count: int, enough: int = 1000, among: Callable[[int, Case], bool] = lambda n, case: True
) -> dict[str, str]:
    """What is found wrong in this many cases, or in some `among` them, until there is enough. `most`: lives of each
    kind."""
    wrong: dict[str, str] = {}
    tapes = [await of(life) for life in lives(most)]
    for n, case in enumerate(cases(tapes, random.Random(SEED), count)):
        if not among(n, case):
            continue
        chance = random.Random(f"{SEED}/{n}")
        arguments = Fuzz(chance, odd=chance.choice([0.02, 0.1, 1.0])).payloads(case.hints, case.how)
        try:
            await in_thread(case.tape, lambda p, c=case, a=arguments: run(c, a, p), id_for(case, arguments))  # type: ignore[misc]
        except (TaskFailed, AssertionError, ValueError) as e:
            wrong[f"{n}: {case}"] = f"{type(e).__name__}: {str(e)[:300]}"
        if len(wrong) == enough:
            break
    return wrong


@pytest.mark.parametrize(
    "part", [n if n < USUAL else pytest.param(n, marks=pytest.mark.exhaustive) for n in range(PARTS)]
)
async def test_whatever_arrives_is_taken_or_refused_in_words(part: int) -> None:
    """In a few lives of each kind, which take long to replay, or in all where there are more cases."""
    every = part >= USUAL or CASES > 400
    wrong = await found_wrong(len(HISTORIES) if every else FEW_LIVES, CASES, among=lambda n, case: n % PARTS == part)
    assert not wrong, f"{len(wrong)} of {CASES}, e.g. {dict(list(wrong.items())[:20])}"


def lets_through(patch: pytest.MonkeyPatch) -> None:
    """Breaks it: nobody checks what arrives."""
    patch.setattr(runner, "admit", lambda defn, act: None)


def believes(patch: pytest.MonkeyPatch) -> None:
    """Breaks it: whatever fits its type is accepted."""
    patch.setattr(inbound, "fault", lambda value, hint: "")


def has_no_clock(patch: pytest.MonkeyPatch) -> None:
    """Breaks it: a number of the far future is accepted like any other."""
    patch.setattr(inbound, "too_far_ahead", lambda message, now: "")


def stands_aside(patch: pytest.MonkeyPatch) -> None:
    """Breaks it: an error of a handler is left to the SDK."""
    patch.setattr(inbound.Inbound, "handle_signal", WorkflowInboundInterceptor.handle_signal)


# A start that is not refused fails in the SDK's hands, which never awaits what it had begun.
@pytest.mark.filterwarnings("ignore:coroutine '_WorkflowInstanceImpl:RuntimeWarning")
@pytest.mark.parametrize(
    ("saboteur", "door", "how"),
    [
        (lets_through, "update", "extra"),
        (believes, "update", "wrong"),
        (has_no_clock, "signal", "ahead"),
        (stands_aside, "signal", "missing"),
    ],
)
async def test_a_boundary_that_is_not_there_is_seen(
    monkeypatch: pytest.MonkeyPatch,
    saboteur: Callable[[pytest.MonkeyPatch], None],
    door: str,
    how: str,
) -> None:
    """Among the messages that it should have refused."""
    saboteur(monkeypatch)
    assert await found_wrong(FEW_LIVES, 2000, enough=1, among=lambda n, case: (case.door, case.how) == (door, how))


# -- one by one -------------------------------------------------------------------------------------------------------


def signal(name: str, *arguments: bytes, **headers: Any) -> dict[str, Any]:
    inputs = [payload(a) for a in arguments]
    return {"signal_name": name, "input": inputs, "headers": headers, "originating_event_id": 1}


def test_the_types_of_all_arguments_are_known() -> None:
    """The boundary takes their number for the number of a handler's parameters."""
    for each in worker.WORKFLOWS:
        definition = workflow._Definition.must_from_class(each)
        for handler in (*definition.signals.values(), *definition.updates.values(), *definition.queries.values()):
            assert len(inspect.signature(handler.fn).parameters) == 1 + len(handler.arg_types or ()), handler.name


async def test_a_refusal_adds_no_command_and_nobody_forges_one() -> None:
    """No command: so a later worker, which may take the message, replays the history all the same."""

    def play(player: Player) -> None:
        player.play(0.6)
        assert player.send(signal_workflow=signal("delete")) == []
        assert player.send(signal_workflow=signal("no_such", b"{}")) == []
        said = refusals(player)
        assert "signal 'delete' takes one argument, Intent as JSON; it got none" in said
        assert "unknown signal 'no_such'; the signals are apply, delete, renew" in said
        forged = {inbound.HEADER: payload(b"forged")}
        assert player.send(signal_workflow=signal("renew", b"{}", **forged))  # it begins a new run
        assert player.over == "continue_as_new_workflow_execution"

    await in_thread(await of("class-hot-life"), play)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        (
            "undo",
            {"toRevision": 1},
            "UndoIntent has no 'toRevision'; did you mean to?; it has id, requestedBy, reason, to",
        ),
        ("scale", {"replica": 3}, "ScaleIntent has no 'replica'; did you mean replicas?; it has"),
        ("pause", {"requested_by": "a", "raeson": "b"}, "Intent has no 'raeson'; did you mean reason?; it has"),
        ("scale", {"replicas": "3"}, "ScaleIntent: replicas: not a whole number; write it without quotes, like 3"),
        ("undo", {"to": True}, "UndoIntent: to: not a whole number"),
    ],
)
async def test_a_key_that_an_intent_has_not_or_a_value_of_another_type_is_no_intent(
    name: str, given: dict[str, Any], words: str
) -> None:
    """It is refused by either way: without that key it would be another intent, and a person may mean something else by
    the other value."""

    def play(player: Player) -> None:
        player.play(0.6)
        written = json.dumps({"replicas": 3, **given} if name == "scale" else given).encode()
        before = state(player).model_dump(exclude={"journal"})
        player.send(signal_workflow=signal(name, written))
        assert f"signal '{name}': {words}" in refusals(player)
        (rejected,) = updated(player, name, written)
        assert f"update '{name}': {words}" in rejected.rejected.message
        assert state(player).model_dump(exclude={"journal"}) == before

    await in_thread(await of("pool-newer-pool-life"), play)


def updated(player: Player, name: str, written: bytes) -> list[Any]:
    update = {"id": "u", "protocol_instance_id": "u", "name": name, "input": [payload(written)], "run_validator": True}
    return [c.update_response for c in player.send(do_update=update) if c.HasField("update_response")]


async def test_a_program_of_a_newer_release_may_say_more() -> None:
    """A pool may, to its machine, by signal, and so may a watch; a person may not."""

    def play(player: Player) -> None:
        player.play(0.6)
        by_pool = json.dumps({"id": "pool p1", "requestedBy": "pool p1", "newer": True}).encode()
        assert "has no 'newer'" in updated(player, "delete", by_pool)[0].rejected.message
        player.send(signal_workflow=signal("delete", b'{"newer": true}'))
        assert state(player).deletion is None
        node = {**state(player).node.model_dump(mode="json", by_alias=True), "seq": 2**40, "newer": True}
        player.send(signal_workflow=signal("observe", json.dumps(node).encode()))
        assert state(player).node.seq == 2**40
        player.send(signal_workflow=signal("delete", by_pool))
        assert state(player).deletion.requested_by == "pool p1"

    await in_thread(await of("machine-newer-pool-life"), play)


STARTS: dict[str, dict[str, Any]] = {
    "machine-whole-life": {"name": "x", "cluster": "demo", "spec": {"class": {"name": "c"}}},
    "pool-newer-pool-life": {"name": "p", "spec": {"replicas": 1, "template": {"spec": {"class": {"name": "c"}}}}},
    "class-hot-life": {
        "name": "c",
        "machineClass": {"name": "c", "provider": "AWS", "providerSpec": {}, "secretRef": {"name": "s"}},
    },
    "cluster-whole-life": {"name": "demo"},
    "rollout-newer-pool-life": {"pool": "p", "cluster": "demo", "revision": 2},
}


@pytest.mark.parametrize(
    ("life", "argument", "id", "words"),
    [
        ("machine-whole-life", {}, "foo", "as 'foo', but its argument is that of 'machine/demo/x'"),
        ("machine-whole-life", {}, "machine/demo/../x", "but its argument is that of 'machine/demo/x'"),
        ("machine-whole-life", {"name": "../x"}, "machine/demo/../x", "'..' is not a Kubernetes name"),
        ("pool-newer-pool-life", {}, "machinedeployment/other/p", "that of 'machinedeployment/default/p'"),
        ("class-hot-life", {}, "machineclass/c", "that of 'machineclass/default/c'"),
        ("class-hot-life", {"name": "C_1"}, "machineclass/default/C_1", "'C_1' is not a Kubernetes name"),
        ("cluster-whole-life", {}, "demo", "as 'demo', but its argument is that of 'cluster/demo'"),
        ("rollout-newer-pool-life", {}, "rollout/p/2", "that of 'rollout/demo/p/2'"),
    ],
)
async def test_a_start_under_another_id_ends_with_words(
    life: str, argument: dict[str, Any], id: str, words: str
) -> None:
    """Nobody else would find it: all others know a workflow by the id that its argument makes."""

    def play(player: Player) -> None:
        commands = player.start([payload(json.dumps({**STARTS[life], **argument}).encode())])
        assert player.over == "fail_workflow_execution"
        (failed,) = [c.fail_workflow_execution.failure for c in commands if c.HasField("fail_workflow_execution")]
        assert "cannot begin, and owns nothing yet" in failed.message
        assert words in failed.message

    await in_thread(await of(life), play, id)


@pytest.mark.parametrize(
    ("life", "argument", "id", "words"),
    [
        ("machine-whole-life", {"labels": {"a b": ""}}, "machine/demo/x", 'labels: Invalid value: "a b"'),
        (
            "pool-newer-pool-life",
            {"labels": {"a": "b c"}},
            "machinedeployment/default/p",
            'labels.a: Invalid value: "b c"',
        ),
        ("class-hot-life", {"annotations": {"a b": ""}}, "machineclass/default/c", 'annotations: Invalid value: "a b"'),
        (
            "pool-newer-pool-life",
            {"spec": {"replicas": "1", "paused": 1, "template": {"spec": {"class": {"name": "c"}}}}},
            "machinedeployment/default/p",
            "the input of MachineDeploymentWorkflow: PoolState: spec.replicas: not a whole number; write it without "
            "quotes, like 3; spec.paused: write true or false",
        ),
    ],
)
async def test_a_start_with_what_no_api_server_takes_ends_with_words(
    life: str, argument: dict[str, Any], id: str, words: str
) -> None:
    def deed(player: Player) -> None:
        commands = player.start([payload(json.dumps({**STARTS[life], **argument}).encode())])
        (failed,) = [c.fail_workflow_execution.failure for c in commands if c.HasField("fail_workflow_execution")]
        assert f"cannot begin, and owns nothing yet: {words}" in failed.message

    await in_thread(await of(life), deed, id)


def brought(history: WorkflowHistory) -> WorkflowActivation:
    """All that a life was started with and told, as if in one activation."""
    act = WorkflowActivation(run_id="r")
    for event in history.events:
        start, told = (
            event.workflow_execution_started_event_attributes,
            event.workflow_execution_signaled_event_attributes,
        )
        if event.HasField("workflow_execution_started_event_attributes"):
            first = "" if start.continued_execution_run_id else "r"
            act.jobs.add(initialize_workflow={"arguments": start.input.payloads, "first_execution_run_id": first})
        elif event.HasField("workflow_execution_signaled_event_attributes"):
            act.jobs.add(signal_workflow={"signal_name": told.signal_name, "input": told.input.payloads})
    return act


def test_whatever_hostler_sends_has_its_fields_types() -> None:
    """Otherwise its machines would refuse its own words: only what a person types may be of another type."""
    starts, signals = 0, 0
    for file in HISTORIES:
        activation = brought(load(file))
        inbound.admit(definition_of(load(file)), activation)
        for job in activation.jobs:
            told = job.initialize_workflow if job.HasField("initialize_workflow") else job.signal_workflow
            starts, signals = starts + job.HasField("initialize_workflow"), signals + job.HasField("signal_workflow")
            assert inbound.MISTYPED not in told.headers, f"{file.stem}: {told.headers[inbound.MISTYPED].data!r}"
    assert starts > 20
    assert signals > 100


async def test_who_sends_nonsense_without_end_is_named_and_washes_nothing_out() -> None:
    def play(player: Player) -> None:
        player.play(0.6)
        before = len(state(player).journal)
        for n in range(20):
            player.send(signal_workflow={**signal(f"x{n}", b"{}"), "identity": f"{n}@laptop"})
        journal = state(player).journal
        assert len(journal) == before + REFUSED_KEPT
        assert journal[-1].message.startswith("unknown signal 'x19'; the signals are ")
        assert journal[-1].message.endswith("; sent by laptop")
        player.send(signal_workflow=signal("delte", b"{}"))
        assert refusals(player).endswith("unknown signal 'delte'; did you mean delete?")

    await in_thread(await of("machine-whole-life"), play)


@pytest.mark.parametrize(
    ("life", "name", "given", "words"),
    [
        ("cluster-whole-life", "register_pool", "x" * 3000, "name: 3000 characters, of at most 253"),
        ("machine-whole-life", "extend", {"lasts": []}, "lasts: not a duration; write it like 20m, 1h30m or 90s"),
        ("machine-whole-life", "extend", {"until": "soon"}, "until: not a time; write it like 2026-01-31T12:"),
        ("machine-whole-life", "preserve", {"lasts": "87600000h"}, "lasts: longer than 87600h, ten years"),
        ("machine-whole-life", "extend", {"lasts": "87600000h"}, "lasts: longer than 87600h, ten years"),
        ("machine-whole-life", "preserve", {"until": FAR}, "until: 9999-12-31T00:00:00+00:00 is not between"),
        ("machine-whole-life", "extend", {"until": FAR}, "until: 9999-12-31T00:00:00+00:00 is not between"),
    ],
)
async def test_words_name_the_field_and_the_form(life: str, name: str, given: Any, words: str) -> None:
    def play(player: Player) -> None:
        player.play(0.6)
        written = json.dumps(given).encode()
        player.send(signal_workflow=signal(name, written))
        assert words in refusals(player)
        if name in player.tape.definition.updates:
            (rejected,) = updated(player, name, written)
            assert words in rejected.rejected.message

    await in_thread(await of(life), play)


async def test_an_error_of_a_handler_is_a_line_and_the_sdks_own_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(error: Exception) -> None:
        def want_renewal(self: Any) -> str:
            raise error

        monkeypatch.setattr(MachineWorkflow, "want_renewal", want_renewal)

    def play(player: Player) -> None:
        player.play(0.6)
        breaks(OverflowError("date value out of range"))
        player.send(signal_workflow=signal("renew", b"{}"))
        assert "signal 'renew' failed because of an error in Hostler itself" in refusals(player)
        update = {"id": "u", "protocol_instance_id": "u", "name": "renew", "input": [payload(b"{}")]}
        answers = [c.update_response for c in player.send(do_update={**update, "run_validator": True})]
        assert "OverflowError: date value out of range" in answers[-1].rejected.message
        breaks(workflow.NondeterminismError("not the same"))
        with pytest.raises(TaskFailed, match="not the same"):
            player.send(signal_workflow=signal("renew", b"{}"))

    await in_thread(await of("machine-whole-life"), play)


async def test_what_was_refused_is_told_with_the_next_event() -> None:
    def play(player: Player) -> None:
        player.play(0.6)
        for _ in range(2):  # the same again is no news
            assert player.send(signal_workflow=signal("scale", b'{"replicas": "many"}')) == []
        commands = player.send(signal_workflow=signal("preserve", b'{"value": "now"}'))
        calls = [c.schedule_activity for c in commands if c.HasField("schedule_activity")]
        (told,) = [json.loads(c.arguments[0].data) for c in calls if c.activity_type == "tell_node"]
        assert [h["reason"] for h in told["story"]] == ["Refused", "Preserved"]

    await in_thread(await of("machine-whole-life"), play)


async def test_a_state_that_the_next_run_could_not_read_begins_none(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["at: Input should be a valid datetime"]
    monkeypatch.setattr(entity, "unreadable", lambda state, hint: words[0])

    def play(player: Player) -> None:
        player.play(0.6)
        player.send(signal_workflow=signal("renew", b"{}"))
        assert not player.over
        found = state(player)
        assert found.parked == f"ValueError: the next run could not read its state: {words[0]}"
        words[0] = ""
        player.send(signal_workflow=signal("renew", b"{}"))
        assert player.over == "continue_as_new_workflow_execution"

    await in_thread(await of("class-hot-life"), play)


async def test_a_life_that_only_turns_is_parked() -> None:
    """It has a deadline that nobody knows and nobody clears: this once froze the worker."""
    start = {"name": "demo", "deadlines": {"odd": "2020-01-01T00:00:00Z"}}

    def play(player: Player) -> None:
        player.start([payload(json.dumps(start).encode())])
        assert player.over == "continue_as_new_workflow_execution"
        assert "deadlines that have passed: ['odd']" in str(player.handed_over)

    await in_thread(await of("cluster-whole-life"), play, cluster_id("demo"))


async def test_a_summary_is_cut_and_an_id_that_is_too_long_is_refused() -> None:
    assert inbound.brief("drain node-1") == "drain node-1"
    cut = inbound.brief("drain \x1b" + "💥" * 500)
    assert cut.startswith("drain \N{REPLACEMENT CHARACTER}💥")
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= 400
    with pytest.raises(ApplicationError, match="too long"):
        inbound._check_id("task queue", "x" * 1001)
