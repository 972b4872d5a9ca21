"""What the pages tell people to type."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from lifekit import Stack
from paths import ROOT
from typer.main import get_command

from starter.main import app

SYNOPSIS = re.compile(r"[|…\[\]·]")
"""Placeholders: a line with one is a form, not a command."""


def typed(page: str) -> Iterator[list[str]]:
    """The words of every `hostler` line in the page's blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command = line.removeprefix("$ ").split("    #")[0]
            if command.startswith("hostler ") and not SYNOPSIS.search(re.sub(r'"\$\(.*\)"', "i-1", command)):
                yield shlex.split(re.sub(r'"\$\(.*\)"', "i-1", command), comments=True)[1:]


def parse(words: list[str]) -> str:
    """The command that takes them. Raises a usage error; runs nothing."""
    command, name = get_command(app), "hostler"
    ctx = command.make_context(name, list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        ctx = command.make_context(name, rest, parent=ctx)
    return str(ctx.command_path)


async def run(stack: Stack, command: list[str]) -> str:
    program = Path(sys.executable).parent / command[0]
    # What README cannot know: this server's address, and that stacks of tests have task queues of their own.
    arguments = [stack.settings.queue_prefix if a == "hostler" else a for a in command[1:]]
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        "--output",
        "json",
        cwd=stack.settings_file.parent,
        env={**os.environ, "TEMPORAL_ADDRESS": stack.client.service_client.config.target_host},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
