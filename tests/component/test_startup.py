"""What a quick command imports. Most of its time is imports (bench/cli.py measures it), and one line at the head of a
module that all commands share can double that."""

from __future__ import annotations

import asyncio

from cli.place import DEADLINE, Place, class_yaml, end, machine_yaml, place, text, working

__all__ = ["place", "working"]  # fixtures

SDKS = {"azure.core", "boto3", "botocore", "google.cloud", "kubernetes"}
CLOUDS = {*SDKS, "aiohttp", "activities", "drivers", "workflows", "worker"}
DRAWING = {"rich"}
STATES = {"resources.machine.state", "resources.manifests", "resources.pool", "resources.clouds"}
"""Models of what a list does not show: they take as long as all else that it does."""
READING = {
    "get machines": STATES,
    "get machine m1": STATES,
    "get machines -o yaml": set[str](),
    "describe machine m1": set[str](),
    "events machine m1": set[str](),
    "get pools": set[str](),
    "get clusters": set[str](),
}
"""Commands, and what they do not import beside CLOUDS and DRAWING."""


async def imported(place: Place, *args: str, stdin: str = "") -> set[str]:
    """Every module that the command imports, and the packages that it is in."""
    ran = await place.hostler(*args, stdin=stdin, PYTHONPROFILEIMPORTTIME="1")
    assert ran.code == 0, ran.out
    lines = [line for line in ran.err.splitlines() if line.startswith("import time:")]
    names = [line.rpartition("|")[2].strip().split(".") for line in lines]
    return {".".join(name[:n]) for name in names for n in range(1, len(name) + 1)}


async def test_help_imports_only_what_reads_a_command_line(place: Place) -> None:
    found = await imported(place, "--help")
    assert "typer" in found
    assert not found & (CLOUDS | DRAWING | {"temporalio", "pydantic", "yaml", "asyncio"})


async def test_a_command_that_reads_imports_neither_clouds_nor_workflows(working: Place) -> None:
    (await working.run("apply", "-f", "-", stdin=text(class_yaml(), machine_yaml()))).ok()
    too_much = {}
    for args, but in READING.items():
        found = await imported(working, *args.split())
        assert "temporalio.client" in found, args
        too_much[args] = found & (CLOUDS | DRAWING | but)
    assert not any(too_much.values()), too_much


async def test_a_command_that_writes_imports_no_cloud(working: Place) -> None:
    manifests = text(class_yaml(), machine_yaml())
    for args in ("apply -f -", "diff -f -", "renew machine m1", "delete machine m1"):
        found = await imported(working, *args.split(), stdin=manifests if args.endswith("-") else "")
        assert not found & {"drivers", "workflows", "worker", *(SDKS - {"kubernetes"})}, args


async def test_a_reader_that_has_gone_is_no_error(place: Place) -> None:
    """The process ends without Python's own end, and yet in good order."""
    process = await place.start("explain", "machineclass", "--recursive")
    assert process.stdout is not None
    assert process.stderr is not None
    assert await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert await asyncio.wait_for(process.stderr.read(), DEADLINE) == b""
    await end(process)
