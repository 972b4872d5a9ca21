"""What an owner of machines does beyond its own workflow: through the client it starts and tells machines, and tells
its cluster, classes and rollouts. Names with `pool` are from when all owners were pools.

All of it is idempotent: a machine is started once however often it is asked for, and every message is a snapshot or
carries the id of an intent.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from activities.base import Activities
from activities.batch import each
from activities.temporal.announce import tell_cluster
from activities.temporal.classes import forget_user
from activities.temporal.workflows import CONFIG_POOL, MACHINE, ROLLOUT, described, listed, running, tell
from resources import starts
from resources.cluster.state import PoolsFound, PoolsInput
from resources.fleet.membership import (
    ForgetPoolInput,
    MembersFound,
    StartMachinesInput,
    StartMachinesOutput,
    TellMachinesInput,
    TellMachinesOutput,
)
from resources.machine_class.state import ClassId
from resources.names import cluster_id, config_pool_id, config_pool_listed, machine_id
from resources.owner import Owner, OwnerRef, workflows_of_owners
from resources.pool.rollout import RolloutState


class MemberActivities(Activities):
    role = "workflows"

    @activity.defn
    async def start_machines(self, input: StartMachinesInput) -> StartMachinesOutput:
        """Starts machines. One that runs already was started by an earlier attempt. One that has come to its end is
        never started again, however late a repetition comes: its owner would know nothing of that machine."""
        created = input.state.created or activity.info().scheduled_time

        async def start(name: str) -> bool:
            state = input.state.model_copy(update={"name": name})
            try:
                await self.deps.client.start_workflow(
                    MACHINE,
                    state,
                    **starts.of_machine(state, reason="CreatingVM", created=created),
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                )
            except WorkflowAlreadyStartedError:
                return False
            return True

        started = await each(input.names, start, lambda n: f"{n} of {len(input.names)} machines started")
        return StartMachinesOutput(used=[name for name, ok in zip(input.names, started, strict=True) if not ok])

    @activity.defn
    async def tell_members(self, input: TellMachinesInput) -> TellMachinesOutput:
        """Tells members. One that cannot be told is looked up in the server's own records: how it ended decides what
        its owner may believe of its VM."""
        signal, arguments = _message(input)

        async def one(name: str) -> str | None:
            """Tells one. None when it was told; else how its workflow ended, "" when there is no trace of one."""
            client, id = self.deps.client, machine_id(input.cluster, name)
            if await tell(client, id, signal, *arguments):
                return None
            found = await described(client, id)
            if found is not None and found.status is WorkflowExecutionStatus.RUNNING:
                raise ApplicationError(f"{id} was started a moment ago: the next attempt reaches it")
            return found.status.name if found and found.status else ""

        told = await each(input.names, one, lambda n: f"{n} of {len(input.names)} machines told")
        ends = {name: end for name, end in zip(input.names, told, strict=True) if end is not None}
        ended = WorkflowExecutionStatus.COMPLETED.name
        return TellMachinesOutput(
            gone=[name for name, end in ends.items() if end == ended],
            lost={name: end for name, end in ends.items() if end != ended},
        )

    @activity.defn
    async def find_members(self, input: OwnerRef) -> MembersFound:
        """Running machines, and stories of rollouts, of an owner whose workflow was ended from outside.

        They come from visibility, so they only serve to be asked: each answers with what it is.
        """
        client, where = self.deps.client, f"HostlerPool = '{input.listed}'"
        machines = running(MACHINE, cluster=input.cluster, where=where)
        rollouts = running(ROLLOUT, cluster=input.cluster, where=where)
        revisions = await listed(client, rollouts, f"rollout/{input.cluster}/{input.name}/")
        return MembersFound(
            names=await listed(client, machines, machine_id(input.cluster, "")),
            rollouts=sorted(int(revision) for revision in revisions if revision.isdigit()),
        )

    @activity.defn
    async def find_pools(self, input: PoolsInput) -> PoolsFound:
        """Finds who is to hear a cluster's news, running owners and config pools: they were there before its workflow,
        or know a former one. From visibility too."""
        cluster, query = input.cluster, running(*workflows_of_owners(), CONFIG_POOL, cluster=input.cluster)
        ids = [execution.id async for execution in self.deps.client.list_workflows(query)]
        owners = [owner.listed for id in ids if (owner := Owner.of_id(cluster, id))]
        config_pools = config_pool_id(cluster, "")
        configs = [config_pool_listed(id.removeprefix(config_pools)) for id in ids if id.startswith(config_pools)]
        return PoolsFound(names=sorted([*owners, *configs]))

    @activity.defn
    async def register_pool(self, input: OwnerRef) -> None:
        """Signals `register_pool` to the cluster, whose workflow is started if need be; its answer is its news."""
        await tell_cluster(self.deps, input.cluster, "register_pool", input.listed)

    @activity.defn
    async def forget_pool(self, input: ForgetPoolInput) -> None:
        """Tells the owner's classes and its cluster; one that is not there has nothing to forget."""
        for name in input.classes:
            await forget_user(self.deps.client, ClassId(cluster=input.cluster, name=name), input.user)
        await tell(self.deps.client, cluster_id(input.cluster), "forget_pool", input.listed)

    @activity.defn
    async def start_rollout(self, input: RolloutState) -> None:
        """Starts a rollout's story. A revision that was rolled out before, and is rolled out again after an undo, gets
        a new one."""
        await self.deps.client.start_workflow(
            ROLLOUT,
            input,
            **starts.of_rollout(input),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )


def _message(input: TellMachinesInput) -> tuple[str, list[object]]:
    """Name and arguments of the signal."""
    if input.delete is not None:
        return "delete", [input.delete]
    if input.repair is not None:
        return "repair", [input.repair]
    if input.permit is not None:
        return "permit", [input.permit]
    if input.preserve is not None:
        return "preserve_granted", [input.preserve]
    if input.slot_taken is not None:
        return "slot_taken", [input.slot_taken]
    if input.template is not None:
        return "template_changed", [input.template]
    if input.hook is not None:
        return "hook", [input.hook]
    if input.owner is not None:
        return "owner_changed", [input.owner]
    return "report_again", []
