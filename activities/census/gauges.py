"""What the census shows: gauges with many series, and the answers of workflows that are asked for their numbers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from typing import Generic, TypeVar

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import MetricGauge, QueryRejectCondition
from temporalio.service import RPCError

from activities.deps import Deps

log = logging.getLogger("hostler.census")

ASKED_AT_ONCE = 10
"""Workflows asked at once. One that is not in a worker's cache is replayed for its answer."""
TIMEOUT = timedelta(seconds=10)

GaugeLabels = tuple[tuple[str, str], ...]
T = TypeVar("T")


class Gauges:
    """One gauge with many series. A series that is no longer counted goes to 0: it would otherwise stay at its last
    value for ever."""

    def __init__(self, gauge: MetricGauge) -> None:
        self._gauge = gauge
        self._shown: set[GaugeLabels] = set()

    def show(self, counted: Counter[GaugeLabels]) -> None:
        for labels in self._shown - set(counted):
            self._gauge.set(0, dict(labels))
        for labels, number in counted.items():
            self._gauge.set(number, dict(labels))
        self._shown = set(counted)


class Answers(Generic[T]):
    """What workflows of one kind answer to a query. One that does not answer keeps its last answer, or its trouble
    would look mended."""

    def __init__(self, deps: Deps, query: str, kind: type[T], shown: str) -> None:
        """`shown` names the metrics that are made of the answers."""
        self._deps, self._query, self._kind, self._metrics = deps, query, kind, shown
        self._told: dict[str, T] = {}
        """What was told last, by workflow id."""
        self._silent: set[str] = set()

    async def ask(self, ids: list[str]) -> dict[str, T]:
        """Asks the workflows. Those that have ended since they were listed are left out."""
        slots = asyncio.Semaphore(ASKED_AT_ONCE)
        silent: dict[str, Exception] = {}

        async def one(workflow_id: str) -> T | None:
            try:
                async with slots:
                    answer: T = await self._deps.client.get_workflow_handle(workflow_id).query(
                        self._query,
                        result_type=self._kind,
                        reject_condition=QueryRejectCondition.NOT_OPEN,
                        rpc_timeout=TIMEOUT,
                    )
                return answer
            except WorkflowQueryRejectedError:
                return None
            except (WorkflowQueryFailedError, RPCError) as e:
                silent[workflow_id] = e
                return self._told.get(workflow_id)

        answers = await asyncio.gather(*map(one, ids))
        for workflow_id in sorted(set(silent) - self._silent):
            log.warning(
                "%s does not answer: %s; until then its numbers in %s do not change",
                workflow_id,
                silent[workflow_id],
                self._metrics,
            )
        self._silent = set(silent)
        self._told = {workflow_id: told for workflow_id, told in zip(ids, answers, strict=True) if told is not None}
        return self._told
