"""Lives in the strict sandbox, whose determinism guard also covers our own modules. Only tests run workers with it.

Other tests pass our modules through, as workers do: a strict life takes a second of a core. A class has its strict life
in test_class_workflow.py, a cluster in test_cluster_pools.py; test_replay.py replays every recorded history in it.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from machine.stubbed import delete, tagged, tell, updated
from machine.stubs import phase, reason, stubbed
from pools.workflow import new_pool, snapshot, spec
from temporalio import activity
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from resources.cluster.accounts import Account
from resources.machine.manifest import SecretRef
from resources.machine.state import Phase
from resources.names import cloud_queue, workflow_queue
from resources.orphans import ListVmsInput, ListVmsOutput, Orphan, OwnedVm, OwnersInput, OwnersOutput, SweepInput
from resources.pool.rollout import RolloutOutcome
from workflows.machine import MachineWorkflow
from workflows.orphans import OrphanSweepWorkflow


async def test_a_machine(temporal: WorkflowEnvironment) -> None:
    """A life from the machine's birth over a hot update to its end."""
    async with stubbed(temporal.client, strict=True) as machines:
        handle = await machines.start(machines.new_state("m-1"))
        its = (await reason(handle, "NodeNotSeen")).machine_class
        assert its is not None
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, Phase.RUNNING)
        await tell(handle, tagged(its, 2, "b"))
        await updated(handle, 2)
        await delete(handle)
        assert (await handle.result()).journal[-1].reason == "Gone"


async def test_a_pool_and_its_rollout(temporal: WorkflowEnvironment) -> None:
    async with new_pool(temporal.client) as pool, pool.worker(strict=True):
        await pool.ready(spec(1))
        await pool.apply(machine_class=snapshot(2, image=2))
        assert (await pool.result(2)).outcome is RolloutOutcome.COMPLETE
        await pool.rolled_out(1, revision=2)


@activity.defn(name="list_vms")
async def two(input: ListVmsInput) -> ListVmsOutput:
    made = {"account": input.account.key, "state": "running", "uid": "u"}
    return ListVmsOutput(vms=[OwnedVm(providerID=f"aws:///i-{name}", machine=name, **made) for name in ("m-1", "m-2")])


@activity.defn(name="find_owners")
async def first(input: OwnersInput) -> OwnersOutput:
    return OwnersOutput(orphans=[Orphan(vm=input.vms[0], workflow="TERMINATED")])


async def test_a_sweep(temporal: WorkflowEnvironment) -> None:
    prefix = f"s{uuid.uuid4().hex[:8]}"
    account = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="s"))
    sweep = SweepInput(cluster=prefix, accounts=[account], queue_prefix=prefix, heartbeat=timedelta(seconds=10))
    ours = {"workflows": worker.WORKFLOWS, "workflow_runner": worker.sandbox(True)}
    async with (
        Worker(temporal.client, task_queue=workflow_queue(prefix), activities=[first], **ours),
        Worker(temporal.client, task_queue=cloud_queue(account.provider, prefix), activities=[two]),
    ):
        report = await temporal.client.execute_workflow(
            OrphanSweepWorkflow.run, sweep, id=f"orphans/{prefix}/1", task_queue=workflow_queue(prefix)
        )
    assert [orphan.vm.machine for orphan in report.orphans] == ["m-1"]
    assert report.unread == {}
