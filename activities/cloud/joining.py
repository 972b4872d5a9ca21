"""Why a VM's Node has not joined, as far as the API server knows: its bootstrap token, and who holds its name."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.kube.client import ApiServers, Kube, KubeError, node_path
from activities.kube.looks import labelled_node
from activities.kube.tokens import keep_token
from activities.kube.whose import is_of, provider_id_of, ready_status
from resources.calls.cloud import StatusInput, VmLookInput
from resources.settings import SettingsError

PATIENCE = 10.0
"""Seconds for all reads: a look at the VM must not be lost because the API server hangs."""
EXPIRED = "its bootstrap token expired at the creation deadline"
NO_TOKEN = "somebody removed its bootstrap token: the VM can no longer join; delete or recreate the machine"


async def why_not_joined(clusters: ApiServers, input: StatusInput | VmLookInput, provider_id: str) -> str:
    """The reason in words; never an error: the worker of a cloud may lack the right, and it is the VM that is looked
    at."""
    machine = input.target.machine
    try:
        async with asyncio.timeout(PATIENCE):
            kube = await clusters.get(machine.cluster)
            # The token first: it is revoked after the Node has joined, so one that is gone has its Node.
            no_token = await _no_token(kube, input)
            return await _words(kube, machine.name, input.node_name, provider_id, no_token)
    except (KubeError, SettingsError) as e:
        return f"whether its node has joined cannot be read: {e}"
    except TimeoutError:
        return f"whether its node has joined cannot be read: the API server of {machine.cluster} does not answer"


async def _no_token(kube: Kube, input: StatusInput | VmLookInput) -> str:
    """Why there is no token; "" when there is one, which is prolonged where it would end before the machine's deadline.

    What cannot be read is taken to be there. After the deadline a token has expired, and the token cleaner takes it.
    """
    if input.deadline is None or input.attempt is None:
        return ""
    try:
        if await keep_token(kube, input.target.machine, input.attempt, input.deadline):
            return ""
    except KubeError as e:
        if e.status != 403:
            raise
        return ""
    return NO_TOKEN if activity.info().started_time < input.deadline else EXPIRED


async def _words(kube: Kube, machine: str, node_name: str | None, provider_id: str, no_token: str) -> str:
    node = await kube.find(node_path(node_name)) if node_name else None
    if node is not None and is_of(node, provider_id):
        return f"its node {node_name} has joined, its condition Ready is {ready_status(node) or 'not set'}"
    if no_token and (other := await _other_name(kube, machine, provider_id)):
        return f"its node has joined as {other}"
    words = [no_token] if no_token else []
    if node is None:
        words += [] if no_token else ["its node has not joined yet"]
    elif theirs := provider_id_of(node):
        words.append(f"node {node_name} exists, but its providerID is {theirs}: it belongs to another VM")
    else:
        words.append(
            f"node {node_name} exists but has no providerID: waiting for the cloud-controller-manager (or kubelet "
            "--provider-id)"
        )
    return "; ".join(words)


async def _other_name(kube: Kube, machine: str, provider_id: str) -> str | None:
    """Why another Node's name is in the way. It needs a list, so it runs only where needed and allowed: creating needs
    no more than `get`."""
    try:
        node = await labelled_node(kube, machine, provider_id)
    except KubeError as e:
        if e.status != 403:
            raise
        return None
    return node["metadata"]["name"] if node else None
