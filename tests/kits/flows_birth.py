"""Flows of a machine's beginning, and its whole life: each of their boundaries is struck, even by `make test`."""

from __future__ import annotations

from datetime import timedelta

from faultkit import arm
from flowkit import Flow, flow, knobs, mark, new_name
from invariants import Witness, check_i1, check_i5, check_i6, check_i7, check_i8, check_i10, check_i11, check_ready
from lifekit import Stack, eventually

from resources.machine.state import Phase
from simulator.frame import FaultRule

CREATION_TIMEOUT = timedelta(seconds=8)

BIRTHS: dict[str, Flow] = {}


@flow(BIRTHS)
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


@flow(BIRTHS)
async def delete_during_create(stack: Stack) -> None:
    """The deletion comes while RunInstances is slow (field case P05)."""
    name = new_name()
    slow = FaultRule(service="ec2", operation="RunInstances", delay=1.0, times=1, match=name)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(slow))
    arm(stack)
    handle = await stack.create(name)
    seen = Witness([await eventually(lambda: stack.state(name), lambda s: bool(s.uid and s.attempt))])

    async def called() -> bool:
        """Finished calls, including one that came to an error of its own."""
        return slow.hits > 0 or (await stack.state(name)).create_failures > 0

    await eventually(called, what="the create call")
    result = await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    assert result.uid == seen.last.uid
    await check_i11(stack, handle.id)


@flow(BIRTHS)
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
