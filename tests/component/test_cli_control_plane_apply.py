"""`hostler apply`, `diff` and `controlplane generate` of a control plane: its real workflow and its class's, with
machines that are played."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from cli.place import Place, place, text
from cli.standins import PlayedCluster
from control_plane.workflow import ControlPlane, PlayedHost, snapshot
from paths import ROOT
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.boundary import Boundary
from activities.temporal.classes import ClassActivities
from activities.temporal.members import MemberActivities
from resources.names import cluster_queue
from starter.sdk import intents, live
from workflows.control_plane import ControlPlaneWorkflow
from workflows.machine_class import MachineClassWorkflow

__all__ = ["place"]  # fixtures
SET = "controlplanemachineset/cluster"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to answer."""
    monkeypatch.setattr(live, "QUERY_TIMEOUT", 30.0)
    monkeypatch.setattr(intents, "UPDATE_TIMEOUT", 30.0)


@pytest.fixture
async def cp(place: Place) -> AsyncIterator[ControlPlane]:
    """Workers for what `hostler apply` starts, and the machines that are there before."""
    place.queue = place.cluster
    place.write_settings()
    it = ControlPlane(place.client, cluster=place.cluster)
    members, classes, calls = MemberActivities(it.deps), ClassActivities(it.deps), it.calls
    real = [members.start_machines, members.tell_members, members.find_members, members.forget_pool]
    real += [classes.report_to_class, classes.ask_class, classes.tell_users, classes.find_users]
    async with contextlib.AsyncExitStack() as stack:
        nodes = Worker(place.client, task_queue=cluster_queue(place.cluster, place.queue), activities=[it.find])
        workflows = Worker(
            place.client,
            task_queue=place.queue,
            workflows=[ControlPlaneWorkflow, PlayedHost, PlayedCluster, MachineClassWorkflow],
            activities=[*real, calls.register],
            workflow_runner=UnsandboxedWorkflowRunner(),
            interceptors=[Boundary()],
        )
        for worker in (nodes, workflows):
            await stack.enter_async_context(worker)
        yield it
        await it.deps.close()


def class_manifest(**spec: Any) -> dict[str, Any]:
    """The class of the machines that are there."""
    of = snapshot()
    given = {k: v for k, v in of.provider_spec.items() if k != "habits"} | spec
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": {"name": of.name},
        "provider": of.provider,
        "secretRef": {"name": of.secret_ref.name},
        "providerSpec": given,
    }


async def apply(place: Place, *manifests: dict[str, Any], dry: bool = False) -> list[str]:
    ran = await place.run("apply", "-f", "-", *(["--dry-run"] if dry else []), stdin=text(*manifests))
    return ran.ok().splitlines()


async def diff(place: Place, *manifests: dict[str, Any]) -> list[str]:
    ran = await place.run("diff", "-f", "-", stdin=text(*manifests))
    assert ran.code == bool(ran.out), ran
    return ran.out.splitlines()


async def test_from_machines_made_by_hand_to_an_active_set(place: Place, cp: ControlPlane) -> None:
    """generate, apply, activate; and what may not change."""
    names = await cp.by_hand(zones=True)
    one = await place.run("controlplane", "generate", names[0])
    assert (one.code, one.err) == (1, "error: a control plane has 3 or 5 machines, and 1 was found: name them\n")
    made = yaml.safe_load((await place.run("controlplane", "generate", *names)).ok())
    zones = [d["placement"]["availabilityZone"] for d in made["spec"]["template"]["failureDomains"]["aws"]]
    assert zones == ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    assert await apply(place, class_manifest(), made) == [
        f"cluster/{place.cluster} created",
        "machineclass/c1 created",
        f"{SET} created: it looks on: `state: Active` makes it act",
    ]
    await cp.done()
    assert await apply(place, made) == [f"{SET} unchanged"]
    assert await diff(place, made) == []

    made["spec"]["state"] = "Active"
    shown = await diff(place, made)
    assert shown[:2] == [
        f"{SET} configured",
        "  spec.state: Inactive -> Active: control plane: no machine is replaced",
    ]
    assert "  hot update of 3 machines, none is replaced" in shown  # they get the hold of a control plane
    assert (await apply(place, made))[0].startswith(f"{SET} configured")
    del made["spec"]["state"]  # whoever does not say leaves it
    assert await apply(place, made) == [f"{SET} unchanged"]
    active = await place.run("controlplane", "generate")
    assert (active.code, "is Active: `hostler get controlplane -o yaml` prints its manifest" in active.err) == (1, True)
    for field, value, words in (
        ("state", "Inactive", "state cannot be changed once Active"),
        ("replicas", 5, "replicas is immutable: 3 cannot become 5"),
    ):
        ran = await place.run("apply", "-f", "-", stdin=text({**made, "spec": {**made["spec"], field: value}}))
        assert (ran.code, ran.out) == (1, "")
        assert f"controlplane cluster: spec.{field}: {words}" in ran.err


async def test_a_file_ends_the_set_and_its_machines_stay(place: Place, cp: ControlPlane) -> None:
    names = await cp.by_hand(zones=True)
    made = yaml.safe_load((await place.run("controlplane", "generate", *names)).ok())
    await apply(place, class_manifest(), made)
    await cp.done()
    said = (await place.run("delete", "-f", "-", "--wait", stdin=text(made))).ok().splitlines()
    assert said[-1] == f"{SET} deleted"
    assert [(await cp.machine_state(name)).owner for name in names] == [None] * 3


async def test_what_an_edit_of_its_class_does(place: Place, cp: ControlPlane) -> None:
    """Another type of instance replaces machines, another image does not (OpenShift leaves boot images out)."""
    names = await cp.by_hand(zones=True)
    made = yaml.safe_load((await place.run("controlplane", "generate", *names)).ok())
    await apply(place, class_manifest(), {**made, "spec": {**made["spec"], "state": "Active"}})
    await cp.done()
    cp.nodes = []
    assert "  controlplane cluster: no machine is replaced" in await diff(place, class_manifest(ami="ami-9"))
    shown = await diff(place, class_manifest(machineType="m5.xlarge"))
    assert "  rolls controlplane cluster: 3 machines will be replaced" in shown
    said = await apply(place, class_manifest(machineType="m5.xlarge"))
    assert said[0] == "machineclass/c1 rolls controlplane cluster: 3 machines will be replaced"
    assert not {h.name for i in (await cp.done(revision=2, without=names)).indexes for h in i.hosts} & set(names)


async def test_openshifts_manifest_is_a_class_and_a_control_plane(place: Place, cp: ControlPlane) -> None:
    given = yaml.safe_load((ROOT / "examples/controlplane/aws-openshift.yaml").read_text())
    dry = await apply(place, given, dry=True)
    assert dry[1:] == ["machineclass/controlplane created (dry run)", f"{SET} created (dry run)"]
    said = (await apply(place, given))[1:]
    assert said == ["machineclass/controlplane created", f"{SET} created: it looks on: `state: Active` makes it act"]
    assert await apply(place, given) == ["machineclass/controlplane unchanged", f"{SET} unchanged"]
    value = given["spec"]["template"]["machines_v1beta1_machine_openshift_io"]["spec"]["providerSpec"]["value"]
    value["instanceType"] = "m5.2xlarge"
    shown = await diff(place, given)
    assert shown[0] == "machineclass/controlplane configured: generation 1 -> 2"
    assert "  providerSpec.machineType: m5.xlarge -> m5.2xlarge: needs replacement" in shown[1]


async def test_a_class_of_somebody_elses_is_not_overwritten(place: Place, cp: ControlPlane) -> None:
    own = class_manifest() | {"metadata": {"name": "controlplane"}}
    await apply(place, own)
    given = yaml.safe_load((ROOT / "examples/controlplane/aws-openshift.yaml").read_text())
    ran = await place.run("apply", "-f", "-", stdin=text(given))
    assert ran.code == 1
    assert "controlplane cluster: its template becomes the MachineClass controlplane, but there is one that" in ran.err
    both = await place.run("apply", "-f", "-", stdin=text(own, given))
    assert "machineclass controlplane of cluster" in both.err
    assert "given more than once" in both.err


async def test_failure_domains_are_those_of_the_classs_cloud(place: Place, cp: ControlPlane) -> None:
    given = yaml.safe_load((ROOT / "examples/controlplane/azure.yaml").read_text())
    given["spec"]["template"]["spec"]["class"]["name"] = "c1"
    ran = await place.run("apply", "-f", "-", stdin=text(class_manifest(), given))
    assert (ran.code, ran.out) == (1, "")
    assert "spec.template.failureDomains.platform: they are of Azure, and the class c1 is of AWS" in ran.err
