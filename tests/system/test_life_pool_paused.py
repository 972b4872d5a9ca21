"""`hostler pause cluster` with a real pool: nothing voluntary begins, and everything goes on afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from lifekit import Stack, end_running, eventually
from pools.lives import Pool, pool_spec

from resources.journal import Happening
from resources.names import cluster_id
from starter.sdk.client import HostlerClient
from workflows.cluster import ClusterWorkflow


@pytest_asyncio.fixture
async def pool(stack: Stack) -> AsyncIterator[Pool]:
    yield Pool(stack)
    await end_running(stack)


async def test_a_paused_cluster_makes_and_deletes_nothing(pool: Pool) -> None:
    stack = pool.stack
    hostler = HostlerClient(stack.client, stack.settings, cluster=stack.cluster, requested_by="alice")
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    made = sorted((await pool.state()).members)
    assert (await hostler.clusters.describe(stack.cluster)).summary.machines == 2

    sent = await hostler.clusters.pause(stack.cluster, reason="the network is being mended")
    assert "its pool does nothing" in sent.message
    paused = "the cluster is paused: `hostler resume cluster demo`"
    assert await pool.scale(3) == f"scaled; replicas 2 → 3; {paused}"
    (wait,) = (await pool.waits("ClusterPaused")).waits
    assert wait.message.startswith("The cluster is paused. Otherwise: ")
    assert await pool.scale(1) == f"scaled; replicas 3 → 1; {paused}"
    await pool.when(lambda s: s.replicas == 1 and s.waits and s.waits != [wait], "it would do something else now")
    assert sorted((await pool.state()).members) == made

    # A pool that is created meanwhile does nothing either.
    other = Pool(stack, "p2")
    await other.start(pool_spec(1))
    await other.waits("ClusterPaused")
    assert pool.vms() == {"running": 2}
    assert len(stack.launched()) == 2

    await hostler.clusters.resume(stack.cluster)
    await pool.rolled_out(1)
    await other.rolled_out(1)
    assert len(stack.launched()) == 3
    cluster = stack.client.get_workflow_handle_for(ClusterWorkflow.run, cluster_id(stack.cluster))

    async def journal() -> list[Happening]:
        return [h for h in (await cluster.query(ClusterWorkflow.describe)).journal if h.reason in ("Paused", "Resumed")]

    told, _ = await eventually(journal, lambda found: len(found) == 2, "both in the journal")
    assert told.message.endswith(" by alice: the network is being mended")
    for p in (pool, other):
        await p.delete()
    await eventually(lambda: known(cluster), lambda pools: pools == {}, "a cluster without pools")


async def known(cluster: object) -> dict[str, object]:
    state = await cluster.query(ClusterWorkflow.describe)  # type: ignore[attr-defined]
    return dict(state.pools)
