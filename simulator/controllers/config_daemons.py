"""A machine-config daemon on each Node that a MachineConfigPool may have, so that a rollout can be watched on a laptop.

It obeys the protocol of annotations (docs/machine-configs.md) as OpenShift's daemon does, and writes nothing anywhere:
applying a config only takes its time. Nodes of no pool have no daemon. It does not reboot its Node.
"""

from __future__ import annotations

import asyncio

from resources.machine_config.crds import definitions
from resources.machine_config.keys import DRAIN_VERB, MACHINE_CONFIG, SEED, UNCORDON_VERB
from resources.names import MACHINE_NAME_LABEL
from resources.selectors import LabelSelector
from simulator.client import CallError, KubeClient, Obj
from simulator.controllers.informer import RETRY, Controller, Informer
from simulator.controllers.objects import is_deleting, is_true, labels_of

DEFINITIONS = "customresourcedefinitions"
FIRST = "as-installed"
"""The config that a Node says it has when its daemon comes: nobody has rendered it."""
_REASON_MOST = 2000


async def serve_kinds(client: KubeClient) -> None:
    """Does what `kubectl apply -f deploy/crds` does, with retries while the API server cannot be reached."""
    for definition in definitions():
        while True:
            try:
                await _serve(client, definition)
                break
            except CallError:
                await asyncio.sleep(RETRY)


async def _serve(client: KubeClient, definition: Obj) -> None:
    try:
        await client.create(DEFINITIONS, definition)
    except CallError as e:
        if not e.conflict:
            raise
        await client.patch(DEFINITIONS, definition["metadata"]["name"], {"spec": definition["spec"]})


class ConfigDaemons(Controller):
    """All of them. What each has done is in its Node's annotations; only the time that a config takes is remembered."""

    def __init__(self, client: KubeClient, nodes: Informer, pools: Informer, *, takes: float, resync: float) -> None:
        super().__init__(client, (nodes, pools), resync)
        self._nodes = nodes
        self._pools = pools
        self._takes = takes
        self._clock = asyncio.get_running_loop().time
        self._began: dict[tuple[str, str], float] = {}
        """When a Node, by its uid, began to apply a config."""

    async def sync(self) -> float | None:
        for node in self._nodes:
            if not is_deleting(node) and is_true(node, "Ready") and self._has_pool(node):
                await self._step(node)
        there = self._nodes.uids()
        self._began = {key: at for key, at in self._began.items() if key[0] in there}
        return min((at + self._takes - self._clock() for at in self._began.values()), default=None)

    def _has_pool(self, node: Obj) -> bool:
        return any(_may_have(pool, labels_of(node)) for pool in self._pools)

    async def _step(self, node: Obj) -> None:
        """The next thing that its daemon does; nothing while it waits for Hostler, or for the time to pass."""
        has = node["metadata"].get("annotations") or {}
        current, desired, state = (has.get(key, "") for key in (SEED.current, SEED.desired, SEED.state))
        if not current:
            await self._write(node, {SEED.current: FIRST, SEED.desired: FIRST, SEED.state: "done"})
        elif current == desired or not desired:
            if state != "done" and await self._has_got(node, f"{UNCORDON_VERB}-{current}"):
                await self._write(node, {SEED.state: "done", SEED.reason: None})
        elif state == "degraded" and has.get(SEED.desired_drain) == f"{DRAIN_VERB}-{desired}":
            return  # until it is to have another one
        elif state != "working":
            await self._write(node, {SEED.state: "working", SEED.reason: None})
        elif await self._has_got(node, f"{DRAIN_VERB}-{desired}"):
            await self._apply(node, desired)

    async def _has_got(self, node: Obj, wish: str) -> bool:
        """Whether Hostler has done what is asked for; it is asked where it was not."""
        has = node["metadata"].get("annotations") or {}
        if has.get(SEED.desired_drain) != wish:
            await self._write(node, {SEED.desired_drain: wish})
            return False
        return has.get(SEED.last_drain) == wish

    async def _apply(self, node: Obj, config: str) -> None:
        key = (node["metadata"]["uid"], config)
        if key not in self._began:
            try:
                await self.client.get(MACHINE_CONFIG.plural, config)
            except CallError as e:
                if e.not_found:
                    why = f"MachineConfig {config} cannot be read: {e.message}"[:_REASON_MOST]
                    await self._write(node, {SEED.state: "degraded", SEED.reason: why})
                else:
                    self._failed = True
                return
            self._began[key] = self._clock()
        if self._clock() >= self._began[key] + self._takes:
            del self._began[key]
            await self._write(node, {SEED.current: config})

    async def _write(self, node: Obj, annotations: dict[str, str | None]) -> None:
        patch = {"metadata": {"annotations": annotations}}
        written = await self.attempt(self.client.patch("nodes", node["metadata"]["name"], patch))
        if written is not None:
            self._nodes.remember(written)


def _may_have(pool: Obj, labels: dict[str, str]) -> bool:
    """Whether a pool selects a Node with these labels, or may select its machine."""
    spec = pool.get("spec") or {}
    if spec.get("nodeSelector"):
        try:
            return LabelSelector.model_validate(spec["nodeSelector"]).matches(labels)
        except ValueError:
            return False
    return bool(spec.get("machineSelector") or spec.get("machineSetRef")) and MACHINE_NAME_LABEL in labels
