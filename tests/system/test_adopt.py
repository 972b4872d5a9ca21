"""Machines whose workflow somebody terminated: found by the owner tags of their VMs, and adopted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from cli.pages import parse, typed
from lifekit import CLUSTER, Stack, eventually, examples, hostler, new_stack
from machine.lives import client_of, fault, mend, provider_id, running, terminate
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from activities.deps import Deps
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.names import TAG_INSTALLATION, TAG_MACHINE, machine_id, sweep_id
from resources.orphans import OwnedVm
from resources.owner import Owner
from resources.settings import Settings
from starter.doctor import clusters as doctor_clusters
from starter.sdk.errors import NoAnswer, Refused
from starter.sdk.ownerless import choose
from workflows.machine import MachineWorkflow

Orphans = dict[str, list[str]]
"""Cells of `get orphans`, by providerID."""


async def orphans(stack: Stack, *more: str) -> Orphans:
    lines = (await hostler(stack, "get", "orphans", *more)).splitlines()
    assert not lines or lines[0].split()[:5] == ["NAME", "VM", "STATE", "UID", "WORKFLOW"]
    return {cells[1]: cells for cells in (line.split() for line in lines[1:])}


@pytest.mark.core
async def test_a_terminated_machine_is_found_and_adopted(stack: Stack) -> None:
    lost, kept = await asyncio.gather(running(stack), running(stack, "m-2"))
    await terminate(stack)
    assert await orphans(stack) == {
        provider_id(lost): ["m-1", provider_id(lost), "running", lost.uid, "TERMINATED"],
    }
    assert (await hostler(stack, "get", "orphans", "-o", "name")).split() == ["machine/m-1"]
    (found,) = yaml.safe_load(await hostler(stack, "get", "orphans", "-o", "yaml"))["items"]
    assert (found["kind"], found["metadata"], found["status"]["workflow"]) == (
        "Orphan",
        {"name": "m-1", "uid": lost.uid},
        "TERMINATED",
    )
    assert "hostler adopt machine m-1" in await hostler(stack, "describe", "machine", "m-1")

    told = await hostler(stack, "adopt", "machine/m-1", "--as", "alice")
    assert told.splitlines() == [
        f"machine/m-1 adopted: {provider_id(lost)} (running), uid {lost.uid}",
        "machine/m-1: spec and class are those of its earlier workflow",
        "machine/m-1: it checks its VM and Node now; to wait for it: hostler wait machine m-1",
    ]
    await hostler(stack, "wait", "machine", "m-1", "--timeout", "60s")
    adopted = await stack.phase(Phase.RUNNING)
    assert (adopted.uid, adopted.status.provider_id) == (lost.uid, lost.status.provider_id)
    assert adopted.status.node_name == lost.status.node_name
    assert (adopted.spec, adopted.machine_class, adopted.labels) == (lost.spec, lost.machine_class, lost.labels)
    assert adopted.attempt == lost.attempt
    assert len(stack.launched()) == 2  # one each, and no more
    asked = next(h.message for h in adopted.journal if h.reason == "Adopted")
    assert asked.startswith("asked by alice; its earlier workflow ended as TERMINATED since")
    assert await orphans(stack) == {}

    refused = await hostler(stack, "adopt", "machine", "m-2", expect=1)
    assert "error: machine m-2 has a running workflow, so there is nothing to adopt" in refused
    assert (await stack.state("m-2")).uid == kept.uid

    await hostler(stack, "delete", "machine", "m-1", "--wait", "--timeout", "60s")
    assert stack.leftovers(lost.uid) == {}
    ended = await hostler(stack, "adopt", "machine", "m-1", expect=1)
    assert "error: machine m-1 was deleted completely since" in ended


async def test_name_applied_again_while_its_vm_lives(stack: Stack) -> None:
    """A name is applied again after its workflow was terminated: the new life waits for the VM of the former one, and
    goes on when that is gone; or it is told that the VM is its own."""
    first = await running(stack)
    await terminate(stack)
    note = await hostler(stack, "apply", "-f", "-", "--dry-run", stdin=manifests("m-1"))
    assert "its VM may still exist; `hostler get orphans` lists such VMs" in note
    await stack.create("m-1")
    waits = await stack.reason("NameTaken")
    assert waits.status.phase == Phase.CRASH_LOOP_BACK_OFF
    assert waits.status.waiting_for is not None
    assert all(word in waits.status.waiting_for.message for word in (provider_id(first), first.uid, "m-1"))
    assert waits.uid != first.uid
    (cells,) = (await orphans(stack)).values()
    assert cells[1:] == [provider_id(first), "running", first.uid, "of-another-life"]
    stack.ec2().terminate_instances(InstanceIds=[provider_id(first).rsplit("/", 1)[-1]])
    second = await stack.phase(Phase.RUNNING)
    assert (second.uid, len(stack.launched())) == (waits.uid, 2)

    await terminate(stack)
    await stack.create("m-1")
    third = await stack.reason("NameTaken")
    wrong = await hostler(stack, "adopt", "machine", "m-1", "--uid", "nobody", expect=1)
    assert "error: machine m-1 has no VM with uid nobody, and an adoption needs one; the VMs are" in wrong
    told = await hostler(stack, "adopt", "machine", "m-1")
    assert f"machine/m-1 adopted: {provider_id(second)} (running), uid {second.uid}" in told
    taken = await stack.phase(Phase.RUNNING)
    assert (taken.uid, provider_id(taken), len(stack.launched())) == (second.uid, provider_id(second), 2)
    assert [h.message for h in taken.journal if h.reason == "VMTakenOver"] == [
        f"{provider_id(second)} belongs to this machine, which takes its uid {second.uid} instead of {third.uid}"
    ]
    refused = await hostler(stack, "adopt", "machine", "m-1", expect=1)
    assert "error: machine m-1 has a running workflow, so there is nothing to adopt" in refused
    await stack.delete()
    for uid in (first.uid, second.uid, third.uid):
        assert stack.leftovers(uid) == {}
        assert uid not in stack.kubectl("get", "secrets", "-n", "kube-system", "-o", "yaml")


async def test_vms_of_two_lives(stack: Stack) -> None:
    """They are from before the time when no VM was made beside another: two carry the name."""
    first = await running(stack)
    vm = stack.ec2().describe_instances(InstanceIds=[provider_id(first).rsplit("/", 1)[-1]])
    tags = {t["Key"]: t["Value"] for t in vm["Reservations"][0]["Instances"][0]["Tags"]}
    await terminate(stack)
    ids = [provider_id(first).rsplit("/", 1)[-1]]
    stack.ec2().create_tags(Resources=ids, Tags=[{"Key": TAG_MACHINE, "Value": "hidden"}])
    second = await running(stack)
    stack.ec2().create_tags(Resources=ids, Tags=[{"Key": TAG_MACHINE, "Value": tags[TAG_MACHINE]}])
    await terminate(stack)
    assert set(await orphans(stack)) == {provider_id(first), provider_id(second)}
    assert set(await orphans(stack, "m-2")) == set()
    refused = await hostler(stack, "adopt", "machine", "m-1", expect=1)
    lines = refused.splitlines()
    assert lines[0] == "error: machine m-1 has VMs with 2 different uids: choose one (--uid UID)"
    assert set(lines[1:]) == {f"error:   {provider_id(s)} (running), uid {s.uid}" for s in (first, second)}
    wrong = await hostler(stack, "adopt", "machine", "m-1", "--uid", "nobody", expect=1)
    assert "error: machine m-1 has no VM with uid nobody, and an adoption needs one; the VMs are" in wrong

    await hostler(stack, "adopt", "machine", "m-1", "--uid", first.uid)
    adopted = await stack.phase(Phase.RUNNING)
    assert (adopted.uid, adopted.status.provider_id) == (first.uid, first.status.provider_id)
    await stack.delete()
    assert stack.leftovers(first.uid) == {}
    assert stack.leftovers(second.uid) != {}  # not ours to delete with it
    (cells,) = (await orphans(stack)).values()
    assert cells[3:] == [second.uid, "COMPLETED"]


async def test_two_installations_with_a_cluster_of_one_name(stack: Stack) -> None:
    """Neither sees the other's VMs as orphans, nor waits for their names; a VM that nothing tells apart is not adopted
    by mistake."""
    ours = await running(stack)
    ids = [provider_id(ours).rsplit("/", 1)[-1]]
    own = stack.tags(ids[0])[TAG_INSTALLATION]
    namespace = DescribeNamespaceRequest(namespace=stack.client.namespace)
    assert own == (await stack.client.workflow_service.describe_namespace(namespace)).namespace_info.id
    await terminate(stack)
    stack.ec2().create_tags(Resources=ids, Tags=[{"Key": TAG_INSTALLATION, "Value": "another"}])
    report = await client_of(stack).orphans()
    assert (report.orphans, list(report.others.values())) == ([], [1])
    second = await running(stack)
    assert (second.uid != ours.uid, len(stack.launched())) == (True, 2)
    assert "another installation has a cluster with this name in AWS/eu-west-1/" in await doctor(stack)
    await stack.delete()

    # From before the tag, and with a name that no workflow here has ever had.
    stack.ec2().delete_tags(Resources=ids, Tags=[{"Key": TAG_INSTALLATION}])
    stack.ec2().create_tags(Resources=ids, Tags=[{"Key": TAG_MACHINE, "Value": "m-77"}])
    (cells,) = (await orphans(stack)).values()
    assert cells[1:] == [provider_id(ours), "running", ours.uid, "none-untagged"]
    assert "1 VM without the tag hostler.io/installation" in await doctor(stack)
    refused = await hostler(stack, "adopt", "machine", "m-77", "-f", "-", stdin=manifests("m-77"), expect=1)
    assert f"another Hostler may manage it. If it is yours: --uid {ours.uid}" in refused
    await hostler(stack, "adopt", "machine", "m-77", "-f", "-", "--uid", ours.uid, stdin=manifests("m-77"))
    stack.started["m-77"] = stack.client.get_workflow_handle_for(MachineWorkflow.run, machine_id(CLUSTER, "m-77"))
    await eventually(lambda: stack.state("m-77"), lambda s: s.post_start_done, "its post-start update")
    every = [id for ids in stack.leftovers(ours.uid).values() for id in ids]
    assert {stack.tags(id).get(TAG_INSTALLATION) for id in every} == {own}
    assert "without the tag" not in await doctor(stack)


async def test_a_namespace_that_has_moved_keeps_its_old_id_by_the_settings(temporal: WorkflowEnvironment) -> None:
    deps = Deps(Settings(installation="01a226e8-old"), temporal.client)
    assert await deps.installation() == "01a226e8-old"
    await deps.close()
    with pytest.raises(ValueError, match="installation"):
        Settings(installation="no tag's value/")


async def doctor(stack: Stack) -> str:
    """What the doctor warns of."""
    found = await doctor_clusters.examine(stack.settings, CLUSTER, client_of(stack).clusters, served=True)
    return "\n".join(f.message for f in found if f.level == "warning")


async def test_what_was_applied_since_and_the_story_are_kept(stack: Stack) -> None:
    """Kept are the newest class, the class that the VM was made from, and the journal of a life that went on in a
    second run."""
    first = await running(stack)
    before = stack.started["m-1"].first_execution_run_id
    await hostler(stack, "renew", "machine", "m-1")

    async def run_id() -> str | None:
        return (await stack.client.get_workflow_handle(machine_id(CLUSTER, "m-1")).describe()).run_id

    await eventually(run_id, lambda now: now != before, "the second run")
    loaded = examples("m-1")
    loaded.classes[0].provider_spec["vmTags"]["changed"] = "since"
    await client_of(stack).apply(*loaded.classes, *loaded.machines)
    await terminate(stack)
    await hostler(stack, "adopt", "machine", "m-1")
    adopted = await stack.phase(Phase.RUNNING)
    assert adopted.machine_class is not None
    assert adopted.machine_class.generation >= 2  # its class may have told it of a higher one already
    assert adopted.machine_class.provider_spec["vmTags"]["changed"] == "since"
    assert adopted.attempt == first.attempt
    assert [h.reason for h in adopted.journal][:2] == ["Created", "VMCreated"]


async def test_a_machine_of_a_pool_is_the_pools_again(stack: Stack) -> None:
    """Its reports have higher numbers than those of the life before."""
    loaded = examples("m-1")
    new = MachineState(
        name="m-1",
        cluster=CLUSTER,
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        queue_prefix=stack.settings.queue_prefix,
        timings=stack.settings.timings,
    ).model_copy(update={"owner": Owner(name="p"), "revision": 2, "template": 3})
    stack.started["m-1"] = await stack.client.start_workflow(
        MachineWorkflow.run, new, id=machine_id(CLUSTER, "m-1"), task_queue=stack.settings.queue_prefix
    )
    before = await stack.phase(Phase.RUNNING)
    await terminate(stack)
    await hostler(stack, "adopt", "machine", "m-1")
    adopted = await stack.phase(Phase.RUNNING)
    assert adopted.uid == before.uid
    assert (adopted.pool, adopted.revision, adopted.template, adopted.template_applied) == ("p", 2, 3, 3)
    assert before.reports < adopted.reports


async def test_a_deletion_is_not_taken_over(stack: Stack) -> None:
    """A life that comes back is not ended by what was asked of the one before: this is reported, and has to be asked
    again."""
    first = await running(stack)
    fault(stack, operation="TerminateInstances", code="UnauthorizedOperation", times=None)
    await hostler(stack, "delete", "machine", "m-1")
    await eventually(lambda: asyncio.to_thread(stack.calls, "TerminateInstances"))
    await terminate(stack)
    mend(stack)
    told = await hostler(stack, "adopt", "machine", "m-1")
    assert "it was being deleted, which is not continued: repeat it with `hostler delete machine m-1`" in told
    adopted = await eventually(lambda: stack.state(), lambda s: s.adopted, "the adopted life")
    assert (adopted.uid, adopted.deletion) == (first.uid, None)
    await stack.delete()
    assert stack.leftovers(first.uid) == {}


async def test_a_machine_that_is_being_created_is_no_orphan(stack: Stack) -> None:
    """Its VM is there and the workflow does not know yet; it is known by the uid, from the history (field case P11)."""
    await running(stack, "m-2")
    await terminate(stack, "m-2")
    fault(stack, service="kubernetes", operation="get nodes", delay=3.0, times=None)
    await stack.create()
    await eventually(lambda: asyncio.to_thread(stack.launched), lambda ids: len(ids) == 2)
    report = await client_of(stack).orphans()
    state = await stack.state()
    mend(stack)
    assert [o.vm.machine for o in report.orphans] == ["m-2"]
    assert state.status.provider_id is None, "the VM was known already: the look came too late to show anything"
    await stack.phase(Phase.RUNNING)


async def test_an_account_that_cannot_be_read_is_said(stack: Stack, tmp_path: Path) -> None:
    lost = await running(stack)
    await terminate(stack)
    other = examples().classes[0].model_dump(mode="json", by_alias=True, exclude_none=True)
    other["metadata"]["name"] = "elsewhere"
    other["secretRef"]["name"] = "nowhere"
    (tmp_path / "class.yaml").write_text(yaml.safe_dump(other))
    said = await hostler(stack, "get", "orphans", "-f", str(tmp_path), expect=1)
    assert lost.uid in said  # what could be read is shown
    assert (
        "error: account AWS/eu-west-1/default/nowhere could not be listed, so its VMs are not known: "
        "Secret default/nowhere does not exist in cluster demo; try again when this is fixed" in said
    )

    machine = examples("m-1").machines[0].model_dump(mode="json", by_alias=True, exclude_none=True)
    machine["spec"]["class"]["name"] = "elsewhere"
    (tmp_path / "machine.yaml").write_text(yaml.safe_dump(machine))
    refused = await hostler(stack, "adopt", "machine", "m-1", "-f", str(tmp_path), expect=1)
    assert "cannot be listed: Secret default/nowhere" in refused
    assert "Nothing is adopted" in refused

    fault(stack, operation="DescribeInstances", code="UnauthorizedOperation", times=None)
    blind = await hostler(stack, "get", "orphans", "-o", "json", expect=1)
    assert json.loads(blind[: blind.index("error:")])["items"] == []
    assert "could not be listed" in blind
    mend(stack)
    assert set(await orphans(stack)) == {provider_id(lost)}


async def test_what_cannot_be_adopted(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(manifests("never-seen"))
    unknown = await hostler(stack, "adopt", "machine", "m-9", expect=1)
    assert "error: nothing is recorded about machine m-9 of cluster demo: give its manifests" in unknown
    absent = await hostler(stack, "adopt", "machine", "m-9", "-f", str(file), expect=1)
    assert "error: machine m-9 is not in the files; they contain: never-seen" in absent
    nothing = await hostler(stack, "adopt", "machine", "never-seen", "-f", str(file), expect=1)
    assert "has no VM with the tag hostler.io/machine=never-seen and without an owner" in nothing
    unwatched = await hostler(stack, "get", "orphans", expect=1)
    assert "error: cluster demo is not watched, so nothing says which cloud accounts it uses" in unwatched
    by_class = await hostler(stack, "get", "orphans", "-f", str(file))
    assert by_class == ""  # looked for, by the account of the class, and there is none

    # By manifests alone, as when the server no longer keeps anything of the former workflow.
    lost = await running(stack, "never-seen")
    await terminate(stack, "never-seen")
    assert set(await orphans(stack, "-f", str(file))) == {provider_id(lost)}
    told = await hostler(stack, "adopt", "machine", "never-seen", "-f", str(file))
    assert "former workflow" not in told
    assert (await stack.phase(Phase.RUNNING, "never-seen")).uid == lost.uid


async def test_without_a_worker(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starter.sdk.orphans.PATIENCE", 0.3)
    monkeypatch.setattr("starter.sdk.orphans.new_id", lambda: "the-first")
    async with new_stack(temporal.client) as stack:
        classes = examples().classes
        with pytest.raises(NoAnswer, match=f"cannot be searched: nobody polls {stack.settings.queue_prefix}"):
            await client_of(stack).orphans(*classes)
        given_up = await stack.client.get_workflow_handle(sweep_id(CLUSTER, "the-first")).describe()
        assert given_up.status == WorkflowExecutionStatus.TERMINATED  # nobody would read its report
        async with stack.worker():
            report = await client_of(stack).orphans(*classes)
        assert (report.orphans, report.unread) == ([], {})


# -- which VM ---------------------------------------------------------------------------------------------------------


def vm(number: int, uid: str = "u1", state: str = "running") -> OwnedVm:
    return OwnedVm(provider_id=f"aws:///eu-west-1/i-{number}", machine="m", uid=uid, state=state, account="a")


@pytest.mark.parametrize(
    ("found", "uid", "number"),
    [
        pytest.param([vm(1)], None, 1, id="the only one"),
        pytest.param([vm(1), vm(2, "u2")], "u2", 2, id="the one that was named"),
        pytest.param([vm(1, state="terminating"), vm(2)], None, 2, id="not the one that is going"),
        pytest.param([vm(1, state="terminating")], None, 1, id="one that is going, where there is no other"),
    ],
)
def test_the_vm_to_adopt(found: list[OwnedVm], uid: str | None, number: int) -> None:
    assert choose("m", "a", found, uid) == next(v for v in found if v.provider_id.endswith(f"i-{number}"))


@pytest.mark.parametrize(
    ("found", "uid", "words"),
    [
        pytest.param([], None, "account a has no VM with the tag hostler.io/machine=m", id="none"),
        pytest.param([vm(1)], "u2", "no VM with uid u2", id="not the one that was named"),
        pytest.param([vm(1), vm(2, "u2")], None, "VMs with 2 different uids", id="two lives"),
        pytest.param([vm(1), vm(2)], None, "2 VMs with one uid", id="two VMs of one life"),
        pytest.param([vm(1, "")], None, "has lost its tag hostler.io/uid", id="no uid"),
    ],
)
def test_no_vm_to_adopt(found: list[OwnedVm], uid: str | None, words: str) -> None:
    with pytest.raises(Refused, match=words):
        choose("m", "a", found, uid)


def manifests(name: str) -> str:
    loaded = examples(name)
    every = [*loaded.classes, *loaded.machines]
    return yaml.safe_dump_all([m.model_dump(mode="json", by_alias=True, exclude_none=True) for m in every])


def test_the_command_line_takes_what_the_page_says() -> None:
    assert {parse(words) for words in typed("docs/adopt.md")} >= {"hostler get", "hostler adopt", "hostler recreate"}
