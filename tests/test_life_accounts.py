"""Credentials that change under a running worker: the next call has the new ones."""

from __future__ import annotations

from flowkit import give
from lifekit import Stack

from resources.machine import Phase
from simulator.ec2 import World
from simulator.ec2.auth import AccessKey


async def test_a_secret_is_rotated_under_a_running_worker(stack: Stack) -> None:
    """The former key is deleted at once, as who rotates a leaked one does."""
    world, cloud = World(), stack.simulator.simulator.ec2.authenticator
    ((old, value),) = world.access_keys.items()
    await give(stack, "rotated", old, value)
    await stack.create(secret="rotated")
    await stack.phase(Phase.RUNNING)
    new = AccessKey(secret="hostler-rotated-secret", account=world.account_id)
    stack.simulator.call(lambda: cloud.access_keys.update({"AKIAHOSTLERROTATED04": new}))
    await give(stack, "rotated", "AKIAHOSTLERROTATED04", new.secret)
    stack.simulator.call(lambda: cloud.access_keys.pop(old))
    result = await stack.delete()
    assert "NotAuthorized" not in [h.reason for h in result.journal]
    assert stack.leftovers(result.uid) == {}
    assert {c.caller for c in stack.calls("TerminateInstances")} == {"AKIAHOSTLERROTATED04"}
