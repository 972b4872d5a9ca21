"""kubectl against the API: the commands an operator types at a cluster, with no flag that makes them milder."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
from apiserver.simulated import PODS, KubeTarget, Obj, definition, make_node, make_pod, node, pod, unique

KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
TIMEOUT = 60.0  # seconds for one command; none is expected to need a tenth of it

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="no kubectl binary: install the dev extra")


class Kubectl:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = ["--kubeconfig", str(folder / "kubeconfig"), "--cache-dir", str(folder / "cache")]

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(KUBECTL, *self._base, *args, stdout=pipe, stderr=pipe)

    async def run(self, *args: str) -> tuple[int, str, str]:
        process = await self.start(*args)
        try:
            async with asyncio.timeout(TIMEOUT):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def __call__(self, *args: str) -> str:
        """The output of a command that must succeed and complain of nothing."""
        code, out, err = await self.run(*args)
        assert (code, err) == (0, ""), (args, out, err)
        return out

    def manifest(self, name: str, *objects: Obj) -> str:
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        return str(file)


@pytest.fixture(scope="module")
async def kubectl(kube: KubeTarget, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    folder = tmp_path_factory.mktemp("kubectl")
    (folder / "kubeconfig").write_text(kube.kubeconfig())
    return Kubectl(folder)


async def test_get_prints_tables_and_other_forms(kube: KubeTarget, kubectl: Kubectl) -> None:
    name = await make_node(kube, **{"node-role.kubernetes.io/worker": ""})
    header, row = (await kubectl("get", "node", name)).splitlines()
    assert header.split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split()[:3] == [name, "Unknown", "worker"]
    assert "INTERNAL-IP" in await kubectl("get", "nodes", "-o", "wide")
    assert await kubectl("get", "node", name, "-o", "name") == f"node/{name}\n"
    assert f"name: {name}" in await kubectl("get", "node", name, "-o", "yaml")
    assert json.loads(await kubectl("get", "node", name, "-o", "json"))["kind"] == "Node"
    pod_name = await make_pod(kube, name)
    lines = [line.split() for line in (await kubectl("get", "pods", "-A", "-o", "wide")).splitlines()]
    wide = ["IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    assert lines[0] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", *wide]
    assert ["default", pod_name, "0/1", "Pending"] in [line[:4] for line in lines]


async def test_get_watch_follows_changes(kube: KubeTarget, kubectl: Kubectl) -> None:
    group = unique("g")
    name = await make_node(kube, group=group)
    # A list: for one object kubectl drops the first event, and with it a change that comes before its watch is open.
    process = await kubectl.start("get", "nodes", "-l", f"group={group}", "-w", "--no-headers")
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            assert (await process.stdout.readline()).split()[1] == b"Unknown"
            await kube.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
            assert (await process.stdout.readline()).split()[1] == b"Unknown,SchedulingDisabled"
    finally:
        process.terminate()
        await process.wait()


async def test_describe_shows_a_node_and_a_pod(kube: KubeTarget, kubectl: Kubectl) -> None:
    name = await make_node(kube)
    pod_name = await make_pod(kube, name)
    shown = await kubectl("describe", "node", name)
    assert f"aws:///zone/{name}" in shown
    assert pod_name in shown
    assert f"Node:         {name}/" in await kubectl("describe", "pod", pod_name)


async def test_labels_annotations_and_taints_are_edited(kube: KubeTarget, kubectl: Kubectl) -> None:
    name = await make_node(kube)
    await kubectl("label", "node", name, "a=b")
    await kubectl("annotate", "node", name, "c=d")
    await kubectl("taint", "node", name, "e=f:NoExecute")
    await kubectl("patch", "node", name, "-p", '{"metadata":{"labels":{"g":"h"}}}')
    edited = await kube.get(f"/api/v1/nodes/{name}")
    assert edited["metadata"]["labels"] == {"a": "b", "g": "h"}
    assert edited["metadata"]["annotations"] == {"c": "d"}
    assert {"key": "e", "value": "f", "effect": "NoExecute"} in edited["spec"]["taints"]
    await kubectl("taint", "node", name, "e-")
    await kubectl("label", "node", name, "a-")
    edited = await kube.get(f"/api/v1/nodes/{name}")
    assert edited["metadata"]["labels"] == {"g": "h"}
    assert "e" not in {t["key"] for t in edited["spec"]["taints"]}


async def test_apply_creates_changes_and_leaves_alone(kube: KubeTarget, kubectl: Kubectl) -> None:
    name, group = unique("n"), f"{unique('k')}.example.com"
    await kubectl("apply", "-f", kubectl.manifest("crd", definition(group)))
    await kubectl("wait", "--for=condition=Established", f"crd/machines.{group}", "--timeout=20s")
    machine = {"apiVersion": f"{group}/v1", "kind": "Machine", "metadata": {"name": name, "namespace": "default"}}
    for replicas, outcome in ((1, "created"), (1, "unchanged"), (2, "configured")):
        host = node(name, r=str(replicas))
        del host["spec"]["taints"]  # the server adds one of its own, which would always be a difference
        file = kubectl.manifest("both", host, {**machine, "spec": {"replicas": replicas}})
        said = await kubectl("apply", "-f", file)
        assert said.splitlines() == [f"node/{name} {outcome}", f"machine.{group}/{name} {outcome}"]
    assert (await kube.get(f"/api/v1/nodes/{name}"))["metadata"]["labels"] == {"r": "2"}
    applied = await kube.get(f"/apis/{group}/v1/namespaces/default/machines/{name}")
    assert applied["spec"]["replicas"] == 2
    wrong = kubectl.manifest("wrong", {**machine, "spec": {"replicas": 2, "junk": 1}})
    code, _, err = await kubectl.run("apply", "-f", wrong)
    assert code != 0
    # kubectl asks the server, or, before the server has published the new schema everywhere, judges on its own.
    assert 'unknown field "spec.junk"' in err or 'unknown field "junk"' in err
    await kubectl("delete", "-f", file)
    await kubectl("delete", "crd", f"machines.{group}")
    assert (await kube.call("GET", f"/api/v1/nodes/{name}")).reason == "404 NotFound"


async def test_api_resources_lists_kinds_and_short_names(kubectl: Kubectl) -> None:
    rows = {line.split()[0]: line.split() for line in (await kubectl("api-resources")).splitlines()}
    assert rows["nodes"] == ["nodes", "no", "v1", "false", "Node"]
    assert "poddisruptionbudgets" in rows


async def test_wait_sees_a_condition_and_a_deletion(kube: KubeTarget, kubectl: Kubectl) -> None:
    name = await make_node(kube)
    ready = {"type": "Ready", "status": "True"}
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=30s"))
    await kube.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})
    assert await waiting == f"node/{name} condition met\n"
    waiting = asyncio.create_task(kubectl("wait", "--for=delete", f"node/{name}", "--timeout=30s"))
    await kube.delete(f"/api/v1/nodes/{name}")
    await waiting


async def test_drain_honours_a_budget_and_evicts(kube: KubeTarget, kubectl: Kubectl) -> None:
    name, labels = await make_node(kube), {"app": unique("a")}
    guarded = pod(unique("p"), name, **labels)
    guarded["spec"]["terminationGracePeriodSeconds"] = 0
    await kube.create(PODS, guarded)
    path = f"{PODS}/{guarded['metadata']['name']}"
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await kube.patch(f"{path}/status", {"status": running})
    budgets, budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets", unique("b")
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    await kube.create(budgets, {"metadata": {"name": budget}, "spec": spec})
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    await kube.patch(f"{budgets}/{budget}/status", {"status": {**status, "expectedPods": 1}})

    drain = ("drain", name, "--force", "--ignore-daemonsets")
    code, _, err = await kubectl.run(*drain, "--timeout=2s")
    assert code != 0
    assert "Cannot evict pod as it would violate the pod's disruption budget." in err
    assert (await kube.get(f"/api/v1/nodes/{name}"))["spec"]["unschedulable"] is True
    assert (await kube.call("GET", path)).status == 200

    await kube.patch(f"{budgets}/{budget}/status", {"status": {"disruptionsAllowed": 1, "currentHealthy": 2}})
    code, out, err = await kubectl.run(*drain, "--timeout=30s")
    assert code == 0, err
    assert f"node/{name} drained" in out
    assert (await kube.call("GET", path)).reason == "404 NotFound"
    await kubectl("uncordon", name)
    assert "unschedulable" not in (await kube.get(f"/api/v1/nodes/{name}"))["spec"]
    await kubectl("cordon", name)
    assert (await kube.get(f"/api/v1/nodes/{name}"))["spec"]["unschedulable"] is True
    assert await kubectl("delete", "node", name) == f'node "{name}" deleted\n'
