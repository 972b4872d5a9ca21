"""The pods of one simulated kubelet: it starts pods bound to its node, and stops those being deleted.

A container runs until its pod is deleted; nothing here ends on its own, and probes are not run. Two annotations on a
pod, meant for tests and demonstrations, make it unusual:

- `simulator.hostler/ready: "false"`: it runs, and never becomes ready (a sick workload behind a disruption budget);
- `simulator.hostler/stop-seconds: "12.5"`: its containers ignore SIGTERM for so long (at most its grace period).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable

from simulator.client import CallError, KubeClient, Obj, timestamp
from simulator.kubelet.knobs import Timings

READY_ANNOTATION = "simulator.hostler/ready"
STOP_ANNOTATION = "simulator.hostler/stop-seconds"

log = logging.getLogger(__name__)


class Pods:
    """Follows the API server's pods of one node with a watch of the kubelet's own."""

    def __init__(
        self, client: KubeClient, node_name: str, host_ip: str, address: Callable[[int], str], timings: Timings
    ):
        self._client = client
        self._node = node_name
        self._host_ip = host_ip
        self._address = address
        self._timings = timings
        self._workers: dict[str, _Worker] = {}

    async def run(self) -> None:
        """List and watch until cancelled; a broken watch is taken up again after a heartbeat's time."""
        selector = f"spec.nodeName={self._node}"
        try:
            while True:
                try:
                    await self._follow(selector)
                except CallError as e:
                    log.debug("%s: pods: %s", self._node, e.message)
                    await asyncio.sleep(self._timings.heartbeat)
        finally:
            for worker in self._workers.values():
                worker.stop()

    async def _follow(self, selector: str) -> None:
        listed = await self._client.list("pods", fieldSelector=selector)
        present = {pod["metadata"]["uid"]: pod for pod in listed.get("items", ())}
        for uid in self._workers.keys() - present.keys():
            self._forget(uid)
        for pod in present.values():
            self._see(pod)
        version = listed["metadata"]["resourceVersion"]
        while True:
            async for event in self._client.watch("pods", version, fieldSelector=selector):
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "DELETED":
                    self._forget(event.object["metadata"]["uid"])
                elif event.type != "BOOKMARK":
                    self._see(event.object)

    def _see(self, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is None:
            address = (pod.get("status") or {}).get("podIP") or self._free_address()
            worker = self._workers[uid] = _Worker(self._client, pod, self._host_ip, address, self._timings)
        worker.see(pod)

    def _free_address(self) -> str:
        taken = {worker.address for worker in self._workers.values()}
        return next(address for address in map(self._address, itertools.count(2)) if address not in taken)

    def _forget(self, uid: str) -> None:
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker.stop()


class _Worker:
    """One pod's life on the node, in one task: start it, keep its status right, stop it, delete it."""

    def __init__(self, client: KubeClient, pod: Obj, host_ip: str, address: str, timings: Timings) -> None:
        self.address = host_ip if pod["spec"].get("hostNetwork") else address
        self._client = client
        self._host_ip = host_ip
        self._timings = timings
        self._pod = pod
        self._clock = asyncio.get_running_loop().time
        running = (pod.get("status") or {}).get("phase") == "Running"
        self._start_at = self._clock() + (0.0 if running else timings.pod_start)
        self._stop_at: float | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._live())

    def see(self, pod: Obj) -> None:
        self._pod = pod
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            grace = float(meta.get("deletionGracePeriodSeconds") or 0)
            stop_at = self._clock() + min(grace, _stop_seconds(pod, self._timings.pod_stop))
            # Deleted again with a shorter grace period, it stops sooner; any other event changes nothing.
            self._stop_at = stop_at if self._stop_at is None else min(stop_at, self._stop_at)
        self._changed.set()

    def stop(self) -> None:
        self._task.cancel()

    async def _live(self) -> None:
        while True:
            due = self._due()
            pause = None if due is None else due - self._clock()
            if pause is None or pause > 0:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                continue
            try:
                if self._stop_at is not None:
                    await self._finish()
                    return
                await self._post(_running_status(self._pod, self.address, self._host_ip))
            except CallError as e:
                if e.not_found or e.conflict:  # another pod has the name by now
                    return
                log.debug("pod %s: %s", self._pod["metadata"]["name"], e.message)
                await asyncio.sleep(self._timings.heartbeat)

    def _due(self) -> float | None:
        """When the next step is due; None while the API server says of the pod what the kubelet would say."""
        if self._stop_at is not None:
            return self._stop_at
        status = self._pod.get("status") or {}
        phase = status.get("phase")
        if phase in ("Succeeded", "Failed") or (phase == "Running" and _is_ready(self._pod) == _wants_ready(self._pod)):
            return None
        return self._start_at

    async def _post(self, status: Obj) -> None:
        # The uid in the body makes it a conflict when a namesake has taken the pod's place.
        meta = self._pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        patched = await self._client.patch(
            "pods", meta["name"], body, meta["namespace"], sub="status", kind="strategic"
        )
        self._start_at = self._clock() + self._timings.heartbeat  # no hot loop when another writer fights over it
        if self._stop_at is None:
            self._pod = patched

    async def _finish(self) -> None:
        """The containers have stopped: say so, then remove the pod, as kubelet alone may do."""
        meta = self._pod["metadata"]
        if float(meta.get("deletionGracePeriodSeconds") or 0) > 0:
            await self._post(_stopped_status(self._pod))
        await self._client.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"], grace=0)


def _is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _wants_ready(pod: Obj) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(READY_ANNOTATION) != "false"


def _stop_seconds(pod: Obj, default: float) -> float:
    text = (pod["metadata"].get("annotations") or {}).get(STOP_ANNOTATION)
    try:
        return default if text is None else max(0.0, float(text))
    except ValueError:
        return default


def _running_status(pod: Obj, address: str, host_ip: str) -> Obj:
    now = timestamp()
    ready = _wants_ready(pod)
    previous = {c["type"]: c for c in (pod.get("status") or {}).get("conditions", ())}

    def condition(type_: str, value: bool) -> Obj:
        old = previous.get(type_, {})
        changed = old.get("status") != str(value)
        since = now if changed else old.get("lastTransitionTime", now)
        if value:
            return {"type": type_, "status": "True", "lastTransitionTime": since, "reason": None, "message": None}
        return {"type": type_, "status": "False", "lastTransitionTime": since, "reason": "ContainersNotReady"}

    started = (pod.get("status") or {}).get("startTime") or now
    return {
        "phase": "Running",
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": started,
        "conditions": [
            condition("PodReadyToStartContainers", True),
            condition("Initialized", True),
            condition("Ready", ready),
            condition("ContainersReady", ready),
            condition("PodScheduled", True),
        ],
        "containerStatuses": [
            _container(c, ready=ready, state={"running": {"startedAt": started}}) for c in pod["spec"]["containers"]
        ],
    }


def _stopped_status(pod: Obj) -> Obj:
    now = timestamp()
    started = (pod.get("status") or {}).get("startTime") or now
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}}
    return {
        "phase": "Succeeded",
        "conditions": [
            {"type": type_, "status": "False", "lastTransitionTime": now, "reason": "PodCompleted"}
            for type_ in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [_container(c, ready=False, state=state) for c in pod["spec"]["containers"]],
    }


def _container(container: Obj, *, ready: bool, state: Obj) -> Obj:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
