"""How long a pool takes to come up, to roll and to go down, compared with what the machines themselves take.

Runs on a fresh stack (Temporal's dev server, the simulator, one worker: three processes; this one is the client) with
machines that take their time as a cloud's do: a boot, a join, a termination. The pool is applied with N replicas, then
its class with another image, then it is scaled to 0; each time the clock runs until the pool says so itself.

    python bench/rollout.py [--machines 50] [--surge 10%] [--unavailable 0] [--boot 2] [--join 1] [--terminate 2]

Prints a table and, last, one line of JSON:

    up_ratio       seconds until N machines are Running, ÷ (boot + join)
    rollout_ratio  seconds of the rollout ÷ (waves · (boot + join + termination)); a wave is as many machines as the
                   surge and maxUnavailable allow at once; the goal is 1.3
    down_ratio     seconds until no VM is left, ÷ termination
    up_seconds, rollout_seconds, down_seconds, and the ideals they are divided by
    most_vms       the most VMs at the same time, from EC2's journal; more than N + surge is an error
    events         history events of the pool's last run, and of one machine that is Running
    cpu_seconds    of each process, over all
    load           of this computer, at the beginning

The ideal knows no slow start (1, 2, 4, … machines on the way to a VM) and no node that has to be marked or drained, so
1.0 is out of reach. What this does not measure: a cloud, whose calls take 100 ms and more, and a Temporal cluster with
a database.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from _program import program
from _stack import CLUSTER, BenchError, Stack, Times, running
from rich.console import Console
from rich.table import Table

from resources import names
from resources.manifests import MachineClass
from resources.pool.intents import PoolSummary
from resources.pool.manifest import MachineDeployment, percent_of
from starter.sdk.client import HostlerClient
from starter.sdk.errors import NoAnswer, Unreachable

POOL = "bench"
LOOK_EVERY = 0.2  # seconds between two looks at the pool
OTHER_IMAGE = "ami-0a1b2c3d4e5f60002"


@dataclass
class Phase:
    seconds: float
    ideal: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.ideal


@dataclass
class Numbers:
    machines: int
    surge: int
    waves: int
    up: Phase
    rollout: Phase
    down: Phase
    most_vms: int
    pool_events: int
    machine_events: int
    cpu: dict[str, float]
    worker_rss_mb: float
    load: float

    def summary(self) -> dict[str, Any]:
        phases = {"up": self.up, "rollout": self.rollout, "down": self.down}
        return {
            "machines": self.machines,
            **{f"{name}_ratio": round(phase.ratio, 2) for name, phase in phases.items()},
            **{f"{name}_seconds": round(phase.seconds, 1) for name, phase in phases.items()},
            **{f"{name}_ideal": round(phase.ideal, 1) for name, phase in phases.items()},
            "surge": self.surge,
            "waves": self.waves,
            "most_vms": self.most_vms,
            "events": {"pool": self.pool_events, "machine": self.machine_events},
            "cpu_seconds": {name: round(seconds, 1) for name, seconds in self.cpu.items()},
            "worker_rss_mb": round(self.worker_rss_mb),
            "load": round(self.load, 1),
        }


async def bench(options: argparse.Namespace, say: Callable[[str], None]) -> Numbers:
    machines: int = options.machines
    times = Times(boot=options.boot, join=options.join, terminate=options.terminate)
    async with running("hostler", 3 * machines + 100, times=times) as stack:
        hostler = HostlerClient(stack.client, stack.settings, cluster=CLUSTER, requested_by="bench")
        surge, unavailable = _share(options.surge, machines, up=True), _share(options.unavailable, machines, up=False)
        waves = -(-machines // max(1, surge + unavailable))
        load, before = os.getloadavg()[0], stack.cpu_seconds()
        manifest: MachineClass = stack.manifests.classes[0]
        pool = pool_of(manifest, machines, options.surge, options.unavailable)
        up = await timed(stack, hostler, lambda: hostler.apply(manifest, pool), rolled_out(machines, 1))
        say(f"{machines} machines are Running after {up:.1f} s; now the image changes")
        image = {**manifest.provider_spec, "ami": OTHER_IMAGE}
        changed = manifest.model_copy(update={"provider_spec": image})
        rollout = await timed(stack, hostler, lambda: hostler.apply(changed), rolled_out(machines, 2))
        say(f"rolled out after {rollout:.1f} s; now it goes down to 0")
        rss = stack.rss_kb() / 1024
        machine_events = await _events(stack, names.machine_id(CLUSTER, (await hostler.list())[0].name))
        empty = pool.model_copy(update={"spec": pool.spec.model_copy(update={"replicas": 0})})
        down = await timed(stack, hostler, lambda: hostler.apply(empty), rolled_out(0, 2))
        after = stack.cpu_seconds()
        stack.check()
        numbers = Numbers(
            machines=machines,
            surge=surge,
            waves=waves,
            up=Phase(up, options.boot + options.join),
            rollout=Phase(rollout, waves * (options.boot + options.join + options.terminate)),
            down=Phase(down, options.terminate),
            most_vms=await _most_vms(stack, options.terminate),
            pool_events=await _events(stack, names.pool_id(CLUSTER, POOL)),
            machine_events=machine_events,
            cpu={name: after[name] - before[name] for name in after},
            worker_rss_mb=rss,
            load=load,
        )
        await hostler.pools.delete(POOL)
        return numbers


def _share(amount: str, machines: int, up: bool) -> int:
    percent = percent_of(amount) if amount.endswith("%") else None
    if percent is None:
        return int(amount)
    return -(-machines * percent // 100) if up else machines * percent // 100


def pool_of(manifest: MachineClass, machines: int, surge: str = "1", unavailable: str = "0") -> MachineDeployment:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return MachineDeployment.model_validate(
        {
            "metadata": {"name": POOL},
            "spec": {
                "replicas": machines,
                "strategy": {"rollingUpdate": rolling},
                "template": {"spec": {"class": {"name": manifest.metadata.name}}},
            },
        }
    )


def rolled_out(machines: int, revision: int) -> Callable[[PoolSummary], bool]:
    """Nothing is left to do, and there are no more VMs than there should be."""

    def done(s: PoolSummary) -> bool:
        return (s.replicas, s.revision, s.machines) == (machines, revision, machines) and s.rolled_out

    return done


async def timed(
    stack: Stack, hostler: HostlerClient, act: Callable[[], Any], done: Callable[[PoolSummary], bool]
) -> float:
    started = time.monotonic()
    await act()
    last: PoolSummary | None = None
    while True:
        with contextlib.suppress(NoAnswer, Unreachable):  # a busy worker answers late; `check` finds dead processes
            last = await hostler.pools.summary(POOL)
            if done(last):
                return time.monotonic() - started
        stack.check()
        if time.monotonic() - started > 3600:
            raise BenchError(f"it takes more than an hour; last seen: {last}")
        await asyncio.sleep(LOOK_EVERY)


async def _most_vms(stack: Stack, terminate: float) -> int:
    """The most VMs at once, from EC2's journal: a VM lives from its launch until its termination takes effect."""
    changes: list[tuple[float, int]] = []
    since = 0
    while True:
        calls, last = await stack.calls(since, "ec2")
        for call in calls:
            if call["error"]:
                continue
            if call["operation"] == "RunInstances":
                changes.append((call["time"], len(call["result"].get("instanceIds", ()))))
            elif call["operation"] == "TerminateInstances" and call["mutating"]:
                changes.append((call["time"] + terminate, -len(call["request"]["InstanceIds"])))
        if last == since or not calls:
            break
        since = last
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


async def _events(stack: Stack, workflow_id: str) -> int:
    """History events of the newest run."""
    return int((await stack.client.get_workflow_handle(workflow_id).describe()).history_length)


def show(numbers: Numbers, console: Console) -> None:
    table = Table(title=f"{numbers.machines} machines, surge {numbers.surge}: {numbers.waves} waves")
    for name in ("", "seconds", "ideal", "ratio"):
        table.add_column(name, justify="right" if name else "left")
    for name, phase in (("up", numbers.up), ("rollout", numbers.rollout), ("down", numbers.down)):
        table.add_row(name, f"{phase.seconds:.1f}", f"{phase.ideal:.1f}", f"{phase.ratio:.2f}")
    console.print(table)
    console.print(
        f"VMs at the same time, at most: {numbers.most_vms}; history events of the pool's last run: "
        f"{numbers.pool_events}, of a Running machine: {numbers.machine_events}"
    )
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in numbers.cpu.items())
    console.print(f"processor time: {spent}; the worker has {numbers.worker_rss_mb:.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=50, metavar="N", help="default: 50")
    parser.add_argument("--surge", default="10%", metavar="AMOUNT", help="default: 10%%")
    parser.add_argument("--unavailable", default="0", metavar="AMOUNT", help="default: 0")
    for name, seconds in (("boot", 2.0), ("join", 1.0), ("terminate", 2.0)):
        parser.add_argument(f"--{name}", type=float, default=seconds, metavar="S", help=f"default: {seconds:g}")
    options = parser.parse_args()
    return program(lambda say: bench(options, say), show, Numbers.summary)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
