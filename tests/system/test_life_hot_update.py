"""Hot updates on the real parts: the class and its machines as workflows, the worker as it is, the AWS driver on a
simulated EC2. A changed class reaches the VMs that run, and nothing is replaced (seed 002, field case P69).

The decisions alone are in test_planner_hot_update.py, the driver's calls in tests/component/aws/test_aws_hot_update.py.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from lifekit import Stack, eventually
from machine.hot_updates import COST_A, COST_B, MUST, A, B, Hot, gate, instance_id, ours, reasons, said
from machine.lives import knobs

from planners.provider_spec import spec_hash
from resources.machine.state import OperationState, OperationType, Phase
from resources.machine_class.state import UpdateState
from resources.names import UPDATE_CONCURRENCY_ANNOTATION


@pytest.fixture
def hot(stack: Stack) -> Hot:
    return Hot(stack)


def add_tag(stack: Stack, key: str, value: str, *resources: str) -> None:
    """Adds a tag as a user does."""
    stack.ec2().create_tags(Resources=list(resources), Tags=[{"Key": key, "Value": value}])


def kinds(instance: dict[str, str], volume: dict[str, str], nic: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    return {"instances": [instance], "volumes": [volume], "networkInterfaces": [nic]}


async def test_p69_a_changed_tag_rolls_no_machine(stack: Stack, hot: Hot) -> None:
    """One tag is changed and one removed on all machines of a class; a user's own are on one VM and one NIC."""
    await hot.apply(**COST_A)
    before = await hot.machines("m-1", "m-2", "m-3")
    must = {r: hot.must(r) for m in before for r in hot.all(m)}
    assert len(must) == 9
    vm, nic = instance_id(before[0]), hot.of(before[1])["networkInterfaces"][0]
    add_tag(stack, "x", "y", vm, nic)
    launched, since = stack.launched(), hot.mark()

    known = await hot.everywhere(**COST_B)

    assert sorted(hot.changing(since)) == ["CreateTags"] * 3 + ["DeleteTags"] * 3
    for r, tags in must.items():
        assert hot.must(r) == tags
        assert hot.extra(r) == {"cost": "b", **({"x": "y"} if r in (vm, nic) else {})}
    assert (known.last_updated_generation, {u.state for u in known.users.values()}) == (2, {UpdateState.UPDATED})
    assert (known.changes[-1].hot, known.changes[-1].rolls) == (["tags"], [])
    assert stack.launched() == launched
    for former in before:
        after = await stack.state(former.name)
        assert (after.uid, after.attempt) == (former.uid, former.attempt)
        assert (after.status.phase, after.status.node_name) == (Phase.RUNNING, former.status.node_name)
        operation, applied = after.status.last_operation, after.status.last_applied_provider_spec
        assert operation is not None
        assert (operation.type, operation.state) == (OperationType.UPDATE, OperationState.SUCCESSFUL)
        assert applied is not None
        assert applied.provider_spec == hot.manifest.provider_spec
        assert applied.hash == spec_hash(hot.manifest.provider_spec)
        (words,) = said(after, "Updated")
        assert "generation 2" in words
        assert f"{instance_id(after)}: removed team, set cost" in words


@pytest.mark.exhaustive  # the same on three
async def test_a_tag_of_fifty_machines_costs_two_calls_each_and_replaces_none(stack: Stack, hot: Hot) -> None:
    await hot.apply(**COST_A)
    before = await hot.machines(*(f"m-{n}" for n in range(1, 51)))
    launched, since = stack.launched(), hot.mark()
    await hot.everywhere(**COST_B)
    assert sorted(hot.changing(since)) == ["CreateTags"] * 50 + ["DeleteTags"] * 50
    assert stack.launched() == launched
    for former in before:
        after = await stack.state(former.name)
        assert (after.uid, after.status.provider_id) == (former.uid, former.status.provider_id)


async def test_each_tag_field_goes_to_its_resource(stack: Stack, hot: Hot) -> None:
    """Seed 002: `tags` goes to all; a specific field replaces it for its resource, even when it is empty."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    assert hot.extras(machine) == kinds(A, A, A)
    steps: list[tuple[dict[str, Any], tuple[dict[str, str], dict[str, str], dict[str, str]]]] = [
        ({"vmTags": {"v": "1"}}, ({"v": "1"}, A, A)),
        ({"diskTags": {}}, ({"v": "1"}, {}, A)),
        ({"nicTags": {"n": "1"}, "diskTags": {"d": "1"}}, ({"v": "1"}, {"d": "1"}, {"n": "1"})),
        ({"tags": {**MUST, "all": "1"}, "nicTags": None}, ({"v": "1"}, {"d": "1"}, {"all": "1"})),
        ({"vmTags": None, "diskTags": None}, ({"all": "1"}, {"all": "1"}, {"all": "1"})),
    ]
    for change, expected in steps:
        await hot.everywhere(**change)
        assert hot.extras(machine) == kinds(*expected), change
    assert reasons(await stack.state()).count("Updated") == len(steps)
    assert len(stack.launched()) == 1


async def test_migrating_from_tags_to_the_three_fields(stack: Stack, hot: Hot) -> None:
    """docs/hot-updates.md, step by step: EC2 is called only when a key leaves a field."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    tags = COST_A["tags"]
    since = hot.mark()
    await hot.everywhere(vmTags=tags, nicTags=tags, diskTags=tags)
    await hot.everywhere(tags=None)
    assert hot.changing(since) == []
    assert hot.extras(machine) == kinds(A, A, A)
    known = await hot.everywhere(nicTags={"cost": "a"}, diskTags={"cost": "a"})
    assert hot.changing(since) == ["DeleteTags"]
    assert hot.extras(machine) == kinds(A, {"cost": "a"}, {"cost": "a"})
    assert all(hot.must(r).keys() >= MUST.keys() for r in hot.all(machine))
    assert known.last_updated_generation == 4


async def test_what_was_attached_later(stack: Stack, hot: Hot) -> None:
    """Ours are updated; a CSI driver's volume and a CNI's NIC are left alone, though they carry keys of the class."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    volume = hot.attach_volume(machine, "/dev/sdg", **ours(machine), team="x")
    nic = hot.attach_nic(machine, 1, **ours(machine))
    csi = hot.attach_volume(machine, "/dev/xvdaa", **{"ebs.csi.aws.com/cluster": "true", "team": "x", "cost": "csi"})
    cni = hot.attach_nic(machine, 2, **{"node.k8s.amazonaws.com/instance_id": instance_id(machine), "team": "x"})
    others = {r: stack.tags(r) for r in (csi, cni)}
    since = hot.mark()
    await hot.everywhere(**COST_B)
    assert {volume, nic} < {*hot.all(machine)}
    assert len(hot.all(machine)) == 5
    assert {r: hot.extra(r) for r in hot.all(machine)} == {r: {"cost": "b"} for r in hot.all(machine)}
    assert {r: stack.tags(r) for r in others} == others
    # Two to create: resources without the installation's tag get it with the next change.
    assert sorted(hot.changing(since)) == ["CreateTags", "CreateTags", "DeleteTags"]


async def test_metadata_options_change_in_place(stack: Stack, hot: Hot) -> None:
    """They change together with a tag; only what differs is sent."""
    await hot.apply(**COST_A, instanceMetadataOptions={"httpTokens": "optional", "httpPutResponseHopLimit": 1})
    machine = await hot.machine()
    before = hot.instance(machine)
    since = hot.mark()
    await hot.everywhere(**COST_B, instanceMetadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 1})
    after = hot.instance(machine)
    assert before["MetadataOptions"]["HttpTokens"] == "optional"
    assert after["MetadataOptions"]["HttpTokens"] == "required"
    assert after["LaunchTime"] == before["LaunchTime"]
    (call,) = hot.calls(since, "ModifyInstanceMetadataOptions")
    assert call.request == {"InstanceId": instance_id(machine), "HttpTokens": "required"}
    assert sorted(hot.changing(since)) == ["CreateTags", "DeleteTags", "ModifyInstanceMetadataOptions"]
    (words,) = said(await stack.state(), "Updated")
    assert "metadata option HttpTokens=required" in words
    # An option that leaves the class stays as it is.
    since = hot.mark()
    await hot.everywhere(instanceMetadataOptions={"httpPutResponseHopLimit": 1})
    assert hot.changing(since) == []
    assert hot.instance(machine)["MetadataOptions"]["HttpTokens"] == "required"


async def test_hot_and_rolling_fields_together(stack: Stack, hot: Hot) -> None:
    """The hot part is applied at once, the rest is reported; set back, the machine is no longer Outdated."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    known = await hot.everywhere(**COST_B, machineType="m5.xlarge")
    assert hot.extras(machine) == kinds(B, B, B)
    assert known.users["m-1"].state is UpdateState.OUTDATED
    assert known.last_updated_generation == 2
    outdated = await stack.state()
    (condition,) = [c for c in outdated.status.conditions if c.type == "Outdated"]
    assert "providerSpec.machineType" in condition.message
    applied = outdated.status.last_applied_provider_spec
    assert applied is not None
    assert (applied.provider_spec["machineType"], applied.provider_spec["tags"]["cost"]) == ("m5.large", "b")
    since = hot.mark()
    known = await hot.everywhere(machineType="m5.large")
    assert known.users["m-1"].state is UpdateState.UPDATED
    assert [c.type for c in (await stack.state()).status.conditions] == []
    assert hot.changing(since) == []
    assert stack.launched() == [instance_id(machine)]


async def test_an_outdated_machine_is_recreated(stack: Stack, hot: Hot) -> None:
    """Then it has everything of its class, on another VM, and the class says so."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    known = await hot.everywhere(**COST_B, machineType="m5.xlarge")
    assert known.users["m-1"].state is UpdateState.OUTDATED
    await hot.client.recreate("m-1")
    known = await eventually(
        hot.of_class, lambda s: "m-1" in s.users and s.users["m-1"].state is UpdateState.UPDATED, "its new life"
    )
    again = await stack.phase(Phase.RUNNING)
    assert again.uid != machine.uid
    assert known.last_updated_generation == 2
    assert hot.instance(again)["InstanceType"] == "m5.xlarge"
    assert hot.extras(again) == kinds(B, B, B)
    assert hot.of(machine) == {}
    assert len(stack.launched()) == 2


# -- when --------------------------------------------------------------------------------------------------------------


async def test_one_at_a_time(stack: Stack, hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class's annotation says so: the second machine's turn comes when the first is done."""
    meta = hot.manifest.metadata.model_copy(update={"annotations": {UPDATE_CONCURRENCY_ANNOTATION: "1"}})
    hot.manifest = hot.manifest.model_copy(update={"metadata": meta})
    await hot.apply(**COST_A)
    machines = await hot.machines("m-1", "m-2")
    since = hot.mark()
    with gate(monkeypatch, "DeleteTags") as held:
        await hot.apply(**COST_B)
        await held.held()
        known = await hot.of_class()
        assert [u.told for _, u in sorted(known.users.items())].count(2) == 1
        assert hot.changing(since) == []
        held.open()
        await hot.done()
    assert hot.changing(since) == ["DeleteTags", "CreateTags"] * 2
    assert [hot.extras(m) for m in machines] == [kinds(B, B, B)] * 2


async def test_the_class_changes_while_the_vm_is_being_created(
    stack: Stack, hot: Hot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is frozen: the VM is made of the former class and gets the newest after its post-start update, while
    EC2 shows neither the VM nor its tags."""
    lag = {"describe_after_create": 1.0, "tags": 3.0}
    frame = stack.simulator.simulator.frame
    stack.simulator.call(lambda: setattr(frame, "lag", frame.lag.model_copy(update=lag)))
    await hot.apply(**COST_A)
    since = hot.mark()
    with gate(monkeypatch, "RunInstances") as held:
        creating = asyncio.create_task(hot.machine())
        await held.held()
        await hot.apply(**COST_B)
        held.open()
        machine = await creating
    known = await hot.done()
    (launch,) = hot.calls(since, "RunInstances")
    tagged = {t["Key"]: t["Value"] for t in launch.request["TagSpecifications"][0]["Tags"]}
    assert (tagged["cost"], tagged["team"]) == ("a", "x")
    assert hot.extras(machine) == kinds(B, B, B)
    assert (known.users["m-1"].applied, known.users["m-1"].state) == (2, UpdateState.UPDATED)
    story = reasons(await stack.state())
    assert story.index("PostStartUpdated") < story.index("Updated")
    assert len(stack.launched()) == 1


async def test_a_machine_that_is_unknown_is_updated(stack: Stack, hot: Hot) -> None:
    """Its VM carries the tags, whatever its node does; and its health is judged as before."""
    await hot.apply(**COST_A)
    machine = await hot.machine(health_timeout=timedelta(hours=1))
    knobs(stack, unready=True)
    await stack.phase(Phase.UNKNOWN)
    await hot.everywhere(**COST_B)
    assert hot.extras(machine) == kinds(B, B, B)
    unknown = await stack.state()
    operation = unknown.status.last_operation
    assert operation is not None
    assert (unknown.status.phase, operation.type) == (Phase.UNKNOWN, OperationType.HEALTH_CHECK)
    assert "Updated" in reasons(unknown)
    knobs(stack, unready=False)
    await stack.phase(Phase.RUNNING)
    assert stack.launched() == [instance_id(machine)]
