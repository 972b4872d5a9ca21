"""The beginning of a VM: passes of its driver until it has an id, and what each try leaves for the next one.

A worker may end between any two calls. So before the first one the server knows in which account there may be a VM from
now on, and after each one by which operation the cloud makes it. Another worker asks the cloud for that operation, to
its end: its code says why there is no VM, which nothing else may show. It finds what is there by its name where nobody
kept an operation, or the cloud knows it no longer.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from temporalio import activity

from activities.boundary import (
    ACCOUNT,
    BEGUN,
    NotWanted,
    StillMaking,
    last_progress,
    progress,
    remember,
)
from activities.deps import Deps
from activities.temporal.announce import admit
from activities.temporal.records import standing
from activities.userdata import UserData
from drivers.base import CreateMachineRequest, MachineStatus, Making
from drivers.errors import DriverError, OperationFailed
from resources.calls.cloud import CreateInput
from resources.calls.machine import Target
from resources.errors import PASSING, BegunOperation, ErrorClass

REFUSALS = frozenset(ErrorClass) - {ErrorClass.TRANSIENT, ErrorClass.UNKNOWN, ErrorClass.CONFLICT}
"""Answers of a cloud that has made no VM with this token; after any other there may be one."""


def begun_before(input: CreateInput) -> BegunOperation | None:
    """What an earlier try of this call has left, or else the call before it."""
    last = last_progress()
    return BegunOperation.read(last.get(BEGUN)) if last else input.begun


def carry_on(account_id: str, begun: BegunOperation | None) -> None:
    """Keeps what is known of earlier tries through whatever goes wrong before the cloud is called."""
    if account_id or begun:
        progress("the create call goes on", **_details(account_id, begun))


async def under_way(deps: Deps, begun: BegunOperation | None) -> BegunOperation | None:
    """The operation to go on with. A machine that leaves wants none, and one that was reset may have had the VM and
    lost it since: what there is of theirs is looked for first."""
    if begun is None:
        return None
    now = await standing(deps.client)
    return None if now.leaving or now.was_reset else begun


def _details(account_id: str, begun: BegunOperation | None) -> dict[str, Any]:
    where: dict[str, Any] = {ACCOUNT: account_id} if account_id else {}
    return where | ({BEGUN: begun.model_dump(mode="json")} if begun else {})


class Creation:
    """One try of a create call, for a machine that has no VM that anybody knows of."""

    def __init__(self, deps: Deps, target: Target, user_data: UserData, annotations: dict[str, str]) -> None:
        self.deps = deps
        self.target = target
        self.cloud = deps.cloud(target)
        self._user_data = user_data
        self._annotations = annotations
        self._opened = ""

    async def run(self, begun: BegunOperation | None) -> MachineStatus:
        """Makes the VM in the account that the cluster's VMs of this Secret are in, where there are any.

        The server knows before the call in which account a VM may be from now on, so that no later try believes another
        account that there is none; not so after a refusal, which makes nothing.
        """
        target = self.target
        request = await self.deps.request(
            CreateMachineRequest,
            target,
            user_data=self._user_data.text,
            compressed=self._user_data.compressed,
            annotations=self._annotations,
            token=target.token,
        )
        self._opened = await self.cloud.account(request)
        self.cloud.check(self._opened)
        await admit(self.deps, self.cloud, self._opened, target)
        message = f"the VM is being created in account {self._opened}"
        await remember(self.deps.client, message, **_details(self._opened, begun))
        try:
            answer = await self._once(request, begun)
        except DriverError as e:
            if e.error_class in REFUSALS and not target.account_id and begun is None:
                progress(message)
            raise
        vm = await self._passes(request, answer, begun)
        return vm if vm.account_id else vm.model_copy(update={"account_id": self._opened})

    async def _once(self, request: CreateMachineRequest, begun: BegunOperation | None) -> MachineStatus | Making:
        """Makes one pass. What has ended badly is forgotten where this call is tried again on its own, as it would only
        hear the same again. Else it stays until the workflow has the answer, which may be lost."""
        asked = request.model_copy(update={"begun": begun})
        try:
            return await self.cloud.once(self.cloud.driver.create_machine, asked)
        except OperationFailed as e:
            if e.error_class in PASSING:
                progress("the cloud makes nothing now", **_details(self._opened, None))
            raise

    async def _passes(
        self, request: CreateMachineRequest, answer: MachineStatus | Making, begun: BegunOperation | None
    ) -> MachineStatus:
        """Makes passes, from the first one of a creation until the VM has an id: when the driver says, or `poll` after
        the one before where that is sooner, as a simulated cloud is.

        Raises StillMaking where that takes longer than the activity may, so that its workflow calls it again; NotWanted
        when the machine leaves meanwhile.
        """
        started, longest = time.monotonic(), activity.info().start_to_close_timeout or timedelta.max
        while isinstance(answer, Making):
            words = f"{answer.what} is being created"
            await self._keep(words, begun, answer.begun)
            begun = answer.begun
            spent, again = timedelta(seconds=time.monotonic() - started), min(answer.again, self.target.poll)
            if spent + again > longest / 2:  # the other half is for the call that follows
                raise StillMaking(words, again)
            await asyncio.sleep(again.total_seconds())
            if leaving := (await standing(self.deps.client)).leaving:
                raise NotWanted(f"{leaving}: {words}, and is no longer waited for")
            answer = await self._once(request, begun)
        progress(f"{answer.provider_id} is there", **_details(self._opened, None))
        return answer

    async def _keep(self, words: str, former: BegunOperation | None, begun: BegunOperation | None) -> None:
        """A new operation is known to the server before it is waited for."""
        if begun is not None and begun != former:
            await remember(self.deps.client, words, **_details(self._opened, begun))
        else:
            progress(words, **_details(self._opened, begun))
