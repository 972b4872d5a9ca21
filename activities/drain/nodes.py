"""Draining a VM's Nodes: one short pass per attempt, until the pods are gone and their volumes are detached.

What one pass must tell the next goes into the heartbeat (activities/drain/memory.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.base import Activities
from activities.boundary import NotYet, last_progress, progress, translated
from activities.clock import ServerClock
from activities.drain import calls
from activities.drain.memory import Memory
from activities.drain.sweep import Sweep
from activities.drain.words import moment
from activities.kube.client import Kube, node_path
from activities.kube.events import tell
from activities.kube.looks import labelled_nodes
from activities.kube.whose import Whose, whose
from activities.temporal.workflows import tell as tell_workflow
from resources.base import read_time
from resources.calls.drain import DrainBlocked, DrainInput, DrainOutput
from resources.errors import NOT_YET

DEAD_AFTER = timedelta(minutes=5)
"""MCM: a node that has been NotReady for this long has a dead kubelet; nobody will confirm that its pods have
stopped."""
LOOKS = 5
"""How often a look at a Node that was drained before is tried: the look must not keep a VM."""
TOLD = 5
"""The most changes of what is in the way that a drain tells its machine."""
ALIVE_WHEN = {"Ready": "True", "ReadonlyFilesystem": "False"}


class DrainActivities(Activities):
    role = "drain"

    @activity.defn
    async def drain_node(self, input: DrainInput) -> DrainOutput:
        try:
            with translated():
                return await self._pass(input)
        except ApplicationError as e:
            last = input.force or (input.again and activity.info().attempt >= LOOKS)
            if e.type == NOT_YET or not last:
                raise
            # A retry here would go on for ever: the workflow backs off on its own, and goes on when it may.
            raise ApplicationError(e.message, *e.details, type=e.type, non_retryable=True) from None

    async def _pass(self, input: DrainInput) -> DrainOutput:
        clock, attempt = ServerClock(), activity.info().attempt
        kube = await self.deps.clusters.get(input.machine.cluster)
        memory = Memory.model_validate(last_progress())
        nodes, unsure = await _nodes(kube, input, memory, attempt)
        if not nodes:
            return _over(input, DrainOutput(), unsure)
        cordoned = all(map(calls.is_cordoned, nodes))
        if input.again and not cordoned:
            return DrainOutput(uncordoned=True)
        for node in nodes:
            if attempt == 1:
                await tell(kube, node, input.machine, input.story)
            await calls.cordon(kube, node, input.machine.name)
        # Where a VM has several Nodes, one living kubelet is enough to confirm that pods have stopped.
        dead = input.dead or all(kubelet_is_dead(node, clock.now()) for node in nodes)
        sweep = Sweep(kube, input, nodes, memory, clock, dead=dead)
        # Where the cordon is there already, a first attempt may follow another drain of this node.
        sweep.in_order = memory.attempt == attempt - 1 and (attempt > 1 or not cordoned)
        await sweep.look()
        try:
            output = await sweep.act()
            memory.attempt = attempt
            await self._tell(sweep.stuck, memory)
        finally:
            # After a pass that failed half-way too: what it did is done.
            progress(sweep.words, **memory.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        if output is None:
            raise NotYet(sweep.words, input.poll)
        return _over(input, output, unsure)

    async def _tell(self, stuck: str, memory: Memory) -> None:
        """Tells the machine what is in the way when it changes, for its story: nobody sees this activity's failures any
        more once it is over. Nothing waits for it."""
        if not stuck or stuck in memory.told or len(memory.told) == TOLD:
            return
        workflow_id = activity.info().workflow_id
        assert workflow_id is not None
        try:
            await tell_workflow(self.deps.client, workflow_id, "drain_blocked", DrainBlocked(message=stuck))
        except RPCError as e:
            activity.logger.warning("the machine was not told what blocks its drain: %s", e)
        else:
            memory.told.append(stuck)


async def _nodes(kube: Kube, input: DrainInput, memory: Memory, attempt: int) -> tuple[list[dict[str, Any]], bool]:
    """The VM's Nodes: the one that is named, and its twins, which are looked for at the first attempt. Also whether
    there is a Node with the name that nobody can attribute."""
    if input.provider_id and (attempt == 1 or memory.attempt == 0):
        labelled = await labelled_nodes(kube, input.machine.name, input.provider_id)
        memory.nodes = sorted({n["metadata"]["name"] for n in labelled} - {input.node_name})
    found, unsure = [], False
    for name in (input.node_name, *memory.nodes):
        node = await kube.find(node_path(name))
        whom = Whose.ANOTHERS if node is None else whose(node, input.provider_id, input.node_uid)
        if node is not None and whom is Whose.OURS:
            found.append(node)
        unsure |= whom is Whose.UNSURE
    return found, unsure


def _over(input: DrainInput, output: DrainOutput, unsure: bool) -> DrainOutput:
    """The output, with a word on a Node that has the machine's node name but no providerID. It is most likely the VM's
    own, registered again while the VM runs; but it may be another's by now, and nobody's pods are evicted for a name.
    Raises NotYet while that may become known."""
    if not unsure:
        return output
    words = (
        f"node {input.node_name} has no providerID and is not the object that joined, so it is not known whether it "
        "belongs to this VM: waiting for the cloud-controller-manager (or kubelet --provider-id)"
    )
    if input.force or input.dead or input.again:
        return output.model_copy(
            update={"left": [*output.left, (f"node {input.node_name}: the VM that it belongs to is not known")]}
        )
    end = f", not for longer than {moment(input.deadline, ServerClock().now())}" if input.deadline else ""
    raise NotYet(f"{words}{end}", input.poll)


def kubelet_is_dead(node: dict[str, Any], now: datetime) -> bool:
    """Whether the kubelet is dead, or its file system read-only, so that it cannot end a pod either (MCM D7, D8)."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        well, since = ALIVE_WHEN.get(condition.get("type")), read_time(condition.get("lastTransitionTime"))
        if well and condition.get("status") != well and since and now - since > DEAD_AFTER:
            return True
    return False
