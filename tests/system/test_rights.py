"""deploy/rbac on a real API server: a worker for each role, with the account of its file and no other, brings machines
and a pool through their lives. The server's audit log says what each account has used: all that it may, and no more.
EC2 and the kubelets are simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.real import ALL, RealKube, real_kube, required_assets
from apiserver.simulated import NODES, PODS, SECRETS, KubeTarget, Obj
from lifekit import CLUSTER, Stack, end_running, eventually, examples, hostler, new_stack
from machine.lives import fault, knobs, mend, terminate
from paths import ROOT
from pools.lives import OTHER_IMAGE, Pool, marks, pool_class, pool_spec
from temporalio.testing import WorkflowEnvironment

import worker
from resources.machine.manifest import SecretRef
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.names import MACHINE_NAME_LABEL
from resources.rights import NEEDS, Right
from resources.settings import ROLES, Role, Settings
from starter.doctor import secrets as doctor_secrets
from starter.doctor.clusters import GRANT
from starter.doctor.examination import examine
from starter.doctor.findings import Level
from workflows.machine import MachineWorkflow

RBAC, PAGE = ROOT / "deploy" / "rbac", ROOT / "docs" / "production.md"
BOUND: list[Role] = [role for role in ROLES if role != "workflows"]
"""The roles with rights. A worker of workflows has no kubeconfig at all."""
GRANTED = [(need.role, right) for need in NEEDS for right in need.rights]
ACCOUNT = "system:serviceaccount:hostler:hostler-"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


@pytest.fixture(scope="module")
async def real() -> AsyncIterator[RealKube]:
    async with real_kube(required_assets(), ALL) as kube:
        yield kube


@pytest.fixture(scope="module")
async def stack(temporal: WorkflowEnvironment, real: RealKube) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client, api_server_kubeconfig=real.kubeconfig) as stack:
        yield stack
        await end_running(stack)


@pytest.fixture(scope="module")
async def audit(stack: Stack, real: RealKube) -> list[Obj]:
    """What the accounts have asked in these lives."""
    files = [f"--filename={RBAC / f'{name}.yaml'}" for name in ("roles", "bootstrap-tokens", *BOUND, "secrets")]
    await stack.kubectl_beside("apply", *files)
    for role in BOUND:
        await write_kubeconfig(stack, role)
        await eventually(lambda role=role: missing(stack, role), lambda found: not found, f"rights of {role}")
    async with contextlib.AsyncExitStack() as workers:
        for role in ROLES:
            await workers.enter_async_context(worker.running(stack.client, settings_of(stack, role)))
        kube = real.target
        try:
            await delayed(stack)
            await asyncio.gather(preserved(stack, kube), taken_over(stack, kube), rolled_out(stack, kube))
        except AssertionError:
            assert refused(real.audited()) == []  # the reason, where there are any
            raise
    return [e for e in real.audited() if e.get("objectRef", {}).get("apiGroup") != "authorization.k8s.io"]


# -- workers by role ---------------------------------------------------------------------------------------------------


def kubeconfig_of(stack: Stack, role: Role) -> Path:
    return stack.settings_file.parent / f"{role}.kubeconfig"


def settings_of(stack: Stack, role: Role) -> Settings:
    cluster = stack.settings.clusters[CLUSTER].model_copy(update={"kubeconfig": kubeconfig_of(stack, role)})
    ours = stack.settings.worker.model_copy(update={"roles": [role]})
    return stack.settings.model_copy(update={"clusters": {CLUSTER: cluster}, "worker": ours})


async def write_kubeconfig(stack: Stack, role: Role, by: Path | None = None) -> dict[str, Any]:
    """Runs the recipe, as an administrator or by another kubeconfig; what it wrote."""
    file = kubeconfig_of(stack, role)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(by or stack.kubeconfig), "PATH": path}
    command = [str(RBAC / "kubeconfig.sh"), f"hostler-{role}", str(file), "1h"]
    await asyncio.to_thread(subprocess.run, command, env=environment, check=True)
    written: dict[str, Any] = yaml.safe_load(file.read_text())
    return written


async def missing(stack: Stack, role: Role) -> list[str]:
    """What `hostler doctor` says of rights, in that worker's place."""
    file = stack.settings_file.parent / f"{role}.yaml"
    content = yaml.safe_load(stack.settings_file.read_text())
    content["clusters"][CLUSTER]["kubeconfig"] = str(kubeconfig_of(stack, role))
    content["worker"]["roles"] = [role]
    file.write_text(yaml.safe_dump(content))
    remedy = GRANT.partition("{}")[0]
    return [f.message for f in await examine(file) if f.level is Level.PROBLEM and f.remedy.startswith(remedy)]


# -- lives -------------------------------------------------------------------------------------------------------------


async def delayed(stack: Stack) -> None:
    """A machine whose creation is refused gets more time, and its token lasts as long."""
    fault(stack, operation="RunInstances", code="InsufficientInstanceCapacity", times=None)
    await stack.create("m-0")
    state = await stack.reason("OutOfCapacity", "m-0")
    spec = state.spec.model_copy(update={"creation_timeout": 2 * state.spec.creation_timeout})
    intent = ApplyIntent(id="more-time", requested_by="test", spec=spec, machine_class=state.machine_class)
    await stack.started["m-0"].execute_update(MachineWorkflow.apply, intent, id=intent.id)
    mend(stack)
    await stack.phase(Phase.RUNNING, "m-0")
    await stack.delete("m-0")


async def preserved(stack: Stack, kube: KubeTarget) -> None:
    """A machine has two Nodes for a while; later it fails, is drained and kept, and its end is by force."""
    await stack.create("m-1", health_timeout=timedelta(seconds=5))
    running = await stack.phase(Phase.RUNNING, "m-1")
    twin, metadata = f"{NODES}/twin", {"name": "twin", "labels": {"kubernetes.io/hostname": "twin"}}
    await kube.create(NODES, {"metadata": metadata, "spec": {"providerID": running.status.provider_id}})
    labelled = lambda node: MACHINE_NAME_LABEL in node["metadata"]["labels"]  # noqa: E731
    await eventually(lambda: kube.get(twin), labelled, "the label of a second Node")
    await kube.delete(twin)
    await hostler(stack, "preserve", "machine", "m-1", "--when-failed")
    knobs(stack, "m-1", dies_after=0.0)
    failed = await eventually(
        lambda: stack.state("m-1"), lambda s: "Preserved" in [h.reason for h in s.journal], "m-1 kept as Failed"
    )
    assert failed.status.phase == Phase.FAILED
    await kube.create(ATTACHMENTS, attachment("m-1", failed))
    await stack.delete("m-1", force=True)
    await gone(kube, failed)


async def taken_over(stack: Stack, kube: KubeTarget) -> None:
    """A machine takes over the VM of another life; its pods have a budget and a volume."""
    await stack.create("m-2")
    former = await stack.phase(Phase.RUNNING, "m-2")
    await terminate(stack, "m-2")
    await stack.create("m-2")
    await stack.reason("NameTaken", "m-2")
    await hostler(stack, "adopt", "machine", "m-2")
    running = await stack.phase(Phase.RUNNING, "m-2")
    assert running.status.provider_id == former.status.provider_id
    await claim(kube, "data")
    await start(kube, "held", running)
    await start(kube, "free", running, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}}
    await kube.create(BUDGETS, {"metadata": {"name": "held"}, "spec": budget})
    await eventually(
        lambda: kube.get(f"{BUDGETS}/held"), lambda b: b["status"].get("currentHealthy") == 1, "a budget in force"
    )
    await hostler(stack, "delete", "machine", "m-2")
    blocked = lambda page: "default/held blocked by PDB held" in page  # noqa: E731
    await eventually(lambda: hostler(stack, "describe", "machine", "m-2"), blocked, "a drain that a budget holds")
    assert (await kube.call("GET", f"{PODS}/held")).status == 200
    await stack.delete("m-2", force=True)
    await gone(kube, running)
    assert (await kube.call("GET", f"{PODS}/held")).reason == "404 NotFound"


async def rolled_out(stack: Stack, kube: KubeTarget) -> None:
    pool = Pool(stack)
    await pool.start(pool_spec(1))
    await pool.rolled_out(1)
    (first,) = (await pool.machines()).values()
    await start(kube, "moved", first)
    await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
    marked = lambda found: (True, True, True) in found  # noqa: E731
    await eventually(lambda: asyncio.to_thread(marks, pool), marked, "marks")
    await pool.rolled_out(1, revision=2)
    await gone(kube, first)
    assert (await kube.call("GET", f"{PODS}/moved")).reason == "404 NotFound"
    await pool.delete()
    assert stack.leftovers(first.uid) == {}


async def gone(kube: KubeTarget, state: MachineState) -> None:
    assert (await kube.call("GET", f"{NODES}/{state.status.node_name}")).reason == "404 NotFound"
    left = (await kube.get(ATTACHMENTS))["items"]
    assert state.status.node_name not in [a["spec"]["nodeName"] for a in left]


async def start(kube: KubeTarget, name: str, on: MachineState, volumes: list[Obj] | None = None) -> None:
    """Starts a pod there, and waits until it serves."""
    spec = {"nodeName": on.status.node_name, "terminationGracePeriodSeconds": 1, "volumes": volumes or []}
    spec["containers"] = [{"name": "c", "image": "i"}]
    await kube.create(PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
    await eventually(lambda: kube.get(f"{PODS}/{name}"), lambda p: p["status"].get("phase") == "Running", f"pod {name}")


async def claim(kube: KubeTarget, name: str) -> None:
    """A claim with its volume. It is of a kind that is never attached, so no controller has to do with it."""
    size: Obj = {"storage": "1Gi"}
    common: Obj = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {**common, "capacity": size, "hostPath": {"path": "/nowhere"}}
    await kube.create(VOLUMES, {"metadata": {"name": name}, "spec": volume})
    wanted = {**common, "resources": {"requests": size}, "volumeName": name}
    await kube.create(CLAIMS, {"metadata": {"name": name}, "spec": wanted})


def attachment(name: str, of: MachineState) -> Obj:
    source = {"persistentVolumeName": name}
    spec = {"attacher": "nobody.example.com", "nodeName": of.status.node_name, "source": source}
    return {"metadata": {"name": name}, "spec": spec}


# -- what was used -----------------------------------------------------------------------------------------------------


def asked(event: Obj, *, everywhere: bool) -> Right:
    """`everywhere`: a right in all namespaces covers it."""
    it = event["objectRef"]
    namespace = "" if everywhere else it.get("namespace", "")
    return Right(event["verb"], it["resource"], it.get("apiGroup", ""), it.get("subresource", ""), namespace)


def refused(audit: list[Obj]) -> list[str]:
    refusals = [e for e in audit if e["responseStatus"]["code"] == 403]
    return sorted({f"{e['user']['username']}: {e['verb']} {e['requestURI']}" for e in refusals})


@pytest.mark.parametrize(
    ("role", "right"), [pytest.param(role, right, id=f"{role} {right}") for role, right in GRANTED]
)
def test_a_right_that_is_granted_is_used(audit: list[Obj], role: Role, right: Right) -> None:
    theirs = [e for e in audit if e["user"]["username"] == f"{ACCOUNT}{role}" and "objectRef" in e]
    assert right in {asked(e, everywhere=not right.namespace) for e in theirs}


def test_nothing_was_asked_that_is_not_granted(audit: list[Obj]) -> None:
    """A worker that goes on without a right would hide it from every life."""
    assert {e["user"]["username"] for e in audit} == {f"{ACCOUNT}{role}" for role in BOUND}
    assert refused(audit) == []


# -- accounts ----------------------------------------------------------------------------------------------------------


async def test_a_timer_with_the_documented_right_renews_the_token_in_the_same_file(
    stack: Stack, audit: list[Obj], tmp_path: Path
) -> None:
    (command,) = re.findall(r"^kubectl (create role kubeconfigs .*\\\n.*)$", PAGE.read_text(), re.MULTILINE)
    await stack.kubectl_beside(*command.replace("\\\n", "").replace("hostler-nodes", "hostler-watch").split())
    await stack.kubectl_beside(
        "create", "rolebinding", "kubeconfigs", "-n", "hostler", "--role=kubeconfigs", "--user=timer"
    )
    config = yaml.safe_load(stack.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "timer"
    timer = tmp_path / "timer.kubeconfig"
    timer.write_text(yaml.safe_dump(config))
    file = kubeconfig_of(stack, "watch")
    former = yaml.safe_load(file.read_text())["users"][0]["user"]["token"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    assert (await write_kubeconfig(stack, "watch", by=timer))["users"][0]["user"]["token"] != former
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    with pytest.raises(subprocess.CalledProcessError):
        await write_kubeconfig(stack, "drain", by=timer)
    assert sorted(file.parent.glob("*.new")) == []


async def test_an_account_may_write_no_secret_but_bootstrap_tokens(
    stack: Stack, real: RealKube, audit: list[Obj]
) -> None:
    token = (await write_kubeconfig(stack, "cloud"))["users"][0]["user"]["token"]

    async def write(name: str, kind: str, **annotations: str) -> str:
        body = {"metadata": {"name": name, "annotations": annotations}, "type": kind}
        return str((await real.target.call("POST", SECRETS, body, token=token)).body.get("message", "made"))

    account = {"kubernetes.io/service-account.name": "clusterrole-aggregation-controller"}
    refusal = await write("stolen", "kubernetes.io/service-account-token", **account)
    assert "accounts of the namespace hostler may write no Secret here that is not a bootstrap token" in refusal
    assert await write("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token") == "made"
    await real.target.create(SECRETS, {"metadata": {"name": "another"}})
    for name, status in {"another": 422, "bootstrap-token-abcdef": 200}.items():
        assert (await real.target.call("DELETE", f"{SECRETS}/{name}", token=token)).status == status


async def test_the_doctor_says_what_a_role_lacks(stack: Stack, audit: list[Obj]) -> None:
    await stack.kubectl_beside("delete", "rolebinding", "hostler-drain", "--namespace=default")
    (lacking,) = await eventually(lambda: missing(stack, "drain"), what="a right that is missing")
    assert lacking.splitlines() == [
        "with the account of these settings, a worker with the role drain cannot",
        "tell a machine's story as Events: it may not create events in default",
    ]


async def test_a_role_for_named_secrets_is_enough(stack: Stack, audit: list[Obj]) -> None:
    """The doctor asks for the Secrets that classes name, and for no others."""
    narrow = '[{"op": "add", "path": "/rules/0/resourceNames", "value": ["demo-aws"]}]'
    await stack.kubectl_beside("patch", "role", "hostler-secrets", "-n", "default", "--type=json", f"--patch={narrow}")
    named = ClassSnapshot.of(examples().classes[0])
    other = named.model_copy(update={"secret_ref": SecretRef(name="other")})

    async def said(of: ClassSnapshot) -> str:
        return (await doctor_secrets.examine(settings_of(stack, "cloud"), [of]))[0].message

    lacking = await eventually(lambda: said(other), lambda words: "cannot" in words, "a right that is missing")
    assert lacking.endswith("\nread credentials and user data: it may not get secrets other in default")
    assert await said(named) == "the account of these settings may read Secrets of cluster demo in namespace default"
