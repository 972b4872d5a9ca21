"""Children of `hostler up`: ready when they say so, started again when they die, and none left, however it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import TESTS
from processes.children import alive, locked, until

from starter.local import processes
from starter.local.processes import Child, Command, ProcessError, Processes

pytestmark = pytest.mark.core
SYSTEM = Path(__file__).parent

# It prints its own pid and that of a child of its own, then lives for ever.
FAMILY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FAMILY


async def pids_ready(child: Child) -> None:
    await child.line(lambda line: line.startswith("pids"))


def family(tmp_path: Path, name: str = "family", script: str = FAMILY) -> Command:
    return Command(name, [sys.executable, "-c", script], tmp_path / f"{name}.log", ready=pids_ready, timeout=20)


def pids(child: Child) -> list[int]:
    return [int(p) for p in child.output().split()[1:3]]


async def test_a_child_is_started_when_it_is_ready_and_gone_afterwards_with_its_children(tmp_path: Path) -> None:
    async with Processes(print) as group:
        family_pids = pids(await group.start(family(tmp_path)))
        assert [alive(p) for p in family_pids] == [True, True]
    assert [alive(p) for p in family_pids] == [False, False]


async def test_the_output_of_an_earlier_life_is_not_taken_for_readiness(tmp_path: Path) -> None:
    (tmp_path / "family.log").write_text("pids 1 2\n")
    async with Processes(print) as group:
        child = await group.start(family(tmp_path))
        assert pids(child)[0] == child.pid


async def test_a_child_that_ends_before_it_is_ready_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    failing = Command(
        "worker", [sys.executable, "-c", "print('no such thing'); exit(3)"], tmp_path / "w.log", pids_ready
    )
    async with Processes(print) as group:
        before = pids(await group.start(family(tmp_path)))
        with pytest.raises(ProcessError) as error:
            await group.start(failing)
    assert str(error.value) == f"the worker ended with exit code 3; its log is {tmp_path}/w.log\n  no such thing"
    assert not any(alive(p) for p in before)


async def test_a_child_that_does_not_get_ready_is_an_error_and_is_stopped(tmp_path: Path) -> None:
    sleeper = Command(
        "worker", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "w.log", pids_ready, 0.2
    )
    async with Processes(print) as group:
        with pytest.raises(ProcessError, match=r"the worker was not ready after 0\.2 s"):
            await group.start(sleeper)
        pid = group.children["worker"].pid
        assert alive(pid)
    assert not alive(pid)


async def test_a_program_that_is_missing_is_said(tmp_path: Path) -> None:
    async with Processes(print) as group:
        with pytest.raises(ProcessError, match="the worker cannot be started: /nowhere/python: No such file"):
            await group.start(Command("worker", ["/nowhere/python"], tmp_path / "w.log"))


async def test_a_child_that_dies_is_started_again_with_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "BACK_OFF", (0.05, 0.1))
    said: asyncio.Queue[str] = asyncio.Queue()
    async with Processes(said.put_nowait) as group:
        first = await group.start(family(tmp_path))
        os.kill(first.pid, signal.SIGKILL)
        log = tmp_path / "family.log"
        async with asyncio.timeout(20):
            assert await said.get() == f"the family was killed by SIGKILL; starting it again in 0.05 s ({log})"
            again = await said.get()
        second = group.children["family"]
        assert again == f"the family runs again (process {second.pid})"
        assert second.pid != first.pid
        second.kill()
        async with asyncio.timeout(20):
            assert "in 0.1 s" in await said.get()  # it backs off
    assert not alive(pids(first)[1])  # what the killed one left behind, too


async def test_the_last_started_is_stopped_first(tmp_path: Path) -> None:
    script = """
import signal, sys, time
def stop(*_):
    open(sys.argv[2], "a").write(sys.argv[1] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("pids", flush=True)
time.sleep(600)
"""
    order = tmp_path / "order"
    async with Processes(print) as group:
        for name in ("server", "simulator", "worker"):
            argv = [sys.executable, "-c", script, name, str(order)]
            await group.start(Command(name, argv, tmp_path / f"{name}.log", pids_ready))
    assert order.read_text().split() == ["worker", "simulator", "server"]


async def test_a_child_that_ignores_sigterm_is_killed_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_GRACE", 0.2)
    said: list[str] = []
    async with Processes(said.append) as group:
        stubborn = pids(await group.start(family(tmp_path, script=STUBBORN)))
    assert said == ["the family did not stop within 0.2 s and was killed"]
    assert not any(alive(p) for p in stubborn)


async def test_a_second_interrupt_ends_a_slow_stop_at_once(tmp_path: Path) -> None:
    entered: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with Processes(print) as group:
            entered.set_result(pids(await group.start(family(tmp_path, script=STUBBORN))))
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    stubborn = await entered
    task.cancel()
    await asyncio.sleep(0)  # it is in the orderly stop now, which takes STOP_GRACE seconds
    assert all(alive(p) for p in stubborn)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(alive(p) for p in stubborn)


async def test_the_guardian_holds_a_lock_until_nobody_is_left(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    file = lock.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    async with Processes(print, keep=[file.fileno()]) as group:
        file.close()  # as when this process is killed
        await group.start(family(tmp_path))
        assert locked(lock)
    assert not locked(lock)


KILLED = """
import asyncio, sys
from pathlib import Path
from starter.local.processes import Processes
sys.path[:0] = sys.argv[2:]
from test_processes import STUBBORN, family, pids

async def main():
    async with Processes(print) as group:
        path = Path(sys.argv[1])
        first = pids(await group.start(family(path, "one")))
        second = pids(await group.start(family(path, "two", STUBBORN)))
        print(*first, *second, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_kill_9_of_the_parent_leaves_nothing_running(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KILLED, str(tmp_path), str(SYSTEM), str(TESTS / "kits")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            family_pids = [int(p) for p in parent.stdout.readline().split()]
            assert len(family_pids) == 4
            assert all(alive(p) for p in family_pids)
        finally:
            parent.kill()
    until(lambda: not any(alive(p) for p in family_pids))


async def test_what_children_write_is_for_their_owner_alone(tmp_path: Path) -> None:
    script = f"import os\nopen({str(tmp_path / 'made')!r}, 'w')\nos.mkdir({str(tmp_path / 'folder')!r})\n{FAMILY}"
    log = tmp_path / "logs" / "family.log"
    command = Command("family", [sys.executable, "-c", script], log, ready=pids_ready, timeout=20)
    before = os.umask(0o022)
    try:
        async with Processes(print) as group:
            await group.start(command)
    finally:
        os.umask(before)
    private = [log, log.parent, tmp_path / "made", tmp_path / "folder"]
    assert [oct(path.stat().st_mode & 0o777) for path in private] == ["0o600", "0o700", "0o600", "0o700"]
