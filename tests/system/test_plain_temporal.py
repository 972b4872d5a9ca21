"""Temporal's own command line, with the very commands of README.md."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from cli.pages import run
from lifekit import Stack, eventually
from paths import ROOT
from temporalio.client import WorkflowHandle

from resources.machine.state import Phase

pytestmark = pytest.mark.core

WORKFLOW_ID = "machine/demo/plain-1"


def documented() -> list[list[str]]:
    """The commands in README's section, as a shell splits them."""
    section = (ROOT / "README.md").read_text().partition("## Plain Temporal")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block
    return [shlex.split(line) for line in block.group(1).splitlines()]


async def test_the_commands_of_the_readme(stack: Stack) -> None:
    machine = json.loads((ROOT / "examples" / "plain" / "machine.json").read_text())
    file = stack.settings_file.parent / "examples" / "plain" / "machine.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**machine, "queuePrefix": stack.settings.queue_prefix, "timings": _timings(stack)}))
    start, query, update, signal, result = documented()
    await run(stack, start)
    stack.started["plain-1"] = handle = stack.client.get_workflow_handle(WORKFLOW_ID)
    await stack.phase(Phase.RUNNING, "plain-1")
    (seen,) = json.loads(await run(stack, query))["queryResult"]
    assert seen["status"]["phase"] == "Running"
    before = (await handle.describe()).run_id
    assert "a new run begins" in await run(stack, update)
    await eventually(lambda: _run_id(handle), lambda run_id: run_id != before, "the new run")
    await run(stack, signal)
    ended = json.loads(await run(stack, result))
    assert ended["status"] == "COMPLETED"
    assert stack.leftovers(seen["uid"]) == {}
    assert "tried it" in json.dumps(ended)


async def _run_id(handle: WorkflowHandle[Any, Any]) -> str | None:
    return (await handle.describe()).run_id


def _timings(stack: Stack) -> dict[str, str]:
    timings: dict[str, str] = stack.settings.timings.model_dump(by_alias=True, mode="json")
    return timings
