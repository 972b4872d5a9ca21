"""What the daemon of a Node asks for while it changes the Node's config: a drain, and later the end of the cordon.

It writes `desiredDrain` (`drain-<config>`, `uncordon-<config>`); when that is done, the same words are written to
`lastAppliedDrain`. The drain is the one of machines, with a cordon that says whose it is, and without an end: no pod is
ever killed for a config (I12).
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from temporalio import activity
from temporalio.service import RPCError

from activities.base import Activities
from activities.boundary import NotYet, last_progress, progress
from activities.clock import ServerClock
from activities.drain import calls
from activities.drain.memory import Memory
from activities.drain.nodes import TOLD, kubelet_is_dead
from activities.drain.sweep import Sweep
from activities.kube.client import Kube, KubeError, Object, node_path
from activities.kube.rewrite import rewrite
from activities.temporal.workflows import tell
from resources.calls.drain import DrainInput
from resources.calls.machine import MachineRef
from resources.calls.machine_config import ConfigDrainBlocked, ConfigDrainInput, ConfigDrainOutput
from resources.machine_config.keys import DIALECTS, DRAINED_BY_CONFIG, Dialect
from resources.machine_config.node import dialect_of
from resources.names import CORDON_ANNOTATION

GONE = ConfigDrainOutput(gone=True)
ANSWERED = ConfigDrainOutput(answered=True)
SUPERSEDED = ConfigDrainOutput(superseded=True)


class Uncordoned(Exception):
    """Somebody has lifted the cordon since the pass began."""


class Superseded(Exception):
    """The daemon asks for something else by now."""


class ConfigDrainActivities(Activities):
    role = "drain"

    @activity.defn
    async def drain_for_config(self, input: ConfigDrainInput) -> ConfigDrainOutput:
        """One pass of a drain that the Node's daemon has asked for; the last one answers the daemon."""
        kube, keys = await self._cluster(input)
        node = await _find(kube, input)
        if node is None:
            return GONE
        if (known := _standing(node, input.request, keys)) is not None:
            return known
        clock, memory, attempt = ServerClock(), Memory.model_validate(last_progress()), activity.info().attempt
        try:
            node = await rewrite(kube, node, partial(cordon_patch, config=_config(input.request)))
        except KubeError as e:
            if e.status != 404:
                raise
            return GONE
        sweep = Sweep(kube, _drain_input(input, node), [node], memory, clock, dead=kubelet_is_dead(node, clock.now()))
        sweep.in_order = attempt > 1 and memory.attempt == attempt - 1
        await sweep.look()
        try:
            output = await sweep.act()
            memory.attempt = attempt
            await self._tell(input, sweep.stuck, memory)
        finally:
            # After a pass that failed half-way too: what it did is done.
            progress(sweep.words, **memory.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        if output is None:
            raise NotYet(sweep.words, input.poll)
        answer = await self._answer(kube, input, keys)
        return answer.model_copy(update={"pods": output.pods, "left": output.left})

    @activity.defn
    async def uncordon_for_config(self, input: ConfigDrainInput) -> ConfigDrainOutput:
        """Lifts the cordon that was put on for a config, and answers the daemon. A person's cordon stays, as does that
        of a machine that is being drained."""
        kube, keys = await self._cluster(input)
        node = await _find(kube, input)
        if node is None:
            return GONE
        return await _write(kube, node, partial(uncordon_patch, request=input.request, keys=keys))

    async def _answer(self, kube: Kube, input: ConfigDrainInput, keys: Dialect) -> ConfigDrainOutput:
        """Answers that the Node is drained, if it still is: a fresh read must find the cordon. Somebody who lifted it
        in the meantime has let new pods in."""
        node = await _find(kube, input)
        if node is None:
            return GONE
        try:
            return await _write(kube, node, partial(drained_patch, request=input.request, keys=keys))
        except Uncordoned:
            words = f"somebody uncordoned node {input.node.name} during its drain: it is cordoned and drained again"
            raise NotYet(words, input.poll) from None

    async def _cluster(self, input: ConfigDrainInput) -> tuple[Kube, Dialect]:
        kube = await self.deps.clusters.get(input.cluster)
        return kube, DIALECTS[self.deps.machine_configs(input.cluster).annotations]

    async def _tell(self, input: ConfigDrainInput, stuck: str, memory: Memory) -> None:
        """Tells the pool what is in the way when it changes. Nothing waits for it."""
        if not stuck or stuck in memory.told or len(memory.told) == TOLD:
            return
        workflow_id = activity.info().workflow_id
        assert workflow_id is not None
        try:
            blocked = ConfigDrainBlocked(node=input.node.name, message=stuck)
            await tell(self.deps.client, workflow_id, "drain_blocked", blocked)
        except RPCError as e:
            activity.logger.warning("the pool was not told what blocks the drain of %s: %s", input.node.name, e)
        else:
            memory.told.append(stuck)


async def _find(kube: Kube, input: ConfigDrainInput) -> Object | None:
    """The Node; None when it is gone, also where another has its name."""
    node = await kube.find(node_path(input.node.name))
    return node if node is not None and node["metadata"]["uid"] == input.node.uid else None


def _standing(node: Object, request: str, preferred: Dialect) -> ConfigDrainOutput | None:
    """What there is to answer without doing anything; None when there is something to do."""
    annotations = node["metadata"].get("annotations") or {}
    keys = dialect_of(annotations, preferred)
    if annotations.get(keys.desired_drain) != request:
        return SUPERSEDED
    return ANSWERED if annotations.get(keys.last_drain) == request else None


def _config(request: str) -> str:
    return request.partition("-")[2]


def _drain_input(input: ConfigDrainInput, node: Object) -> DrainInput:
    """The drain of a Node that stays: its volumes are waited for only as part of a pod's move."""
    since: datetime = input.since or activity.info().scheduled_time
    return DrainInput(
        machine=MachineRef(cluster=input.cluster, name=input.node.name, uid=input.node.uid),
        node_name=input.node.name,
        node_uid=node["metadata"]["uid"],
        keep=True,
        since=since,
        poll=input.poll,
    )


async def _write(kube: Kube, node: Object, patch_of: partial[Object]) -> ConfigDrainOutput:
    try:
        await rewrite(kube, node, patch_of)
    except Superseded:
        return SUPERSEDED
    except KubeError as e:
        if e.status != 404:
            raise
        return GONE
    return ANSWERED


# -- the patches: each carries the resourceVersion, and is empty where nothing is to be done ---------------------------


def cordon_patch(node: Object, config: str) -> Object:
    """A cordon that is there already stays as it is, whosever it is."""
    if calls.is_cordoned(node):
        return {}
    return {"metadata": _metadata(node, {DRAINED_BY_CONFIG: config}), "spec": {"unschedulable": True}}


def drained_patch(node: Object, request: str, keys: Dialect) -> Object:
    """Raises Superseded, Uncordoned."""
    answer = _answer_patch(node, request, keys)
    if answer and not calls.is_cordoned(node):
        raise Uncordoned
    return {"metadata": _metadata(node, answer)} if answer else {}


def uncordon_patch(node: Object, request: str, keys: Dialect) -> Object:
    """Raises Superseded."""
    there = node["metadata"].get("annotations") or {}
    annotations: dict[str, str | None] = {**_answer_patch(node, request, keys)}
    patch: Object = {}
    if DRAINED_BY_CONFIG in there:
        annotations[DRAINED_BY_CONFIG] = None
        if calls.is_cordoned(node) and CORDON_ANNOTATION not in there:
            patch["spec"] = {"unschedulable": None}
    return {**patch, "metadata": _metadata(node, annotations)} if annotations else {}


def _answer_patch(node: Object, request: str, preferred: Dialect) -> dict[str, str]:
    """The annotation that answers the daemon; empty where it has been answered. Raises Superseded."""
    known = _standing(node, request, preferred)
    if known is SUPERSEDED:
        raise Superseded
    keys = dialect_of(node["metadata"].get("annotations") or {}, preferred)
    return {} if known is ANSWERED else {keys.last_drain: request}


def _metadata(node: Object, annotations: dict[str, str] | dict[str, str | None]) -> Object:
    return {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": annotations}
