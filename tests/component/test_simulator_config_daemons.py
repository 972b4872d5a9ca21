"""The simulator's machine-config daemons: they come where a Node is in a pool, and obey the protocol of annotations."""

from __future__ import annotations

import asyncio

from machine_configs.kinds import config, config_pool
from simulated.support import eventually, served_cluster

from resources.machine_config.keys import DIALECTS, SEED
from simulator.client import Obj
from simulator.controllers import Controllers
from simulator.controllers.config_daemons import FAILS, FIRST, DaemonSettings
from simulator.kubelet import Knobs


async def test_a_daemon_comes_with_the_pool_and_does_what_its_node_is_given() -> None:
    async with served_cluster() as cluster:
        client = cluster.client
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        for name, labels in (("w", {"node-role.kubernetes.io/worker": ""}), ("x", {})):
            meta = {"name": name, "labels": labels}
            spec = {"providerID": f"aws:///z/i-{name}"}
            whole = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": ready}
            await client.create("nodes", whole)
        knobs, reboots = Knobs(), list[tuple[str, bool]]()
        settings = DaemonSettings(0.05, lambda _: knobs, lambda id, on: reboots.append((id, on)))
        controllers = Controllers(cluster.kubeconfig, grace=60, resync=0.2, config_daemons=settings)
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
            # What knobs do: it says nothing, cannot apply what is there, and reboots its Node.
            knobs = Knobs(config_silent=True)
            await give(desired="50-a", last_drain="drain-50-a")
            await asyncio.sleep(0.5)
            await says(current="new", state="done")
            assert (await node())[SEED.desired_drain] == "uncordon-new"
            knobs = Knobs(config_fails=True)
            await says(current="new", state="degraded", reason=FAILS)
            knobs = Knobs(config_reboots=True, config_delay=0.1)
            await says(current="50-a", state="working", desired_drain="uncordon-50-a")
            assert ("aws:///z/i-w", True) in reboots
            assert reboots[-1] == ("aws:///z/i-w", False)
            assert not {key for dialect in DIALECTS.values() for key in dialect.all} & (await node("x")).keys()
        finally:
            await controllers.stop()
