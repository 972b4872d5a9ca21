"""A whole life through the real command line: examples/aws, as a newcomer types it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import yaml
from lifekit import EXAMPLES, Stack

HOSTLER = Path(sys.executable).parent / "hostler"


async def hostler(stack: Stack, *arguments: str, expect: int = 0, stdin: str | None = None) -> str:
    """What the command prints; its exit code is part of the contract."""
    process = await asyncio.create_subprocess_exec(
        HOSTLER,
        *arguments,
        env={
            **os.environ,
            "HOSTLER_SETTINGS": str(stack.settings_file),
            "TEMPORAL_ADDRESS": stack.client.service_client.config.target_host,
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode() if stdin else None)
    assert process.returncode == expect, f"hostler {' '.join(arguments)}: {out.decode()}{err.decode()}"
    return out.decode() + (err.decode() if expect else "")


async def test_a_life_as_a_newcomer_types_it(stack: Stack) -> None:
    stack.started["demo-1"] = stack.client.get_workflow_handle("machine/demo/demo-1")
    dry = await hostler(stack, "apply", "-f", str(EXAMPLES), "--dry-run")
    assert "machine/demo-1 created (dry run)" in dry
    assert stack.launched() == []
    assert "machine/demo-1 created" in await hostler(stack, "apply", "-f", str(EXAMPLES))
    assert "Running" in await hostler(stack, "wait", "machine", "demo-1", "--for=phase=Running", "--timeout", "60s")

    (line,) = [r for r in (await hostler(stack, "get", "nodes")).splitlines() if "demo-1" in r]
    assert "Ready" in line
    described = await hostler(stack, "describe", "machine", "demo-1")
    for words in ("Phase:", "Running", "aws:///eu-west-1/i-", "Last operation:", "NodeJoined"):
        assert words in described
    assert "VMCreated" in await hostler(stack, "events", "machine", "demo-1")

    manifest = await hostler(stack, "get", "machine", "demo-1", "-o", "yaml")
    assert yaml.safe_load(manifest)["status"]["phase"] == "Running"
    again = await hostler(stack, "apply", "-f", "-", stdin=manifest)
    assert "machine/demo-1 unchanged" in again
    assert json.loads(await hostler(stack, "get", "machine", "demo-1", "-o", "json"))["kind"] == "Machine"

    uid = (await stack.state("demo-1")).uid
    await hostler(stack, "delete", "machine", "demo-1", "--reason", "tried it", "--wait", "--timeout", "60s")
    assert stack.leftovers(uid) == {}
    assert len(stack.launched()) == 1
    assert "gone" in await hostler(stack, "describe", "machine", "demo-1")
    assert "error:" in await hostler(stack, "describe", "machine", "demo-2", expect=1)
