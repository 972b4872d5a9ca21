"""The life of a cluster's machine configs: changes are rendered together, pools are started and told, and it ends with
them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from machine_configs.cases import config_node, config_pool
from machine_configs.workflows import Configs, new_configs, old_nodes
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from resources import attributes as at
from resources.calls.machine_config import ConfigNews, ConfigTrouble, NodesNews, SyncOutput
from resources.cluster.news import Reachability
from resources.errors import ErrorClass
from resources.intents import Answer, Intent
from resources.machine_config.state import MachineConfigsState


@pytest_asyncio.fixture
async def configs(temporal: WorkflowEnvironment) -> AsyncIterator[Configs]:
    async with new_configs(temporal.client) as made, made.worker():
        yield made


async def changed(configs: Configs) -> None:
    news = ConfigNews(epoch=int(datetime.now(UTC).timestamp() * 1000), seq=next(configs.seq), kinds=["MachineConfig"])
    await configs.configs.signal("configs_changed", news)


async def when(configs: Configs, until: object, what: str) -> MachineConfigsState:
    return await eventually(configs.configs_state, until, what)  # type: ignore[arg-type]


async def synced(configs: Configs) -> int:
    return len(configs.of("sync_configs"))


async def test_a_burst_of_changes_is_one_pass(configs: Configs) -> None:
    """OpenShift's renderDelay (issue 301): what comes within it is rendered together."""
    await configs.start_configs(render_delay=timedelta(seconds=1))
    await eventually(lambda: synced(configs), lambda n: n == 1, "the first pass")
    for _ in range(10):
        await changed(configs)
    await eventually(lambda: synced(configs), lambda n: n == 2, "one pass for all")
    await changed(configs)
    await eventually(lambda: synced(configs), lambda n: n == 3, "and one for the next")
    assert len(configs.of("watch_configs")) == 1


async def test_pools_are_started_and_hear_of_their_object(configs: Configs) -> None:
    configs.pool(maxUnavailable=1)
    configs.put(*old_nodes(2, "v1=v1"))
    configs.synced = SyncOutput(pools=[configs.brief(target="v1")], written=["rendered v1 for pool worker"])
    await configs.start_configs()
    found = await when(configs, lambda s: s.living == ["worker"], "a pool")
    await configs.when(lambda s: s.counts.done == 2, "its nodes are known")
    assert [h.message for h in found.journal if h.reason == "ConfigWritten"][:1] == ["rendered v1 for pool worker"]
    configs.pool("v2", maxUnavailable=1)
    configs.synced = SyncOutput(pools=[configs.brief(target="v2")])
    await changed(configs)
    await configs.updated("v2")
    await configs.handle.terminate()
    configs.synced = SyncOutput(pools=[configs.brief(target="v2", paused=True)])
    await changed(configs)

    async def status() -> WorkflowExecutionStatus | None:
        return (await configs.handle.describe()).status

    await eventually(status, lambda s: s is WorkflowExecutionStatus.RUNNING, "it is started again")


async def test_what_cannot_be_rendered_is_said(configs: Configs) -> None:
    trouble = ConfigTrouble(about="MachineConfigPool/infra", reason="RenderDegraded", message="no MachineConfigs found")
    configs.synced = SyncOutput(troubles=[trouble])
    await configs.start_configs()
    found = await when(configs, lambda s: s.waits, "a wait")
    assert [(w.reason, w.message) for w in found.waits] == [
        ("RenderDegraded", "MachineConfigPool/infra: no MachineConfigs found")
    ]
    listed = (await configs.configs.describe()).typed_search_attributes
    assert (listed.get(at.PHASE), listed.get(at.REASON)) == ("Degraded", "RenderDegraded")
    configs.synced = SyncOutput()
    await changed(configs)
    await when(configs, lambda s: not s.waits and not s.troubles, "mended")


async def test_a_pass_that_fails_is_tried_again(configs: Configs) -> None:
    configs.fails["sync_configs"] = [classified(ErrorClass.AUTH, "machineconfigs is forbidden")]
    await configs.start_configs()
    found = await when(configs, lambda s: any(h.reason == "ConfigCallFailed" for h in s.journal), "the failure")
    assert "machineconfigs is forbidden" in [h.message for h in found.journal]
    await when(configs, lambda s: s.synced is not None and not s.waits, "tried again")


async def test_an_api_server_that_does_not_answer(configs: Configs) -> None:
    await configs.start_configs()
    now = datetime.now(UTC)
    await configs.configs.signal("reachability", Reachability(reachable=False, message="refused", time=now))
    found = await when(configs, lambda s: s.waits, "a wait")
    assert found.waits[0].reason == "APIUnreachable"
    await configs.configs.signal("reachability", Reachability(reachable=True, time=now))
    await when(configs, lambda s: not s.waits, "it answers")


async def test_a_new_run_continues_the_watch_and_removal_ends_all(configs: Configs) -> None:
    configs.pool()
    configs.put(*old_nodes(1, "v1=v1"))
    configs.synced = SyncOutput(pools=[configs.brief(target="v1")])
    await configs.start_configs()
    await when(configs, lambda s: s.living == ["worker"], "a pool")
    run = (await configs.configs.describe()).run_id
    await configs.configs.signal("renew", Intent(id="r"))
    await eventually(configs.configs.describe, lambda d: d.run_id != run, "a new run")

    async def watches() -> int:
        return len(configs.of("watch_configs"))

    await eventually(watches, lambda n: n == 2, "a watch")
    await when(configs, lambda s: s.living == ["worker"], "its pool")
    intent = Intent(id="x", requested_by="ada")
    answer = await configs.configs.execute_update("remove", intent, result_type=Answer)
    assert (
        answer.message
        == f"the machine configs of cluster {configs.cluster} are no longer looked after; all stays as it is"
    )
    await configs.configs.result()
    await configs.handle.result()


async def test_a_node_of_no_pool_is_drained_where_its_daemon_asks_for_it(configs: Configs) -> None:
    """OpenShift's drain controller serves every node; its config is nobody's business."""
    configs.stands = True
    configs.pool()
    apart = {"labels": {}, "desired_drain": "drain-v9"}
    configs.put(
        *old_nodes(1), config_node("alone", "v0=v0", **apart), config_node("theirs", "v0=v0", machine="m1", **apart)
    )
    # Some machines are a pool's: whether one is, is asked.
    configs.pools["infra"] = config_pool("infra", nodeSelector=None, machineSetRef={"name": "m"})
    configs.synced = SyncOutput(pools=[configs.brief(target="v1")])
    await configs.start_configs()
    await configs.configs.signal("drains_asked", NodesNews(epoch=1, seq=1, nodes=["alone"]))
    await when(configs, lambda s: "alone has got drain-v9" in [h.message for h in s.journal], "its drain")
    assert [(d.node.name, d.pool, d.request) for d in configs.of("drain_for_config")] == [("alone", "", "drain-v9")]
    # Afterwards the end of its cordon; a new run goes on with what was asked.
    configs.change("alone", desired_drain="uncordon-v9")
    configs.fails["uncordon_for_config"] = [classified(ErrorClass.INVALID, "a webhook refuses it")]
    await configs.configs.signal("drains_asked", NodesNews(epoch=1, seq=2, nodes=["alone"]))
    await when(configs, lambda s: any(h.reason == "ConfigDrainFailed" for h in s.journal), "the refusal")
    await configs.configs.signal("renew", Intent(id="again"))
    found = await when(configs, lambda s: not s.drains and len(configs.of("uncordon_for_config")) > 1, "its end")
    assert [h.message for h in found.journal if h.reason == "ConfigDrainDone"][-1] == "alone has got uncordon-v9"
    assert {n.name for n in configs.nodes.values() if n.last_drain} == {"alone"}
