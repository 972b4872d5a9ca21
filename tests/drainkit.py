"""The drain activity, one attempt at a time, against a simulated API server without controllers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kube_wire import NODES, PODS, STRATEGIC, Obj, pod
from kube_world import World
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.boundary import Boundary
from activities.drain import DrainActivities
from resources.errors import NOT_YET
from resources.messages import DrainInput, DrainOutput, MachineRef
from simulator.frame import Call

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODE, VM = "n-1", "aws:///eu-west-1/i-1"
DEADLINE = datetime(2031, 1, 1, 14, 5, tzinfo=UTC)


class _Call(ActivityInboundInterceptor):
    """The innermost of the interceptors: the activity itself."""

    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await input.fn(*input.args)


class Drain:
    """The activity, one attempt at a time, with the last attempt's heartbeat."""

    def __init__(self, world: World, activities: DrainActivities) -> None:
        self.world = world
        self.kube = world.kube
        self.activities = activities
        self.heartbeat: tuple[Any, ...] = ()

    async def once(self, **fields: Any) -> DrainOutput:
        machine = MachineRef(cluster="demo", name="m-1", uid="u-1")
        usual = {"machine": machine, "node_name": NODE, "provider_id": VM, "deadline": DEADLINE}
        environment = ActivityEnvironment()
        now = datetime.now(UTC)
        environment.info = replace(
            environment.info, heartbeat_details=self.heartbeat, heartbeat_timeout=None, started_time=now
        )
        environment.on_heartbeat = self._beat
        attempt = Boundary().intercept_activity(_Call())
        input = ExecuteActivityInput(
            fn=self.activities.drain_node,
            args=[DrainInput(**{**usual, "poll": timedelta(seconds=5), **fields})],
            executor=None,
            headers={},
        )
        output: DrainOutput = await environment.run(attempt.execute_activity, input)
        return output

    async def waits(self, **fields: Any) -> str:
        """The words of a pass that found that it is not over."""
        with pytest.raises(ApplicationError) as caught:
            await self.once(**fields)
        error = caught.value
        assert (error.type, error.category) == (NOT_YET, ApplicationErrorCategory.BENIGN), error
        assert error.next_retry_delay == timedelta(seconds=5)
        return error.message

    def _beat(self, *details: Any) -> None:
        self.heartbeat = details

    # -- the cluster

    async def node(self, ready: str = "True", since: timedelta = timedelta(0), volumes: tuple[str, ...] = ()) -> None:
        """Its Ready condition, for how long it has been so, and the volumes attached to it."""
        changed = (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": changed}],
            "volumesAttached": [{"name": v, "devicePath": ""} for v in volumes],
        }
        await self.kube.patch(f"{NODES}/{NODE}/status", {"status": status})

    async def pod(self, name: str, grace: int = 30, node: str = NODE, phase: str = "Running", **metadata: Any) -> Obj:
        body = pod(name, node)
        body["metadata"] |= metadata
        body["spec"]["terminationGracePeriodSeconds"] = grace
        await self.kube.create(PODS, body)
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        made: Obj = await self.kube.patch(f"{PODS}/{name}/status", {"status": status}, STRATEGIC)
        return made

    async def stopped(self, name: str) -> None:
        """What its kubelet does when the containers have ended."""
        (await self.kube.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})).ok()

    async def budget(self, name: str, selector: Obj, allowed: int = 0) -> None:
        body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}}
        if not (await self.kube.call("GET", f"{BUDGETS}/{name}")).status < 300:
            await self.kube.create(BUDGETS, body)
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
        }
        await self.kube.patch(f"{BUDGETS}/{name}/status", {"status": status})

    async def names(self) -> set[str]:
        return {p["metadata"]["name"] for p in (await self.kube.get(PODS))["items"]}

    def calls(self, operation: str) -> list[Call]:
        return self.world.frame.calls("kubernetes", operation)

    def evicted(self) -> list[str]:
        """Names of pods in the order in which their eviction was asked for."""
        return [c.request["path"].split("/")[-2] for c in self.calls("create pods/eviction")]
