"""A machine's whole life in a cloud that only its own packages know: the simulator serves it, its driver asks it over
the wire, its kubelet joins."""

from __future__ import annotations

from typing import Any

import pytest
from clouds.drivers import registered
from fakecloud import FAKE
from lifekit import examples, new_stack, write_secret
from temporalio.testing import WorkflowEnvironment

from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, Phase

MUST = {"kubernetes.io/cluster/shoot--hostler--demo": "1", "kubernetes.io/role/node": "1"}
SPEC = {"image": "image-1", "flavour": "small", "labels": MUST, "disks": [{"sizeGb": 20, "labels": {"a": "b"}}]}


@pytest.mark.core
async def test_from_birth_to_the_last_network_interface(temporal: WorkflowEnvironment) -> None:
    with registered():
        async with new_stack(temporal.client, clouds=("aws", "fake")) as stack, stack.worker():
            user_data = examples().secrets[0].plain()["userData"]
            await write_secret(stack, "fake", {"token": b"token-of-the-one", "userData": user_data})
            small = ClassSnapshot(
                name="small", generation=1, provider=FAKE.name, provider_spec=SPEC, secret_ref=SecretRef(name="fake")
            )
            cloud: Any = stack.simulator.simulator.clouds["fake"]
            handle = await stack.create(machine_class=small)

            running = await stack.phase(Phase.RUNNING)
            assert (running.status.provider_id, running.status.node_name) == ("fake:///vm-1", "m-1")
            assert stack.kubectl("get", "node", "m-1", "-o", "jsonpath={.spec.providerID}") == "fake:///vm-1"
            kinds = sorted(thing.kind for thing in cloud.api.things.values())
            assert kinds == ["disk", "nic", "vm"]
            made = [call.operation for call in stack.calls("*", service="fake") if call.mutating]
            assert made[:2] == ["CreateNic", "CreateVm"]
            assert stack.calls("*") == []  # nobody asked the other cloud for anything

            stack.simulator.call(lambda: cloud.kill("vm-1"))
            await stack.phase(Phase.UNKNOWN)  # its account's watch has seen it
            await stack.delete()
            assert (await handle.result()).provider_id == "fake:///vm-1"
            assert [thing.id for thing in cloud.api.things.values() if thing.state != "terminated"] == []
            assert stack.kubectl("get", "nodes", "-o", "name") == ""
