"""Access to the Kubernetes API: who may call it and what for, how a machine joins, and what its kubelet may do then."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from apiserver.simulated import (
    BEGIN,
    DEFINITIONS,
    LEASES,
    MERGE,
    NODES,
    PODS,
    REQUESTS,
    SECRETS,
    TOKEN,
    TOKEN_ID,
    Answer,
    KubeTarget,
    Obj,
    bootstrap_secret,
    node,
    pod,
    signing_request,
    unique,
)

from simulator.client import ConnectionPool, KubeClient, present_certificate, server_trust
from simulator.kubelet.identity import bootstrap

EVENTS = "/api/v1/namespaces/default/events"
DEADLINE = 30.0  # seconds; what is waited for here takes less than one
ENCIPHERMENT = ("digital signature", "key encipherment", "client auth")


@pytest.fixture(scope="module")
async def token(kube: KubeTarget) -> str:
    """A bootstrap token, returned once the server knows it."""
    await bootstrap_secret(kube)
    async with asyncio.timeout(DEADLINE):
        while True:
            if (await kube.call("GET", "/api", token=TOKEN)).status != 401:
                return str(TOKEN)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def kubelet(kube: KubeTarget, token: str, name: str) -> AsyncIterator[KubeTarget]:
    """The API as the kubelet of that node sees it, with the identity that it got with the token."""
    authority = kube.ca_file.read_text()
    pool = ConnectionPool()
    try:
        client = KubeClient(pool, kube.url, token=token, tls=server_trust(authority))
        async with asyncio.timeout(DEADLINE):
            identity = await bootstrap(client, name, poll=0.05)
    finally:
        await pool.close()
    tls = server_trust(authority)
    if identity.certificate and identity.key:
        present_certificate(tls, identity.certificate, identity.key)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls))
    target = replace(kube, token=identity.token or "", _session=session)
    try:
        yield target
    finally:
        await target.close()


async def status_of(kube: KubeTarget, request: Obj, until: str) -> Obj:
    """The request's status, once it has that condition."""
    async with asyncio.timeout(DEADLINE):
        while True:
            status: Obj = (await kube.get(f"{REQUESTS}/{request['metadata']['name']}"))["status"]
            if until in conditions(status):
                return status
            await asyncio.sleep(0.05)


def conditions(status: Obj) -> list[str]:
    return [c["type"] for c in status.get("conditions", ())]


# -- without an identity -----------------------------------------------------------------------------------------------


async def test_without_a_token_only_health_and_version_answer(kube: KubeTarget) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await kube.call("GET", path, token="")).status == 200
    for path in ("/api", "/openapi/v3", "/nope"):
        answer = await kube.call("GET", path, token="")
        assert answer.reason == "403 Forbidden"
        assert answer.message == f'forbidden: User "system:anonymous" cannot get path "{path}"'
    listed = await kube.call("GET", NODES, token="")
    assert listed.reason == "403 Forbidden"
    assert listed.message.startswith('nodes is forbidden: User "system:anonymous" cannot list resource "nodes"')
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await kube.call("POST", path, review, token="")).reason == "403 Forbidden"
    assert (await kube.call("GET", "/healthz", token="unknown")).reason == "401 Unauthorized"


async def test_a_bootstrapper_may_sign_and_nothing_else(kube: KubeTarget, token: str) -> None:
    answer = await kube.call("DELETE", f"{NODES}/x", token=token)
    assert answer.reason == "403 Forbidden"
    assert answer.message == (
        'nodes "x" is forbidden: User "system:bootstrap:abcdef" cannot delete resource "nodes" in API group "" '
        "at the cluster scope"
    )
    listed = await kube.call("GET", SECRETS, token=token)
    assert listed.message == (
        'secrets is forbidden: User "system:bootstrap:abcdef" cannot list resource "secrets" in API group "" '
        'in the namespace "kube-system"'
    )
    own = (await kube.call("POST", REQUESTS, signing_request(unique("n")), token=token)).ok()["metadata"]["name"]
    assert (await kube.call("GET", f"{REQUESTS}/{own}", token=token)).status == 200
    assert (await kube.call("GET", REQUESTS, token=token)).status == 200
    assert (await kube.call("DELETE", f"{REQUESTS}/{own}", token=token)).reason == "403 Forbidden"


# -- signing requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usages", [(), ENCIPHERMENT])
async def test_a_kubelets_request_is_approved_and_issued(kube: KubeTarget, token: str, usages: tuple[str, ...]) -> None:
    request = (await kube.call("POST", REQUESTS, signing_request(unique("n"), usages=usages), token=token)).ok()
    assert request["spec"]["username"] == f"system:bootstrap:{TOKEN_ID}"
    assert "system:bootstrappers" in request["spec"]["groups"]
    status = await status_of(kube, request, "Approved")
    async with asyncio.timeout(DEADLINE):
        while "certificate" not in status:  # signed a moment after it was approved
            status = await status_of(kube, request, "Approved")
    block = base64.b64decode(status["certificate"]).decode()
    assert block.startswith((BEGIN, "-----BEGIN CERTIFICATE-----\n"))


@pytest.mark.parametrize(
    "body",
    [
        signing_request("n1", usages=("digital signature", "client auth", "server auth")),
        signing_request("n1", organization="system:masters"),
        {**signing_request("n1"), "spec": {**signing_request("n1")["spec"], "signerName": "example.com/other"}},
    ],
    ids=["usages", "organization", "signer"],
)
async def test_a_request_that_is_no_kubelets_stays_pending(kube: KubeTarget, token: str, body: Obj) -> None:
    wrong = (await kube.call("POST", REQUESTS, body, token=token)).ok()
    right = (await kube.call("POST", REQUESTS, signing_request(unique("n")), token=token)).ok()
    await status_of(kube, right, "Approved")
    assert (await kube.get(f"{REQUESTS}/{wrong['metadata']['name']}"))["status"] == {}


async def test_what_a_person_decides_stays_but_only_a_kubelets_request_is_signed(kube: KubeTarget, token: str) -> None:
    for decision, conditions_then in (("Approved", ["Approved", "Failed"]), ("Denied", ["Denied"])):
        body = signing_request("n1", organization="x")
        request = (await kube.call("POST", REQUESTS, body, token=token)).ok()
        told = {"type": decision, "status": "True", "reason": "Test", "message": "by hand"}
        decided = {**request, "status": {"conditions": [told]}}
        (await kube.call("PUT", f"{REQUESTS}/{request['metadata']['name']}/approval", decided)).ok()
        status = await status_of(kube, request, conditions_then[-1])
        assert conditions(status) == conditions_then
        assert "certificate" not in status


async def test_a_kubelet_asks_for_itself_only(kube: KubeTarget, token: str) -> None:
    name = unique("n")
    async with kubelet(kube, token, name) as mine:
        refused = await mine.call("POST", REQUESTS, signing_request(unique("n")))
        assert refused.reason == "403 Forbidden"
        assert refused.message.endswith(f"can only create a node CSR with CN=system:node:{name}")
        renewed = await mine.create(REQUESTS, signing_request(name))
    assert conditions(await status_of(kube, renewed, "Approved")) == ["Approved"]


# -- what a kubelet may ------------------------------------------------------------------------------------------------


async def test_a_kubelet_has_the_rights_of_its_node(kube: KubeTarget, token: str) -> None:
    n1, n2, n3 = unique("n"), unique("n"), unique("n")
    await kube.create(NODES, node(n2))
    for place in (n1, n2):
        await kube.create(PODS, pod(f"on-{place}", place))
    running, lease, label = {"status": {"phase": "Running"}}, {"spec": {"holderIdentity": n1}}, {"a": "b"}
    event: Obj = {"metadata": {"generateName": "e-"}, "involvedObject": {"kind": "Node", "name": n1}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"on-{n1}"}}
    default_leases = LEASES.replace("kube-node-lease", "default")
    rows: list[tuple[str, str, Any, int]] = [
        ("POST", NODES, node(n1, **{"node-role.kubernetes.io/a": ""}), 403),
        ("POST", NODES, node(n1, **{"node.kubernetes.io/a": ""}), 201),
        ("GET", f"{NODES}/{n1}", None, 200),
        ("GET", f"{NODES}/{n2}", None, 403),
        ("GET", NODES, None, 403),
        ("PATCH", f"{NODES}/{n1}", {"metadata": {"labels": label}}, 200),
        ("PATCH", f"{NODES}/{n2}", {"metadata": {"labels": label}}, 403),
        ("PATCH", f"{NODES}/{n1}", {"metadata": {"labels": {"node-role.kubernetes.io/a": ""}}}, 403),
        ("PATCH", f"{NODES}/{n1}", {"metadata": {"labels": {"node-restriction.kubernetes.io/a": ""}}}, 403),
        ("PATCH", f"{NODES}/{n1}", {"spec": {"taints": []}}, 403),
        ("PATCH", f"{NODES}/{n1}", {"metadata": {"ownerReferences": [OWNER]}}, 403),
        ("PATCH", f"{NODES}/{n1}", {"spec": {"unschedulable": True}}, 200),
        ("PATCH", f"{NODES}/{n1}/status", {"status": {}}, 200),
        ("PATCH", f"{NODES}/{n2}/status", {"status": {}}, 403),
        ("POST", NODES, node(n3), 403),
        ("POST", LEASES, {"metadata": {"name": n2}, **lease}, 403),
        ("POST", LEASES, {"metadata": {"name": n1}, **lease}, 201),
        ("PATCH", f"{LEASES}/{n1}", lease, 200),
        ("POST", default_leases, {"metadata": {"name": n1}, **lease}, 403),
        ("GET", "/api/v1/pods", None, 403),
        ("GET", f"{PODS}/on-{n1}", None, 200),
        ("GET", f"{PODS}/on-{n2}", None, 403),
        ("PATCH", f"{PODS}/on-{n1}/status", running, 200),
        ("PATCH", f"{PODS}/on-{n2}/status", running, 403),
        ("PATCH", f"{PODS}/on-{n1}", {"metadata": {"labels": label}}, 403),
        ("POST", PODS, pod("mine", n1), 403),
        ("POST", f"{PODS}/on-{n2}/eviction", eviction, 403),
        ("POST", f"{PODS}/on-{n1}/eviction", eviction, 201),
        ("DELETE", f"{PODS}/on-{n2}", None, 403),
        ("DELETE", f"{PODS}/on-{n1}", None, 200),
        ("DELETE", f"{PODS}/gone", None, 404),
        ("POST", EVENTS, event, 201),
        ("GET", EVENTS, None, 403),
        ("GET", SECRETS, None, 403),
        ("GET", f"{SECRETS}/bootstrap-token-{TOKEN_ID}", None, 403),
        ("GET", DEFINITIONS, None, 403),
        ("DELETE", f"{NODES}/{n2}", None, 403),
        ("DELETE", f"{NODES}/{n1}", None, 403),
    ]
    async with kubelet(kube, token, n1) as mine:
        for method, path, body, status in rows:
            answer = await call(mine, method, path, body)
            assert answer.status == status, (method, path, body, answer.body)
        own = await mine.call("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={n1}")
        assert own.status == 200


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "00000000-0000-4000-8000-000000000000"}


async def call(kube: KubeTarget, method: str, path: str, body: Any) -> Answer:
    return await kube.call(method, path, body, content_type=MERGE if method == "PATCH" else "application/json")


async def test_a_kubelet_is_refused_in_the_words_of_who_refuses(kube: KubeTarget, token: str) -> None:
    name, other = unique("n"), unique("n")
    await kube.create(PODS, pod(f"on-{other}", other))
    user = f'User "system:node:{name}" cannot'
    rows: list[tuple[str, str, Any, str]] = [
        (
            "POST",
            NODES,
            node(name, **{"k8s.io/a": ""}),
            f'nodes "{name}" is forbidden: node "{name}" is not allowed to set the following labels: k8s.io/a',
        ),
        ("POST", NODES, node(name), ""),
        (
            "PATCH",
            f"{NODES}/{name}",
            {"spec": {"taints": None}},
            f'nodes "{name}" is forbidden: node "{name}" is not allowed to modify taints',
        ),
        (
            "PATCH",
            f"{NODES}/{name}",
            {"metadata": {"labels": {"k8s.io/a": ""}}},
            f'nodes "{name}" is forbidden: is not allowed to modify labels: k8s.io/a',
        ),
        (
            "DELETE",
            f"{NODES}/{name}",
            None,
            f'nodes "{name}" is forbidden: {user} delete resource "nodes" in API group "" at the cluster scope',
        ),
        (
            "POST",
            LEASES,
            {"metadata": {"name": other}},
            f'leases.coordination.k8s.io "{other}" is forbidden: '
            "can only access node lease with the same name as the requesting node",
        ),
        (
            "POST",
            f"{PODS}/on-{other}/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"on-{other}"}},
            f'pods "on-{other}" is forbidden: node {name} can only evict pods with spec.nodeName set to itself',
        ),
        (
            "GET",
            f"{SECRETS}/s",
            None,
            f'secrets "s" is forbidden: {user} get resource "secrets" in API group "" in the namespace "kube-system": '
            f"no relationship found between node '{name}' and this object",
        ),
        (
            "GET",
            SECRETS,
            None,
            f'secrets is forbidden: {user} list resource "secrets" in API group "" in the namespace "kube-system": '
            "No Object name found",
        ),
        (
            "GET",
            "/api/v1/pods",
            None,
            f'pods is forbidden: {user} list resource "pods" in API group "" at the cluster scope: '
            "can only list/watch pods with spec.nodeName field selector",
        ),
    ]
    async with kubelet(kube, token, name) as mine:
        for method, path, body, said in rows:
            answer = await call(mine, method, path, body)
            assert (answer.message if said else answer.reason or "") == said, (method, path)


async def test_a_kubelet_watches_its_own_pods(kube: KubeTarget, token: str) -> None:
    name, other = unique("n"), unique("n")
    for place in (name, other):
        await kube.create(PODS, pod(f"on-{place}", place))
    async with kubelet(kube, token, name) as mine:
        events = await mine.watched("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
        assert [e["object"]["metadata"]["name"] for e in events] == [f"on-{name}"]
        refused = await mine.call("GET", "/api/v1/pods", watch="1")
        assert refused.message.endswith("can only list/watch pods with spec.nodeName field selector")


async def test_who_am_i_and_may_i(kube: KubeTarget, token: str) -> None:
    name, path = unique("n"), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    async with kubelet(kube, token, name) as mine:
        who = await mine.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert who["status"]["userInfo"]["username"] == f"system:node:{name}"
        for resource, allowed in (("nodes", True), ("secrets", False)):
            asked = {"spec": {"resourceAttributes": {"verb": "create", "resource": resource}}}
            assert (await mine.create(path, asked))["status"]["allowed"] is allowed
