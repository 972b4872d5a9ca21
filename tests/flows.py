"""The flows of the fault matrix. A flow joins by registering; its activity boundaries are found by running it once."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from faultkit import arm
from invariants import (
    FOREIGN_TAG,
    USER_KEY,
    Population,
    Witness,
    check_drained_once,
    check_i1,
    check_i5,
    check_i6,
    check_i7,
    check_i8,
    check_i10,
    check_i11,
    check_i12,
    check_looks,
    check_marks,
    check_one_at_a_time,
    check_ready,
)
from lifekit import Stack, eventually

from resources.machine import ApplyIntent, MachineState, Phase
from resources.manifests import NodeTemplate
from resources.messages import RecreateIntent
from resources.names import machine_id
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule
from starter.client import HostlerClient
from starter.errors import HostlerError
from workflows.machine import MachineWorkflow

CREATION_TIMEOUT = timedelta(seconds=8)
HEALTH_TIMEOUT = timedelta(seconds=5)
DRAIN_TIMEOUT = timedelta(seconds=3)
"""A silent kubelet confirms no pod's end: the drain lasts until its deadline."""


@dataclass(frozen=True)
class Flow:
    """Called with a stack, it drives one machine to the right end and asks for every invariant."""

    run: Callable[[Stack], Awaitable[None]]
    about: frozenset[str] | None
    """Activities whose boundaries the covering subset strikes; None: all, with every kind of fault."""

    async def __call__(self, stack: Stack) -> None:
        await self.run(stack)


FLOWS: dict[str, Flow] = {}


def flow(*about: str) -> Callable[[Callable[[Stack], Awaitable[None]]], Flow]:
    """Register. Its boundaries count from where it says `arm`."""

    def register(run: Callable[[Stack], Awaitable[None]]) -> Flow:
        made = FLOWS[run.__name__.replace("_", " ")] = Flow(run, frozenset(about) or None)
        return made

    return register


@flow()
async def whole_life(stack: Stack) -> None:
    """Create, post-start, join, ready; a user's marks on node and VM; drain, delete, forget."""
    name = new_name()
    arm(stack)
    handle = await stack.create(name)
    seen = Witness([await stack.born(name)])
    check_i1(stack, seen)
    check_i5(stack, seen)
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    check_ready(stack, seen)
    mark(stack, seen)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i8(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, handle.id)


@flow()
async def delete_during_create(stack: Stack) -> None:
    """The deletion comes while RunInstances is slow (field case P05)."""
    name = new_name()
    slow = FaultRule(service="ec2", operation="RunInstances", delay=1.0, times=1, match=name)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(slow))
    arm(stack)
    handle = await stack.create(name)
    seen = Witness([await eventually(lambda: stack.state(name), lambda s: bool(s.uid and s.attempt))])
    deleting = asyncio.create_task(stack.delete(name))
    result = await deleting
    check_i1(stack, seen)
    check_i6(stack, seen)
    assert result.uid == seen.last.uid
    await check_i11(stack, handle.id)


@flow()
async def never_joins(stack: Stack) -> None:
    """The VM runs, no node comes: Failed exactly at the creation deadline, and deletable."""
    name = new_name()
    knobs(stack, name, never_joins=True)
    arm(stack)
    handle = await stack.create(name, creation_timeout=CREATION_TIMEOUT)
    failed = await stack.phase(Phase.FAILED, name)
    seen = Witness([failed])
    assert failed.created is not None
    check_i7(failed.journal, "CreationTimeout", failed.created + CREATION_TIMEOUT)
    check_i1(stack, seen)
    check_i5(stack, seen)
    await stack.delete(name)
    check_i6(stack, seen)
    await check_i11(stack, handle.id)


@flow("tell_node", "look_at_node", "look_at_vm", "drain_node")
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


@flow("look_at_node", "look_at_vm")
async def recovery_unheard(stack: Stack) -> None:
    """Ill at the first look, well at the second, and no news of it comes: never Failed."""
    name = new_name()
    seen = await running(stack, name, health_timeout=HEALTH_TIMEOUT)
    arm(stack)
    knobs(stack, name, unready=True)
    await deafen(stack, seen)
    left = await eventually(
        lambda: stack.state(name), lambda s: s.suspicion or s.status.phase not in (Phase.RUNNING, Phase.UNKNOWN)
    )
    knobs(stack, name, unready=False)
    if left.status.phase == Phase.UNKNOWN:
        left = await eventually(lambda: stack.state(name), lambda s: s.status.phase != Phase.UNKNOWN, "the decision")
    seen.states.append(left)
    assert left.status.phase == Phase.RUNNING, f"I5: {name} is Failed, and a fresh look would have found it well"
    reasons = [h.reason for h in left.journal]
    assert reasons.index("NotConfirmed") < reasons.index("Recovered")
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow("create_machine", "drain_node", "delete_machine", "forget_machine")
async def recreate(stack: Stack) -> None:
    """A delete to the end, then a new life under the same name: one VM at a time."""
    name = new_name()
    population = Population(stack, name)
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
    check_one_at_a_time(population)
    check_i6(stack, former)
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    for life in (former, seen):
        check_i1(stack, life)
        check_i6(stack, life)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow("list_vms", "find_owners", "update_machine", "look_at_node")
async def adopt(stack: Stack) -> None:
    """Somebody terminates the workflow of a Running machine; it is found by its owner tags, adopted, and deleted."""
    name = new_name()
    population = Population(stack, name)
    lost = await running(stack, name)
    await stack.started[name].terminate("by mistake")
    arm(stack)
    client = HostlerClient(stack.client, stack.settings, cluster=stack.cluster, requested_by="test")

    async def try_it() -> str:
        """As a person does: what could not be looked for is looked for again. Answers why it was not adopted."""
        try:
            await client.adopt(name)
        except HostlerError as e:
            return str(e)
        return ""

    await eventually(try_it, lambda why: not why, "the adoption")
    stack.started[name] = stack.client.get_workflow_handle_for(MachineWorkflow.run, machine_id(stack.cluster, name))
    seen = Witness([*lost.states, await stack.born(name)])
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    check_one_at_a_time(population)
    assert (seen.last.uid, seen.last.status.provider_id) == (lost.last.uid, lost.last.status.provider_id)
    check_i1(stack, seen)
    check_i5(stack, seen)
    check_ready(stack, seen)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


@flow("join_node")
async def changed_template(stack: Stack) -> None:
    """A template that changes on a living Node: a three-way merge, and what others own or removed stays so."""
    name = new_name()
    first = template({"example.com/pool": "a", "example.com/old": "1"}, "example.com/kept", "example.com/removed")
    seen = await running(stack, name, node_template=first)
    node = str(seen.last.status.node_name)
    # One call, and before the cordon: kubectl writes the list of taints as a whole, and so does who taints a cordon.
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


@flow("drain_node", "tell_node")
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


async def running(stack: Stack, name: str, **spec: Any) -> Witness:
    """A machine that lives, before anything is struck."""
    await stack.create(name, **spec)
    seen = Witness([await stack.born(name)])
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    return seen


def knobs(stack: Stack, name: str, **knobs: object) -> None:
    """What is unusual about the kubelet of this machine, from now on."""
    kubelets = stack.simulator.simulator.kubelets
    rule = KnobRule.model_validate({"match": name, "knobs": knobs})
    stack.simulator.call(lambda: kubelets.set_knobs([*kubelets.knobs, rule]))


async def run_pod(stack: Stack, seen: Witness) -> str:
    """A pod that runs on the machine's Node."""
    pod = f"web-{seen.last.name}"
    on_node = json.dumps({"spec": {"nodeName": seen.last.status.node_name, "terminationGracePeriodSeconds": 1}})
    stack.kubectl("run", pod, "--image=i", f"--overrides={on_node}")

    async def phase() -> str:
        return await asyncio.to_thread(stack.kubectl, "get", "pod", pod, "-o", "jsonpath={.status.phase}")

    await eventually(phase, lambda p: p == "Running", f"{pod} Running")
    return pod


async def deafen(stack: Stack, seen: Witness) -> None:
    """Tell the machine that its Node is ill, as news from far ahead: whatever its watch tells from now on is older."""
    node = seen.last.node
    assert node is not None
    news = {"epoch": node.epoch + 10**15, "ready": False, "reason": "KubeletNotReady: it has stopped"}
    await stack.started[seen.last.name].signal(MachineWorkflow.observe, node.model_copy(update=news))


def template(labels: dict[str, str], *taints: str) -> NodeTemplate:
    return NodeTemplate.model_validate(
        {
            "metadata": {"labels": labels, "annotations": labels},
            "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        }
    )


def new_name() -> str:
    return f"m-{uuid.uuid4().hex[:6]}"


def mark(stack: Stack, seen: Witness) -> None:
    """What is not ours: a tag on the VM, a label, an annotation and a cordon on the Node."""
    state: MachineState = seen.last
    node, vm = str(state.status.node_name), str(state.status.provider_id).rsplit("/", 1)[-1]
    key, value = FOREIGN_TAG
    stack.ec2().create_tags(Resources=[vm], Tags=[{"Key": key, "Value": value}])
    stack.kubectl("label", "node", node, f"{USER_KEY}=1")
    stack.kubectl("annotate", "node", node, f"{USER_KEY}=1")
    stack.kubectl("cordon", node)
    seen.touched = max(c.n for c in stack.calls("patch nodes", "kubernetes"))
