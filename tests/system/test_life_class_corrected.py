"""A class that is corrected: a must-tag that was wrong, credentials that have another name or were missing."""

from __future__ import annotations

from typing import Any

import pytest
from lifekit import CLUSTER, Stack, eventually, examples, plant, write_secret
from machine.hot_updates import COST_A, COST_B, MUST, PATIENT, A, B, Hot, instance_id

from resources.machine.manifest import SecretRef
from resources.machine.state import MachineState, Phase
from resources.names import cluster_id, machine_id
from starter.sdk.errors import Refused
from workflows.machine import MachineWorkflow

ROLE = "kubernetes.io/role/node"
TYPO = {"kubernetes.io/cluster/shoot--typo": "1", ROLE: "1"}
ACCOUNT = "AWS/eu-west-1/default"


@pytest.fixture
def hot(stack: Stack) -> Hot:
    return Hot(stack, PATIENT)


def has_must_tags(hot: Hot, machine: MachineState) -> bool:
    return all(hot.must(r).items() >= MUST.items() for r in hot.all(machine))


# -- must-tags ---------------------------------------------------------------------------------------------------------


async def test_a_wrong_must_tag_that_no_machine_carries(stack: Stack, hot: Hot) -> None:
    """First without users, then with one that cannot be created because of it, which is tried with the correction at
    once. From then on the tag binds."""
    await hot.apply(**{**COST_A, "tags": {**A, **TYPO}})
    await hot.apply(tags={**A, **TYPO, ROLE: "0"})
    await hot.client.apply(hot.manifest, *examples("m-1").machines)
    stack.started["m-1"] = stack.client.get_workflow_handle_for(MachineWorkflow.run, machine_id(CLUSTER, "m-1"))
    wrong = await stack.reason("InvalidSpec")
    assert wrong.status.phase == Phase.CRASH_LOOP_BACK_OFF
    assert stack.launched() == []
    await hot.apply(tags=COST_A["tags"])
    machine = await stack.phase(Phase.RUNNING)
    await hot.done()
    assert hot.each(machine) == [A] * 3
    assert has_must_tags(hot, machine)
    with pytest.raises(Refused, match=f"the tag {ROLE} may not be changed"):
        await hot.client.apply(hot.changed(tags={**COST_A["tags"], ROLE: "0"}))
    assert (await hot.of_class()).machine_class.provider_spec == hot.manifest.provider_spec


async def test_a_class_begins_to_name_its_cluster(stack: Stack, hot: Hot) -> None:
    """A wrong name is refused by the machines, and can be taken back; they carry the right one already."""
    await hot.apply(**{**COST_A, "tags": A})
    machine = await hot.machine()
    since = hot.mark()
    await hot.apply(tags={**A, **TYPO})
    trouble = (await hot.failed("InvalidSpec")).status.update_trouble
    assert trouble is not None
    assert "the class's tags name the cluster shoot--typo, the settings shoot--hostler--demo" in trouble.message
    await hot.everywhere(tags=A)
    await hot.everywhere(tags={**A, **MUST})
    assert hot.changing(since) == []
    await hot.everywhere(**COST_B)
    assert hot.changing(since) == ["DeleteTags", "CreateTags"]
    assert hot.each(machine) == [B] * 3
    assert has_must_tags(hot, machine)


# -- credentials -------------------------------------------------------------------------------------------------------


async def cluster(stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = await stack.client.get_workflow_handle(cluster_id(CLUSTER)).query("describe")
    return found


async def lists(stack: Stack, secret: str, reachable: bool) -> None:
    """Waits until the watch of the account with these credentials says so."""

    def said(s: dict[str, Any]) -> bool:
        cloud = s["clouds"].get(f"{ACCOUNT}/{secret}")
        return cloud is not None and cloud["reachable"] is reachable

    await eventually(lambda: cluster(stack), said, f"{secret}: {'' if reachable else 'not '}reachable")


async def test_credentials_with_another_name(stack: Stack, hot: Hot) -> None:
    """The machine's calls use them at once, and so does the watch of the account, which finds the VM that ends."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    await lists(stack, "demo-aws", reachable=True)
    stack.kubectl("delete", "secret", "demo-aws")
    await hot.apply(**COST_B)
    await hot.failed("CredentialsMissing")
    (secret,) = examples().secrets
    await write_secret(stack, "other", secret.plain())
    hot.manifest = hot.manifest.model_copy(update={"secret_ref": SecretRef(name="other")})
    await hot.everywhere()  # not ten minutes later: a changed class is tried at once
    assert hot.each(machine) == [B] * 3
    await lists(stack, "other", reachable=True)
    stack.simulator.call(lambda: stack.cloud.kill(instance_id(machine)))
    await stack.reason("VMGone")


async def test_credentials_that_are_away_for_a_moment(stack: Stack, hot: Hot) -> None:
    """Meanwhile the account is reported as out of reach; afterwards it is watched again."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    await lists(stack, "demo-aws", reachable=True)
    stack.kubectl("delete", "secret", "demo-aws")
    await lists(stack, "demo-aws", reachable=False)
    assert (await stack.state()).status.phase == Phase.RUNNING
    await plant(stack)
    await lists(stack, "demo-aws", reachable=True)
    stack.simulator.call(lambda: stack.cloud.kill(instance_id(machine)))
    await stack.reason("VMGone")
