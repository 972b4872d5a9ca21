"""Machines and their configs in one cluster: real VMs with kubelets, a reference daemon on each Node, and a count of
the Nodes in service after every event of the API server's log."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from apiserver.simulated import KubeTarget, Obj
from lifekit import Stack, new_stack, tenant
from temporalio.client import Client

from machine_configs.daemon import DONE, Moment, daemons
from machine_configs.kinds import create, examples, install_kinds
from machine_configs.life import FIRST, ConfigLife
from resources.machine_config.keys import CONTROLLER_CONFIG, SEED
from resources.names import INSTANCE_NOT_READY_TAINT, MACHINE_NAME_LABEL
from simulator.kube.resources import NODES
from simulator.kube.selectors import Selector


@contextlib.asynccontextmanager
async def lent_life(client: Client, *pools: Obj) -> AsyncIterator[tuple[Stack, ConfigLife]]:
    """A stack with a worker, the kinds of machine configs and these pools."""
    settings = {"machineConfigs": {"enabled": True, "renderDelay": "200ms", "annotations": str(SEED.name)}}
    cluster = f"c{uuid.uuid4().hex[:8]}"
    async with (
        new_stack(client) as alone,
        tenant(alone, cluster, **settings) as stack,
        reached(stack) as kube,
        daemons(kube, FIRST) as running,
    ):
        running.usual.reboots = 0.1
        life = ConfigLife(client, kube, stack.settings, stack.settings_file, running)
        await install_kinds(kube)
        await create(kube, *(o for o in examples() if o["kind"] == CONTROLLER_CONFIG.kind), *pools)
        async with stack.worker():
            yield stack, life


@contextlib.asynccontextmanager
async def reached(stack: Stack) -> AsyncIterator[KubeTarget]:
    """The stack's API server."""
    config = yaml.safe_load(stack.kubeconfig.read_text())
    authority = stack.kubeconfig.parent / "authority.pem"
    api = stack.simulator.simulator.kube
    assert api is not None
    authority.write_text(api.ca_pem)
    target = KubeTarget(
        config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"], Path(authority)
    )
    try:
        yield target
    finally:
        await target.close()


@dataclass
class Attendance:
    """The Nodes of an owner's machines in service: Ready, joined, not cordoned, and with no config on its way."""

    stack: Stack
    owner: str
    """What the names of its machines begin with."""
    replicas: int
    serving: set[str] = field(default_factory=set)
    ours: list[int] = field(default_factory=list)
    """How many were out of service, with the one concerned, each time that we took one out: it was given a config,
    cordoned or drained. One that fell silent on its own is not ours, but takes a place."""
    most: int = 0
    """The most that were out of service, whoever's doing it was."""

    def __post_init__(self) -> None:
        self._log = self.stack.simulator.call(self._follow)

    def _follow(self) -> Any:
        api = self.stack.simulator.simulator.kube
        assert api is not None
        store = api._registry.store
        return store[NODES].subscribe(Selector(), store.version)

    def begin(self) -> None:
        """Forgets the counts so far: from now on all are up."""
        self.look()
        assert len(self.serving) == self.replicas, self.serving
        self.ours, self.most = [], 0

    def look(self) -> Attendance:
        """Judges what the log has had since the last look."""
        self.stack.simulator.call(self._judge)
        return self

    def _judge(self) -> None:
        while self._log.queue:
            kind, item = self._log.queue.popleft()
            metadata, spec = item.obj["metadata"], item.obj.get("spec") or {}
            if not (metadata.get("labels") or {}).get(MACHINE_NAME_LABEL, "").startswith(f"{self.owner}-"):
                continue
            now = Moment.of(item.obj, SEED)
            joining = INSTANCE_NOT_READY_TAINT in [t["key"] for t in spec.get("taints") or ()]
            changing = now.current != now.desired or now.state not in ("", DONE)
            serves = kind != "DELETED" and now.ready and not (now.unschedulable or joining or changing)
            served = item.name in self.serving
            (self.serving.add if serves else self.serving.discard)(item.name)
            out = self.replicas - len(self.serving)
            self.most = max(self.most, out)
            if served and not serves and now.ready:
                self.ours.append(out)
