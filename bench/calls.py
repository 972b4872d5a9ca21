"""How many calls a machine's life costs a cloud account, for VMs that take shorter and longer to end.

Every latency runs on a fresh stack (Temporal's dev server, the simulator, one worker: three processes; this one is the
client) with a production worker's timings. Machines are brought to life at once and deleted at once, and the calls are
counted in EC2's own journal.

    python bench/calls.py [--machines 5] [--latency 2 40 120]

Prints a table and, last, one line of JSON:

    calls           per latency, of one life: everything but the account's watch; the goal is 12.
                    machine-controller-manager's AWS provider makes 9
    watch           per latency, of the account's watch in the same time: a listing a minute and a small read every 8 s,
                    however many machines there are
    operations      per latency, calls by name, of all lives together
    seconds         per latency, from the deletion until the last machine has ended

What this does not measure: boots. A VM whose node joins within half a minute is not looked at; after that a look is
three calls, at first every 30 s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from _program import program
from _stack import CLUSTER, Stack, Times, running
from life import burst, together
from rich.console import Console
from rich.table import Table

from resources import names
from resources.machine.intents import DeleteIntent
from workflows.machine import MachineWorkflow

GOAL = 12
MCM = 9
"""Of machine-controller-manager-provider-aws: DescribeImages, RunInstances, the waits for what they made, and what
deletes it."""


@dataclass
class Found:
    latency: float
    machines: int
    seconds: float
    lives: Counter[str]
    watch: int

    @property
    def calls(self) -> float:
        """Of one life."""
        return sum(self.lives.values()) / self.machines


async def bench(machines: int, latencies: list[float], say: Callable[[str], None]) -> list[Found]:
    found = []
    for latency in latencies:
        async with running("hostler", cached=machines + 100, times=Times(terminate=latency)) as stack:
            found.append(await _lives(stack, machines, latency))
            stack.check()
        say(f"VMs that end in {latency:g} s: {found[-1].calls:.1f} calls a life")
    return found


async def _lives(stack: Stack, machines: int, latency: float) -> Found:
    _, last = await stack.calls(0, "ec2")
    await burst(stack, "hostler", "m", machines)
    birth, last = await stack.calls(last, "ec2")
    started = time.monotonic()
    handles = [stack.client.get_workflow_handle(names.machine_id(CLUSTER, f"m-{n}")) for n in range(machines)]

    async def end(handle: Any) -> None:
        intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="bench")
        await handle.execute_update(MachineWorkflow.delete, intent, id=intent.id)
        await asyncio.wait_for(handle.result(), 2 * latency + 60)

    await together([lambda h=h: end(h) for h in handles])  # type: ignore[misc]
    seconds = time.monotonic() - started
    end_of_life, _ = await stack.calls(last, "ec2")
    own = [c for c in birth if not _lists(c)] + [c for c in end_of_life if not (_lists(c) or _reads_one(c))]
    lives = Counter(c["operation"] for c in own)
    return Found(latency, machines, seconds, lives, len(birth) + len(end_of_life) - len(own))


def _lists(call: dict[str, Any]) -> bool:
    """Whether it is the listing of the account's watch."""
    filters = [f["Name"] for f in call["request"].get("Filters", ())]
    return "tag:hostler.io/owner" in filters and "tag:hostler.io/machine" not in filters


def _reads_one(call: dict[str, Any]) -> bool:
    """Whether it is a read by id: at the end of lives only the account's watch makes one, between two listings."""
    return call["operation"] == "DescribeInstances" and "InstanceIds" in call["request"]


def show(found: list[Found], console: Console) -> None:
    table = Table("", *(f"ends in {f.latency:g} s" for f in found), title=f"calls to EC2, {found[0].machines} machines")
    table.add_row(f"of one life (goal {GOAL}; MCM {MCM})", *(f"{f.calls:.1f}" for f in found))
    for operation in sorted({o for f in found for o in f.lives}):
        table.add_row(f"  {operation}", *(f"{f.lives[operation] / f.machines:.1f}" for f in found))
    table.add_row("of the account's watch, meanwhile", *(str(f.watch) for f in found))
    table.add_row("seconds from deletion to end", *(f"{f.seconds:.1f}" for f in found))
    console.print(table)


def summary(found: list[Found]) -> dict[str, Any]:
    def by_latency(value: Callable[[Found], Any]) -> dict[str, Any]:
        return {f"{f.latency:g}": value(f) for f in found}

    return {
        "calls": by_latency(lambda f: round(f.calls, 2)),
        "goal": GOAL,
        "mcm": MCM,
        "watch": by_latency(lambda f: f.watch),
        "operations": by_latency(lambda f: dict(sorted(f.lives.items()))),
        "seconds": by_latency(lambda f: round(f.seconds, 1)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=5, metavar="N", help="at the same time (default: 5)")
    parser.add_argument("--latency", type=float, nargs="+", default=[2, 40, 120], metavar="S", help="(2 40 120)")
    options = parser.parse_args()
    if options.machines < 1 or min(options.latency) < 0:
        parser.error("--machines and --latency: at least one machine, and no time below 0")
    return program(lambda say: bench(options.machines, options.latency, say), show, summary)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
