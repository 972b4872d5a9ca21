"""The drain: machine-controller-manager's cases D7 to D15 and its deadline; the pods themselves: test_drain_order.py.

docs/conformance.md is the table.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from apiserver.simulated import NODES
from histories.deadlines import at_once
from lifekit import eventually
from machine.drains import NODE as DRAINED
from machine.drains import Drain
from machine.stubbed import (
    WAY_OUT,
    called,
    delete,
    ended,
    operation,
    past,
    pending_failure,
    reason,
    running,
    state,
    way_out,
)
from machine.stubs import Machines, classified, not_yet
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from resources.calls.drain import DrainInput, DrainOutput
from resources.errors import Code, ErrorClass
from resources.machine.state import OperationState, OperationType, Phase
from resources.timings import Timings
from simulator.frame import FaultRule

SIX, FOUR = timedelta(minutes=6), timedelta(minutes=4)
NORMAL: dict[str, dict[str, tuple[str, timedelta]]] = {
    "NotReady for less than 5 min": {"Ready": ("Unknown", FOUR)},
    "D10": {"Ready": ("True", SIX), "ReadonlyFilesystem": ("True", FOUR)},
    "D11": {"Ready": ("True", SIX), "ReadonlyFilesystem": ("False", SIX)},
}
DEAD: dict[str, dict[str, tuple[str, timedelta]]] = {
    "D7": {"Ready": ("Unknown", SIX)},
    "D7 by the kubelet's own word": {"Ready": ("False", SIX)},
    "D8": {"Ready": ("True", SIX), "ReadonlyFilesystem": ("True", SIX)},
    "D9": {"Ready": ("Unknown", SIX), "ReadonlyFilesystem": ("True", SIX)},
}


async def conditions(drain: Drain, of: dict[str, tuple[str, timedelta]]) -> None:
    listed = [
        {"type": kind, "status": status, "lastTransitionTime": f"{drain.now - since:%Y-%m-%dT%H:%M:%SZ}"}
        for kind, (status, since) in of.items()
    ]
    status = {"conditions": listed, "volumesAttached": [{"name": "v", "devicePath": ""}]}
    await drain.kube.patch(f"{NODES}/{DRAINED}/status", {"status": status})


async def test_d07_d08_d09_d10_d11_a_dead_kubelet_is_not_waited_for(drain: Drain) -> None:
    """It is asked to evict all the same (I12; MCM deletes at once). Overdue pods and volumes are waited for only while
    somebody can confirm that they have gone."""
    await drain.pod("web-1", grace=1)
    await drain.waits()
    drain.later(60)  # its grace period has ended
    for case in NORMAL.values():
        await conditions(drain, case)
        assert (await drain.waits()).startswith("0 of 1 pods gone")
    for case in DEAD.values():
        await conditions(drain, case)
        output = await drain.once()
        assert output.left == ["default/web-1: still terminating after its grace period", "volume v still attached"]
    assert drain.evicted() == ["web-1"]
    assert drain.calls("delete *") == []
    await conditions(drain, DEAD["D7"])
    await drain.once(force=True)  # with force it may
    assert [c.operation for c in drain.calls("delete *")] == ["delete pods"]


async def test_d13_a_drain_that_fails_before_its_deadline_is_tried_again(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    refused = "Kubernetes API: pods is forbidden"
    machines.stubs.then("drain_node", classified(ErrorClass.AUTH, refused))
    handle = await running(machines)
    await delete(handle)
    seen = await reason(handle, "NotAuthorized")
    assert (seen.status.phase, operation(seen)) == (Phase.TERMINATING, (OperationType.DRAIN, OperationState.FAILED))
    assert seen.status.last_operation is not None
    assert (seen.status.last_operation.error_code, seen.status.last_operation.description) == (
        Code.PERMISSION_DENIED,
        refused,
    )
    assert machines.stubs.called("delete_machine") == []
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    await ended(handle)
    assert way_out(machines) == ["drain_node", *WAY_OUT]


def failing(error_class: ErrorClass) -> Callable[[DrainInput], DrainOutput]:
    """A gentle pass that never ends, and a forced one that fails and that only the workflow tries again."""

    def drain(input: DrainInput) -> DrainOutput:
        if input.force:
            raise classified(error_class, "Kubernetes API: no", last=True)
        raise not_yet("0 of 1 pods gone; default/web-1 blocked by PDB web", timedelta(days=1))

    return drain


@pytest.mark.parametrize("error_class", [ErrorClass.AUTH, ErrorClass.TRANSIENT], ids=["D12", "D12: no API at all"])
async def test_d12_force_goes_on_when_the_drain_fails(machines: Machines, error_class: ErrorClass) -> None:
    machines.stubs.then("drain_node", *[failing(error_class)] * 9)
    handle = await running(machines)
    await delete(handle, force=True)
    result = await ended(handle)
    assert way_out(machines) == WAY_OUT
    (failed,) = [h for h in result.journal if h.reason == "DrainFailed"]
    assert "Kubernetes API: no" in failed.message


async def at_the_drain_deadline(temporal: WorkflowEnvironment, machines: Machines, error_class: ErrorClass) -> Any:
    machines.stubs.then("drain_node", *[failing(error_class)] * 99)
    timings = Timings(retry={ErrorClass.TRANSIENT: timedelta(seconds=0.5)})
    handle = await running(machines, drain_timeout=timedelta(hours=2), timings=timings)
    await delete(handle)
    await eventually(lambda: pending_failure(handle), lambda words: "PDB web" in words, "the first pass over")
    await past(temporal, handle, "drain")
    return handle


async def test_d14_the_drain_fails_after_its_deadline(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await at_the_drain_deadline(temporal, machines, ErrorClass.AUTH)
    result = await ended(handle)
    assert way_out(machines)[-2:] == ["delete_machine", "forget_machine"]
    (failed,) = [h for h in result.journal if h.reason == "DrainFailed"]
    (drained,) = [h for h in result.journal if h.reason == "DrainForced"]
    assert drained.time <= failed.time


async def test_d14_out_of_reach_waits_and_force_is_the_way_out(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """What is not known is not destroyed (I5); a person may insist."""
    handle = await at_the_drain_deadline(temporal, machines, ErrorClass.TRANSIENT)
    seen = await reason(handle, "ProviderUnavailable")
    assert (seen.status.phase, seen.drained) == (Phase.TERMINATING, False)
    await called(machines, "drain_node", 6)  # and however often it is tried, it is told once
    told = [h.reason for h in (await state(handle)).journal]
    assert (told.count("DrainForced"), told.count("ProviderUnavailable")) == (1, 1)
    assert machines.stubs.called("delete_machine") == []
    await delete(handle, force=True)
    await ended(handle)
    assert len(machines.stubs.called("delete_machine")) == 1


async def test_d15_a_node_that_cannot_be_cordoned_is_not_drained(drain: Drain) -> None:
    """Otherwise new pods would come while the old ones go. MCM: the node condition; ours is the cordon and an Event."""
    drain.world.frame.faults.append(FaultRule(operation="patch nodes", code="InternalError"))
    await drain.pod("web-1")
    with pytest.raises(ApplicationError, match="Kubernetes API"):
        await drain.once()
    assert drain.evicted() == []
    await drain.waits()
    assert drain.evicted() == ["web-1"]


async def test_drain_deadline_inside_pv_loop(drain: Drain) -> None:
    """MCM takes a drain whose deadline passes between two pods with volumes for a successful one; ours says what it did
    not wait for."""
    await drain.pod("web-1", grace=3600)
    await drain.node(volumes=("kubernetes.io/csi/ebs^vol-1",))
    await drain.waits()
    going = await drain.terminating("web-1")
    assert await drain.waits(force=True, deadline=None) == f"0 of 1 pods gone; {going}"
    forced = await drain.once(force=True)
    assert forced.left == ["volume kubernetes.io/csi/ebs^vol-1 still attached"]
    assert await drain.names() == set()


async def test_drain_deadline_is_exact(temporal: WorkflowEnvironment, machines: Machines) -> None:
    def blocked(input: DrainInput) -> DrainOutput:
        if input.force:
            return DrainOutput(pods=1, left=["default/web-1: still terminating after its grace period"])
        raise not_yet("0 of 1 pods gone; default/web-1 blocked by PDB web", timedelta(days=1))

    machines.stubs.then("drain_node", *[blocked] * 9)
    handle = await running(machines, drain_timeout=timedelta(hours=2))
    await delete(handle)
    seen = await reason(handle, "Draining")
    assert seen.deletion is not None
    assert seen.status.deadlines == {"drain": seen.deletion.time + timedelta(hours=2)}
    await eventually(lambda: pending_failure(handle), lambda words: "PDB web" in words, "the first pass over")
    # Not much further than the deadline: beside a pending activity time may be skipped to the end in one go.
    await temporal.fast_forward(handle, timedelta(hours=2, seconds=1))
    result = await ended(handle)
    forced = next(h for h in result.journal if h.reason == "DrainForced")
    await at_once(handle, seen.deletion.time + timedelta(hours=2), forced.time)
    drained = next(h for h in result.journal if h.reason == "Drained")
    assert "not waited for: default/web-1" in drained.message
