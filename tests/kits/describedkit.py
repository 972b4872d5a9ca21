"""A machine that waits, and what `describe` says of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lifekit import examples

from resources.machine.state import (
    ClassSnapshot,
    MachineState,
    Phase,
    Status,
    WaitingFor,
)
from starter.commands.describe import page
from starter.sdk.results import (
    Description,
    Life,
    MachineSummary,
    PendingActivity,
)

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)


def waits_for(reason: str) -> MachineState:
    loaded = examples("m-1")
    waiting = WaitingFor(
        reason=reason,
        message=f"3 of 7 {reason.lower()} words",
        since=NOW - timedelta(minutes=12),
        next_try=NOW + timedelta(minutes=5),
    )
    return MachineState(
        name="m-1",
        cluster="prod",
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        status=Status(phase=Phase.UNKNOWN, waiting_for=waiting),
    )


def described(
    state: MachineState, status: str = "RUNNING", failure: str = "", pending: tuple[PendingActivity, ...] = ()
) -> str:
    summary = MachineSummary(name=state.name, cluster=state.cluster, created=NOW, phase=str(state.status.phase))
    life = Life(summary=summary, status=status, run_id="r", first_run_id="r", task_queue="q", pending=pending)
    shown = Description(life=life, state=state, failure=failure)
    return "\n".join(page(shown, NOW))
