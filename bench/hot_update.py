"""What a changed class costs: many machines of one class, one tag changed, no VM replaced.

Runs on a fresh stack (Temporal's dev server, the simulator, one worker: three processes; this one is the client). The
machines come to life first; then the class is applied with another value of one tag, and the clock runs until the class
says that every user has it. EC2's own journal says which calls that took.

    python bench/hot_update.py [--machines 100] [--concurrency 10] [--calls-per-second 10]

Prints a table and, last, one line of JSON:

    seconds               from the apply until the class knows that every machine is updated
    calls                 EC2 calls of the change, by operation, and `calls_per_machine`
    changing_per_machine  those among them that change something; the goal is 1: one CreateTags for a VM with all it has
    replaced              VMs that were launched or ended meanwhile; anything but 0 is an error
    at_work               the most machines at work on the change at the same time, as seen at the class
    concurrency           how many the class allows (annotation hostler.io/update-concurrency)
    calls_per_second      the setting clouds.aws.callsPerSecond, which Temporal keeps: driver calls, each of which is a
                          few EC2 calls; null: none
    updates_per_second    the most machines that were updated within one second; with such a limit it is about that, and
                          more in the first second, since what was not used before may be used at once
    events_per_machine    history events of one machine for the change (median)

What this does not measure: a cloud (the simulator answers in about a millisecond, and limits no rate), and a Temporal
cluster with a database. Compare calls and events; the time is this computer's, on this day.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from _program import program
from _stack import CLUSTER, BenchError, Stack, running
from life import DONE, together
from rich.console import Console
from rich.table import Table

from resources import names
from resources.machine.manifest import Machine
from resources.machine_class.state import UPDATE_CONCURRENCY, ClassState
from resources.manifests import MachineClass
from starter.sdk.client import HostlerClient
from starter.sdk.errors import NoAnswer

MOST = 500  # machines
LOOK_EVERY = 0.1  # seconds between two looks at the class
SECONDS_EACH = 3  # for a machine, on a busy computer; after that something is wrong
TAG = "bench.hostler.io/cost"
REPLACING = ("RunInstances", "TerminateInstances")


@dataclass
class Numbers:
    machines: int
    seconds: float
    calls: Counter[str]
    changing: int
    resources: int
    """Resources that carry the new value."""
    at_work: int
    concurrency: int
    calls_per_second: float | None
    updates_per_second: int
    events: list[int]
    load: float

    def summary(self) -> dict[str, Any]:
        return {
            "machines": self.machines,
            "seconds": round(self.seconds, 2),
            "machines_per_second": round(self.machines / self.seconds, 1),
            "calls": dict(sorted(self.calls.items())),
            "calls_per_machine": round(self.calls.total() / self.machines, 2),
            "changing_per_machine": round(self.changing / self.machines, 2),
            "resources": self.resources,
            "replaced": sum(self.calls[o] for o in REPLACING),
            "at_work": self.at_work,
            "concurrency": self.concurrency,
            "calls_per_second": self.calls_per_second,
            "updates_per_second": self.updates_per_second,
            "events_per_machine": statistics.median(self.events),
            "load": round(self.load, 1),
        }


async def bench(options: argparse.Namespace, say: Callable[[str], None]) -> Numbers:
    machines: int = options.machines
    async with running("hostler", 2 * machines + 100, options.calls_per_second) as stack:
        hostler = HostlerClient(stack.client, stack.settings, cluster=CLUSTER, requested_by="bench")
        before = _class(stack, "a", options.concurrency)
        await hostler.apply(before, *_machines(stack, machines))
        await _all_running(stack, machines)
        await _all_done(stack, hostler, before, machines)
        say(f"{machines} machines are Running; now the class changes")
        numbers = await change(stack, hostler, options)
        stack.check()
        return numbers


def _class(stack: Stack, value: str, concurrency: int) -> MachineClass:
    """The class of examples/aws with a tag of this value on every resource."""
    manifest: MachineClass = stack.manifests.classes[0]
    spec = manifest.provider_spec
    fields = {f: {**(spec.get(f) or {}), TAG: value} for f in ("vmTags", "nicTags", "diskTags")}
    metadata = manifest.metadata.model_copy(
        update={"annotations": {names.UPDATE_CONCURRENCY_ANNOTATION: str(concurrency)}}
    )
    return manifest.model_copy(update={"metadata": metadata, "provider_spec": {**spec, **fields}})


def _machines(stack: Stack, machines: int) -> list[Machine]:
    manifest: Machine = stack.manifests.machines[0]
    return [
        manifest.model_copy(update={"metadata": manifest.metadata.model_copy(update={"name": f"hot-{n}"})})
        for n in range(machines)
    ]


async def _all_running(stack: Stack, machines: int) -> None:
    deadline = time.monotonic() + 60 + SECONDS_EACH * machines
    while (count := (await stack.client.count_workflows(DONE["hostler"])).count) < machines:
        stack.check()
        if time.monotonic() > deadline:
            raise BenchError(f"{count} of {machines} machines are Running, and the time is over")
        await asyncio.sleep(LOOK_EVERY)


async def _all_done(stack: Stack, hostler: HostlerClient, manifest: MachineClass, machines: int) -> int:
    """Waits until the class has every machine as done with the newest generation; returns the most seen at work at
    once."""
    deadline, most = time.monotonic() + 60 + SECONDS_EACH * machines, 0
    while True:
        state = None
        with contextlib.suppress(NoAnswer):  # a worker that has much to do answers late
            state = await hostler.classes.get(manifest.metadata.name)
        if state is not None:
            most = max(most, _at_work(state))
            if len(state.users) == machines and state.last_updated_generation == state.generation:
                return most
        stack.check()
        if time.monotonic() > deadline:
            raise BenchError(f"the class is not done in time: {_states(state) if state else 'it does not answer'}")
        await asyncio.sleep(LOOK_EVERY)


def _at_work(state: ClassState) -> int:
    """Machines that were told of the newest generation, and are not done with it."""
    newest = [u for u in state.users.values() if u.told == state.generation]
    return sum(u.generation < state.generation or not u.settled for u in newest)


def _states(state: ClassState) -> str:
    counts = Counter(f"{u.state} {u.applied}" for u in state.users.values())
    return f"generation {state.generation}, {len(state.users)} users: {dict(counts)} {state.troubles}"


async def change(stack: Stack, hostler: HostlerClient, options: argparse.Namespace) -> Numbers:
    machines: int = options.machines
    handles = [stack.client.get_workflow_handle(names.machine_id(CLUSTER, f"hot-{n}")) for n in range(machines)]
    manifest = _class(stack, "b", options.concurrency)
    events = await together([partial(_events, h) for h in handles])
    _, last = await stack.calls(0, "ec2")
    load, started = os.getloadavg()[0], time.monotonic()
    await hostler.apply(manifest)
    most = await _all_done(stack, hostler, manifest, machines)
    seconds = time.monotonic() - started
    calls, _ = await stack.calls(last, "ec2")
    after = await together([partial(_events, h) for h in handles])
    state = await hostler.classes.get(manifest.metadata.name)
    created = [c for c in calls if c["operation"] == "CreateTags" and not c["error"]]
    tagged = {r for c in created for r in c["request"]["Resources"]}
    numbers = Numbers(
        machines=machines,
        seconds=seconds,
        calls=Counter(c["operation"] for c in calls),
        changing=sum(c["mutating"] for c in calls),
        resources=len(tagged),
        at_work=most,
        concurrency=state.update_concurrency,
        calls_per_second=options.calls_per_second,
        updates_per_second=_most_within_a_second(sorted(c["time"] for c in created)),
        events=[b - a for a, b in zip(events, after, strict=True)],
        load=load,
    )
    _check(numbers, sum(r.startswith("i-") for r in tagged))
    return numbers


def _most_within_a_second(times: list[float]) -> int:
    return max(sum(start <= t < start + 1 for t in times) for start in times)


async def _events(handle: Any) -> int:
    return int((await handle.describe()).history_length)


def _check(numbers: Numbers, tagged: int) -> None:
    """Checks the change. Numbers of a change that did not reach every VM, or that replaced one, would be worthless."""
    if tagged != numbers.machines:
        raise BenchError(f"{numbers.machines} machines are said to be updated, and {tagged} VMs were tagged")
    if replaced := {o: numbers.calls[o] for o in REPLACING if numbers.calls[o]}:
        raise BenchError(f"a changed tag has replaced VMs: {replaced}")
    if numbers.at_work > numbers.concurrency:
        raise BenchError(f"{numbers.at_work} machines were at work at once; the class allows {numbers.concurrency}")


def show(numbers: Numbers, console: Console) -> None:
    values = numbers.summary()
    table = Table(title=f"one tag of {numbers.machines} machines changed in {numbers.seconds:.1f} s")
    table.add_column("")
    table.add_column("all", justify="right")
    table.add_column("per machine", justify="right")
    for operation, count in sorted(numbers.calls.items()):
        table.add_row(f"EC2 {operation}", str(count), f"{count / numbers.machines:.2f}")
    table.add_row("EC2 calls", str(numbers.calls.total()), f"{values['calls_per_machine']:.2f}")
    table.add_row("resources tagged", str(numbers.resources), f"{numbers.resources / numbers.machines:.2f}")
    table.add_row("VMs replaced", str(values["replaced"]), "")
    table.add_row("history events", str(sum(numbers.events)), f"{values['events_per_machine']:g}")
    table.add_row("at work at once (allowed)", f"{numbers.at_work} ({numbers.concurrency})", "")
    table.add_row("updated within one second", str(numbers.updates_per_second), "")
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=100, metavar="N", help=f"default: 100, at most {MOST}")
    parser.add_argument(
        "--concurrency", type=int, default=UPDATE_CONCURRENCY, metavar="N", help=f"default: {UPDATE_CONCURRENCY}"
    )
    parser.add_argument("--calls-per-second", type=float, metavar="N", help="of the cloud's queue; default: no limit")
    options = parser.parse_args()
    if not 1 <= options.machines <= MOST:
        parser.error(f"--machines: 1 to {MOST}; the simulator's journal, from which calls are counted, holds no more")
    return program(lambda say: bench(options, say), show, Numbers.summary)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
