"""What the workflows of machine configs ask of Temporal through the client: their own pools and rollouts are started,
machines are selected, and the owners of machines are found."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.base import Activities
from activities.batch import each
from activities.boundary import progress
from activities.temporal.workflows import CONFIG_POOL, CONFIG_ROLLOUT, MACHINE, described, running
from resources import attributes as at
from resources import starts
from resources.base import few
from resources.calls.machine_config import (
    FindOwnersInput,
    FindOwnersOutput,
    SelectMachinesInput,
    SelectMachinesOutput,
    StartPoolsInput,
)
from resources.machine.state import MachineState
from resources.machine_config.state import ConfigRolloutState, MachineConfigPoolState
from resources.names import machine_id, pool_id
from resources.selectors import LabelSelector

PATIENCE = timedelta(seconds=5)
"""The time for one machine to say which labels it has."""


class ConfigActivities(Activities):
    role = "workflows"

    @activity.defn
    async def start_config_pools(self, input: StartPoolsInput) -> None:
        """Starts the workflows of MachineConfigPools. One that runs is left alone; one that has ended begins a new
        life."""

        async def start(name: str) -> None:
            state = MachineConfigPoolState(
                name=name, cluster=input.cluster, queue_prefix=input.queue_prefix, timings=input.timings
            )
            await self.deps.client.start_workflow(
                CONFIG_POOL,
                state,
                **starts.of_config_pool(state),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )

        await each(input.names, start, lambda n: f"{n} of {len(input.names)} config pools started")

    @activity.defn
    async def start_config_rollout(self, input: ConfigRolloutState) -> None:
        """Starts the story of a rendered config's rollout. One that is rolled out again after a roll-back gets a new
        one."""
        await self.deps.client.start_workflow(
            CONFIG_ROLLOUT,
            input,
            **starts.of_config_rollout(input),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )

    @activity.defn
    async def find_owners_of_machines(self, input: FindOwnersInput) -> FindOwnersOutput:
        """Says whose the machines are, by the server's own records."""

        async def owner(name: str) -> str:
            found = await described(self.deps.client, machine_id(input.cluster, name))
            if found is None or found.status is not WorkflowExecutionStatus.RUNNING:
                return ""
            return found.typed_search_attributes.get(at.POOL) or ""

        owners = await each(input.machines, owner, lambda n: f"{n} of {len(input.machines)} machines looked up")
        return FindOwnersOutput(owners=dict(zip(input.machines, owners, strict=True)))

    # -- which machines -----------------------------------------------------------------------------------------------

    @activity.defn
    async def select_machines(self, input: SelectMachinesInput) -> SelectMachinesOutput:
        """Finds machines by the pool that has them, or by their labels. By visibility, which is about a second
        behind."""
        if input.selector is None:
            return await self._of_set(input)
        selector = LabelSelector.model_validate(input.selector)
        groups: dict[str, list[str]] = {}
        for name, owner in (await self._running(input.cluster)).items():
            groups.setdefault(_alike(name, owner), []).append(name)
        labels = await each(
            [names[0] for names in groups.values()],
            lambda name: self._labels(input.cluster, name),
            lambda n: f"{n} of {len(groups)} sorts of machines asked",
        )
        mute = [names[0] for names, found in zip(groups.values(), labels, strict=True) if found is None]
        chosen = [
            name
            for names, found in zip(groups.values(), labels, strict=True)
            if found is not None and selector.matches(found)
            for name in names
        ]
        trouble = f"it is not known which labels they have: {', '.join(few(sorted(mute), 5))}" if mute else ""
        return SelectMachinesOutput(machines=sorted(chosen), trouble=trouble)

    async def _of_set(self, input: SelectMachinesInput) -> SelectMachinesOutput:
        found = await self._running(input.cluster, f"HostlerPool = '{input.machine_set}'")
        trouble = ""
        if not found:
            pool = await described(self.deps.client, pool_id(input.cluster, input.machine_set))
            if pool is None or pool.status is not WorkflowExecutionStatus.RUNNING:
                trouble = f"there is no pool {input.machine_set}: spec.machineSetRef names one of Hostler's pools"
        return SelectMachinesOutput(machines=sorted(found), trouble=trouble)

    async def _running(self, cluster: str, where: str = "") -> dict[str, str]:
        """Running machines, and the owner of each, "" without one."""
        prefix, found = machine_id(cluster, ""), dict[str, str]()
        async for execution in self.deps.client.list_workflows(running(MACHINE, cluster=cluster, where=where)):
            if execution.id.startswith(prefix):
                owner = execution.typed_search_attributes.get(at.POOL) or ""
                found[execution.id.removeprefix(prefix)] = owner
            if len(found) % 1000 == 0:
                progress(f"{len(found)} machines found")
        return found

    async def _labels(self, cluster: str, name: str) -> dict[str, str] | None:
        """The machine's labels; None where it does not say. One that has ended meanwhile has none."""
        handle = self.deps.client.get_workflow_handle(machine_id(cluster, name))
        try:
            state = await handle.query(
                "describe",
                result_type=MachineState,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=PATIENCE,
            )
        except WorkflowQueryRejectedError:
            return {}
        except WorkflowQueryFailedError:
            return None
        except RPCError as e:
            return {} if e.status is RPCStatusCode.NOT_FOUND else None
        return dict(state.labels)


def _alike(name: str, owner: str) -> str:
    """Machines that this says the same of have the same labels: a pool's machines of one revision, whose names differ
    only in their last part."""
    return f"{owner} {name.rpartition('-')[0]}" if owner else name
