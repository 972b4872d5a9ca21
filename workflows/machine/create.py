"""Creating the VM: one attempt, one token, until there is an id."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of
from workflows.machine import confirm, hot_update, terminate
from workflows.machine.entity import MachineEntity
from workflows.machine.find import find_node
from workflows.machine.report import account_of, report, said

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from planners.machine.creation import (
        Retry,
        after_failed_create,
        after_lost_token,
        after_taken_name,
        may_have_asked,
        plan_attempt,
        still_making,
        token_of,
    )
    from planners.provider_spec import spec_hash
    from resources.calls.cloud import CreateInput, CreateOutput
    from resources.clouds import launch_annotations, provider_key
    from resources.errors import IDEMPOTENCY, IN_PROGRESS, NAME_TAKEN, NOT_WANTED
    from resources.machine.advice import GONE
    from resources.machine.facts import NodeFacts, VmFacts
    from resources.machine.state import AppliedSpec, Attempt, OperationState, OperationType, Phase
    from resources.machine_class.state import UpdateState

HEEDED = "deletion-heeded"
"""The patch by which a deletion that is requested while the create call is in flight makes the machine Terminating at
once."""


async def create(machine: MachineEntity) -> None:
    """Ends with an id recorded, with the machine Failed, or with a deletion wanted.

    A recorded id is never replaced: if that VM goes, the machine is Failed, not created again.
    """
    state = machine.s
    attempt_over = False
    while not (machine.status.provider_id or machine.leaving or machine.failed_at_deadline()):
        # Intent before effect: attempt and token are in state before anything billable is requested.
        state.asked = state.asked and state.attempt is not None
        former, state.attempt = (
            state.attempt,
            plan_attempt(state.attempt, attempt_over, machine.snapshot, state.uid, workflow.now()),
        )
        if former is None or former.token != state.attempt.token:
            state.begun = None  # another token makes another VM
        _remember(machine, former)
        _told(machine, UpdateState.PENDING)
        report(machine)  # a class that it had before learns that the machine no longer uses it
        retry = await _try(machine)
        if retry is None or machine.leaving:
            return
        attempt_over = retry.attempt_over
        await _wait(machine, retry, called=workflow.now())


async def _try(machine: MachineEntity) -> Retry | None:
    """Runs one create activity and always awaits its answer: a VM that nobody knows of is the one thing not to
    leave."""
    state = machine.s
    assert state.attempt is not None
    assert state.created is not None
    number = state.attempt.number
    asked, state.asked = state.asked, True  # for a run that ends before it has the answer
    machine.waiting("CreatingVM", f"the create call is in progress (attempt {number}, {machine.snapshot.provider})")
    machine.operation(OperationType.CREATE, OperationState.PROCESSING, "Creating machine on cloud provider")
    handle = machine.start(
        MachineActivities.create_machine,
        CreateInput(
            target=machine.target(),
            attempt=number,
            started=state.attempt.started,
            deadline=machine.must_be_running_by,
            class_name=state.attempt.machine_class.name,
            generation=state.attempt.machine_class.generation,
            takes=state.takes,
            begun=state.begun,
            annotations=launch_annotations(machine.snapshot.provider, state.spec.node_template.metadata.annotations),
        ),
        queue=machine.cloud,
        summary="create VM" + (f", request {number}" if number > 1 else ""),
        urgency=Urgency.CREATE,
    )
    await _heed(machine, handle)
    try:
        # In this run: whoever knows of the call waits for the lag window before using another token. A machine without
        # a VM gets few messages.
        output = await machine.answer(handle)
    except ActivityError as e:
        failure = failure_of(e)
        state.begun = failure.info.begun
        state.asked = may_have_asked(asked, failure.kind, failure.info.account_id)
        if failure.kind == NOT_WANTED and not failure.info.account_id:
            return None  # no try of the call got so far that there may be a VM
        if failure.kind == IN_PROGRESS:
            state.account_id = failure.info.account_id or state.account_id
            return still_making(failure.info, workflow.now(), machine.status.phase)
        info = failure.info.model_copy(update={"message": machine.words_of_cloud(failure)})
        state.create_failure, state.create_failures = info, state.create_failures + 1
        state.account_id = info.account_id or state.account_id
        if failure.kind == IDEMPOTENCY:
            return after_lost_token(info, workflow.now(), state.timings, state.attempt.number)
        if failure.kind == NAME_TAKEN:
            return after_taken_name(info, workflow.now(), state.timings)
        return after_failed_create(info, workflow.now(), state.timings, failure.reason, machine.tried(failure.reason))
    _record(machine, output)
    if output.adopted and state.node is None and not machine.leaving and workflow.patched("found-node"):
        # It may have joined already: the watch told of it before, to those who were there, and only tells changes.
        await find_node(machine, lambda: machine.leaving)
    return None


async def _heed(machine: MachineEntity, handle: workflow.ActivityHandle[CreateOutput]) -> None:
    """Waits until the call is answered or a deletion is requested. The deletion shows at once, so that no later try of
    the call, which first asks how the machine stands (activities/temporal/records.py), makes a VM that nobody wants."""

    def leaves() -> bool:
        asked = machine.s.deletion is not None and machine.status.phase != Phase.TERMINATING
        return asked and workflow.patched(HEEDED)

    await machine.until(lambda: handle.done() or leaves(), "creation")
    machine.failed_at_deadline()
    await machine.beside(lambda: handle.done() or leaves())
    if not handle.done():
        terminate.begin(machine)


def _remember(m: MachineEntity, former: Attempt | None) -> None:
    """Remembers the former attempt's spec: a VM that its call made after all is adopted by this one, and carries it."""
    s = m.s
    assert s.attempt is not None
    spec = former.machine_class.provider_spec if former else None
    if spec is not None and spec != s.attempt.machine_class.provider_spec:
        m.attempted(spec)


def _told(m: MachineEntity, state: UpdateState) -> None:
    """Records what the create activity says to the class, at its beginning and at its end."""
    s = m.s
    assert s.attempt is not None
    made_from = s.attempt.machine_class
    s.classes = list(dict.fromkeys([*s.classes, made_from.name]))
    s.reported = said(made_from.generation, made_from.generation if state == UpdateState.UPDATED else 0, state)


def _record(machine: MachineEntity, output: CreateOutput) -> None:
    state, status = machine.s, machine.status
    assert state.attempt is not None
    spec = state.attempt.machine_class.provider_spec
    if (
        state.attempted_specs and output.adopted
    ):  # which call made it is not known: better Outdated than wrongly up to date
        spec, *state.attempted_specs = [*state.attempted_specs, spec]
    else:
        state.attempted_specs = []
    state.made, state.tagged = workflow.now(), output.tagged
    state.account_id = output.account_id or state.account_id
    state.create_failure = state.begun = None
    if output.uid:
        machine.note(
            "VMTakenOver",
            f"{output.provider_id} belongs to this machine, which takes its uid {output.uid} instead of {state.uid}",
        )
        state.uid = output.uid
        state.attempt = state.attempt.model_copy(update={"token": token_of(output.uid, state.attempt.number)})
    if state.node is not None and not _is_its(state.node, output):
        state.node = None  # taken while nobody could say whose it is; news of the VM's own Node will come
    status.provider_id = output.provider_id
    status.node_name = output.node_name or None
    status.addresses = output.addresses
    status.last_applied_provider_spec = AppliedSpec(hash=spec_hash(spec), provider_spec=spec)
    status.applied_generation = 0 if state.attempted_specs else state.attempt.machine_class.generation
    if account := account_of(machine, state.attempt.machine_class):
        state.account = account.key
    if "creation" in machine.deadlines:
        confirm.arm(machine, machine.deadlines["creation"])
    if output.gone:
        _lost(machine, output)
        return
    if output.stale_node:
        state.stale = output.stale
        machine.fail(
            OperationType.CREATE,
            "StaleNode",
            f"VM was referring to stale node object: {output.provider_id} would be mistaken for node "
            f"{output.stale_node}, which is older; the VM is deleted",
        )
        return
    if output.doubts:
        machine.note("UserDataDoubtful", f"{output.provider_id} may never join: {'; '.join(output.doubts)}")
    _told(machine, UpdateState.UPDATED)
    if spec != machine.snapshot.provider_spec:
        hot_update.look_anew(machine)
    if status.phase == Phase.FAILED:
        machine.note("VMCreated", f"{output.provider_id} exists, but the creation deadline has passed")
    elif status.phase == Phase.TERMINATING:
        machine.note("VMCreated", f"{output.provider_id} exists, and is deleted with the machine")
    else:
        words = f"{output.provider_id} {'found and adopted' if output.adopted else 'created'}"
        machine.operation(OperationType.CREATE, OperationState.PROCESSING, words)
        machine.enter(Phase.PENDING, "VMAdopted" if output.adopted else "VMCreated", words)


def _lost(m: MachineEntity, output: CreateOutput) -> None:
    """The machine is what it was before its reset: one whose VM is gone."""
    m.s.vm = VmFacts(epoch=0, seq=0, provider_id=output.provider_id, state=GONE)
    words = (
        f"{output.provider_id}, which this machine had before its workflow was reset, is gone; it is not created again"
    )
    m.fail(OperationType.CREATE, "VMGone", words)


def _is_its(node: NodeFacts, vm: CreateOutput) -> bool:
    """Whether what was told of a Node before the VM's id was known can be about this VM."""
    if node.provider_id:
        return provider_key(node.provider_id) == provider_key(vm.provider_id)
    return not vm.node_name or node.name == vm.node_name


async def _wait(m: MachineEntity, retry: Retry, called: datetime) -> None:
    """Waits for the next try. A class that is corrected meanwhile is tried as soon as the lag window allows: it gets a
    new token, and a VM that the former call made after all must be seen first."""
    assert m.s.attempt is not None
    tried = m.s.attempt.machine_class  # the class may have changed while the call was in flight
    takes = m.s.takes
    await m.retry(retry, unless=lambda: m.snapshot != tried or m.s.takes != takes)
    soonest = called + m.s.timings.consistency
    if m.snapshot != tried and not m.leaving and workflow.now() < soonest:
        m.waiting("ClassChanged", "the changed class is tried once the cloud's lag window is over", soonest)
        await m.pause(soonest)
