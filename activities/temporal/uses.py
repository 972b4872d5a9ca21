"""What a cluster's workflow cannot know on its own: which classes are in use and where their VMs are, and what is left
of the cluster. It is found by visibility, and by asking those that know."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from activities.base import Activities
from activities.boundary import progress
from activities.temporal.announce import account_of
from activities.temporal.workflows import MACHINE, running
from resources.attributes import CLASS
from resources.clouds import UnknownScope
from resources.cluster.accounts import Account, AccountUse
from resources.cluster.state import Left, LeftInput, UsesFound, UsesInput
from resources.machine.state import ClassSnapshot, MachineState
from resources.names import class_id, machine_id
from resources.owner import KINDS, Owner, workflows_of_owners

PATIENCE = timedelta(seconds=5)
"""The time for one workflow to answer: a class whose code fails must not keep the others from being found."""
SOME = 5
"""Names that are enough for a message."""
T = TypeVar("T")


class UsesActivities(Activities):
    role = "workflows"

    @activity.defn
    async def find_uses(self, input: UsesInput) -> UsesFound:
        """Finds, for each class in use, the account that its VMs are in now."""
        users = await self._users(input)
        found: dict[str, Account | None] = {}
        unplaced = {}
        for name in sorted(name for name, there in users.items() if there):
            try:
                found[name] = await self._account(input.cluster, name)
            except UnknownScope as e:
                unplaced[name] = str(e)
            progress(f"{len(found)} classes of {input.cluster}")
        return UsesFound(
            uses=[AccountUse(machine_class=name, account=account) for name, account in found.items() if account],
            unused=sorted(name for name, there in users.items() if not there),
            unread=sorted(name for name, account in found.items() if account is None),
            unplaced=unplaced,
        )

    async def _users(self, input: UsesInput) -> dict[str, bool]:
        """Classes, and whether a machine or an owner of machines names them."""
        kinds = MACHINE, *workflows_of_owners()
        if input.classes is None:
            named: set[str] = set()
            async for execution in self.deps.client.list_workflows(running(*kinds, cluster=input.cluster)):
                named.add(execution.typed_search_attributes.get(CLASS) or "")
                progress(f"{len(named)} classes of {input.cluster}")
            return dict.fromkeys(named - {""}, True)
        counts = {}
        for name in input.classes:
            counts[name] = await self._count(running(*kinds, cluster=input.cluster, where=f"HostlerClass = '{name}'"))
        return {name: count > 0 for name, count in counts.items()}

    async def _account(self, cluster: str, name: str) -> Account | None:
        """The account, as the class says; for machines that were started without one, as the newest of them says. None:
        nobody answers. Raises UnknownScope."""
        handle = self.deps.client.get_workflow_handle(class_id(cluster, name))
        snapshot = await self._ask(handle, "snapshot", ClassSnapshot)
        if snapshot is not None:
            return account_of(snapshot)
        machines = running(MACHINE, cluster=cluster, where=f"HostlerClass = '{name}'")
        async for execution in self.deps.client.list_workflows(machines, limit=1):
            handle = self.deps.client.get_workflow_handle(execution.id)
            state = await self._ask(handle, "describe", MachineState)
            if state is not None and state.machine_class is not None:
                return account_of(state.machine_class)
        return None

    async def _ask(self, handle: WorkflowHandle[Any, Any], query: str, kind: type[T]) -> T | None:
        """The answer; None where the workflow is not there, or does not answer now."""
        try:
            answer: T = await handle.query(
                query,
                result_type=kind,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=PATIENCE,
            )
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as e:
            if not isinstance(e, RPCError) or e.status != RPCStatusCode.NOT_FOUND:
                activity.logger.info("%s does not answer: %s", handle.id, e)
            return None
        return answer

    @activity.defn
    async def find_left(self, input: LeftInput) -> Left:
        """Machines and their owners in the cluster, by visibility, which is about a second behind."""
        kinds = {"machine": MACHINE} | {kind.word: kind.workflow for kind in KINDS.values()}
        found = [await self._some(input.cluster, word, kind) for word, kind in kinds.items()]
        return Left(words=" and ".join(filter(None, found)))

    async def _some(self, cluster: str, word: str, kind: str) -> str:
        query = running(kind, cluster=cluster)
        found = [execution.id async for execution in self.deps.client.list_workflows(query, limit=SOME)]
        if not found:
            return ""
        owners = [(workflow_id, Owner.of_id(cluster, workflow_id)) for workflow_id in found]
        if any(o is not None and KINDS[o.kind].only for _, o in owners):
            return f"its {word}"  # there is only one, and its name is the same everywhere
        names = [o.name if o else workflow_id.removeprefix(machine_id(cluster, "")) for workflow_id, o in owners]
        count = max(await self._count(query), len(names))
        some = ", ".join(sorted(names)) + (", …" if count > len(names) else "")
        return f"{count} {word}{'s' if count > 1 else ''} ({some})"

    async def _count(self, query: str) -> int:
        return (await self.deps.client.count_workflows(query)).count
