"""Machines that are borrowed from their owners while their nodes update, and given back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow

from workflows.machine_config.pool_entity import LENDING, ConfigPoolEntity

with workflow.unsafe.imports_passed_through():
    from activities.temporal.configs import ConfigActivities
    from planners.machine_config.steps import Borrow
    from planners.words import named, some
    from resources.calls.machine_config import FindOwnersInput
    from resources.fleet.lending import Borrowing, LendAnswer
    from resources.machine_config.state import Loan
    from resources.owner import Owner

CONFIRMED = timedelta(minutes=10)
"""How often an owner is told that a machine is still lent (workflows/fleet/lending.py, SILENT)."""
PATIENCE = 6
"""How many passes to wait before a machine is asked for again: its owner is silent, or has refused."""


def _asked_again(pool: ConfigPoolEntity) -> datetime:
    passes = PATIENCE * pool.s.timings.poll if workflow.patched(LENDING) else timedelta(seconds=30)
    return workflow.now() + passes


async def find(pool: ConfigPoolEntity, machines: Sequence[str]) -> None:
    """Finds whose machines they are. One without a workflow belongs to nobody."""
    s = pool.s
    found = await pool.call(
        ConfigActivities.find_owners_of_machines,
        FindOwnersInput(cluster=s.cluster, machines=list(machines)),
        queue=pool.in_client,
        summary=f"find the owners of {some(len(machines))} ({named(list(machines))})",
    )
    s.owners |= {machine: found.owners.get(machine, "") for machine in machines}
    pool.nudge()


def forget_unowned(pool: ConfigPoolEntity) -> None:
    """Forgets that machines belong to nobody after the plan that follows: somebody may take it over after that, and
    lends it then."""
    s = pool.s
    if "" in s.owners.values() and workflow.patched(LENDING):
        s.owners = {machine: owner for machine, owner in s.owners.items() if owner}


def borrow(pool: ConfigPoolEntity, step: Borrow) -> None:
    """Asks the owner for a machine. The answer comes as a signal (`lent`)."""
    now = workflow.now()
    known = pool.s.loans.get(step.machine)
    asked = known.asked if known is not None else now
    pool.s.loans[step.machine] = Loan(owner=step.owner, node=step.node, asked=asked, again=_asked_again(pool))
    _ask(pool, step.machine, step.owner)


def _ask(pool: ConfigPoolEntity, machine: str, owner: str) -> None:
    s = pool.s
    asking = Borrowing(machine=machine, borrower=s.name, config=s.target, time=workflow.now())
    handle = workflow.get_external_workflow_handle(Owner.read(owner).workflow_id(s.cluster))
    pool.signal(partial(handle.signal, "lend", asking), failed=lambda _: _nobody(pool, machine))


def _nobody(pool: ConfigPoolEntity, machine: str) -> None:
    """The owner has no workflow: it is looked for again."""
    pool.s.owners.pop(machine, None)
    loan = pool.s.loans.get(machine)
    if loan is not None and loan.granted is None:
        del pool.s.loans[machine]
    pool.nudge()


def take(pool: ConfigPoolEntity, answer: LendAnswer) -> None:
    """Takes an owner's answer. One that nobody waits for any longer is given back at once."""
    s, now = pool.s, workflow.now()
    loan = s.loans.get(answer.machine)
    if loan is None or loan.owner != answer.owner:
        if answer.granted:
            s.returning[answer.machine] = answer.owner
            return_again(pool)
        return
    if answer.granted:
        s.loans[answer.machine] = loan.model_copy(
            update={"granted": loan.granted or now, "refused": "", "again": now + CONFIRMED}
        )
    else:  # also where it was lent, and its owner took it for returned
        words = answer.message or "its owner does not say why"
        s.loans[answer.machine] = loan.model_copy(
            update={"granted": None, "refused": words, "again": _asked_again(pool)}
        )
        s.owners.pop(answer.machine, None)  # perhaps it is another's by now
    pool.nudge()


def give_back(pool: ConfigPoolEntity, machines: Sequence[str]) -> None:
    """Gives machines back. One that was only asked for may have been granted by now."""
    s = pool.s
    for machine in machines:
        s.returning[machine] = s.loans.pop(machine).owner
    return_again(pool)


def return_again(pool: ConfigPoolEntity) -> None:
    """Tells owners which machines are theirs again; an owner that has no workflow any longer counts nothing."""
    s = pool.s
    for machine, owner in sorted(s.returning.items()):
        back = Borrowing(machine=machine, borrower=s.name, time=workflow.now())
        handle = workflow.get_external_workflow_handle(Owner.read(owner).workflow_id(s.cluster))
        send = partial(_return, pool, machine, partial(handle.signal, "give_back", back))
        pool.signal(send, failed=partial(_forget, pool, machine))


async def _return(pool: ConfigPoolEntity, machine: str, send: Callable[[], Awaitable[None]]) -> None:
    await send()
    _forget(pool, machine)


def _forget(pool: ConfigPoolEntity, machine: str, _: str = "") -> None:
    pool.s.returning.pop(machine, None)


def confirm(pool: ConfigPoolEntity) -> None:
    """Tells owners from time to time that their machines are still lent."""
    now = workflow.now()
    for machine, loan in sorted(pool.s.loans.items()):
        if loan.granted is not None and loan.again is not None and now >= loan.again:
            pool.s.loans[machine] = loan.model_copy(update={"again": now + CONFIRMED})
            _ask(pool, machine, loan.owner)


def again(pool: ConfigPoolEntity) -> None:
    """Says in a new run once more what is borrowed and what is given back: an owner's workflow may be another one."""
    for machine, loan in sorted(pool.s.loans.items()):
        _ask(pool, machine, loan.owner)
    return_again(pool)
