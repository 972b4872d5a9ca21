"""The simulated kubelets against the simulated API server, over TLS, as clients like any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from simulated.support import (
    NOT_READY_TAINT,
    TOKEN_SECRET,
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

from simulator.frame import FaultRule
from simulator.kubelet import KnobRule, Knobs, Kubelets, Size, Timings

FAST = Timings.fast()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with served_cluster() as served:
        await served.client.create("secrets", token_secret(), "kube-system")
        yield served


@pytest.fixture
async def kubelets(cluster: Cluster) -> AsyncIterator[Kubelets]:
    pool = Kubelets(cluster.url, cluster.api.ca_pem, timings=FAST, console=cluster.console)
    await pool.start()
    yield pool
    await pool.stop()


# -- joining


async def test_a_running_vm_becomes_a_ready_node(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = fake_vm(user_data=user_data(args=f"--node-labels=pool=a --register-with-taints={NOT_READY_TAINT}:NoSchedule"))
    kubelets.observe(vm.in_state("pending"))
    kubelets.observe(vm)
    node = await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    assert node["spec"]["providerID"] == f"aws:///eu-west-1/{vm.instance_id}"
    assert (NOT_READY_TAINT, "NoSchedule") in taint_keys(node)
    labels = node["metadata"]["labels"]
    assert labels["pool"] == "a"
    assert labels["kubernetes.io/hostname"] == vm.private_dns_name
    assert labels["topology.kubernetes.io/zone"] == "eu-west-1a"
    assert labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert {"type": "InternalIP", "address": "10.0.0.1"} in node["status"]["addresses"]
    assert node["status"]["allocatable"]["cpu"] == "2"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]} == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    assert condition(node, "Ready")["reason"] == "KubeletReady"
    assert "Successfully registered node" in cluster.consoles[vm.instance_id]


async def test_it_joins_with_its_token_and_goes_on_with_an_identity_of_its_own(
    cluster: Cluster, kubelets: Kubelets
) -> None:
    vm = fake_vm()
    kubelets.observe(vm)
    await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    await cluster.client.delete("secrets", token_secret()["metadata"]["name"], "kube-system")
    await _renewals(cluster, vm.private_dns_name, 2)
    callers = {c.operation: c.caller for c in cluster.frame.calls("kubernetes") if c.mutating}
    assert callers["create certificatesigningrequests"].startswith("system:bootstrap:")
    assert callers["create nodes"] == f"system:node:{vm.private_dns_name}"
    assert callers["patch nodes/status"] == f"system:node:{vm.private_dns_name}"


async def test_a_node_is_not_ready_before_it_is_ready(cluster: Cluster, kubelets: Kubelets) -> None:
    before = (await cluster.client.list("nodes"))["metadata"]["resourceVersion"]
    kubelets.observe(fake_vm())
    states = []
    async with asyncio.timeout(20):
        async for event in cluster.client.watch("nodes", before):
            if event.type != "BOOKMARK":
                states.append(condition(event.object, "Ready").get("status"))
            if states[-1:] == ["True"]:
                break
    assert states[0] == "False"


async def test_sizes_of_the_cloud_are_those_of_the_nodes(cluster: Cluster, kubelets: Kubelets) -> None:
    kubelets.observe(fake_vm(size=Size(cpus=64, memory_mib=1024, architecture="arm64")))
    node = await eventually(lambda: cluster.node(fake_vm().private_dns_name))
    assert node["status"]["capacity"]["cpu"] == "64"
    assert node["status"]["capacity"]["memory"] == f"{1024 * 1024}Ki"
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"


async def test_an_unknown_token_cannot_join_until_it_is_known(cluster: Cluster, kubelets: Kubelets) -> None:
    name = token_secret()["metadata"]["name"]
    await cluster.client.delete("secrets", name, "kube-system")
    vm = fake_vm()
    kubelets.observe(vm)
    said = await cluster.says(vm.instance_id, "cannot create certificate signing request: Unauthorized")
    assert TOKEN_SECRET not in said
    assert (await cluster.client.list("nodes"))["items"] == []
    await cluster.client.create("secrets", token_secret(), "kube-system")
    await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)


async def test_bad_user_data_is_said_on_the_console_and_others_join(cluster: Cluster, kubelets: Kubelets) -> None:
    bad, good = fake_vm(1, user_data=b""), fake_vm(2)
    kubelets.observe(bad)
    kubelets.observe(good)
    await cluster.says(bad.instance_id, "failed to run Kubelet: no user data")
    await eventually(lambda: cluster.node(good.private_dns_name), is_ready)
    assert [n["metadata"]["name"] for n in (await cluster.client.list("nodes"))["items"]] == [good.private_dns_name]


async def test_a_failing_api_server_delays_the_join_only(cluster: Cluster, kubelets: Kubelets) -> None:
    cluster.frame.faults.append(FaultRule(operation="create nodes", code="InternalError", times=2))
    cluster.frame.faults.append(FaultRule(operation="create certificatesigningrequests", drop=True))
    vm = fake_vm()
    kubelets.observe(vm)
    await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    assert cluster.frame.faults == []


# -- living


async def test_the_lease_is_renewed_and_belongs_to_the_node(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = fake_vm()
    kubelets.observe(vm)
    times = await _renewals(cluster, vm.private_dns_name, 3)
    assert len(set(times)) == 3
    assert all(not t.endswith(".000000Z") for t in times)
    lease = await cluster.client.get("leases", vm.private_dns_name, "kube-node-lease")
    node = await cluster.node(vm.private_dns_name)
    assert [r["uid"] for r in lease["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]]
    assert lease["spec"]["holderIdentity"] == vm.private_dns_name


async def test_a_node_that_was_deleted_is_registered_again(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = fake_vm()
    kubelets.observe(vm)
    old = await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    await cluster.client.patch("nodes", vm.private_dns_name, {"spec": {"taints": None}})
    await cluster.client.delete("nodes", vm.private_dns_name)
    new = await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert (NOT_READY_TAINT, "NoSchedule") in taint_keys(new)

    async def owner() -> str:
        lease = await cluster.client.get("leases", vm.private_dns_name, "kube-node-lease")
        return str(lease["metadata"]["ownerReferences"][0]["uid"])

    await eventually(owner, lambda uid: uid == new["metadata"]["uid"])


@pytest.mark.parametrize(
    "state",
    ["shutting-down", *(pytest.param(s, marks=pytest.mark.exhaustive) for s in ("stopping", "terminated"))],
)
async def test_a_vm_that_goes_down_is_silent_at_once(cluster: Cluster, kubelets: Kubelets, state: str) -> None:
    gone, stays = fake_vm(1), fake_vm(2)
    kubelets.observe(gone)
    kubelets.observe(stays)
    for vm in (gone, stays):
        await eventually(lambda vm=vm: cluster.node(vm.private_dns_name), is_ready)
    kubelets.observe(gone.in_state(state))
    await _renewals(cluster, stays.private_dns_name, 1)  # what was on the wire when it went down has arrived
    last = await cluster.client.get("leases", gone.private_dns_name, "kube-node-lease")
    mark = cluster.frame.calls()[-1].n
    await _renewals(cluster, stays.private_dns_name, 3)
    callers = {c.caller for c in cluster.frame.calls("kubernetes", "patch *", since=mark)}
    assert callers == {f"system:node:{stays.private_dns_name}"}
    assert await cluster.client.get("leases", gone.private_dns_name, "kube-node-lease") == last


async def test_after_a_reboot_it_goes_on_with_its_old_identity(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = fake_vm()
    kubelets.observe(vm)
    before = await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    kubelets.observe(vm.in_state("stopping"))
    kubelets.observe(vm.in_state("stopped"))
    kubelets.observe(vm)
    await eventually(
        lambda: cluster.node(vm.private_dns_name),
        lambda node: node["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"],
    )
    assert len((await cluster.client.list("certificatesigningrequests"))["items"]) == 1


async def test_a_pool_that_was_dumped_goes_on_elsewhere(cluster: Cluster) -> None:
    vm, dead = fake_vm(1), fake_vm(2, user_data=b"")
    first = Kubelets(cluster.url, cluster.api.ca_pem, timings=FAST, console=cluster.console)
    await first.start()
    first.observe(vm)
    first.observe(dead)
    await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    await cluster.says(dead.instance_id, "no user data")
    await first.stop()
    cluster.consoles.clear()
    second = Kubelets(cluster.url, cluster.api.ca_pem, timings=FAST, console=cluster.console)
    second.load(first.dump())
    await second.start()
    try:
        second.observe(vm)
        second.observe(dead)
        await _renewals(cluster, vm.private_dns_name, 2)
    finally:
        await second.stop()
    assert len((await cluster.client.list("certificatesigningrequests"))["items"]) == 1
    assert cluster.consoles == {}  # neither booted nor registered again, and the dead one stays dead


# -- knobs at work


async def test_never_joins_until_the_knob_is_cleared(cluster: Cluster, kubelets: Kubelets) -> None:
    kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(never_joins=True))])
    silent, other = fake_vm(1), fake_vm(2)
    kubelets.observe(silent)
    kubelets.observe(other)
    await eventually(lambda: cluster.node(other.private_dns_name), is_ready)
    assert [n["metadata"]["name"] for n in (await cluster.client.list("nodes"))["items"]] == [other.private_dns_name]
    kubelets.set_knobs([])
    await eventually(lambda: cluster.node(silent.private_dns_name), is_ready)


async def test_join_delay_can_be_taken_back(cluster: Cluster, kubelets: Kubelets) -> None:
    kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(join_delay=3600))])
    late, other = fake_vm(1), fake_vm(2)
    kubelets.observe(late)
    kubelets.observe(other)
    await eventually(lambda: cluster.node(other.private_dns_name), is_ready)
    assert len((await cluster.client.list("certificatesigningrequests"))["items"]) == 1
    kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(join_delay=0.1))])
    await eventually(lambda: cluster.node(late.private_dns_name), is_ready)


async def test_no_taint_and_no_provider_id(cluster: Cluster, kubelets: Kubelets) -> None:
    kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(no_taint=True, no_provider_id=True))])
    vm = fake_vm()
    kubelets.observe(vm)
    node = await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    assert "providerID" not in node["spec"]
    assert NOT_READY_TAINT not in {key for key, _ in taint_keys(node)}


async def test_a_stale_node_keeps_its_provider_id(cluster: Cluster, kubelets: Kubelets) -> None:
    stale = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "stale"},
        "spec": {"providerID": "aws:///eu-west-1/i-ffffffffffffffff"},
    }
    created = await cluster.client.create("nodes", stale)
    kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(node_name="stale"))])
    vm = fake_vm()
    kubelets.observe(vm)
    node = await eventually(lambda: cluster.node("stale"), is_ready)
    assert node["metadata"]["uid"] == created["metadata"]["uid"]
    assert node["spec"]["providerID"] == "aws:///eu-west-1/i-ffffffffffffffff"
    assert NOT_READY_TAINT not in {key for key, _ in taint_keys(node)}  # kubelet taints only what it creates
    assert "Node was previously registered" in cluster.consoles[vm.instance_id]


async def test_a_node_made_beforehand_gets_its_provider_id(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = fake_vm()
    await cluster.client.create(
        "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": vm.private_dns_name}}
    )
    kubelets.observe(vm)
    node = await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    assert node["spec"]["providerID"] == f"aws:///eu-west-1/{vm.instance_id}"


async def test_dies_after_silences_one_kubelet(cluster: Cluster, kubelets: Kubelets) -> None:
    mortal, other = fake_vm(1), fake_vm(2)
    kubelets.observe(mortal)
    kubelets.observe(other)
    for vm in (mortal, other):
        await eventually(lambda vm=vm: cluster.node(vm.private_dns_name), is_ready)
    kubelets.set_knobs([KnobRule(match="m-1", knobs=Knobs(dies_after=0.0))])
    await eventually(_ended(kubelets, mortal.provider_id))
    last = await cluster.client.get("leases", mortal.private_dns_name, "kube-node-lease")
    await _renewals(cluster, other.private_dns_name, 3)
    assert await cluster.client.get("leases", mortal.private_dns_name, "kube-node-lease") == last


async def test_flapping_and_unready_nodes(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = fake_vm()
    kubelets.observe(vm)
    await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    kubelets.set_knobs([KnobRule(match="m-*", knobs=Knobs(unready=True))])
    node = await eventually(lambda: cluster.node(vm.private_dns_name), lambda n: not is_ready(n))
    assert condition(node, "Ready")["status"] == "False"
    assert condition(node, "Ready")["reason"] == "KubeletNotReady"
    kubelets.set_knobs([KnobRule(match="m-*", knobs=Knobs(flaps=0.6))])
    for wanted in (True, False, True):
        await eventually(lambda: cluster.node(vm.private_dns_name), lambda n, w=wanted: is_ready(n) == w)


# -- pods


async def test_a_bound_pod_runs_and_becomes_ready(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = await _joined(cluster, kubelets)
    for name in ("a", "b"):
        await cluster.client.create("pods", pod(name, vm.private_dns_name), "default")
    pods = [await eventually(lambda n=name: cluster.client.get("pods", n, "default"), is_ready) for name in ("a", "b")]
    assert [p["status"]["phase"] for p in pods] == ["Running", "Running"]
    assert [p["status"]["hostIP"] for p in pods] == ["10.0.0.1", "10.0.0.1"]
    assert len({p["status"]["podIP"] for p in pods}) == 2
    assert pods[0]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]


async def test_a_deleted_pod_is_stopped_and_removed_by_its_kubelet(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = await _joined(cluster, kubelets)
    await cluster.client.create("pods", pod("a", vm.private_dns_name), "default")
    await eventually(lambda: cluster.client.get("pods", "a", "default"), is_ready)
    deleted = await cluster.client.delete("pods", "a", "default")
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    await eventually(cluster.pods, lambda pods: pods == [])
    removal = [c for c in cluster.frame.calls("kubernetes", "delete pods") if c.caller.startswith("system:node:")]
    assert len(removal) == 1


async def test_stop_seconds_are_bounded_by_the_grace_period(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = await _joined(cluster, kubelets)
    for name, seconds in (("slow", "3600"), ("quick", "0")):
        body = pod(name, vm.private_dns_name)
        body["metadata"]["annotations"] = {"simulator.hostler/stop-seconds": seconds}
        await cluster.client.create("pods", body, "default")
        await eventually(lambda n=name: cluster.client.get("pods", n, "default"), is_ready)
    for name in ("slow", "quick"):
        await cluster.client.delete("pods", name, "default")
    await eventually(cluster.pods, lambda pods: [p["metadata"]["name"] for p in pods] == ["slow"])
    await cluster.client.delete("pods", "slow", "default", grace=1)
    await eventually(cluster.pods, lambda pods: pods == [])


async def test_a_pod_annotated_as_sick_runs_but_is_not_ready(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = await _joined(cluster, kubelets)
    sick = pod("sick", vm.private_dns_name)
    sick["metadata"]["annotations"] = {"simulator.hostler/ready": "false"}
    await cluster.client.create("pods", sick, "default")
    seen = await eventually(
        lambda: cluster.client.get("pods", "sick", "default"), lambda p: p["status"]["phase"] == "Running"
    )
    assert condition(seen, "Ready")["status"] == "False"
    await cluster.client.patch("pods", "sick", {"metadata": {"annotations": None}}, "default")
    await eventually(lambda: cluster.client.get("pods", "sick", "default"), is_ready)


async def test_pods_are_followed_again_after_the_watch_broke(cluster: Cluster, kubelets: Kubelets) -> None:
    vm = await _joined(cluster, kubelets)
    cluster.frame.faults.append(FaultRule(operation="list pods", code="InternalError", times=1))
    cluster.api.load(cluster.api.dump())  # a restart of the API server: every older watch ends with 410
    await cluster.client.create("pods", pod("a", vm.private_dns_name), "default")
    await eventually(lambda: cluster.client.get("pods", "a", "default"), is_ready)


async def test_an_event_that_was_half_written_is_not_lost(cluster: Cluster, kubelets: Kubelets) -> None:
    cluster.frame.faults.append(FaultRule(operation="watch pods", drop=True))
    vm = await _joined(cluster, kubelets)
    await eventually(_watching(cluster))
    for name in ("a", "b"):
        await cluster.client.create("pods", pod(name, vm.private_dns_name), "default")
        await eventually(lambda name=name: cluster.client.get("pods", name, "default"), is_ready)
    assert cluster.frame.faults == []


# -- helpers


async def _joined(cluster: Cluster, kubelets: Kubelets, n: int = 1):  # type: ignore[no-untyped-def]
    vm = fake_vm(n)
    kubelets.observe(vm)
    await eventually(lambda: cluster.node(vm.private_dns_name), is_ready)
    return vm


async def _renewals(cluster: Cluster, name: str, count: int) -> list[str]:
    """This many different renewTimes of a node's Lease, as they come."""
    times: list[str] = []

    async def look() -> int:
        lease = await cluster.client.get("leases", name, "kube-node-lease")
        if lease["spec"]["renewTime"] not in times:
            times.append(lease["spec"]["renewTime"])
        return len(times)

    await eventually(look, lambda seen: seen >= count, f"{count} renewals of {name}")
    return times


def _watching(cluster: Cluster):  # type: ignore[no-untyped-def]
    async def look() -> bool:
        return cluster.frame.faults == []  # the rule has met the watch

    return look


def _ended(kubelets: Kubelets, instance_id: str):  # type: ignore[no-untyped-def]
    async def look() -> bool:
        return bool(kubelets.dump()["disks"][instance_id]["ended"])

    return look
