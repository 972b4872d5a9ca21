"""What a pool of many machines costs: time, history, memory of the worker and of Temporal's server.

Runs on a fresh stack for each size (Temporal's dev server, the simulator, one worker: three processes; this one is the
client). The pool goes from 0 to N machines that boot at once, stays for a while, and goes back to 0.

    python bench/scale.py [--machines 100 500 2000] [--idle 10]

Prints a table and, last, one line of JSON, a list with one entry for each size:

    up_ms, down_ms         milliseconds a machine, from the apply until the pool says that it is done
    pool_events            history events of the pool for its way up, over all its runs, and a machine
    machine_events         history events of one machine that is Running
    state_kb               the pool's state, as it travels to its next run
    worker_kb, server_kb   memory of the worker and of Temporal's server for each Running machine, over an empty pool's
    idle_cpu               processor seconds of worker and server, a machine and an hour, while nothing happens

The pace is the pool's own: 1, 2, 4, … up to 100 machines on the way to a VM at a time. What this does not measure: a
cloud, and a Temporal cluster with a database; the dev server keeps histories in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from _program import program
from _stack import CLUSTER, Times, running
from rich.console import Console
from rich.table import Table
from rollout import POOL, pool_of, rolled_out, timed

from resources import names
from resources.converter import data_converter
from resources.manifests import MachineClass
from starter.sdk.client import HostlerClient

LEASES_A_SECOND = 50
"""Lease renewals of all kubelets together, at most."""
COLUMNS = ("machines", "up_ms", "down_ms", "pool_events", "machine_events", "state_kb", "worker_kb", "server_kb")


async def bench(machines: int, idle: float, say: Callable[[str], None]) -> dict[str, Any]:
    # One process plays all kubelets: many of them renew their Leases more rarely, so that this process is not what is
    # measured.
    beats = max(10.0, machines / LEASES_A_SECOND)
    times = Times(heartbeat=beats, status=3 * beats)
    async with running("hostler", 2 * machines + 100, times=times) as stack:
        hostler = HostlerClient(stack.client, stack.settings, cluster=CLUSTER, requested_by="bench")
        manifest: MachineClass = stack.manifests.classes[0]
        load = os.getloadavg()[0]
        await timed(stack, hostler, lambda: hostler.apply(manifest, pool_of(manifest, 0)), rolled_out(0, 1))
        memory = {name: stack.rss_kb(name) for name in ("worker", "server")}
        up = await timed(stack, hostler, lambda: hostler.pools.scale(POOL, replicas=machines), rolled_out(machines, 1))
        say(f"{machines} machines are Running after {up:.1f} s")
        used = {name: stack.rss_kb(name) - memory[name] for name in memory}
        pool_events = await _all_events(stack.client, names.pool_id(CLUSTER, POOL))
        some = (await hostler.list())[0].name
        machine_events = (
            await stack.client.get_workflow_handle(names.machine_id(CLUSTER, some)).describe()
        ).history_length
        (payload,) = await data_converter.encode([await hostler.pools.get(POOL)])
        before = stack.cpu_seconds()
        await asyncio.sleep(idle)
        after = stack.cpu_seconds()
        idle_cpu = sum(after[name] - before[name] for name in ("worker", "server")) / machines * 3600 / idle
        down = await timed(stack, hostler, lambda: hostler.pools.scale(POOL, replicas=0), rolled_out(0, 1))
        say(f"none is left after {down:.1f} s")
        stack.check()
        await hostler.pools.delete(POOL)
    return {
        "machines": machines,
        "up_ms": round(1000 * up / machines),
        "down_ms": round(1000 * down / machines),
        "pool_events": round(pool_events / machines, 1),
        "machine_events": machine_events,
        "state_kb": round(len(payload.data) / 1024),
        "worker_kb": round(used["worker"] / machines, 1),
        "server_kb": round(used["server"] / machines, 1),
        "idle_cpu": round(idle_cpu, 2),
        "load": round(load, 1),
    }


async def _all_events(client: Any, workflow_id: str) -> int:
    """History events of all runs."""
    found = [e.run_id async for e in client.list_workflows(f"WorkflowId='{workflow_id}'")]
    handles = [client.get_workflow_handle(workflow_id, run_id=run) for run in found]
    return sum([(await handle.describe()).history_length for handle in handles])


def show(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="a pool, per machine")
    for column in (*COLUMNS, "idle_cpu"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(str(row[column]) for column in (*COLUMNS, "idle_cpu")))
    console.print(table)


async def every_size(options: argparse.Namespace, say: Callable[[str], None]) -> list[dict[str, Any]]:
    return [await bench(machines, options.idle, say) for machines in options.machines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, nargs="+", default=[100, 500, 2000], metavar="N")
    parser.add_argument("--idle", type=float, default=10.0, metavar="S", help="seconds; default: 10")
    options = parser.parse_args()
    return program(lambda say: every_size(options, say), show, lambda rows: rows)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
