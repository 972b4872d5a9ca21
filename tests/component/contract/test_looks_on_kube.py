"""Fresh looks at Nodes and tokens, on the simulator and on a real API server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apiserver.simulated import NODES, KubeTarget

from activities.kube.client import Kube
from activities.kube.looks import find_node, lease_renewed
from activities.kube.tokens import ensure_token, keep_token, revoke_tokens
from activities.kube.whose import ready_status
from resources.calls.machine import MachineRef
from resources.names import MACHINE_NAME_LABEL
from resources.settings import ClusterSettings

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
VM, OTHER_VM = "aws:///eu-west-1/i-0123456789abcdef0", "aws:///eu-west-1/i-0fedcba9876543210"
EXPIRES = datetime(2031, 1, 1, tzinfo=UTC)


@pytest.fixture
async def api(kube: KubeTarget, tmp_path: Path) -> AsyncIterator[Kube]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kube.kubeconfig())
    api = await Kube.connect("demo", ClusterSettings(), str(kubeconfig))
    try:
        yield api
    finally:
        await api.close()


async def test_a_node_by_name_by_label_and_without_provider_id(kube: KubeTarget, api: Kube) -> None:
    machine = f"m-{uuid.uuid4().hex[:8]}"
    named, labelled = f"{machine}-a", f"{machine}-b"
    labels = {MACHINE_NAME_LABEL: machine}
    await kube.create(NODES, {"metadata": {"name": named}})
    try:
        found = await find_node(api, machine, named, VM)
        assert (found.node, (found.namesake or {})["metadata"]["name"]) == (None, named)
        await kube.create(NODES, {"metadata": {"name": labelled, "labels": labels}, "spec": {"providerID": VM}})
        found = await find_node(api, machine, named, VM)
        assert (found.node or {})["metadata"]["name"] == labelled
        assert (await find_node(api, machine, labelled, OTHER_VM)).node is None
        await kube.patch(f"{NODES}/{labelled}/status", {"status": {"conditions": [condition("Unknown")]}})
        found = await find_node(api, machine, labelled, VM)
        assert ready_status(found.node or {}) == "Unknown"
    finally:
        for name in (named, labelled):
            await kube.call("DELETE", f"{NODES}/{name}")


def condition(ready: str) -> dict[str, str]:
    return {"type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "message": ""}


async def test_the_lease_of_a_kubelet(kube: KubeTarget, api: Kube) -> None:
    name = f"n-{uuid.uuid4().hex[:8]}"
    assert await lease_renewed(api, name) is None
    body = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}
    await kube.create(LEASES, body)
    try:
        assert await lease_renewed(api, name) is None
        await kube.patch(f"{LEASES}/{name}", {"spec": {"renewTime": "2030-05-06T07:08:09.123456Z"}})
        assert await lease_renewed(api, name) == datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    finally:
        await kube.delete(f"{LEASES}/{name}")


async def test_a_token_is_kept(kube: KubeTarget, api: Kube) -> None:
    machine = MachineRef(cluster="demo", name="m-1", uid=str(uuid.uuid4()))
    assert not await keep_token(api, machine, 1, EXPIRES)
    token = await ensure_token(api, machine, 1, EXPIRES)
    assert await keep_token(api, machine, 1, EXPIRES + timedelta(hours=1))
    assert await ensure_token(api, machine, 1, EXPIRES) == token
    await revoke_tokens(api, machine, 1)
    assert not await keep_token(api, machine, 1, EXPIRES)
