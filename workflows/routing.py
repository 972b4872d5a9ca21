"""Calls of accounts with a task queue of their own go there, as the settings of the worker say.

A workflow names the queue of its cloud, and whose share the call takes (calls.py, `share`). The worker knows which
accounts have a queue of their own, so that a change of the settings reaches every workflow with the next worker, and no
state has an old one. A replay may meet another queue than history has: Temporal compares an activity's id and type, not
its queue (tests/component/test_account_routing.py).
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from resources.queues import Routes


class Routing(Interceptor):
    """Routing for the workers of workflows."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        routes = self._routes

        class Routed(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Outbound(outbound, routes))

        return Routed if routes else None


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, routes: Routes) -> None:
        super().__init__(next)
        self._routes = routes

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        account = getattr(input.priority, "account", "")  # calls.Share; in the sandbox it is another class
        if account and input.task_queue:
            input.task_queue = self._routes.queue(input.task_queue, account)
        return super().start_activity(input)
