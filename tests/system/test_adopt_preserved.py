"""Preserved machines whose workflow somebody terminated: what was asked of them, and until when, stays valid."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from lifekit import CLUSTER, Stack, eventually, hostler
from machine.lives import knobs, running, terminate, time_is_up

from resources.machine.preservation import PreservedBy
from resources.machine.state import MachineState, Phase
from resources.names import PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, machine_id


async def shows(stack: Stack, phase: str, name: str) -> MachineState:
    return await eventually(lambda: stack.state(name), lambda s: s.status.shown_phase == phase, f"{name} {phase}")


async def protected(stack: Stack, state: MachineState, wanted: str) -> None:
    """What cluster-autoscaler reads on its Node."""
    field = f"jsonpath={{.metadata.annotations.{SCALE_DOWN_DISABLED.replace('.', chr(92) + '.')}}}"
    words = ("get", "node", str(state.status.node_name), "-o", field)
    await eventually(lambda: stack.kubectl_beside(*words), lambda s: s == wanted, f"protected: {wanted!r}")


async def renewed(stack: Stack, name: str) -> None:
    """The machine goes on in a second run."""
    handle = stack.client.get_workflow_handle(machine_id(CLUSTER, name))
    first = (await handle.describe()).run_id
    await hostler(stack, "renew", "machine", name)
    await eventually(handle.describe, lambda d: d.run_id != first, "the second run")


async def adopted(stack: Stack, name: str) -> str:
    await terminate(stack, name)
    return await hostler(stack, "adopt", "machine", name)


async def test_one_that_is_preserved_stays_so(stack: Stack) -> None:
    """It is recovered from its first run, in which the request is a message and the time is not."""
    await running(stack)
    await hostler(stack, "preserve", "m-1", "--for", "8h", "--reason", "a look", "--as", "alice")
    before = await shows(stack, "Running:Preserved", "m-1")
    await protected(stack, before, "true")
    until = before.status.preserve.expiry_time
    told = await adopted(stack, "m-1")
    assert f"machine/m-1: it is preserved, as before, until {until:%Y-%m-%d %H:%M:%S} UTC" in told
    after = await shows(stack, "Running:Preserved", "m-1")
    p = after.status.preserve
    assert (p.expiry_time, p.source) == (until, PreservedBy.ASKED)
    assert (p.own.value, p.own.requested_by, p.own.reason) == ("now", "alice", "a look")
    await eventually(lambda: stack.state(), lambda s: s.status.preserve.protected, "its Node is looked at")
    await protected(stack, after, "true")
    await hostler(stack, "release", "m-1")
    assert (await shows(stack, "Running", "m-1")).status.preserve.own is None
    await protected(stack, after, "")


async def test_what_was_said_of_it_since_counts(stack: Stack) -> None:
    """It was said in its second run, which began with the former words: another time for one, the end for the other."""
    names = ("m-1", "m-2")
    await asyncio.gather(*(running(stack, name) for name in names))
    for name in names:
        await hostler(stack, "preserve", name, "--for", "8h")
        await shows(stack, "Running:Preserved", name)
        await renewed(stack, name)
    later = (datetime.now(UTC) + timedelta(days=200)).replace(microsecond=0)
    await hostler(stack, "extend", "m-1", "--until", later.isoformat())
    await hostler(stack, "release", "m-2")
    released = await shows(stack, "Running", "m-2")
    await protected(stack, released, "")
    assert f"preserved, as before, until {later:%Y-%m-%d %H:%M:%S} UTC" in await adopted(stack, "m-1")
    assert "preserved" not in await adopted(stack, "m-2")
    extended = await shows(stack, "Running:Preserved", "m-1")
    assert extended.status.preserve.expiry_time == later
    released = await stack.phase(Phase.RUNNING, "m-2")
    assert (released.status.preserve.own, released.status.preserve.expiry_time) == (None, None)
    await protected(stack, released, "")


async def test_one_that_failed_is_kept_as_long_as_before(stack: Stack) -> None:
    """An annotation that came in its second run keeps it; it fails once more."""
    await stack.create("m-1", health_timeout=timedelta(seconds=3), creation_timeout=timedelta(hours=1))
    node = (await stack.phase(Phase.RUNNING)).status.node_name
    await renewed(stack, "m-1")
    stack.kubectl("annotate", "node", str(node), f"{PRESERVE_ANNOTATION}=when-failed")
    knobs(stack, "m-1*", unready=True)
    before = await shows(stack, "Failed:Preserved", "m-1")
    await adopted(stack, "m-1")
    await shows(stack, "Pending:Preserved", "m-1")
    await time_is_up(stack, creation_timeout=timedelta(seconds=4))
    after = await shows(stack, "Failed:Preserved", "m-1")
    assert after.status.preserve.expiry_time == before.status.preserve.expiry_time
    assert after.status.preserve.source is PreservedBy.ASKED
    assert after.status.provider_id == before.status.provider_id
    assert len(stack.launched()) == 1
