"""Hooks with real parts: what stays untouched on the Node and at the cloud while they hold."""

from __future__ import annotations

import json
import uuid
from typing import Any

from lifekit import CLUSTER, Stack, eventually
from temporalio.client import WorkflowHandle

from resources.machine.hooks import HookIntent
from resources.machine.intents import DeleteIntent
from resources.machine.manifest import LifecycleHooks
from resources.machine.state import Phase

HOOKS = {
    "preDrain": [{"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}],
    "preTerminate": [{"name": "example.com/Backup", "owner": "backup-operator"}],
}


async def remove(handle: WorkflowHandle[Any, Any], name: str) -> None:
    await handle.execute_update("hook", HookIntent(id=uuid.uuid4().hex, name=name, remove=True))


def cordoned(stack: Stack, node: str) -> bool:
    return bool(json.loads(stack.kubectl("get", "node", node, "-o", "json"))["spec"].get("unschedulable"))


async def test_nothing_is_touched_while_hooks_hold(stack: Stack) -> None:
    handle = await stack.create(lifecycle_hooks=LifecycleHooks.model_validate(HOOKS))
    running = await stack.phase(Phase.RUNNING)
    node = running.status.node_name
    assert node is not None

    await handle.execute_update("delete", DeleteIntent(id="d", reason="test"))
    await stack.reason("PreDrainHook")

    async def told() -> bool:
        return "PreDrainHook" in stack.kubectl("get", "events", "-A")

    await eventually(told, what="an Event on the Node")
    assert not cordoned(stack, node)

    await remove(handle, "EtcdQuorumOperator")
    held = await stack.reason("PreTerminateHook")
    assert held.drained
    assert f"--owner backup-operator --cluster {CLUSTER}" in held.status.waiting_for.message
    assert cordoned(stack, node)
    assert stack.calls("TerminateInstances") == []
    assert set(stack.leftovers(running.uid)) == {"instances", "networkInterfaces", "volumes"}

    await remove(handle, "example.com/Backup")
    await handle.result()
    assert stack.calls("TerminateInstances") != []
    assert stack.leftovers(running.uid) == {}
