"""Lives in the strict sandbox, whose determinism guard also covers our own modules. Only tests run workers with it.

Other tests pass our modules through, as workers do: a strict life takes a second of a core. A class has its strict life
in test_class_workflow.py, a cluster in test_cluster_pools.py; test_replay.py replays every recorded history in it.
"""

from __future__ import annotations

from poolworkflowkit import new_pool, snapshot, spec
from stubs import phase, reason, stubbed
from temporalio.testing import WorkflowEnvironment
from updatekit import delete, tagged, tell, updated

from resources.machine.state import Phase
from resources.pool.rollout import RolloutOutcome
from workflows.machine import MachineWorkflow


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
