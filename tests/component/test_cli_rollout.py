"""`hostler rollout`, with the real pool and the real rollout's story; their machines are played."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cli.place import (
    DEADLINE,
    HOSTLER,
    Place,
    Ran,
    class_yaml,
    eventually,
    impatient,
    machine_yaml,
    offered,
    place,
    text,
)
from cli.standins import BECOMES
from pools.behind_cli import Machines, played, pool_yaml

from resources import starts
from resources.machine.manifest import Machine
from resources.machine.state import MachineState, Phase
from resources.reasons import next_step
from resources.settings import load_settings
from starter.commands import candidates as completion
from starter.doctor import waiting
from starter.sdk.client import HostlerClient

__all__ = ["impatient", "place"]  # fixtures


# -- with a pool that rolls -------------------------------------------------------------------------------------------


@pytest.fixture
async def machines(place: Place) -> AsyncIterator[Machines]:
    async with played(place) as machines:
        yield machines


async def apply(place: Place, ami: str = "ami-1", **spec: Any) -> str:
    return (await place.run("apply", "-f", "-", stdin=text(class_yaml(ami=ami), pool_yaml(**spec)))).ok()


async def rolled_out(place: Place, **spec: Any) -> None:
    """Waits until the first revision is there."""
    await apply(place, **spec)
    shown = (await place.run("rollout", "status", "p1")).ok()
    assert shown.splitlines()[-1] == "pool p1 is rolled out: revision 1, 3 of 3 machines available"


async def status(place: Place, *words: str) -> Ran:
    return await place.run("rollout", "status", "p1", "--no-watch", *words)


async def waits_by(place: Place, reason: str) -> Ran:
    async def shown() -> Ran | None:
        ran = await status(place)
        return ran if reason in ran.out else None

    found: Ran = await eventually(shown, f"a pool that waits by {reason}")
    return found


async def test_a_rollout_is_followed_to_its_end(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    machines.slow.add(2)
    assert "revision 2 replaces 3 machines" in (await place.run("rollout", "restart", "pool/p1")).ok()
    shown = await waits_by(place, "NewMachinesNotReady")
    assert shown.code == 0, "it continues on its own"
    assert "RolledOut: Created 1 machine of revision 2: 3 of 4 allowed (replicas 3 + maxSurge 1)" in shown.out
    late = await place.run("rollout", "status", "p1", "--timeout", "10ms")
    assert late.code == 1
    assert "the rollout of pool p1 is not complete after" in late.err
    assert "NewMachinesNotReady: Waiting for 1 of 1 machines of revision 2" in late.err

    follower = asyncio.create_task(place.run("rollout", "status", "machinedeployment/p1", "--timeout", "10m"))
    machines.slow.clear()
    await machines.join(2)
    lines = (await follower).ok().splitlines()
    reasons = [m[1] for line in lines if (m := re.fullmatch(r"\d\d:\d\d:\d\dZ p1: (\w+): .*", line))]
    assert [r for r in reasons if r != "RolloutMarks"] == ["RolledOut", "Replaced"] * 3
    assert lines[-1] == "pool p1 is rolled out: revision 2, 3 of 3 machines available"
    assert {m.revision for m in machines.there.values()} == {2}
    assert not machines.marked & machines.there.keys()


async def test_a_rollout_that_waits_names_the_machines_that_it_waits_for(place: Place, machines: Machines) -> None:
    """The reason of a wait is written on the machines; those that leave are not waited for."""
    await rolled_out(place)
    machines.slow.add(2)
    (await place.run("rollout", "restart", "p1")).ok()
    for name, phase, of in (
        ("p1-a", Phase.FAILED, "p1"),
        ("p1-b", Phase.TERMINATING, "p1"),
        ("p2-a", Phase.FAILED, "p2"),
    ):
        await played_machine(place, name, phase, of)

    async def shown() -> str | None:
        ran = await status(place)
        listed = f"p1-a:  {Phase.FAILED} Playing" in ran.out and f"p1-b:  {Phase.PENDING}" not in ran.out
        return ran.out if listed else None

    page = await eventually(shown, "the machines as lists show them by now")
    assert f"Not available (hostler describe machine NAME --cluster {place.cluster}):\n  p1-a:" in page
    assert "p1-b" not in page
    assert "p2-a" not in page
    late = await place.run("rollout", "status", "p1", "--timeout", "10ms")
    assert f"p1: p1-a is Failed: Playing: plays {Phase.FAILED}\n" in late.out


async def played_machine(place: Place, name: str, phase: Phase, pool: str, revision: int = 0) -> None:
    """A machine's workflow that describes itself this way."""
    manifest = Machine.model_validate(machine_yaml(name))
    state = MachineState(
        name=name,
        cluster=place.cluster,
        spec=manifest.spec,
        labels={BECOMES: phase},
        queue_prefix=place.queue,
        pool=pool,
        revision=revision,
    )
    started = starts.of_machine(state, reason="Playing", created=datetime.now(UTC))
    await place.client.start_workflow("MachineWorkflow", state, **started)


async def test_a_paused_rollout_stands_until_somebody_resumes_it(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    (await place.run("rollout", "pause", "p1", "--reason", "a look first")).ok()
    (await place.run("rollout", "restart", "p1")).ok()
    stands = await place.run("rollout", "status", "p1")
    assert stands.code == 1
    assert "error: the rollout of pool p1 is blocked: RolloutPaused: " in stands.err
    assert f"error: what can be done: {next_step('RolloutPaused', place.cluster, 'p1', 'pool')}" in stands.err
    once = await status(place)
    assert (once.code, "Rollout:   blocked" in once.out) == (1, True)
    assert {m.revision for m in machines.there.values()} == {1}
    assert "continues" in (await place.run("rollout", "resume", "p1")).ok()
    (await place.run("rollout", "status", "p1")).ok()
    assert {m.revision for m in machines.there.values()} == {2}


async def test_a_canary_waits_for_a_person(place: Place, machines: Machines) -> None:
    await rolled_out(place, rollingUpdate={"pauseAfter": 1})
    (await place.run("rollout", "restart", "p1")).ok()
    stands = await place.run("rollout", "status", "p1")
    assert (stands.code, "Canary: 1 of 3 machines are of revision 2 (pauseAfter 1)" in stands.err) == (1, True)
    assert sorted(m.revision for m in machines.there.values()) == [1, 1, 2]
    (await place.run("rollout", "resume", "p1")).ok()
    (await place.run("rollout", "status", "p1")).ok()
    assert sorted(m.revision for m in machines.there.values()) == [2, 2, 2]


async def test_a_canary_that_is_undone_goes_away(place: Place, machines: Machines) -> None:
    await rolled_out(place, rollingUpdate={"pauseAfter": 1})
    good = set(machines.there)
    (await place.run("rollout", "restart", "p1")).ok()
    assert (await place.run("rollout", "status", "p1")).code == 1
    left = good & machines.there.keys()
    (await place.run("rollout", "undo", "p1")).ok()
    shown = (await place.run("rollout", "status", "p1")).ok()
    assert shown.splitlines()[-1] == "pool p1 is rolled out: revision 3, 3 of 3 machines available"
    assert left < machines.there.keys(), "those that the canary had not reached are not touched"


async def test_a_rollout_whose_machines_never_join_stands(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    machines.lost.add(2)
    (await place.run("rollout", "restart", "p1")).ok()
    stands = await place.run("rollout", "status", "p1")
    assert (stands.code, "is blocked: NewMachinesNeverJoin: " in stands.err) == (1, True)
    assert sorted(m.revision for m in machines.there.values()) == [1, 1, 1, 2], "it cost the surge"
    await played_machine(place, "p1-x", Phase.FAILED, "p1", revision=2)

    async def described() -> str | None:
        page = (await place.run("describe", "machine", "p1-x")).ok()
        return page if "Failed" in page else None

    page = await eventually(described, "the machine that it left standing")
    assert "Not replaced:  pool p1 waits: NewMachinesNeverJoin, " in page
    held = "pool p1 does not replace it for now (NewMachinesNeverJoin). Find out why"
    assert held in page
    hostler = HostlerClient(place.client, load_settings(place.settings_file))
    (left,) = [w for w in await waiting.look(hostler, place.cluster, served=True) if w.kind == "machine"]
    assert (left.name, left.by_itself(place.cluster), left.todo(place.cluster)[: len(held)]) == ("p1-x", False, held)
    (await place.run("rollout", "undo", "p1", "--reason", "bad image")).ok()
    shown = (await place.run("rollout", "status", "p1")).ok()
    assert "pool p1 is rolled out: revision 3, 3 of 3 machines available" in shown
    assert len(machines.there) == 3


async def test_who_follows_a_rollout_that_is_undone_has_not_got_it(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    machines.slow.add(2)
    (await place.run("rollout", "restart", "p1")).ok()
    await waits_by(place, "NewMachinesNotReady")
    process = await place.start("rollout", "status", "p1")
    assert process.stdout is not None
    assert process.stderr is not None
    first = (await process.stdout.readline()).decode()
    assert "RolledOut: Created 1 machine of revision 2" in first
    (await place.run("rollout", "undo", "p1")).ok()
    said = (await process.stderr.read()).decode()
    assert await process.wait() == 1
    assert "error: the rollout of revision 2 of pool p1 was undone: revision 3 goes back" in said
    assert (await place.run("rollout", "status", "p1")).code == 0, "to the pool itself nothing is wrong"


async def test_who_follows_a_rollout_goes_on_with_the_one_that_comes_after_it(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    machines.slow.add(2)
    (await place.run("rollout", "restart", "p1")).ok()
    await waits_by(place, "NewMachinesNotReady")
    process = await place.start("rollout", "status", "p1")
    assert process.stdout is not None
    assert "revision 2" in (await process.stdout.readline()).decode()
    (await place.run("rollout", "restart", "p1")).ok()
    lines = (await process.stdout.read()).decode().splitlines()
    assert await process.wait() == 0
    assert "p1: revision 3 has replaced revision 2" in lines
    assert lines[-1] == "pool p1 is rolled out: revision 3, 3 of 3 machines available"


async def test_an_aborted_rollout_keeps_the_old_machines(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    refused = await place.run("rollout", "abort", "p1")
    assert (refused.code, "error: " in refused.err) == (1, True)
    machines.slow.add(2)
    (await place.run("rollout", "restart", "p1")).ok()
    await waits_by(place, "NewMachinesNotReady")
    assert "aborted" in (await place.run("rollout", "abort", "p1")).ok()
    stands = await place.run("rollout", "status", "p1")
    assert (stands.code, "is blocked: RolloutAborted: " in stands.err) == (1, True)
    assert [m.revision for m in machines.there.values()].count(1) == 3

    async def unmarked() -> bool:
        return not machines.marked

    await eventually(unmarked, "nodes without marks")


async def test_all_pools_of_a_cluster_are_followed(place: Place, machines: Machines) -> None:
    machines.slow.add(2)
    await rolled_out(place)
    await apply(place, name="p2", replicas=2)

    async def listed() -> bool:
        return "pool p2" in (await place.run("rollout", "status")).ok()

    await eventually(listed, "both pools")
    (await place.run("rollout", "pause", "p2")).ok()
    (await place.run("rollout", "restart", "p1", "p2")).ok()
    machines.slow.clear()
    await machines.join(2)
    both = await place.run("rollout", "status", "p1", "p2")
    assert both.code == 1
    assert "pool p1 is rolled out: revision 2" in both.out
    assert "the rollout of pool p2 is blocked: RolloutPaused" in both.err


async def test_a_terminal_shows_a_bar(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    machines.slow.add(2)
    (await place.run("rollout", "restart", "p1")).ok()
    await waits_by(place, "NewMachinesNotReady")
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            str(HOSTLER), "rollout", "status", "p1", env=place.environment() | {"TERM": "xterm"}, stdout=theirs
        )
        os.close(theirs)
        shown = asyncio.create_task(asyncio.to_thread(everything, ours))
        machines.slow.clear()
        await machines.join(2)
        assert await process.wait() == 0
        screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", await shown)
    finally:
        os.close(ours)
    assert re.search(r"p1 ━+ *revision 2: ", screen)
    assert "RolledOut: Created 1 machine of revision 2" in screen
    lines = [line.strip() for line in re.split(r"[\r\n]+", screen) if line.strip()]
    assert lines[-1] == "pool p1 is rolled out: revision 2, 3 of 3 machines available"


def everything(terminal: int) -> str:
    """Reads everything until the other end is closed."""
    seen = b""
    while True:
        try:
            some = os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody has it open any longer
            some = b""
        if not some:
            return seen.decode()
        seen += some


# -- revisions --------------------------------------------------------------------------------------------------------


async def test_revisions_and_going_back(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    (await place.run("rollout", "restart", "p1", "--reason", "kernel")).ok()
    (await place.run("rollout", "status", "p1")).ok()
    rows = [line.split() for line in (await place.run("rollout", "history", "p1")).ok().splitlines()]
    assert rows[0] == ["REVISION", "AGE", "CLASS", "GENERATION", "MACHINES", "ROLLOUT", "BY", "REASON"]
    assert [(r[0], *r[2:6], r[-1]) for r in rows[1:]] == [
        ("1", "c1", "1", "0", "<none>", "<none>"),
        ("2", "c1", "1", "3", "Complete", "kernel"),
    ]
    shown = (await place.run("rollout", "history", "p1", "--revision", "2")).ok()
    for words in (
        "machinedeployment/p1 with revision 2\n",
        "Reason:   kernel",
        "Class:    c1, generation 1",
        "  ami: ami-1",
        "Rollout:   Complete: 3 of 3 machines are of this revision, all available",
        "Machines:  3 of 3 updated, 3 of them available, 0 old ones left",
    ):
        assert words in shown
    assert [m[1] for m in re.finditer(r"^  \S+ \S+ (RolledOut|Replaced): ", shown, re.MULTILINE)] == (
        ["RolledOut", "Replaced"] * 3
    )
    assert "It replaced no machine" in (await place.run("rollout", "history", "p1", "--revision", "1")).ok()

    rehearsed = (await place.run("rollout", "undo", "p1", "--dry-run")).ok()
    assert "machinedeployment/p1 rolled back (dry run)\n" in rehearsed
    assert [r for r in re.findall(r" (\w+): ", rehearsed) if r in ("RolledOut", "Replaced")] == [
        "RolledOut",
        "Replaced",
    ] * 3
    assert {m.revision for m in machines.there.values()} == {2}, "nothing was done"
    (await place.run("rollout", "undo", "p1", "--to-revision", "1")).ok()
    (await place.run("rollout", "status", "p1")).ok()
    assert {m.revision for m in machines.there.values()} == {3}


async def test_a_restart_is_rehearsed(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    before = dict(machines.there)
    rehearsed = (await place.run("rollout", "restart", "p1", "--dry-run")).ok()
    assert "rolls 3 machines to revision 2" in rehearsed
    assert rehearsed.count("Replaced: Deleting 1 machine") == 3
    assert machines.there == before
    assert "1 " in (await place.run("rollout", "history", "p1")).ok().splitlines()[-1]


async def test_there_may_be_nothing_to_go_back_to(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    for words in (["undo"], ["undo", "--dry-run"]):
        refused = await place.run("rollout", *words, "p1")
        assert (refused.code, "there is no earlier revision to go back to" in refused.err) == (1, True)


async def test_what_is_not_there_is_said(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    for words in (["status"], ["history"], ["pause"], ["undo"], ["restart", "--dry-run"]):
        wrong = await place.run("rollout", *words, "p11")
        assert (wrong.code, "pool 'p11'" in wrong.err) == (1, True), wrong
    unknown = await place.run("rollout", "history", "p1", "--revision", "9")
    assert unknown.code == 1
    assert (
        "error: revision 9 of pool p1 is not known; the revisions are 1: `hostler rollout history p1 --cluster"
        in unknown.err
    )
    for usage in (
        ["pause"],
        ["history", "p1", "p2", "--revision", "1"],
        ["undo", "p1", "p2", "--to-revision", "1"],
        ["status", "p1", "--no-watch", "--timeout", "1s"],
        ["status", "machine/m1"],
    ):
        assert (await place.run("rollout", *usage)).code == 2, usage


async def test_the_shell_completes_pools(place: Place, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "PATIENCE", DEADLINE)  # a person's, not that of a busy machine
    await rolled_out(place)

    async def completed() -> bool:
        return await offered(place, "rollout", "undo", "p") == ["p1"]

    await eventually(completed, "completion of a pool")
    assert await offered(place, "rollout", "res") == ["resume", "restart"]


async def test_a_cluster_without_pools(place: Place, machines: Machines) -> None:
    ran = await place.run("rollout", "status")
    assert (ran.code, ran.err) == (0, f"No pools and no control plane found in cluster {place.cluster}.\n")


async def test_without_a_worker(place: Place, request: pytest.FixtureRequest) -> None:
    async with played(place):
        await rolled_out(place)
        (await place.run("rollout", "restart", "p1")).ok()
        (await place.run("rollout", "status", "p1")).ok()
    request.getfixturevalue("impatient")  # not before: a worker that answers may be slow
    silent = await status(place)
    assert (silent.code, "error: pool p1 cannot be asked: " in silent.err) == (1, True)
    late = await place.run("rollout", "status", "p1", "--timeout", "10ms")
    assert (late.code, "its numbers are not known" in late.err) == (1, True)
    told = await place.run("rollout", "history", "p1")
    assert told.ok().splitlines()[1].split() == [
        "2",
        told.out.splitlines()[1].split()[1],
        *["<none>"] * 3,
        "Complete",
        *["<none>"] * 2,
    ]
    assert "warning: " in told.err
    paused = (await place.run("rollout", "pause", "p1")).ok()
    assert paused == f"machinedeployment/p1 recorded; no worker is polling {place.queue}\n"
    async with played(place):
        (await place.run("rollout", "restart", "p1")).ok()
        assert "RolloutPaused" in (await waits_by(place, "RolloutPaused")).err


# -- a list of rollouts -----------------------------------------------------------------------------------------------


async def listed(place: Place, rows: int) -> list[list[str]]:
    """The rollouts, once visibility has this many."""

    async def shown() -> list[list[str]] | None:
        lines = (await place.run("get", "rollouts")).ok().splitlines()
        found = [line.split() for line in lines]
        return found if len(found) == rows + 1 else None

    found: list[list[str]] = await eventually(shown, f"{rows} rollouts")
    return found


async def test_rollouts_that_run_and_that_have_ended(place: Place, machines: Machines) -> None:
    await rolled_out(place)
    nothing = await place.run("get", "rollouts")
    assert (nothing.out, nothing.err[:18]) == ("", "No rollouts found ")
    (await place.run("rollout", "restart", "p1")).ok()
    (await place.run("rollout", "status", "p1")).ok()
    machines.slow.add(3)
    (await place.run("rollout", "restart", "p1")).ok()
    await waits_by(place, "NewMachinesNotReady")
    header, running, ended = await listed(place, 2)
    assert header == ["POOL", "REVISION", "PHASE", "UPDATED", "OLD", "REASON", "AGE"]
    assert running[:-1] == ["p1", "3", "Rolling", "1/3", "3", "NewMachinesNotReady"]
    assert ended[:-1] == ["p1", "2", "Complete", "3/3", "0", "<none>"]
    everywhere = [line.split() for line in (await place.run("get", "rollouts", "-A")).ok().splitlines()]
    assert everywhere[0] == ["CLUSTER", *header]
    ours = [row[1:3] for row in everywhere if row[0] == place.cluster]
    assert ours == [["p1", "3"], ["p1", "2"]]
    wide = (await place.run("get", "rollouts", "p1", "-o", "wide")).ok()
    assert "3 of 3 machines are of this revision, all available" in wide
    assert "Waiting for 1 of 1 machines of revision 3 to be available" in wide
    names = (await place.run("get", "rollouts", "-o", "name")).ok()
    assert names.splitlines() == ["rollout/p1/3", "rollout/p1/2"]
    first, second = json.loads((await place.run("get", "rollouts", "p1", "-o", "json")).ok())["items"]
    assert (first["spec"], first["status"]["phase"]) == ({"pool": "p1", "revision": 3}, "Rolling")
    assert second["status"]["counts"] == {"replicas": 3, "updated": 3, "available": 3, "old": 0, "lost": 0}
    assert [s["reason"] for s in second["status"]["steps"]].count("Replaced") == 3


# -- a class that changes ---------------------------------------------------------------------------------------------


async def test_who_looks_right_after_apply_waits_for_the_rollout_to_come(place: Place, machines: Machines) -> None:
    """The pool hears of its class a moment after `apply` has answered."""
    await rolled_out(place)
    machines.heard.clear()  # as slow as can be
    await apply(place, ami="ami-2")
    early = await status(place)
    assert early.code == 0
    assert "continues on its own: pool p1 does not know yet of generation 2 of class c1" in early.out
    machines.heard.set()
    shown = (await place.run("rollout", "status", "p1")).ok()
    assert shown.splitlines()[-1] == "pool p1 is rolled out: revision 2, 3 of 3 machines available"
    assert "  ami: ami-2" in (await place.run("rollout", "history", "p1", "--revision", "2")).ok()
