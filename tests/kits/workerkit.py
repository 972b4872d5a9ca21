"""A worker in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

import aiohttp
import yaml
from lifekit import Stack
from paths import ROOT


def change_settings(stack: Stack, **worker_settings: object) -> None:
    content = yaml.safe_load(stack.settings_file.read_text())
    content["worker"].update(worker_settings)
    stack.settings_file.write_text(yaml.safe_dump(content))


@contextlib.asynccontextmanager
async def worker_process(
    stack: Stack, address: str | None = None, program: tuple[str, ...] = ("-m", "worker")
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker in a process of its own. `address`: a Temporal server other than the stack's."""
    address = address or stack.client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        "--settings",
        str(stack.settings_file),
        cwd=ROOT,
        env={**os.environ, "TEMPORAL_ADDRESS": address, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()
