"""HostlerClient and what it is made of, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli.place import Place, class_yaml, eventually, impatient, machine_yaml, place, secret_yaml, text, working
from cli.standins import BECOMES, BLOCKER, DRAINS, REFUSES, UPDATE_FAILS
from paths import ROOT
from temporalio.api.enums.v1 import PendingActivityState, TimeoutType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from resources.intents import Intent
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassState
from resources.manifests import AnyManifest, Secret, load_manifests
from resources.names import machine_id
from resources.settings import Settings, load_settings
from starter.commands.machine_page import page
from starter.output import Busy, Table, age, dump, fields, moment
from starter.sdk import intents
from starter.sdk.apply import sources
from starter.sdk.apply.classes import ClassPlan
from starter.sdk.client import HostlerClient
from starter.sdk.errors import (
    HostlerError,
    Interrupted,
    NoAnswer,
    NotFound,
    Refused,
    Unreachable,
    WaitTimeout,
    translated,
)
from starter.sdk.live import pending_of
from starter.sdk.results import Verb

__all__ = ["impatient", "place", "working"]  # fixtures

SDK = ROOT / "docs" / "sdk.md"


def parsed(*documents: dict[str, Any]) -> list[AnyManifest]:
    loaded = load_manifests(text(*documents), "test")
    return [*loaded.secrets, *loaded.classes, *loaded.machines]


def client_of(place: Place, **more: Any) -> HostlerClient:
    return HostlerClient(place.client, load_settings(place.settings_file), requested_by="tester", **more)


@pytest.fixture
async def hostler(working: Place) -> HostlerClient:
    return client_of(working)


async def used_by(hostler: HostlerClient, name: str, *machines: str) -> bool:
    """Whether the class knows exactly these users."""
    return set((await hostler.classes.get(name)).users) == set(machines)


# -- the documented example -------------------------------------------------------------------------------------------


async def test_the_documented_example(
    working: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", SDK.read_text(), re.DOTALL)
    (working.folder / "machine.yaml").write_text(text(secret_yaml("canary"), class_yaml(), machine_yaml()))
    monkeypatch.chdir(working.folder)
    for name, value in working.environment().items():
        if name.startswith("HOSTLER_"):
            monkeypatch.setenv(name, value)
    # In a thread: the example has an event loop of its own, and the worker needs ours.
    await asyncio.to_thread(exec, compile(example, str(SDK), "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    for words in ("secret/s1 created", "machine/m1 created", "node-m1 aws:///eu-west-1/i-m1", "will drain", "uid="):
        assert words in printed
    assert "DeleteAsked" not in printed  # the events were told before
    assert "canary" not in printed


# -- apply ------------------------------------------------------------------------------------------------------------


async def test_generations_count_changes_of_the_class_only(hostler: HostlerClient) -> None:
    async def generation() -> int:
        snapshot = (await hostler.get("m1")).machine_class
        assert snapshot is not None
        return snapshot.generation

    async def reaches(expected: int) -> bool:
        return await generation() == expected

    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    assert await generation() == 1
    await eventually(lambda: used_by(hostler, "c1", "m1"), "word of the machine")
    changes: list[tuple[list[dict[str, Any]], Verb, int]] = [
        ([class_yaml(), machine_yaml()], Verb.UNCHANGED, 1),
        ([class_yaml(), machine_yaml(colour="red")], Verb.CONFIGURED, 1),
        ([class_yaml(team="b"), machine_yaml(colour="red")], Verb.CONFIGURED, 2),
        ([{**class_yaml(team="b"), "secretRef": {"name": "s2"}}, machine_yaml(colour="red")], Verb.CONFIGURED, 3),
        ([class_yaml("c2", team="b"), machine_yaml(machine_class="c2", colour="red")], Verb.CONFIGURED, 1),
        ([machine_yaml(machine_class="c2", colour="red")], Verb.UNCHANGED, 1),
        ([machine_yaml(machine_class="c1", colour="red")], Verb.CONFIGURED, 3),  # the class need not be in the files
    ]
    for manifests, verb, expected in changes:
        applied = (await hostler.apply(*parsed(*manifests)))[-1]
        assert applied.verb == verb, manifests
        await eventually(lambda expected=expected: reaches(expected), f"generation {expected}")  # by its class
    with pytest.raises(Refused, match=r"not applied before; the machine has another one \(c1\)"):
        await hostler.apply(*parsed(machine_yaml(machine_class="c3")))


async def test_two_who_start_the_same_machine_make_one(hostler: HostlerClient) -> None:
    """Both plans saw no machine; the later start tells the existing machine instead of failing or starting another."""
    first = await hostler.plan(*parsed(class_yaml(), machine_yaml()))
    second = await hostler.plan(*parsed(class_yaml(), machine_yaml(colour="red")))
    assert [a.verb async for a in first.execute() if a.kind == "machine"] == [Verb.CREATED]
    assert [a.verb async for a in second.execute() if a.kind == "machine"] == [Verb.CONFIGURED]
    assert (await hostler.get("m1")).labels == {"colour": "red"}


async def test_one_that_fails_does_not_hold_up_the_others(hostler: HostlerClient) -> None:
    await hostler.apply(*parsed(class_yaml(), machine_yaml("m1"), machine_yaml("m2")))
    plan = await hostler.plan(*parsed(machine_yaml("m1", a="b"), machine_yaml("m2", a="b")))
    await hostler.temporal.get_workflow_handle(machine_id(hostler.cluster, "m1")).terminate()
    done = []

    async def execute() -> None:
        async for applied in plan.execute():
            done.append(applied.name)

    with pytest.raises(Refused, match=r"^machine m1 is gone$"):
        await execute()
    assert done == ["m2"]


@pytest.mark.parametrize(
    ("has", "tags", "expected"),
    [(1, {"team": "a"}, 2), (2, {"team": "b"}, 2), (2, {"team": "a"}, 3), (7, {"team": "b"}, 7), (7, {"team": "a"}, 8)],
)
def test_a_machine_never_takes_a_class_for_old_news(has: int, tags: dict[str, str], expected: int) -> None:
    """It may have a generation of a former class of this name; the class is generation 2, with the tag team=b."""
    (machine,) = load_manifests(text(machine_yaml()), "test").machines
    (former,) = load_manifests(text(class_yaml(**tags)), "test").classes
    (manifest,) = load_manifests(text(class_yaml(team="b")), "test").classes
    state = MachineState(name="m1", spec=machine.spec, machine_class=ClassSnapshot.of(former, has))
    plan = ClassPlan("c1", "demo", Verb.CONFIGURED, ClassSnapshot.of(manifest, 2))
    taken = plan.for_user(state.machine_class)
    assert (taken.generation, taken.provider_spec["vmTags"]) == (expected, {"team": "b"})


async def test_waiting_until_every_machine_has_the_newest_class(hostler: HostlerClient) -> None:
    await hostler.apply(*parsed(class_yaml(), machine_yaml("m1"), machine_yaml("m2", **{UPDATE_FAILS: "yes"})))
    await eventually(lambda: used_by(hostler, "c1", "m1", "m2"), "word of both machines")
    assert (await hostler.classes.wait("c1")).generation == 1
    changed = load_manifests(text(class_yaml(team="b")), "test").classes[0]
    preview = await hostler.classes.preview("c1", ClassSnapshot.of(changed))
    assert (preview.hot, preview.rolls, preview.refused) == (["vmTags"], [], [])
    applied = (await hostler.apply(changed))[-1]
    assert str(applied) == "machineclass/c1 configured: generation 2: hot update of vmTags; 2 machines to tell"

    async def failed() -> bool:
        return "m2" in (await hostler.classes.get("c1")).troubles

    await eventually(failed, "the failure of m2")
    looks: list[int] = []

    async def progress(state: ClassState) -> None:
        looks.append(state.last_updated_generation)

    with pytest.raises(
        WaitTimeout, match=r"generation 2 has not reached every machine in time: 1 machine \(m2\) failed"
    ):
        await hostler.classes.wait("c1", timeout=timedelta(0), progress=progress)
    assert looks == [1]
    await hostler.apply(*parsed(machine_yaml("m2")))  # it no longer fails
    await hostler.apply(load_manifests(text(class_yaml(team="c")), "test").classes[0])
    assert (await hostler.classes.wait("c1")).last_updated_generation == 3
    for missing in (hostler.classes.get("c9"), hostler.classes.delete("c9"), hostler.classes.renew("c9")):
        with pytest.raises(NotFound, match=r"class 'c9' of cluster .* is not known"):
            await missing


# -- intents ----------------------------------------------------------------------------------------------------------


class Deaf:
    """A handle whose updates arrive, while their answers never do."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.signals = 0
        self.update: asyncio.Task[Any]

    async def execute_update(self, *args: Any, **kwargs: Any) -> Any:
        self.update = asyncio.create_task(self._handle.execute_update(*args, **kwargs))
        await asyncio.Event().wait()

    async def signal(self, *args: Any) -> None:
        self.signals += 1
        await self._handle.signal(*args)


async def test_an_intent_that_arrives_twice_counts_once(
    hostler: HostlerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "UPDATE_TIMEOUT", 0.3)
    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    handle = Deaf(hostler.temporal.get_workflow_handle(machine_id(hostler.cluster, "m1")))
    intent = Intent(id=intents.new_id(), requested_by="tester")
    before = await hostler.get("m1")
    sent = await intents.send(handle, "renew", intent, "q", "machine m1")
    assert (sent.recorded, handle.signals) == (True, 1)
    assert (await handle.update).message == "continues in a new run"

    async def renewed() -> bool:
        return "ContinuedAsNew" in [e.reason for e in await hostler.events("m1")]

    await eventually(renewed, "the renewal")
    await hostler.renew("m1", reason="another")  # whatever the second arrival did is done before this one

    async def again() -> bool:
        told = await hostler.events("m1")
        return [e.reason for e in told[-2:]] == ["ContinuedAsNew", "Running"] and "another" in told[-3].message

    await eventually(again, "the second renewal")
    reasons = [e.reason for e in await hostler.events("m1")]
    assert (reasons.count("RenewAsked"), reasons.count("ContinuedAsNew")) == (2, 2)
    assert (await hostler.get("m1")).uid == before.uid


async def test_refusals_and_ends(hostler: HostlerClient) -> None:
    await hostler.apply(*parsed(class_yaml(), machine_yaml("held", **{REFUSES: "yes"}), machine_yaml("free")))
    with pytest.raises(Refused, match=r"^a hook of alice holds it; use --force$"):
        await hostler.delete("held")
    with pytest.raises(NotFound, match=r"'ghost'.*is not known"):
        await hostler.delete("ghost")
    with pytest.raises(Refused, match="is not a name"):
        await hostler.delete("free' OR 1=1")
    assert not (await hostler.delete("free")).recorded
    await hostler.wait("free", "deleted")
    assert (await hostler.delete("free")).gone
    with pytest.raises(NotFound, match="is gone since"):
        await hostler.renew("free")
    with pytest.raises(NotFound, match="is gone since"):
        await hostler.get("free")
    with pytest.raises(Refused, match=r"is gone since .* it never became Running"):
        await hostler.wait("free", "Running")


async def test_waiting_for_the_end_is_not_misled_by_a_new_life(hostler: HostlerClient) -> None:
    """A new machine that has taken the name is not the one that is waited for."""
    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    looked = asyncio.Event()

    async def look(_: object) -> None:
        looked.set()

    waiting = asyncio.create_task(hostler.wait("m1", "deleted", progress=look))
    await looked.wait()
    await hostler.delete("m1")
    await hostler.temporal.get_workflow_handle(machine_id(hostler.cluster, "m1")).result()
    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    life = await asyncio.wait_for(waiting, 30)
    assert life.first_run_id != ""
    assert (await hostler.life("m1")).running


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_events_reach_over_runs(hostler: HostlerClient) -> None:
    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    await hostler.wait("m1", "Running")
    for reason in ("one", "two"):
        await hostler.renew("m1", reason=reason)

        async def renewed(reason: str = reason) -> bool:
            return (
                sum(e.reason == "ContinuedAsNew" for e in await hostler.events("m1"))
                == ["one", "two"].index(reason) + 1
            )

        await eventually(renewed, reason)
    events = await hostler.events("m1")
    assert [e.reason for e in events] == [
        *("Started", "Created", "Running"),
        *("RenewAsked", "ContinuedAsNew", "Running") * 2,
    ]
    assert [e.message for e in events if e.reason == "RenewAsked"] == [
        f"renew asked by tester: {reason}" for reason in ("one", "two")
    ]


@pytest.mark.parametrize(
    ("mode", "failure"), [("blocked", BLOCKER), ("silent", f"its worker went silent; before: {BLOCKER}")]
)
async def test_what_it_waits_for_outside(hostler: HostlerClient, mode: str, failure: str) -> None:
    await hostler.apply(*parsed(class_yaml(), machine_yaml(**{DRAINS: mode})))

    async def failed() -> Any:
        (pending,) = (await hostler.life("m1")).pending or (None,)
        return pending if pending and pending.last_failure else None

    pending = await eventually(failed, "a failed attempt")
    assert (pending.type, pending.last_failure, pending.running) == ("drain_node", failure, False)
    assert pending.next_try > datetime.now(UTC)
    shown = "\n".join(page(await hostler.describe("m1"), datetime.now(UTC)))
    assert re.search(rf"Seen last: +{re.escape(failure)}\n", shown)
    assert re.search(r"drain_node +2 +in \d+m +as above", shown)


@pytest.mark.parametrize(
    ("beat", "running", "shown"),
    [
        (11, True, ""),  # another worker has taken it up, and says so
        (10, True, "its worker went silent"),  # it has not said a word yet
        (9, True, "its worker went silent"),
        (11, False, "its worker went silent"),
    ],
)
async def test_a_silence_that_is_over_is_not_shown(beat: int, running: bool, shown: str) -> None:
    state = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED if running else 1
    info = PendingActivityInfo(activity_type={"name": "watch_nodes"}, attempt=2, state=state)
    info.last_started_time.FromSeconds(10)
    info.last_heartbeat_time.FromSeconds(beat)
    info.last_failure.timeout_failure_info.timeout_type = TimeoutType.TIMEOUT_TYPE_HEARTBEAT
    (pending,) = await pending_of(
        SimpleNamespace(
            raw_description=SimpleNamespace(pending_activities=[info]), data_converter=DataConverter.default
        )
    )
    assert pending.last_failure == shown


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker(place: Place) -> None:
    hostler = client_of(place)
    await hostler.apply(*parsed(class_yaml(), machine_yaml()))
    with pytest.raises(NoAnswer, match=f"nobody polls {place.queue}"):
        await hostler.get("m1")
    sent = await hostler.delete("m1", reason="early", force=True, abandon_node=True)
    assert sent.recorded
    found = await hostler.describe("m1")
    assert found.state is not None
    assert found.state.deletion is not None
    deletion = found.state.deletion
    assert (deletion.reason, deletion.force, deletion.abandon_node) == ("early", True, True)
    assert [e.reason for e in await hostler.events("m1")] == ["Started", "DeleteAsked"]
    async with place.worker():
        await hostler.wait("m1", "deleted")
    found = await hostler.describe("m1")
    assert (found.state, found.result is not None, found.no_answer) == (None, True, "")


async def test_a_worker_that_left_is_named(place: Place) -> None:
    hostler = client_of(place)
    async with place.worker():
        await hostler.apply(*parsed(class_yaml(), machine_yaml()))
        await hostler.wait("m1")
    found = await hostler.describe("m1")
    assert re.search(rf"nobody polls {place.queue}.*\(last poll at \d\d:\d\d:\d\d UTC by ", found.no_answer)
    shown = page(found, datetime.now(UTC))
    assert next(line for line in shown if line.startswith("Phase:")).split() == ["Phase:", "Running"]


async def test_lists_are_filtered(hostler: HostlerClient) -> None:
    await hostler.apply(
        *parsed(class_yaml(), class_yaml("c2"), machine_yaml("a"), machine_yaml("b", "c2", **{BECOMES: "Failed"}))
    )

    async def names(**where: Any) -> list[str]:
        return [m.name for m in await hostler.list(**where)]

    async def both() -> bool:
        return await names() == ["a", "b"] and await names(phase=Phase.FAILED) == ["b"]

    await eventually(both, "visibility")
    assert await names(machine_class="c2") == ["b"]
    assert await names(cluster="another") == []


# -- secrets ----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def directory(folder: Path) -> AsyncIterator[sources.SecretSource]:
    settings = Settings(secrets={"source": "directory", "directory": str(folder)})
    async with sources.open_source(settings) as source:
        yield source


def secret(name: str = "s1", namespace: str = "default", **values: str) -> Secret:
    return Secret.model_validate({"metadata": {"name": name, "namespace": namespace}, "stringData": values})


async def test_secrets_in_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "secrets" / "default" / "s1"
    async with directory(tmp_path / "secrets") as source:
        for values, verb in (
            ({"a": "1", ".dockerconfigjson": "2"}, Verb.CREATED),
            ({"a": "1", ".dockerconfigjson": "2"}, Verb.UNCHANGED),
            ({"a": "3"}, Verb.CONFIGURED),
        ):
            assert await source.compare(secret(**values)) is verb
            assert await source.write(secret(**values)) is verb
            assert {p.name: p.read_text() for p in folder.iterdir()} == values
        assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o600
        for bad in (secret(namespace="../../up"), secret(**{"../up": "x"}), secret(**{"..": "x"})):
            with pytest.raises(Refused, match=r"is not a (key|namespace)"):
                await source.write(bad)
    assert os.listdir(tmp_path) == ["secrets"]


def test_the_environment_cannot_be_written_to() -> None:
    with pytest.raises(Refused, match="set the variables where the worker runs"):
        sources.open_source(Settings(secrets={"source": "environment"}))


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "error", "words"),
    [
        (RPCStatusCode.UNAVAILABLE, "tcp connect error", Interrupted, "no longer answers"),
        (RPCStatusCode.NOT_FOUND, "Namespace x is not found.", Unreachable, "TEMPORAL_NAMESPACE"),
        # What the dev server says to a start and to a list without the attributes.
        (RPCStatusCode.INVALID_ARGUMENT, "no mapping defined for search attribute X", Refused, "hostler setup"),
        (RPCStatusCode.INVALID_ARGUMENT, "invalid query: invalid search attribute: X", Refused, "hostler setup"),
        (RPCStatusCode.UNAUTHENTICATED, "no", Refused, "API key"),
        (RPCStatusCode.INTERNAL, "odd", HostlerError, "INTERNAL: odd"),
    ],
)
def test_errors_of_temporal_in_words(
    status: RPCStatusCode, message: str, error: type[HostlerError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised, translated():
        raise RPCError(message, status, b"")
    assert type(raised.value) is error


# -- how things look --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    # The rows of apimachinery's duration_test.go (HumanDuration).
    [
        *((-5, "0s"), (0, "0s"), (70, "70s"), (119, "119s"), (120, "2m"), (190, "3m10s"), (599, "9m59s"), (600, "10m")),
        *((10_799, "179m"), (10_800, "3h"), (11_700, "3h15m"), (28_740, "7h59m"), (28_800, "8h"), (172_799, "47h")),
        *((172_800, "2d"), (187_200, "2d4h"), (691_199, "7d23h"), (691_200, "8d"), (34_560_000, "400d")),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert age(timedelta(seconds=seconds)) == text


def test_tables_fields_and_documents() -> None:
    table = Table(("NAME", "PHASE"))
    assert table.lines([("m1", "CrashLoopBackOff")]) == ["NAME   PHASE", "m1     CrashLoopBackOff"]
    assert table.lines([("machine-2", "Running")], header=False) == ["machine-2   Running"]
    assert fields([("A", "x\ny"), ("Empty", ""), ("Long", "z")]) == ["A:     x", "       y", "Long:  z"]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert moment(now + timedelta(minutes=5), now) == "2026-01-01 00:05:00 UTC (in 5m)"
    assert moment(now - timedelta(seconds=5), now) == "2025-12-31 23:59:55 UTC (5s ago)"
    assert dump([{"kind": "A", "name": "ü"}], "yaml", single=True) == "kind: A\nname: ü"
    assert dump([], "yaml", single=False) == "apiVersion: v1\nkind: List\nitems: []"


async def test_silence_is_broken_after_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    async with Busy("quick"):
        pass
    async with Busy("slow") as busy:
        await eventually(lambda: _said(capsys), "progress")
        busy.say("done")
    assert capsys.readouterr().out == "done\n"


async def _said(capsys: pytest.CaptureFixture[str]) -> bool:
    return capsys.readouterr().err == "slow\n"
