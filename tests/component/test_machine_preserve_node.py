"""The Node of a preserved machine: it goes and comes back, and what is written on it crosses with what is read. Stubs;
time is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from preservation.machine import SOON, Kept, keeping, noted, when
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.machine.intents import DeleteIntent
from resources.machine.preservation import PreserveIntent, PreserveValue, ReleaseIntent
from resources.names import CORDON_ANNOTATION, PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED
from resources.timings import Timings

ON = ("true", True)


@pytest_asyncio.fixture
async def kept(temporal: WorkflowEnvironment) -> AsyncIterator[Kept]:
    async with keeping(temporal.client) as machines:
        yield Kept(temporal, machines)


async def preserved(kept: Kept, value: str = "now") -> None:
    await kept.run()
    await kept.annotate(value)
    if value == "when-failed":
        await kept.fail()
        await kept.noted("Drained")
    await kept.node.becomes(lambda n: n.protection == ON, "protected")
    await kept.news()


async def node_goes(kept: Kept) -> None:
    kept.node.there = False
    await kept.news()
    await kept.until(lambda s: not s.node.exists, "no Node")


# -- it goes and comes again ------------------------------------------------------------------------------------------


async def test_while_it_is_missing_the_last_value_counts(kept: Kept) -> None:
    """MCM P9, P10."""
    await preserved(kept, "when-failed")
    await node_goes(kept)
    seen = await kept.shows("Failed:Preserved")
    calls = len(kept.stubs.called("preserve_node"))
    await kept.skip_to()
    gone = await kept.ended()
    assert timedelta(0) <= gone["PreserveExpired"] - seen.status.preserve.expiry_time < SOON
    assert len(kept.stubs.called("preserve_node")) == calls


async def test_a_new_object_is_protected_again_and_nothing_is_released(kept: Kept) -> None:
    """Somebody stops the VM to look at it: cloud-controller-manager deletes the Node, and the kubelet registers again
    (field case P07), without the annotation. Nobody has removed it (I9)."""
    await preserved(kept, "when-failed")
    until = (await kept.state()).status.preserve.expiry_time
    await node_goes(kept)
    kept.node.registers_anew()
    kept.node.ready(False)
    await kept.news()
    await kept.node.becomes(lambda n: n.protection == ON, "the new one is protected")
    seen = await kept.shows("Failed:Preserved")
    assert (seen.status.preserve.expiry_time, seen.deletion) == (until, None)
    await kept.news()
    await kept.annotate("false")  # a word on the new one counts
    gone = await kept.ended()
    assert "Released" in gone


async def test_of_a_running_one_too(kept: Kept) -> None:
    """This holds even where the watch has seen them only one after the other."""
    await preserved(kept)
    until = (await kept.state()).status.preserve.expiry_time
    kept.node.registers_anew()
    await kept.news()
    await kept.node.becomes(lambda n: n.protection == ON, "the new one is protected")
    assert (await kept.shows("Running:Preserved")).status.preserve.expiry_time == until
    await kept.says("release", ReleaseIntent())
    await kept.shows("Running")
    await kept.node.becomes(lambda n: n.annotations == {})


async def test_a_request_for_the_day_it_fails_is_not_lost(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("when-failed")
    await kept.until(lambda s: s.status.preserve.node_value, "the request")
    await node_goes(kept)
    kept.node.registers_anew()
    await kept.news()
    await kept.well()
    await kept.fail()
    await kept.shows("Failed:Preserved")


async def test_what_a_lost_node_said_is_as_strong_as_it_was(kept: Kept) -> None:
    """Its annotation was stronger than the machine's own `false`, and still is."""
    await kept.run()
    await kept.says("preserve", PreserveIntent(value=PreserveValue.FALSE))
    await kept.annotate("now")
    until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
    kept.node.registers_anew()
    await kept.news()
    seen = await kept.noted("PreserveCarried")
    assert noted(seen, "PreserveCarried") == [
        "node node-1 is a new object without the annotation preserve=now; the annotation still counts"
    ]
    assert (seen.status.shown_phase, seen.status.preserve.expiry_time) == ("Running:Preserved", until)


# -- calls and news that cross ----------------------------------------------------------------------------------------


async def test_a_false_that_comes_during_the_call_is_set_back(kept: Kept) -> None:
    await kept.run()
    answer = kept.stubs.holds["preserve_node"] = asyncio.Event()
    await kept.annotate("now")
    await kept.asks("preserve_node")
    done = kept.stubs.always["preserve_node"](kept.stubs.called("preserve_node")[0])
    kept.stubs.then("preserve_node", done)  # it has been done, and its answer is on its way
    kept.node.write({SCALE_DOWN_DISABLED: "false"})
    await kept.news()
    await kept.until(lambda s: s.node.annotations.get(SCALE_DOWN_DISABLED) == "false", "the news")
    answer.set()
    await kept.node.becomes(lambda n: n.protection == ON, "set back")


async def test_the_end_comes_during_the_call(kept: Kept) -> None:
    await kept.run()
    answer = kept.stubs.holds["preserve_node"] = asyncio.Event()
    await kept.annotate("now")
    await kept.asks("preserve_node")
    await kept.says("release", ReleaseIntent())
    await kept.shows("Running")
    answer.set()
    await kept.node.becomes(lambda n: n.annotations == {}, "free of it")
    await kept.until(lambda s: not s.status.preserve.node_due and not s.status.preserve.protected, "the end")
    assert kept.did("preserve_node") == ["preserve_node"] * 2


async def test_a_deletion_during_the_call_can_still_begin_anew(kept: Kept) -> None:
    await kept.run()
    answer = kept.stubs.holds["preserve_node"] = asyncio.Event()
    await kept.annotate("now")
    await kept.asks("preserve_node")
    kept.stubs.always["delete_machine"] = classified(ErrorClass.CONFLICT, "in the way")
    await kept.says("delete", DeleteIntent(id="d"))
    await kept.until(lambda s: s.status.waiting_for and s.status.waiting_for.reason == "Conflict", "the refusal")
    answer.set()
    await kept.under_way("preserve_node", so=False)
    run = (await kept.handle.describe()).run_id
    await kept.handle.signal("renew", {})
    await kept.skip(timedelta(seconds=10))
    await eventually(kept.handle.describe, lambda d: d.run_id != run, "a new run")
    del kept.stubs.always["delete_machine"]
    await kept.skip(timedelta(seconds=10))
    await kept.ended()
    assert kept.did("preserve_node") == ["preserve_node"]


async def test_an_end_of_nothing_does_not_forget_that_the_node_is_due(kept: Kept) -> None:
    await preserved(kept)
    kept.stubs.then("preserve_node", *[classified(ErrorClass.AUTH, "no route")] * 1)
    await kept.says("release", ReleaseIntent())
    await kept.noted("PreserveNode")
    await kept.says("preserve", PreserveIntent(value=PreserveValue.WHEN_FAILED))
    await kept.annotate("when-failed")
    await kept.until(lambda s: s.status.preserve.node_value, "another request")
    await kept.says("release", ReleaseIntent())
    await kept.noted("Released", 2)
    await kept.skip(timedelta(minutes=4))
    await kept.node.becomes(lambda n: n.annotations == {}, "free of it")


# -- the cordon of our drain ------------------------------------------------------------------------------------------


async def test_a_cordon_that_could_not_be_lifted_yet_is_lifted_after_the_end(kept: Kept) -> None:
    await preserved(kept, "when-failed")
    assert kept.node.annotations[CORDON_ANNOTATION] == "m-1"
    kept.stubs.then("preserve_node", *[classified(ErrorClass.AUTH, "no route")] * 2)
    await kept.well()
    await kept.noted("PreserveNode")
    await kept.says("release", ReleaseIntent())
    over = await kept.shows("Running")
    assert over.deletion is None
    assert kept.node.cordoned
    for _ in range(2):
        await kept.skip(timedelta(minutes=4))
    await kept.node.becomes(lambda n: not n.cordoned and not n.annotations, "takes work again")


async def test_the_cordon_of_a_later_drain_stays(kept: Kept) -> None:
    """Our former cordon was being lifted as the machine failed again: the drain comes after that."""
    brief = timedelta(milliseconds=300)
    await kept.run(health_timeout=timedelta(seconds=2), timings=Timings(settle=brief, confirm=brief))
    await kept.annotate("when-failed")
    await kept.ill()
    await kept.shows("Failed:Preserved")
    await kept.node.becomes(lambda n: n.protection == ON, "protected")
    await kept.until(lambda s: s.status.preserve.protected, "the call is over")
    answer = kept.stubs.holds["preserve_node"] = asyncio.Event()
    kept.node.ready(True)
    await kept.news()
    await kept.shows("Running:Preserved")
    await kept.ill()
    await kept.until(lambda s: "uncordons node" in (s.status.waiting_for or s).message, "the drain waits")
    assert kept.did("drain_node") == ["drain_node"]
    answer.set()
    await kept.noted("Drained", 2)
    await kept.until(lambda s: not s.status.preserve.node_due, "the calls are over")
    await kept.under_way("preserve_node", so=False)
    assert kept.node.cordoned
    assert (await kept.state()).status.shown_phase == "Failed:Preserved"


@pytest.mark.parametrize("value", ["now", "when-failed"])
async def test_one_call_for_each_end(kept: Kept, value: str) -> None:
    await preserved(kept, value)
    await kept.until(lambda s: s.status.preserve.protected, "the answer")
    assert kept.did("preserve_node") == ["preserve_node"]
    if value == "now":
        await kept.says("release", ReleaseIntent())
        seen = await kept.until(lambda s: not s.status.preserve.protected, "the end")
        await kept.node.becomes(lambda n: n.annotations == {})
        assert when(seen, "Released") >= when(seen, "Preserved")
        assert kept.did("preserve_node") == ["preserve_node"] * 2
        assert PRESERVE_ANNOTATION not in kept.node.annotations
        assert len(noted(seen, "Preserved")) == 1


# -- one more look before the VM goes ---------------------------------------------------------------------------------


async def test_one_that_was_given_work_again_is_drained_again(kept: Kept) -> None:
    """A person has uncordoned it to see the fault: its pods are evicted like any others, with the whole drainTimeout
    (I12)."""
    await preserved(kept, "when-failed")
    kept.node.write(cordon=False)
    await kept.news()
    await kept.says("release", ReleaseIntent())
    await kept.ended()
    first, look, second = kept.stubs.called("drain_node")
    assert [drain.again for drain in (first, look, second)] == [False, True, False]
    assert second.since > first.since
    assert second.deadline - second.since == first.deadline - first.since
    assert kept.did("drain_node", "delete_machine")[-1] == "delete_machine"


async def test_one_that_cannot_be_looked_at_was_drained(kept: Kept) -> None:
    await preserved(kept, "when-failed")
    kept.stubs.then("drain_node", classified(ErrorClass.AUTH, "no route"))
    await kept.says("release", ReleaseIntent())
    assert "DrainFailed" in await kept.ended()
    assert kept.did("drain_node", "delete_machine") == ["drain_node", "drain_node", "delete_machine"]
