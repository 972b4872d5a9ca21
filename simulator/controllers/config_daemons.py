"""A machine-config daemon on each Node that a MachineConfigPool may have, so that a rollout can be watched on a laptop.

It obeys the protocol of annotations (docs/machine-configs.md) as OpenShift's daemon does, and writes nothing anywhere:
applying a config only takes its time. Nodes of no pool have no daemon. What goes wrong with it, knobs say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from resources.machine_config.crds import definitions
from resources.machine_config.keys import DRAIN_VERB, MACHINE_CONFIG, SEED, UNCORDON_VERB
from resources.names import MACHINE_NAME_LABEL
from resources.selectors import LabelSelector
from simulator.client import CallError, KubeClient, Obj
from simulator.controllers.informer import RETRY, Controller, Informer
from simulator.controllers.objects import is_deleting, is_true, labels_of
from simulator.kubelet.knobs import Knobs

DEFINITIONS = "customresourcedefinitions"
FIRST = "as-installed"
"""The config that a Node says it has when its daemon comes: nobody has rendered it."""
FAILS = "the knob config_fails is set"
_REASON_MOST = 2000


def _usual(_: str) -> Knobs:
    return Knobs()


def _no_reboot(_: str, on: bool) -> None:
    pass


@dataclass(frozen=True)
class DaemonSettings:
    """How daemons behave, and what they do to their machines, which are known by their providerIDs."""

    takes: float
    """The seconds that a daemon takes to apply a config."""
    knobs: Callable[[str], Knobs] = _usual
    reboot: Callable[[str, bool], None] = _no_reboot
    """Makes a Node not Ready, and Ready again."""


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

    def __init__(
        self, client: KubeClient, nodes: Informer, pools: Informer, *, settings: DaemonSettings, resync: float
    ) -> None:
        super().__init__(client, (nodes, pools), resync)
        self._nodes = nodes
        self._pools = pools
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self._ends: dict[tuple[str, str], float] = {}
        """When a Node, by its uid, will have applied a config."""

    async def sync(self) -> float | None:
        for node in self._nodes:
            if not is_deleting(node) and self._lives(node) and self._has_pool(node):
                await self._step(node, self._settings.knobs(_provider_id(node)))
        there = self._nodes.uids()
        self._ends = {key: at for key, at in self._ends.items() if key[0] in there}
        return min((at - self._clock() for at in self._ends.values()), default=None)

    def _lives(self, node: Obj) -> bool:
        """Whether the Node has a daemon that does something; one that reboots does."""
        return is_true(node, "Ready") or any(uid == node["metadata"]["uid"] for uid, _ in self._ends)

    def _has_pool(self, node: Obj) -> bool:
        return any(_may_have(pool, labels_of(node)) for pool in self._pools)

    async def _step(self, node: Obj, knobs: Knobs) -> None:
        """The next thing that its daemon does; nothing while it waits for Hostler, or for the time to pass."""
        if knobs.config_silent:
            return
        has = node["metadata"].get("annotations") or {}
        current, desired, state = (has.get(key, "") for key in (SEED.current, SEED.desired, SEED.state))
        self._forget_others(node, desired)
        if not current:
            await self._write(node, {SEED.current: FIRST, SEED.desired: FIRST, SEED.state: "done"})
        elif current == desired or not desired:
            if state != "done" and await self._has_got(node, f"{UNCORDON_VERB}-{current}"):
                await self._write(node, {SEED.state: "done", SEED.reason: None})
        elif state == "degraded" and has.get(SEED.desired_drain) == f"{DRAIN_VERB}-{desired}":
            if has.get(SEED.reason) == FAILS and not knobs.config_fails:
                await self._write(node, {SEED.state: "working", SEED.reason: None})
            # else it waits until it is to have another one
        elif state != "working":
            await self._write(node, {SEED.state: "working", SEED.reason: None})
        elif await self._has_got(node, f"{DRAIN_VERB}-{desired}"):
            await self._apply(node, desired, knobs)

    def _forget_others(self, node: Obj, config: str) -> None:
        """What a Node was to have before is not applied any longer."""
        for key in [key for key in self._ends if key[0] == node["metadata"]["uid"] and key[1] != config]:
            del self._ends[key]
            self._settings.reboot(_provider_id(node), False)

    async def _has_got(self, node: Obj, wish: str) -> bool:
        """Whether Hostler has done what is asked for; it is asked where it was not."""
        has = node["metadata"].get("annotations") or {}
        if has.get(SEED.desired_drain) != wish:
            await self._write(node, {SEED.desired_drain: wish})
            return False
        return has.get(SEED.last_drain) == wish

    async def _apply(self, node: Obj, config: str, knobs: Knobs) -> None:
        key = (node["metadata"]["uid"], config)
        if key not in self._ends:
            if knobs.config_fails:
                await self._write(node, {SEED.state: "degraded", SEED.reason: FAILS})
                return
            if not await self._reads(node, config):
                return
            self._ends[key] = self._clock() + self._settings.takes + knobs.config_delay
            if knobs.config_reboots:
                self._settings.reboot(_provider_id(node), True)
        if self._clock() >= self._ends[key]:
            del self._ends[key]
            self._settings.reboot(_provider_id(node), False)
            await self._write(node, {SEED.current: config})

    async def _reads(self, node: Obj, config: str) -> bool:
        """Whether it has read what it is to apply. One that is not there makes it degraded."""
        try:
            await self.client.get(MACHINE_CONFIG.plural, config)
        except CallError as e:
            if e.not_found:
                why = f"MachineConfig {config} cannot be read: {e.message}"[:_REASON_MOST]
                await self._write(node, {SEED.state: "degraded", SEED.reason: why})
            else:
                self._failed = True
            return False
        return True

    async def _write(self, node: Obj, annotations: dict[str, str | None]) -> None:
        patch = {"metadata": {"annotations": annotations}}
        written = await self.attempt(self.client.patch("nodes", node["metadata"]["name"], patch))
        if written is not None:
            self._nodes.remember(written)


def _provider_id(node: Obj) -> str:
    return str((node.get("spec") or {}).get("providerID") or "")


def _may_have(pool: Obj, labels: dict[str, str]) -> bool:
    """Whether a pool selects a Node with these labels, or may select its machine."""
    spec = pool.get("spec") or {}
    if spec.get("nodeSelector"):
        try:
            return LabelSelector.model_validate(spec["nodeSelector"]).matches(labels)
        except ValueError:
            return False
    return bool(spec.get("machineSelector") or spec.get("machineSetRef")) and MACHINE_NAME_LABEL in labels
