"""The machine's workflow: intents, deadlines, waits, cancellation, parking, renewal. Stubs for activities; hours are
skipped by explicit fast-forward."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from histories.deadlines import at_once
from lifekit import eventually
from machine.stubs import (
    NODE,
    VM,
    Handle,
    Machines,
    a_delete,
    classified,
    not_yet,
    phase,
    reason,
    running,
    state,
    stubbed,
)
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from resources.calls.cloud import CreateOutput, StatusOutput
from resources.calls.drain import DrainBlocked, DrainInput, DrainOutput
from resources.cluster.news import AccountNews
from resources.errors import (
    CODE_OF,
    IDEMPOTENCY,
    IN_PROGRESS,
    MISSING_CREDENTIALS,
    WRONG_ACCOUNT,
    BegunOperation,
    Code,
    ErrorClass,
    ErrorInfo,
)
from resources.intents import Intent
from resources.machine.manifest import SecretRef
from resources.machine.state import ApplyIntent, Attempt, Deletion, MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow, post_start

# -- waits and deadlines --------------------------------------------------------------------------------------------


async def test_capacity_waits_ten_minutes(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """MCM C5."""
    machines.stubs.then("create_machine", classified(ErrorClass.CAPACITY, "no m5.large left"))
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "OutOfCapacity")
    assert seen.status.phase == Phase.CRASH_LOOP_BACK_OFF
    assert seen.status.last_operation.error_code == Code.RESOURCE_EXHAUSTED
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=50))
    assert len(machines.stubs.called("create_machine")) == 1
    await temporal.fast_forward(handle, timedelta(seconds=15))
    await reason(handle, "NodeNotSeen")
    first, second = machines.stubs.called("create_machine")
    assert first == second  # token, attempt, deadline, request: all the same


async def test_creation_deadline_is_exact_and_not_moved_by_retries(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """MCM #790: there CrashLoopBackOff becomes Failed only when the next call fails."""
    machines.stubs.then("create_machine", *(classified(ErrorClass.QUOTA, "limit 100") for _ in range(9)))
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=25)))
    await reason(handle, "QuotaExceeded")
    await temporal.fast_forward(handle, timedelta(minutes=26))
    failed = await phase(handle, Phase.FAILED)
    assert failed.journal[-1].reason == "CreationTimeout"
    await at_once(handle, failed.created + timedelta(minutes=25), failed.journal[-1].time)
    assert failed.journal[-1].message.startswith("limit 100 (for 25m); not Running within creationTimeout (25m)")
    assert failed.status.waiting_for.reason == "QuotaExceeded", "a person sees what held it up, and not the clock"
    assert failed.status.waiting_for.since == failed.journal[1].time
    assert len(machines.stubs.called("create_machine")) == 3  # at 0, 10 and 20 minutes


async def test_the_deadline_counts_while_the_create_call_is_in_flight(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """The machine is Failed exactly then; the answer is awaited all the same, so that the VM is known and deleted."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(seconds=1)))
    failed = await phase(handle, Phase.FAILED)
    assert failed.status.provider_id is None
    hold.set()
    known = await eventually(lambda: state(handle), lambda s: s.status.provider_id == VM)
    assert known.status.phase == Phase.FAILED
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()
    assert [i.target.provider_id for i in machines.stubs.called("delete_machine")] == [VM]


async def test_a_corrected_class_is_tried_at_the_lag_window_with_a_new_token(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    machines.stubs.then("create_machine", classified(ErrorClass.INVALID, "no such type"))
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "InvalidSpec")
    better = seen.machine_class.model_copy(
        update={"generation": 2, "provider_spec": {**seen.machine_class.provider_spec, "machineType": "m5.xlarge"}}
    )
    await handle.execute_update(
        MachineWorkflow.apply, ApplyIntent(id="a", spec=seen.spec, machine_class=better), id="a"
    )
    await reason(handle, "ClassChanged")
    await temporal.fast_forward(handle, timedelta(seconds=61))  # and not after three minutes
    await reason(handle, "NodeNotSeen")
    first, second = machines.stubs.called("create_machine")
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.target.token != second.target.token
    assert second.target.provider_spec["machineType"] == "m5.xlarge"


async def test_a_dead_token_makes_a_new_attempt_after_the_lag_window(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """IdempotentInstanceTerminated: what the token made is dead."""
    info = ErrorInfo(error_class=ErrorClass.CONFLICT, code=CODE_OF[ErrorClass.CONFLICT], message="terminated")
    machines.stubs.then(
        "create_machine", ApplicationError("terminated", info, True, type=IDEMPOTENCY, non_retryable=True)
    )
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "AttemptIsOver")
    await temporal.fast_forward(handle, timedelta(seconds=61))
    await reason(handle, "NodeNotSeen")
    assert [i.attempt for i in machines.stubs.called("create_machine")] == [1, 2]


async def test_a_creation_that_takes_longer_than_its_activity_may_goes_on_with_its_token(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """This is no failure: the machine stays Pending, and says what is being made."""
    info = ErrorInfo.of(ErrorClass.TRANSIENT, "network interface nic-1 is being made")
    begun = BegunOperation(call="CreateNic", what="network interface nic-1", address="nic-1")
    info = info.model_copy(update={"account_id": "1", "retry_after": 600.0, "begun": begun})
    machines.stubs.then("create_machine", ApplicationError(info.message, info, type=IN_PROGRESS, non_retryable=True))
    handle = await machines.start(machines.new_state("m-1"))

    def waits(seen: MachineState) -> bool:
        waiting = seen.status.waiting_for
        return waiting is not None and waiting.message == info.message and waiting.next_try is not None

    seen = await eventually(lambda: state(handle), waits, "the creation under way")
    assert (seen.status.phase, seen.status.waiting_for.reason) == (Phase.PENDING, "CreatingVM")
    assert (seen.create_failures, seen.account_id) == (0, "1")
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=1))
    await reason(handle, "NodeNotSeen")
    first, second = machines.stubs.called("create_machine")
    assert first.target.token == second.target.token
    assert (first.begun, second.begun) == (None, begun)  # a worker that knows nothing asks for it
    assert (await state(handle)).begun is None


async def test_the_account_of_a_call_without_an_answer_is_that_of_each_later_call(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    lost = classified(ErrorClass.UNKNOWN, "no answer", account_id="1")
    other = ErrorInfo.of(ErrorClass.AUTH, "the credentials of default/demo-aws open account 2")
    refused = ApplicationError(other.message, other, type=WRONG_ACCOUNT, non_retryable=True)
    made = CreateOutput(provider_id=VM, node_name="node-1", adopted=True, account_id="1")
    machines.stubs.then("create_machine", lost, refused, made)
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "ProviderError")
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    seen = await reason(handle, "WrongAccount")
    assert (seen.status.phase, seen.status.waiting_for.message) == (Phase.CRASH_LOOP_BACK_OFF, other.message)
    assert (seen.create_failures, seen.create_failure) == (2, other)  # its pool hears of both
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    seen = await reason(handle, "NodeNotSeen")
    assert seen.account_id == "1"
    assert [i.target.account_id for i in machines.stubs.called("create_machine")] == ["", "1", "1"]
    assert machines.stubs.called("update_machine")[0].target.account_id == "1"


async def test_a_machine_whose_secret_opens_another_account_says_so_while_it_runs(machines: Machines) -> None:
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, account_id="1"))
    handle = await running(machines)

    async def told(opened: str) -> list[tuple[str, str, str]]:
        """The newest condition, once the present news has been heard."""
        news = AccountNews(opened=opened, owner="1", secret_ref=SecretRef(name="demo-aws"))
        before = (await state(handle)).messages
        await handle.signal(MachineWorkflow.account_news, news)
        now = await eventually(lambda: state(handle), lambda s: s.messages > before)
        assert now.status.phase == Phase.RUNNING
        return [(c.type, c.reason, c.message) for c in now.status.conditions]

    ((kind, why, words),) = await told("2")
    assert (kind, why) == ("WrongAccount", "WrongAccount")
    assert words.startswith(f"Secret default/demo-aws opens account 2, but {VM} is in account 1: ")
    assert await told("1") == []
    assert len(await told("3")) == 1
    assert await told("") == []
    assert len(await told("2")) == 1
    seen = await state(handle)
    other = seen.machine_class.model_copy(update={"secret_ref": SecretRef(name="demo-2"), "generation": 2})
    await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="a", spec=seen.spec, machine_class=other), id="a")
    assert (await state(handle)).status.conditions == []
    assert await told("2") == []  # about the Secret that its class has left


async def test_an_absent_worker_is_a_wait_and_not_a_failure(temporal: WorkflowEnvironment, machines: Machines) -> None:
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    waits = await reason(handle, "CreatingVM")
    assert waits.status.phase == Phase.PENDING
    assert waits.status.waiting_for.next_try is None
    hold.set()
    await reason(handle, "NodeNotSeen")


async def test_post_start_failure_keeps_pending_and_does_not_create_again(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """Seed 000 against MCM C10: Pending with Update/Failed, not CrashLoopBackOff."""
    machines.stubs.then("update_machine", classified(ErrorClass.AUTH, "not authorized to ModifyInstanceAttribute"))
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "NotAuthorized")
    operation = seen.status.last_operation
    assert (seen.status.phase, operation.type, operation.state) == (Phase.PENDING, "Update", "Failed")
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    seen = await reason(handle, "NodeNotSeen")
    operation = seen.status.last_operation
    assert (seen.status.phase, operation.type, operation.state) == (Phase.PENDING, "Update", "Successful")
    assert len(machines.stubs.called("create_machine")) == 1


async def test_a_node_that_is_ready_waits_for_the_post_start_update(machines: Machines) -> None:
    """The instance-not-ready taint is what holds work back until then (seed 000)."""
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "PostStartUpdate")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    assert machines.stubs.called("remove_ready_taint") == []
    hold.set()
    await phase(handle, Phase.RUNNING)
    assert len(machines.stubs.called("remove_ready_taint")) == 1


async def test_a_vm_is_looked_at_only_when_its_node_takes_long(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """A machine that joins in time costs no look; for one that does not, the looks do not move the deadline."""
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=5)))
    await reason(handle, "NodeNotSeen")
    assert (await state(handle)).status.deadlines.keys() == {"creation", "confirm", "look"}
    assert machines.stubs.called("watch_machine") == []
    await temporal.fast_forward(handle, timedelta(seconds=31))
    await eventually(lambda: _pending_failure(handle), what="the first look over")  # time is not skipped during one
    # Not much further than a deadline: beside a pending activity time may be skipped to the end in one go.
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=30))
    await eventually(lambda: state(handle), lambda s: s.suspicion, "the first of the two fresh looks")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    failed = await phase(handle, Phase.FAILED)
    await at_once(handle, failed.created + timedelta(minutes=5), failed.journal[-1].time)


async def test_a_vm_that_is_gone_is_failed_not_created_again(machines: Machines) -> None:
    """MCM C11."""
    machines.stubs.then("watch_machine", StatusOutput(gone=True, message=f"{VM} is terminated"))
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(0))))
    failed = await phase(handle, Phase.FAILED)
    assert failed.journal[-1].reason == "VMGone"
    assert len(machines.stubs.called("create_machine")) == 1


# -- health ---------------------------------------------------------------------------------------------------------


async def test_unknown_settles_and_a_flap_starts_settling_anew(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await running(machines)
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False, reason="KubeletNotReady"))
    seen = await phase(handle, Phase.UNKNOWN)
    assert "KubeletNotReady" in seen.status.waiting_for.message
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(seconds=20))
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    await reason(handle, "NodeNotReady")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(seconds=20))
    assert (await state(handle)).status.phase == Phase.UNKNOWN
    await temporal.fast_forward(handle, timedelta(seconds=11))
    await phase(handle, Phase.RUNNING)


async def test_old_news_and_another_vms_news_are_dropped(machines: Machines) -> None:
    handle = await running(machines)
    old = machines.facts(epoch=0, ready=False)
    other = machines.facts(provider_id="aws:///eu-west-1/i-2", ready=False)
    same_vm = machines.facts(provider_id="aws:///eu-west-1a/i-1", addresses=["10.0.0.9"])  # as the CCM writes it
    for facts in (old, other, same_vm):
        await handle.signal(MachineWorkflow.observe, facts)
    seen = await eventually(lambda: state(handle), lambda s: s.node.addresses == ["10.0.0.9"])
    assert seen.status.phase == Phase.RUNNING
    assert seen.node.ready


# -- drain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "its_own"),
    [
        pytest.param({"provider_id": "aws:///eu-west-1a/i-1"}, True, id="its own, as the cloud provider writes it"),
        pytest.param({"provider_id": "aws:///eu-west-1/i-9"}, False, id="of another VM"),
        pytest.param({"provider_id": "", "name": "node-9"}, False, id="of nobody, and of another name"),
    ],
)
async def test_a_node_is_judged_again_once_the_id_is_known(
    machines: Machines, facts: dict[str, str], its_own: bool
) -> None:
    """While there is no id, any Node that is told may be the machine's: after a reset the former VM's is there."""
    machines.stubs.holds["create_machine"] = answers = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    await handle.signal(MachineWorkflow.observe, machines.facts(**facts))
    await eventually(lambda: state(handle), lambda s: s.node, "the news of a Node")
    answers.set()
    if not its_own:
        made = await eventually(lambda: state(handle), lambda s: s.post_start_done, "its VM")
        assert made.node is None
        assert machines.stubs.called("join_node") == []
        await handle.signal(MachineWorkflow.observe, machines.facts())
    assert (await phase(handle, Phase.RUNNING)).status.node_name == NODE


async def test_drain_is_forced_exactly_at_its_deadline(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """MCM #785: there a drain of two hours ran for eleven."""
    handle = await running(machines, drain_timeout=timedelta(hours=2))

    def blocked(input: DrainInput) -> DrainOutput:
        if input.force:
            return DrainOutput(pods=3)
        raise not_yet("2 of 3 pods gone; default/web-1 blocked by PDB web (0 disruptions allowed)", timedelta(days=1))

    machines.stubs.then("drain_node", *[blocked] * 9)
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    waits = await reason(handle, "Draining")
    assert waits.status.deadlines["drain"] == waits.deletion.time + timedelta(hours=2)
    pending = await eventually(lambda: _pending_failure(handle))
    assert "blocked by PDB web" in pending
    # Not much further than the deadline: beside a pending activity time may be skipped to the end in one go.
    await temporal.fast_forward(handle, timedelta(hours=2, seconds=1))
    result = await handle.result()
    *gentle, forced = machines.stubs.called("drain_node")
    assert forced.force
    assert gentle
    assert not any(i.force for i in gentle)
    at = next(h.time for h in result.journal if h.reason == "DrainForced")
    await at_once(handle, gentle[0].deadline, at)


async def _pending_failure(handle: Handle) -> str:
    pending = (await handle.describe()).raw_description.pending_activities
    return str(pending[0].last_failure.message) if pending else ""


@pytest.mark.parametrize("force", [False, True])
async def test_a_deletion_without_credentials_says_what_would_end_it(machines: Machines, force: bool) -> None:
    """Somebody who insists must learn that the wait is not for pods."""
    missing = ErrorInfo.of(ErrorClass.AUTH, "Secret default/demo-aws does not exist in cluster demo")
    machines.stubs.then(
        "delete_machine", ApplicationError(missing.message, missing, type=MISSING_CREDENTIALS, non_retryable=True)
    )
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.execute_update(MachineWorkflow.delete, a_delete(force=force))
    words = (await reason(handle, "CredentialsMissing")).status.waiting_for.message
    assert words.startswith(f"{missing.message}; ")
    assert ("--force does not help here" in words) is force
    for way in (
        f"hostler apply -f SECRET-FILE --cluster {machines.prefix}",
        f"temporal workflow terminate -w machine/{machines.prefix}/m-1`",
    ):
        assert way in words


@pytest.mark.parametrize("asked", [False, True])
async def test_a_deletion_says_whether_a_vm_was_ever_asked_for(machines: Machines, asked: bool) -> None:
    missing = ErrorInfo.of(ErrorClass.AUTH, "Secret default/demo-aws does not exist in cluster demo")
    failure = ApplicationError(missing.message, missing, type=MISSING_CREDENTIALS, non_retryable=True)
    if asked:
        machines.stubs.then("create_machine", classified(ErrorClass.AUTH, "no right to create"))
    machines.stubs.always["create_machine"] = failure
    timings = Timings(poll=timedelta(seconds=1), retry={ErrorClass.AUTH: timedelta(seconds=0.1)})
    handle = await machines.start(machines.new_state("m-1", timings=timings))
    await reason(handle, "CredentialsMissing")
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()
    (call,) = machines.stubs.called("delete_machine")
    assert call.asked is asked


async def test_doubtful_user_data_stands_in_the_story(machines: Machines) -> None:
    made = CreateOutput(provider_id=VM, node_name=NODE, doubts=["<<BOOTSTRAP_TOKN>> is no placeholder"])
    machines.stubs.then("create_machine", made)
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "NodeNotSeen")
    (words,) = [h.message for h in seen.journal if h.reason == "UserDataDoubtful"]
    assert "<<BOOTSTRAP_TOKN>>" in words


async def test_force_shortens_a_drain_under_way(machines: Machines) -> None:
    """What was in the way stands in the story."""
    handle = await running(machines)
    machines.stubs.then("drain_node", not_yet("blocked", timedelta(days=1)))
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await machines.stubs.until_called("drain_node")
    for _ in range(2):  # said again by a worker that did not live to note that it was said
        await handle.signal(MachineWorkflow.drain_blocked, DrainBlocked(message="default/web-1 blocked by PDB web"))
    answer = await handle.execute_update(MachineWorkflow.delete, a_delete(force=True))
    assert "with force" in answer.message
    result = await handle.result()
    said = [h.message for h in result.journal if h.reason == "DrainBlocked"]
    assert said == ["default/web-1 blocked by PDB web"]
    assert [i.force for i in machines.stubs.called("drain_node")] == [False, True]
    assert len(machines.stubs.called("delete_machine")) == 1  # clean-up is never skipped


# -- intents --------------------------------------------------------------------------------------------------------


async def test_an_intent_by_update_and_by_signal_counts_once(machines: Machines) -> None:
    handle = await running(machines)
    hold = machines.stubs.holds["drain_node"] = asyncio.Event()
    intent = a_delete(reason="rotation")
    first = await handle.execute_update(MachineWorkflow.delete, intent, id=intent.id)
    await handle.signal("delete", intent)
    again = await handle.execute_update(MachineWorkflow.delete, intent, id="another-update")
    assert again == first
    other = await handle.execute_update(MachineWorkflow.delete, a_delete())
    assert "already" in other.message
    hold.set()
    result = await handle.result()
    assert [h.reason for h in result.journal].count("Terminating") == 1
    assert "rotation" in next(h.message for h in result.journal if h.reason == "Terminating")


async def test_a_refused_intent_leaves_no_history_by_update_and_a_line_by_signal(machines: Machines) -> None:
    handle = await running(machines)
    seen = await state(handle)
    older = ApplyIntent(id="x", spec=seen.spec, machine_class=seen.machine_class.model_copy(update={"provider": "GCP"}))
    before = len((await handle.fetch_history()).events)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(MachineWorkflow.apply, older, id="x")
    assert "cannot move from AWS to GCP" in str(refused.value.cause)
    assert len((await handle.fetch_history()).events) == before
    await handle.signal("apply", older)
    seen = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "Refused")
    assert seen.machine_class.provider == "AWS"


async def test_an_older_generation_is_refused(machines: Machines) -> None:
    handle = await running(machines)
    seen = await state(handle)
    newer = seen.machine_class.model_copy(update={"generation": 3})
    await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="3", spec=seen.spec, machine_class=newer))
    older = seen.machine_class.model_copy(update={"generation": 2})
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="2", spec=seen.spec, machine_class=older))
    assert "2 is older than 3" in str(refused.value.cause)


async def test_a_changed_class_makes_a_running_machine_outdated(machines: Machines) -> None:
    handle = await running(machines)
    seen = await state(handle)
    spec = {**seen.machine_class.provider_spec, "machineType": "m5.xlarge"}
    changed = seen.machine_class.model_copy(update={"generation": 2, "provider_spec": spec})
    answer = await handle.execute_update(
        MachineWorkflow.apply, ApplyIntent(id="1", spec=seen.spec, machine_class=changed)
    )
    assert "providerSpec.machineType" in answer.message
    (condition,) = (await state(handle)).status.conditions
    assert condition.type == "Outdated"
    back = seen.machine_class.model_copy(update={"generation": 3})
    await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="2", spec=seen.spec, machine_class=back))
    assert (await state(handle)).status.conditions == []


# -- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["create in flight", "running"])
async def test_a_cancellation_is_swallowed_and_shown(machines: Machines, moment: str) -> None:
    """A workflow cancel of a machine must not leak a VM."""
    if moment == "running":
        handle = await running(machines)
        await handle.cancel()
    else:
        hold = machines.stubs.holds["create_machine"] = asyncio.Event()
        handle = await machines.start(machines.new_state("m-1"))
        await eventually(lambda: _called(machines, "create_machine"))
        await handle.cancel()
        hold.set()
    seen = await eventually(lambda: state(handle), lambda s: s.status.conditions)
    assert [c.type for c in seen.status.conditions] == ["CancelIgnored"]
    await eventually(lambda: state(handle), lambda s: s.status.provider_id == VM)
    if moment != "running":
        await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()
    assert len(machines.stubs.called("delete_machine")) == 1


async def _called(machines: Machines, name: str) -> int:
    return len(machines.stubs.called(name))


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A bug in our own code, in the step after the create call, for as long as the list is not empty."""
    bugs = ["a bug"]
    real = post_start.may_update_after_start

    def buggy(*arguments: Any) -> bool:
        if bugs:
            raise ValueError(bugs[0])
        return real(*arguments)

    monkeypatch.setattr(post_start, "may_update_after_start", buggy)
    return bugs


async def test_an_error_of_ours_parks_the_machine_and_renew_goes_on(machines: Machines, bug: list[str]) -> None:
    handle = await machines.start(machines.new_state("m-1"))
    first_run = (await handle.describe()).run_id
    handle = machines.client.get_workflow_handle(handle.id)
    parked = await reason(handle, "InternalError")
    assert parked.parked == "ValueError: a bug"
    assert "hostler renew machine m-1" in parked.status.waiting_for.message
    assert parked.status.provider_id == VM
    assert (await handle.describe()).run_id != first_run  # so that a fixed worker need not replay the error
    bug.clear()
    answer = await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="r"))
    assert "tried again" in answer.message
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    assert len(machines.stubs.called("create_machine")) == 1


async def test_a_parked_machine_can_be_deleted(
    temporal: WorkflowEnvironment, machines: Machines, bug: list[str]
) -> None:
    """It can be, even long after its deadlines, which mean nothing while it is parked."""
    started = await machines.start(machines.new_state("m-1"))
    handle = machines.client.get_workflow_handle(started.id)
    await reason(handle, "InternalError")
    await temporal.fast_forward(handle, timedelta(minutes=21))
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()
    assert [i.target.provider_id for i in machines.stubs.called("delete_machine")] == [VM]


async def test_renew_begins_a_new_run_and_keeps_everything(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = machines.client.get_workflow_handle((await running(machines)).id)
    before = await state(handle)
    run = (await handle.describe()).run_id
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="r"))
    await eventually(lambda: _another_run(handle, run), what="a new run")
    after = await state(handle)
    unlike = {"messages", "intents", "reports"}
    assert after.model_dump(exclude=unlike) == before.model_dump(exclude=unlike)
    assert set(after.intents) == {"r"}
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    await phase(handle, Phase.UNKNOWN)
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()


async def _another_run(handle: Handle, run: str) -> bool:
    return (await handle.describe()).run_id != run


async def test_many_messages_renew_by_themselves(machines: Machines) -> None:
    handle = machines.client.get_workflow_handle((await running(machines)).id)
    run = (await handle.describe()).run_id
    for first in range(0, 420, 60):
        facts = [machines.facts(addresses=[f"10.0.0.{n % 250}"]) for n in range(first, first + 60)]
        await asyncio.gather(*(handle.signal(MachineWorkflow.observe, each) for each in facts))
    await eventually(lambda: _another_run(handle, run), what="a new run")
    last = machines.facts(addresses=["10.9.9.9"])
    await handle.signal(MachineWorkflow.observe, last)
    await eventually(lambda: state(handle), lambda s: s.node == last, "the last fact")


@pytest.mark.parametrize(
    "failing",
    ["delete_machine", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("forget_machine", "drain_node"))],
)
async def test_what_is_tried_for_ever_does_not_grow_a_history_for_ever(
    temporal: WorkflowEnvironment, machines: Machines, failing: str
) -> None:
    """A try costs a dozen events, and the server ends a workflow at 51,200: a pause is a safe point too."""
    machines.stubs.then(failing, *[classified(ErrorClass.CONFLICT, "in the way")] * 3)
    now = datetime.now(UTC)
    new = machines.new_state("m-1").model_copy(update={"messages": 400})
    new.uid, new.created, new.made = str(uuid.uuid4()), now, now
    new.attempt = Attempt(number=1, token="t", started=now, machine_class=new.machine_class)
    new.post_start_done = new.joined = True
    new.status.provider_id, new.status.node_name = VM, NODE
    new.deletion = Deletion(time=now)
    started = await machines.start(new)
    handle = machines.client.get_workflow_handle(started.id)
    await eventually(lambda: _another_run(handle, started.first_execution_run_id), what="a new run")
    conflict = await reason(handle, "Conflict")
    assert conflict.status.waiting_for.since == conflict.trouble.since
    while len(machines.stubs.called(failing)) < 4:
        await temporal.fast_forward(handle, timedelta(seconds=6))
    assert (await handle.result())["uid"] == new.uid
    assert len(machines.stubs.called(failing)) == 4


async def test_more_machines_than_the_cache_holds(temporal: WorkflowEnvironment) -> None:
    """Eviction is no cancellation: all answer, and the worker shuts down."""
    async with stubbed(temporal.client, max_cached_workflows=2) as machines:
        handles = [await machines.start(machines.new_state(f"m-{n}")) for n in range(6)]
        for handle in handles:
            await reason(handle, "NodeNotSeen")
        for handle in handles:
            await handle.signal(MachineWorkflow.observe, machines.facts())
        for handle in handles:
            seen = await phase(handle, Phase.RUNNING)
            assert seen.status.conditions == []
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 20


async def test_without_a_class_it_asks_for_it_and_waits_with_words(machines: Machines) -> None:
    bare = machines.new_state("m-1").model_copy(update={"machine_class": None})
    handle = await machines.start(bare)
    waits = await reason(handle, "ClassMissing")
    assert f"MachineClass demo-m5-large of cluster {machines.prefix}" in waits.status.waiting_for.message
    assert {name for name, _ in machines.stubs.calls} <= {"ask_class"}


async def test_a_name_that_no_node_could_have_as_a_label_is_refused_with_words(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m" * 64))
    with pytest.raises(WorkflowFailureError) as refused:
        await handle.result()
    assert "at most 63" in str(refused.value.cause)


async def test_a_deleted_name_is_a_new_life_with_a_new_uid(machines: Machines) -> None:
    handle = await running(machines)
    first = (await state(handle)).uid
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()
    again = await machines.start(machines.new_state("m-1"))
    assert (await state(again)).uid not in ("", first)


async def test_a_full_state_is_small(machines: Machines) -> None:
    """The payload limit is 2 MiB; a machine takes a few KiB."""
    handle = await running(machines)
    for n in range(60):
        await handle.signal("apply", {"id": f"{n}", "spec": {"class": {"name": "c"}}, "machineClass": _gcp()})
    seen = await eventually(lambda: state(handle), lambda s: s.journal[0].reason == "Refused")
    assert len(seen.journal) == 50
    assert len(seen.model_dump_json(by_alias=True)) < 32 * 1024


def _gcp() -> dict[str, Any]:
    return {"name": "demo-m5-large", "provider": "GCP", "providerSpec": {}, "secretRef": {"name": "s"}}


def test_timings_are_an_argument() -> None:
    """What a workflow decides by must be the same at every replay, so no worker's setting may reach it."""
    assert "timings" in MachineState.model_fields
    assert Timings().heartbeat == timedelta(seconds=10)


async def test_creating_goes_before_deleting_before_looking(machines: Machines) -> None:
    """A rate limit of the cloud's queue must not let creations starve behind polls (field case P25)."""
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(0))))
    await eventually(lambda: _called(machines, "watch_machine"))
    await handle.execute_update(MachineWorkflow.delete, a_delete())
    await handle.result()
    keys = {}
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            keys[scheduled.activity_type.name] = scheduled.priority.priority_key
    assert keys["create_machine"] < keys["delete_machine"] < keys["watch_machine"]
