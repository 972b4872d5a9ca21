"""Machines on a real Kubernetes, its controllers and scheduler included; the kubelets and EC2 are simulated."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from apiserver.real import ALL, RealKube, real_kube, required_assets
from apiserver.simulated import NODES, PODS, REQUESTS, SECRETS, KubeTarget, Obj, unique
from cryptography import x509
from cryptography.x509.oid import NameOID
from lifekit import Stack, eventually, new_stack, write_secret
from machine.lives import knobs, time_is_up, user_data
from temporalio.testing import WorkflowEnvironment

import activities.drain.nodes
from activities.kube.client import Kube
from activities.kube.tokens import ensure_token, revoke_tokens, token_id
from resources.calls.machine import MachineRef
from resources.machine.state import MachineResult, Phase
from resources.names import INSTANCE_NOT_READY_TAINT, MACHINE_NAME_LABEL, STARTUP_TAINTS
from resources.settings import ClusterSettings

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REPLICAS = 2


@pytest.fixture(scope="module")
async def real() -> AsyncIterator[RealKube]:
    """One control plane for all tests: each makes machines of its own and removes them."""
    async with real_kube(required_assets(), ALL) as kube:
        yield kube


@pytest.fixture
async def stack(temporal: WorkflowEnvironment, real: RealKube) -> AsyncIterator[Stack]:
    try:
        async with new_stack(temporal.client, api_server_kubeconfig=real.kubeconfig) as stack, stack.worker():
            yield stack
    finally:  # what a failed test leaves would have the names of the next one's nodes
        await real.target.delete(NODES)
        await real.target.delete(PODS, gracePeriodSeconds="0")


# -- words -------------------------------------------------------------------------------------------------------------


def is_ready(obj: Obj) -> bool:
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def serves(pod: Obj) -> bool:
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


@contextlib.asynccontextmanager
async def deployed(kube: KubeTarget) -> AsyncIterator[str]:
    """The label selector of two replicas, of which one must always serve. They are gone afterwards."""
    name = unique("web")
    labels, selector = {"app": name}, f"app={name}"
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    await kube.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
    budget = {"minAvailable": REPLICAS - 1, "selector": {"matchLabels": labels}}
    await kube.create(BUDGETS, {"metadata": {"name": name}, "spec": budget})
    try:
        yield selector
    finally:
        await kube.delete(f"{BUDGETS}/{name}")
        await kube.delete(f"{DEPLOYMENTS}/{name}", propagationPolicy="Background")
        await eventually(lambda: kube.get(PODS, labelSelector=selector), lambda found: not found["items"], "no pods")


async def serving_on(kube: KubeTarget, selector: str, node_name: str) -> list[str]:
    """The pods on that node, once all replicas serve there and no other is left."""

    async def look() -> list[Obj]:
        return list((await kube.get(PODS, labelSelector=selector))["items"])

    def there(pods: list[Obj]) -> bool:
        return len(pods) == REPLICAS and all(serves(p) and p["spec"]["nodeName"] == node_name for p in pods)

    return [p["metadata"]["name"] for p in await eventually(look, there, f"{REPLICAS} pods on {node_name}")]


class Observer:
    """Follows pods and counts, after each event, how many serve."""

    def __init__(self, kube: KubeTarget, selector: str) -> None:
        self._kube = kube
        self._selector = selector
        self._pods: dict[str, Obj] = {}
        self.counts: list[int] = []

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        listed = await self._kube.get(PODS, labelSelector=self._selector)
        self._pods = {p["metadata"]["uid"]: p for p in listed["items"]}
        following = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, version: str) -> None:
        async for event in self._kube.watch(PODS, labelSelector=self._selector, resourceVersion=version):
            self._pods[event["object"]["metadata"]["uid"]] = event["object"]
            if event["type"] == "DELETED":
                del self._pods[event["object"]["metadata"]["uid"]]
            self.counts.append(sum(map(serves, self._pods.values())))


def node_name_of(state: Any) -> str:
    name: str | None = state.status.node_name
    assert name is not None
    return name


# -- a whole life ------------------------------------------------------------------------------------------------------


@pytest.mark.core
async def test_from_birth_over_a_drain_to_the_last_disk(stack: Stack, real: RealKube) -> None:
    """Two replicas move to another machine, and the budget that wants one of them is never broken."""
    kube = real.target
    await stack.create("m-1")
    running = await stack.phase(Phase.RUNNING, "m-1")
    name = node_name_of(running)
    node = await kube.get(f"{NODES}/{name}")
    assert is_ready(node)
    assert node["spec"]["providerID"] == running.status.provider_id
    assert INSTANCE_NOT_READY_TAINT not in json.dumps(node["spec"])
    assert node["metadata"]["labels"][MACHINE_NAME_LABEL] == "m-1"

    await stack.create("m-2")
    other = await stack.phase(Phase.RUNNING, "m-2")
    await kube.patch(f"{NODES}/{node_name_of(other)}", {"spec": {"unschedulable": True}})
    async with deployed(kube) as selector:
        before = await serving_on(kube, selector, name)
        await kube.patch(f"{NODES}/{node_name_of(other)}", {"spec": {"unschedulable": None}})
        observer = Observer(kube, selector)
        async with observer.watching():
            result = await stack.delete("m-1")
            after = await serving_on(kube, selector, node_name_of(other))
            await eventually(lambda: _last(observer.counts), lambda n: n == REPLICAS, "the observer's last event")

    assert isinstance(result, MachineResult)
    assert [h.reason for h in result.journal][-4:] == ["Terminating", "Drained", "VMDeleted", "Gone"]
    assert not set(before) & set(after)
    assert min(observer.counts) == REPLICAS - 1
    assert stack.leftovers(running.uid) == {}
    assert (await kube.call("GET", f"{NODES}/{name}")).reason == "404 NotFound"
    assert (await kube.get(f"{NODES}/{node_name_of(other)}"))["metadata"]["labels"][MACHINE_NAME_LABEL] == "m-2"
    await stack.delete("m-2")
    assert stack.leftovers(other.uid) == {}


async def _last(counts: list[int]) -> int:
    return counts[-1] if counts else REPLICAS - 1


@pytest.mark.exhaustive
async def test_a_silent_kubelet_is_unknown(stack: Stack, real: RealKube) -> None:
    """kube-controller-manager says so, and puts its taint on the node."""
    knobs(stack, "m-1", dies_after=0.2)
    await stack.create("m-1")
    unknown = await stack.phase(Phase.UNKNOWN, "m-1")
    assert unknown.status.waiting_for is not None
    assert "NodeStatusUnknown" in unknown.status.waiting_for.message
    name = node_name_of(unknown)

    async def taints() -> set[str]:
        return {t["key"] for t in (await real.target.get(f"{NODES}/{name}"))["spec"].get("taints", ())}

    await eventually(taints, lambda keys: "node.kubernetes.io/unreachable" in keys, "the unreachable taint")
    await stack.delete("m-1")
    assert stack.leftovers(unknown.uid) == {}
    assert (await real.target.call("GET", f"{NODES}/{name}")).reason == "404 NotFound"


async def test_a_kubelet_that_stays_silent_is_failed(
    stack: Stack, real: RealKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fresh looks read Node and Lease at a real API server; the pod is evicted in Failed, and not waited for."""
    monkeypatch.setattr(activities.drain.nodes, "DEAD_AFTER", timedelta(seconds=1))  # otherwise 5 min
    await stack.create("m-1", health_timeout=timedelta(hours=1))
    running = await stack.phase(Phase.RUNNING, "m-1")
    name, pod = node_name_of(running), unique("web")
    spec = {"nodeName": name, "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]}
    await real.target.create(PODS, {"metadata": {"name": pod}, "spec": spec})
    await eventually(lambda: real.target.get(f"{PODS}/{pod}"), is_ready, "the pod")
    knobs(stack, "m-1", dies_after=0.0)
    await stack.phase(Phase.UNKNOWN, "m-1")
    await time_is_up(stack, "m-1", health_timeout=timedelta(seconds=5))
    failed = await stack.reason("HealthTimeout", "m-1")
    assert failed.status.phase == Phase.FAILED
    assert failed.status.waiting_for is not None
    for words in ("NodeStatusUnknown", "two fresh looks", "Lease last renewed at", "VM running"):
        assert words in failed.status.waiting_for.message
    (drained,) = [h for h in failed.journal if h.reason == "Drained"]
    assert f"default/{pod}: still terminating after its grace period" in drained.message
    await stack.delete("m-1")
    assert stack.leftovers(running.uid) == {}
    assert (await real.target.call("GET", f"{NODES}/{name}")).reason == "404 NotFound"


@pytest.mark.exhaustive  # of conformance/test_field_cases.py's, on the other server
async def test_p07_a_node_that_somebody_deletes(stack: Stack, real: RealKube) -> None:
    """Its kubelet registers again, as NodeRestriction allows, and it is made ready again."""
    await stack.create("m-1")
    running = await stack.phase(Phase.RUNNING, "m-1")
    name = node_name_of(running)
    former = (await real.target.get(f"{NODES}/{name}"))["metadata"]["uid"]
    await real.target.delete(f"{NODES}/{name}")
    again = await eventually(
        lambda: stack.state("m-1"),
        lambda s: "Recovered" in [h.reason for h in s.journal] and s.status.phase == Phase.RUNNING,
        "Running again",
    )
    assert {"NodeMissing", "NodeRejoined"} <= {h.reason for h in again.journal}
    node = await real.target.get(f"{NODES}/{name}")
    assert node["metadata"]["uid"] != former
    assert node["metadata"]["labels"]["worker.hostler.io/pool"] == "demo"
    assert INSTANCE_NOT_READY_TAINT not in json.dumps(node["spec"])
    assert len(stack.launched()) == 1
    await stack.delete("m-1")
    assert (await real.target.call("GET", f"{NODES}/{name}")).reason == "404 NotFound"


@pytest.mark.exhaustive  # of test_life_births.py's, on the other server
async def test_p41_no_work_until_the_cloud_provider_has_removed_its_taint(stack: Stack, real: RealKube) -> None:
    former = f"--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule"
    await write_secret(stack, "demo-aws", user_data((former, f"{former},{STARTUP_TAINTS[0]}=true:NoSchedule")))
    await stack.create("m-1")
    name = node_name_of(await stack.reason("StartupTaint", "m-1"))
    async with deployed(real.target) as selector:
        assert not [p for p in (await real.target.get(PODS, labelSelector=selector))["items"] if serves(p)]
        stack.kubectl("taint", "node", name, f"{STARTUP_TAINTS[0]}:NoSchedule-")
        await stack.phase(Phase.RUNNING, "m-1")
        await serving_on(real.target, selector, name)
    await stack.delete("m-1")


# -- joining -----------------------------------------------------------------------------------------------------------


async def test_a_kubelet_joins_with_a_certificate_and_its_token_is_revoked(stack: Stack, real: RealKube) -> None:
    kube = real.target
    await stack.create("m-1")
    running = await stack.phase(Phase.RUNNING, "m-1")
    name = node_name_of(running)
    token = token_id(running.uid, 1)
    requests = (await kube.get(REQUESTS))["items"]
    (request,) = [r for r in requests if r["spec"]["username"] == f"system:bootstrap:{token}"]
    assert [c["type"] for c in request["status"]["conditions"]] == ["Approved"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(request["status"]["certificate"]))
    (common_name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == f"system:node:{name}"
    secret = f"{SECRETS}/bootstrap-token-{token}"
    await eventually(lambda: kube.call("GET", secret), lambda a: a.reason == "404 NotFound", "a revoked token")
    await stack.delete("m-1")


@pytest.fixture
async def kube(real: RealKube, tmp_path: Path) -> AsyncIterator[Kube]:
    (tmp_path / "kubeconfig").write_text(real.kubeconfig)
    kube = await Kube.connect("demo", ClusterSettings(), str(tmp_path / "kubeconfig"))
    try:
        yield kube
    finally:
        await kube.close()


def new_machine() -> MachineRef:
    name = unique("m")
    return MachineRef(cluster="demo", name=name, uid=f"uid-of-{name}")


async def test_a_token_lets_in_until_it_is_revoked(real: RealKube, kube: Kube) -> None:
    """A real server believes a token for ten seconds more after it has seen it."""
    machine = new_machine()
    token = (await ensure_token(kube, machine, 1, datetime.now(UTC) + timedelta(hours=1))).get_secret_value()

    async def answer() -> str:
        # Forbidden, not unauthorized: the server knows the caller, who may not do this.
        return str((await real.target.call("GET", NODES, token=token)).reason)

    await eventually(answer, lambda said: said == "403 Forbidden", "a token that is known")
    await revoke_tokens(kube, machine, 1)
    await eventually(answer, lambda said: said == "401 Unauthorized", "a token that is unknown")


async def test_an_expired_token_is_unknown_and_its_secret_is_cleaned_up(real: RealKube, kube: Kube) -> None:
    old, young = new_machine(), new_machine()
    expired = (await ensure_token(kube, old, 1, datetime.now(UTC) - timedelta(minutes=1))).get_secret_value()
    await ensure_token(kube, young, 1, datetime.now(UTC) + timedelta(hours=1))
    assert (await real.target.call("GET", NODES, token=expired)).reason == "401 Unauthorized"
    path = f"{SECRETS}/bootstrap-token-"
    await eventually(
        lambda: real.target.call("GET", path + token_id(old.uid, 1)), lambda a: a.reason == "404 NotFound", "cleaned up"
    )
    assert (await real.target.call("GET", path + token_id(young.uid, 1))).status == 200
