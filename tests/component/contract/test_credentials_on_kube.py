"""Credentials that rotate, on a real API server: a whole watch outlives them. And a server that is frozen is found."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apiserver.simulated import NODES, SECRETS, KubeTarget, Plugin, new_certificate, unique, write_kubeconfig
from lifekit import eventually
from processes.children import children
from temporalio.testing import WorkflowEnvironment
from watchkit import World, new_world

from activities.kube import kubeconfig
from activities.kube.client import Kube
from activities.watch import follow, liveness
from resources.settings import ClusterSettings

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
GROUP = "system:bootstrappers:hostler-tests"

pytestmark = pytest.mark.parametrize("kube", ["real"], indirect=True)


@pytest.fixture(scope="module", autouse=True)
async def rights(kube: KubeTarget) -> AsyncIterator[None]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}
    name = unique("hostler-tests")
    await kube.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    yield
    await kube.delete(f"{BINDINGS}/{name}")


async def new_token(kube: KubeTarget) -> str:
    """A new token that the server knows: a bootstrap token, which can be revoked."""
    part, secret = secrets.token_hex(3), secrets.token_hex(8)
    content = {"token-id": part, "token-secret": secret, "usage-bootstrap-authentication": "true"}
    body = {
        "metadata": {"name": f"bootstrap-token-{part}"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {**content, "auth-extra-groups": GROUP},
    }
    await kube.create(SECRETS, body)
    await until_it_answers(kube, f"{part}.{secret}", 200)
    return f"{part}.{secret}"


async def revoke(kube: KubeTarget, token: str) -> None:
    await kube.delete(f"{SECRETS}/bootstrap-token-{token.partition('.')[0]}")
    await until_it_answers(kube, token, 401)  # it believes a token for ten seconds more


async def until_it_answers(kube: KubeTarget, token: str, status: int) -> None:
    async def answer() -> int:
        return (await kube.call("GET", NODES, token=token)).status

    await eventually(answer, lambda seen: seen == status, f"{status} for a token")


@pytest.fixture
async def world(kube: KubeTarget, temporal: WorkflowEnvironment) -> AsyncIterator[World]:
    async with new_world(temporal.client, real=kube) as world:
        yield world


@pytest.mark.parametrize("kind", ["tokenFile", "exec"])
async def test_a_watch_outlives_its_tokens(
    kube: KubeTarget, world: World, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next watch is refused; credentials are read again, and nobody hears of it, nor anything twice."""
    monkeypatch.setattr(follow, "SERVER_TIMEOUT", 2)
    plugin, node, former = Plugin(tmp_path), unique("n"), await new_token(kube)
    refusals: set[int] = set()
    renew = kubeconfig.Access.renew

    async def seen(self: kubeconfig.Access, version: int, *, plugin: bool = True) -> bool:
        renewed = await renew(self, version, plugin=plugin)
        refusals.add(version)  # only now: what the next rotation gives is not read by this one
        return renewed

    async def refused() -> int:
        return len(refusals)

    monkeypatch.setattr(kubeconfig.Access, "renew", seen)

    def serve(token: str) -> None:
        plugin.gives(token=token) if kind == "exec" else (tmp_path / "token").write_text(token)

    serve(former)
    user = plugin.user() if kind == "exec" else {"tokenFile": str(tmp_path / "token")}
    write_kubeconfig(world.file.parent / "kubeconfig", kube, user)
    async with world.worker():
        await world.watch()
        await world.joined("m-1", node, unique("i"))
        await world.only_this_change("m-1", 1, node)
        for rotation, told in enumerate((2, 3), start=1):
            token = await new_token(kube)
            serve(token)
            await revoke(kube, former)
            former = token
            await eventually(refused, lambda times, n=rotation: times >= n, "a call that was refused")
            await world.only_this_change("m-1", told, node)
        await world.undisturbed()
    assert len(plugin.asked) == (3 if kind == "exec" else 0)  # at the start, and once after each rotation


@pytest.mark.parametrize("kind", ["files", "exec"])
async def test_client_certificates_are_read_again(
    kube: KubeTarget, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is not the certificate's, as in the middle of a rotation, is not taken."""
    monkeypatch.setattr(kubeconfig, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(kubeconfig, "LOOK_SOON", 0.0)
    plugin = Plugin(tmp_path)

    def serve(certificate: str, key: str) -> None:
        (tmp_path / "it.crt").write_text(certificate)
        (tmp_path / "it.key").write_text(key)
        plugin.gives(datetime.now(UTC), clientCertificateData=certificate, clientKeyData=key)

    user = plugin.user() if kind == "exec" else {"client-certificate": "it.crt", "client-key": "it.key"}
    serve(*new_certificate(kube.ca_file, "ann"))
    api = await Kube.connect("demo", ClusterSettings(), str(write_kubeconfig(tmp_path / "kubeconfig", kube, user)))
    assert await who(api) == "ann"
    bobs, his_key = new_certificate(kube.ca_file, "bob")
    serve(bobs, new_certificate(kube.ca_file, "ann")[1])
    assert await who(api) == "ann"
    serve(bobs, his_key)
    assert await who(api) == "bob"
    await api.close()


async def who(api: Kube) -> str:
    """The user that the server takes us for."""
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    review = await api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", kind)
    return str(review["status"]["userInfo"]["username"])


def server_process() -> int:
    (found,) = [p for p in children(os.getpid()) if b"kube-apiserver" in Path(f"/proc/{p}/cmdline").read_bytes()]
    return found


async def test_a_frozen_api_server_is_found(kube: KubeTarget, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"PROBE_EVERY": 0.5, "PROBE_PATIENCE": 1.0}.items():
        monkeypatch.setattr(liveness, name, seconds)
    node, server = unique("n"), server_process()
    async with world.worker():
        await world.watch()
        await world.joined("m-1", node, unique("i"))
        await world.only_this_change("m-1", 1, node)
        os.kill(server, signal.SIGSTOP)
        try:
            frozen = datetime.now(UTC)
            state = await eventually(world.state, lambda s: s.api and not s.api.reachable, "unreachable")
        finally:
            os.kill(server, signal.SIGCONT)
        assert state.api is not None
        assert state.api.since is not None
        assert state.api.since < frozen + timedelta(seconds=1)
        await eventually(world.reachable, bool, "reachable")
        await world.only_this_change("m-1", 2, node)
        assert await world.reasons() == ["APIUnreachable", "APIReachable"]
