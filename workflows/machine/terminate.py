"""The end of a machine: drain, delete until gone, forget. Each step first asks whether it is already done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from workflows.calls import Urgency, failure_of
from workflows.entity import NEVER
from workflows.machine import claim, hooks, hot_update, preserve
from workflows.machine.entity import PRESERVATION_TIMES, MachineEntity
from workflows.machine.report import class_news, report

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from activities.cluster.node import NodeActivities
    from activities.drain.nodes import DrainActivities
    from planners.machine.claims import WELL
    from planners.machine.deletion import way_out
    from resources.base import later
    from resources.calls.cloud import DeleteInput
    from resources.calls.cluster import ForgetInput, ForgetOutput
    from resources.calls.drain import DrainInput, DrainOutput
    from resources.errors import PASSING
    from resources.machine.manifest import HookKind
    from resources.machine.state import ClassSnapshot, OperationState, OperationType, Phase
    from resources.names import class_id, cluster_id, cluster_queue, drain_queue
    from resources.words import by_whom, utc


LEFT_SHOWN = 5
"""How many pods and volumes that were not waited for the words name; the activity's result has them all."""


def begin(m: MachineEntity) -> None:
    deletion = m.s.deletion
    if deletion is None or m.status.phase == Phase.TERMINATING:
        return
    m.deadlines.clear()
    m.s.trouble = None
    hot_update.give_up(m)
    preserve.give_up(m)
    by = by_whom(deletion.requested_by, deletion.reason)
    then = "; then it is created again" if deletion.recreate else ""
    m.enter(Phase.TERMINATING, "Terminating", f"deletion was requested{by}{then}")


async def drain(machine: MachineEntity) -> None:
    """Evicts until the deadline, which is absolute; then, or when an operator insists, comes the force pass.

    A machine that Failed is drained at once, while Failed; a deletion that comes meanwhile continues the same drain.
    """
    s = machine.s
    begin(machine)
    if s.look_again and s.deletion is not None and workflow.patched("look-again"):
        await _look_again(machine)
    if s.drained or not s.joined or machine.status.node_name is None:
        return
    # A drain that has begun is not held by a hook that came later.
    held = s.drain_began is None and await hooks.hold(
        machine, HookKind.PRE_DRAIN, partial(begin, machine), partial(_pass, machine)
    )
    if not machine.leaving:
        return  # well again while a hook held it
    if preserve.uncordons(machine):
        machine.waiting("Draining", f"waiting for a call that uncordons node {machine.status.node_name}")
        await _pass(machine, lambda: not preserve.uncordons(machine) or machine.s.deletion is not None)
    s.drain_began = s.drain_began or (s.deletion.time if s.deletion and not held else workflow.now())
    machine.operation(OperationType.DRAIN, OperationState.PROCESSING, f"draining node {machine.status.node_name}")
    gentle = False
    while not s.drained:
        begin(machine)
        deadline = later(s.drain_began, s.spec.drain_timeout)
        force = _insisted(machine) or workflow.now() >= deadline
        if not force:
            machine.deadlines["drain"], gentle = deadline, True
        else:
            machine.deadlines.pop("drain", None)
            if gentle:
                machine.note(
                    "DrainForced", "force was requested" if _insisted(machine) else "the drain deadline has passed"
                )
            gentle = False
        handle = _start_drain(machine, force)
        await _pass(machine, partial(_over_or_asked, machine, handle, force, _seen(machine)))
        if handle.done():
            await _end_of_pass(machine, handle, force)
        else:
            machine.drop(
                handle
            )  # the next pass continues with force, or in Terminating; one still under way does no harm
            if machine.overlong:
                await machine.renew()
    machine.deadlines.clear()


async def _pass(m: MachineEntity, over: Callable[[], bool]) -> None:
    """Waits until the pass is over or has to end. Meanwhile a class that speaks is answered, and a Failed machine is
    updated."""
    while not (over() or m.due("drain")):
        claim.keep_up(m)  # first: what is believed of the VM decides whether it is kept
        if preserve.step(m):
            continue
        hot_update.keep_up(m)
        report(m)
        await m.until(_or_class(m, over), "drain", "update", "claim", *PRESERVATION_TIMES)


def _or_class(m: MachineEntity, over: Callable[[], bool]) -> Callable[[], bool]:
    told, seen = class_news(m), _what_counts(m)
    return lambda: over() or told() or hot_update.calls(m) or claim.calls(m) or _what_counts(m) != seen


def _what_counts(m: MachineEntity) -> tuple[object, ...]:
    """What counts for a Failed machine that may be preserved."""
    return m.s.vm, *m.attention()


def _insisted(m: MachineEntity) -> bool:
    return m.s.deletion is not None and m.s.deletion.force


def _seen(m: MachineEntity) -> tuple[bool, list[str]]:
    """What a pass goes by: the VM and its Nodes."""
    return _dead(m), m.s.node.twins if m.s.node else []


def _over_or_asked(
    m: MachineEntity, handle: workflow.ActivityHandle[DrainOutput], force: bool, seen: tuple[bool, list[str]]
) -> bool:
    """Whether the pass is over, or has to go on in another way, or in a new run."""
    asked = m.s.deletion is not None and m.status.phase != Phase.TERMINATING
    return handle.done() or asked or (not force and _insisted(m)) or _seen(m) != seen or m.overlong


async def _end_of_pass(machine: MachineEntity, handle: workflow.ActivityHandle[DrainOutput], force: bool) -> None:
    try:
        _drained(machine, await handle)
    except ActivityError as e:
        failure = failure_of(e)
        words = failure.words
        machine.operation(OperationType.DRAIN, OperationState.FAILED, words, failure.info.code)
        if force and (_insisted(machine) or failure.info.error_class not in PASSING):
            # The promise to the pods ends at the deadline (MCM D12, D14): an API server that refuses the force pass for
            # good must not keep the machine. One out of reach does, until somebody insists: what runs there is not
            # known.
            machine.s.drained, machine.s.trouble = True, None
            machine.note("DrainFailed", f"the forced drain failed, and the deletion continues without it: {words}")
        else:
            await machine.back_off(failure, unless=lambda: machine.due("drain") or (_insisted(machine) and not force))


async def _look_again(machine: MachineEntity) -> None:
    """Looks at the Node again: it was drained while Failed, or before a hook held the machine for long. Before the VM
    goes, the volumes that are left are waited for; and somebody may have given it work since, which is evicted like any
    other. It was drained: a cluster that cannot be asked now holds nothing up."""
    s = machine.s
    while s.look_again:
        force = _insisted(machine)
        handle = _start_drain(machine, force, again=True)
        await _pass(machine, partial(_over_or_asked, machine, handle, force, _seen(machine)))
        if not handle.done():
            machine.drop(handle)
            if machine.overlong:
                await machine.renew()
            continue
        s.look_again = False
        try:
            output = await handle
        except ActivityError as e:
            words = failure_of(e).words
            machine.note(
                "DrainFailed",
                "the last look at the Node before the VM's deletion failed, and the deletion continues without it: "
                f"{words}",
            )
            return
        if output.uncordoned:
            s.drained, s.drain_began = False, workflow.now()
            words = "was uncordoned after it was drained; it is drained again"
            machine.note("Draining", f"node {machine.status.node_name} {words}")
        elif output.left:
            machine.note("Drained", f"node {machine.status.node_name} was drained; {_not_waited_for(output.left)}")


def _dead(m: MachineEntity) -> bool:
    """Whether nobody on the Node will confirm that a pod has stopped."""
    return m.s.vm is not None and m.s.vm.state not in WELL


def _start_drain(machine: MachineEntity, force: bool, again: bool = False) -> workflow.ActivityHandle[DrainOutput]:
    s = machine.s
    assert machine.status.node_name is not None
    deadline = machine.deadlines.get("drain")
    words = f", force at {utc(deadline)}" if deadline else ""
    what = "checked once more before its VM is deleted" if again else f"being drained{' with force' if force else ''}"
    machine.waiting("Draining", f"node {machine.status.node_name} is {what}{words}")
    return machine.start(
        DrainActivities.drain_node,
        DrainInput(
            machine=machine.ref,
            node_name=machine.status.node_name,
            provider_id=machine.status.provider_id,
            node_uid=s.joined_uid or "",
            force=force,
            dead=_dead(machine),
            since=s.drain_began,
            again=again,
            story=machine.journal[-1:],
            deadline=deadline,
            keep=s.deletion is None,
            poll=s.timings.poll,
        ),
        queue=drain_queue(s.cluster, s.queue_prefix),
        summary=f"{'force-drain' if force else 'drain'} {machine.status.node_name}",
        polls=True,
    )


def _drained(m: MachineEntity, output: DrainOutput) -> None:
    m.s.drained, m.s.trouble = True, None
    m.s.look_again = m.s.deletion is None
    words = f"node {m.status.node_name} is drained, pods evicted: {output.pods}"
    if output.left:
        words += f"; {_not_waited_for(output.left)}"
    m.operation(OperationType.DRAIN, OperationState.SUCCESSFUL, words)
    m.note("Drained", words)
    if m.status.phase == Phase.FAILED:
        m.tell()  # the Node stays, and its Events say why it takes no work


def _not_waited_for(left: list[str]) -> str:
    more = f" and {len(left) - LEFT_SHOWN} more" if len(left) > LEFT_SHOWN else ""
    return f"not waited for: {'; '.join(left[:LEFT_SHOWN])}{more}"


def _another_class(m: MachineEntity, tried: ClassSnapshot) -> bool:
    """Whether the class has changed: its credentials are the deletion's from now on."""
    return m.snapshot != tried


async def delete(machine: MachineEntity) -> None:
    """Deletes until the cloud has confirmed that the VM, its disks and its NICs are gone."""
    s = machine.s
    if s.attempt is None:
        s.vm_gone = True  # nothing was ever requested
    if not s.vm_gone:
        held = await hooks.hold(machine, HookKind.PRE_TERMINATE, partial(begin, machine), partial(_pass, machine))
        if held and s.drained:
            s.look_again = True
            await drain(machine)
    machine.deleting = True
    while not s.vm_gone:
        report(machine)
        tried = machine.snapshot
        what = machine.status.provider_id or f"everything tagged with uid {s.uid}"
        if machine.s.trouble is None:  # else what is in the way remains readable
            machine.waiting("DeletingVM", f"{what} is being deleted, until the cloud confirms that it is gone")
        machine.operation(OperationType.DELETE, OperationState.PROCESSING, f"deleting {what}")
        handle = machine.start(
            MachineActivities.delete_machine,
            DeleteInput(target=machine.target(), asked=s.asked),
            queue=machine.cloud,
            summary="delete the VM until it is gone",
            polls=True,
            urgency=Urgency.DELETE,
        )
        try:
            output = await machine.polled(handle)
        except ActivityError as e:
            failure = failure_of(e)
            machine.operation(
                OperationType.DELETE, OperationState.FAILED, machine.words_of_cloud(failure), failure.info.code
            )
            there = machine.status.provider_id is not None
            way = way_out(failure.info.error_class, s.cluster, s.name, force=_insisted(machine), vm=there)
            await machine.back_off(failure, unless=partial(_another_class, machine, tried), way_out=way)
            continue
        s.vm_gone, machine.deleting = True, False
        s.vms = output.vms
        machine.status.kept = output.kept
        kept = f"; kept, because the spec says so: {', '.join(output.kept)}" if output.kept else ""
        machine.note("VMDeleted", f"{what} is gone{kept}")


async def forget(machine: MachineEntity) -> None:
    """Removes the Node, the tokens, and the cluster's memory of the VM: last, so that nothing is forgotten that still
    lives."""
    s = machine.s
    if s.attempt is None:
        return
    # A report that comes after the farewell would make the machine a user again.
    await machine.until(lambda: not machine.in_flight or _abandons(machine), NEVER)
    while True:
        if machine.s.trouble is None:
            machine.waiting("Forgetting", "the Node object and the bootstrap tokens are being removed")
        handle = machine.start(
            NodeActivities.forget_machine,
            ForgetInput(
                machine=machine.ref,
                node_name=machine.status.node_name,
                node_uid=s.joined_uid or "",
                provider_id=machine.status.provider_id,
                vms=s.vms,
                former=s.former_vms,
                attempts=s.attempt.number,
                classes=s.classes,
            ),
            queue=cluster_queue(s.cluster, s.queue_prefix),
            summary="remove the Node and the tokens",
        )
        try:
            if await _in_time(machine, handle):
                _forgotten(machine, await machine.answer(handle))
            else:
                await _abandon(machine, "the cluster did not answer")
            break
        except ActivityError as e:
            failure = failure_of(e)
            words = failure.words
            machine.operation(OperationType.DELETE, OperationState.FAILED, words, failure.info.code)
            if _abandons(machine):
                await _abandon(machine, words)
                break
            how = f"`hostler delete machine {s.name} --cluster {s.cluster} --force --abandon-node`"
            await machine.back_off(
                failure, way_out=f"its VM is gone; if the cluster will never answer again, end this with {how}"
            )
    machine.status.waiting_for = None
    gone = f"nothing is left{' but what is named: ' if machine.status.left else ''}{'; '.join(machine.status.left)}"
    machine.operation(OperationType.DELETE, OperationState.SUCCESSFUL, gone)
    machine.note("Gone", gone)


def _forgotten(m: MachineEntity, output: ForgetOutput | None) -> None:
    if output is not None and output.left:
        m.status.left = output.left
        m.note("NodeLeft", f"it stays: {'; '.join(output.left)}")


# -- without the cluster ----------------------------------------------------------------------------------------------


def _abandons(m: MachineEntity) -> bool:
    return m.s.deletion is not None and m.s.deletion.abandon_node


async def _in_time(machine: MachineEntity, handle: workflow.ActivityHandle[ForgetOutput]) -> bool:
    """Waits for the answer: an absent worker is a wait, until an operator says that the wait was long enough. Then
    there is time for one more call."""
    await machine.beside(lambda: handle.done() or _abandons(machine) or machine.too_long_for(handle))
    if not (handle.done() or _abandons(machine)):
        await machine.ask_anew(handle)
    if not handle.done():
        machine.deadlines["abandon"] = workflow.now() + machine.s.timings.call_timeout
        await machine.until(handle.done, "abandon")
        del machine.deadlines["abandon"]
    if not handle.done():
        machine.drop(handle)
    return handle.done()


async def _abandon(machine: MachineEntity, why: str) -> None:
    """Ends without the cluster. The VM is gone: no volume is written to, and no pod runs. What needs no cluster is
    still done."""
    s, name = machine.s, machine.status.node_name
    twins = s.node.twins if s.node else []
    nodes = [f"node {n}" for n in (name, *twins) if n] if s.joined or (s.node and s.node.exists) else []
    machine.status.left = nodes or [f"node {name}, if it exists"]
    if not s.joined:
        machine.status.left.append("its bootstrap token, which expires on its own")
    machine.note("NodeAbandoned", f"{why}; left in the cluster: {'; '.join(machine.status.left)}")
    farewells = [(class_id(s.cluster, c), "forget_user", s.name) for c in s.classes]
    if machine.status.provider_id:
        farewells.append((cluster_id(s.cluster), "forget", machine.status.provider_id))
    for workflow_id, signal, argument in farewells:
        try:
            await workflow.get_external_workflow_handle(workflow_id).signal(signal, argument)
        except FailureError:
            workflow.logger.info("%s is not there to hear of it", workflow_id)
