"""How fast machines come to life, what a living one costs, and how much of that is our own doing.

    python bench/life.py [--machines 200] [--rounds 3] [--idle 30] [--server dev|compose]

Every round runs on a fresh stack (Temporal, the simulator, one worker; this one is the client) and takes a burst of
machines, started at once, from nothing to a Ready node that takes work. Rounds of Hostler and of a *bare* workflow
(_bare.py) take turns, so that a noisy neighbour meets both; `ratio` is the median of hostler's rate over the bare one's
in the same round. The last round of Hostler goes on: as many machines again for the memory per cached one, a quiet time
for the events of idle machines, and some deletions for the events of a whole life.

Prints a table and, last, one line of JSON:

    ratio                 hostler's machines per second over the bare side's; the goal is 0.9
    events_to_running     history events of one life, up to and including the upsert that says Running (median)
    events_life           to the end, after `hostler delete` (median)
    idle_events_per_hour  history events of one idle Running machine, extrapolated; see the table for how long how many
                          were looked at, and how many heartbeats of kubelets went by meanwhile
    kb_per_machine        worker RSS per cached idle machine, kB; negative when other memory was given back meanwhile
    cpu_ms                per machine: processor time of each process, both sides
    cpu_ratio             the bare side's processor time in server and worker over hostler's: like `ratio`, steadier

What this does not measure
--------------------------
- A cloud. The simulator answers in about a millisecond and VMs boot at once. With a real one both sides wait.
- A Temporal cluster of several servers. The dev server has SQLite in memory; with --server compose it is Temporal's own
  server on PostgreSQL, as docker-compose.yml has them. Both share this machine's cores.
- The price of the Kubernetes and EC2 calls themselves: both sides make them through the same code (activities/). The
  watch of the VM, which only Hostler has, makes a few more; the table shows how many.
- The watches of nodes and of cloud accounts: on the bare side the same ClusterWorkflow and watches signal machines of
  the same ids, so that the bare workflow receives what a machine receives. Without them it would not know of its node.
- The price of separate task queues. The bare side too has its activities on a queue of their own, because it is
  separate queues that keep cloud credentials off the workflows' workers. (On one queue the server would hand out an
  activity with the answer to the workflow task that schedules it.)
- Steady state. A burst is the worst case for latency; `machines_per_second` is its throughput.
- Absolute rates are this machine's, on this day. Compare ratios, events and processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from _bare import BareInput, BareMachine
from _program import program
from _report import Costs, Report, Round, show, summary
from _stack import CLUSTER, SERVERS, SIDES, BenchError, Server, Side, Stack, running
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from resources import attributes, names
from resources.machine.intents import DeleteIntent
from resources.machine.state import ClassSnapshot, MachineState, Phase
from workflows.machine import MachineWorkflow

MOST = 500  # machines
IN_FLIGHT = 50  # calls of the client to the server
LOOK_EVERY = 0.1  # seconds between two counts of what is Running
WAVE = 20  # machines at once when memory is measured
DELETED = 10  # machines whose whole life is counted
DONE = {
    "hostler": f"WorkflowType = 'MachineWorkflow' AND HostlerPhase = '{Phase.RUNNING}'",
    "bare": "WorkflowType = 'MachineWorkflow' AND ExecutionStatus = 'Completed'",
}
Handle = WorkflowHandle[Any, Any]


async def bench(machines: int, rounds: int, idle: float, server: Server, say: Callable[[str], None]) -> Report:
    report = Report()
    for number in range(rounds):
        for side in SIDES:
            async with running(side, cached=4 * machines + 100, server=server) as stack:
                await burst(stack, side, "warm", 1)  # imports, connections, EC2's model, the watch
                done = await burst(stack, side, "a", machines)
                report.rounds[side].append(done)
                report.load.append(os.getloadavg()[0])
                say(f"round {number + 1} {side:8} {done.rate:6.1f} machines/s   load {report.load[-1]:.1f}")
                if side == "hostler" and number == rounds - 1:
                    report.costs = await costs(stack, machines, idle, say)
                stack.check()
    return report


# -- one burst --------------------------------------------------------------------------------------------------------


async def burst(stack: Stack, side: Side, prefix: str, machines: int) -> Round:
    """Starts that many machines at once, and waits until all of them are done."""
    before = await stack.client.count_workflows(DONE[side])
    _, last = await stack.calls(0, stack.cloud.service)
    cpu, started = stack.cpu_seconds(), time.monotonic()
    await together([_starter(stack, side, name) for name in _names(prefix, machines)])
    await _all_done(stack, side, before.count + machines, started + 60 + machines)
    seconds = time.monotonic() - started
    used = {name: spent - cpu[name] for name, spent in stack.cpu_seconds().items()}
    calls, _ = await stack.calls(last, stack.cloud.service)
    wanted = [c for c in calls if c["operation"] == stack.cloud.create and not c["error"]]
    launched = {json.dumps(c["request"], sort_keys=True) for c in wanted}
    if len(launched) != machines:
        raise BenchError(f"{side}: {machines} machines were wanted and {len(launched)} VMs were made")
    return Round(machines, seconds, used, len(calls))


def _names(prefix: str, machines: int) -> list[str]:
    return [f"{prefix}-{n}" for n in range(machines)]


def _starter(stack: Stack, side: Side, name: str) -> Callable[[], Awaitable[Any]]:
    """Starts a machine of examples/aws as `hostler apply` does; the bare one with only the cluster to find it by."""
    machine, snapshot = stack.manifests.machines[0], ClassSnapshot.of(stack.manifests.classes[0])
    prefix, identity = stack.settings.queue_prefix, names.machine_id(CLUSTER, name)
    found: list[SearchAttributePair[Any]] = [SearchAttributePair(attributes.CLUSTER, CLUSTER)]
    if side == "bare":
        bare = BareInput(name=name, cluster=CLUSTER, spec=machine.spec, machine_class=snapshot)
        return lambda: stack.client.start_workflow(
            BareMachine.run, bare, id=identity, task_queue=prefix, search_attributes=TypedSearchAttributes(found)
        )
    state = MachineState(
        name=name,
        cluster=CLUSTER,
        labels=machine.metadata.labels,
        spec=machine.spec,
        machine_class=snapshot,
        queue_prefix=prefix,
        life=1,
    )
    found += [
        SearchAttributePair(attributes.PHASE, str(Phase.PENDING)),
        SearchAttributePair(attributes.CLASS, snapshot.name),
    ]
    return lambda: stack.client.start_workflow(
        MachineWorkflow.run,
        state,
        id=identity,
        task_queue=prefix,
        search_attributes=TypedSearchAttributes(found),
        static_summary=f"Machine {name} of cluster {CLUSTER}",
    )


async def _all_done(stack: Stack, side: Side, wanted: int, deadline: float) -> None:
    """Waits by visibility, which the dev server writes with the workflow task itself, and others right after; the same
    question for both sides."""
    while (count := (await stack.client.count_workflows(DONE[side])).count) < wanted:
        stack.check()
        if time.monotonic() > deadline:
            log = stack.worker.output()[-2000:]
            raise BenchError(f"{side}: {count} of {wanted} machines are done, and the time is over; the worker:\n{log}")
        await asyncio.sleep(LOOK_EVERY)


async def together(calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def one(call: Callable[[], Awaitable[Any]]) -> Any:
        async with slots:
            return await call()

    return await asyncio.gather(*(one(call) for call in calls))


# -- what a machine costs ---------------------------------------------------------------------------------------------


async def costs(stack: Stack, machines: int, idle: float, say: Callable[[str], None]) -> Costs:
    """Measures, with the machines of the burst "a" Running, memory, idle events, and the events of lives."""
    first = [stack.client.get_workflow_handle(names.machine_id(CLUSTER, n)) for n in _names("a", machines)]
    await _quiet(first)
    rss = stack.rss_kb()
    # The burst has paid for threads, connections and arenas. Then as many machines again come, a few at a time, so that
    # none of that grows again: what they add is what they take.
    second = []
    for start in range(0, machines, WAVE):
        size = min(WAVE, machines - start)
        await burst(stack, "hostler", f"b{start}", size)
        second += [stack.client.get_workflow_handle(names.machine_id(CLUSTER, n)) for n in _names(f"b{start}", size)]
    handles = first + second
    before = await _quiet(handles)
    kb = (stack.rss_kb() - rss) / machines

    say(f"looking at {len(handles)} idle machines for {idle:g} s")
    _, last = await stack.calls(0, "kubernetes")
    started = time.monotonic()
    await asyncio.sleep(idle)
    seconds = time.monotonic() - started
    leases, _ = await stack.calls(last, "kubernetes", "patch leases")
    statuses, _ = await stack.calls(last, "kubernetes", "patch nodes/status")
    after = await _events(handles)
    to_running = await together([partial(_events_to_running, h) for h in handles])
    lives = await _lives(stack, handles[:DELETED])
    if await _events(handles) == after:
        raise BenchError("machines were deleted and the count of events has not changed: it sees nothing")
    return Costs(
        kb_per_machine=kb,
        events_to_running=to_running,
        events_life=lives,
        idle_machines=len(handles),
        idle_seconds=seconds,
        idle_events=after - before,
        lease_renewals=len(leases),
        status_reports=len(statuses),
    )


async def _events(handles: list[Handle]) -> int:
    """History events of all of them together."""
    described = await together([handle.describe for handle in handles])
    return sum(d.history_length for d in described)


async def _quiet(handles: list[Handle]) -> int:
    """Waits until what became Running has settled; returns the number of events then."""
    deadline, former = time.monotonic() + 60, -1
    while (now := await _events(handles)) != former:
        if time.monotonic() > deadline:
            raise BenchError("the machines' histories do not come to rest")
        former = now
        await asyncio.sleep(2)
    return now


async def _events_to_running(handle: Handle) -> int:
    """History events up to and including the upsert of HostlerPhase = Running."""
    async for event in handle.fetch_history_events():
        if _says(event, Phase.RUNNING):
            return event.event_id
    raise BenchError(f"{handle.id}: no upsert says Running")


def _says(event: HistoryEvent, phase: Phase) -> bool:
    if event.event_type != EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
        return False
    fields = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    name = attributes.PHASE.name
    return name in fields and json.loads(fields[name].data) == str(phase)


async def _lives(stack: Stack, handles: list[Handle]) -> list[int]:
    """Deletes them; returns the events of their whole histories."""

    async def end(handle: Handle) -> int:
        intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="bench")
        await handle.execute_update(MachineWorkflow.delete, intent, id=intent.id)
        await asyncio.wait_for(handle.result(), 120)
        return (await handle.describe()).history_length

    return await together([partial(end, h) for h in handles])


# -- the program ----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--machines", type=int, default=200, metavar="N", help=f"started at once (default: 200, at most {MOST})"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each side (default: 3)")
    parser.add_argument("--idle", type=float, default=30, metavar="S", help="seconds to look at idle machines (30)")
    parser.add_argument(
        "--server", choices=SERVERS, default="dev", help="Temporal's dev server, or docker-compose.yml's"
    )
    options = parser.parse_args()
    if not 1 <= options.machines <= MOST:
        parser.error(f"--machines: 1 to {MOST}; the simulator's journal, from which calls are counted, holds no more")
    if options.rounds < 1 or options.idle <= 0:
        parser.error("--rounds and --idle: at least one round, and some time")
    return program(
        lambda say: bench(options.machines, options.rounds, options.idle, options.server, say), show, summary
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
