"""`hostler simulator …` against a simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from simulator.frame import Call
from simulator.kubelet import Timings
from simulator.server import SimulatorSettings, SimulatorThread
from starter.main import app

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorThread]:
    with SimulatorThread(SimulatorSettings(timings=Timings.fast())) as thread:
        yield thread


@pytest.fixture
def run(simulator: SimulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `hostler simulator <arguments>` on a simulator without faults, knobs and calls."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({"simulator": simulator.simulator.admin_url}))
    monkeypatch.setenv("HOSTLER_SETTINGS", str(settings))

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["simulator", *arguments])

    assert call("reset").output == "reset\n"
    return call


def test_faults_are_added_listed_and_cleared(run: Run, simulator: SimulatorThread) -> None:
    added = run("faults", "add", "RunInstances", "--code", "InsufficientInstanceCapacity", "--times", "2")
    assert added.exit_code == 0
    assert (
        run("faults", "add", "patch nodes", "--service", "kubernetes", "--delay", "1.5", "--drop", "--always").exit_code
        == 0
    )
    (capacity, slow) = simulator.call(lambda: list(simulator.simulator.frame.faults))
    assert (capacity.operation, capacity.code, capacity.times) == ("RunInstances", "InsufficientInstanceCapacity", 2)
    assert (slow.service, slow.delay, slow.drop, slow.times) == ("kubernetes", 1.5, True, None)
    assert run("faults", "list").output.splitlines() == [
        f"{capacity.id}  RunInstances: InsufficientInstanceCapacity, 0 of 2 times used",
        f"{slow.id}  patch nodes (kubernetes): 1.5 s late, answer lost, always",
    ]
    assert run("faults", "clear", capacity.id).exit_code == 0
    assert [r.id for r in simulator.call(lambda: list(simulator.simulator.frame.faults))] == [slow.id]
    assert run("faults", "clear").exit_code == 0
    assert run("faults", "list").output == ""


def test_a_rule_that_does_nothing_is_wrong_usage(run: Run) -> None:
    refused = run("faults", "add", "RunInstances")
    assert refused.exit_code == 2
    assert "give --code, --delay or --drop" in refused.output


def test_the_simulators_refusals_are_told(run: Run) -> None:
    refused = run("faults", "clear", "nope")
    assert (refused.exit_code, refused.output) == (1, "error: the simulator refuses: no fault rule 'nope'\n")
    unknown = run("knobs", "set", "m-*", "nver_joins=true")
    assert unknown.exit_code == 1
    assert "nver_joins" in unknown.output
    gone = run("kill", "i-0123456789abcdef0")
    assert (gone.exit_code, gone.output) == (1, "error: the simulator refuses: there is no VM 'i-0123456789abcdef0'\n")


def test_calls_are_shown_in_words_and_in_json(run: Run, simulator: SimulatorThread) -> None:
    def record() -> Call:
        made = {"instanceIds": ["i-1"]}
        frame = simulator.simulator.frame
        frame.record("ec2", "DescribeInstances", caller="AKIA")
        return frame.record("ec2", "RunInstances", caller="AKIA", result=made, mutating=True, dropped=True)

    call = simulator.call(record)
    words = run("calls", "--service", "ec2", "--mutating").output
    assert words.startswith(f"{call.n}  ")
    assert words.endswith("ec2  RunInstances  done, answer lost  by AKIA: instanceIds=['i-1']\n")
    assert len(run("calls", "--service", "ec2").output.splitlines()) == 2
    (found,) = json.loads(run("calls", "Run*", "-o", "json").output)
    assert Call.model_validate(found) == call
    assert run("calls", "--service", "ec2", "--since", str(call.n)).output == ""


def test_knobs_are_set_listed_and_cleared(run: Run, simulator: SimulatorThread) -> None:
    assert run("knobs", "set", "demo-*", "never_joins=true", "join_delay=3").exit_code == 0
    (rule,) = simulator.call(lambda: list(simulator.simulator.kubelets.knobs))
    assert (rule.match, rule.knobs.never_joins, rule.knobs.join_delay) == ("demo-*", True, 3.0)
    assert run("knobs", "list").output == "demo-*: never_joins=true, join_delay=3.0\n"
    assert run("knobs", "set", "demo-*", "never_joins").exit_code == 2
    assert run("knobs", "clear").exit_code == 0
    assert run("knobs", "list").output == ""


def test_lag_is_shown_and_changed(run: Run, simulator: SimulatorThread) -> None:
    assert run("lag").output == "describe_after_create: 0 s\ntags: 0 s\n"
    assert run("lag", "--tags", "2").output == "describe_after_create: 0 s\ntags: 2 s\n"
    assert simulator.call(lambda: simulator.simulator.frame.lag.tags) == 2.0


def test_without_a_simulator_it_says_where_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    monkeypatch.setenv("HOSTLER_SETTINGS", str(empty))
    refused = CliRunner().invoke(app, ["simulator", "calls"])
    assert refused.exit_code == 1
    assert "these settings name no simulator; `hostler up` writes settings that do" in refused.output
    empty.write_text("simulator: http://127.0.0.1:1")
    refused = CliRunner().invoke(app, ["simulator", "calls"])
    assert refused.exit_code == 3
    assert "the simulator at http://127.0.0.1:1 does not answer" in refused.output


def test_a_port_of_a_cloud_that_is_not_simulated_is_refused(tmp_path: Path) -> None:
    def up(*arguments: str) -> Result:
        """With a cluster that simulated VMs cannot join, it does not begin in any case."""
        nowhere = ("--dir", str(tmp_path), "--kubeconfig", str(tmp_path / "none"))
        return CliRunner().invoke(app, ["up", *nowhere, *arguments])

    refused = up("--gce-port", "17646")
    assert refused.exit_code == 2
    assert "--gce-port is of a cloud that is not simulated: add --provider gcp, or leave it out" in str(refused.output)
    taken = up("--gce-port", "17646", "--provider", "gcp")
    assert "can never join" in f"{taken.output}{taken.exception}"  # something else was looked at, so this was taken
