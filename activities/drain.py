"""Draining a Node: one short pass per attempt, until the pods are gone and their volumes are detached.

What one pass must tell the next goes into the heartbeat (activities/draining/memory.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.boundary import NotYet, last_progress, progress, translated
from activities.clock import Clock
from activities.deps import Deps
from activities.draining import calls
from activities.draining.memory import Memory
from activities.draining.sweep import Sweep
from activities.events import tell
from activities.kube import node_path
from activities.looks import another_vm
from resources.errors import NOT_YET
from resources.messages import DrainInput, DrainOutput

DEAD_AFTER = timedelta(minutes=5)
"""MCM: a node NotReady for so long has a dead kubelet; nobody will confirm that its pods have stopped."""
LOOKS = 5
"""How often a Node that was drained before is tried to be looked at: it must not keep a VM."""
ALIVE_WHEN = {"Ready": "True", "ReadonlyFilesystem": "False"}


class DrainActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def drain_node(self, input: DrainInput) -> DrainOutput:
        try:
            with translated():
                return await self._pass(input)
        except ApplicationError as e:
            last = input.force or (input.again and activity.info().attempt >= LOOKS)
            if e.type == NOT_YET or not last:
                raise
            # Tried again here it would be tried for ever: the workflow backs off by itself, and goes on when it may.
            raise ApplicationError(e.message, *e.details, type=e.type, non_retryable=True) from None

    async def _pass(self, input: DrainInput) -> DrainOutput:
        clock, attempt = Clock(), activity.info().attempt
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await kube.find(node_path(input.node_name))
        if node is None or another_vm(node, input.provider_id):
            return DrainOutput()
        cordoned = bool((node.get("spec") or {}).get("unschedulable"))
        if input.again and not cordoned:
            return DrainOutput(uncordoned=True)
        if attempt == 1:
            await tell(kube, node, input.machine, input.story)
        if not cordoned:
            await calls.cordon(kube, input.node_name, input.machine.name)
        memory = Memory.model_validate(last_progress())
        sweep = Sweep(kube, input, node, memory, clock, dead=input.dead or _kubelet_is_dead(node, clock.now()))
        # Where the cordon is there already a first attempt may follow another drain of this node.
        sweep.in_order = memory.attempt == attempt - 1 and (attempt > 1 or not cordoned)
        await sweep.look()
        try:
            output = await sweep.act()
            memory.attempt = attempt
        finally:
            # Also of a pass that failed half-way: what it did is done.
            progress(sweep.words, **memory.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        if output is None:
            raise NotYet(sweep.words, input.poll)
        return output


def _kubelet_is_dead(node: dict[str, Any], now: datetime) -> bool:
    """Or its file system is read-only, so that it cannot end a pod either (MCM D7, D8)."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        well, since = ALIVE_WHEN.get(condition.get("type")), condition.get("lastTransitionTime")
        if well and condition.get("status") != well and since and now - datetime.fromisoformat(since) > DEAD_AFTER:
            return True
    return False
