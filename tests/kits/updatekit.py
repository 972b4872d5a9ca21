"""What tests of a machine's hot updates share: a machine that runs, changed classes, and what is known afterwards."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from lifekit import eventually
from stubs import Handle, Machines, phase, reason, state

from resources.intents import Intent
from resources.journal import Happening
from resources.machine.intents import DeleteIntent
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassNews
from workflows.machine import MachineWorkflow

CLASS = "demo-m5-large"


async def running(machines: Machines, name: str = "m-1", messages: int = 0, **spec: Any) -> Handle:
    """A machine that runs. The handle is of whichever run there is; `messages`: this many are counted already."""
    new = machines.new_state(name, **spec)
    started = await machines.start(new.model_copy(update={"messages": messages}))
    handle = machines.client.get_workflow_handle(started.id)
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    return handle


async def held(machines: Machines) -> tuple[Handle, ClassSnapshot, asyncio.Event]:
    """A Running machine, its class, and an event before which no hot update of it ends."""
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    hold.set()
    handle = await running(machines)
    hold.clear()
    now = (await state(handle)).machine_class
    assert now is not None
    return handle, now, hold


def another(snapshot: ClassSnapshot, generation: int, **provider_spec: Any) -> ClassSnapshot:
    """The class with other fields of its provider spec."""
    spec = {**snapshot.provider_spec, **provider_spec}
    return snapshot.model_copy(update={"generation": generation, "provider_spec": spec})


def tagged(snapshot: ClassSnapshot, generation: int, team: str, **others: str) -> ClassSnapshot:
    """The class with this tag of the VM, and perhaps others."""
    return another(snapshot, generation, vmTags={**snapshot.provider_spec["vmTags"], "team": team, **others})


def team(provider_spec: dict[str, Any]) -> str:
    return str(provider_spec["vmTags"]["team"])


async def tell(handle: Handle, wanted: ClassSnapshot) -> None:
    """Tells the machine, as the class does."""
    await handle.signal(MachineWorkflow.class_changed, ClassNews(machine_class=wanted))


async def apply(handle: Handle, wanted: ClassSnapshot, **spec: Any) -> str:
    """Applies, as the command line does; returns the answer's words."""
    now = await state(handle)
    intent = ApplyIntent(id=uuid.uuid4().hex, spec=now.spec.model_copy(update=spec), machine_class=wanted)
    return str((await handle.execute_update(MachineWorkflow.apply, intent)).message)


async def renew(handle: Handle) -> str:
    return str((await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id=uuid.uuid4().hex))).message)


async def delete(handle: Handle) -> None:
    intent = DeleteIntent(id=uuid.uuid4().hex, requested_by="test")
    await handle.execute_update(MachineWorkflow.delete, intent)


async def updated(handle: Handle, generation: int) -> MachineState:
    """Waits until the machine carries what this generation says."""
    return await eventually(
        lambda: state(handle), lambda s: s.status.applied_generation == generation, f"generation {generation}"
    )


async def in_trouble(handle: Handle, failures: int = 1) -> MachineState:
    """Waits until its hot update has failed this many times in a row."""

    def fails(s: MachineState) -> bool:
        return s.status.update_trouble is not None and s.update_failures >= failures

    return await eventually(lambda: state(handle), fails, f"{failures} failures")


async def asked_for(machines: Machines, count: int) -> None:
    """Waits until this many hot updates have been asked for."""

    async def asked() -> int:
        return len(machines.stubs.hot_updates())

    await eventually(asked, lambda n: n >= count, f"{count} hot updates")


async def until_told(machines: Machines, *reports: tuple[str, int, int, str]) -> None:
    """Waits until classes have heard exactly this."""

    async def told() -> list[tuple[str, int, int, str]]:
        return machines.stubs.told()

    await eventually(told, lambda seen: seen == list(reports), f"{reports}")


async def until_last_told(machines: Machines, wanted: tuple[str, int, int, str]) -> None:
    """Waits until this is the last that a class has heard."""

    async def told() -> list[tuple[str, int, int, str]]:
        return machines.stubs.told()

    await eventually(told, lambda seen: seen[-1:] == [wanted], f"{wanted}")


def story(s: MachineState, reason: str) -> list[Happening]:
    return [h for h in s.journal if h.reason == reason]


def condition(s: MachineState, type: str) -> str | None:
    return next((c.message for c in s.status.conditions if c.type == type), None)
