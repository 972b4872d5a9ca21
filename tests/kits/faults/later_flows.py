"""Flows of a living machine: they begin with one that is Running, and boundaries count from there."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta

from histories.recorded import reset_machine
from lifekit import Stack, eventually, result_of
from machine.lives import knobs

from faults.flow import Flow, deafen, flow, give, mark, new_name, run_pod, running, template
from faults.invariants import (
    USER_KEY,
    Witness,
    check_drained_once,
    check_i1,
    check_i5,
    check_i6,
    check_i7,
    check_i10,
    check_i11,
    check_i12,
    check_i16,
    check_i17,
    check_looks,
    check_marks,
    check_one_at_a_time,
    check_ready,
)
from faults.strike import arm
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.state import ApplyIntent, MachineState, Phase
from resources.names import MARKED_ANNOTATION, PRESERVE_ANNOTATION, cluster_id, machine_id
from simulator.clouds.ec2 import World
from starter.sdk.client import HostlerClient
from starter.sdk.errors import HostlerError
from workflows.machine import MachineWorkflow

HEALTH_TIMEOUT = timedelta(seconds=5)
DRAIN_TIMEOUT = timedelta(seconds=3)
"""A silent kubelet confirms no pod's end: the drain lasts until its deadline."""

BETWEEN_LOOKS = timedelta(seconds=10)
"""Between the first look and the second, the flow must see what the first one found, and a kubelet must report."""

LATER: dict[str, Flow] = {}


@flow(LATER, "create_machine")
async def reset(stack: Stack) -> None:
    """Its workflow is reset to its first task: it finds its VM and its Node again."""
    name = new_name()
    seen = await running(stack, name)
    arm(stack)
    await reset_machine(stack, name, 0.0)
    seen.states.append(await stack.phase(Phase.RUNNING, name))
    check_one_at_a_time(stack, name)
    assert (seen.last.uid, seen.last.status.node_name) == (seen.states[0].uid, seen.states[0].status.node_name)
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    check_one_at_a_time(stack, name)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(
    LATER,
    "tell_node",
    "look_at_node",
    "look_at_vm",
    "tell_node 2",
    "look_at_vm 2",
    "look_at_node 2",
    "drain_node",
    "tell_node 3",
    "drain_node 2",
    "drain_node 3",
)
async def health_failure(stack: Stack) -> None:
    """The kubelet dies: Unknown, two fresh looks, Failed at the health deadline, drained in Failed, deleted."""
    name = new_name()
    seen = await running(stack, name, health_timeout=HEALTH_TIMEOUT, drain_timeout=DRAIN_TIMEOUT)
    pod = await run_pod(stack, seen)
    mark(stack, seen)
    arm(stack)
    knobs(stack, name, dies_after=0.0)
    seen.states.append(await stack.phase(Phase.FAILED, name))
    failed = seen.last
    assert failed.illness is not None
    check_i7(failed.journal, "HealthTimeout", failed.illness.began + HEALTH_TIMEOUT)
    check_looks(stack, seen)
    seen.states.append(await eventually(lambda: stack.state(name), lambda s: s.drained, "the drain in Failed"))
    drained = seen.last
    assert drained.status.phase == Phase.FAILED
    assert drained.drain_began is not None
    check_i5(stack, seen)
    check_marks(stack, seen)
    result = await stack.delete(name)
    check_i12(stack, seen, pod, drained.drain_began + DRAIN_TIMEOUT)
    check_i7(result.journal, "DrainForced", drained.drain_began + DRAIN_TIMEOUT)
    check_drained_once(result.journal)
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(LATER, "drain_node", "drain_node 2")
async def hostile_input(stack: Stack) -> None:
    """Malformed messages to a machine and its cluster, and meaningless annotations on its Node: all goes on, and its
    neighbour hears nothing of it."""
    name, neighbour = new_name(), new_name()
    seen, beside = await asyncio.gather(running(stack, name), running(stack, neighbour))
    arm(stack)
    owners = [machine_id(stack.cluster, name), cluster_id(stack.cluster)]
    for workflow_id in owners:
        handle = stack.client.get_workflow_handle(workflow_id)
        await handle.signal("renew")
        await handle.signal("renew", args=[{}, {}])
        await handle.signal("renew", "now")
    for key in (MARKED_ANNOTATION, PRESERVE_ANNOTATION):
        stack.kubectl("annotate", "node", str(seen.last.status.node_name), f"{key}=9999-12-31T23:59:59-14:00")
    await check_i16(stack, *owners)
    for unready, phase in ((True, Phase.UNKNOWN), (False, Phase.RUNNING)):
        knobs(stack, neighbour, unready=unready)
        await check_i17(stack, neighbour, phase)
    beside.states.append(await stack.state(neighbour))
    seen.states.append(await stack.state(name))
    refused = [h.message for h in seen.last.journal if h.reason == "Refused"]
    assert any("takes one argument" in words for words in refused), f"I16: nobody has said so: {seen.last.journal}"
    for each in (seen, beside):
        check_i5(stack, each)
        check_ready(stack, each)
        await stack.delete(each.last.name)
        check_i1(stack, each)
        check_i6(stack, each)
        await check_i11(stack, machine_id(stack.cluster, each.last.name))


@flow(LATER, "look_at_node", "look_at_vm", "look_at_node 2", "look_at_vm 2")
async def recovery_unheard(stack: Stack) -> None:
    """Ill at the first look, well at the second, and no news of it comes: never Failed."""
    name = new_name()
    timings = stack.settings.timings.model_copy(update={"confirm": BETWEEN_LOOKS})
    seen = await running(stack, name, health_timeout=BETWEEN_LOOKS + timedelta(seconds=1), timings=timings)
    arm(stack)
    knobs(stack, name, unready=True)
    lie = await deafen(stack, seen)
    left = await eventually(
        lambda: stack.state(name), lambda s: s.suspicion or s.status.phase not in (Phase.RUNNING, Phase.UNKNOWN)
    )
    knobs(stack, name, unready=False)
    if left.status.phase == Phase.UNKNOWN:
        left = await eventually(lambda: stack.state(name), lambda s: s.status.phase != Phase.UNKNOWN, "the decision")
    seen.states.append(left)
    assert left.status.phase == Phase.RUNNING, f"I5: {name} is Failed, and a fresh look would have found it well"
    reasons = [h.reason for h in left.journal]
    assert left.node is not None
    if left.node.epoch <= lie:  # otherwise a newer watch has told it
        assert reasons.index("NotConfirmed") < reasons.index("Recovered")
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(
    LATER,
    "drain_node",
    "delete_machine",
    "forget_machine",
    "create_machine",
    "drain_node 2",
    "delete_machine 2",
    "forget_machine 2",
)
async def recreate(stack: Stack) -> None:
    """A delete to the end, then a new life under the same name: one VM at a time."""
    name = new_name()
    former = await running(stack, name)
    arm(stack)
    intent = RecreateIntent(id=str(uuid.uuid4()), requested_by="test")
    await stack.started[name].execute_update(MachineWorkflow.recreate, intent, id=intent.id)
    born = await eventually(
        lambda: stack.state(name),
        lambda s: s.uid != former.last.uid and s.status.phase in (Phase.RUNNING, Phase.FAILED),
        "the new life",
    )
    seen = Witness([born])
    assert born.status.phase == Phase.RUNNING, born.journal
    check_one_at_a_time(stack, name)
    check_i6(stack, former)
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    for life in (former, seen):
        check_i1(stack, life)
        check_i6(stack, life)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(LATER, "list_vms", "find_owners", "update_machine", "look_at_node")
async def adopt(stack: Stack) -> None:
    """Somebody terminates the workflow of a Running machine; it is found by its owner tags, adopted, and deleted."""
    name = new_name()
    lost = await running(stack, name)
    await stack.started[name].terminate("by mistake")
    arm(stack)
    client = HostlerClient(stack.client, stack.settings, cluster=stack.cluster, requested_by="test")

    async def try_it() -> str:
        """Tries as a person does: what could not be looked for is looked for again. Returns why it was not adopted."""
        try:
            await client.adopt(name)
        except HostlerError as e:
            return str(e)
        return ""

    await eventually(try_it, lambda why: not why, "the adoption")
    stack.started[name] = stack.client.get_workflow_handle_for(MachineWorkflow.run, machine_id(stack.cluster, name))
    seen = Witness([*lost.states, await stack.born(name)])
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    check_one_at_a_time(stack, name)
    assert (seen.last.uid, seen.last.status.provider_id) == (lost.last.uid, lost.last.status.provider_id)
    check_i1(stack, seen)
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(LATER, "delete_machine")
async def another_account(stack: Stack) -> None:
    """The Secret opens another account when the deletion comes: what is not found there is not gone."""
    name = new_name()
    ((key, value),) = World().access_keys.items()
    ((_, others),) = World().other_accounts.items()
    await give(stack, name, key, value)
    seen = await running(stack, name, secret=name)
    mark(stack, seen)
    await give(stack, name, *next(iter(others.items())))
    arm(stack)
    intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="test")
    await stack.started[name].execute_update(MachineWorkflow.delete, intent, id=intent.id)

    def decided(s: MachineState) -> bool:
        return s.vm_gone or (s.status.waiting_for is not None and s.status.waiting_for.reason == "WrongAccount")

    seen.states.append(await eventually(lambda: stack.state(name), decided, "the refusal to believe"))
    assert not seen.last.vm_gone, f"I5: {name} was believed gone by the word of an account that did not make it"
    assert stack.leftovers(seen.last.uid)["instances"], "nobody else has ended it"
    await give(stack, name, key, value)
    await result_of(stack.started[name])
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(LATER, "join_node")
async def changed_template(stack: Stack) -> None:
    """A template changes on a living Node: a three-way merge; what others own, or have removed, stays so."""
    name = new_name()
    first = template({"example.com/pool": "a", "example.com/old": "1"}, "example.com/kept", "example.com/removed")
    seen = await running(stack, name, node_template=first)
    node = str(seen.last.status.node_name)
    # One call, and before the cordon: kubectl writes the list of taints as a whole, and so does the controller that
    # taints a cordon.
    stack.kubectl("taint", "node", node, f"{USER_KEY}=1:NoSchedule", "example.com/removed-")
    seen.tainted = True
    mark(stack, seen)
    arm(stack)
    second = template({"example.com/pool": "b"}, "example.com/kept", "example.com/removed", "example.com/added")
    intent = ApplyIntent(
        id=str(uuid.uuid4()),
        spec=seen.last.spec.model_copy(update={"node_template": second}),
        machine_class=seen.last.machine_class,
    )
    await stack.started[name].execute_update(MachineWorkflow.apply, intent, id=intent.id)
    applied = await eventually(lambda: stack.state(name), lambda s: s.status.last_applied_node_template == second)
    seen.states.append(applied)
    check_marks(stack, seen)
    found = json.loads(stack.kubectl("get", "node", node, "-o", "json"))
    labels, taints = found["metadata"]["labels"], {t["key"] for t in found["spec"].get("taints", ())}
    assert (labels.get("example.com/pool"), labels.get("example.com/old")) == ("b", None)
    assert taints >= {"example.com/kept", "example.com/added"}
    assert "example.com/removed" not in taints, "I10: a taint that a user removed is there again"
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow(LATER, "tell_node", "drain_node", "drain_node 2")
async def delete_in_unknown(stack: Stack) -> None:
    """The kubelet is dead when the deletion comes: pods are evicted, and killed at the drain deadline only."""
    name = new_name()
    seen = await running(stack, name, drain_timeout=DRAIN_TIMEOUT)
    pod = await run_pod(stack, seen)
    arm(stack)
    knobs(stack, name, dies_after=0.0)
    seen.states.append(await stack.phase(Phase.UNKNOWN, name))
    check_i5(stack, seen)
    result = await stack.delete(name)
    asked = next(h.time for h in result.journal if h.reason == "Terminating")
    check_i12(stack, seen, pod, asked + DRAIN_TIMEOUT)
    check_i7(result.journal, "DrainForced", asked + DRAIN_TIMEOUT)
    check_drained_once(result.journal)
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))
