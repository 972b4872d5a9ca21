"""The way from a VM to a node that takes work: it joins, gets its template, becomes Ready, and loses the
instance-not-ready taint."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of
from workflows.machine import claim, confirm, hot_update
from workflows.machine.entity import MachineEntity
from workflows.machine.report import class_news, report

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from activities.cluster.node import NodeActivities
    from planners.machine.claims import has_node
    from planners.machine.health import judge_joining
    from resources.calls.cloud import StatusInput, StatusOutput
    from resources.calls.cluster import JoinInput, ReadyInput, ReadyOutput
    from resources.journal import Happening
    from resources.machine.advice import GONE
    from resources.machine.facts import NodeFacts, VmFacts
    from resources.machine.state import OperationState, OperationType, Phase
    from resources.names import INSTANCE_NOT_READY_TAINT, PRESERVE_ANNOTATION, cluster_queue
    from resources.words import utc

VmWatch = workflow.ActivityHandle[StatusOutput]


async def join(machine: MachineEntity) -> None:
    """Ends with the machine Running, Failed, or with a deletion wanted.

    When it takes long, one retrying activity looks at the VM, so that a dead one is not waited for until the deadline,
    and what its console says is seen.
    """
    state = machine.s
    if machine.leaving or state.was_running:
        return
    if state.adopted:
        await confirm.introduce(machine)
    assert state.made is not None
    if "confirm" not in machine.deadlines:
        confirm.arm(machine, machine.must_be_running_by)
    machine.deadlines["look"] = state.made + state.timings.vm_look
    vm: VmWatch | None = None
    while not (machine.leaving or state.was_running):
        await machine.renew_if_due()
        if machine.due("look"):
            del machine.deadlines["look"]
            if vm is not None:
                machine.drop(vm)  # its deadline has moved (`_take_spec`)
            vm = _watch_vm(machine)
        if machine.due("confirm"):
            await confirm.creation(machine)
        elif vm is None or not vm.done():
            await _step(machine, vm)
        elif not await _bad_news(machine, vm):
            vm = None if "look" in machine.deadlines else _watch_vm(machine)
    machine.deadlines.pop("look", None)
    if vm is not None:
        machine.drop(vm)


def _watch_vm(machine: MachineEntity) -> VmWatch:
    assert machine.s.made is not None
    assert machine.s.attempt is not None
    timings = machine.s.timings
    return machine.start(
        MachineActivities.watch_machine,
        StatusInput(
            target=machine.target(),
            attempt=machine.s.attempt.number,
            node_name=machine.status.node_name,
            deadline=machine.must_be_running_by,
            since=machine.s.made,
            interval=max(timings.vm_look, timings.poll),
        ),
        queue=machine.cloud,
        summary="watch the VM until its node joins",
        polls=True,
        urgency=Urgency.POLL,
    )


async def _bad_news(machine: MachineEntity, vm: VmWatch) -> bool:
    """Whether the VM is gone or stopped, which makes the machine Failed, since an id was recorded; otherwise sets the
    next look. If its kubelet has been seen, the news must be believed first."""
    try:
        output = await vm
    except ActivityError as e:
        await machine.back_off(failure_of(e), unless=_node_changes(machine))
        return False
    if has_node(machine.s) and workflow.patched(claim.CLAIMS):
        assert machine.status.provider_id is not None
        state = GONE if output.gone else "stopped"
        claim.raise_(machine, VmFacts(epoch=0, seq=0, provider_id=machine.status.provider_id, state=state))
        if not await claim.weighed(machine, lambda: machine.leaving):
            machine.deadlines["look"] = workflow.now() + max(machine.s.timings.vm_look, machine.s.timings.lease)
            return machine.leaving
    _lost(machine, output.gone, output.message)
    return True


def _lost(m: MachineEntity, gone: bool, found: str) -> None:
    when = "before its node was ready for pods" if m.s.joined else "before its node joined"
    m.fail(OperationType.CREATE, "VMGone" if gone else "VMStopped", f"{found} {when}; it is not created again")


async def _step(machine: MachineEntity, vm: VmWatch | None) -> None:
    node = machine.s.node
    health = judge_joining(node, machine.s.spec.node_conditions)
    hot_update.keep_up(machine)
    if claim.keep_up(machine):
        assert machine.s.vm is not None
        _lost(machine, machine.s.vm.state == GONE, f"{machine.s.vm.provider_id} is {machine.s.vm.state}")
    elif node is not None and node.exists and not (machine.s.joined and machine.s.joined_uid == node.uid):
        await apply_template(machine, node)
    elif node is not None and health.healthy:
        await _remove_taint(machine, node)
    else:
        if not confirm.undecided(machine):
            end = f"; Failed at {utc(machine.must_be_running_by)} if nothing changes"
            words = f"{health.message}{machine.standing or end}"
            machine.waiting(health.reason, words, machine.deadlines["confirm"])
        report(machine)
        news, told = _node_changes(machine), class_news(machine)
        await machine.until(
            lambda: (
                machine.leaving
                or (vm is not None and vm.done())
                or (news() or hot_update.calls(machine) or claim.calls(machine) or told())
                or machine.overlong
            ),
            *("look", "confirm", "update", "claim"),
        )


async def apply_template(machine: MachineEntity, node: NodeFacts) -> None:
    """Applies the template, also one that changed on a living node: it is a three-way merge."""
    state = machine.s
    assert state.attempt is not None
    template, applied = state.spec.node_template, machine.status.last_applied_node_template
    machine.waiting("NodeTemplate", f"node {node.name} is getting its labels, annotations and taints")
    handle = machine.start(
        NodeActivities.join_node,
        JoinInput(
            machine=machine.ref,
            attempt=state.attempt.number,
            node_name=node.name,
            provider_id=machine.status.provider_id,
            node_uid=node.uid,
            node_template=template,
            last_applied=applied if state.joined_uid in (None, node.uid) else None,
            given=applied.metadata.annotations.get(PRESERVE_ANNOTATION, "") if applied else "",
            story=[] if state.joined else list(machine.journal),
        ),
        queue=cluster_queue(state.cluster, state.queue_prefix),
        summary=f"node template and token of {node.name}",
    )
    try:
        await machine.answer(handle, repeats=True)
    except ActivityError as e:
        await machine.back_off(failure_of(e), unless=_node_changes(machine))
        return
    if machine.status.node_name not in (None, node.name):
        former = (
            f"the name of its node was {machine.status.node_name}"
            if state.joined
            else f"the provider said {machine.status.node_name}"
        )
        machine.note("NodeNameDiffers", f"{former}; by its providerID the node is {node.name}")
    machine.status.node_name = node.name
    machine.status.addresses = node.addresses or machine.status.addresses
    machine.status.last_applied_node_template = template
    state.joined_uid = node.uid
    if not state.joined:
        state.joined = True
        machine.note("NodeJoined", f"node {node.name} joined")


async def join_again(machine: MachineEntity) -> bool:
    """Whether something was done for a new Node object: somebody deleted the former one, and the kubelet has registered
    again (field case P07), with its startup taints and without the template."""
    state, node = machine.s, machine.s.node
    if node is None or not node.exists or state.ready_uid is None or state.joined_uid == state.ready_uid == node.uid:
        return False
    if state.joined_uid != node.uid:
        machine.note_news(
            "NodeRejoined", f"node {node.name} is a new object, created at {node.created}; it is set up again"
        )
        await apply_template(machine, node)
    elif judge_joining(node, state.spec.node_conditions, state.vm).healthy:
        await _untaint(machine, node, [])
    else:
        return False
    return True


async def _untaint(machine: MachineEntity, node: NodeFacts, story: list[Happening]) -> ReadyOutput | None:
    """Removes the taint. None if it failed; the wait is over then."""
    machine.waiting("ReadyTaint", f"the taint {INSTANCE_NOT_READY_TAINT} is being removed from node {node.name}")
    handle = machine.start(
        NodeActivities.remove_ready_taint,
        ReadyInput(
            machine=machine.ref,
            node_name=node.name,
            provider_id=machine.status.provider_id,
            node_uid=node.uid,
            story=story,
        ),
        queue=cluster_queue(machine.s.cluster, machine.s.queue_prefix),
        summary=f"remove the instance-not-ready taint from {node.name}",
    )
    try:
        output = await machine.answer(handle, repeats=True)
    except ActivityError as e:
        await machine.back_off(failure_of(e), unless=_node_changes(machine))
        return None
    machine.s.ready_uid = node.uid
    return output


async def _remove_taint(machine: MachineEntity, node: NodeFacts) -> None:
    state = machine.s
    running = f"node {node.name} is Ready and accepts pods"
    joined = [h for h in machine.journal if h.reason == "NodeJoined"][-1:]
    output = await _untaint(machine, node, [*joined, Happening(time=workflow.now(), reason="Running", message=running)])
    if output is None or machine.leaving:
        return
    if not output.removed and not _known_before(machine, node):
        words = (
            f"node {node.name} joined without the taint {INSTANCE_NOT_READY_TAINT}: pods may have been scheduled "
            "before its post-start update; add it to kubelet's --register-with-taints"
        )
        machine.condition("NoReadyTaint", "NoReadyTaint", words)
        machine.note("NoReadyTaint", words)
    state.was_running = True
    if state.created is not None:
        workflow.metric_meter().create_histogram_timedelta(
            "hostler_machine_creation", "From the machine's creation to Running"
        ).record(workflow.now() - state.created, {"cluster": state.cluster, "class": machine.snapshot.name})
    machine.deadlines.clear()
    machine.status.waiting_for = None
    machine.operation(OperationType.CREATE, OperationState.SUCCESSFUL, f"node {node.name} is Ready")
    machine.enter(Phase.RUNNING, "Running", running)


def _known_before(m: MachineEntity, node: NodeFacts) -> bool:
    """Whether it may have joined with the taint and lost it in a former run or life of the machine: this one found its
    VM."""
    s = m.s
    assert s.attempt is not None
    began = s.attempt.started.replace(microsecond=0)  # the API server truncates its times to whole seconds
    return s.adopted or m.was_reset or (node.created is not None and node.created < began)


def _node_changes(m: MachineEntity) -> Callable[[], bool]:
    """A condition for waits: the watch has told something new."""
    seen = m.s.node
    return lambda: m.s.node is not seen
