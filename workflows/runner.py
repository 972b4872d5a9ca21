"""The sandbox that workflows run in, with a guard over their clock.

A worker that was away may get a query before the task that waits for the same workflow. The SDK then lets the workflow
take that task's news at once, without the time at which the task starts: `workflow.now()` is that of the last task,
minutes or days ago. A replay at the right time decides otherwise, and the workflow is stuck with a nondeterminism error
(temporalio 1.15 to 1.35; tests/component/test_runner.py shows it). So the news is refused: the query fails, its caller
asks again, and the waiting task is done with its own time.

The module also watches the threads: one that never returns from a task, and a workflow that cannot be evicted from the
cache, keep their slot forever, because the SDK tries and waits without end.

It is also the boundary to what others send (inbound.py): here, so that no worker and no replay is without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from resources.base import build_models
from resources.errors import TOO_EARLY
from workflows.inbound import Inbound, admit


class NewsWithoutTime(Exception):
    """A query brought a workflow news before its task did."""


class Tasks:
    """What the threads of a worker are doing, and which workflows they could not evict from the cache."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[tuple[str, int], float] = {}
        """When a thread took a run up, or when the run was first to be evicted (thread 0)."""

    @contextmanager
    def running(self, run_id: str, evicts: bool) -> Iterator[None]:
        key = (run_id, 0 if evicts else threading.get_ident())
        with self._lock:
            self._since.setdefault(key, self._clock())
        try:
            yield
        except BaseException:
            if not evicts:  # an eviction that fails is tried again, and its slot is lost until one succeeds
                self._over(key)
            raise
        self._over(key)

    def _over(self, key: tuple[str, int]) -> None:
        with self._lock:
            self._since.pop(key, None)

    def stuck(self, seconds: float) -> list[str]:
        """Runs that have kept a slot or a thread for longer."""
        limit = self._clock() - seconds
        with self._lock:
            return sorted({run_id for (run_id, _), since in self._since.items() if since < limit})


@dataclass(frozen=True)
class Runner(SandboxedWorkflowRunner):
    tasks: Tasks = field(default_factory=Tasks)

    def prepare_workflow(self, defn: workflow._Definition) -> None:
        build_models()  # here, because a workflow's first task has only seconds
        super().prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        det = replace(det, interceptor_classes=[*det.interceptor_classes, Inbound])
        instance = super().create_instance(det)
        activate, clock = instance.activate, WorkflowClock()

        def guarded(act: WorkflowActivation) -> WorkflowActivationCompletion:
            evicts = any(job.HasField("remove_from_cache") for job in act.jobs)
            with self.tasks.running(act.run_id, evicts):
                if not evicts:
                    clock.check(act)
                    admit(det.defn, act)
                return activate(act)

        instance.activate = guarded  # type: ignore[method-assign]
        # None of our code that writes or reads payloads asks what they are for. To answer, the sandbox would compile
        # and run a piece of code three times for each payload, on the event loop: three quarters of what a signal
        # costs.
        instance.get_serialization_context = _no_context  # type: ignore[method-assign]
        return instance


def _no_context(command_info: object) -> None:
    return None


class WorkflowClock:
    """The clock of one workflow in a worker's cache: more history always comes with a later time."""

    def __init__(self) -> None:
        self._time = self._length = 0

    def check(self, act: WorkflowActivation) -> None:
        """Raises NewsWithoutTime. A replay's steps, and the queries' own, are as they were recorded."""
        time, length = act.timestamp.ToNanoseconds(), act.history_length
        if length != self._length and time == self._time and not act.is_replaying:
            raise NewsWithoutTime(TOO_EARLY)
        self._time, self._length = time, length
