"""No wait of a machine's life is without reason and words; what is shown of them is in tests/unit/test_operators.py."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
from entitykit import NOW, waits_for
from lifekit import eventually
from machine.stubs import VM, Machines, classified, looked, phase, reason, stubbed
from machine.stubs import state as stubs_state
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from resources.calls.cloud import VmLook
from resources.errors import IDEMPOTENCY, ErrorClass, ErrorInfo
from resources.machine.facts import VmFacts
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase, WaitingFor
from resources.machine_class.state import ClassNews
from resources.reasons import REASONS, Kind
from resources.timings import Timings
from workflows.machine import MachineWorkflow
from workflows.machine.entity import MachineEntity

WAITS = [name for name, reason in REASONS.items() if Kind.WAIT in reason.kind]

AT_ONCE = timedelta(milliseconds=50)
QUICK = Timings.fast().model_copy(
    update={"retry": dict.fromkeys(ErrorClass, AT_ONCE), "consistency": AT_ONCE, "settle": timedelta(milliseconds=300)}
)


class Waits:
    """What every wait of a machine's workflow says when it begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: set[str] = set()
        self.silent: list[str] = []
        until = MachineEntity.until

        async def watched(entity: MachineEntity, condition: Callable[[], bool], *names: str) -> None:
            self.look(entity.s)
            await until(entity, condition, *names)

        monkeypatch.setattr(MachineEntity, "until", watched)

    def look(self, s: MachineState) -> None:
        waiting = s.status.waiting_for
        if waiting is not None:
            self.said.add(waiting.reason)
        if s.status.phase == Phase.RUNNING and waiting is None:
            return  # it waits for nothing but news
        if waiting is None or not waiting.message.strip() or waiting.reason not in WAITS:
            self.silent.append(f"{s.status.phase}: {waiting!r}")


@contextlib.asynccontextmanager
async def watched(temporal: WorkflowEnvironment) -> AsyncIterator[Machines]:
    """Runs the workflows outside the sandbox, so that the test sees each of their waits."""
    async with (
        stubbed(temporal.client, workflows=False) as machines,
        Worker(
            temporal.client,
            task_queue=machines.prefix,
            workflows=worker.WORKFLOWS,
            workflow_runner=worker.sandbox(strict=False),
        ),
    ):
        yield machines


async def test_no_wait_of_a_life_is_without_reason_and_words(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life with a failure of every class at every step."""
    seen = Waits(monkeypatch)
    async with watched(temporal) as machines:
        over = ApplicationError(
            "terminated", ErrorInfo.of(ErrorClass.CONFLICT, "terminated"), True, type=IDEMPOTENCY, non_retryable=True
        )
        machines.stubs.then("create_machine", *(classified(e, last=True) for e in ErrorClass), over)
        for step in ("update_machine", "join_node", "remove_ready_taint", "drain_node", "delete_machine"):
            machines.stubs.then(step, classified(ErrorClass.AUTH, "not authorized"))
        machines.stubs.then("forget_machine", classified(ErrorClass.TRANSIENT, "connection refused", last=True))
        handle = await machines.start(machines.new_state("m-1", QUICK, health_timeout=timedelta(minutes=10)))
        await reason(handle, "NodeNotSeen")
        for facts, told in (
            ({"ready": False, "reason": "KubeletNotReady"}, "NodeNotReady"),
            ({"startupTaints": ["node.cloudprovider.kubernetes.io/uninitialized"]}, "StartupTaint"),
        ):
            await handle.signal(MachineWorkflow.observe, machines.facts(**facts))
            await reason(handle, told)
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, Phase.RUNNING)
        for facts, told in (
            ({"ready": False, "reason": "KubeletNotReady"}, "NodeNotReady"),
            ({"conditions": {"KernelDeadlock": "True"}}, "NodeUnhealthy"),
            ({"exists": False}, "NodeMissing"),
        ):
            await handle.signal(MachineWorkflow.observe, machines.facts(**facts))
            await reason(handle, told)
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, Phase.RUNNING)
        assert "Settling" in seen.said  # which passes on its own
        machines.stubs.always["look_at_vm"] = VmLook(state="gone")
        for seq, state in enumerate(("stopped", "gone"), 1):
            await handle.signal(MachineWorkflow.observe_vm, VmFacts(epoch=1, seq=seq, providerID=VM, state=state))
            await reason(handle, {"stopped": "VMNotRunning", "gone": "VMGone"}[state])
        await handle.execute_update(MachineWorkflow.delete, DeleteIntent(requested_by="test"))
        await handle.result()
    assert seen.silent == []
    assert seen.said >= {
        "CreatingVM", "OutOfCapacity", "QuotaExceeded", "NotAuthorized", "InvalidSpec", "ReferenceNotFound",
        "ProviderError", "Throttled", "Conflict", "ProviderUnavailable", "AttemptIsOver", "PostStartUpdate",
        "NodeNotSeen", "NodeTemplate", "StartupTaint", "ReadyTaint", "Draining", "DeletingVM", "Forgetting",
    }  # fmt: skip


async def test_no_wait_of_a_machine_that_fails_is_without_reason_and_words(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fresh looks fail first, then they agree; it is drained in Failed, and stays so."""
    seen = Waits(monkeypatch)
    sick = {"ready": False, "reason": "KubeletNotReady"}
    async with watched(temporal) as machines:
        machines.stubs.then("look_at_node", classified(ErrorClass.AUTH, "forbidden"), *[looked(**sick)] * 9)
        machines.stubs.then("drain_node", classified(ErrorClass.TRANSIENT, "connection refused"))
        handle = await machines.start(machines.new_state("m-1", QUICK, health_timeout=timedelta(seconds=3)))
        await reason(handle, "NodeNotSeen")
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, Phase.RUNNING)
        await handle.signal(MachineWorkflow.observe, machines.facts(**sick))
        await reason(handle, "HealthTimeout")
    assert seen.silent == []
    assert seen.said >= {"NodeNotReady", "CannotConfirm", "ConfirmingFailure", "Draining", "HealthTimeout"}


async def test_no_wait_for_a_class_or_for_a_hot_update_is_without_reason_and_words(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Waits(monkeypatch)
    async with watched(temporal) as machines:
        state = machines.new_state("m-1", QUICK)
        former = state.machine_class
        assert former is not None
        handle = await machines.start(state.model_copy(update={"machine_class": None}))
        await reason(handle, "ClassMissing")
        machines.stubs.classes[former.name] = former
        await reason(handle, "NodeNotSeen")
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, Phase.RUNNING)
        machines.stubs.then("update_machine", classified(ErrorClass.AUTH, "not authorized"))
        spec = {**former.provider_spec, "vmTags": {**former.provider_spec["vmTags"], "cost": "b"}}
        wanted = former.model_copy(update={"generation": 2, "provider_spec": spec})
        await handle.signal(MachineWorkflow.class_changed, ClassNews(machine_class=wanted))
        await eventually(lambda: stubs_state(handle), lambda s: s.status.applied_generation == 2, "updated")
        told = [h.reason for h in (await stubs_state(handle)).journal]
        assert [r for r in told if r in ("ClassTaken", "UpdateFailed", "Updated")] == [
            "ClassTaken",
            "UpdateFailed",
            "Updated",
        ]
    assert seen.silent == []
    assert seen.said >= {"ClassMissing", "HotUpdate", "UpdateFailed"}


def test_a_silent_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, state = Waits(monkeypatch), waits_for("Settling")
    seen.look(state)
    assert (seen.silent, seen.said) == ([], {"Settling"})
    without_words = WaitingFor(reason="Settling", message=" ", since=NOW)
    unknown = WaitingFor(reason="Odd", message="words", since=NOW)
    for waiting in (None, without_words, unknown):
        state.status.waiting_for = waiting
        seen.look(state)
    assert len(seen.silent) == 3
