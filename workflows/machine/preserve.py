"""Preservation: decisions are carried out, and the Node is meanwhile kept as it should be (seed 003).

The expiry is a time in the state with a timer; nothing that takes long is waited for, so that it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of
from workflows.entity import unheard
from workflows.machine.entity import PRESERVATION_TIMES, MachineEntity, NodeCall

with workflow.unsafe.imports_passed_through():
    from activities.cluster.preserve import PreserveActivities
    from planners.machine.health import judge, plan_health
    from planners.machine.intents import by_manifest, value_in
    from planners.machine.membership import is_drained
    from planners.machine.preservation import (
        WARN_BEFORE,
        AskPool,
        Decision,
        End,
        ObservedMachine,
        Preserve,
        Protect,
        Recover,
        Stay,
        Warn,
        decide,
        effective,
        on_node,
    )
    from resources.calls.cluster import PreserveInput
    from resources.machine.advice import has_vm
    from resources.machine.facts import NodeFacts
    from resources.machine.preservation import Preservation, PreservedBy, PreserveRequest, PreserveValue
    from resources.machine.state import Deletion, OperationState, OperationType, Phase
    from resources.names import PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, cluster_queue


OWN_BY_MANIFEST = "preserve-by-manifest"
"""The patch of a manifest's annotation `preserve`, which once counted for nothing."""
ANNOTATIONS_ALONE = "annotations-alone"
"""The patch of a manifest that changes labels and annotations only, which once changed nothing."""


def give_up(m: MachineEntity) -> None:
    """Ends preservation: what is deleted is no longer kept, and its Node goes with it."""
    if m.on_node is not None:
        unheard(m.on_node.handle)
        m.on_node = None
    p = m.status.preserve
    m.status.preserve = Preservation(last_seen_node_value=p.last_seen_node_value)


def failed(m: MachineEntity) -> None:
    """Keeps the cordon of the drain that comes now, whatever was to be lifted before."""
    m.status.preserve.uncordon = False


def uncordons(m: MachineEntity) -> bool:
    """Whether a call is under way that lifts a cordon of ours, and would lift that of a drain which began now."""
    return m.on_node is not None and m.on_node.uncordon


def take_manifest(m: MachineEntity, former: Mapping[str, str], annotations: Mapping[str, str], who: str) -> None:
    """Takes the annotation of a manifest as the machine's own value, where it has changed. Nothing else looks at it, so
    that a life without it is as it was before this was read."""
    if value_in(former) != value_in(annotations) and workflow.patched(OWN_BY_MANIFEST):
        p = m.status.preserve
        m.status.preserve = by_manifest(p, former, annotations, who, workflow.now())


# -- deciding ---------------------------------------------------------------------------------------------------------


def step(machine: MachineEntity) -> bool:
    """Decides, and carries it out. Returns whether something has changed: then the caller asks again."""
    _tend_node(machine)
    decision = _decide(machine)
    match decision:
        case Preserve():
            _preserve(machine, decision)
        case End():
            _end(machine, decision)
        case Recover():
            _recover(machine, decision)
        case Protect():
            p = machine.status.preserve
            p.node_due = True
            _tend_node(machine)
        case Warn():
            machine.status.preserve.warned = True
            machine.note("PreservationEnds", decision.message)
            machine.tell()
        case _:
            _stay(machine, decision)
            return False
    return True


def calls(m: MachineEntity) -> bool:
    """Whether there is something to do for `step`."""
    return m.on_node is not None and m.on_node.handle.done()


def what_counts(m: MachineEntity) -> tuple[object, ...]:
    p = m.status.preserve
    return p.own, p.last_seen_node_value, p.release, p.granted, p.expiry_time, p.protected, p.node_due


def _decide(m: MachineEntity) -> Decision:
    p, observed = m.status.preserve, _observed(m)
    p.last = on_node(observed.node_value, observed.last)
    if effective(observed.node_value, p.own, p.last) == PreserveValue.FALSE:
        p.granted = PreservedBy.NOBODY  # the pool takes its grant back, too
        observed = replace(observed, granted=p.granted)
    return decide(observed)


def _observed(machine: MachineEntity) -> ObservedMachine:
    state, p = machine.s, machine.status.preserve
    return ObservedMachine(
        named=f"{state.name} --cluster {state.cluster}",
        phase=machine.status.phase,
        now=workflow.now(),
        timeout=state.spec.machine_preserve_timeout,
        node_value=p.node_value,
        own=p.own,
        last=p.last,
        release=p.release,
        source=p.source,
        expiry=p.expiry_time,
        warned=p.warned,
        granted=p.granted,
        in_pool=state.owner is not None,
        healthy=_well_again(machine),
        drained=is_drained(state),
        node_present=state.node is not None and state.node.exists,
        protected=p.protected or p.node_due or machine.on_node is not None,
        vm_present=has_vm(state),
    )


def _well_again(machine: MachineEntity) -> bool:
    """Whether a machine that Failed while it was preserved is well again, for as long as an Unknown one must be."""
    state = machine.s
    if machine.status.phase is not Phase.FAILED or not state.was_running or machine.status.preserve.expiry_time is None:
        return False
    health = judge(state.node, state.spec.node_conditions, state.vm)
    verdict = plan_health(Phase.UNKNOWN, health, state.healthy_since, workflow.now(), state.timings.settle)
    state.healthy_since = verdict.healthy_since
    if verdict.settles_at:
        machine.deadlines["settle"] = verdict.settles_at
    else:
        machine.deadlines.pop("settle", None)
    return verdict.phase is Phase.RUNNING


# -- carrying out -----------------------------------------------------------------------------------------------------


def _preserve(m: MachineEntity, decision: Preserve) -> None:
    p = m.status.preserve
    p.expiry_time, p.source, p.why = decision.expiry, decision.source, decision.cause
    p.since = p.since or workflow.now()
    p.warned = decision.expiry - workflow.now() <= WARN_BEFORE  # this very message says so
    p.granted, p.release, m.s.repair = PreservedBy.NOBODY, None, None
    m.operation(OperationType.PRESERVE, OperationState.SUCCESSFUL, decision.message)
    m.note(decision.reason, decision.message)
    m.tell()


def _end(machine: MachineEntity, decision: End) -> None:
    p = machine.status.preserve
    was = p.expiry_time is not None
    machine.status.preserve = Preservation(
        own=p.own if decision.keep_own else None,
        last_seen_node_value=p.last_seen_node_value,
        node_uid=p.node_uid,
        cleared=decision.clear or p.cleared,
        node_due=p.node_due or was or bool(decision.clear),
        uncordon=p.uncordon,
        granted=PreservedBy.NOBODY if was else p.granted,  # a given slot is not for a machine that somebody asked for
    )
    for name in PRESERVATION_TIMES:
        machine.deadlines.pop(name, None)
    if decision.terminate and machine.s.deletion is None:
        machine.s.deletion = Deletion(time=workflow.now(), reason=decision.message)
    if was:
        machine.operation(OperationType.PRESERVE, OperationState.SUCCESSFUL, decision.message)
    machine.note(decision.reason, decision.message)
    machine.tell()
    _tend_node(machine)


def _recover(machine: MachineEntity, decision: Recover) -> None:
    """Failed:Preserved → Running:Preserved. The machine can fall ill again, and be drained again."""
    state, p = machine.s, machine.status.preserve
    state.drained, state.look_again, state.drain_began, state.suspicion, state.trouble = False, False, None, None, None
    state.asks_permit = state.permitted = False
    state.illness = None
    if p.release is not None and p.release.slot:
        p.release = None  # slots are for Failed machines
    machine.drop_condition("Failed")
    machine.status.waiting_for = None
    p.node_due = p.uncordon = True
    state.repair = None
    machine.operation(OperationType.HEALTH_CHECK, OperationState.SUCCESSFUL, decision.message)
    machine.enter(Phase.RUNNING, "Recovered", decision.message)
    machine.tell()


def _stay(machine: MachineEntity, decision: Stay | AskPool) -> None:
    """Sets when time alone changes the decision, and what a Failed machine waits for."""
    p = machine.status.preserve
    for name in ("preserve", "preserve-warning"):
        machine.deadlines.pop(name, None)
    if p.expiry_time is not None:
        machine.deadlines["preserve"] = p.expiry_time
        if not p.warned:
            machine.deadlines["preserve-warning"] = p.expiry_time - WARN_BEFORE
    if isinstance(decision, Stay) and decision.reason == "PreserveWaits":
        machine.condition("PreserveWaits", decision.reason, decision.message)
    else:
        machine.drop_condition("PreserveWaits")
    if machine.status.phase is not Phase.FAILED or not is_drained(machine.s) or "retry" in machine.deadlines:
        return  # what a pause waits for is already said
    if isinstance(decision, AskPool) and decision.message:
        machine.waiting("PreserveUndecided", decision.message)
    elif isinstance(decision, Stay) and decision.reason:
        machine.waiting(decision.reason, decision.message, decision.until)
    else:
        (failed,) = (c for c in machine.status.conditions if c.type == "Failed")
        cause = machine.s.held_up or failed
        machine.waiting(cause.reason, failed.message, since=cause.since)


# -- the Node ---------------------------------------------------------------------------------------------------------


def _tend_node(machine: MachineEntity) -> None:
    """Takes the answer of the call that is over, and begins the one that is due, without waiting for either."""
    p = machine.status.preserve
    if machine.due("protect"):
        del machine.deadlines["protect"]
    if machine.on_node is not None and machine.on_node.handle.done():
        call, machine.on_node = machine.on_node, None
        _take_answer(machine, call)
    if machine.on_node is not None or not p.node_due or "protect" in machine.deadlines:
        return
    if machine.s.node is None or not machine.s.node.exists:
        return  # one that registers again has nothing of ours, and is looked at then
    on = p.expiry_time is not None
    handle = machine.start(
        PreserveActivities.preserve_node,
        PreserveInput(
            machine=machine.ref,
            node_name=machine.s.node.name,
            provider_id=machine.status.provider_id,
            node_uid=machine.s.node.uid,
            on=on,
            clear="" if on else p.cleared,
            uncordon=p.uncordon,
        ),
        queue=cluster_queue(machine.s.cluster, machine.s.queue_prefix),
        summary=f"{'protect' if on else 'release'} node {machine.s.node.name}",
    )
    p.node_due = False
    machine.on_node = NodeCall(handle, on, p.uncordon)


def _take_answer(machine: MachineEntity, call: NodeCall) -> None:
    p = machine.status.preserve
    try:
        call.handle.result()
    except ActivityError as e:
        failure = failure_of(e)
        p.node_due = True
        machine.deadlines["protect"] = workflow.now() + machine.wait_once(failure)
        wanted = "protected from cluster-autoscaler" if call.on else "released"
        words = f"node {machine.status.node_name} is not {wanted} yet"
        machine.note_news("PreserveNode", f"{words}: {failure.reason}: {failure.info.message}")
        return
    p.protected = call.on
    if call.uncordon:
        p.uncordon = False


def take_node(machine: MachineEntity, facts: NodeFacts) -> None:
    """Takes what the Node says of preservation. While the Node is missing, its last word counts."""
    p = machine.status.preserve
    if not facts.exists:
        return
    value = facts.annotations.get(PRESERVE_ANNOTATION, "")
    another = bool(p.node_uid) and facts.uid != p.node_uid
    if another and not value:
        _carry_over(machine, facts)
    p.node_uid = facts.uid
    if value != p.cleared:
        p.cleared = ""
    if value != p.last_seen_node_value and value and value not in tuple(PreserveValue):
        words = (
            f"annotation {PRESERVE_ANNOTATION}={value!r} of node {facts.name} is not valid; use now, when-failed or "
            "false"
        )
        machine.note("PreserveUnreadable", words)
        machine.tell()
    p.last_seen_node_value = value
    if another or facts.annotations.get(SCALE_DOWN_DISABLED, "true") != "true":
        p.protected = False  # a new Node has nothing of ours; and a person's `false` is set back (seed 003, note 6)
        p.node_due = p.node_due or machine.on_node is not None  # the call under way may have been for the former one


def _carry_over(machine: MachineEntity, facts: NodeFacts) -> None:
    """Carries a request over to a Node that registers again (field case P07): it has lost its annotation, and nobody
    has taken the request back."""
    p = machine.status.preserve
    value = on_node(p.node_value, p.last)
    if value and (p.own is None or p.own.value != value):  # the Node's was stronger
        words = (
            f"node {facts.name} is a new object without the annotation preserve={value}; the annotation still counts"
        )
        p.own = PreserveRequest(
            value=PreserveValue(value), time=workflow.now(), reason="by the annotation on its old Node"
        )
        machine.note("PreserveCarried", words)
        machine.tell()
