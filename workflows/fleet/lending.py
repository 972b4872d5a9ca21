"""Machines that are lent to config pools, and given back. A lent one counts as unavailable in its owner's plan."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from temporalio import workflow

from workflows.fleet.entity import FleetEntity

with workflow.unsafe.imports_passed_through():
    from resources.base import format_duration
    from resources.fleet.lending import Borrowing, LendAnswer, Lent
    from resources.names import config_pool_id

SILENT = timedelta(minutes=30)
"""How long a borrower may stay silent: it says some times an hour what it has. After that the machine counts as back,
or the end of a config pool's workflow would take a place forever."""
EXPIRY = "lent"


def judge(fleet: FleetEntity) -> None:
    """Answers those that ask for machines, one after the other, so that each is judged with those lent before."""
    s, now = fleet.s, workflow.now()
    for machine, asked in sorted(fleet.borrowings.items()):
        _answer(fleet, machine, asked)
    fleet.borrowings.clear()
    for machine in [m for m, lent in s.lent.items() if m not in s.members or now - lent.told >= SILENT]:
        lent = s.lent.pop(machine)
        if machine in s.members:
            words = f"config pool {lent.borrower} has not spoken of {machine} for {format_duration(SILENT)}"
            fleet.note("LoanExpired", f"{words}: it counts as back")
    if s.lent:
        fleet.deadlines[EXPIRY] = min(lent.told for lent in s.lent.values()) + SILENT
    else:
        fleet.deadlines.pop(EXPIRY, None)


def _answer(fleet: FleetEntity, machine: str, asked: Borrowing) -> None:
    s, now = fleet.s, workflow.now()
    known = s.lent.get(machine)
    if known is not None and known.borrower == asked.borrower:
        s.lent[machine] = known.model_copy(update={"told": now, "config": asked.config})
        refused = ""
    elif known is not None:
        refused = f"{machine} is lent to config pool {known.borrower}"
    elif machine not in s.members or s.members[machine].leaving:
        refused = f"{machine} leaves, or is not a machine of {fleet.owner}"
    elif s.deleted or s.expected or not s.revisions:
        refused = f"{fleet.owner} is being deleted, or does not know its machines yet"
    else:
        refused = fleet.may_lend(machine)
    if not refused and known is None:
        s.lent[machine] = Lent(borrower=asked.borrower, config=asked.config, since=now, told=now)
        fleet.note("MachineLent", f"{machine}, to config pool {asked.borrower}, for {asked.config}")
    answer = LendAnswer(machine=machine, owner=fleet.owner.listed, granted=not refused, message=refused, time=now)
    handle = workflow.get_external_workflow_handle(config_pool_id(s.cluster, asked.borrower))
    fleet.signal(partial(handle.signal, "lent", answer))


def ask(fleet: FleetEntity, asked: Borrowing) -> None:
    """Takes a request, which the loop judges with a plan of the same moment."""
    fleet.borrowings[asked.machine] = asked


def back(fleet: FleetEntity, given: Borrowing) -> None:
    """Takes a machine back."""
    fleet.borrowings.pop(given.machine, None)
    known = fleet.s.lent.get(given.machine)
    if known is not None and known.borrower == given.borrower:
        del fleet.s.lent[given.machine]
        fleet.note("MachineReturned", f"{given.machine}, by config pool {given.borrower}")
