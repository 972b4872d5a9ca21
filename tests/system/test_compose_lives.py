"""All whole lives, with docker-compose.yml's Temporal (its server on PostgreSQL) in place of the dev server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from paths import ROOT, TESTS
from stack.engine import Engine
from stack.needs import free_ports, missing

pytestmark = [pytest.mark.exhaustive, pytest.mark.skipif(bool(missing()), reason=missing())]

APART = ("test_clock_lives", "test_compose_lives")
"""Lives with a dev server of their own, and these."""
LIVES = sorted(file.stem for file in (TESTS / "system").glob("test_*li[fv]e*.py") if file.stem not in APART)


@pytest_asyncio.fixture(scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Where the stack's Temporal is."""
    state = tmp_path_factory.mktemp("stack")
    async with Engine(state, environment=free_ports(), services=("temporal",)) as stack:
        await stack.ready()
        yield stack.published("temporal", 7233)


@pytest.mark.parametrize("lives", LIVES)
async def test_lives(address: str, lives: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--temporal={address}"]
    argv += [f"--basetemp={tmp_path / 'lives'}", str(TESTS / "system" / f"{lives}.py")]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()[-8000:]
