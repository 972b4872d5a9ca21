"""A machine's activities on its Node: the template on joining, the ready taint, a fresh look, and the end."""

from __future__ import annotations

from typing import Any

from temporalio import activity

from activities.base import Activities
from activities.clock import ServerClock
from activities.cluster.merge import template_patch
from activities.kube.client import Kube, KubeError, Object, node_path
from activities.kube.events import tell
from activities.kube.facts import project
from activities.kube.looks import find_node, labelled, lease_renewed, nodes_of, our_node, the_node, transitions
from activities.kube.rewrite import rewrite
from activities.kube.tokens import revoke_tokens
from activities.kube.volumes import detach, read_attachments
from activities.kube.whose import alive, is_of, provider_id_of, ready_status
from activities.temporal.classes import forget_user
from resources.calls.cluster import (
    ForgetInput,
    ForgetOutput,
    JoinInput,
    LookInput,
    NodeLook,
    ReadyInput,
    ReadyOutput,
    StaleNodeInput,
    StaleNodeOutput,
    TellInput,
)
from resources.clouds import provider_key
from resources.machine.facts import NodeFacts
from resources.machine_class.state import ClassId
from resources.names import INSTANCE_NOT_READY_TAINT, MACHINE_NAME_LABEL

LEFT_NAMED = 10
"""Nodes that stay and are named in words: anybody who may write Nodes can give any number of them a machine's label."""


class NodeActivities(Activities):
    role = "cluster"

    @activity.defn
    async def join_node(self, input: JoinInput) -> None:
        """Puts the template's labels, annotations and taints on the Node; the bootstrap token has served its purpose
        and is revoked."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await the_node(kube, input)
        await rewrite(
            kube, node, lambda found: template_patch(found, input.last_applied, input.node_template, input.given)
        )
        await revoke_tokens(kube, input.machine, input.attempt)
        await tell(kube, node, input.machine, input.story)

    @activity.defn
    async def look_at_node(self, input: LookInput) -> NodeLook:
        """Looks at the Node afresh; without this no machine is Failed: after an outage the watch's last news is old.

        What cannot be read is an error, never "not there".
        """
        kube = await self.deps.clusters.get(input.machine.cluster)
        found = await find_node(kube, input.machine.name, input.node_name, input.provider_id, input.node_uid)
        if found.node is None:
            return NodeLook(
                node=NodeFacts(epoch=0, seq=0, exists=False, name=input.node_name or ""),
                without_provider_id=found.namesake is not None and not provider_id_of(found.namesake),
            )
        return NodeLook(
            node=project(found.node, epoch=0, seq=0),
            ready=ready_status(found.node),
            lease_renewed=await lease_renewed(kube, found.node["metadata"]["name"]),
            changed=transitions(found.node),
        )

    @activity.defn
    async def tell_node(self, input: TellInput) -> None:
        """Writes Events on the Node; nothing when it is gone or belongs to another VM."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await our_node(kube, input)
        if node is not None:
            await tell(kube, node, input.machine, input.story)

    @activity.defn
    async def remove_ready_taint(self, input: ReadyInput) -> ReadyOutput:
        """Removes the taint by key, whatever its value or effect. Read-modify-write: the list of taints is atomic."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await the_node(kube, input)
        await rewrite(kube, node, ready_patch)
        await tell(kube, node, input.machine, input.story)
        return ReadyOutput(removed=bool(ready_patch(node)))

    @activity.defn
    async def forget_machine(self, input: ForgetInput) -> ForgetOutput:
        """Forgets the machine: its Nodes, its tokens, and what its classes remember of it. The VM is confirmed gone
        before this is called, so it no longer writes to any volume, and the VolumeAttachments of its Nodes go too."""
        kube = await self.deps.clusters.get(input.machine.cluster)
        nodes, left = await _nodes_of(kube, input)
        await _detach(kube, nodes)
        for node in nodes:
            metadata = node["metadata"]
            # The uid: a Node of that name made since then belongs to a VM that got the dead one's address.
            await kube.delete(node_path(metadata["name"]), {"preconditions": {"uid": metadata["uid"]}})
        await revoke_tokens(kube, input.machine, input.attempts)
        for name in input.classes:
            await forget_user(self.deps.client, ClassId(cluster=input.machine.cluster, name=name), input.machine.name)
        return ForgetOutput(left=left)

    @activity.defn
    async def remove_stale_node(self, input: StaleNodeInput) -> StaleNodeOutput:
        """Removes a Node at an address that the cloud has given to another VM, and whose own VM the cloud says does not
        exist.

        It goes only if its kubelet has been silent for long too, and only as it was read: one that is written to
        meanwhile is alive.
        """
        kube = await self.deps.clusters.get(input.machine.cluster)
        stale = input.node
        node = await kube.find(node_path(stale.name))
        if node is None or node["metadata"]["uid"] != stale.uid:
            return StaleNodeOutput(removed=True, message="it was already gone")
        if not is_of(node, stale.provider_id):
            return StaleNodeOutput(message=f"its providerID is {provider_id_of(node) or 'not set'}")
        if why := alive(node, await lease_renewed(kube, stale.name), ServerClock().now(), input.silent_for):
            return StaleNodeOutput(message=why)
        await _detach(kube, [node])
        seen = {"uid": stale.uid, "resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            await kube.delete(node_path(stale.name), {"preconditions": seen})
        except KubeError as e:
            if e.status != 409:
                raise
            return StaleNodeOutput(message=f"somebody has just changed node {stale.name}")
        return StaleNodeOutput(removed=True)


def ready_patch(node: Object) -> Object:
    """The merge patch that takes the ready taint off; empty when it is already off."""
    taints = (node.get("spec") or {}).get("taints") or []
    rest = [t for t in taints if t.get("key") != INSTANCE_NOT_READY_TAINT]
    version = {"resourceVersion": node["metadata"]["resourceVersion"]}
    return {"metadata": version, "spec": {"taints": rest}} if len(rest) < len(taints) else {}


async def _detach(kube: Kube, nodes: list[dict[str, Any]]) -> None:
    """Removes the VolumeAttachments of the Nodes. Their VM is gone: a pod elsewhere would wait 6 minutes for a volume
    that is said to be attached here."""
    try:
        if nodes:
            await detach(kube, await read_attachments(kube, nodes))
    except KubeError as e:
        if e.status != 403:
            raise
        names = ", ".join(n["metadata"]["name"] for n in nodes)
        activity.logger.warning("volumes of node %s not detached: %s", names, e.message)


async def _nodes_of(kube: Kube, input: ForgetInput) -> tuple[list[dict[str, Any]], list[str]]:
    """The Nodes of the machine's VMs, all of which are gone: Nodes with a name that one of them had, or with the
    machine's label, and any other of a VM that the watch may never have heard of or that never joined. And what stays,
    in words.

    A Node is a VM's by its providerID; without one it is the machine's only if it is the very object that joined.
    """
    vms = {provider_key(p) for p in (input.provider_id, *input.vms) if p}
    ours = vms | set(map(provider_key, input.former))
    found, left = dict[str, dict[str, Any]](), list[str]()
    names = dict.fromkeys(n for n in (input.node_name, *input.vms.values()) if n)
    near = [n for n in [await kube.find(node_path(name)) for name in names] if n is not None]
    for node in near + await labelled(kube, input.machine.name):
        metadata, provider_id = node["metadata"], provider_id_of(node)
        has_label = (metadata.get("labels") or {}).get(MACHINE_NAME_LABEL) == input.machine.name
        if provider_key(provider_id) in ours or (not provider_id and metadata["uid"] == input.node_uid):
            found[metadata["name"]] = node
        elif not provider_id:
            left.append(
                f"node {metadata['name']}: it has no providerID, so it is not known whether it belonged to this VM"
            )
        elif has_label:
            theirs = provider_id if len(provider_id) <= 100 else f"{provider_id[:99]}…"
            words = f"it has this machine's label but the providerID {theirs}, which is not known to have been its VM"
            left.append(f"node {metadata['name']}: {words}")
    unseen = vms - {provider_key(provider_id_of(n)) for n in found.values()}
    if input.node_uid and input.provider_id:  # it joined, so the watch knows its VM, and labels each Node of it
        unseen.discard(provider_key(input.provider_id))
    for node in await nodes_of(kube, unseen):
        found[node["metadata"]["name"]] = node
    left = list(dict.fromkeys(left))
    more = [f"{len(left) - LEFT_NAMED} more Nodes with this machine's label"] if len(left) > LEFT_NAMED else []
    return list(found.values()), left[:LEFT_NAMED] + more
