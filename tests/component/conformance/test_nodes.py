"""A machine and its Nodes: several of one VM, a stale one at its address, and one in a cluster that is gone."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest
from lifekit import eventually
from machine.stubbed import called, delete, ended, running
from machine.stubs import NODE, VM, Handle, Machines, classified, phase, reason, state
from temporalio import workflow
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import Worker

from resources.calls.cloud import CreateOutput, VmLook
from resources.calls.cluster import ForgetOutput, StaleNodeOutput
from resources.calls.drain import DrainOutput
from resources.calls.machine import StaleNode
from resources.errors import ErrorClass
from resources.machine.facts import NodeFacts
from resources.machine.state import MachineResult, MachineState, Phase
from resources.names import class_id, cluster_queue
from resources.timings import Timings
from workflows.machine import MachineWorkflow

OLD_VM = "aws:///eu-west-1/i-0"
BRIEF = Timings(call_timeout=timedelta(seconds=1), poll=timedelta(seconds=0.2))


async def observe(handle: Handle, facts: NodeFacts) -> None:
    await handle.signal(MachineWorkflow.observe, facts)


def doubled(s: MachineState) -> str:
    return next((c.message for c in s.status.conditions if c.type == "DuplicateNode"), "")


def journal(s: MachineState | MachineResult, reason: str) -> list[str]:
    return [h.message for h in s.journal if h.reason == reason]


# -- several Nodes of one VM -------------------------------------------------------------------------------------------


async def test_p72_both_are_named_at_the_machine_until_one_is_gone(machines: Machines) -> None:
    handle = await running(machines)
    words = f"nodes {NODE} and twin have the providerID of this machine's VM; {NODE} counts"
    for _ in range(2):  # said once, whatever else changes
        await observe(handle, machines.facts(twins=["twin"]))
    seen = await eventually(lambda: state(handle), doubled, "the condition")
    assert (doubled(seen), journal(seen, "DuplicateNode")) == (words, [words])
    assert (seen.status.phase, seen.status.node_name) == (Phase.RUNNING, NODE)
    await called(machines, "tell_node")
    (told,) = machines.stubs.called("tell_node")
    assert [h.reason for h in told.story] == ["DuplicateNode"]
    await observe(handle, machines.facts())
    await eventually(lambda: state(handle), lambda s: not doubled(s), "no condition")


async def test_p72_a_twin_that_comes_while_it_is_drained_is_drained_too(machines: Machines) -> None:
    """What is to be drained is looked up at the beginning of a drain, so the drain begins again."""
    machines.stubs.holds["drain_node"] = asyncio.Event()
    handle = await running(machines)
    await delete(handle)
    await called(machines, "drain_node")
    await observe(handle, machines.facts(twins=["twin"]))
    await called(machines, "drain_node", 2)
    machines.stubs.holds["drain_node"].set()
    await ended(handle)


async def test_what_is_done_at_a_node_is_done_at_this_one(machines: Machines) -> None:
    """Its name alone may be another VM's by then: the providerID and the object's uid go along."""
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await observe(handle, machines.facts(uid="u-1"))
    await phase(handle, Phase.RUNNING)
    await observe(handle, machines.facts(uid="u-1", ready=False))
    await called(machines, "tell_node")
    await delete(handle)
    await ended(handle)
    for name in ("join_node", "remove_ready_taint", "tell_node", "drain_node", "forget_machine"):
        for input in machines.stubs.called(name):
            assert (input.node_name, input.provider_id, input.node_uid) == (NODE, VM, "u-1"), name


# -- what cannot be said to be its own ---------------------------------------------------------------------------------


async def test_p73_a_node_of_which_nobody_knows_whose_it_is_is_named_in_the_result(machines: Machines) -> None:
    machines.stubs.always["forget_machine"] = ForgetOutput(left=["node x: nobody knows"])
    handle = await running(machines)
    await delete(handle)
    result = await ended(handle)
    assert (result.left, journal(result, "NodeLeft")) == (["node x: nobody knows"], ["it stays: node x: nobody knows"])
    assert journal(result, "Gone") == ["nothing is left but what is named: node x: nobody knows"]


# -- a Node that stands in the way -------------------------------------------------------------------------------------


def refers_to(provider_id: str = OLD_VM) -> CreateOutput:
    stale = StaleNode(name=NODE, uid="u-0", provider_id=provider_id)
    return CreateOutput(provider_id=VM, node_name=NODE, stale_node=NODE, stale=stale)


async def failed_for_it(machines: Machines, output: CreateOutput, *, timings: Timings = BRIEF) -> MachineState:
    machines.stubs.then("create_machine", output)
    handle = await machines.start(machines.new_state("m-1", timings, health_timeout=timedelta(minutes=7)))
    failed = await eventually(
        lambda: state(handle), lambda s: s.status.phase == Phase.FAILED and s.stale is None, "an answer"
    )
    (condition,) = (c for c in failed.status.conditions if c.type == "Failed")
    assert condition.reason == "StaleNode"  # this machine's end stays what it is (seed 000)
    await delete(handle)
    await ended(handle)
    return failed


async def test_p74_one_that_is_nobodys_is_removed(machines: Machines) -> None:
    machines.stubs.then("look_at_vm", VmLook(state="gone"))
    failed = await failed_for_it(machines, refers_to())
    (look,), (input,) = machines.stubs.called("look_at_vm"), machines.stubs.called("remove_stale_node")
    assert look.target.provider_id == OLD_VM
    assert (input.node, input.silent_for) == (refers_to().stale, timedelta(minutes=7))
    words = f"node {NODE} had no VM and was removed: {OLD_VM} does not exist, and its kubelet was silent"
    assert (journal(failed, "StaleNodeRemoved"), journal(failed, "StaleNodeStays")) == ([words], [])


@pytest.mark.parametrize(
    ("provider_id", "vm", "node", "why"),
    [
        pytest.param("", None, None, "it has no providerID, so it is not known which VM it belongs to", id="nameless"),
        pytest.param(OLD_VM, VmLook(state="stopped"), None, f"{OLD_VM} is stopped", id="its VM exists"),
        pytest.param(
            OLD_VM, classified(ErrorClass.AUTH, "not allowed"), None, "not allowed", id="the cloud cannot be read"
        ),
        pytest.param(OLD_VM, VmLook(state="gone"), StaleNodeOutput(message="it lives"), "it lives", id="its kubelet"),
        pytest.param(
            OLD_VM, VmLook(state="gone"), classified(ErrorClass.AUTH, "forbidden"), "forbidden", id="the API refuses"
        ),
    ],
)
async def test_p74_what_cannot_be_proven_stays_and_is_said(
    machines: Machines, provider_id: str, vm: Any, node: Any, why: str
) -> None:
    machines.stubs.then("look_at_vm", vm)
    machines.stubs.then("remove_stale_node", node)
    failed = await failed_for_it(machines, refers_to(provider_id))
    (words,) = journal(failed, "StaleNodeStays")
    assert words == (
        f"node {NODE} stays, and each new VM that gets its name is deleted: {why}; `kubectl delete node {NODE}` if it "
        "has no VM"
    )
    assert len(machines.stubs.called("remove_stale_node")) == (node is not None)


async def test_nobody_is_waited_for_long(machines: Machines) -> None:
    """The cluster's worker is away. The VM, which costs money, is not kept for that."""
    await machines.workers[cluster_queue(machines.prefix, machines.prefix)].shutdown()
    machines.stubs.then("look_at_vm", VmLook(state="gone"))
    machines.stubs.then("create_machine", refers_to())
    handle = await machines.start(machines.new_state("m-1", BRIEF))
    await called(machines, "look_at_vm")
    await delete(handle)
    seen = await reason(handle, "Forgetting")
    assert "there was no answer in time" in journal(seen, "StaleNodeStays")[0]
    assert seen.vm_gone


# -- a cluster that never answers again --------------------------------------------------------------------------------


@workflow.defn(name="MachineClassWorkflow", sandboxed=False)
class Farewell:
    """Takes the place of a class."""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: hasattr(self, "who"))
        return self.who

    @workflow.signal
    def forget_user(self, who: str) -> None:
        self.who = who


async def test_p76_the_vm_is_gone_and_the_cluster_too(machines: Machines) -> None:
    """Its machine waits, and says how to end it; then it ends, what is left is named, and its class hears of it."""
    client = machines.client
    machines.stubs.always["forget_machine"] = classified(ErrorClass.TRANSIENT, "no route to host", last=True)
    queue = f"{machines.prefix}-classes"
    async with Worker(client, task_queue=queue, workflows=[Farewell]):
        s = machines.new_state("m-1")
        the_class = await client.start_workflow(
            Farewell.run,
            id=class_id(s.cluster, s.spec.class_.name),
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
        )
        try:
            handle = await running(machines)
            await delete(handle, force=True)
            waits = (await reason(handle, "ProviderUnavailable")).status.waiting_for
            assert waits is not None
            assert f"`hostler delete machine m-1 --cluster {machines.prefix} --force --abandon-node`" in waits.message
            await delete(handle, force=True, abandon_node=True)
            result = await ended(handle)
            assert await the_class.result() == "m-1"
        finally:
            with contextlib.suppress(RPCError):
                await the_class.terminate("the test is over")
    assert (result.left, result.provider_id) == ([f"node {NODE}"], VM)
    assert journal(result, "NodeAbandoned") == [f"no route to host; left in the cluster: node {NODE}"]
    assert machines.stubs.called("delete_machine")


async def test_p76_nobody_polls_the_cluster_any_more(machines: Machines) -> None:
    """A last Event that nobody will write is not waited for either."""
    handle = await running(machines, timings=BRIEF)
    await machines.workers[cluster_queue(machines.prefix, machines.prefix)].shutdown()
    await observe(handle, machines.facts(ready=False, twins=["twin"]))
    await phase(handle, Phase.UNKNOWN)
    await delete(handle, force=True, abandon_node=True)
    result = await ended(handle)
    assert result.left == [f"node {NODE}", "node twin"]
    assert journal(result, "NodeAbandoned")[0].startswith("the cluster did not answer")


async def test_a_cluster_that_answers_is_not_abandoned(machines: Machines) -> None:
    machines.stubs.always["drain_node"] = DrainOutput()
    handle = await running(machines)
    await delete(handle, force=True, abandon_node=True)
    result = await ended(handle)
    assert (result.left, journal(result, "Gone")) == ([], ["nothing is left"])
    assert len(machines.stubs.called("forget_machine")) == 1


async def test_without_the_word_it_is_waited_for(machines: Machines) -> None:
    machines.stubs.then("forget_machine", classified(ErrorClass.TRANSIENT, "no route to host", last=True))
    handle = await running(machines, timings=Timings(retry={ErrorClass.TRANSIENT: timedelta(seconds=0.2)}))
    await delete(handle, force=True)
    result = await ended(handle)
    assert (result.left, len(machines.stubs.called("forget_machine"))) == ([], 2)
