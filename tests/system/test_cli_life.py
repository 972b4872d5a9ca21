"""A whole life through the real command line: examples/aws, as a newcomer types it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from lifekit import EXAMPLES, Stack, environment, eventually, hostler
from machine.lives import knobs

HOSTLER = Path(sys.executable).parent / "hostler"


async def typed(stack: Stack, *arguments: str, expect: int = 0, stdin: str | None = None) -> str:
    """Runs the command as a process of its own; what it returns is as with `hostler`."""
    process = await asyncio.create_subprocess_exec(
        HOSTLER,
        *arguments,
        env=environment(stack),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode() if stdin else None)
    assert process.returncode == expect, f"hostler {' '.join(arguments)}: {out.decode()}{err.decode()}"
    return out.decode() + (err.decode() if expect else "")


@pytest.mark.core
async def test_a_life_as_a_newcomer_types_it(stack: Stack) -> None:
    stack.started["demo-1"] = stack.client.get_workflow_handle("machine/demo/demo-1")
    dry = await hostler(stack, "apply", "-f", str(EXAMPLES), "--dry-run")
    assert re.search(r"machine/demo-1 created.* \(dry run\)", dry)  # it may say that one of this name was there before
    assert stack.launched() == []
    assert "machine/demo-1 created" in await typed(stack, "apply", "-f", str(EXAMPLES))
    assert "Running" in await typed(stack, "wait", "machine", "demo-1", "--for=phase=Running", "--timeout", "60s")

    (line,) = [r for r in (await hostler(stack, "get", "nodes")).splitlines() if "demo-1" in r]
    assert "Ready" in line
    described = await hostler(stack, "describe", "machine", "demo-1")
    for words in ("Phase:", "Running", "aws:///eu-west-1/i-", "Last operation:", "NodeJoined"):
        assert words in described
    assert "VMCreated" in await hostler(stack, "events", "machine", "demo-1")

    manifest = await hostler(stack, "get", "machine", "demo-1", "-o", "yaml")
    assert yaml.safe_load(manifest)["status"]["phase"] == "Running"
    again = await typed(stack, "apply", "-f", "-", stdin=manifest)
    assert "machine/demo-1 unchanged" in again
    assert json.loads(await hostler(stack, "get", "machine", "demo-1", "-o", "json"))["kind"] == "Machine"

    uid = (await stack.state("demo-1")).uid
    await typed(stack, "delete", "machine", "demo-1", "--reason", "tried it", "--wait", "--timeout", "60s")
    assert stack.leftovers(uid) == {}
    assert len(stack.launched()) == 1
    assert "gone" in await hostler(stack, "describe", "machine", "demo-1")
    assert "error:" in await typed(stack, "describe", "machine", "demo-2", expect=1)


def manifests(folder: Path, file: str = "", former: str = "", now: str = "") -> str:
    """The examples, one of them edited."""
    for source in EXAMPLES.glob("*.yaml"):
        text = source.read_text()
        if source.name == file:
            assert former in text
            text = text.replace(former, now)
        (folder / source.name).write_text(text)
    return str(folder)


async def test_a_machine_that_fails_as_an_operator_meets_it(stack: Stack, tmp_path: Path) -> None:
    """What happened, since when, what it waits for, when something happens next, what can be done."""
    stack.started["demo-1"] = stack.client.get_workflow_handle("machine/demo/demo-1")
    await hostler(stack, "apply", "-f", manifests(tmp_path, "machine.yaml", "healthTimeout: 2m", "healthTimeout: 1h"))
    await hostler(stack, "wait", "machine", "demo-1", "--for=phase=Running", "--timeout", "60s")
    uid = (await stack.state("demo-1")).uid
    knobs(stack, "demo-1", dies_after=0.0)

    await hostler(stack, "wait", "machine", "demo-1", "--for=phase=Unknown", "--timeout", "60s")
    described = await hostler(stack, "describe", "machine", "demo-1")
    for words in ("Unknown", "NodeStatusUnknown", "Failed at", "Next try:", "What can be done:", "Since:"):
        assert words in described
    # Only now, so that it is not Failed before it has been looked at, however busy the computer is.
    await hostler(stack, "apply", "-f", manifests(tmp_path, "machine.yaml", "healthTimeout: 2m", "healthTimeout: 6s"))
    await hostler(stack, "wait", "machine", "demo-1", "--for=phase=Failed", "--timeout", "60s")
    await stack.reason("HealthTimeout", "demo-1")
    described = await hostler(stack, "describe", "machine", "demo-1")
    for words in ("HealthTimeout", "two fresh looks", "hostler recreate machine demo-1 --cluster demo", "Drained"):
        assert words in described
    listed = [(await hostler(stack, "get", *of)).splitlines()[1].split() for of in (("machines",), ("nodes",))]
    assert listed[0][:2] == ["demo-1", "Failed"]
    assert "NotReady,SchedulingDisabled" in listed[1]
    story = await hostler(stack, "events", "machine", "demo-1")
    reasons = ["Created", "Running", "NodeNotReady", "ConfirmingFailure", "HealthTimeout", "Drained"]
    assert [story.index(f"   {reason} ") for reason in reasons] == sorted(story.index(f"   {r} ") for r in reasons)

    gone = await hostler(stack, "delete", "machine", "demo-1", "--wait", "--timeout", "60s")
    assert "machine/demo-1 deleted" in gone
    assert stack.leftovers(uid) == {}
    assert await hostler(stack, "get", "nodes") == ""


async def test_a_class_that_is_corrected_and_applied_again(stack: Stack, tmp_path: Path) -> None:
    """Creation fails: the machine says what is wrong, and goes on with the correction."""
    stack.started["demo-1"] = stack.client.get_workflow_handle("machine/demo/demo-1")
    await hostler(
        stack, "apply", "-f", manifests(tmp_path, "class.yaml", "machineType: m5.large", "machineType: m5.no")
    )
    await stack.reason("InvalidSpec", "demo-1")

    async def page() -> str:
        return await hostler(stack, "describe", "machine", "demo-1")

    described = await eventually(page, lambda text: "Next try:" in text, "a pause between two tries")
    for words in ("CrashLoopBackOff", "Invalid value 'm5.no' for InstanceType", "hostler apply -f FILE"):
        assert words in described
    assert "machine/demo-1 configured" in await hostler(stack, "apply", "-f", manifests(tmp_path))
    await hostler(stack, "wait", "machine", "demo-1", "--for=phase=Running", "--timeout", "60s")
    assert len(stack.launched()) == 1
    assert "generation 2" in await hostler(stack, "describe", "machine", "demo-1")
