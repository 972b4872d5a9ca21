"""The sandbox that workflows run in, with a guard over their clock.

A worker that was away may get a query before the task that waits for the same workflow. The SDK then lets the workflow
take that task's news at once, without the time at which the task starts: `workflow.now()` is that of the last task,
minutes or days ago. What is decided so, a replay at the right time decides otherwise, and the workflow is stuck with a
nondeterminism error (temporalio 1.15 to 1.35; tests/test_runner.py shows it). So the news are refused: the query fails,
its asker asks again, and the task that waited is done with its own time.
"""

from __future__ import annotations

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from resources.errors import TOO_EARLY


class NewsWithoutTime(Exception):
    """A query brought a workflow news before its task did."""


class Runner(SandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        activate, clock = instance.activate, Clock()

        def guarded(act: WorkflowActivation) -> WorkflowActivationCompletion:
            clock.check(act)
            return activate(act)

        instance.activate = guarded  # type: ignore[method-assign]
        return instance


class Clock:
    """Of one workflow in a worker's cache: more history always comes with a later time."""

    def __init__(self) -> None:
        self._time = self._length = 0

    def check(self, act: WorkflowActivation) -> None:
        """Raises NewsWithoutTime. A replay's steps, and the queries' own, are as they were recorded."""
        time, length = act.timestamp.ToNanoseconds(), act.history_length
        if length != self._length and time == self._time and not act.is_replaying:
            raise NewsWithoutTime(TOO_EARLY)
        self._time, self._length = time, length
