"""The identities that the simulated API server knows; what it has in common with a real one is in the contract
tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from apiserver.simulated import NODES, SECRETS, TOKEN, TOKEN_ID, KubeTarget, World, bootstrap_secret, new_world, node

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made


@pytest.fixture
def kube(world: World) -> KubeTarget:
    return world.kube


# -- who calls ---------------------------------------------------------------------------------------------------------


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


async def test_a_kubelets_identity_is_a_token_and_the_journal_names_it(world: World) -> None:
    token = await world.kubelet("n1")
    made = await world.kube.call("POST", NODES, node("n1"), token=token)
    assert made.status == 201
    assert world.last("create nodes").caller == "system:node:n1"
