"""Machines that are borrowed from their owners: a node that updates is unavailable for the owner's budget too.

A pool of machines that rolls or repairs, and a config pool that updates the same nodes, would together make twice as
many unavailable as either may; and a control plane that replaces a machine must not have another one reboot (I14). So
the owner lends a machine, counts it as unavailable while it is lent, and refuses while its own budget is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from planners.fleet.steps import Wait
from planners.machine_config import nodes as of
from planners.machine_config.steps import Borrow, ConfigStep, FindOwners, GiveBack
from planners.words import named
from resources.machine_config.node import ConfigNode
from resources.machine_config.state import Loan, Reservation
from resources.machine_config.view import ConfigPoolView
from resources.owner import Owner


class Lending(Protocol):
    """What of a pool's view decides about loans."""

    @property
    def loans(self) -> Mapping[str, Loan]: ...

    @property
    def owners(self) -> Mapping[str, str]: ...

    @property
    def reservations(self) -> Mapping[str, Reservation]: ...


@dataclass(frozen=True)
class Chosen:
    nodes: tuple[ConfigNode, ...] = ()
    """Those that may be given their config now."""
    steps: tuple[ConfigStep, ...] = ()
    waits: tuple[Wait, ...] = ()
    next_look: datetime | None = None


def choose(candidates: Sequence[ConfigNode], free: int, observed: Lending, now: datetime) -> Chosen:
    """The first candidates, as many as there are places. One whose machine has an owner begins when that has lent it;
    until then its place is kept. One whose owner refuses lets the next one go first."""
    nodes: list[ConfigNode] = []
    steps: list[ConfigStep] = []
    unknown: list[str] = []
    refused: list[str] = []
    looks: list[datetime] = []
    granted = [n for n in candidates if (loan := observed.loans.get(n.machine)) is not None and loan.granted]
    for node in [*granted, *(n for n in candidates if n not in granted)]:
        if free <= 0:
            break
        loan, owner = observed.loans.get(node.machine), observed.owners.get(node.machine)
        if not node.machine or owner == "" or (loan is not None and loan.granted):
            nodes.append(node)
        elif owner is None:
            unknown.append(node.machine)
        elif loan is not None and loan.refused and loan.again is not None and now < loan.again:
            refused.append(f"{node.name}: {loan.refused}")
            looks.append(loan.again)
            continue
        elif loan is None or loan.refused or (loan.again is not None and now >= loan.again):
            steps.append(Borrow(node.machine, node.name, owner))
        elif loan.again is not None:
            looks.append(loan.again)
        free -= 1
    if unknown:
        steps.append(FindOwners(tuple(unknown)))
    return Chosen(tuple(nodes), tuple(steps), _waits(candidates, nodes, refused, observed), min(looks, default=None))


def _waits(
    candidates: Sequence[ConfigNode], nodes: Sequence[ConfigNode], refused: Sequence[str], observed: Lending
) -> tuple[Wait, ...]:
    waits = []
    if refused:
        words = f"their owners do not lend these machines now, so their nodes do not begin: {named(refused)}"
        waits.append(Wait("MachinesNotLent", words))
    asked = [
        f"{n.name} (machine {n.machine} of {Owner.words(loan.owner)})"
        for n in candidates
        if n not in nodes and (loan := observed.loans.get(n.machine)) is not None and not (loan.refused or loan.granted)
    ]
    if asked:
        waits.append(Wait("MachinesAskedFor", f"waiting for the owners to lend their machines: {named(asked)}"))
    return tuple(waits)


def give_back(view: ConfigPoolView, observed: Lending) -> tuple[ConfigStep, ...]:
    """Loans that are over: the node is finished, or gone, or nothing is to be done with it any longer."""
    assert view.pool is not None
    by_machine = {n.machine: n for n in view.nodes if n.machine}
    over = [m for m, loan in observed.loans.items() if _over(by_machine.get(m), loan, view, observed)]
    return (GiveBack(tuple(over)),) if over else ()


def _over(node: ConfigNode | None, loan: Loan, view: ConfigPoolView, observed: Lending) -> bool:
    if node is None:
        return True
    if node.name in observed.reservations or of.busy(node):
        return False
    assert view.pool is not None
    return not of.candidate(node, view.pool.target) or view.pool.paused
