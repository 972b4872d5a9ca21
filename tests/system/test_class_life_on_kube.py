"""A class and its machine, from the first apply to the last disk, as an operator types it: on the simulated API server
and on a real one with its own controllers. EC2 and the kubelets are simulated in both."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from apiserver.real import ALL, real_kube, required_assets
from apiserver.simulated import unique
from lifekit import EXAMPLES, Stack, eventually, hostler, new_stack
from machine.hot_updates import Hot, instance_id, named, reasons, tags, text, users
from machine.lives import node, told
from temporalio.testing import WorkflowEnvironment

from resources.machine.state import Phase
from workflows.machine import MachineWorkflow

CLASS = "demo-m5-large"


@pytest.fixture(params=[pytest.param("simulator", marks=pytest.mark.exhaustive), "real"])
async def stack(request: pytest.FixtureRequest, temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with contextlib.AsyncExitStack() as entered:
        simulator = {}
        if request.param == "real":
            kube = await entered.enter_async_context(real_kube(required_assets(), ALL))
            simulator = {"api_server_kubeconfig": kube.kubeconfig}
        made = await entered.enter_async_context(new_stack(temporal.client, **simulator))
        await entered.enter_async_context(made.worker())
        yield made


def pod(stack: Stack, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stack.kubectl("get", "pod", name, "-o", "json"))
    return found


async def serving(stack: Stack, name: str, node_name: str) -> dict[str, Any]:
    overrides = {"spec": {"nodeName": node_name, "terminationGracePeriodSeconds": 1}}
    stack.kubectl("run", name, "--image=i", f"--overrides={json.dumps(overrides)}")

    async def look() -> dict[str, Any]:
        return pod(stack, name)

    return await eventually(look, lambda p: p["status"].get("phase") == "Running", f"pod {name}")


def standing(of: dict[str, Any]) -> tuple[Any, ...]:
    """What an update of its VM must not touch on a Node."""
    meta, spec = of["metadata"], of["spec"]
    return meta["uid"], meta["labels"], spec["providerID"], spec.get("taints"), spec.get("unschedulable")


async def test_a_class_and_its_machine_from_the_first_apply_to_the_last_disk(stack: Stack) -> None:
    hot = Hot(stack)
    files = ("-f", str(EXAMPLES / "secret.yaml"), "-f", str(EXAMPLES / "class.yaml"))
    assert f"machineclass/{CLASS} created" in await hostler(stack, "apply", *files)
    machine = yaml.safe_load((EXAMPLES / "machine.yaml").read_text())
    machine["metadata"]["name"] = "m-1"
    assert "machine/m-1 created" in await hostler(stack, "apply", "-f", "-", stdin=yaml.safe_dump(machine))
    stack.started["m-1"] = stack.client.get_workflow_handle_for(MachineWorkflow.run, "machine/demo/m-1")
    running = await stack.phase(Phase.RUNNING)
    name, vm = str(running.status.node_name), instance_id(running)
    await users(hot, "m-1")
    web = await serving(stack, unique("web"), name)
    before, carried, since = standing(node(stack, name)), stack.tags(vm), hot.mark()

    # A hot update: the cluster sees nothing of it but an Event.
    hot.manifest = hot.changed(vmTags=tags(hot, team="web"))
    await hostler(stack, "apply", "-f", "-", stdin=text(hot.manifest))
    assert (await hot.done()).last_updated_generation == 2
    assert stack.tags(vm) == {**carried, "team": "web"}
    await eventually(lambda: told(stack, name), lambda events: events.get("Updated") == "Normal", "its Event")

    # Another class, which differs in hot fields and in one that only a new VM can have.
    other = Hot(stack, manifest=named(hot.changed(diskTags={"backup": "yes"}, machineType="m5.xlarge"), "other"))
    await hostler(stack, "apply", "-f", "-", stdin=text(other.manifest))
    assert "machineType" in await hostler(stack, "update-class", "m-1", "other")
    await users(other, "m-1")
    assert [hot.extra(id) for id in hot.of(running)["volumes"]] == [{"backup": "yes"}]
    assert f"class {CLASS} is gone" in await hostler(stack, "delete", "class", CLASS)
    assert "used by 1 machine (m-1)" in await hostler(stack, "delete", "class", "other", expect=1)

    after = await stack.state()
    assert (after.status.phase, stack.launched()) == (Phase.RUNNING, [vm])
    assert standing(node(stack, name)) == before
    assert pod(stack, web["metadata"]["name"])["metadata"]["uid"] == web["metadata"]["uid"]
    assert {"RunInstances", "TerminateInstances"}.isdisjoint(hot.changing(since))
    assert reasons(after).count("Updated") == 2

    await hostler(stack, "delete", "machine", "m-1", "--wait", "--timeout", "300s")
    assert "class other is gone" in await hostler(stack, "delete", "class", "other")
    assert hot.of(running) == {}
    assert name not in stack.kubectl("get", "nodes", "-o", "name")
    assert web["metadata"]["name"] not in stack.kubectl("get", "pods", "-o", "name")
    assert "bootstrap-token" not in stack.kubectl("get", "secrets", "-n", "kube-system")
