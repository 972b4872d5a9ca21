"""A tag of a class is changed while its machine runs: everything is real except the cloud, through the command line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from lifekit import EXAMPLES, Stack, eventually, hostler

from resources.machine_class.state import ClassState
from resources.names import class_id

CLASS = "demo-m5-large"


def manifest(**vm_tags: str | None) -> dict[str, Any]:
    """The examples' class, with tags of the VM set or taken away."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "class.yaml").read_text())
    tags = found["providerSpec"]["vmTags"]
    found["providerSpec"]["vmTags"] = {k: v for k, v in {**tags, **vm_tags}.items() if v is not None}
    return found


def vm_tags(stack: Stack) -> dict[str, str]:
    (reservation,) = stack.ec2().describe_instances()["Reservations"]
    return {t["Key"]: t["Value"] for t in reservation["Instances"][0]["Tags"]}


async def state_of(stack: Stack) -> tuple[str, int]:
    """The state of its only machine, as the class knows it."""
    state = await stack.client.get_workflow_handle(class_id("demo", CLASS)).query("describe", result_type=ClassState)
    (user,) = state.users.values()
    return str(user.state), user.generation


@pytest.mark.core
async def test_a_tag_changes_and_no_machine_does(stack: Stack) -> None:
    stack.started["tagged"] = stack.client.get_workflow_handle("machine/demo/tagged")
    files = ("-f", str(EXAMPLES / "secret.yaml"), "-f", str(EXAMPLES / "class.yaml"))
    assert f"machineclass/{CLASS} created" in await hostler(stack, "apply", *files)
    machine = yaml.safe_load((EXAMPLES / "machine.yaml").read_text())
    machine["metadata"]["name"] = "tagged"  # of the class that was applied before
    assert await hostler(stack, "apply", "-f", "-", stdin=yaml.safe_dump(machine)) == "machine/tagged created\n"
    await hostler(stack, "wait", "machine", "tagged", "--for=phase=Running", "--timeout", "60s")
    before = vm_tags(stack)

    changed = yaml.safe_dump(manifest(team="web", **{"cost-center": None}))
    shown = await hostler(stack, "diff", "-f", "-", stdin=changed, expect=1)
    for words in ("vmTags.team: platform -> web: hot update", "cost-center: 4711 -> (none)", "1 machine (tagged)"):
        assert words in shown
    assert vm_tags(stack) == before
    applied = await hostler(stack, "--as", "alice", "apply", "-f", "-", stdin=changed)
    assert applied == f"machineclass/{CLASS} configured: generation 2: hot update of vmTags; 1 machine to tell\n"

    async def row() -> list[str]:
        return (await hostler(stack, "get", "classes")).splitlines()[1].split()[:-1]

    await eventually(lambda: state_of(stack), ("Updated", 2).__eq__, "the class updated")
    assert await row() == [CLASS, "AWS", "2", "2", "1", "1", "Updated"]
    wanted = {k: v for k, v in before.items() if k != "cost-center"} | {"team": "web"}
    assert vm_tags(stack) == wanted
    described = await hostler(stack, "describe", "class", CLASS)
    assert "alice" in described

    # What only a new VM can have: the machine says so and stays.
    rolling = manifest(team="web", **{"cost-center": None})
    rolling["providerSpec"]["machineType"] = "m5.xlarge"
    await hostler(stack, "apply", "-f", "-", stdin=yaml.safe_dump(rolling))
    await eventually(lambda: state_of(stack), ("Outdated", 3).__eq__, "the machine outdated")
    assert await row() == [CLASS, "AWS", "3", "3", "1", "1", "Outdated"]
    assert "m5.xlarge" not in str(stack.ec2().describe_instances())
    assert len(stack.launched()) == 1

    assert "used by 1 machine (tagged)" in await hostler(stack, "delete", "class", CLASS, expect=1)
    await hostler(stack, "delete", "machine", "tagged", "--wait", "--timeout", "60s")
    assert f"machineclass {CLASS} is gone" in await hostler(stack, "delete", "class", CLASS)
