"""The drain activity, one attempt at a time, against an API server without controllers: the test is the kubelet and the
controller that attaches and detaches volumes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from activitykit import Innermost
from apiserver.simulated import MERGE, NODES, PODS, STRATEGIC, Obj, World, new_world, pod
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ExecuteActivityInput

from activities.boundary import Boundary
from activities.cluster.node import NodeActivities
from activities.deps import Deps
from activities.drain.nodes import DrainActivities
from activities.drain.words import moment
from resources.calls.cluster import ForgetInput, ForgetOutput
from resources.calls.drain import DrainInput, DrainOutput
from resources.calls.machine import MachineRef
from resources.errors import NOT_YET
from resources.settings import ClusterSettings, Settings
from simulator.frame import Call

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CSI = "ebs.csi.aws.com"
NODE, VM = "n-1", "aws:///eu-west-1/i-1"


@contextlib.asynccontextmanager
async def new_drain(client: Client, folder: Path) -> AsyncIterator[Drain]:
    """The drain of a Node in a simulated cluster of its own."""
    async with new_world() as world:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(world.kube.kubeconfig())
        deps = Deps(Settings(clusters={"demo": ClusterSettings(kubeconfig=kubeconfig)}), client)
        await world.kube.create(NODES, {"metadata": {"name": NODE}, "spec": {"providerID": VM}})
        drain = Drain(world, DrainActivities(deps))
        await drain.node()
        try:
            yield drain
        finally:
            await deps.close()


class Drain:
    """The activity, one attempt at a time, with the last attempt's heartbeat and a clock that a test moves."""

    def __init__(self, world: World, activities: DrainActivities) -> None:
        self.world = world
        self.kube = world.kube
        self.activities = activities
        self.heartbeat: tuple[Any, ...] = ()
        self.attempt = 0
        self.made: list[str] = []
        self.now = datetime.now(UTC)
        """When the next pass takes place. The API server's own times are wall-clock times, some moments later."""

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def again(self) -> None:
        """The workflow starts the activity again."""
        self.heartbeat, self.attempt = (), 0

    def killed(self) -> None:
        """The worker dies in the middle of a pass, before a heartbeat has got out."""
        self.attempt += 1

    async def once(self, **fields: Any) -> DrainOutput:
        machine = MachineRef(cluster="demo", name="m-1", uid="u-1")
        usual = {"machine": machine, "node_name": NODE, "provider_id": VM, "deadline": self._deadline}
        environment = ActivityEnvironment()
        self.attempt += 1
        environment.info = replace(
            environment.info,
            attempt=self.attempt,
            heartbeat_details=self.heartbeat,
            heartbeat_timeout=None,
            started_time=self.now,
        )
        environment.on_heartbeat = self._beat
        attempt = Boundary().intercept_activity(Innermost())
        input = ExecuteActivityInput(
            fn=self.activities.drain_node,
            args=[DrainInput(**{**usual, "poll": timedelta(seconds=5), **fields})],
            executor=None,
            headers={},
        )
        output: DrainOutput = await environment.run(attempt.execute_activity, input)
        return output

    async def waits(self, **fields: Any) -> str:
        """The words of a pass that found that the drain is not over."""
        with pytest.raises(ApplicationError) as caught:
            await self.once(**fields)
        error = caught.value
        assert (error.type, error.category) == (NOT_YET, ApplicationErrorCategory.BENIGN), error
        assert error.next_retry_delay == timedelta(seconds=5)
        return error.message

    async def fails(self, **fields: Any) -> ApplicationError:
        """The error of a pass that fails."""
        with pytest.raises(ApplicationError) as caught:
            await self.once(**fields)
        assert caught.value.type != NOT_YET
        return caught.value

    async def forget(self, **fields: Any) -> ForgetOutput:
        """What follows when the cloud has confirmed that the VM is gone."""
        machine = MachineRef(cluster="demo", name="m-1", uid="u-1")
        input = ForgetInput(**{"machine": machine, "node_name": NODE, "provider_id": VM, **fields})
        output: ForgetOutput = await ActivityEnvironment().run(
            NodeActivities(self.activities.deps).forget_machine, input
        )
        return output

    @property
    def _deadline(self) -> datetime:
        """14:05 on the day on which the next pass takes place."""
        return self.now.replace(hour=14, minute=5, second=0, microsecond=0)

    def _beat(self, *details: Any) -> None:
        self.heartbeat = details

    # -- the cluster

    async def node(self, ready: str = "True", since: timedelta = timedelta(0), volumes: tuple[str, ...] = ()) -> None:
        """The Node, with its Ready condition, for how long it has been so, and the volumes attached to it."""
        changed = (self.now - since).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": changed}],
            "volumesAttached": [{"name": v, "devicePath": ""} for v in volumes],
        }
        await self.kube.patch(f"{NODES}/{NODE}/status", {"status": status})

    async def _make(self, path: str, body: Obj) -> None:
        self.made.append(f"{path}/{body['metadata']['name']}")
        await self.kube.create(path, body)

    async def pod(
        self,
        name: str,
        grace: int = 30,
        node: str = NODE,
        phase: str = "Running",
        tolerations: tuple[Obj, ...] = (),
        **metadata: Any,
    ) -> Obj:
        body = pod(name, node)
        body["metadata"] |= metadata
        body["spec"]["tolerations"] = list(tolerations)
        body["spec"]["terminationGracePeriodSeconds"] = grace
        await self._make(PODS, body)
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        made: Obj = await self.kube.patch(f"{PODS}/{name}/status", {"status": status}, STRATEGIC)
        return made

    async def stateful(self, name: str, *claims: str, priority: int | str | None = None, grace: int = 30) -> Obj:
        """A pod that comes again elsewhere, with these claims. `priority`: a number, or the name of a class."""
        body = pod(name, NODE)
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s-1", "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
        body["spec"]["terminationGracePeriodSeconds"] = grace
        if priority is not None:
            named = priority if isinstance(priority, str) else await self._priority(priority)
            body["spec"]["priorityClassName"] = named
        body["spec"]["volumes"] = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
        await self._make(PODS, body)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        made: Obj = await self.kube.patch(f"{PODS}/{name}/status", {"status": status}, STRATEGIC)
        return made

    async def _priority(self, value: int) -> str:
        name = f"important-{value}"
        if (await self.kube.call("GET", f"{PRIORITIES}/{name}")).status == 404:
            await self._make(PRIORITIES, {"metadata": {"name": name}, "value": value})
        return name

    async def claim(self, name: str, source: Obj | None = None) -> None:
        """A claim bound to its PersistentVolume pv-<name>, which is not attached anywhere yet."""
        some = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        wants = {**some, "volumeName": f"pv-{name}", "resources": {"requests": {"storage": "1Gi"}}}
        await self._make(CLAIMS, {"metadata": {"name": name}, "spec": wants})
        disk = source or {"csi": {"driver": CSI, "volumeHandle": f"vol-{name}"}}
        bound = {"claimRef": {"namespace": "default", "name": name}, "capacity": {"storage": "1Gi"}}
        await self._make(VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": {**some, **bound, **disk}})

    async def unclaim(self, name: str) -> None:
        """Removes the claim and its PersistentVolume. What protects them while they are in use does not concern a
        drain."""
        for path in (f"{CLAIMS}/{name}", f"{VOLUMES}/pv-{name}"):
            await self.kube.call("DELETE", path)
            await self.kube.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)

    async def attach(self, *claims: str, node: str = NODE, attached: bool = True) -> None:
        """Does what the attach-detach controller does, and then the CSI driver's attacher."""
        for name in claims:
            source = {"persistentVolumeName": f"pv-{name}"}
            spec = {"attacher": CSI, "nodeName": node, "source": source}
            body = {"metadata": {"name": f"csi-{name}-{node}"}, "spec": spec}
            await self._make(ATTACHMENTS, body)
            if attached:
                await self.kube.patch(f"{ATTACHMENTS}/csi-{name}-{node}/status", {"status": {"attached": True}})

    async def detach(self, *claims: str, node: str = NODE) -> None:
        for name in claims:
            await self.kube.delete(f"{ATTACHMENTS}/csi-{name}-{node}")

    async def attached(self) -> set[str]:
        """PersistentVolumes with an attachment to the node."""
        found = (await self.kube.get(ATTACHMENTS))["items"]
        return {a["spec"]["source"]["persistentVolumeName"] for a in found if a["spec"]["nodeName"] == NODE}

    async def stopped(self, name: str) -> None:
        """Does what its kubelet does when the containers have ended."""
        (await self.kube.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})).ok()

    async def budget(self, name: str, selector: Obj, allowed: int = 0, **status: Any) -> None:
        """A budget as its controller would write it where one of the pods is not healthy; or with another status."""
        body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}}
        if not (await self.kube.call("GET", f"{BUDGETS}/{name}")).status < 300:
            await self._make(BUDGETS, body)
        usual = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 2 + allowed,
        }
        await self.kube.patch(f"{BUDGETS}/{name}/status", {"status": {**usual, **status}})

    async def terminating(self, name: str) -> str:
        """The words for a pod that is waited for."""
        end = datetime.fromisoformat((await self.kube.get(f"{PODS}/{name}"))["metadata"]["deletionTimestamp"])
        grace = "past its grace of" if self.now > end else "grace until"
        return f"default/{name} is terminating, {grace} {moment(end, self.now)}"

    async def clean_up(self) -> None:
        """Cleans up where the cluster is used after the test."""
        for path in reversed(self.made):
            await self.kube.call("DELETE", path, {"gracePeriodSeconds": 0})
            await self.kube.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)

    async def names(self) -> set[str]:
        return {p["metadata"]["name"] for p in (await self.kube.get(PODS))["items"]}

    def calls(self, operation: str) -> list[Call]:
        return self.world.frame.calls("kubernetes", operation)

    def evicted(self) -> list[str]:
        """Names of pods in the order in which their eviction was asked for."""
        return [c.request["path"].split("/")[-2] for c in self.calls("create pods/eviction")]
