"""Whole lives on a simulated Azure: from birth to the last disk, a pool that rolls, tags of many machines."""

from __future__ import annotations

from collections import Counter

import pytest
from lifekit import Stack, new_stack
from machine.hot_updates import Hot
from machine.lives import Elsewhere, client_of
from pools.lives import Pool, kept_when_it_fails, pool_spec
from temporalio.testing import WorkflowEnvironment

from resources.machine.manifest import ClassRef
from resources.machine.state import ClassSnapshot, Phase

AZURE = Elsewhere("azure", "arm", unchanging=("Token_Get",))
CLASS = AZURE.machine_class
CREATE = "VirtualMachines_CreateOrUpdate"


@pytest.mark.core
async def test_from_birth_to_the_last_disk(temporal: WorkflowEnvironment) -> None:
    async with new_stack(temporal.client, clouds=AZURE.clouds) as stack, stack.worker():
        await AZURE.with_secret(stack)
        handle = await stack.create(machine_class=ClassSnapshot.of(CLASS))
        running = await stack.phase(Phase.RUNNING)
        vm = running.status.node_name
        assert (running.status.provider_id, vm[:4]) == (f"azure:///westeurope/{vm}", "m-1-")
        hostler = client_of(stack)
        recorded = (await hostler.life(running.name)).summary
        assert recorded.provider_id == f"azure:///{vm}"  # by which visibility can be asked, whoever wrote the Node's
        (shown,) = await hostler.widened([recorded])
        assert shown.provider_id == running.status.provider_id
        assert len(AZURE.left(stack)) == 3  # the VM, its network interface and its disk
        created = [c for c in AZURE.made(stack) if c.endswith("CreateOrUpdate")]
        assert created == ["NetworkInterfaces_CreateOrUpdate", CREATE]
        assert stack.calls("*") == []  # nobody asked the other cloud for anything
        await stack.delete()
        assert (await handle.result()).provider_id == running.status.provider_id
        assert AZURE.left(stack) == []
        assert AZURE.made(stack)[-1] == "VirtualMachines_Delete"
        assert stack.kubectl("get", "nodes", "-o", "name") == ""


def sizes(stack: Stack) -> dict[str, str]:
    """The sizes of the VMs that are there, by machine."""
    vms = stack.simulator.call(lambda: AZURE.simulated(stack).machines())
    return {vm.tags["hostler.io-machine"]: vm.instance_type for vm in vms}


def pool_class(generation: int = 1, size: str = "Standard_D2s_v5") -> ClassSnapshot:
    snapshot = ClassSnapshot.of(CLASS, generation)
    properties = {**snapshot.provider_spec["properties"], "hardwareProfile": {"vmSize": size}}
    return snapshot.model_copy(update={"provider_spec": {**snapshot.provider_spec, "properties": properties}})


async def test_a_pool_rolls_and_a_failed_machine_is_kept(temporal: WorkflowEnvironment) -> None:
    """Rollout: another size. Preservation: a machine that fails stays, with its VM, as long as it was asked."""
    async with new_stack(temporal.client, clouds=AZURE.clouds) as stack, stack.worker():
        await AZURE.with_secret(stack)
        pool = Pool(stack)
        spec = pool_spec(2, machine={"class": {"name": CLASS.metadata.name}})
        await pool.start(spec, pool_class())
        await pool.rolled_out(2)
        before = await pool.machines()
        await pool.apply(spec, pool_class(2, size="Standard_D4s_v5"))
        await pool.rolled_out(2, revision=2)
        after = await pool.machines()
        assert not {*before} & {*after}
        assert AZURE.made(stack).count(CREATE) == 4
        assert sizes(stack) == dict.fromkeys(after, "Standard_D4s_v5")

        name = sorted(after)[0]
        kept = await kept_when_it_fails(stack, name)
        assert kept.status.shown_phase == "Failed:Preserved"
        assert name in sizes(stack)
        await pool.delete()
        assert AZURE.left(stack) == []


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.exhaustive)])
async def test_a_tag_of_many_machines_costs_two_calls_each_and_replaces_none(
    temporal: WorkflowEnvironment, count: int
) -> None:
    """Seed 002, field case P69."""
    async with new_stack(temporal.client, clouds=AZURE.clouds) as stack, stack.worker():
        await AZURE.with_secret(stack)
        hot = Hot(stack, manifest=CLASS.model_copy(deep=True))
        names = [f"m-{n}" for n in range(1, count + 1)]
        before = await hot.machines(*names, class_=ClassRef(name=CLASS.metadata.name))
        since = max(c.n for c in AZURE.calls(stack))
        await hot.everywhere(vmTags={**CLASS.provider_spec["vmTags"], "team": "other"})
        calls = Counter(c.operation for c in AZURE.calls(stack, since))
        watched = {"ResourceGraph_Resources", "VirtualMachines_Get", "NetworkInterfaces_Get"}  # by the account's watch
        assert {k: n for k, n in calls.items() if k not in watched} == {
            "Resources_ListByResourceGroup": len(names),
            "Tags_UpdateAtScope": len(names),
        }
        for former in before:
            machine = await stack.state(former.name)
            assert (machine.uid, machine.status.provider_id) == (former.uid, former.status.provider_id)
        assert AZURE.made(stack).count(CREATE) == len(names)
