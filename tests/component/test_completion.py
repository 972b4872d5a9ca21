"""Shell completion: what is offered, and that the shells take it."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from cli.place import DEADLINE, HOSTLER, Place, class_yaml, eventually, machine_yaml, offered, place, text, working

from resources.machine.state import Phase
from starter.commands.candidates import FILE_PARAMETERS
from starter.main import COMMANDS

__all__ = ["place", "working"]  # fixtures


async def test_words_of_the_command_line(place: Place) -> None:
    commands = await offered(place, "")
    assert {"get", "doctor", "explain", "completion"} <= set(commands)
    assert "__complete" not in commands
    assert await offered(place, "de") == ["describe", "delete"]
    assert await offered(place, "simulator", "faults", "") == ["list", "add", "clear"]
    assert await offered(place, "get", "") == [
        "machines",
        "pools",
        "workerpools",
        "controlplanes",
        "rollouts",
        "classes",
        "nodes",
        "clusters",
        "orphans",
        *("mcp", "mc", "kubeletconfigs", "controllerconfigs"),
        "all",
    ]
    kinds = ["machine", "pool", "controlplane", "class", "cluster", "mcp"]
    assert await offered(place, "--cluster", "x", "renew", "") == kinds
    described = await offered(place, "--cluster", "x", "describe", "")
    assert set(described) == {*kinds, "workerpool", "mc", "kubeletconfig", "controllerconfig"}
    assert await offered(place, "rollout", "pause", "contr") == ["controlplane"]
    assert await offered(place, "get", "machines", "--sel") == ["--selector"]
    assert await offered(place, "get", "machines", "-o", "js") == [
        "json",
        "jsonpath=",
        "jsonpath-file=",
        "jsonpath-as-json=",
    ]
    assert await offered(place, "get", "machines", "--output=y") == ["--output=yaml"]
    assert await offered(place, "tree", "") == ["cluster", "controlplane", "pool", "workerpool"]
    assert await offered(place, "completion", "") == ["bash", "zsh", "fish"]
    helped = (await place.run("__complete", "--", "doc")).ok()
    assert helped.startswith("doctor\tSay what waits for a person")

    # The shells see one word here, click two.
    assert await offered(place, "wait", "machine", "m1", "--for=phase=R") == ["--for=phase=Running"]
    assert await offered(place, "wait", "mcp", "worker", "--for", "") == ["updated"]
    assert await offered(place, "wait", "machine", "m1", "--for", "") == ["deleted", *(f"phase={p}" for p in Phase)]


async def test_fields_and_providers(place: Place) -> None:
    assert await offered(place, "explain", "machinec") == ["machineclass", "machineconfig", "machineconfigpool"]
    assert await offered(place, "explain", "machineclass.providerSpec.blockDevices.e") == [
        "machineclass.providerSpec.blockDevices.ebs"
    ]
    assert await offered(place, "explain", "machineclass.nonsense.e") == []
    assert await offered(place, "explain", "machineclass", "--provider", "") == ["AWS", "Azure", "GCP"]


async def test_clusters_are_those_of_the_settings(place: Place) -> None:
    place.write_settings(clusters={"east": {}, "west": {}})
    everything = [place.cluster, "east", "west"]
    assert await offered(place, "get", "machines", "--cluster", "") == sorted(everything)
    assert await offered(place, "--cluster=w") == ["--cluster=west"]
    assert await offered(place, "describe", "cluster", "e") == ["east"]
    assert await offered(place, "describe", "cluster/w") == ["cluster/west"]


async def test_names_of_machines_come_from_temporal(working: Place) -> None:
    manifests = text(class_yaml(), *(machine_yaml(name) for name in ("web-1", "web-2", "db-1")))
    (await working.run("apply", "-f", "-", stdin=manifests)).ok()

    async def all_there() -> bool:
        return await offered(working, "get", "machines", "") == ["db-1", "web-1", "web-2"]

    await eventually(all_there, "completion of three names")
    assert await offered(working, "describe", "machine", "we") == ["web-1", "web-2"]
    assert await offered(working, "describe", "machine/d") == ["machine/db-1"]
    assert await offered(working, "delete", "machine", "web-1", "we") == ["web-2"]  # not twice
    assert await offered(working, "preserve", "web-1", "we") == ["web-2"]
    assert await offered(working, "release", "machine/d") == ["machine/db-1"]
    assert await offered(working, "extend", "machine", "d") == ["db-1"]
    assert await offered(working, "get", "machines", "--cluster", "other", "") == []
    assert await offered(working, "get", "machines", "x' OR 'a'='a") == []

    async def classes() -> bool:
        return await offered(working, "describe", "class", "") == ["c1"]

    await eventually(classes, "completion of a class")
    assert await offered(working, "update-class", "db") == ["db-1"]
    assert await offered(working, "update-class", "db-1", "") == ["c1"]

    # Silent, with nothing to offer, when nobody answers.
    assert await offered(working, "get", "machines", "", TEMPORAL_ADDRESS="127.0.0.1:1") == []
    assert await offered(working, "get", "machines", "", HOSTLER_SETTINGS="nowhere.yaml") == []


async def test_files_are_left_to_the_shell(place: Place) -> None:
    assert await offered(place, "apply", "-f", "x") == [":files"]
    assert await offered(place, "worker", "--settings", "") == [":files"]
    assert await offered(place, "wait", "machine", "m1", "--timeout", "") == []

    found = {
        parameter.name
        for lazy in COMMANDS.values()
        if not lazy.group
        for parameter in lazy.load().params
        if getattr(parameter, "type_descriptor", None) and parameter.type_descriptor.annotation is Path
    }
    assert "settings" in found
    assert found <= FILE_PARAMETERS


# -- in the shells themselves -----------------------------------------------------------------------------------------

PROMPT = "ready> "
START = {
    "bash": (["--norc", "--noprofile", "-i"], f"PS1='{PROMPT}'; source <(hostler completion bash)\n"),
    "zsh": (["-f", "-i"], f"PS1='{PROMPT}'; autoload -Uz compinit; compinit -u -D; source <(hostler completion zsh)\n"),
}


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._fd, theirs = pty.openpty()
        try:
            self._shell = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        finally:
            os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, words: str) -> None:
        end, seen = time.monotonic() + DEADLINE, ""
        while words not in seen:
            assert time.monotonic() < end, f"{words!r} did not come: {seen!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                seen += os.read(self._fd, 4096).decode(errors="replace")

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._fd)


def environment(place: Place, shell: str) -> dict[str, str]:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    path = f"{HOSTLER.parent}{os.pathsep}{os.environ['PATH']}"
    return place.environment() | {"PATH": path, "TERM": "dumb"}


@pytest.mark.parametrize("shell", sorted(START))
async def test_a_tab_in_the_shell(place: Place, shell: str) -> None:
    variables = environment(place, shell)
    arguments, setup = START[shell]
    (place.folder / "manifest.yaml").touch()
    terminal = Terminal([shell, *arguments], variables, place.folder)

    def press() -> None:
        terminal.type(setup)
        terminal.until(PROMPT)
        for typed, rest in (("hostler desc", "ribe"), ("hostler apply -f manif", "est.yaml")):
            terminal.type(f"{typed}\t")
            terminal.until(rest)
            terminal.type("\x15")  # Ctrl-U: clears the line
        terminal.type("hostler wait machine m1 --for=phase=Ru\t")
        terminal.until("nning")

    try:
        await asyncio.to_thread(press)
    finally:
        terminal.close()


async def test_fish(place: Place) -> None:
    """fish itself says what it would offer."""
    variables = environment(place, "fish")
    (place.folder / "manifest.yaml").touch()
    for typed, offer in (
        ("hostler desc", "describe"),
        ("hostler apply -f manif", "manifest.yaml"),
        ("hostler wait machine m1 --for=phase=Ru", "--for=phase=Running"),
    ):
        done = await asyncio.to_thread(
            subprocess.run,
            ["fish", "--no-config", "-c", f"hostler completion fish | source; complete -C '{typed}'"],
            env=variables,
            cwd=place.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [offer]
