"""Whole lives on a simulated Google Cloud: from birth to the last disk, a pool that rolls, labels of many machines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from lifekit import Stack, new_stack
from machine.hot_updates import Hot
from machine.lives import Elsewhere
from pools.lives import Pool, kept_when_it_fails, pool_spec
from temporalio.testing import WorkflowEnvironment

from resources.machine.manifest import ClassRef
from resources.machine.state import ClassSnapshot, Phase

GCP = Elsewhere("gcp", "gce")
CLASS = GCP.machine_class
PROVIDER_ID = "gce:///hostler-simulator/europe-west1-b/m-1"


@pytest.mark.core
async def test_from_birth_to_the_last_disk(temporal: WorkflowEnvironment) -> None:
    async with new_stack(temporal.client, clouds=GCP.clouds) as stack, stack.worker():
        await GCP.with_secret(stack)
        handle = await stack.create(machine_class=ClassSnapshot.of(CLASS))
        running = await stack.phase(Phase.RUNNING)
        assert (running.status.provider_id, running.status.node_name) == (PROVIDER_ID, "m-1")
        assert len(GCP.left(stack)) == 2  # the VM and its disk
        assert GCP.made(stack) == ["instances.insert"]
        assert stack.calls("*") == []  # nobody asked the other cloud for anything
        await stack.delete()
        result = await handle.result()
        assert result.provider_id == PROVIDER_ID
        assert GCP.left(stack) == []
        assert GCP.made(stack) == ["instances.insert", "instances.delete"]
        assert stack.kubectl("get", "nodes", "-o", "name") == ""


def machine_types(stack: Stack) -> dict[str, str]:
    """The machine types of the VMs that are there, by name."""
    instances = GCP.simulated(stack)._instances.records.values()
    return {i.name: i.machine_type.rsplit("/", 1)[-1] for i in instances if i.gone_at is None}


def pool_class(generation: int = 1, **provider_spec: Any) -> ClassSnapshot:
    snapshot = ClassSnapshot.of(CLASS, generation)
    return snapshot.model_copy(update={"provider_spec": {**snapshot.provider_spec, **provider_spec}})


async def test_a_pool_rolls_and_a_failed_machine_is_kept(temporal: WorkflowEnvironment) -> None:
    """Rollout: another machine type. Preservation: a machine that fails stays, with its VM, as long as it was asked."""
    async with new_stack(temporal.client, clouds=GCP.clouds) as stack, stack.worker():
        await GCP.with_secret(stack)
        pool = Pool(stack)
        spec = pool_spec(2, machine={"class": {"name": CLASS.metadata.name}})
        await pool.start(spec, pool_class())
        await pool.rolled_out(2)
        before = await pool.machines()
        await pool.apply(spec, pool_class(2, machineType="n2-standard-4"))
        await pool.rolled_out(2, revision=2)
        after = await pool.machines()
        assert not {*before} & {*after}
        assert GCP.made(stack).count("instances.insert") == 4
        assert machine_types(stack) == dict.fromkeys(after, "n2-standard-4")

        name = sorted(after)[0]
        kept = await kept_when_it_fails(stack, name)
        assert kept.status.shown_phase == "Failed:Preserved"
        assert name in machine_types(stack)
        await pool.delete()
        assert GCP.left(stack) == []


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.exhaustive)])
async def test_a_label_of_many_machines_costs_two_calls_each_and_replaces_none(
    temporal: WorkflowEnvironment, count: int
) -> None:
    """Seed 002, field case P69."""
    async with new_stack(temporal.client, clouds=GCP.clouds) as stack, stack.worker():
        await GCP.with_secret(stack)
        hot = Hot(stack, manifest=CLASS.model_copy(deep=True))
        names = [f"m-{n}" for n in range(1, count + 1)]
        machine_class = {"class_": ClassRef(name=CLASS.metadata.name)}
        before = await hot.machines(*names, **machine_class)
        since = max(c.n for c in GCP.calls(stack))
        await hot.everywhere(vmTags={"team": "other"})
        calls = Counter(c.operation for c in GCP.calls(stack, since) if c.mutating)
        assert calls == {"instances.setLabels": len(names)}
        waits = [c for c in GCP.calls(stack, since) if c.operation == "zoneOperations.wait"]
        assert len(waits) <= len(names)  # none for an operation that is over when it is answered
        for former in before:
            machine = await stack.state(former.name)
            assert (machine.uid, machine.status.provider_id) == (former.uid, former.status.provider_id)
        assert GCP.made(stack).count("instances.insert") == len(names)
