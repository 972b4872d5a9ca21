"""The flows of the fault matrix. A flow joins by registering; its activity boundaries are found by running it once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

from invariants import (
    FOREIGN_TAG,
    USER_KEY,
    Witness,
    check_i1,
    check_i5,
    check_i6,
    check_i7,
    check_i8,
    check_i10,
    check_i11,
    check_ready,
)
from lifekit import Stack, eventually

from resources.machine import MachineState, Phase
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule

Flow = Callable[[Stack], Awaitable[None]]
FLOWS: dict[str, Flow] = {}


def flow(run: Flow) -> Flow:
    """Register. A flow drives one machine `m-1` (by the name given) to the right end and asks for every invariant."""
    FLOWS[run.__name__.replace("_", " ")] = run
    return run


@flow
async def whole_life(stack: Stack) -> None:
    """Create, post-start, join, ready; a user's marks on node and VM; drain, delete, forget."""
    name = new_name()
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


@flow
async def delete_during_create(stack: Stack) -> None:
    """The deletion comes while RunInstances is slow (field case P05)."""
    name = new_name()
    slow = FaultRule(service="ec2", operation="RunInstances", delay=1.0, times=1, match=name)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(slow))
    handle = await stack.create(name)
    seen = Witness([await eventually(lambda: stack.state(name), lambda s: bool(s.uid and s.attempt))])
    deleting = asyncio.create_task(stack.delete(name))
    result = await deleting
    check_i1(stack, seen)
    check_i6(stack, seen)
    assert result.uid == seen.last.uid
    await check_i11(stack, handle.id)


@flow
async def never_joins(stack: Stack) -> None:
    """The VM runs, no node comes: Failed exactly at the creation deadline, and deletable."""
    name = new_name()
    kubelets = stack.simulator.simulator.kubelets
    rule = KnobRule.model_validate({"match": name, "knobs": {"never_joins": True}})
    stack.simulator.call(lambda: kubelets.set_knobs([*kubelets.knobs, rule]))
    handle = await stack.create(name, creation_timeout=timedelta(seconds=6))
    failed = await stack.phase(Phase.FAILED, name)
    seen = Witness([failed])
    assert failed.created is not None
    check_i7(failed.journal, "CreationTimeout", failed.created + timedelta(seconds=6))
    check_i1(stack, seen)
    check_i5(stack, seen)
    await stack.delete(name)
    check_i6(stack, seen)
    await check_i11(stack, handle.id)


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
