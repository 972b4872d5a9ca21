"""The simulator's machine-config daemons: they come where a Node is in a pool, and obey the protocol of annotations."""

from __future__ import annotations

from configkit import config, config_pool
from simulator_support import eventually, served_cluster

from resources.machine_config.keys import DIALECTS, SEED
from simulator.client import Obj
from simulator.controllers import Controllers
from simulator.controllers.config_daemons import FIRST


async def test_a_daemon_comes_with_the_pool_and_does_what_its_node_is_given() -> None:
    async with served_cluster() as cluster:
        client = cluster.client
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        for name, labels in (("w", {"node-role.kubernetes.io/worker": ""}), ("x", {})):
            meta = {"name": name, "labels": labels}
            await client.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": ready})
        controllers = Controllers(cluster.kubeconfig, grace=60, resync=1.0, config_daemons=0.05)
        await controllers.start()
        try:
            for name in ("new", "50-a"):  # the kinds are served soon after the start
                await eventually(lambda: client.list("machineconfigs"), what="the kinds are served")
                await client.create("machineconfigs", config(name))
            await client.create("machineconfigpools", config_pool("worker"))

            async def node(name: str = "w") -> Obj:
                found: Obj = (await cluster.node(name))["metadata"].get("annotations") or {}
                return found

            async def give(**annotations: str | None) -> None:
                named = {getattr(SEED, key): value for key, value in annotations.items()}
                await client.patch("nodes", "w", {"metadata": {"annotations": named}})

            async def says(**wanted: str) -> None:
                await eventually(
                    node, lambda a: all(a.get(getattr(SEED, k)) == v for k, v in wanted.items()), f"{wanted}"
                )

            await says(current=FIRST, desired=FIRST, state="done")
            await give(desired="new")
            await says(current=FIRST, state="working", desired_drain="drain-new")
            await give(last_drain="drain-new")
            await says(current="new", state="working", desired_drain="uncordon-new")
            await give(last_drain="uncordon-new")
            await says(current="new", state="done")
            # One that is not there, and the way back.
            await give(desired="lost", last_drain="drain-lost")
            await says(current="new", state="degraded")
            assert "MachineConfig lost cannot be read" in (await node())[SEED.reason]
            await give(desired="new", last_drain="uncordon-new")
            await says(current="new", state="done")
            assert SEED.reason not in await node()
            assert not {key for dialect in DIALECTS.values() for key in dialect.all} & (await node("x")).keys()
        finally:
            await controllers.stop()
