"""What a MachineConfigPool does to its Nodes and to its own status: annotations, a taint, counts.

Everything is a comparison with what is there and a write that fails where that has changed since, so that a repetition
after a lost answer, or one that comes late, does nothing.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from functools import partial

from temporalio import activity

from activities.base import Activities
from activities.batch import each
from activities.boundary import progress
from activities.clock import ServerClock
from activities.kube.client import KubeError, Object, node_path, segment
from activities.kube.events import tell_of
from activities.kube.looks import NODES, PAGE, pages
from activities.kube.rewrite import rewrite, rewrite_at
from planners.machine_config.membership import label_keys
from planners.machine_config.objects import with_conditions
from planners.machine_config.view import strays_of, tainted_of, view_of
from resources.calls.machine_config import (
    NodeRef,
    PoolStatusInput,
    PoolStatusOutput,
    ReadPoolInput,
    ReadStraysInput,
    TaintedNodes,
    TaintInput,
    TargetInput,
    TargetNode,
    TargetOutput,
)
from resources.machine_config.keys import (
    API,
    DIALECTS,
    HISTORIC_DESIRED,
    MACHINE_CONFIG_POOL,
    UPDATE_TAINT,
    Dialect,
)
from resources.machine_config.node import ConfigNode, config_node, dialect_of
from resources.machine_config.objects import ConfigError, MachineConfigPool
from resources.machine_config.view import ConfigPoolView, StrayNodes

TAINT = {"key": UPDATE_TAINT, "effect": "PreferNoSchedule"}
TYPE = {"apiVersion": API, "kind": MACHINE_CONFIG_POOL.kind}
POOLS = f"/apis/{API}/{MACHINE_CONFIG_POOL.plural}"


class TooLate(Exception):
    """The Node is to have a third config by now."""


class ConfigNodeActivities(Activities):
    role = "cluster"

    @activity.defn
    async def read_config_pool(self, input: ReadPoolInput) -> ConfigPoolView:
        """Reads the pools and every Node afresh, and answers with what concerns this pool."""
        pools, nodes, version = await self._look(input.cluster)
        number = int(version) if version.isdecimal() else 0
        return view_of(input.pool, pools, nodes, input.keep, input.machines, number)

    @activity.defn
    async def read_stray_nodes(self, input: ReadStraysInput) -> StrayNodes:
        """Reads the pools and every Node afresh, and answers with those of no pool that ask for a drain."""
        pools, nodes, _ = await self._look(input.cluster)
        return strays_of(pools, nodes, input.machines)

    @activity.defn
    async def read_tainted_nodes(self, input: ReadPoolInput) -> TaintedNodes:
        """Reads afresh which Nodes a pool that ends leaves tainted; also when the pool is gone already."""
        pools, nodes, _ = await self._look(input.cluster)
        found = tainted_of(input.pool, pools, nodes, input.machines)
        return TaintedNodes(nodes=[NodeRef(name=n.name, uid=n.uid) for n in found][:20_000])

    async def _look(self, cluster: str) -> tuple[list[MachineConfigPool], list[ConfigNode], str]:
        """Every pool, every Node, and the version of the Nodes' list."""
        kube = await self.deps.clusters.get(cluster)
        pools = readable((await kube.get(POOLS))["items"])
        keys, preferred = label_keys(pools), self._keys(cluster)
        nodes: list[ConfigNode] = []
        version = ""
        async for page in pages(kube, NODES, PAGE):
            version = page["metadata"]["resourceVersion"]
            nodes += [config_node(node, preferred, keys) for node in page["items"]]
            progress(f"{len(nodes)} Nodes read")
        return pools, nodes, version

    def _keys(self, cluster: str) -> Dialect:
        """The keys of Nodes whose daemons have said nothing yet."""
        return DIALECTS[self.deps.machine_configs(cluster).annotations]

    @activity.defn
    async def target_config_nodes(self, input: TargetInput) -> TargetOutput:
        """Writes on Nodes which config they are to have. A Node that cannot be written keeps none of the others from
        it."""
        kube = await self.deps.clusters.get(input.cluster)
        preferred = self._keys(input.cluster)

        async def one(wanted: TargetNode) -> str | None:
            """None: it is gone. "": it is to have the config. Otherwise why it was not written."""
            node = await kube.find(node_path(wanted.name))
            if node is None or node["metadata"]["uid"] != wanted.uid:
                return None
            try:
                await rewrite(kube, node, partial(target_patch, wanted=wanted, config=input.config, keys=preferred))
            except TooLate as e:
                return str(e)
            except KubeError as e:
                if e.status == 404:
                    return None
                if e.silent or e.refused:  # it is not about this Node
                    raise
                return e.message
            return ""

        answers = await each(input.nodes, one, lambda n: f"{n} of {len(input.nodes)} Nodes are to have {input.config}")
        said = {node.name: answer for node, answer in zip(input.nodes, answers, strict=True)}
        return TargetOutput(
            targeted=[name for name, answer in said.items() if answer == ""],
            gone=[name for name, answer in said.items() if answer is None],
            refused={name: answer for name, answer in said.items() if answer},
        )

    @activity.defn
    async def set_update_taints(self, input: TaintInput) -> None:
        """Taints Nodes that are still to change, so that evicted pods go to those that have changed, and takes the
        taint off. A Node that is gone needs neither."""
        self.deps.machine_configs(input.cluster)
        kube = await self.deps.clusters.get(input.cluster)

        async def one(what: tuple[NodeRef, bool]) -> None:
            ref, on = what
            node = await kube.find(node_path(ref.name))
            if node is None or node["metadata"]["uid"] != ref.uid:
                return
            try:
                await rewrite(kube, node, lambda found: taint_patch(found, on=on))
            except KubeError as e:
                if e.status != 404:
                    raise

        todo = [*((ref, True) for ref in input.on), *((ref, False) for ref in input.off)]
        await each(todo, one, lambda n: f"{n} of {len(todo)} Nodes done")

    @activity.defn
    async def write_pool_status(self, input: PoolStatusInput) -> PoolStatusOutput:
        """Writes what the pool's workflow knows into the status; an equal status is not written."""
        self.deps.machine_configs(input.cluster)
        kube = await self.deps.clusters.get(input.cluster)
        path = f"{POOLS}/{segment(input.pool)}"
        found = await kube.find(path)
        if found is None or found["metadata"]["uid"] != input.uid:
            return PoolStatusOutput(gone=True)
        patch_of = partial(status_patch, wanted=input.status, now=ServerClock().now())
        try:
            after = await rewrite_at(kube, path, found, patch_of, "/status")
        except KubeError as e:
            if e.status != 404:
                raise
            return PoolStatusOutput(gone=True)
        await tell_of(kube, {**TYPE, **found}, input.uid, input.story)
        return PoolStatusOutput(written=after["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"])


def readable(found: list[Object]) -> list[MachineConfigPool]:
    """The pools. One that somebody wrote before the kind had its schema, and that makes no sense, is nobody's; that is
    said where it is rendered."""
    pools = []
    for pool in found:
        with contextlib.suppress(ConfigError):
            pools.append(MachineConfigPool.of_dict(pool))
    return pools


def target_patch(node: Object, wanted: TargetNode, config: str, keys: Dialect) -> Object:
    """The merge patch; empty where the Node is to have the config already. It carries the resourceVersion: an attempt
    that was given up may still be on its way when its Node has got another config. Raises TooLate."""
    metadata = node["metadata"]
    annotations = metadata.get("annotations") or {}
    key = dialect_of(annotations, keys).desired
    desired = annotations.get(key) or annotations.get(HISTORIC_DESIRED, "")
    if annotations.get(key) == config:
        return {}
    if desired not in (wanted.was, config):
        raise TooLate(f"it is to have {desired or 'no config'} by now, and not {wanted.was or 'none'}")
    return {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {key: config}}}


def taint_patch(node: Object, *, on: bool) -> Object:
    """The merge patch; empty when the Node is as it should be. The list of taints is atomic."""
    taints = (node.get("spec") or {}).get("taints") or []
    rest = [t for t in taints if any(t.get(k) != v for k, v in TAINT.items())]
    if on == (len(rest) < len(taints)):
        return {}
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": [*taints, TAINT] if on else rest}}


def status_patch(pool: Object, wanted: Object, now: datetime) -> Object:
    """The merge patch of the status; empty where nothing differs. The list of conditions is atomic: others' stay as
    they are, and a condition has been so since its status changed, not since it was written."""
    there = pool.get("status") or {}
    patch = {k: v for k, v in wanted.items() if k != "conditions" and there.get(k) != v}
    conditions = with_conditions(pool, wanted.get("conditions") or [], now)
    if conditions != (there.get("conditions") or []):
        patch["conditions"] = conditions
    if not patch:
        return {}
    return {"metadata": {"resourceVersion": pool["metadata"]["resourceVersion"]}, "status": patch}
