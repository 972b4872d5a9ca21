"""Flows of the fault matrix that are about preservation: on request, until its end; and of a machine that failed."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

from faultkit import arm
from flowkit import Flow, flow, knobs, mark, new_name, running
from invariants import (
    Witness,
    check_drained_once,
    check_i1,
    check_i6,
    check_i7,
    check_i9,
    check_i10,
    check_i11,
    check_marks,
)
from lifekit import DEADLINE, Stack, eventually

from resources.machine.preservation import PreserveIntent, PreserveValue
from resources.machine.state import MachineState, Phase
from resources.names import PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, machine_id

TIMEOUT = timedelta(seconds=8)
HEALTH_TIMEOUT = timedelta(seconds=4)

PRESERVED: dict[str, Flow] = {}


@flow(PRESERVED, "preserve_node", "preserve_node 2")
async def preserved_by_annotation(stack: Stack) -> None:
    """Running and annotated with `now`: protected from cluster-autoscaler until its end, and then as before."""
    name = new_name()
    seen = await running(stack, name, machine_preserve_timeout=TIMEOUT)
    mark(stack, seen)
    arm(stack)
    node = str(seen.last.status.node_name)
    await asyncio.to_thread(stack.kubectl, "annotate", "node", node, f"{PRESERVE_ANNOTATION}=now")
    kept = await preserved(stack, name)
    assert kept.status.shown_phase == "Running:Preserved"
    expiry = kept.status.preserve.expiry_time
    assert expiry is not None
    await eventually(lambda: on_node(stack, node), lambda a: a.get(SCALE_DOWN_DISABLED) == "true", "it is protected")
    ended = await eventually(lambda: stack.state(name), lambda s: s.status.preserve.expiry_time is None, "the end")
    check_i7(ended.journal, "PreserveExpired", expiry)
    assert ended.status.phase is Phase.RUNNING
    await eventually(
        lambda: on_node(stack, node), lambda a: not {SCALE_DOWN_DISABLED, PRESERVE_ANNOTATION} & a.keys(), "all is gone"
    )
    check_marks(stack, seen)
    await stack.delete(name)
    await the_end(stack, seen)


@flow(PRESERVED, "drain_node", "preserve_node", "preserve_node 2", "drain_node 2")
async def preserved_when_it_failed(stack: Stack) -> None:
    """Preservation is asked for beforehand; the machine is drained once when it fails, kept until the end, then deleted
    on its own."""
    name = new_name()
    seen = await running(
        stack, name, machine_preserve_timeout=TIMEOUT, health_timeout=HEALTH_TIMEOUT, drain_timeout=timedelta(seconds=2)
    )
    mark(stack, seen)
    arm(stack)
    asked = PreserveIntent(id=f"keep-{name}", requested_by="test", value=PreserveValue.WHEN_FAILED)
    await stack.started[name].signal("preserve", asked)
    knobs(stack, name, dies_after=0.0)
    kept = await preserved(stack, name)
    seen.states.append(kept)
    assert kept.status.shown_phase == "Failed:Preserved"
    check_marks(stack, seen)
    expiry = kept.status.preserve.expiry_time
    assert expiry is not None
    result = await asyncio.wait_for(stack.started[name].result(), DEADLINE)
    check_i9(result.journal, expiry)
    check_i7(result.journal, "PreserveExpired", expiry)
    check_drained_once(result.journal)
    await the_end(stack, seen)


@flow(PRESERVED, "preserve_node", "preserve_node 2")
async def preserved_and_well_again(stack: Stack) -> None:
    """Failed:Preserved, well again: Running:Preserved with the same expiry, and the cordon of the drain is lifted."""
    name = new_name()
    seen = await running(stack, name, machine_preserve_timeout=timedelta(minutes=10), health_timeout=HEALTH_TIMEOUT)
    arm(stack)
    asked = PreserveIntent(id=f"keep-{name}", requested_by="test", value=PreserveValue.WHEN_FAILED)
    await stack.started[name].signal("preserve", asked)
    knobs(stack, name, unready=True)
    failed = await preserved(stack, name)
    assert failed.status.shown_phase == "Failed:Preserved"
    knobs(stack, name, unready=False)
    well = await stack.phase(Phase.RUNNING, name)
    assert well.status.preserve.expiry_time == failed.status.preserve.expiry_time
    node = str(well.status.node_name)
    await eventually(lambda: spec_of(stack, node), lambda s: not s.get("unschedulable"), "our cordon is lifted")
    seen.states.append(well)
    await stack.delete(name)
    await the_end(stack, seen)


async def preserved(stack: Stack, name: str) -> MachineState:
    return await eventually(lambda: stack.state(name), lambda s: s.status.preserve.expiry_time, f"{name} preserved")


async def the_end(stack: Stack, seen: Witness) -> None:
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, seen.last.name))


async def on_node(stack: Stack, node: str) -> dict[str, str]:
    return dict((await _node(stack, node))["metadata"].get("annotations") or {})


async def spec_of(stack: Stack, node: str) -> dict[str, Any]:
    return dict((await _node(stack, node)).get("spec") or {})


async def _node(stack: Stack, node: str) -> Any:
    return json.loads(await asyncio.to_thread(stack.kubectl, "get", "node", node, "-o", "json"))
