"""What a command costs that only looks, beside kubectl's `get nodes`.

Runs on a fresh stack with one machine (Temporal's dev server, the simulator, one worker), in rounds: each command once
in each round, so that a busy neighbour disturbs all alike. What counts is processor time, user and system, of the
command's own process.

    python bench/cli.py [--rounds 10]

Prints a table and, last, one line of JSON:

    cpu_ms      per command: the median of the rounds
    ratio       per command: to kubectl's, median of the rounds' pairs
    wall_ms     per command: the median of the rounds, which depends on what else runs here

*floor* is a Python that imports Temporal's client, with the converter for pydantic, and typer: what no command that
asks Temporal can do without.

What this does not measure: a first run, which compiles modules and reads them from disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _program import program
from _stack import EXAMPLES, BenchError
from rich.console import Console
from rich.table import Table

from starter.local.ports import Ports
from starter.local.stack import Options, Stack

MACHINE = "demo-1"
KUBECTL = "kubectl get nodes"
FLOOR = "floor"
IMPORTS = "import os, temporalio.client, temporalio.contrib.pydantic, temporalio.envconfig, typer.main; os._exit(0)"
GOALS = {"hostler --help": 150, "hostler get machines": 350}
"""Milliseconds of processor time."""


@dataclass
class Found:
    cpu: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds, by command, one of each round."""
    wall: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        pairs = zip(self.cpu[name], self.cpu[KUBECTL], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


async def bench(rounds: int, say: Callable[[str], None]) -> Found:
    found = Found()
    with tempfile.TemporaryDirectory(prefix="hostler-bench-") as folder:
        options = Options(directory=Path(folder) / "stack", ports=Ports.any(), speed="fast")
        async with Stack(options, say) as stack:
            commands = _commands(stack)
            environment = _environment(stack)
            for args in (["apply", "-f", str(EXAMPLES)], ["wait", "machine", MACHINE, "--for", "phase=Running"]):
                await asyncio.to_thread(_run, [str(_beside("hostler")), *args], environment)
            for n in range(rounds + 1):  # the first compiles and warms up
                for name, argv in commands.items():
                    cpu, wall = await asyncio.to_thread(_run, argv, environment)
                    if n:
                        found.cpu.setdefault(name, []).append(cpu)
                        found.wall.setdefault(name, []).append(wall)
            say(f"{rounds} rounds; load {os.getloadavg()[0]:.1f}")
    return found


def _commands(stack: Stack) -> dict[str, list[str]]:
    hostler = str(_beside("hostler"))
    asked = ("--help", "get machines", f"get machine {MACHINE}", "get pools", f"describe machine {MACHINE}")
    asked += (f"events machine {MACHINE}", "get nodes", f"diff -f {EXAMPLES}")
    kubectl = [str(_beside("kubectl")), "--kubeconfig", str(stack.kubeconfig), "get", "nodes"]
    shown = {words: f"hostler {words.replace(str(EXAMPLES), 'examples/aws')}" for words in asked}
    ours = {shown[words]: [hostler, *words.split()] for words in asked}
    return {KUBECTL: kubectl, FLOOR: [sys.executable, "-c", IMPORTS], **ours}


def _beside(name: str) -> Path:
    found = Path(sys.executable).with_name(name)
    if not found.exists():
        raise BenchError(f"{found} is missing: make install")
    return found


def _environment(stack: Stack) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOSTLER_", "TEMPORAL_"))}
    return {**kept, "HOSTLER_SETTINGS": str(stack.settings_file), "TEMPORAL_CONFIG_FILE": os.devnull}


def _run(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Runs a command to its end: milliseconds of processor time and of real time. Raises BenchError if it fails."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(argv, stdout=printed, stderr=printed, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        said = printed.read().decode(errors="replace")
    if process.returncode:
        raise BenchError(f"{' '.join(argv)} ended with {process.returncode}: {said}")
    return (used.ru_utime + used.ru_stime) * 1000, (time.monotonic() - began) * 1000


def show(found: Found, console: Console) -> None:
    table = Table("", "CPU ms", "to kubectl", "real ms", "goal, CPU ms", title="a command that looks")
    for name, cpu in found.cpu.items():
        numbers = (statistics.median(cpu), found.ratio(name), statistics.median(found.wall[name]))
        table.add_row(name, f"{numbers[0]:.0f}", f"{numbers[1]:.1f}", f"{numbers[2]:.0f}", str(GOALS.get(name, "")))
    console.print(table)


def summary(found: Found) -> dict[str, Any]:
    return {
        "rounds": len(found.cpu[KUBECTL]),
        "cpu_ms": {name: round(statistics.median(cpu)) for name, cpu in found.cpu.items()},
        "ratio": {name: round(found.ratio(name), 2) for name in found.cpu},
        "wall_ms": {name: round(statistics.median(wall)) for name, wall in found.wall.items()},
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of every command (default: 10)")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    return program(lambda say: bench(options.rounds, say), show, summary)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
