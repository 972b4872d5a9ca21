"""Machines by their labels. The machines alone know those, so each is asked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from resources import names
from resources.machine import MachineState
from starter.sdk import live
from starter.sdk.apply.plan import PARALLEL
from starter.sdk.errors import NoAnswer, Unreachable, translated
from starter.sdk.machines.selectors import Selector
from starter.sdk.results import MachineSummary, Selected

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

TRIES = 3
"""Questions to one machine before a selection is given up; one, where nobody polls."""


async def select(client: HostlerClient, wanted: Selector, cluster: str | None, all_clusters: bool) -> list[Selected]:
    """`HostlerClient.select`."""
    slots = asyncio.Semaphore(PARALLEL)

    async def ask(summary: MachineSummary) -> Selected | None:
        with translated():
            async with slots:
                state = await _labelled(client, summary)
        return Selected(summary, state) if state and wanted.matches(state.labels) else None

    listed = await client.list(cluster=cluster, all_clusters=all_clusters)
    tasks = [asyncio.create_task(ask(summary)) for summary in listed]
    try:
        return [found for task in tasks if (found := await task)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _labelled(client: HostlerClient, summary: MachineSummary) -> MachineState | None:
    """None for a machine that has ended since it was listed."""
    handle = client.temporal.get_workflow_handle(names.machine_id(summary.cluster, summary.name))
    queue, left = names.workflow_queue(client.settings.queue_prefix), TRIES
    while True:
        left -= 1
        try:
            return await live.ask_running(handle)
        except NoAnswer as e:
            now = datetime.now(UTC)
            if left and live.lately(await live.last_poll(client.temporal, queue), now):
                continue  # so many questions at once may keep a small worker busy
            absence = await live.absence(client.temporal, queue, now)
            raise Unreachable(
                f"the labels of machine {summary.name} of cluster {summary.cluster} cannot be read ({e}): {absence}"
                ". Nothing is selected, since the selection could not be whole; start a worker, or give names"
            ) from None
