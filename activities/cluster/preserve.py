"""What a preserved machine's Node carries: cluster-autoscaler leaves it alone, and what a person asked for stays until
the preservation ends."""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity

from activities.base import Activities
from activities.cluster.protection import protection, protection_patch
from activities.kube.client import Object
from activities.kube.events import tell
from activities.kube.looks import labelled_nodes, our_node
from activities.kube.rewrite import rewrite_if_there
from activities.kube.whose import Whose, whose
from resources.calls.cluster import PreserveInput, PreserveOutput
from resources.machine_config.keys import DRAINED_BY_CONFIG
from resources.names import CORDON_ANNOTATION, PRESERVE_ANNOTATION


class PreserveActivities(Activities):
    role = "cluster"

    @activity.defn
    async def preserve_node(self, input: PreserveInput) -> PreserveOutput:
        """Writes what a preservation needs on the Node. A Node that is gone, or that another VM has registered, needs
        nothing."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await our_node(kube, input)
        node = await rewrite_if_there(kube, node, lambda found: preserve_patch(found, input))
        if input.uncordon and input.provider_id:  # a drain has cordoned its twins too
            for twin in await labelled_nodes(kube, input.machine.name, input.provider_id):
                if twin["metadata"]["name"] != input.node_name:
                    await rewrite_if_there(kube, twin, lambda found: preserve_patch(found, input))
        if node is None or not _ours(node, input):
            return PreserveOutput()
        await tell(kube, node, input.machine, input.story)
        return PreserveOutput(value=(node["metadata"].get("annotations") or {}).get(PRESERVE_ANNOTATION, ""))


def preserve_patch(node: Object, input: PreserveInput) -> Object:
    """The merge patch that makes a Node as it should be; empty when it is so. It carries the resourceVersion: a person
    may ask again, or cordon, at the same time."""
    if not _ours(node, input):
        return {}
    metadata = node["metadata"]
    there: dict[str, str] = metadata.get("annotations") or {}
    annotations = _protection(there, input.machine.name, input.on)
    if input.clear and there.get(PRESERVE_ANNOTATION) == input.clear:
        annotations[PRESERVE_ANNOTATION] = None
    lifts = input.uncordon and there.get(CORDON_ANNOTATION) == input.machine.name
    if lifts:
        annotations[CORDON_ANNOTATION] = None
    if not annotations:
        return {}
    patch: Object = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": annotations}}
    if lifts and (node.get("spec") or {}).get("unschedulable") and DRAINED_BY_CONFIG not in there:
        patch["spec"] = {"unschedulable": None}
    return patch


def _protection(there: dict[str, str], machine: str, on: bool) -> dict[str, str | None]:
    now = protection(there)
    if on:
        return protection_patch(there, replace(now, machine=machine))
    return protection_patch(there, replace(now, machine="")) if now.machine == machine else {}


def _ours(node: Object, input: PreserveInput) -> bool:
    return whose(node, input.provider_id, input.node_uid) is Whose.OURS
