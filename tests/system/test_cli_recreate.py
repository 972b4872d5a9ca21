"""`hostler recreate`, and waiting for what comes of it, on real parts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from cli.place import impatient
from lifekit import Stack, eventually, hostler, new_stack
from machine.lives import client_of, fault, mend, provider_id, running
from temporalio.testing import WorkflowEnvironment

from resources.machine.state import Phase
from starter.sdk.errors import NotFound

__all__ = ["impatient"]  # a fixture


async def test_a_new_life_of_the_same_name(stack: Stack) -> None:
    former = await running(stack)
    told = await hostler(
        stack, "recreate", "machine", "m-1", "--reason", "a new kernel", "--wait", "--timeout", "60s", "--as", "alice"
    )
    assert told.splitlines() == [
        "machine/m-1 is being recreated: machine m-1 is being deleted, then created again",
        "machine/m-1 is Running",
    ]
    now = await stack.phase(Phase.RUNNING)
    assert (now.name, now.spec, now.machine_class) == (former.name, former.spec, former.machine_class)
    assert now.uid != former.uid
    assert stack.leftovers(former.uid) == {}
    assert len(stack.launched()) == 2
    story = await hostler(stack, "events", "machine", "m-1")
    assert "RecreateAsked" in story
    assert "recreate asked by alice: a new kernel" in story
    await stack.delete()
    with pytest.raises(NotFound, match="is gone since"):
        await client_of(stack).recreate("m-1")


async def test_of_a_failed_machine(stack: Stack) -> None:
    """It is Failed until it goes: that does not end the new life."""
    await stack.create(health_timeout=timedelta(seconds=1))
    former = await stack.phase(Phase.RUNNING)
    stack.ec2().terminate_instances(InstanceIds=[provider_id(former).rsplit("/", 1)[-1]])
    await stack.phase(Phase.FAILED)
    told = await hostler(stack, "recreate", "machine/m-1", "--wait", "--timeout", "60s")
    assert told.splitlines()[-1] == "machine/m-1 is Running"
    assert (await stack.phase(Phase.RUNNING)).uid != former.uid


async def test_waiting_meanwhile(stack: Stack) -> None:
    """Terminating is no end for a machine that is being recreated, until somebody deletes it for good."""
    former = await running(stack)
    fault(stack, operation="TerminateInstances", code="UnauthorizedOperation", times=None)
    await hostler(stack, "recreate", "machine", "m-1")
    await stack.phase(Phase.TERMINATING)
    late = await hostler(stack, "wait", "machine", "m-1", "--timeout", "1s", expect=124)
    assert "machine m-1 is Terminating (" in late
    assert "not Running, after 1s; it may get there yet" in late
    again = await hostler(stack, "recreate", "machine", "m-1", "--force")
    assert again == "machine/m-1 is being recreated: machine m-1 is already being recreated, from now on with force\n"

    await hostler(stack, "delete", "machine", "m-1")
    lost = await hostler(stack, "wait", "machine", "m-1", "--timeout", "60s", expect=1)
    assert "and will not become Running" in lost
    refused = await hostler(stack, "recreate", "machine", "m-1", expect=1)
    assert "error: machine m-1 is being deleted; apply it again when it is gone" in refused
    mend(stack)
    await hostler(stack, "wait", "machine", "m-1", "--for=deleted", "--timeout", "60s")
    assert stack.leftovers(former.uid) == {}
    assert len(stack.launched()) == 1


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker(temporal: WorkflowEnvironment) -> None:
    """It is recorded; the machine's uid is read from its history, so that the new one can be told apart."""
    async with new_stack(temporal.client) as stack:
        client = client_of(stack)
        async with stack.worker():
            former = await running(stack)
        sent = await client.recreate("m-1")
        assert (sent.recorded, sent.uid) == (True, former.uid)
        assert sent.message == f"recorded; no worker is polling {stack.settings.queue_prefix}"
        # The worker may have left a workflow task behind: until that has timed out, the server shows no signal.
        described = await eventually(
            lambda: client.describe("m-1"), lambda d: d.state is not None and d.state.deletion is not None
        )
        assert described.state is not None
        assert described.state.deletion is not None
        assert described.state.deletion.recreate
        waiting = asyncio.create_task(client.wait("m-1", unlike=sent.uid, timeout=timedelta(seconds=60)))
        async with stack.worker():
            await waiting
            now = await eventually(lambda: stack.state(), lambda s: s.status.phase == Phase.RUNNING)
        assert now.uid != former.uid
        assert stack.leftovers(former.uid) == {}
