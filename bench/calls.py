"""How many calls a machine's life costs a cloud account, for VMs that take shorter and longer to end.

Every latency runs on a fresh stack (Temporal's dev server, the simulator, one worker: three processes; this one is the
client) with a production worker's timings. Machines are brought to life at once and deleted at once, and the calls are
counted in the cloud's own journal.

    python bench/calls.py [--provider aws|azure|gcp] [--machines 5] [--latency 2 40 120] [--launch 0]

Prints a table and, last, one line of JSON:

    calls           per latency, of one life: everything but the account's watch, which makes a listing a minute and a
                    small read every 8 s, however many machines there are; the goal is 12.
                    machine-controller-manager's AWS provider makes 9
    operations      per latency, calls by name, of all lives together
    seconds         per latency, from the deletion until the last machine has ended

What this does not measure: boots. A VM whose node joins within half a minute is not looked at; after that a look is
one to three calls, at first every 30 s. The cloud makes a VM in no time, unless `--launch` says how long it takes:
where a creation takes several passes, each of them is a call.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _program import program
from _stack import CLOUD, CLUSTER, Stack, Times, running
from life import burst, together
from rich.console import Console
from rich.table import Table

from resources import names
from resources.clouds import simulations
from resources.machine.intents import DeleteIntent
from workflows.machine import MachineWorkflow

GOAL = 12
MCM = 9
"""Calls of machine-controller-manager-provider-aws: DescribeImages, RunInstances, the waits for what they made, and
what deletes it."""
IDLE = 24.0
"""Seconds in which no machine does anything: its calls are those of the account's watch, three small reads. As many a
second are taken from those of the deletion, as nothing tells them from a machine's own."""


@dataclass
class Found:
    latency: float
    machines: int
    seconds: float
    lives: Counter[str]

    @property
    def calls(self) -> float:
        """Calls of one life."""
        return sum(self.lives.values()) / self.machines


@dataclass
class Report:
    cloud: str
    """Its name in the settings."""
    found: list[Found] = field(default_factory=list)


async def bench(cloud: str, machines: int, latencies: list[float], launch: float, say: Callable[[str], None]) -> Report:
    report = Report(cloud)
    for latency in latencies:
        times = Times(launch=launch, terminate=latency)
        async with running("hostler", cached=machines + 100, times=times, cloud=cloud) as stack:
            found = await _lives(stack, machines, latency)
            stack.check()
        report.found.append(found)
        say(f"VMs that end in {latency:g} s: {found.calls:.1f} calls a life")
    return report


async def _lives(stack: Stack, machines: int, latency: float) -> Found:
    service = stack.cloud.service
    await burst(stack, "hostler", "m", machines)
    birth, last = await stack.calls(0, service)
    await asyncio.sleep(IDLE)
    idle, last = await stack.calls(last, service)
    started = time.monotonic()
    handles = [stack.client.get_workflow_handle(names.machine_id(CLUSTER, f"m-{n}")) for n in range(machines)]

    async def end(handle: Any) -> None:
        intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="bench")
        await handle.execute_update(MachineWorkflow.delete, intent, id=intent.id)
        await asyncio.wait_for(handle.result(), 2 * latency + 120)

    await together([lambda h=h: end(h) for h in handles])  # type: ignore[misc]
    seconds = time.monotonic() - started
    end_of_life, _ = await stack.calls(last, service)
    lives = Counter(c["operation"] for c in (*birth, *end_of_life) if not _lists(c))
    watched = Counter(c["operation"] for c in idle if not _lists(c))
    lives -= Counter({operation: round(n * seconds / IDLE) for operation, n in watched.items()})
    return Found(latency, machines, seconds, lives)


def _lists(call: dict[str, Any]) -> bool:
    """Whether it is the listing of the account's watch: of the whole cluster, and of no machine."""
    asked = json.dumps(call["request"])
    return not call["mutating"] and CLUSTER in asked and not re.search(r"\bm-\d", asked)


def show(report: Report, console: Console) -> None:
    found = report.found
    title = f"calls to {report.cloud}, {found[0].machines} machines"
    table = Table("", *(f"ends in {f.latency:g} s" for f in found), title=title)
    table.add_row(f"of one life (goal {GOAL}; MCM {MCM})", *(f"{f.calls:.1f}" for f in found))
    for operation in sorted({o for f in found for o in f.lives}):
        table.add_row(f"  {operation}", *(f"{f.lives[operation] / f.machines:.1f}" for f in found))
    table.add_row("seconds from deletion to end", *(f"{f.seconds:.1f}" for f in found))
    console.print(table)


def summary(report: Report) -> dict[str, Any]:
    def by_latency(value: Callable[[Found], Any]) -> dict[str, Any]:
        return {f"{f.latency:g}": value(f) for f in report.found}

    return {
        "cloud": report.cloud,
        "calls": by_latency(lambda f: round(f.calls, 2)),
        "goal": GOAL,
        "mcm": MCM,
        "operations": by_latency(lambda f: dict(sorted(f.lives.items()))),
        "seconds": by_latency(lambda f: round(f.seconds, 1)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    clouds = simulations()
    parser.add_argument("--provider", choices=clouds, default=CLOUD, help="whose account (default: %(default)s)")
    parser.add_argument("--machines", type=int, default=5, metavar="N", help="at the same time (default: 5)")
    parser.add_argument("--latency", type=float, nargs="+", default=[2, 40, 120], metavar="S", help="(2 40 120)")
    parser.add_argument("--launch", type=float, default=0.0, metavar="S", help="until a VM runs (default: 0)")
    options = parser.parse_args()
    if options.machines < 1 or min(*options.latency, options.launch) < 0:
        parser.error("--machines, --latency and --launch: at least one machine, and no time below 0")
    wanted = (options.provider, options.machines, options.latency, options.launch)
    return program(lambda say: bench(*wanted, say), show, summary)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
