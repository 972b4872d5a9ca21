"""Credentials that change under a running worker: the next call has the new ones."""

from __future__ import annotations

from faults.flow import give
from lifekit import Stack, eventually

from resources.attributes import MEMO_OWNERS
from resources.cluster.accounts import Account
from resources.machine.manifest import SecretRef
from resources.machine.state import Phase
from resources.names import cluster_id
from simulator.clouds.ec2 import World
from simulator.clouds.ec2.auth import AccessKey


async def test_a_secret_is_rotated_under_a_running_worker(stack: Stack) -> None:
    """The former key is deleted at once, as for a leaked one."""
    world, cloud = World(), stack.cloud.authenticator
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


async def test_no_machine_is_made_in_another_account_while_others_run(stack: Stack) -> None:
    """The Secret opens another account: a new machine waits, and a running one says so; the right credentials end
    both."""
    ((key, value),) = World().access_keys.items()
    ((_, others),) = World().other_accounts.items()
    await give(stack, "given-away", key, value)
    await stack.create("m-1", secret="given-away")
    await stack.phase(Phase.RUNNING, "m-1")
    account = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="given-away"))
    cluster = stack.client.get_workflow_handle(cluster_id(stack.cluster))

    async def known() -> bool:
        owners = await (await cluster.describe()).memo_value(MEMO_OWNERS, {}, type_hint=dict[str, str])
        return account.key in owners

    await eventually(known, what="its account is known")
    await give(stack, "given-away", *next(iter(others.items())))
    launched = len(stack.calls("RunInstances"))

    async def says(name: str) -> set[str]:
        status = (await stack.state(name)).status
        return {c.reason for c in status.conditions} | ({status.waiting_for.reason} if status.waiting_for else set())

    await stack.create("m-2", secret="given-away")
    await eventually(lambda: says("m-2"), lambda reasons: "WrongAccount" in reasons, "m-2 waits")
    await eventually(lambda: says("m-1"), lambda reasons: "WrongAccount" in reasons, "m-1 says so")
    assert (await stack.state("m-1")).status.phase == Phase.RUNNING
    assert len(stack.calls("RunInstances")) == launched
    await give(stack, "given-away", key, value)
    await stack.phase(Phase.RUNNING, "m-2")
    await eventually(lambda: says("m-1"), lambda reasons: not reasons, "m-1 is well again")
    assert len(stack.calls("RunInstances")) == launched + 1
