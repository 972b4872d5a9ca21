"""What the census says of preserved machines and of drains."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import eventually
from machine.stubs import Handle, Machines, a_delete, not_yet, phase, running
from metricskit import Metered, metered, stubbed_machines, value
from temporalio import activity
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.census.census import Census
from activities.census.preserved import PreservedTally, blocked
from activities.drain.memory import Memory, RefusedEviction
from resources import attributes
from resources.calls.drain import DrainInput, DrainOutput
from resources.machine.state import Phase
from workflows.machine import MachineWorkflow

__all__ = ["metered"]  # a fixture

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PRESERVED, ENDS, DRAINS = (
    "hostler_machines_preserved",
    "hostler_preservation_ends_timestamp_seconds",
    "hostler_drains",
)


def tally(*machines: tuple[str, str, datetime | None]) -> PreservedTally:
    """Pool, phase as shown, and until when."""
    counted = PreservedTally()
    for i, (pool, shown, until) in enumerate(machines):
        counted.add(f"machine/demo/m-{i}", "demo", pool, shown, "", until)
    return counted


def labels(**of: str) -> tuple[tuple[str, str], ...]:
    return (("cluster", "demo"), *of.items())


def test_by_pool_and_phase() -> None:
    counted = tally(
        ("p", "Running", None),
        ("p", "Running:Preserved", NOW + 3 * HOUR),
        ("p", "Failed:Preserved", NOW + 2 * HOUR),
        ("p", "Failed:Preserved", NOW + HOUR),
        ("", "Running:Preserved", NOW),
        ("q", "Failed", None),
    )
    assert counted.preserved == {
        labels(pool="p", phase="Running"): 1,
        labels(pool="p", phase="Failed"): 2,
        labels(pool="", phase="Running"): 1,
        labels(pool="q", phase="Failed"): 0,
    }
    assert counted.ends == {
        labels(pool="p"): int((NOW + HOUR).timestamp()),
        labels(pool=""): int(NOW.timestamp()),
        labels(pool="q"): 0,
    }
    assert counted.drains == {labels(state="running"): 0, labels(state="blocked"): 0}


def test_one_that_is_not_preserved_hides_no_end() -> None:
    """It hides none, whatever the order: 0 is no time."""
    machines = [("p", "Running", None), ("p", "Running:Preserved", NOW)]
    for order in (machines, machines[::-1]):
        assert tally(*order).ends == {labels(pool="p"): int(NOW.timestamp())}


def test_drains_by_what_they_say() -> None:
    counted = PreservedTally()
    for i, reason in enumerate(("Draining", "Draining", "Draining", "DeletingVM")):
        counted.add(f"machine/demo/m-{i}", "demo", "", "Terminating", reason, None)
    assert sorted(counted.draining) == [f"machine/demo/m-{i}" for i in range(3)]
    # The third is over since it was listed.
    counted.add_drains({"machine/demo/m-0": True, "machine/demo/m-1": False})
    assert counted.drains == {labels(state="running"): 1, labels(state="blocked"): 1}


async def test_preserved_machines_are_counted_and_then_are_no_more(metered: Metered) -> None:
    """They are counted from visibility alone: no worker is there."""
    deps = metered.deps("census-preserved")
    queue, ends = deps.settings.queue_prefix, datetime.now(UTC) + HOUR
    kept = await _listed(metered, queue, "m-1", "Failed:Preserved", ends)
    other = await _listed(metered, queue, "m-2", "Running", None)
    counting = Census(deps)

    async def counted() -> list[float | None]:
        await counting.count()
        seen = await metered.seen()
        return [
            value(seen, PRESERVED, pool="p", phase="Failed"),
            value(seen, PRESERVED, pool="p", phase="Running"),
            value(seen, ENDS, pool="p"),
            value(seen, "hostler_machines", phase="Failed:Preserved"),
            # It does not alert like a Failed one.
            value(seen, "hostler_machines", phase="Failed"),
        ]

    try:
        await eventually(counted, lambda c: c == [1, 0, int(ends.timestamp()), 1, None], "one is preserved")
        await kept.terminate("gone")
        await eventually(counted, lambda c: c == [0, 0, 0, 0, None], "none is")
    finally:
        for handle in (kept, other):
            await _end(handle)


async def _listed(metered: Metered, queue: str, name: str, shown: str, until: datetime | None) -> Handle:
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(attributes.CLUSTER, "demo"),
        SearchAttributePair(attributes.POOL, "p"),
        SearchAttributePair(attributes.PHASE, shown),
    ]
    if until is not None:
        pairs.append(SearchAttributePair(attributes.PRESERVED_UNTIL, until))
    return await metered.client.start_workflow(
        "MachineWorkflow",
        id=f"machine/demo/{queue}-{name}",
        task_queue=queue,
        search_attributes=TypedSearchAttributes(pairs),
    )


async def _end(handle: Handle) -> None:
    if (await handle.describe()).close_time is None:
        await handle.terminate("the test is over")


def drains(memory: Memory) -> Callable[[DrainInput], DrainOutput]:
    """A drain with one pass that is not over, and leaves this for the next."""

    def drain(input: DrainInput) -> DrainOutput:
        activity.heartbeat(
            {"message": "0 of 1 pods gone", **memory.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
        )
        raise not_yet("0 of 1 pods gone", timedelta(hours=1))

    return drain


async def test_drains_that_go_on_and_one_that_is_blocked(metered: Metered) -> None:
    refused = RefusedEviction(words="blocked by PDB web", wait=timedelta(seconds=5), again=NOW)
    async with stubbed_machines(metered) as (machines, counting):
        await _drain(machines, "m-1", Memory(pods=1))
        blocked_one = await _drain(machines, "m-2", Memory(pods=1, refused={"uid-1": refused}))

        async def counted() -> list[float | None]:
            await counting.count()
            seen = await metered.seen()
            return [value(seen, DRAINS, state=state) for state in ("running", "blocked")]

        await eventually(counted, lambda c: c == [1, 1], "one goes on, one does not")
        assert await blocked(metered.client, [blocked_one.id]) == {blocked_one.id: True}
        await blocked_one.terminate("gone")
        # One that is gone since it was listed, and one that never was.
        assert await blocked(metered.client, ["machine/demo/no-such"]) == {}
        await eventually(counted, lambda c: c == [1, 0], "the other goes on")


async def _drain(machines: Machines, name: str, memory: Memory) -> Handle:
    """A machine whose drain has had one pass."""
    handle = await running(machines, name)
    machines.stubs.then("drain_node", drains(memory))
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await phase(handle, Phase.TERMINATING)

    async def heard() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return any(p.activity_type.name == "drain_node" and p.HasField("heartbeat_details") for p in pending)

    await eventually(heard, lambda h: h, "its first pass is over")
    return handle
