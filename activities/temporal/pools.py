"""A pool's deeds beyond its own workflow: it starts and tells its machines, its cluster and its rollouts by the client.

All of them are idempotent: a machine is started once whoever asks again, and every message is a snapshot or carries the
id of an intent.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.batch import each
from activities.deps import Deps
from activities.temporal.announce import tell_cluster
from activities.temporal.classes import ClassActivities
from resources import starts
from resources.cluster import PoolsFound, PoolsInput
from resources.machine_class import ClassRef
from resources.membership import (
    ForgetPoolInput,
    MembersFound,
    PoolRef,
    StartMachinesInput,
    StartMachinesOutput,
    TellMachinesInput,
    TellMachinesOutput,
)
from resources.names import cluster_id, machine_id, pool_id, pool_user
from resources.rollout import RolloutState


class PoolActivities:
    """All of them use Temporal's client alone, and run on the queue of the workflows."""

    def __init__(self, deps: Deps) -> None:
        self.deps = deps
        self.classes = ClassActivities(deps)

    @activity.defn
    async def start_machines(self, input: StartMachinesInput) -> StartMachinesOutput:
        """One that runs already was started by a former attempt. One that has come to its end is never started again,
        however late a repetition comes: it would be a machine that its pool knows nothing of."""
        created = input.state.created or activity.info().scheduled_time

        async def start(name: str) -> bool:
            state = input.state.model_copy(update={"name": name})
            try:
                await self.deps.client.start_workflow(
                    "MachineWorkflow",
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
        """One that cannot be told is looked up in the server's own records: how it ended decides what its pool may
        believe of its VM."""
        signal, arguments = _message(input)

        async def tell(name: str) -> str | None:
            """None when it was told; else how its workflow ended, "" when there is no trace of one."""
            handle = self.deps.client.get_workflow_handle(machine_id(input.cluster, name))
            try:
                await handle.signal(signal, args=arguments)
            except RPCError as e:
                if e.status != RPCStatusCode.NOT_FOUND:
                    raise
                status = await self._status(handle.id)
                if status is WorkflowExecutionStatus.RUNNING:
                    raise  # it was started between the two calls: the next attempt reaches it
                return status.name if status else ""
            return None

        told = await each(input.names, tell, lambda n: f"{n} of {len(input.names)} machines told")
        ends = {name: end for name, end in zip(input.names, told, strict=True) if end is not None}
        ended = WorkflowExecutionStatus.COMPLETED.name
        return TellMachinesOutput(
            gone=[name for name, end in ends.items() if end == ended],
            lost={name: end for name, end in ends.items() if end != ended},
        )

    async def _status(self, workflow_id: str) -> WorkflowExecutionStatus | None:
        """Of the newest run; None when the server knows none."""
        try:
            return (await self.deps.client.get_workflow_handle(workflow_id).describe()).status
        except RPCError as e:
            if e.status != RPCStatusCode.NOT_FOUND:
                raise
            return None

    @activity.defn
    async def find_members(self, input: PoolRef) -> MembersFound:
        """Running machines, and stories of rollouts, that were there before the pool's workflow: of one that was ended
        from outside.

        By visibility, and so only to have somebody to ask: each answers with what it is.
        """
        pool = f"HostlerCluster = '{input.cluster}' AND HostlerPool = '{input.name}'"
        machines = await self._running("MachineWorkflow", pool, machine_id(input.cluster, ""))
        rollouts = await self._running("RolloutWorkflow", pool, f"rollout/{input.cluster}/{input.name}/")
        return MembersFound(names=machines, rollouts=sorted(int(n) for n in rollouts if n.isdigit()))

    @activity.defn
    async def find_pools(self, input: PoolsInput) -> PoolsFound:
        """Running pools of a cluster, for one whose former workflow was ended from outside. By visibility too."""
        cluster = f"HostlerCluster = '{input.cluster}'"
        return PoolsFound(names=await self._running("MachineDeploymentWorkflow", cluster, pool_id(input.cluster, "")))

    async def _running(self, kind: str, where: str, prefix: str) -> list[str]:
        """Names by visibility, which is about a second behind."""
        query = f"WorkflowType = '{kind}' AND ExecutionStatus = 'Running' AND {where}"
        found = [execution.id async for execution in self.deps.client.list_workflows(query)]
        return sorted(id.removeprefix(prefix) for id in found if id.startswith(prefix))

    @activity.defn
    async def register_pool(self, input: PoolRef) -> None:
        """Signals `register_pool` to the cluster, whose workflow is started if need be; its answer is its news."""
        await tell_cluster(self.deps, input.cluster, "register_pool", input.name)

    @activity.defn
    async def forget_pool(self, input: ForgetPoolInput) -> None:
        """Told to its classes and its cluster; one that is not there has nothing to forget."""
        for name in input.classes:
            await self.classes.forget_user(ClassRef(cluster=input.cluster, name=name), pool_user(input.name))
        try:
            await self.deps.client.get_workflow_handle(cluster_id(input.cluster)).signal("forget_pool", input.name)
        except RPCError as e:
            if e.status != RPCStatusCode.NOT_FOUND:
                raise

    @activity.defn
    async def start_rollout(self, input: RolloutState) -> None:
        """A revision that was rolled out before, and is once more after an undo, gets a new story."""
        await self.deps.client.start_workflow(
            "RolloutWorkflow",
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
    return "report_again", []
