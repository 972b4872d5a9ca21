"""Whether people are answered, and pools and clusters get on, while there is more to do than a worker can.

Runs on fresh stacks (Temporal's dev server, the simulator, one worker: three processes; this one is the client):

    python bench/busy.py [--machines 200] [--members 2000] [--announcements 5000]

- *asked*: a pool comes up with this many machines, which boot at once. Twice a second somebody asks how it is
  (`hostler get pool`), and once a second somebody scales it to the size that it has already.
- *storm*: this many members of a pool report that they are NotReady, within a second or as fast as the server takes it.
- *announced*: the accounts of this many classes are announced to a cluster, as fast as the server takes it.

In the middle of storm and announcements a person has an intent (pause). Prints a table and, last, one line of JSON:

    asked       up_seconds; questions, unanswered ones (3 s are given), their median, 95 % and longest wait in seconds;
                intents alike, where `recorded` had no answer within 5 s
    storm       sent_seconds, planned_seconds (from the first report to the plan with the last), intent_seconds,
                tasks, failed_tasks (workflow tasks that failed or timed out, by their cause)
    announced   the same

What this does not measure: a cloud, and a Temporal cluster with a database. The members of the storm have no workflows
of their own, whose tasks would take most of the worker's time.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from _program import program
from _stack import CLUSTER, Stack, running
from rich.console import Console
from rich.table import Table
from rollout import POOL, pool_of, rolled_out, timed
from temporalio.api.enums.v1 import EventType, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

from resources import names
from resources.cluster.accounts import Account, AccountUse
from resources.cluster.news import ClusterNews
from resources.cluster.state import ClusterState
from resources.fleet.member import Member, Vm
from resources.fleet.membership import MemberReport
from resources.fleet.revision import Revision
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, Phase
from resources.manifests import MachineClass
from resources.pool.state import PoolState
from starter.sdk import starts
from starter.sdk.client import HostlerClient
from starter.sdk.errors import NoAnswer

ACCOUNT = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="demo-aws"))

IN_FLIGHT = 100  # calls of the client to the server
FAILED = (EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)


# -- while machines come up -------------------------------------------------------------------------------------------


class Waits:
    """Waits for answers to one kind of question, in seconds."""

    def __init__(self, unanswered: str) -> None:
        self.unanswered = unanswered
        self.seconds: list[float] = []
        self.none = 0

    async def ask(self, question: Callable[[], Awaitable[bool]]) -> None:
        began = time.monotonic()
        answered = await question()
        self.seconds.append(time.monotonic() - began)
        self.none += not answered

    def summary(self) -> dict[str, Any]:
        waits = sorted(self.seconds)
        return {
            "asked": len(waits),
            self.unanswered: self.none,
            "median": round(statistics.median(waits), 2),
            "p95": round(waits[int(0.95 * (len(waits) - 1))], 2),
            "longest": round(waits[-1], 2),
        }


async def asked(machines: int) -> dict[str, Any]:
    async with running("hostler", 2 * machines + 100) as stack:
        hostler = HostlerClient(stack.client, stack.settings, cluster=CLUSTER, requested_by="bench")
        manifest: MachineClass = stack.manifests.classes[0]
        await timed(stack, hostler, lambda: hostler.apply(manifest, pool_of(manifest, 0)), rolled_out(0, 1))
        questions, intents = Waits("unanswered"), Waits("recorded")

        async def how_is_it() -> bool:
            with contextlib.suppress(NoAnswer):
                await hostler.pools.summary(POOL)
                return True
            return False

        async def scale() -> bool:
            return not (await hostler.pools.scale(POOL, replicas=machines)).recorded

        async with every(0.5, lambda: questions.ask(how_is_it)), every(1.0, lambda: intents.ask(scale)):
            up = await timed(stack, hostler, scale, rolled_out(machines, 1))
        stack.check()
        failed, tasks = await _tasks(stack, names.pool_id(CLUSTER, POOL))
        found = {"machines": machines, "up_seconds": round(up, 1), "tasks": tasks, "failed_tasks": failed}
        return {**found, "questions": questions.summary(), "intents": intents.summary()}


@contextlib.asynccontextmanager
async def every(seconds: float, act: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Begins a call this often, whether the last one is over or not: impatience does not wait."""
    begun: set[asyncio.Task[None]] = set()

    async def again() -> None:
        while True:
            begun.add(asyncio.create_task(act()))  # type: ignore[arg-type]
            await asyncio.sleep(seconds)

    beat = asyncio.create_task(again())
    try:
        yield
    finally:
        beat.cancel()
    await asyncio.gather(*begun)


# -- bursts -----------------------------------------------------------------------------------------------------------


async def storm(members: int) -> dict[str, Any]:
    async with running("hostler", 1000) as stack:
        state = _grown(stack, members)
        await starts.start_pool(stack.client, state, created=datetime.now(UTC))
        handle = stack.client.get_workflow_handle(names.pool_id(CLUSTER, POOL))
        await handle.query("summary")
        reports = [
            MemberReport(machine=name, seq=4, phase=Phase.UNKNOWN, since=datetime.now(UTC), vm=Vm.LIVES, template=1)
            for name in state.members
        ]
        hostler = HostlerClient(stack.client, stack.settings, cluster=CLUSTER, requested_by="bench")

        async def planned() -> bool:
            return bool((await handle.query("summary"))["unhealthy"] == members)

        sends = [lambda r=r: handle.signal("report", r) for r in reports]  # type: ignore[misc]
        found = await _burst(sends, lambda: hostler.pools.pause(POOL), planned)
        stack.check()
        failed, tasks = await _tasks(stack, handle.id)
        return {"members": members, **found, "tasks": tasks, "failed_tasks": failed}


def _grown(stack: Stack, members: int) -> PoolState:
    """A pool that has come up, as an earlier run hands it over."""
    now, manifest = datetime.now(UTC), stack.manifests.classes[0]
    snapshot, spec = ClassSnapshot.of(manifest), pool_of(manifest, members).spec
    return PoolState(
        name=POOL,
        cluster=CLUSTER,
        spec=spec,
        machine_class=snapshot,
        queue_prefix=stack.settings.queue_prefix,
        members={
            f"{POOL}-{n:05d}": Member(1, now, now, Phase.RUNNING, Vm.LIVES, template=1, seq=3) for n in range(members)
        },
        revisions=[Revision(counter=1, machine_class=snapshot, hash="h", template=spec.template, created=now)],
        news=ClusterNews(time=now, reachable=True),
        created=now,
        searched=True,
        registered=True,
        classes=[snapshot.name],
        class_told=f"{snapshot.name} {snapshot.generation}",
    )


async def announced(classes: int) -> dict[str, Any]:
    async with running("hostler", 1000) as stack:
        await starts.start_cluster(stack.client, stack.settings, CLUSTER)
        handle = stack.client.get_workflow_handle(names.cluster_id(CLUSTER))
        await handle.query("describe", result_type=ClusterState)
        hostler = HostlerClient(stack.client, stack.settings, cluster=CLUSTER, requested_by="bench")

        def announce(n: int) -> Callable[[], Awaitable[None]]:
            said = AccountUse(machine_class=f"c-{n:05d}", account=ACCOUNT)
            return lambda: handle.signal("use_account", said)

        async def known() -> bool:
            return len((await handle.query("describe", result_type=ClusterState)).classes) == classes

        found = await _burst(map(announce, range(classes)), lambda: hostler.clusters.pause(CLUSTER), known)
        stack.check()
        failed, tasks = await _tasks(stack, handle.id)
        return {"announcements": classes, **found, "tasks": tasks, "failed_tasks": failed}


async def _burst(
    sends: Iterable[Callable[[], Awaitable[None]]],
    intent: Callable[[], Awaitable[Any]],
    over: Callable[[], Awaitable[bool]],
) -> dict[str, Any]:
    slots, began = asyncio.Semaphore(IN_FLIGHT), time.monotonic()

    async def one(send: Callable[[], Awaitable[None]]) -> None:
        async with slots:
            await send()

    async def person() -> tuple[float, bool]:
        asked = time.monotonic()
        sent = await intent()
        return time.monotonic() - asked, sent.recorded

    tasks = [asyncio.create_task(one(send)) for send in sends]
    await tasks[len(tasks) // 2]
    asking = asyncio.create_task(person())
    await asyncio.gather(*tasks)
    sent = time.monotonic() - began
    while not await over():  # noqa: ASYNC110 - it asks a server
        await asyncio.sleep(0.05)
    planned = time.monotonic() - began
    seconds, recorded = await asking
    return {
        "sent_seconds": round(sent, 2),
        "planned_seconds": round(planned, 2),
        "intent_seconds": round(seconds, 2),
        "intent_recorded": recorded,
    }


async def _tasks(stack: Stack, workflow_id: str) -> tuple[dict[str, int], int]:
    """Workflow tasks of all runs: those that failed or timed out, by their cause, and all completed ones."""
    failed, done = Counter[str](), 0
    async for execution in stack.client.list_workflows(f"WorkflowId='{workflow_id}'"):
        handle = stack.client.get_workflow_handle(workflow_id, run_id=execution.run_id)
        async for event in handle.fetch_history_events():
            if event.event_type in FAILED:
                failed[_cause(event)] += 1
            done += event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    return dict(failed), done


def _cause(event: HistoryEvent) -> str:
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
        timeout = event.workflow_task_timed_out_event_attributes.timeout_type
        return TimeoutType.Name(timeout).removeprefix("TIMEOUT_TYPE_")
    failed = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
    return f"{cause}: {failed.failure.message[:60]}" if failed.failure.message else cause


async def bench(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    load = os.getloadavg()[0]
    found: dict[str, Any] = {}
    for name, part, size in (
        ("asked", asked, options.machines),
        ("storm", storm, options.members),
        ("announced", announced, options.announcements),
    ):
        if size:
            found[name] = await part(size)
            say(f"{name}: {found[name]}")
    return {**found, "load": round(load, 1)}


def show(found: dict[str, Any], console: Console) -> None:
    table = Table(title="while there is much to do")
    for name in ("", "what", "is"):
        table.add_column(name)
    for part, values in found.items():
        if isinstance(values, dict):
            for name, value in values.items():
                table.add_row(part, name, str(value))
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=200, metavar="N", help="that come up; default: 200")
    parser.add_argument("--members", type=int, default=2000, metavar="N", help="that report; default: 2000")
    parser.add_argument("--announcements", type=int, default=5000, metavar="N", help="default: 5000")
    options = parser.parse_args()
    return program(lambda say: bench(options, say), show, lambda found: found)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
