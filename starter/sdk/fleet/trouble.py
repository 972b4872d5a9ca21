"""The machine of a pool that a person should look at first, with its own words: why a pool waits is written on its
machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from temporalio.client import Client

from resources.machine.state import MachineState, Phase
from resources.names import machine_id
from resources.reasons import is_lasting, is_warning
from starter.sdk import live
from starter.sdk.errors import NoAnswer, translated
from starter.sdk.machines import records
from starter.sdk.results import MachineSummary


@dataclass(frozen=True)
class MachineTrouble:
    """One machine that is not Running, as it was asked itself."""

    machine: MachineSummary
    state: MachineState
    seen: str = ""
    """What its activities saw last: the pod and the budget that block a drain, for example."""

    @property
    def reason(self) -> str:
        waiting = self.state.status.waiting_for
        return waiting.reason if waiting else self.machine.reason

    @property
    def message(self) -> str:
        waiting = self.state.status.waiting_for
        return waiting.message if waiting else ""

    @property
    def lasting(self) -> bool:
        """Whether only a person ends it: then it outranks everything that the pool itself waits for."""
        return is_lasting(self.reason)

    @property
    def grave(self) -> bool:
        """Whether something is wrong with it: one that only takes its time explains less than what its pool says."""
        return is_warning(self.reason) or self.state.status.phase is Phase.FAILED


def first_of(machines: Iterable[MachineSummary]) -> MachineSummary | None:
    """The one whose reason says most: what only a person ends, then what is wrong, then what takes its time."""

    def rank(m: MachineSummary) -> tuple[bool, bool, bool, str]:
        failed = m.phase.startswith(Phase.FAILED)
        return not is_lasting(m.reason), not (is_warning(m.reason) or failed), not m.reason, m.name

    return min(machines, key=rank, default=None)


async def trouble_of(temporal: Client, machines: Iterable[MachineSummary]) -> MachineTrouble | None:
    """Asks the first of them. None where there is none, or where it gives no answer."""
    if (first := first_of(machines)) is None:
        return None
    handle = temporal.get_workflow_handle(machine_id(first.cluster, first.name))
    try:
        with translated():
            life = await records.life_of(await handle.describe())
            state = await live.query(handle, MachineState)
    except NoAnswer:
        return None
    if not life.running:
        return None
    return MachineTrouble(
        first, state, "\n".join(p.last_failure for p in life.pending if p.last_failure and not p.aside)
    )
