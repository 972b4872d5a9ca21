"""A machine's deeds at its Node: the template on joining, the ready taint, a fresh look, and the end."""

from __future__ import annotations

from typing import Any

from temporalio import activity

from activities.classes import ClassActivities
from activities.deps import Deps
from activities.draining.calls import attached, detach
from activities.events import tell
from activities.facts import project
from activities.kube import Kube, KubeError, node_path
from activities.looks import find_node, labelled_nodes, lease_renewed, provider_id_of, ready_status
from activities.merge import template_patch
from activities.rewrite import Object, rewrite
from activities.tokens import revoke_tokens
from resources.machine_class import ClassRef
from resources.messages import (
    ForgetInput,
    JoinInput,
    LookInput,
    NodeFacts,
    NodeLook,
    ReadyInput,
    ReadyOutput,
    TellInput,
)
from resources.names import INSTANCE_NOT_READY_TAINT, provider_key


class NodeActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps
        self.classes = ClassActivities(deps)

    @activity.defn
    async def join_node(self, input: JoinInput) -> None:
        """Labels, annotations and taints of the template; the bootstrap token has served and is revoked."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await kube.get(node_path(input.node_name))
        await rewrite(kube, node, lambda found: template_patch(found, input.last_applied, input.node_template))
        await revoke_tokens(kube, input.machine, input.attempt)
        await tell(kube, node, input.machine, input.story)

    @activity.defn
    async def look_at_node(self, input: LookInput) -> NodeLook:
        """A fresh look, without which no machine is Failed: after an outage the watch's last news is old.

        What cannot be read is an error, never "not there".
        """
        kube = await self.deps.clusters.get(input.machine.cluster)
        found = await find_node(kube, input.machine.name, input.node_name, input.provider_id)
        if found.node is None:
            return NodeLook(
                node=NodeFacts(epoch=0, seq=0, exists=False, name=input.node_name or ""),
                without_provider_id=found.namesake is not None and not provider_id_of(found.namesake),
            )
        return NodeLook(
            node=project(found.node, epoch=0, seq=0),
            ready=ready_status(found.node),
            lease_renewed=await lease_renewed(kube, found.node["metadata"]["name"]),
        )

    @activity.defn
    async def tell_node(self, input: TellInput) -> None:
        """Events on the Node; nothing when it is gone."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await kube.find(node_path(input.node_name))
        if node is not None:
            await tell(kube, node, input.machine, input.story)

    @activity.defn
    async def remove_ready_taint(self, input: ReadyInput) -> ReadyOutput:
        """By key, whatever its value or effect. Read-modify-write: the list of taints is atomic."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await kube.get(node_path(input.node_name))
        await rewrite(kube, node, ready_patch)
        await tell(kube, node, input.machine, input.story)
        return ReadyOutput(removed=bool(ready_patch(node)))

    @activity.defn
    async def forget_machine(self, input: ForgetInput) -> None:
        """Its Nodes, the tokens, and its classes' memory of it. The VM is confirmed gone before this is called."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        for node in await _nodes_of(kube, input):
            metadata = node["metadata"]
            await _detach(kube, node)
            # The uid: a Node of that name made since belongs to a VM that got the dead one's address.
            await kube.delete(node_path(metadata["name"]), {"preconditions": {"uid": metadata["uid"]}})
        await revoke_tokens(kube, input.machine, input.attempts)
        for name in input.classes:
            await self.classes.forget_user(ClassRef(cluster=input.machine.cluster, name=name), input.machine.name)


def ready_patch(node: Object) -> Object:
    """The merge patch that takes the ready taint off; empty when it is."""
    taints = (node.get("spec") or {}).get("taints") or []
    rest = [t for t in taints if t.get("key") != INSTANCE_NOT_READY_TAINT]
    version = {"resourceVersion": node["metadata"]["resourceVersion"]}
    return {"metadata": version, "spec": {"taints": rest}} if len(rest) < len(taints) else {}


async def _detach(kube: Kube, node: dict[str, Any]) -> None:
    """Its VM is gone: a pod elsewhere would wait 6 minutes for a volume that is said to be attached here."""
    try:
        await detach(kube, await attached(kube, node))
    except KubeError as e:
        if e.status != 403:
            raise
        activity.logger.warning("volumes of node %s not detached: %s", node["metadata"]["name"], e.message)


async def _nodes_of(kube: Kube, input: ForgetInput) -> list[dict[str, Any]]:
    """By name, and by label: a Node may have registered under another name and never joined, or have a twin."""
    found = {}
    if input.node_name:
        node = await kube.find(node_path(input.node_name))
        if node is not None and _ours(node, input):
            found[input.node_name] = node
    if input.provider_id:
        for node in await labelled_nodes(kube, input.machine.name, input.provider_id):
            found[node["metadata"]["name"]] = node
    return list(found.values())


def _ours(node: dict[str, Any], input: ForgetInput) -> bool:
    """A Node of our name that another VM has registered is not ours to delete."""
    theirs = (node.get("spec") or {}).get("providerID")
    if theirs and input.provider_id:
        return provider_key(theirs) == provider_key(input.provider_id)
    return input.joined
