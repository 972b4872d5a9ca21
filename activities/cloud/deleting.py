"""The end of a VM: passes of its driver until the cloud has confirmed that it is gone, with as few calls as that
takes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from temporalio import activity

from activities.boundary import ACCOUNT, NotYet, last_progress, progress
from activities.clock import ServerClock
from activities.deps import Deps
from drivers.base import DeleteMachineRequest, DeleteMachineResponse, Evidence, ListMachinesRequest, VmState
from drivers.errors import OperationFailed
from resources.calls.cloud import DeleteOutput
from resources.calls.machine import Target
from resources.errors import BegunOperation

FIRST_LOOK = timedelta(seconds=1)
GROWTH = 1.5
SHUTDOWN_FIRST, SHUTDOWN_GROWTH, SHUTDOWN_RAREST = 0.5, 1.6, 12
"""Intervals between looks at a VM that is shutting down: an early one for a VM that needs only seconds, then rarer and
rarer ones. It takes EC2 half a minute, or two: with an interval of 5 s the looks are 2.5, 11, 23, 44, 77 and 129 s
after the call that ended it."""
PARTS = "deletions"
"""Key in a deletion's progress: the operations by which the cloud deletes what is left, of which there may be several:
a VM, and what it has left behind."""
VMS = "vms"
"""Key in a deletion's progress: what its passes have found, as in DeleteOutput."""


async def make_pass(deps: Deps, target: Target, provider_id: str | None, **before: Any) -> DeleteMachineResponse:
    """Makes one pass. `before`: what the pass before answered, as in DeleteMachineRequest."""
    driver = deps.driver(target.provider)
    return await deps.call(
        driver.delete_machine, DeleteMachineRequest, target, provider_id=provider_id, token=target.token, **before
    )


async def delete_until_gone(deps: Deps, target: Target) -> DeleteOutput:
    """Makes one attempt: a pass, or while its VM shuts down a look at it, together with others (departures.py).

    Gone means: the cloud says terminated, or found nothing by id and by tag twice, further apart than the lag window.
    Raises NotYet; DriverError.
    """
    clock, last = ServerClock(), last_progress()
    going, kept, looks = last.get("going", []), last.get("kept", []), last.get("looks", 0)
    account_id = target.account_id or last.get(ACCOUNT, "")
    target = target.model_copy(update={"account_id": account_id})
    if going and await _still_going(deps, target, going):
        _wait_for_end(target, last["message"], {**last, "looks": looks + 1})
    try:
        found = await make_pass(deps, target, target.provider_id, going=going, kept=kept, begun=_begun(last))
    except OperationFailed as e:  # the next try begins anew
        progress(**{**last, "message": e.message, "going": [], PARTS: []})
        raise
    before: dict[str, str] = last.get(VMS, {})
    vms = before | {vm: name or before.get(vm, "") for vm, name in found.vms.items()}
    where: dict[str, Any] = {ACCOUNT: found.account_id or account_id, VMS: vms}
    if found.evidence == Evidence.TERMINATED:
        return DeleteOutput(kept=found.kept, vms=vms)
    if found.evidence == Evidence.PRESENT:
        words = f"still there: {', '.join(found.left)}"
        where |= {"kept": found.kept}  # without the time: absent, then there again, was a lagging read
        where |= {PARTS: [b.model_dump(mode="json") for b in found.begun]}
        if found.going:
            deps.departures(target).expect(found.going)
            _wait_for_end(target, words, {**where, "going": found.going, "looks": looks + 1})
        progress(message=words, **where)
        raise NotYet(words, until_next_look(activity.info().attempt, target.poll))
    now = clock.now()
    first = datetime.fromtimestamp(last.get("absentSince", now.timestamp()), UTC)
    progress(message="the cloud finds nothing left", absentSince=first.timestamp(), kept=kept, **where)
    over = first + target.consistency
    if clock.started <= over:  # this pass has read after its start, the first one before `first`
        again = max(over - now, timedelta(0)) + timedelta(seconds=0.1)
        raise NotYet("the cloud finds nothing left; looking again after the lag window", again)
    return DeleteOutput(kept=found.kept, vms=vms)


def _begun(last: dict[str, Any]) -> list[BegunOperation]:
    return [begun for found in last.get(PARTS, []) if (begun := BegunOperation.read(found)) is not None]


def _wait_for_end(target: Target, words: str, details: dict[str, Any]) -> NoReturn:
    again = until_next_shutdown_look(details["looks"], target.poll)
    progress(**{**details, "message": words})
    raise NotYet(words, again)


async def _still_going(deps: Deps, target: Target, going: Sequence[str]) -> bool:
    driver = deps.driver(target.provider)

    async def read(vms: Sequence[str]) -> list[str]:
        async def request() -> ListMachinesRequest:
            return ListMachinesRequest(
                cluster=target.machine.cluster,
                provider_spec=target.provider_spec,
                secret=await deps.credentials_for(target),
                provider_ids=list(vms),
            )

        listed = await deps.cloud(target).call(driver.list_machines, request)
        return [vm.provider_id for vm in listed.machines if vm.state is VmState.TERMINATING]

    return await deps.departures(target).still_going(going, target.poll.total_seconds(), read)


def until_next_look(attempt: int, longest: timedelta, first: timedelta = FIRST_LOOK) -> timedelta:
    """The wait between two looks. Looks at a VM that is going are frequent at first, for some clouds need only seconds,
    and the next machine of a rollout may wait for it."""
    return min(longest, first * GROWTH ** min(attempt - 1, 20))


def until_next_shutdown_look(looks: int, poll: timedelta) -> timedelta:
    """The wait after so many looks at a VM that is shutting down, from 1."""
    growth = SHUTDOWN_GROWTH ** min(looks - 1, 20)
    return poll * (SHUTDOWN_FIRST if looks <= 1 else min(growth, SHUTDOWN_RAREST))
