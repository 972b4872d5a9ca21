"""Recorded histories replay, and hold no secret. A change that breaks one needs a patch marker and a new recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from canaries import found_in
from record_histories import FLOWS, IDENTITY
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import worker
from resources.converter import data_converter
from workflows.machine import create
from workflows.machine.workflow import MachineWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def load(file: Path) -> WorkflowHistory:
    content = json.loads(file.read_text())
    return WorkflowHistory.from_json(content.pop("workflowId"), content)


def replayer(strict: bool) -> Replayer:
    return Replayer(
        workflows=worker.WORKFLOWS,
        data_converter=data_converter,
        workflow_runner=worker.sandbox(strict),
    )


def test_every_flow_is_recorded() -> None:
    assert {f.stem for f in HISTORIES} >= {f"{kind}-{flow}" for flow in FLOWS for kind in ("machine", "cluster")}


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "passed through"])
@pytest.mark.parametrize("file", HISTORIES, ids=lambda f: f.stem)
async def test_replays(file: Path, strict: bool) -> None:
    await replayer(strict).replay_workflow(load(file))


async def test_a_breaking_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life without its first phase does not fit what was recorded."""
    import workflows.machine.workflow as module

    monkeypatch.setattr(module, "LIFE", tuple(p for p in module.LIFE if p is not create.create))
    file = next(f for f in HISTORIES if f.stem == "machine-whole-life")
    with pytest.raises(Exception, match=r"TMPRL1100|[Nn]ondeterminism"):
        await replayer(strict=False).replay_workflow(load(file))
    assert MachineWorkflow is module.MachineWorkflow


def payloads(file: Path) -> list[bytes]:
    """Every event as it is kept, payloads decoded from JSON's base64."""
    history = load(file)
    return [e.SerializeToString() for e in History(events=history.events).events]


@pytest.mark.parametrize("file", HISTORIES, ids=lambda f: f.stem)
def test_no_secret_is_in_it(file: Path) -> None:
    """What the recorder planted: a line of the user data, and the credentials of the examples."""
    planted = ["canary-", "hostler-simulator-secret", "token-secret"]
    texts = payloads(file)
    assert found_in(planted, texts) == []
    assert found_in([IDENTITY], texts) == [IDENTITY]  # it has looked at something
    assert found_in(planted, [*texts, b"user data with canary-1234"]) == ["canary-"]


@pytest.mark.parametrize("file", HISTORIES, ids=lambda f: f.stem)
def test_it_names_no_machine(file: Path) -> None:
    text = file.read_text()
    for path in (str(Path(__file__).parent.parent), str(Path.home())):
        assert path not in text
