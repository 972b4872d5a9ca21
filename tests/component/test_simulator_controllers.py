"""The simulated controllers against the simulated API server, with simulated kubelets where pods must run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from simulated.support import (
    TOKEN_ID,
    Cluster,
    condition,
    eventually,
    fake_vm,
    is_ready,
    pod,
    served_cluster,
    taint_keys,
    token_secret,
    user_data,
)

from simulator.client import CallError, Obj
from simulator.controllers import Controllers
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule, Knobs, Kubelets, Timings

GRACE = 1.5  # seconds: five heartbeats
UNREACHABLE = {("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")}
NOT_READY = {("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")}


class World:
    """A cluster with controllers, and machines that join it at once and without a taint."""

    def __init__(self, cluster: Cluster, kubelets: Kubelets) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.kubelets = kubelets

    async def join(self, *numbers: int, labels: str = "") -> list[str]:
        names = []
        for n in numbers:
            vm = fake_vm(n, user_data=user_data(args=f"--node-labels={labels}"))
            self.kubelets.observe(vm)
            names.append(vm.private_dns_name)
        for name in names:
            await eventually(
                lambda name=name: self.cluster.node(name), lambda node: is_ready(node) and not taint_keys(node)
            )
        return names

    def silence(self, n: int) -> None:
        self.kubelets.observe(fake_vm(n).in_state("stopped"))

    async def create(self, resource: str, body: Obj) -> Obj:
        return await self.client.create(resource, body, body["metadata"].get("namespace"))

    async def running(self, count: int, **labels: str) -> list[Obj]:
        """Waits until this many pods of those labels are Ready, and no other is there."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return await eventually(
            lambda: self.cluster.pods(labelSelector=selector),
            lambda pods: len(pods) == count and all(is_ready(p) for p in pods),
            f"{count} ready pods {selector}",
        )

    async def budget(self, name: str, allowed: int, *, generation: int = 1) -> Obj:
        return await eventually(
            lambda: self.client.get("poddisruptionbudgets", name, "default"),
            lambda b: (
                (b["status"].get("observedGeneration"), b["status"]["disruptionsAllowed"]) == (generation, allowed)
            ),
            f"budget {name} with {allowed}",
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served_cluster() as cluster:
        await cluster.client.create("secrets", token_secret(), "kube-system")
        kubelets = Kubelets(cluster.url, cluster.api.ca_pem, timings=Timings.fast(), console=cluster.console)
        controllers = Controllers(cluster.kubeconfig, grace=GRACE, resync=1.0)
        await kubelets.start()
        await controllers.start()
        yield World(cluster, kubelets)
        await controllers.stop()
        await kubelets.stop()


def workload(kind: str, name: str, replicas: int | None = None, **spec: Any) -> Obj:
    body: Obj = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
            },
        },
    }
    if replicas is not None:
        body["spec"]["replicas"] = replicas
    return body


def budget(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


# -- node lifecycle


async def test_a_silent_node_becomes_unknown_and_recovers(world: World) -> None:
    silent, other = await world.join(1, 2)
    await world.client.patch(
        "nodes", silent, {"spec": {"taints": [{"key": "mine", "value": "v", "effect": "PreferNoSchedule"}]}}
    )
    await world.create("pods", pod("p", silent, tolerations=[{"operator": "Exists"}]))
    await eventually(lambda: world.client.get("pods", "p", "default"), is_ready)

    world.silence(1)
    node = await eventually(
        lambda: world.cluster.node(silent), lambda n: taint_keys(n) >= UNREACHABLE, "unreachable taints"
    )
    for type_ in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        found = condition(node, type_)
        assert (found["status"], found["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert found["message"] == "Kubelet stopped posting node status."
    assert taint_keys(node) == UNREACHABLE | {("mine", "PreferNoSchedule")}
    assert node["spec"]["taints"][0] == {"key": "mine", "value": "v", "effect": "PreferNoSchedule"}
    await eventually(lambda: world.client.get("pods", "p", "default"), lambda p: not is_ready(p))
    assert is_ready(await world.cluster.node(other))

    world.kubelets.observe(fake_vm(1, user_data=user_data(args="")))
    node = await eventually(lambda: world.cluster.node(silent), lambda n: is_ready(n) and len(taint_keys(n)) == 1)
    assert taint_keys(node) == {("mine", "PreferNoSchedule")}
    await eventually(lambda: world.client.get("pods", "p", "default"), is_ready)


async def test_while_all_stand_still_nobody_is_silent(world: World) -> None:
    """A computer that is held up for longer than the grace period; a kubelet that then dies is noticed all the same."""
    (name,) = await world.join(1)
    before = condition(await world.cluster.node(name), "Ready")
    slow = [FaultRule(operation="patch leases", delay=0.5, times=None)]  # so that the kubelet is not heard first
    slow.append(FaultRule(operation="patch nodes/status", match="KubeletReady", delay=0.5, times=None))
    world.cluster.frame.faults += slow
    time.sleep(2 * GRACE)  # noqa: ASYNC251 - it holds up the kubelet, the API server and the controllers
    await eventually(
        lambda: world.cluster.node(name),
        lambda n: condition(n, "Ready")["lastHeartbeatTime"] > before["lastHeartbeatTime"],
        "the next heartbeat",
    )
    assert all(rule.hits for rule in slow)
    written = {call.caller for call in world.cluster.frame.calls(operation="patch nodes/status")}
    assert {caller.rpartition(":")[0] for caller in written} == {"system:node"}, "only the kubelet says what it is like"
    world.silence(1)
    await eventually(lambda: world.cluster.node(name), lambda n: taint_keys(n) >= UNREACHABLE, "unreachable taints")


async def test_a_node_nobody_ever_posted_for(world: World) -> None:
    await world.client.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-by-hand"}})
    node = await eventually(
        lambda: world.cluster.node("made-by-hand"), lambda n: condition(n, "Ready").get("status") == "Unknown"
    )
    assert condition(node, "Ready")["reason"] == "NodeStatusNeverUpdated"
    assert condition(node, "Ready")["message"] == "Kubelet never posted node status."


async def test_cordon_and_not_ready_become_taints(world: World) -> None:
    (name,) = await world.join(1)
    await world.client.patch("nodes", name, {"spec": {"unschedulable": True}})
    cordoned = {("node.kubernetes.io/unschedulable", "NoSchedule")}
    await eventually(lambda: world.cluster.node(name), lambda n: taint_keys(n) == cordoned)
    await world.client.patch("nodes", name, {"spec": {"unschedulable": None}})
    await eventually(lambda: world.cluster.node(name), lambda n: taint_keys(n) == set())
    world.kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(unready=True))])
    await eventually(lambda: world.cluster.node(name), lambda n: taint_keys(n) == NOT_READY)
    world.kubelets.set_knobs([])
    await eventually(lambda: world.cluster.node(name), lambda n: taint_keys(n) == set())


async def test_pods_leave_a_node_with_a_no_execute_taint(world: World) -> None:
    (name,) = await world.join(1)
    tolerant = [{"key": "out", "operator": "Exists"}]
    await world.create("pods", pod("leaves", name))
    await world.create("pods", pod("stays", name, tolerations=tolerant))
    await world.create("pods", pod("stays-a-little", name, tolerations=[{**tolerant[0], "tolerationSeconds": 1}]))
    for each in ("leaves", "stays", "stays-a-little"):
        await eventually(lambda each=each: world.client.get("pods", each, "default"), is_ready)
    await world.client.patch("nodes", name, {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}})
    await eventually(world.cluster.pods, lambda pods: {p["metadata"]["name"] for p in pods} == {"stays"})


# -- scheduling


async def test_pods_wait_for_a_node_that_takes_them(world: World) -> None:
    await world.create("pods", pod("p", nodeSelector={"pool": "a"}))
    seen = await eventually(lambda: world.client.get("pods", "p", "default"), lambda p: condition(p, "PodScheduled"))
    assert condition(seen, "PodScheduled")["message"] == "0/0 nodes are available: no nodes."
    (other,) = await world.join(1, labels="pool=b")
    await eventually(
        lambda: world.client.get("pods", "p", "default"),
        lambda p: (
            condition(p, "PodScheduled")["message"]
            == "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        ),
    )
    (fitting,) = await world.join(2, labels="pool=a")
    seen = await eventually(lambda: world.client.get("pods", "p", "default"), is_ready)
    assert seen["spec"]["nodeName"] == fitting != other


async def test_taints_and_cordons_keep_pods_out(world: World) -> None:
    tainted, cordoned = await world.join(1, 2)
    await world.client.patch(
        "nodes", tainted, {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}
    )
    await world.client.patch("nodes", cordoned, {"spec": {"unschedulable": True}})
    await eventually(lambda: world.cluster.node(cordoned), taint_keys)
    await world.create("pods", pod("plain"))
    await world.create("pods", pod("tolerant", tolerations=[{"key": "k", "value": "v"}]))
    seen = await eventually(lambda: world.client.get("pods", "tolerant", "default"), is_ready)
    assert seen["spec"]["nodeName"] == tainted
    message = "0/2 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were unschedulable."
    await eventually(
        lambda: world.client.get("pods", "plain", "default"),
        lambda p: condition(p, "PodScheduled").get("message") == message,
    )
    await world.client.patch("nodes", tainted, {"spec": {"taints": None}})
    seen = await eventually(lambda: world.client.get("pods", "plain", "default"), is_ready)
    assert seen["spec"]["nodeName"] == tainted


async def test_pods_are_spread_and_need_room(world: World) -> None:
    names = await world.join(1, 2)  # two CPUs each
    requests = {"requests": {"cpu": "1500m"}}
    for n in range(3):
        body = pod(f"p{n}")
        body["spec"]["containers"][0]["resources"] = requests
        await world.create("pods", body)
    pods = await eventually(
        world.cluster.pods,
        lambda pods: (
            sum(is_ready(p) for p in pods) == 2
            and any(condition(p, "PodScheduled").get("reason") == "Unschedulable" for p in pods)
        ),
    )
    assert {p["spec"]["nodeName"] for p in pods if is_ready(p)} == set(names)
    (waiting,) = [p for p in pods if not is_ready(p)]
    assert condition(waiting, "PodScheduled")["message"] == "0/2 nodes are available: 2 Insufficient cpu."


async def test_placement_that_is_not_emulated_is_refused_by_name(world: World) -> None:
    await world.join(1)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await world.create("pods", pod("p", affinity=rule))
    seen = await eventually(lambda: world.client.get("pods", "p", "default"), lambda p: condition(p, "PodScheduled"))
    assert condition(seen, "PodScheduled")["message"] == "the simulated scheduler does not emulate podAntiAffinity"


# -- workloads


async def test_a_deployment_keeps_its_pods(world: World) -> None:
    await world.join(1, 2)
    await world.create("deployments", workload("Deployment", "web", 3))
    pods = await world.running(3, app="web")
    assert len({p["spec"]["nodeName"] for p in pods}) == 2
    await world.client.delete("pods", pods[0]["metadata"]["name"], "default")
    await eventually(
        lambda: world.cluster.pods(labelSelector="app=web"),
        lambda now: (
            len(now) == 3
            and all(map(is_ready, now))
            and pods[0]["metadata"]["uid"] not in {p["metadata"]["uid"] for p in now}
        ),
    )
    deployment = await eventually(
        lambda: world.client.get("deployments", "web", "default"), lambda d: d["status"].get("readyReplicas") == 3
    )
    assert condition(deployment, "Available")["status"] == "True"
    assert deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]


async def test_scaling_makes_and_removes_exactly_as_many(world: World) -> None:
    await world.join(1)
    await world.create("deployments", workload("Deployment", "web", 1))
    await world.running(1, app="web")
    await world.client.patch("deployments", "web", {"spec": {"replicas": 5}}, "default")
    await world.running(5, app="web")
    await world.client.patch("deployments", "web", {"spec": {"replicas": 2}}, "default")
    await world.running(2, app="web")
    made = [c for c in world.cluster.frame.calls("kubernetes", "create pods") if c.error is None]
    removed = [c for c in world.cluster.frame.calls("kubernetes", "delete pods") if c.caller == "admin"]
    assert (len(made), len(removed)) == (5, 3)


async def test_deleting_a_deployment_collects_all_below_it(world: World) -> None:
    await world.join(1)
    await world.create("deployments", workload("Deployment", "web", 2))
    await world.create("deployments", workload("Deployment", "stays", 1))
    await world.running(2, app="web")
    await world.running(1, app="stays")
    await world.client.delete("deployments", "web", "default")
    await eventually(lambda: world.cluster.pods(labelSelector="app=web"), lambda pods: pods == [])
    sets = (await world.client.list("replicasets", "default"))["items"]
    assert [s["metadata"]["labels"]["app"] for s in sets] == ["stays"]
    await world.running(1, app="stays")


async def test_a_changed_template_is_refused_by_name(world: World) -> None:
    await world.join(1)
    await world.create("deployments", workload("Deployment", "web", 1))
    before = await world.running(1, app="web")
    template = {"metadata": {"labels": {"app": "web", "version": "2"}}}
    await world.client.patch("deployments", "web", {"spec": {"template": template}}, "default")
    deployment = await eventually(
        lambda: world.client.get("deployments", "web", "default"),
        lambda d: condition(d, "Progressing").get("reason") == "RolloutNotEmulated",
    )
    assert deployment["status"]["updatedReplicas"] == 0
    assert [p["metadata"]["uid"] for p in await world.running(1, app="web")] == [p["metadata"]["uid"] for p in before]


async def test_a_daemon_set_runs_once_on_every_eligible_node(world: World) -> None:
    first, tainted = await world.join(1, 2)
    await world.client.patch("nodes", tainted, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    await world.client.patch("nodes", first, {"spec": {"unschedulable": True}})
    await world.create("daemonsets", workload("DaemonSet", "agent"))
    (pod_,) = await world.running(1, app="agent")
    assert pod_["spec"]["nodeName"] == first  # a cordon does not keep daemons out, a foreign taint does
    (third,) = await world.join(3)
    pods = await world.running(2, app="agent")
    assert {p["spec"]["nodeName"] for p in pods} == {first, third}
    daemonset = await eventually(
        lambda: world.client.get("daemonsets", "agent", "default"), lambda d: d["status"].get("numberReady") == 2
    )
    assert daemonset["status"]["desiredNumberScheduled"] == daemonset["status"]["updatedNumberScheduled"] == 2
    await world.client.patch("nodes", third, {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    (pod_,) = await world.running(1, app="agent")
    assert pod_["spec"]["nodeName"] == first


async def test_a_daemon_set_takes_a_new_template_when_a_pod_is_deleted(world: World) -> None:
    await world.join(1, 2)
    await world.create("daemonsets", workload("DaemonSet", "agent"))
    old = await world.running(2, app="agent")
    template = {"metadata": {"labels": {"app": "agent", "version": "2"}}}
    await world.client.patch("daemonsets", "agent", {"spec": {"template": template}}, "default")

    async def updated() -> int:
        daemonset = await world.client.get("daemonsets", "agent", "default")
        current = daemonset["status"].get("observedGeneration") == daemonset["metadata"]["generation"]
        return int(daemonset["status"].get("updatedNumberScheduled", 0)) if current else -1

    await eventually(updated, lambda count: count == 0)
    await world.client.delete("pods", old[0]["metadata"]["name"], "default")
    await eventually(updated, lambda count: count == 1)
    (new,) = await world.running(1, app="agent", version="2")
    assert new["spec"]["nodeName"] == old[0]["spec"]["nodeName"]


# -- disruption


async def test_budgets(world: World) -> None:
    """Each budget of the same four pods, with the number that must be healthy and the number that may go."""
    cases: list[tuple[dict[str, Any], int, int]] = [
        ({"minAvailable": 2}, 2, 2),
        ({"minAvailable": "50%"}, 2, 2),
        ({"minAvailable": "60%"}, 3, 1),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": "30%"}, 2, 2),
        ({"maxUnavailable": 0}, 4, 0),
        ({"minAvailable": 9}, 9, 0),
    ]
    await world.join(1)
    await world.create("deployments", workload("Deployment", "web", 4))
    for n, (spec, _, _) in enumerate(cases):
        made = budget("web", **spec)
        made["metadata"]["name"] = f"web-{n}"
        await world.create("poddisruptionbudgets", made)
    await world.running(4, app="web")
    for n, (spec, desired, allowed) in enumerate(cases):
        status = (
            await eventually(
                lambda n=n: world.client.get("poddisruptionbudgets", f"web-{n}", "default"),
                lambda b: b["status"].get("currentHealthy") == 4,
            )
        )["status"]
        found = (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"])
        assert found == (4, desired, allowed), spec
        reason = "SufficientPods" if allowed else "InsufficientPods"
        assert condition({"status": status}, "DisruptionAllowed")["reason"] == reason


async def test_a_budget_blocks_an_eviction_and_lets_the_next_one_pass(world: World) -> None:
    await world.join(1)
    await world.create("deployments", workload("Deployment", "web", 2))
    await world.create("poddisruptionbudgets", budget("web", maxUnavailable=0))
    pods = await world.running(2, app="web")
    await world.budget("web", 0)
    name = pods[0]["metadata"]["name"]
    with pytest.raises(CallError) as refused:
        await _evict(world, name)
    assert refused.value.status == 429
    await world.client.patch("poddisruptionbudgets", "web", {"spec": {"maxUnavailable": 1}}, "default")
    await world.budget("web", 1, generation=2)
    await _evict(world, name)
    await world.running(2, app="web")
    after = await world.budget("web", 1, generation=2)
    assert not after["status"].get("disruptedPods")
    assert name not in {p["metadata"]["name"] for p in await world.cluster.pods()}


async def test_pods_that_are_not_ready_do_not_count_as_healthy(world: World) -> None:
    await world.join(1)
    await world.create("deployments", workload("Deployment", "web", 2))
    await world.create("poddisruptionbudgets", budget("web", minAvailable=1))
    pods = await world.running(2, app="web")
    await world.budget("web", 1)
    # The kubelet would correct a foreign status; a silent one cannot.
    world.silence(1)
    await eventually(
        lambda: world.client.get("poddisruptionbudgets", "web", "default"),
        lambda b: (b["status"]["currentHealthy"], b["status"]["disruptionsAllowed"]) == (0, 0),
    )
    assert len(pods) == 2


async def test_a_budget_over_pods_without_a_scale_fails_closed(world: World) -> None:
    await world.join(1)
    await world.create("daemonsets", workload("DaemonSet", "agent"))
    await world.running(1, app="agent")
    await world.create("poddisruptionbudgets", budget("agent", maxUnavailable="50%"))
    found = await world.budget("agent", 0)
    assert condition(found, "DisruptionAllowed")["reason"] == "SyncFailed"
    assert "found no controllers for pod" in condition(found, "DisruptionAllowed")["message"]


# -- garbage


async def test_what_a_deleted_node_leaves_is_collected(world: World) -> None:
    gone, stays = await world.join(1, 2)
    for name, node in (("orphan", gone), ("kept", stays)):
        await world.create("pods", pod(name, node))
        await eventually(lambda name=name: world.client.get("pods", name, "default"), is_ready)
    world.silence(1)
    await world.client.delete("nodes", gone)
    await eventually(world.cluster.pods, lambda pods: [p["metadata"]["name"] for p in pods] == ["kept"])

    async def leases() -> list[str]:
        return [item["metadata"]["name"] for item in (await world.client.list("leases", "kube-node-lease"))["items"]]

    await eventually(leases, lambda names: names == [stays])


async def test_an_owner_is_known_by_its_uid_not_by_its_name(world: World) -> None:
    made = await world.create("replicasets", workload("ReplicaSet", "owner", 0))

    def owned(name: str, kind: str, uid: str) -> Obj:
        body = pod(name)
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": uid}
        body["metadata"]["ownerReferences"] = [reference]
        return body

    await world.create("pods", owned("of-a-kind-unknown-here", "StatefulSet", "1"))
    await world.create("pods", owned("of-the-owner", "ReplicaSet", made["metadata"]["uid"]))
    await world.create("pods", owned("of-its-namesake-before", "ReplicaSet", "2"))
    await eventually(
        world.cluster.pods,
        lambda pods: {p["metadata"]["name"] for p in pods} == {"of-a-kind-unknown-here", "of-the-owner"},
    )


async def test_expired_tokens_are_deleted(world: World) -> None:
    await world.client.delete("secrets", f"bootstrap-token-{TOKEN_ID}", "kube-system")

    def expires(seconds: float) -> str:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    for token_id, expiration in (("aaaaaa", expires(1)), ("bbbbbb", expires(3600)), ("cccccc", "whenever")):
        secret = token_secret(**{"token-id": token_id, "expiration": expiration})
        secret["metadata"]["name"] = f"bootstrap-token-{token_id}"
        await world.create("secrets", secret)

    async def tokens() -> list[str]:
        return [s["metadata"]["name"] for s in (await world.client.list("secrets", "kube-system"))["items"]]

    await eventually(tokens, lambda names: names == ["bootstrap-token-bbbbbb"])


# -- trouble


async def test_controllers_go_on_after_errors_and_a_restart_of_the_server(world: World) -> None:
    await world.join(1)
    faults = world.cluster.frame.faults
    faults += [
        FaultRule(operation="create pods", code="InternalError", times=2),
        FaultRule(operation="create pods", drop=True),  # made, but its maker is not told
        FaultRule(operation="list pods", match=r"^/api/v1/pods", code="ServiceUnavailable", times=2),
    ]
    world.cluster.api.load(world.cluster.api.dump())
    await world.create("deployments", workload("Deployment", "web", 3))
    await world.running(3, app="web")
    assert faults == []


async def _evict(world: World, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    await world.client.request("POST", f"api/v1/namespaces/default/pods/{name}/eviction", body=body)
