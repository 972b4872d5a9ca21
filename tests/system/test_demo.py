"""`make demo`: the life that it shows is a real one, and nothing is left of it; and how it shows a life."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from processes.children import alive, children, until
from rich.console import Console

from resources.clouds import simulations
from resources.journal import Happening
from resources.machine.state import ClassSnapshot, MachineState, Phase, Status, WaitingFor
from resources.manifests import load_manifests
from starter.local.demo_view import DemoLines, DemoTable, table, view
from starter.local.up import examples_of

DEMO = [sys.executable, "-m", "starter.local.demo"]
EXAMPLES = examples_of("aws")
NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)

STORY = """\
hostler apply -f
secret/demo-{cloud} created
machine/{name} created
{name} is Pending — CreatingVM
{create} was in flight when process
the worker was killed; the workflow continues
the worker was killed by SIGKILL; starting it again
the worker runs again
{name} is Running; kubectl would show its Node like this:
providerID: {vm}
hostler delete machine {name}
{name} is Terminating
{name}: VMDeleted
{name} is gone
left at the cloud: nothing
nodes left in the cluster: none
VMs that they made:
make up"""
LIVES = [
    ("aws", "demo-1", "aws:///eu-west-1/i-"),
    ("azure", "demo-azure-1", "azure:///subscriptions/"),
    ("gcp", "demo-gcp-1", "gce://hostler-simulator/europe-west1-b/demo-gcp-1"),
]
FIRST, *OTHERS = LIVES


# One life of each cloud is in test_up_clouds.py too.
@pytest.mark.parametrize(
    ("cloud", "name", "vm"), [FIRST, *(pytest.param(*life, marks=pytest.mark.exhaustive) for life in OTHERS)]
)
def test_the_demo_tells_one_whole_life_and_leaves_nothing(tmp_path: Path, cloud: str, name: str, vm: str) -> None:
    argv = DEMO if cloud == "aws" else [*DEMO, cloud]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    story = STORY.format(cloud=cloud, name=name, vm=vm, create=simulations()[cloud].create).splitlines()
    places = [done.stdout.find(words) for words in story]
    assert [words for words, place in zip(story, places, strict=True) if place < 0] == []
    assert places == sorted(places)
    (vms,) = re.findall(r"VMs that they made: (.*)", done.stdout)
    assert len(vms.split(", ")) == 1
    assert (tmp_path / ".hostler/demo/logs/worker.log").exists()


def test_a_cloud_that_is_not_known_is_said(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, "mars"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "choose from" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive  # of test_up.py's child that cannot start, which the demo tells in the same words
def test_what_goes_wrong_is_said_with_the_place_of_the_logs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment = {**os.environ, "HOSTLER_WORKER__HEALTH": f"127.0.0.1:{taken.getsockname()[1]}"}
        done = subprocess.run(DEMO, cwd=tmp_path, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 1
    first, *_, last = done.stderr.splitlines()
    assert first == "error: the worker ended with exit code 1; its log is .hostler/demo/logs/worker.log"
    assert "worker.health: 127.0.0.1:" in last
    assert last.endswith("; the logs are in .hostler/demo/logs")


def test_an_interrupt_ends_it_and_all_that_it_started(tmp_path: Path) -> None:
    with subprocess.Popen(DEMO, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: len(children(process.pid)) >= 2 or process.poll() is not None, 60)
            started = children(process.pid)
            assert started
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stdout is not None
        assert "stopped" in process.stdout.read()
    until(lambda: not any(alive(p) for p in started))


# -- the views --------------------------------------------------------------------------------------------------------


@pytest.fixture
def state() -> MachineState:
    (machine,) = load_manifests((EXAMPLES / "machine.yaml").read_text(), "machine.yaml").machines
    (machine_class,) = load_manifests((EXAMPLES / "class.yaml").read_text(), "class.yaml").classes
    return MachineState(
        name="demo-1",
        spec=machine.spec,
        machine_class=ClassSnapshot.of(machine_class),
        status=Status(
            phase=Phase.PENDING,
            waiting_for=WaitingFor(
                reason="NodeNotSeen", message="no node has joined yet", since=NOW - timedelta(seconds=7)
            ),
        ),
        journal=[Happening(time=NOW, reason=f"R{n}", message=f"happening {n}") for n in range(8)],
    )


def test_lines_are_printed_when_they_are_news(state: MachineState, capsys: pytest.CaptureFixture[str]) -> None:
    lines = DemoLines()
    lines.show(state)
    first = capsys.readouterr().out.splitlines()
    assert first[-1].endswith("demo-1 is Pending — NodeNotSeen: no node has joined yet")
    assert len(first) == 9
    lines.show(state)
    assert capsys.readouterr().out == ""
    state.journal.append(Happening(time=NOW, reason="NodeJoined", message="node n1 joined"))
    lines.show(state, "no worker is there to ask")
    joined, now = capsys.readouterr().out.splitlines()
    assert joined.endswith("demo-1: NodeJoined: node n1 joined")
    assert now.endswith("no node has joined yet — no worker is there to ask")


def test_the_table_shows_what_is_waited_for_since_when_and_the_latest_happenings(state: MachineState) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(table(state, "", NOW))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for word in ("demo-1", "Pending", "NodeNotSeen: no node has joined yet", "7 s", "happening 7", "happening 2"):
        assert word in text
    assert "happening 1" not in text


def test_only_a_terminal_gets_the_live_table() -> None:
    assert isinstance(view(Console(file=io.StringIO(), force_terminal=True)), DemoTable)
    assert isinstance(view(Console(file=io.StringIO())), DemoLines)
