"""Whole lives of machine configs: a worker with all that it does, Temporal, an API server, and daemons on Nodes that no
kubelet stands behind."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from apiserver.simulated import NODES, KubeTarget, Obj
from lifekit import asked, end_running_of, eventually
from temporalio.client import Client

import worker
from machine_configs.daemon import Daemons, daemons, nodes
from machine_configs.kinds import create, examples, install_kinds, path
from resources.machine_config.keys import CONTROLLER_CONFIG, MACHINE_CONFIG_POOL, SEED, Dialect
from resources.machine_config.state import ConfigRolloutResult, MachineConfigPoolState, MachineConfigsState
from resources.names import config_pool_id, config_rollout_id, machine_configs_id
from resources.settings import Settings, load_settings
from resources.timings import Timings
from workflows.machine_config import ConfigRolloutWorkflow, MachineConfigPoolWorkflow, MachineConfigsWorkflow

FIRST = "rendered-worker-installed"
"""The config that Nodes have been installed with."""


@dataclass
class ConfigLife:
    client: Client
    kube: KubeTarget
    settings: Settings
    settings_file: Path
    daemons: Daemons
    keys: Dialect = SEED
    made: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> str:
        return self.settings.default_cluster

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with worker.running(self.client, self.settings):
            yield

    # -- the cluster

    async def prepare(self, *pools: Obj, **nodes_of: int) -> None:
        """The kinds, the ControllerConfig of the examples, pools, and as many Nodes of each pool as are wanted, Ready
        and with a daemon that has reported."""
        await install_kinds(self.kube)
        await create(self.kube, *(o for o in examples() if o["kind"] == CONTROLLER_CONFIG.kind), *pools)
        for pool, count in nodes_of.items():
            await self.join(*(f"{pool}-{n}" for n in range(1, count + 1)), pool=pool)

    async def join(self, *names: str, pool: str = "worker") -> None:
        await nodes(self.kube, names, pool)
        self.made += names

    async def leave(self, name: str) -> None:
        await self.kube.delete(f"{NODES}/{name}")

    async def dns(self, address: str) -> None:
        """Changes what the templates are filled in with, and so the kubelets' config."""
        await self.kube.patch(path(CONTROLLER_CONFIG, "machine-config-controller"), {"spec": {"clusterDNSIP": address}})

    async def pool(self, name: str = "worker") -> Obj:
        found: Obj = await self.kube.get(path(MACHINE_CONFIG_POOL, name))
        return found

    async def change_pool(self, name: str = "worker", **spec: Any) -> None:
        await self.kube.patch(path(MACHINE_CONFIG_POOL, name), {"spec": spec})

    async def target(self, name: str = "worker", other_than: str = "") -> str:
        """What the pool's Nodes are to have, once it is not what is given here."""

        async def look() -> str:
            return str((await self.pool(name))["spec"].get("configuration", {}).get("name", ""))

        return await eventually(look, lambda t: t not in ("", other_than), f"another target than {other_than}", 180)

    async def seen(self) -> dict[str, tuple[str, str]]:
        """The current config and the state of each Node."""
        found = (await self.kube.get(NODES))["items"]
        return {
            n["metadata"]["name"]: (a.get(self.keys.current, ""), a.get(self.keys.state, ""))
            for n in found
            for a in [n["metadata"].get("annotations") or {}]
        }

    async def all_have(self, config: str, *but: str, within: float = 120.0) -> None:
        """Waits until every Node but these has finished with the config."""

        def finished(seen: Mapping[str, tuple[str, str]]) -> bool:
            return all(s == (config, "done") for name, s in seen.items() if name not in but)

        await eventually(self.seen, finished, f"all have {config}", within)

    async def conditions(self, name: str = "worker") -> dict[str, str]:
        """Status by type of condition."""
        found = (await self.pool(name)).get("status", {}).get("conditions", [])
        return {c["type"]: c["status"] for c in found}

    async def updated(self, config: str, name: str = "worker") -> Obj:
        """The pool's status once it says that all have this config."""

        async def look() -> Obj:
            found: Obj = (await self.pool(name)).get("status", {})
            return found

        def says(status: Obj) -> bool:
            conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
            return conditions.get("Updated") == "True" and status["configuration"]["name"] == config

        return await eventually(look, says, f"{name} updated", 180)

    # -- the workflows

    async def configs(self) -> MachineConfigsState:
        handle = self.client.get_workflow_handle(machine_configs_id(self.cluster))
        return await asked(handle, MachineConfigsWorkflow.describe)

    async def pool_state(self, name: str = "worker") -> MachineConfigPoolState:
        handle = self.client.get_workflow_handle(config_pool_id(self.cluster, name))
        return await asked(handle, MachineConfigPoolWorkflow.describe)

    async def rollout(self, config: str, name: str = "worker") -> ConfigRolloutResult:
        id = config_rollout_id(self.cluster, name, config)
        return await self.client.get_workflow_handle_for(ConfigRolloutWorkflow.run, id).result()

    async def waits(self, reason: str, name: str = "worker") -> str:
        """The words of a pool that waits for this reason."""

        def of(state: MachineConfigPoolState) -> list[str]:
            return [w.message for w in state.waits if w.reason == reason]

        state = await eventually(lambda: self.pool_state(name), of, f"{name} waits: {reason}")
        return of(state)[0]


@contextlib.asynccontextmanager
async def config_life(
    client: Client, kube: KubeTarget, keys: Dialect = SEED, **fields: Any
) -> AsyncIterator[ConfigLife]:
    """`fields`: of the settings' machineConfigs. The worker is the test's to run."""
    name = f"c{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "kubeconfig").write_text(kube.kubeconfig())
        given = {"enabled": True, "renderDelay": "200ms", "annotations": str(keys.name), **fields}
        content = {
            "queuePrefix": name,
            "defaultCluster": name,
            "clusters": {name: {"kubeconfig": "kubeconfig", "machineConfigs": given}},
            "worker": {
                "roles": ["workflows", "cluster", "watch", "drain"],
                "health": None,
                "metrics": None,
                "census": None,
                "gracefulShutdown": "100ms",
                "stickyTimeout": "1s",
            },
            "timings": Timings.fast().model_dump(by_alias=True, mode="json"),
        }
        (root / "settings.yaml").write_text(yaml.safe_dump(content))
        async with daemons(kube, FIRST, keys) as running:
            life = ConfigLife(
                client, kube, load_settings(root / "settings.yaml"), root / "settings.yaml", running, keys
            )
            try:
                yield life
            finally:
                await end_running_of(client, name)
