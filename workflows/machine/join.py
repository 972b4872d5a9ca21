"""From a VM to a node that takes work: it joins, gets its template, becomes Ready, and loses the instance-not-ready
taint."""

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
    from planners.machine.claims import GONE, has_node
    from planners.machine.health import judge_joining
    from resources.calls.cloud import StatusInput, StatusOutput
    from resources.calls.cluster import JoinInput, ReadyInput, ReadyOutput
    from resources.journal import Happening
    from resources.machine.facts import NodeFacts, VmFacts
    from resources.machine.state import OperationState, OperationType, Phase
    from resources.names import INSTANCE_NOT_READY_TAINT, cluster_queue

VmWatch = workflow.ActivityHandle[StatusOutput]


async def join(m: MachineEntity) -> None:
    """Ends with the machine Running, Failed, or with a deletion wanted.

    When it takes long, one retrying activity looks at the VM, so that a dead one is not waited for until the deadline,
    and what its console says is seen.
    """
    s = m.s
    if m.leaving or s.was_running:
        return
    if s.adopted:
        await confirm.introduce(m)
    assert s.made is not None
    if "confirm" not in m.deadlines:
        confirm.arm(m, m.deadlines["creation"])
    m.deadlines["look"] = s.made + s.timings.vm_look
    vm: VmWatch | None = None
    while not (m.leaving or s.was_running):
        await m.renew_if_due()
        if m.due("look"):
            del m.deadlines["look"]
            vm = _watch_vm(m)
        if m.due("confirm"):
            await confirm.creation(m)
        elif vm is None or not vm.done():
            await _step(m, vm)
        elif not await _bad_news(m, vm):
            vm = None if "look" in m.deadlines else _watch_vm(m)
    m.deadlines.pop("look", None)
    if vm is not None:
        m.drop(vm)


def _watch_vm(m: MachineEntity) -> VmWatch:
    assert m.s.made is not None
    assert m.s.attempt is not None
    timings = m.s.timings
    return m.start(
        MachineActivities.watch_machine,
        StatusInput(
            target=m.target(),
            attempt=m.s.attempt.number,
            node_name=m.status.node_name,
            deadline=m.deadlines.get("creation"),
            since=m.s.made,
            interval=max(timings.vm_look, timings.poll),
        ),
        queue=m.cloud,
        summary="watch the VM until its node joins",
        polls=True,
        urgency=Urgency.POLL,
    )


async def _bad_news(m: MachineEntity, vm: VmWatch) -> bool:
    """Whether the VM is gone or stopped, which makes the machine Failed, since an id was recorded; otherwise sets the
    next look. If its kubelet has been seen, the news must be believed first."""
    try:
        output = await vm
    except ActivityError as e:
        await m.back_off(failure_of(e), unless=_node_changes(m))
        return False
    if has_node(m.s) and workflow.patched(claim.CLAIMS):
        assert m.status.provider_id is not None
        state = GONE if output.gone else "stopped"
        claim.raise_(m, VmFacts(epoch=0, seq=0, provider_id=m.status.provider_id, state=state))
        if not await claim.weighed(m, lambda: m.leaving):
            m.deadlines["look"] = workflow.now() + max(m.s.timings.vm_look, m.s.timings.lease)
            return m.leaving
    _lost(m, output.gone, output.message)
    return True


def _lost(m: MachineEntity, gone: bool, found: str) -> None:
    when = "before its node was ready for pods" if m.s.joined else "before its node joined"
    m.fail(OperationType.CREATE, "VMGone" if gone else "VMStopped", f"{found} {when}; it is not created again")


async def _step(m: MachineEntity, vm: VmWatch | None) -> None:
    node = m.s.node
    health = judge_joining(node, m.s.spec.node_conditions)
    hot_update.keep_up(m)
    if claim.keep_up(m):
        assert m.s.vm is not None
        _lost(m, m.s.vm.state == GONE, f"{m.s.vm.provider_id} is {m.s.vm.state}")
    elif node is not None and node.exists and not (m.s.joined and m.s.joined_uid == node.uid):
        await apply_template(m, node)
    elif node is not None and health.healthy:
        await _remove_taint(m, node)
    else:
        if not confirm.undecided(m):
            end = f"Failed at {m.deadlines['creation']:%Y-%m-%d %H:%M:%S} if nothing changes"
            m.waiting(health.reason, f"{health.message}; {end}", m.deadlines["confirm"])
        report(m)
        news, told = _node_changes(m), class_news(m)
        await m.until(
            lambda: (
                m.leaving
                or (vm is not None and vm.done())
                or (news() or hot_update.calls(m) or claim.calls(m) or told())
                or m.overlong
            ),
            *("look", "confirm", "update", "claim"),
        )


async def apply_template(m: MachineEntity, node: NodeFacts) -> None:
    """Applies the template, also one that changed on a living node: it is a three-way merge."""
    s = m.s
    assert s.attempt is not None
    template = s.spec.node_template
    m.waiting("NodeTemplate", f"node {node.name} is getting its labels, annotations and taints")
    handle = m.start(
        NodeActivities.join_node,
        JoinInput(
            machine=m.ref,
            attempt=s.attempt.number,
            node_name=node.name,
            provider_id=m.status.provider_id,
            node_uid=node.uid,
            node_template=template,
            last_applied=m.status.last_applied_node_template if s.joined_uid in (None, node.uid) else None,
            story=[] if s.joined else list(m.journal),
        ),
        queue=cluster_queue(s.cluster, s.queue_prefix),
        summary=f"node template and token of {node.name}",
    )
    try:
        await m.answer(handle, repeats=True)
    except ActivityError as e:
        await m.back_off(failure_of(e), unless=_node_changes(m))
        return
    if m.status.node_name not in (None, node.name):
        former = (
            f"the name of its node was {m.status.node_name}" if s.joined else f"the provider said {m.status.node_name}"
        )
        m.note("NodeNameDiffers", f"{former}; by its providerID the node is {node.name}")
    m.status.node_name = node.name
    m.status.addresses = node.addresses or m.status.addresses
    m.status.last_applied_node_template = template
    s.joined_uid = node.uid
    if not s.joined:
        s.joined = True
        m.note("NodeJoined", f"node {node.name} joined")


async def join_again(m: MachineEntity) -> bool:
    """Whether something was done for a new Node object: somebody deleted the former one, and the kubelet has registered
    again (field case P07), with its startup taints and without the template."""
    s, node = m.s, m.s.node
    if node is None or not node.exists or s.ready_uid is None or s.joined_uid == s.ready_uid == node.uid:
        return False
    if s.joined_uid != node.uid:
        m.note_news("NodeRejoined", f"node {node.name} is a new object, created at {node.created}; it is set up again")
        await apply_template(m, node)
    elif judge_joining(node, s.spec.node_conditions, s.vm).healthy:
        await _untaint(m, node, [])
    else:
        return False
    return True


async def _untaint(m: MachineEntity, node: NodeFacts, story: list[Happening]) -> ReadyOutput | None:
    """Removes the taint. None if it failed; the wait is over then."""
    m.waiting("ReadyTaint", f"the taint {INSTANCE_NOT_READY_TAINT} is being removed from node {node.name}")
    handle = m.start(
        NodeActivities.remove_ready_taint,
        ReadyInput(
            machine=m.ref,
            node_name=node.name,
            provider_id=m.status.provider_id,
            node_uid=node.uid,
            story=story,
        ),
        queue=cluster_queue(m.s.cluster, m.s.queue_prefix),
        summary=f"remove the instance-not-ready taint from {node.name}",
    )
    try:
        output = await m.answer(handle, repeats=True)
    except ActivityError as e:
        await m.back_off(failure_of(e), unless=_node_changes(m))
        return None
    m.s.ready_uid = node.uid
    return output


async def _remove_taint(m: MachineEntity, node: NodeFacts) -> None:
    s = m.s
    running = f"node {node.name} is Ready and accepts pods"
    joined = [h for h in m.journal if h.reason == "NodeJoined"][-1:]
    output = await _untaint(m, node, [*joined, Happening(time=workflow.now(), reason="Running", message=running)])
    if output is None or m.leaving:
        return
    if not output.removed and not _known_before(m, node):
        words = (
            f"node {node.name} joined without the taint {INSTANCE_NOT_READY_TAINT}: pods may have been scheduled "
            "before its post-start update; add it to kubelet's --register-with-taints"
        )
        m.condition("NoReadyTaint", "NoReadyTaint", words)
        m.note("NoReadyTaint", words)
    s.was_running = True
    if s.created is not None:
        workflow.metric_meter().create_histogram_timedelta(
            "hostler_machine_creation", "From the machine's creation to Running"
        ).record(workflow.now() - s.created, {"cluster": s.cluster, "class": m.snapshot.name})
    m.deadlines.clear()
    m.status.waiting_for = None
    m.operation(OperationType.CREATE, OperationState.SUCCESSFUL, f"node {node.name} is Ready")
    m.enter(Phase.RUNNING, "Running", running)


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
