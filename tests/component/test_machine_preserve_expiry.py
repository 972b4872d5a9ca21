"""The expiry is exact, whatever is under way at that moment. Stubs; time is skipped, but not while a call is under way:
then the end is moved to a moment that is near."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from machine.stubbed import tagged, tell
from machine.stubs import classified
from preservation.machine import SOON, Kept, keeping, noted, when
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.machine.preservation import ExtendIntent, PreserveIntent
from resources.names import PRESERVE_ANNOTATION


@pytest_asyncio.fixture
async def kept(temporal: WorkflowEnvironment) -> AsyncIterator[Kept]:
    async with keeping(temporal.client) as machines:
        yield Kept(temporal, machines)


async def preserved(kept: Kept) -> datetime:
    """Preserves a machine; returns when that ends."""
    await kept.run()
    await kept.annotate("now")
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    return (await kept.shows("Running:Preserved")).status.preserve.expiry_time


async def ends_soon(kept: Kept) -> datetime:
    """Moves the end near; returns when it is."""
    lasts = timedelta(seconds=1)
    await kept.says("extend", ExtendIntent(lasts=lasts))
    return when(await kept.state(), "PreservationMoved") + lasts


async def test_in_the_middle_of_a_drain(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    await kept.shows("Running:Preserved")
    _, _, queue = kept.queues
    await kept.away(queue)
    await kept.fail()
    await kept.until(lambda s: s.status.waiting_for and s.status.waiting_for.reason == "Draining", "the drain")
    until = await ends_soon(kept)
    seen = await kept.shows("Terminating")
    assert timedelta(0) <= when(seen, "PreserveExpired") - until < SOON
    assert kept.did("drain_node", "delete_machine") == []
    async with kept.machines.activity_worker(queue):
        await kept.ended()
    assert kept.did("drain_node", "delete_machine") == ["drain_node", "delete_machine"]


async def test_while_no_worker_of_the_cluster_polls(kept: Kept) -> None:
    """For a Running machine all is over except the marks on its Node."""
    await preserved(kept)
    _, queue, _ = kept.queues
    await kept.away(queue)
    until = await ends_soon(kept)
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
    assert kept.node.annotations[PRESERVE_ANNOTATION] == "now"
    async with kept.machines.activity_worker(queue):
        await kept.node.becomes(lambda n: n.annotations == {})


async def test_while_the_api_server_refuses(kept: Kept) -> None:
    until = await preserved(kept)
    kept.stubs.then("preserve_node", *[classified(ErrorClass.AUTH, "no route")] * 2)
    await kept.skip_to()
    over = await kept.noted("PreserveNode")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
    assert noted(over, "PreserveNode") == ["node node-1 is not released yet: NotAuthorized: no route"]
    assert over.status.shown_phase == "Running"
    await kept.news()  # old news of the annotation is no new request
    for _ in range(2):
        await kept.skip(timedelta(minutes=4))
    await kept.node.becomes(lambda n: n.annotations == {})
    assert len(noted(await kept.state(), "Preserved")) == 1


async def test_while_a_fresh_look_waits_for_a_worker(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    await kept.shows("Running:Preserved")
    await kept.ill()
    await kept.skip(timedelta(minutes=8, seconds=56))
    await kept.away(kept.queues[1])
    await kept.under_way("look_at_node")
    until = await ends_soon(kept)
    over = await kept.shows("Unknown")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
    assert over.deletion is None


async def test_while_the_nodes_template_waits_for_a_worker(kept: Kept) -> None:
    """What is asked for meanwhile is done as well."""
    await preserved(kept)
    _, queue, _ = kept.queues
    await kept.away(queue)
    kept.node.registers_anew()
    await kept.news()
    await kept.under_way("join_node")
    until = await ends_soon(kept)
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
    assert (await kept.says("preserve", PreserveIntent())).startswith("machine m-1 is preserved until ")
    await kept.shows("Running:Preserved")
    assert kept.did("join_node") == ["join_node"]
    async with kept.machines.activity_worker(queue):
        await kept.node.becomes(lambda n: n.protection == ("true", True))
        await kept.under_way("join_node", so=False)
    assert kept.did("join_node") == ["join_node"] * 2


async def test_while_the_update_of_its_vm_waits_for_a_worker(kept: Kept) -> None:
    await preserved(kept)
    await kept.away(kept.queues[0])
    await tell(kept.handle, tagged((await kept.state()).machine_class, 2, "blue"))
    await kept.until(lambda s: s.status.waiting_for and s.status.waiting_for.reason == "HotUpdate", "the update")
    until = await ends_soon(kept)
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON


@pytest.mark.parametrize("down", [False, True], ids=["before", "at"])
async def test_workers_of_workflows_come_back(temporal: WorkflowEnvironment, down: bool) -> None:
    """They come before the expiry, or after it: then it ends at once."""
    async with keeping(temporal.client, workflows=False) as machines:
        kept = Kept(temporal, machines)
        async with machines.workflow_worker():
            await kept.run()
            await kept.annotate("now")
            await kept.node.becomes(lambda n: n.protection == ("true", True))
            until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
            if down:
                until = await ends_soon(kept)
        if down:
            await asyncio.sleep(1)
        async with machines.workflow_worker():
            if not down:
                await kept.skip_to()
            over = await kept.shows("Running")
            assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
            await kept.node.becomes(lambda n: n.annotations == {})
