"""Messages between a class and its users: two workflows that know each other by name only, so they go through the
client."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from activities.base import Activities
from activities.boundary import NotYet
from activities.temporal.announce import account_of, use_account
from activities.temporal.workflows import MACHINE, running, tell
from resources.cluster.accounts import AccountUse
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import (
    ClassId,
    ClassProgress,
    ClassReport,
    ReportInput,
    TellHeldInput,
    TellUsersInput,
    TellUsersOutput,
    UsersFound,
)
from resources.names import class_id, machine_id
from resources.owner import Owner, user_id, workflows_of_owners

MUTE = (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED)
"""What the server says of a workflow whose code fails, or that no worker answers for."""
ASK_AGAIN = timedelta(seconds=5)
"""The wait between two looks for a class that is not there yet."""


class ClassActivities(Activities):
    role = "workflows"

    @activity.defn
    async def tell_users(self, input: TellUsersInput) -> TellUsersOutput:
        """Signals `class_changed`; a whole snapshot, so a repetition after a crash does no harm."""
        # Told to the cluster first, and not by the users alone: a pool without machines, or one that is held up by an
        # account whose key was revoked, would never say that its class has another one now.
        if account := account_of(input.news.machine_class):
            use = AccountUse(machine_class=input.news.machine_class.name, account=account)
            await use_account(self.deps, input.cluster, use, start=False)
        ids = {user: user_id(input.cluster, user) for user in input.users}
        gone = [u for u, id in ids.items() if not await tell(self.deps.client, id, "class_changed", input.news)]
        return TellUsersOutput(gone=gone)

    @activity.defn
    async def tell_held(self, input: TellHeldInput) -> None:
        """Signals `updates_held` to owners. One that is gone hears nothing, and needs nothing."""
        for user, news in input.held.items():
            await tell(self.deps.client, user_id(input.cluster, user), "updates_held", news)

    @activity.defn
    async def report_to_class(self, input: ReportInput) -> bool:
        """Signals `report`, and tells others what has changed with the class. False without such a class, which holds
        up nobody."""
        if input.announcement is not None and input.announcement.account is not None:
            use = AccountUse(machine_class=input.machine_class.name, account=input.announcement.account)
            await use_account(self.deps, input.machine_class.cluster, use)
        for former in input.left:
            await forget_user(self.deps.client, former, input.report.user)
        return await report_progress(self.deps.client, input.machine_class, input.report)

    @activity.defn
    async def ask_class(self, input: ClassId) -> ClassSnapshot:
        """Asks for the class as it is. A poller: as long as there is none, it is looked for again.

        A deleted class would still answer with its last state: it counts as missing.
        """
        handle = self.deps.client.get_workflow_handle(class_id(input.cluster, input.name))
        try:
            snapshot: ClassSnapshot = await handle.query(
                "snapshot", result_type=ClassSnapshot, reject_condition=QueryRejectCondition.NOT_OPEN
            )
        except WorkflowQueryRejectedError:
            raise NotYet(_missing(input, "was deleted"), ASK_AGAIN) from None
        except WorkflowQueryFailedError as e:
            raise NotYet(_mute(input, str(e)), ASK_AGAIN) from None
        except RPCError as e:
            if e.status == RPCStatusCode.NOT_FOUND:
                raise NotYet(_missing(input, "does not exist"), ASK_AGAIN) from None
            if e.status in MUTE:
                raise NotYet(_mute(input, e.message), ASK_AGAIN) from None
            raise
        return snapshot

    @activity.defn
    async def await_turn(self, input: ClassId) -> None:
        """Waits until no machine of this class is being updated, or is yet to be told. A poller; a class that is gone
        holds up nobody."""
        handle = self.deps.client.get_workflow_handle(class_id(input.cluster, input.name))
        try:
            progress: ClassProgress = await handle.query(
                "progress", result_type=ClassProgress, reject_condition=QueryRejectCondition.NOT_OPEN
            )
        except WorkflowQueryRejectedError:
            return
        except WorkflowQueryFailedError as e:
            raise NotYet(_mute(input, str(e)), ASK_AGAIN) from None
        except RPCError as e:
            if e.status == RPCStatusCode.NOT_FOUND:
                return
            if e.status in MUTE:
                raise NotYet(_mute(input, e.message), ASK_AGAIN) from None
            raise
        if progress.busy:
            words = f"{progress.busy} of class {input.name} come first, as they share one budget"
            raise NotYet(f"machines are not told yet: {words}", ASK_AGAIN)

    @activity.defn
    async def find_users(self, input: ClassId) -> UsersFound:
        """Machines and their owners that run and name the class: the users of a class whose former workflow was ended
        from outside.

        They come from visibility, so they only serve to be told: a user that has another class by then says so itself.
        """
        kinds = MACHINE, *workflows_of_owners()
        named = running(*kinds, cluster=input.cluster, where=f"HostlerClass = '{input.name}'")
        ids = [execution.id async for execution in self.deps.client.list_workflows(named)]
        machine = machine_id(input.cluster, "")
        users = [id.removeprefix(machine) for id in ids if id.startswith(machine)]
        users += [owner.user for id in ids if (owner := Owner.of_id(input.cluster, id))]
        return UsersFound(users=sorted(users))


async def report_progress(client: Client, machine_class: ClassId, report: ClassReport) -> bool:
    """Reports a user's progress. False when there is no such class, which holds up nobody."""
    return await tell(client, class_id(machine_class.cluster, machine_class.name), "report", report)


async def forget_user(client: Client, machine_class: ClassId, user: str) -> bool:
    """Tells the class that the user is gone, or has taken another class. False when there is no such class."""
    return await tell(client, class_id(machine_class.cluster, machine_class.name), "forget_user", user)


def _mute(ref: ClassId, why: str) -> str:
    return f"class {ref.name} of cluster {ref.cluster} cannot answer: {why}; see hostler describe class {ref.name}"


def _missing(ref: ClassId, what: str) -> str:
    return f"class {ref.name} of cluster {ref.cluster} {what}: hostler apply -f FILE with that MachineClass"
