"""Deletion, pods and evictions over the Kubernetes API: the ground of every drain."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from apiserver.simulated import (
    MERGE,
    NODES,
    PODS,
    STRATEGIC,
    Answer,
    KubeTarget,
    Obj,
    make_node,
    make_pod,
    node,
    pod,
    unique,
)

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


# -- delete ------------------------------------------------------------------------------------------------------------


async def test_delete_answers_with_a_status_and_the_uid(kube: KubeTarget) -> None:
    name = await make_node(kube)
    uid = (await kube.get(f"{NODES}/{name}"))["metadata"]["uid"]
    answer = await kube.delete(f"{NODES}/{name}")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": name, "kind": "nodes", "uid": uid}


async def test_delete_preconditions_are_kept(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube)}"
    for precondition in ({"uid": "00000000-0000-4000-8000-000000000000"}, {"resourceVersion": "1"}):
        answer = await kube.call("DELETE", path, {"preconditions": precondition})
        assert answer.reason == "409 Conflict", precondition
        assert "in the precondition" in answer.message
    uid = (await kube.get(path))["metadata"]["uid"]
    assert (await kube.call("DELETE", path, {"preconditions": {"uid": uid}})).status == 200


async def test_finalizers_hold_an_object_until_they_are_gone(kube: KubeTarget) -> None:
    name = unique("n")
    body = node(name)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await kube.create(NODES, body)
    path = f"{NODES}/{name}"
    assert (await kube.delete(path))["metadata"]["deletionTimestamp"]
    held = await kube.get(path)
    assert held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert (await kube.call("PATCH", path, more, content_type=MERGE)).reason == "422 Invalid"
    await kube.patch(path, {"metadata": {"finalizers": None}})
    assert (await kube.call("GET", path)).reason == "404 NotFound"


async def test_delete_collection_takes_what_the_selector_chooses(kube: KubeTarget) -> None:
    path, group = "/api/v1/namespaces/default/configmaps", unique("g")
    for name, labels in ((unique("c"), {"g": group}), (unique("c"), {"g": group}), (f"{group}-kept", {})):
        await kube.create(path, {"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}})
    await kube.delete(path, labelSelector=f"g={group}")
    assert (await kube.get(path, labelSelector=f"g={group}"))["items"] == []
    assert (await kube.get(f"{path}/{group}-kept"))["data"] == {"a": "b"}


async def test_a_running_pod_is_deleted_gracefully(kube: KubeTarget) -> None:
    path = f"{PODS}/{await make_pod(kube, unique('n'))}"
    deleted = await kube.delete(path)
    meta = deleted["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30
    ahead = (datetime.fromisoformat(meta["deletionTimestamp"]) - datetime.now(UTC)).total_seconds()
    assert 0 < ahead <= 31
    assert (await kube.delete(path, gracePeriodSeconds="60"))["metadata"] == (await kube.get(path))["metadata"]
    assert (await kube.delete(path, gracePeriodSeconds="5"))["metadata"]["deletionGracePeriodSeconds"] == 5
    await kube.delete(path, gracePeriodSeconds="0")
    assert (await kube.call("GET", path)).reason == "404 NotFound"


async def test_a_pod_without_a_node_goes_at_once(kube: KubeTarget) -> None:
    path = f"{PODS}/{await make_pod(kube)}"
    await kube.delete(path)
    assert (await kube.call("GET", path)).reason == "404 NotFound"


# -- pods --------------------------------------------------------------------------------------------------------------


async def test_a_pod_is_completed_and_validated(kube: KubeTarget) -> None:
    made = await kube.get(f"{PODS}/{await make_pod(kube)}")
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "BestEffort")
    keys = {t["key"] for t in made["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    empty = pod(unique("p"))
    empty["spec"]["containers"] = []
    assert (await kube.call("POST", PODS, empty)).reason == "422 Invalid"
    nowhere = await kube.call("POST", "/api/v1/namespaces/nowhere/pods", pod(unique("p")))
    assert nowhere.reason == "404 NotFound"
    assert nowhere.message == 'namespaces "nowhere" not found'


async def test_of_a_pods_spec_only_the_image_changes(kube: KubeTarget) -> None:
    path = f"{PODS}/{await make_pod(kube)}"
    patched = await kube.patch(path, {"spec": {"containers": [{"name": "c", "image": "other"}]}}, STRATEGIC)
    assert [(c["name"], c["image"]) for c in patched["spec"]["containers"]] == [("c", "other")]
    answer = await kube.call("PATCH", path, {"spec": {"hostname": "x"}}, content_type=MERGE)
    assert answer.reason == "422 Invalid"
    assert "pod updates may not change fields other than" in answer.message


async def test_a_pod_is_bound_once(kube: KubeTarget) -> None:
    name = await make_pod(kube)

    def binding(target: str) -> Obj:
        meta, kind = {"name": name}, {"kind": "Node", "name": target}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": kind}

    assert (await kube.call("POST", f"{PODS}/{name}/binding", binding("n1"))).status == 201
    assert (await kube.get(f"{PODS}/{name}"))["spec"]["nodeName"] == "n1"
    assert (await kube.call("POST", f"{PODS}/{name}/binding", binding("n2"))).reason == "409 Conflict"
    assert (await kube.get(f"{PODS}/{name}"))["spec"]["nodeName"] == "n1"


# -- eviction ----------------------------------------------------------------------------------------------------------


async def evict(kube: KubeTarget, name: str, version: str = "policy/v1") -> Answer:
    body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    return await kube.call("POST", f"{PODS}/{name}/eviction", body)


async def running_pod(kube: KubeTarget, **labels: str) -> str:
    name = await make_pod(kube, unique("n"), **labels)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await kube.patch(f"{PODS}/{name}/status", {"status": status})
    return name


async def budget(kube: KubeTarget, labels: dict[str, str], *, allowed: int, healthy: int, desired: int) -> str:
    """A budget with the status the disruption controller would give it."""
    name = unique("b")
    body = {"metadata": {"name": name}, "spec": {"minAvailable": desired, "selector": {"matchLabels": labels}}}
    made = await kube.create(BUDGETS, body)
    status = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
    }
    await kube.patch(f"{BUDGETS}/{name}/status", {"status": status})
    return name


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
async def test_an_eviction_without_a_budget_deletes_gracefully(kube: KubeTarget, version: str) -> None:
    name = await running_pod(kube)
    assert (await evict(kube, name, version)).status == 201
    evicted = await kube.get(f"{PODS}/{name}")
    assert evicted["metadata"]["deletionTimestamp"]
    conditions = {c["type"]: c.get("reason") for c in evicted["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "EvictionByEvictionAPI"


async def test_an_eviction_names_its_pod(kube: KubeTarget) -> None:
    name = await running_pod(kube)
    answer = await kube.call("POST", f"{PODS}/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"})
    assert answer.reason == "400 BadRequest"
    assert answer.message == "name in URL does not match name in Eviction object"
    assert "deletionTimestamp" not in (await kube.get(f"{PODS}/{name}"))["metadata"]
    assert (await evict(kube, name)).status == 201


async def test_a_budget_without_allowance_answers_429(kube: KubeTarget) -> None:
    labels = {"app": unique("a")}
    name = await running_pod(kube, **labels)
    budget_name = await budget(kube, labels, allowed=0, healthy=1, desired=1)
    answer = await evict(kube, name)
    assert answer.reason == "429 TooManyRequests"
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = answer.body["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"].startswith(f"The disruption budget {budget_name} needs 1 healthy pods and has 1 currently")
    assert "deletionTimestamp" not in (await kube.get(f"{PODS}/{name}"))["metadata"]


async def test_an_eviction_uses_up_the_allowance(kube: KubeTarget) -> None:
    labels = {"app": unique("a")}
    first, second = await running_pod(kube, **labels), await running_pod(kube, **labels)
    budget_name = await budget(kube, labels, allowed=1, healthy=2, desired=1)
    assert (await evict(kube, first)).status == 201
    assert (await evict(kube, second)).reason == "429 TooManyRequests"
    status = (await kube.get(f"{BUDGETS}/{budget_name}"))["status"]
    assert status["disruptionsAllowed"] == 0
    assert set(status["disruptedPods"]) == {first}


async def test_a_budget_the_controller_has_not_seen_answers_429(kube: KubeTarget) -> None:
    labels = {"app": unique("a")}
    name = await running_pod(kube, **labels)
    body = {"metadata": {"name": unique("b")}, "spec": {"minAvailable": 0, "selector": {"matchLabels": labels}}}
    await kube.create(BUDGETS, body)
    answer = await evict(kube, name)
    assert answer.reason == "429 TooManyRequests"
    assert answer.headers["Retry-After"] == "10"


async def test_two_budgets_for_one_pod_are_an_error(kube: KubeTarget) -> None:
    labels = {"app": unique("a")}
    name = await running_pod(kube, **labels)
    for _ in range(2):
        await budget(kube, labels, allowed=1, healthy=2, desired=1)
    answer = await evict(kube, name)
    assert answer.reason == "500 None"
    assert "more than one PodDisruptionBudget" in answer.message


async def test_a_pending_pod_is_evicted_past_its_budget(kube: KubeTarget) -> None:
    labels = {"app": unique("a")}
    name = await make_pod(kube, unique("n"), **labels)
    await budget(kube, labels, allowed=0, healthy=1, desired=1)
    assert (await evict(kube, name)).status == 201
    assert (await evict(kube, unique("p"))).reason == "404 NotFound"
