"""A config pool's life and the stories of its rollouts, in a cluster in memory whose daemons do what they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from machine_configs.cases import config_node
from machine_configs.workflows import Configs, new_configs, old_nodes
from temporalio.testing import WorkflowEnvironment

from resources import attributes as at
from resources.cluster.news import ClusterNews
from resources.errors import API, ErrorClass
from resources.intents import Intent
from resources.machine_config.state import ConfigRolloutOutcome
from resources.maintenance import Freeze


@pytest_asyncio.fixture
async def configs(temporal: WorkflowEnvironment) -> AsyncIterator[Configs]:
    async with new_configs(temporal.client) as made, made.worker():
        yield made


async def phase(configs: Configs, wanted: str) -> None:
    async def look() -> str | None:
        return (await configs.handle.describe()).typed_search_attributes.get(at.PHASE)

    await eventually(look, lambda seen: seen == wanted, f"phase {wanted}")


def conditions(configs: Configs) -> dict[str, str]:
    return {c["type"]: c["status"] for c in configs.statuses[-1]["conditions"]}


async def test_every_node_gets_the_config(configs: Configs) -> None:
    """At most maxUnavailable at a time, drained when it asks for that, with its story told step by step."""
    configs.pool(maxUnavailable=2)
    configs.put(*old_nodes(5))
    await configs.start()
    await configs.updated()
    assert configs.worst == 2
    result = await configs.result()
    assert (result.outcome, result.message) == (ConfigRolloutOutcome.COMPLETE, "5 of 5 nodes have it")
    reasons = [h.reason for h in result.steps]
    assert reasons.count("ConfigNodeUpdated") == 5
    assert 3 <= reasons.count("ConfigNodesTargeted") <= 5
    first = next(h.message for h in result.steps if h.reason == "ConfigNodesTargeted")
    assert first == "2 nodes (n0, n1) of 5 begin with v1; 2 may be unavailable, 3 more to come"
    assert len({d.node.name for d in configs.of("drain_for_config")}) == 5
    assert not any(n.tainted for n in configs.nodes.values())
    assert {d.request for d in configs.of("uncordon_for_config")} == {"uncordon-v1"}
    await eventually(lambda: _later(configs), lambda found: found["Updated"] == "True", "the status")
    assert configs.statuses[-1]["configuration"]["name"] == "v1"
    await phase(configs, "Updated")


async def _later(configs: Configs) -> dict[str, str]:
    return conditions(configs)


async def test_rolled_back_past_a_node_that_fails(configs: Configs) -> None:
    """One node cannot apply it: it takes the only place, and the pool says so. Back at the former config, that node is
    the first; the others were never touched."""
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(3))
    configs.degrades = {"n0"}
    await configs.start()
    assert await configs.waits("ConfigNodesDegraded") == "1 node cannot apply the config: n0 (disk full)"
    await phase(configs, "Degraded")
    assert (await configs.state()).reservations["n0"].failed
    configs.pool("v0", maxUnavailable=1)
    await configs.nudge()
    await configs.updated("v0")
    assert configs.worst == 1
    assert [n.name for t in configs.of("target_config_nodes") for n in t.nodes] == ["n0", "n0"]
    result = await configs.result("v1")
    assert (result.outcome, result.message) == (ConfigRolloutOutcome.SUPERSEDED, "the pool is to have v0")
    assert "ConfigNodeDegraded" in [h.reason for h in result.steps]
    assert (await configs.result("v0")).outcome is ConfigRolloutOutcome.COMPLETE


async def test_paused_in_the_middle(configs: Configs) -> None:
    """A node under way finishes, with its drain and uncordon; no other one begins until it is resumed."""
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(3))
    configs.stands = True
    await configs.start()
    await configs.when(lambda s: len(s.reservations) == 1, "one begins")
    configs.pool(maxUnavailable=1, paused=True)
    configs.stands = False
    await configs.nudge()
    await configs.when(lambda s: not s.reservations and s.counts.done == 1, "it finishes")
    assert await configs.waits("ConfigPoolPaused") == "spec.paused is true. Otherwise: 2 nodes of 3 would get v1"
    await phase(configs, "Paused")
    assert len(configs.of("target_config_nodes")) == 1
    configs.pool(maxUnavailable=1)
    await configs.nudge()
    await configs.updated()
    assert configs.worst == 1


async def test_an_answer_that_is_lost(configs: Configs) -> None:
    """The write came through and nobody knows: the node is reserved before, and stays so over the failure."""
    configs.fails["target_config_nodes"] = [classified(ErrorClass.CONFLICT, "connection reset", last=True)]
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(3))
    await configs.start()
    assert await configs.noted("ConfigCallFailed") == "connection reset"
    await configs.updated()
    assert configs.worst == 1


async def test_nodes_come_and_go_and_more_may_begin(configs: Configs) -> None:
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(4))
    configs.stands = True
    await configs.start()
    await configs.when(lambda s: set(s.reservations) == {"n0"}, "one begins")
    del configs.nodes["n0"]
    await configs.nudge()
    assert (await configs.noted("ConfigNodeGone")).startswith("n0 is gone")
    await configs.when(lambda s: set(s.reservations) == {"n1"}, "its place is free")
    configs.pool(maxUnavailable=3)
    await configs.nudge()
    await configs.when(lambda s: set(s.reservations) == {"n1", "n2", "n3"}, "raised")
    configs.stands = False
    await configs.updated()
    configs.put(config_node("new", "v0=v0"))
    await configs.nudge()
    await configs.updated()
    assert configs.having("v1") == ["n1", "n2", "n3", "new"]


async def test_a_node_goes_while_it_is_given_its_config(configs: Configs) -> None:
    """The call finds it gone: its place is free, and the pool says so as if a look had shown it."""
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(2))
    configs.goes = {"n0"}
    await configs.start()
    assert (await configs.noted("ConfigNodeGone")).startswith("n0 is gone")
    await configs.updated()
    assert [n.name for t in configs.of("target_config_nodes") for n in t.nodes] == ["n0", "n1"]
    assert "ConfigNodeGone" in [h.reason for h in (await configs.result()).steps]


async def test_a_new_run_goes_on_where_the_former_was(configs: Configs) -> None:
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(2))
    configs.stands = True
    await configs.start()
    await configs.when(lambda s: "n0" in s.reservations, "one begins")
    run = (await configs.handle.describe()).run_id
    await configs.handle.signal("renew", Intent(id="r"))
    await eventually(configs.handle.describe, lambda d: d.run_id != run, "a new run")
    assert set((await configs.state()).reservations) == {"n0"}
    configs.stands = False
    await configs.updated()
    assert configs.worst == 1
    assert (await configs.result()).outcome is ConfigRolloutOutcome.COMPLETE


async def test_it_ends_with_its_object(configs: Configs) -> None:
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(2))
    configs.stands = True
    await configs.start()
    await configs.when(lambda s: s.story is not None and s.story.started, "its story")
    configs.pools.clear()
    await configs.nudge()
    await configs.handle.result()
    result = await configs.result()
    assert (result.outcome, result.message) == (ConfigRolloutOutcome.FAILED, "its pool is gone")
    assert [n.name for n in configs.nodes.values() if n.tainted] == []
    assert configs.of("set_update_taints")[0].on


async def test_a_run_that_never_saw_its_object_takes_the_taint_off_too(configs: Configs) -> None:
    """It went between two runs. A node that has come to another pool is that one's."""
    configs.pool(name="infra")
    theirs = config_node("theirs", "v0=v1 tainted", labels={"node-role.kubernetes.io/infra": ""})
    configs.put(*(n._replace(tainted=True) for n in old_nodes(2)), theirs)
    await configs.start()
    await configs.handle.result()
    assert [n.name for n in configs.nodes.values() if n.tainted] == ["theirs"]


async def test_a_frozen_cluster_begins_nothing(configs: Configs) -> None:
    """A node that is under way finishes; the clock of the rollout stands still."""
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(2))
    configs.stands = True
    await configs.start()
    await configs.when(lambda s: "n0" in s.reservations, "one begins")
    now = datetime.now(UTC)
    freeze = Freeze(time=now, until=now + timedelta(hours=1), requested_by="ada", reason="a holiday")
    await configs.handle.signal("cluster_news", ClusterNews(time=now, freeze=freeze))
    configs.stands = False
    await configs.when(lambda s: not s.reservations and s.counts.done == 1, "it finishes")
    assert "frozen" in await configs.waits("Frozen")
    held = await configs.state()
    assert held.story is not None
    assert held.story.held_since is not None
    assert len(configs.of("target_config_nodes")) == 1
    await configs.handle.signal("cluster_news", ClusterNews(time=now + timedelta(seconds=1)))
    await configs.updated()


async def test_an_older_look_decides_nothing(configs: Configs) -> None:
    """A cache answers with what was before: until it has caught up, nobody begins."""
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(2))
    configs.version = 1000
    configs.stands = True
    await configs.start()
    # A look has shown it: a write on its way would find no node any longer, and give its place back.
    await configs.when(lambda s: "n0" in s.reservations and s.reservations["n0"].seen, "one begins")
    looks = len(configs.of("read_config_pool"))
    configs.version = 10
    configs.nodes = {}
    await configs.nudge()
    await eventually(lambda: _looks(configs), lambda n: n > looks + 1, "it looks again")
    assert set((await configs.state()).reservations) == {"n0"}
    configs.stands, configs.version = False, 2000
    configs.put(*old_nodes(2))
    await configs.nudge()
    await configs.updated()


async def _looks(configs: Configs) -> int:
    return len(configs.of("read_config_pool"))


async def test_what_fails_is_said_and_tried_again(configs: Configs, temporal: WorkflowEnvironment) -> None:
    silent = classified(ErrorClass.TRANSIENT, "connection refused", last=True, silent=API)
    configs.fails["read_config_pool"] = [classified(ErrorClass.AUTH, "nodes is forbidden"), silent]
    configs.pool()
    configs.put(*old_nodes(1))
    await configs.start()
    # An API server that does not answer is no call of this pool's that somebody should correct.
    assert await configs.noted("APIUnreachable") == "connection refused"
    assert await configs.noted("ConfigCallFailed") == "nodes is forbidden"
    await configs.updated()
    assert not (await configs.state()).waits


async def test_one_life_in_the_strict_sandbox(temporal: WorkflowEnvironment) -> None:
    async with new_configs(temporal.client) as configs, configs.worker(strict=True):
        configs.pool()
        configs.put(*old_nodes(1))
        await configs.start()
        await configs.updated()
        assert (await configs.result()).counts.done == 1
