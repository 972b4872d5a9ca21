"""Pools with real machines on the simulators: what tests of their lives share."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from lifekit import DEADLINE, Stack, asked, eventually, examples, result_of
from machine.lives import knobs
from temporalio.client import WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.preservation import PreserveIntent, PreserveValue
from resources.machine.state import ClassSnapshot, MachineState
from resources.names import (
    MACHINE_NAME_LABEL,
    ROLLOUT_TAINT,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY,
    machine_id,
    pool_id,
    rollout_id,
)
from resources.pool.intents import PoolIntent, PoolSummary, ScaleIntent, UndoIntent
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.rollout import RolloutResult, RolloutState
from resources.pool.state import PoolState
from simulator.clouds import Power, Vm
from workflows.machine import MachineWorkflow
from workflows.pool import MachineDeploymentWorkflow
from workflows.pool.rollout import RolloutWorkflow

OTHER_IMAGE = "ami-0a1b2c3d4e5f60002"


def pool_spec(replicas: int, surge: int | str = 1, unavailable: int | str = 0, **more: Any) -> MachineDeploymentSpec:
    """The spec of a pool with machines of the examples' class."""
    machine = examples().machines[0].spec
    template = {
        "metadata": {"labels": {"app": "worker"}},
        "spec": {
            "class": {"name": machine.class_.name},
            "creationTimeout": "5m",
            "healthTimeout": "3s",
            "drainTimeout": "1m",
            **more.pop("machine", {}),
        },
    }
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable, **more.pop("rolling", {})}
    return MachineDeploymentSpec.model_validate(
        {"replicas": replicas, "template": template, "strategy": {"rollingUpdate": rolling}, **more}
    )


def pool_class(generation: int = 1, **provider_spec: Any) -> ClassSnapshot:
    """The examples' class, with these fields of its provider spec."""
    snapshot = ClassSnapshot.of(examples().classes[0], generation)
    return snapshot.model_copy(update={"provider_spec": {**snapshot.provider_spec, **provider_spec}})


class Pool:
    """One pool of a stack."""

    def __init__(self, stack: Stack, name: str = "p1") -> None:
        self.stack, self.name = stack, name
        self.handle: WorkflowHandle[Any, Any] = stack.client.get_workflow_handle(pool_id(stack.cluster, name))
        self.spec = pool_spec(0)
        self.machine_class = pool_class()

    async def start(self, spec: MachineDeploymentSpec, machine_class: ClassSnapshot | None = None, **more: Any) -> None:
        self.spec, self.machine_class = spec, machine_class or self.machine_class
        settings = self.stack.settings
        await self.stack.client.start_workflow(
            MachineDeploymentWorkflow.run,
            PoolState(
                name=self.name,
                cluster=self.stack.cluster,
                spec=spec,
                machine_class=self.machine_class,
                queue_prefix=settings.queue_prefix,
                timings=settings.timings,
                **more,
            ),
            id=self.handle.id,
            task_queue=settings.queue_prefix,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
        self.stack.started[self.name] = self.handle

    # -- what it says -------------------------------------------------------------------------------------------------

    async def state(self) -> PoolState:
        return await asked(self.handle, MachineDeploymentWorkflow.describe)

    async def summary(self) -> PoolSummary:
        return await asked(self.handle, MachineDeploymentWorkflow.summary)

    async def when(self, until: Callable[[PoolSummary], object], what: str, within: float = DEADLINE) -> PoolSummary:
        return await eventually(self.summary, until, f"pool {self.name}: {what}", within)

    async def rolled_out(self, replicas: int, revision: int | None = None, within: float = DEADLINE) -> PoolSummary:
        def done(s: PoolSummary) -> bool:
            right = s.replicas == replicas and (revision is None or s.revision == revision)
            return right and s.rolled_out and sum(n for _, _, n in s.phases) == replicas

        return await self.when(done, f"{replicas} machines, rolled out", within)

    async def waits(self, reason: str) -> PoolSummary:
        return await self.when(lambda s: any(w.reason == reason for w in s.waits), f"waits: {reason}")

    async def rollout(self, revision: int) -> RolloutState:
        handle = self.stack.client.get_workflow_handle(rollout_id(self.stack.cluster, self.name, revision))
        return await asked(handle, RolloutWorkflow.describe)

    async def result(self, revision: int) -> RolloutResult:
        handle = self.stack.client.get_workflow_handle_for(
            RolloutWorkflow.run, rollout_id(self.stack.cluster, self.name, revision)
        )
        return await result_of(handle)

    # -- what people want ---------------------------------------------------------------------------------------------

    async def ask(self, name: str, intent: Intent | None = None) -> str:
        intent = intent or Intent()
        intent = intent.model_copy(update={"id": str(uuid.uuid4()), "requested_by": "test"})
        answer = await self.handle.execute_update(name, intent, id=intent.id)
        return str(answer["message"])

    async def apply(self, spec: MachineDeploymentSpec | None = None, machine_class: ClassSnapshot | None = None) -> str:
        self.spec, self.machine_class = spec or self.spec, machine_class or self.machine_class
        return await self.ask("apply", PoolIntent(spec=self.spec, machine_class=self.machine_class))

    async def scale(self, replicas: int | None = None, remove: tuple[str, ...] = ()) -> str:
        return await self.ask("scale", ScaleIntent(replicas=replicas, remove=list(remove)))

    async def undo(self, to: int | None = None) -> str:
        return await self.ask("undo", UndoIntent(to=to))

    async def delete(self) -> None:
        await self.ask("delete", DeleteIntent())
        await result_of(self.handle)

    # -- what the cloud says ------------------------------------------------------------------------------------------

    async def machines(self) -> dict[str, MachineState]:
        """Machines that it has and that are started, by name, as they describe themselves."""
        state = await self.state()
        names = sorted(state.members.keys() - set(state.unstarted))
        states = await asyncio.gather(*(asked(machine_handle(self.stack, n), MachineWorkflow.describe) for n in names))
        return dict(zip(names, states, strict=True))

    def vms(self) -> Counter[str]:
        """Instances of the pool's machines by state."""
        found = Counter(str(i["State"]["Name"]) for r in self.instances() for i in r["Instances"])
        return Counter({k: v for k, v in found.items() if k != "terminated"})

    def nodes(self) -> list[dict[str, Any]]:
        listed = json.loads(self.stack.kubectl("get", "nodes", "-o", "json"))
        return [n for n in listed["items"] if n["metadata"]["labels"].get(MACHINE_NAME_LABEL, "").startswith(self.name)]

    def instances(self) -> list[dict[str, Any]]:
        pages = self.stack.ec2().get_paginator("describe_instances").paginate()
        return [r for page in pages for r in page["Reservations"]]


class Crowd:
    """The VMs of a pool, counted by the cloud at each change of a state (I2), and those of each machine (I1)."""

    def __init__(self, stack: Stack, pool: str) -> None:
        self.pool = pool
        self.most = 0
        self.twins: set[str] = set()
        """Machines that had two VMs at the same time."""
        self._living: dict[str, str] = {}
        stack.simulator.call(lambda: stack.cloud.subscribe(self._see))

    def _see(self, vm: Vm) -> None:
        if not vm.name.startswith(f"{self.pool}-"):
            return
        if vm.power is Power.GONE:
            self._living.pop(vm.instance_id, None)
        else:
            self._living[vm.instance_id] = vm.name
        self.most = max(self.most, len(self._living))
        self.twins |= {name for name, n in Counter(self._living.values()).items() if n > 1}


@contextlib.asynccontextmanager
async def worker_process(stack: Stack) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A worker in a process of its own; the yielded function kills it, with nothing left of it, and starts the next
    one."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": stack.client.service_client.config.target_host}
    current: list[asyncio.subprocess.Process] = []

    async def start() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "worker",
            "--settings",
            str(stack.settings_file),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        current.append(process)
        assert process.stdout is not None
        assert (await asyncio.wait_for(process.stdout.readline(), DEADLINE)).startswith(b"worker ready")

    async def kill() -> None:
        process = current.pop()
        process.kill()
        await process.wait()

    async def again() -> None:
        await kill()
        await start()

    await start()
    try:
        yield again
    finally:
        await kill()


@contextlib.asynccontextmanager
async def killing(pool: Pool, image: str | None = None) -> AsyncIterator[None]:
    """Terminates each VM of the pool, or of its machines from an image, as soon as its machine knows it. Before that it
    would be a lost attempt of the same machine, which costs another VM (planners.machine.creation.after_lost_token):
    how many, would be up to how busy the computer is."""

    def living() -> dict[str, str]:
        """The machine of each VM, by id."""
        found = [i for r in pool.instances() for i in r["Instances"] if image in (None, i["ImageId"])]
        alive = [i for i in found if i["State"]["Name"] in ("pending", "running")]
        named = {str(i["InstanceId"]): {t["Key"]: t["Value"] for t in i["Tags"]}["Name"] for i in alive}
        return {id: name for id, name in named.items() if name.startswith(f"{pool.name}-")}

    async def strike(id: str, name: str) -> None:
        machine = await asked(machine_handle(pool.stack, name), MachineWorkflow.describe)
        if str(machine.status.provider_id).endswith(f"/{id}"):
            await asyncio.to_thread(pool.stack.ec2().terminate_instances, InstanceIds=[id])

    async def kill() -> None:
        while True:
            for id, name in (await asyncio.to_thread(living)).items():
                await strike(id, name)
            await asyncio.sleep(0.1)

    killer = asyncio.create_task(kill())
    try:
        yield
    finally:
        killer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killer


def machine_handle(stack: Stack, name: str) -> WorkflowHandle[Any, Any]:
    return stack.client.get_workflow_handle(machine_id(stack.cluster, name))


async def kept_when_it_fails(stack: Stack, name: str) -> MachineState:
    """Asks to preserve the machine when it fails, and makes it fail; returns it preserved."""
    handle = machine_handle(stack, name)
    keep = PreserveIntent(id=f"keep-{name}", requested_by="test", value=PreserveValue.WHEN_FAILED)
    await handle.signal("preserve", keep)

    async def machine() -> MachineState:
        return await asked(handle, MachineWorkflow.describe)

    node_name = (await machine()).status.node_name
    assert node_name is not None
    knobs(stack, node_name, unready=True)
    return await eventually(machine, lambda s: s.status.preserve.expiry_time, "preserved")


def marks(pool: Pool) -> list[tuple[bool, bool, bool]]:
    """The marks of each Node: the rollout's taint, scale-down-disabled, our marker beside it."""
    found = []
    for node in pool.nodes():
        taints = [t["key"] for t in node["spec"].get("taints", ())]
        annotations: dict[str, Any] = node["metadata"].get("annotations", {})
        found.append(
            (ROLLOUT_TAINT in taints, SCALE_DOWN_DISABLED in annotations, SCALE_DOWN_DISABLED_BY in annotations)
        )
    return found
