"""Machines by their labels. Only the machines know those, so each is asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial

from temporalio.client import WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition

from resources import names
from resources.machine.state import MachineState
from starter.sdk import live, parallel
from starter.sdk.connection import Connection
from starter.sdk.errors import NoAnswer, Unreachable, translated
from starter.sdk.machines.selectors import Selector
from starter.sdk.results import MachineSummary, Selected

TRIES = 3
"""Questions to one machine before a selection is given up; one, where nobody polls."""


async def select(connection: Connection, wanted: Selector, among: Iterable[MachineSummary]) -> list[Selected]:
    """Implements `HostlerClient.select`."""

    async def ask(summary: MachineSummary) -> Selected | None:
        with translated():
            state = await _labelled(connection, summary)
        return Selected(summary, state) if state and wanted.matches(state.labels) else None

    return [found for found in await parallel.each(partial(ask, summary) for summary in among) if found]


async def _labelled(connection: Connection, summary: MachineSummary) -> MachineState | None:
    """The machine's labels; None for a machine that has ended since it was listed."""
    temporal, left = connection.temporal, TRIES
    handle = temporal.get_workflow_handle(names.machine_id(summary.cluster, summary.name))
    while True:
        left -= 1
        try:
            return await live.query(handle, MachineState, QueryRejectCondition.NOT_OPEN)
        except WorkflowQueryRejectedError:
            return None
        except NoAnswer as e:
            now = datetime.now(UTC)
            if left and live.lately(await live.last_poll(temporal, connection.queue), now):
                continue  # so many questions at once may keep a small worker busy
            absence = await live.absence(temporal, connection.queue, now)
            raise Unreachable(
                f"the labels of machine {summary.name} of cluster {summary.cluster} cannot be read ({e}): {absence}. "
                "Nothing is selected, because the selection would be incomplete; start a worker, or give names"
            ) from None
