"""Who may call the simulated API server, and what for: tokens, signing requests, the rights of a kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kube_wire import MERGE, NODES, PODS, KubeTarget, Obj, node, pod
from kube_world import (
    DEFINITIONS,
    LEASES,
    REQUESTS,
    SECRETS,
    TOKEN,
    TOKEN_ID,
    World,
    bootstrap_secret,
    new_world,
    signing_request,
)

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made


@pytest.fixture
def kube(world: World) -> KubeTarget:
    return world.kube


# -- who calls ---------------------------------------------------------------------------------------------------------


async def test_without_a_token_only_health_and_version_answer(kube: KubeTarget) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await kube.call("GET", path, token="")).status == 200
    for path in (NODES, "/api", "/openapi/v3"):
        assert (await kube.call("GET", path, token="")).reason == "401 Unauthorized"
    assert (await kube.call("GET", "/healthz", token="unknown")).reason == "401 Unauthorized"


@pytest.mark.parametrize(
    "data",
    [
        {"usage-bootstrap-authentication": "false"},
        {"token-secret": "ffffffffffffffff"},
        {"token-id": "fedcba"},
        {"expiration": (datetime.now(UTC) - timedelta(seconds=1)).isoformat()},
        {"expiration": "next week"},
    ],
)
async def test_a_bootstrap_token_is_good_only_as_its_secret_says(kube: KubeTarget, data: dict[str, str]) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await bootstrap_secret(kube, expiration=later)
    assert (await kube.call("GET", "/api", token=TOKEN)).status == 200
    await bootstrap_secret(kube, **data)
    assert (await kube.call("GET", "/api", token=TOKEN)).reason == "401 Unauthorized"


async def test_a_revoked_bootstrap_token_or_one_of_another_type_is_unknown(kube: KubeTarget) -> None:
    await bootstrap_secret(kube)
    assert (await kube.call("GET", "/api", token=TOKEN)).status == 200
    await kube.delete(f"{SECRETS}/bootstrap-token-{TOKEN_ID}")
    assert (await kube.call("GET", "/api", token=TOKEN)).reason == "401 Unauthorized"
    await bootstrap_secret(kube, kind="Opaque")
    assert (await kube.call("GET", "/api", token=TOKEN)).reason == "401 Unauthorized"


async def test_a_bootstrapper_may_sign_and_nothing_else(kube: KubeTarget) -> None:
    await bootstrap_secret(kube)
    answer = await kube.call("DELETE", f"{NODES}/x", token=TOKEN)
    assert answer.reason == "403 Forbidden"
    assert answer.message == (
        'nodes "x" is forbidden: User "system:bootstrap:abcdef" cannot delete resource "nodes" in API group "" '
        "at the cluster scope"
    )
    listed = await kube.call("GET", SECRETS, token=TOKEN)
    assert listed.message == (
        'secrets is forbidden: User "system:bootstrap:abcdef" cannot list resource "secrets" in API group "" '
        'in the namespace "kube-system"'
    )
    own = (await kube.call("POST", REQUESTS, signing_request("n1"), token=TOKEN)).ok()["metadata"]["name"]
    other = (await kube.create(REQUESTS, signing_request("n1")))["metadata"]["name"]
    assert (await kube.call("GET", f"{REQUESTS}/{own}", token=TOKEN)).status == 200
    assert (await kube.call("GET", f"{REQUESTS}/{other}", token=TOKEN)).reason == "403 Forbidden"


# -- signing requests --------------------------------------------------------------------------------------------------


async def test_a_kubelets_request_is_approved_and_its_token_is_the_nodes(world: World) -> None:
    token = await world.kubelet("n1")
    made = await world.kube.call("POST", NODES, node("n1"), token=token)
    assert made.status == 201
    assert world.last("create nodes").caller == "system:node:n1"
    (csr,) = (await world.kube.get(REQUESTS))["items"]
    assert csr["spec"]["username"] == "system:bootstrap:abcdef"
    assert [c["type"] for c in csr["status"]["conditions"]] == ["Approved"]


@pytest.mark.parametrize(
    "request_body",
    [
        signing_request("n1", usages=("digital signature", "client auth", "server auth")),
        signing_request("n1", organization="system:masters"),
        signing_request(""),
        {**signing_request("n1"), "spec": {**signing_request("n1")["spec"], "signerName": "example.com/other"}},
    ],
)
async def test_a_request_that_is_no_kubelets_stays_pending(kube: KubeTarget, request_body: Obj) -> None:
    await bootstrap_secret(kube)
    await kube.call("POST", REQUESTS, request_body, token=TOKEN)
    await kube.call("POST", REQUESTS, signing_request("n2"), token=TOKEN)
    statuses = [csr["status"] for csr in (await kube.get(REQUESTS))["items"]]
    assert sorted(bool(s) for s in statuses) == [False, True]


async def test_an_approved_request_is_issued_and_a_denied_one_is_not(kube: KubeTarget) -> None:
    for kind, count in (("Approved", 1), ("Denied", 0)):
        csr = await kube.create(REQUESTS, signing_request("n1"))
        assert csr["status"] == {}
        path = f"{REQUESTS}/{csr['metadata']['name']}"
        csr["status"]["conditions"] = [{"type": kind, "status": "True", "reason": "Test", "message": "by hand"}]
        assert (await kube.call("PUT", f"{path}/approval", csr)).status == 200
        assert len([1 for c in ("certificate",) if c in (await kube.get(path))["status"]]) == count
    bad = await kube.create(REQUESTS, signing_request("n1", organization="x"))
    bad["status"]["conditions"] = [{"type": "Approved", "status": "True", "reason": "Test", "message": "by hand"}]
    path = f"{REQUESTS}/{bad['metadata']['name']}"
    await kube.call("PUT", f"{path}/approval", bad)
    failed = (await kube.get(path))["status"]
    assert [c["type"] for c in failed["conditions"]] == ["Approved", "Failed"]
    assert "certificate" not in failed


# -- what a kubelet may ------------------------------------------------------------------------------------------------


async def test_a_kubelet_has_the_rights_of_its_node(world: World) -> None:
    kube, token = world.kube, await world.kubelet("n1")
    await kube.create(NODES, node("n1"))
    await kube.create(NODES, node("n2"))
    for place in ("n1", "n2"):
        await kube.create(PODS, pod(f"on-{place}", place))
    running, lease = {"status": {"phase": "Running"}}, {"spec": {"holderIdentity": "n1"}}
    own_pods, event = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", {"metadata": {"generateName": "e-"}}
    rows: list[tuple[str, str, Any, int]] = [
        ("GET", f"{NODES}/n1", None, 200),
        ("GET", f"{NODES}/n2", None, 403),
        ("GET", NODES, None, 403),
        ("PATCH", f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}}, 200),
        ("PATCH", f"{NODES}/n2", {"metadata": {"labels": {"a": "b"}}}, 403),
        ("PATCH", f"{NODES}/n1/status", {"status": {}}, 200),
        ("PATCH", f"{NODES}/n2/status", {"status": {}}, 403),
        ("POST", NODES, node("n3"), 403),
        ("POST", LEASES, {"metadata": {"name": "n2"}, **lease}, 403),
        ("POST", LEASES, {"metadata": {"name": "n1"}, **lease}, 201),
        ("PATCH", f"{LEASES}/n1", lease, 200),
        ("POST", LEASES.replace("kube-node-lease", "default"), {"metadata": {"name": "n1"}, **lease}, 403),
        ("GET", own_pods, None, 200),
        ("GET", "/api/v1/pods", None, 403),
        ("GET", f"{PODS}/on-n1", None, 200),
        ("GET", f"{PODS}/on-n2", None, 403),
        ("PATCH", f"{PODS}/on-n1/status", running, 200),
        ("PATCH", f"{PODS}/on-n2/status", running, 403),
        ("PATCH", f"{PODS}/on-n1", {"metadata": {"labels": {"a": "b"}}}, 403),
        ("POST", PODS, pod("mine", "n1"), 403),
        ("DELETE", f"{PODS}/on-n2", None, 403),
        ("DELETE", f"{PODS}/on-n1", None, 200),
        ("DELETE", f"{PODS}/gone", None, 404),
        ("POST", EVENTS, {**event, "involvedObject": {"kind": "Node", "name": "n1"}}, 201),
        ("GET", EVENTS, None, 403),
        ("GET", SECRETS, None, 403),
        ("GET", f"{SECRETS}/bootstrap-token-{TOKEN_ID}", None, 403),
        ("GET", DEFINITIONS, None, 403),
        ("DELETE", f"{NODES}/n2", None, 403),
        ("DELETE", f"{NODES}/n1", None, 200),
    ]
    for method, path, body, status in rows:
        content_type = MERGE if method == "PATCH" else "application/json"
        answer = await kube.call(method, path, body, content_type=content_type, token=token)
        assert answer.status == status, (method, path, answer.body)
    refused = await kube.call("GET", f"{SECRETS}/s", token=token)
    assert refused.message == (
        'secrets "s" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the '
        "namespace \"kube-system\": no relationship found between node 'n1' and this object"
    )


async def test_a_kubelet_watches_its_own_pods(world: World) -> None:
    kube, token = world.kube, await world.kubelet("n1")
    for place in ("n1", "n2"):
        await kube.create(PODS, pod(f"on-{place}", place))
    query = {"fieldSelector": "spec.nodeName=n1", "timeoutSeconds": "1"}
    names = [e["object"]["metadata"]["name"] async for e in kube.watch("/api/v1/pods", token=token, **query)]
    assert names == ["on-n1"]
    refused = await kube.call("GET", "/api/v1/pods", token=token, watch="1")
    assert refused.message.endswith("can only list/watch pods with spec.nodeName field selector")


async def test_who_am_i_and_may_i(world: World) -> None:
    token, path = await world.kubelet("n1"), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    who = await world.kube.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=token)
    assert who.ok()["status"]["userInfo"]["username"] == "system:node:n1"
    for name, allowed in (("n1", True), ("n2", False)):
        asked = {"spec": {"resourceAttributes": {"verb": "patch", "resource": "nodes", "name": name}}}
        answer = await world.kube.call("POST", path, asked, token=token)
        assert answer.ok()["status"]["allowed"] is allowed
