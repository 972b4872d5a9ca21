"""The four use cases of the preservation proposal (seed 003), end to end: by `hostler`, and by kubectl alone; on the
simulated API server and on a real one; real driver, real API client, real Temporal. Every way and every server has its
turn in CI; each case by each way on each server is for `make test-all`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from apiserver.real import ALL, real_kube, required_assets
from lifekit import Stack, end_running, eventually, hostler, new_stack
from machine.lives import knobs
from pools.lives import Pool, pool_spec
from temporalio.testing import WorkflowEnvironment

from resources.machine.preservation import PreservedBy
from resources.machine.state import MachineState, Phase
from resources.names import PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY_PRESERVATION, machine_id

COMMANDS = {
    "now": ["preserve"],
    "when-failed": ["preserve", "--when-failed"],
    "false": ["release"],
}
LIMIT = ("--timeout", "60s")
FAILS = timedelta(seconds=1)


class Operator:
    """An operator who asks by one way, and looks by both."""

    def __init__(self, stack: Stack, way: str) -> None:
        self.stack, self.way = stack, way

    async def ask(self, machine: str, value: str) -> None:
        if self.way == "hostler":
            command, *options = COMMANDS[value]
            await hostler(self.stack, command, machine, *options, "--reason", "case 17", "--as", "alice")
        else:
            name = (await self.state(machine)).status.node_name
            await asyncio.to_thread(
                self.stack.kubectl, "annotate", "--overwrite", "node", str(name), f"{PRESERVE_ANNOTATION}={value}"
            )

    async def state(self, machine: str) -> MachineState:
        self.stack.started.setdefault(
            machine, self.stack.client.get_workflow_handle(machine_id(self.stack.cluster, machine))
        )
        return await self.stack.state(machine)

    async def shown(self, machine: str, phase: str) -> MachineState:
        """Waits until the machine is so, and is listed so."""
        found = await eventually(
            lambda: self.state(machine), lambda s: s.status.shown_phase == phase, f"{machine} {phase}"
        )

        async def listed() -> str:
            return (await hostler(self.stack, "get", "machine", machine)).splitlines()[1].split()[1]

        await eventually(listed, lambda p: p == phase, f"{machine} listed as {phase}")
        return found

    async def node(self, machine: str) -> dict[str, str]:
        """The annotations of its Node that concern preservation."""
        name = (await self.state(machine)).status.node_name
        found = await self.stack.kubectl_beside("get", "node", str(name), "-o", "json")
        annotations = json.loads(found)["metadata"].get("annotations") or {}
        keys = (PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY_PRESERVATION)
        return {k: annotations[k] for k in keys if k in annotations}

    async def protected(self, machine: str) -> None:
        await eventually(
            lambda: self.node(machine), lambda a: a.get(SCALE_DOWN_DISABLED) == "true", f"the node of {machine}"
        )

    async def bare(self, machine: str, *but: str) -> None:
        await eventually(lambda: self.node(machine), lambda a: set(a) == {*but}, f"nothing on the node of {machine}")

    async def end(self, machine: str) -> None:
        """Moves its end to a second from now."""
        assert "preserved until" in await hostler(self.stack, "extend", machine, "--for", "1s")


@pytest.fixture
async def operator(temporal: WorkflowEnvironment, request: pytest.FixtureRequest) -> AsyncIterator[Operator]:
    """EC2 and the kubelets are simulated on both servers."""
    way, _, server = request.param.partition("-")
    async with contextlib.AsyncExitStack() as entered:
        simulator = {}
        if server == "real":
            kube = await entered.enter_async_context(real_kube(required_assets(), ALL))
            simulator = {"api_server_kubeconfig": kube.kubeconfig}
        stack = await entered.enter_async_context(new_stack(temporal.client, **simulator))
        await entered.enter_async_context(stack.worker())
        yield Operator(stack, way)
        await end_running(stack)


def asking(usual: str, core: bool = False) -> pytest.MarkDecorator:
    """Each way on each server in `make test-all`; otherwise the usual one."""
    marks = {usual: [pytest.mark.core] if core else []}
    each = [f"{way}-{server}" for way in ("hostler", "kubectl") for server in ("simulator", "real")]
    params = [pytest.param(one, marks=marks.get(one, [pytest.mark.exhaustive]), id=one) for one in each]
    return pytest.mark.parametrize("operator", params, indirect=True)


def instance(state: MachineState) -> str:
    return str(state.status.provider_id).rsplit("/", 1)[-1]


def vm_is(stack: Stack, state: MachineState) -> str:
    (found,) = stack.ec2().describe_instances(InstanceIds=[instance(state)])["Reservations"]
    return str(found["Instances"][0]["State"]["Name"])


def reasons(state: MachineState) -> list[str]:
    return [h.reason for h in state.journal]


@asking("kubectl-real")
async def test_use_case_1_a_running_machine_is_looked_at(operator: Operator) -> None:
    """Seed, use case 1 and point 4: it is kept from cluster-autoscaler, and after its end it is as before."""
    stack = operator.stack
    await stack.create("m-1")
    before = await operator.shown("m-1", "Running")
    await operator.bare("m-1")
    await operator.ask("m-1", "now")
    kept = await operator.shown("m-1", "Running:Preserved")
    await operator.protected("m-1")
    assert kept.status.preserve.expiry_time == kept.status.preserve.since + timedelta(hours=72)
    page = await hostler(stack, "describe", "machine", "m-1")
    assert "Phase:        Running:Preserved" in page
    assert "(in 2d23h" in page
    told = {
        "hostler": ["a request to the machine (now)", "by alice", "case 17"],
        "kubectl": [f"annotation {PRESERVE_ANNOTATION}=now on node {kept.status.node_name}"],
    }
    assert {way: all(w in page for w in words) for way, words in told.items()} == {w: w == operator.way for w in told}

    # Note 6: somebody else's `false` is overwritten.
    name = str(kept.status.node_name)
    await stack.kubectl_beside("annotate", "--overwrite", "node", name, f"{SCALE_DOWN_DISABLED}=false")
    await operator.protected("m-1")

    await operator.end("m-1")
    after = await operator.shown("m-1", "Running")
    # What somebody has written meanwhile is what they want afterwards.
    await operator.bare("m-1", SCALE_DOWN_DISABLED)
    assert (await operator.node("m-1"))[SCALE_DOWN_DISABLED] == "false"
    assert "PreserveExpired" in reasons(after)
    assert (after.uid, instance(after), vm_is(stack, after)) == (before.uid, instance(before), "running")


@asking("hostler-simulator", core=True)
async def test_use_case_2_one_that_may_fail(operator: Operator) -> None:
    """Seed, use case 2 and point 5: preservation is asked for before it fails; it is drained and kept, and deleted
    after its end."""
    stack = operator.stack
    await stack.create("m-1", health_timeout=FAILS)
    await operator.shown("m-1", "Running")
    await operator.ask("m-1", "when-failed")
    if operator.way == "hostler":
        page = await hostler(stack, "describe", "machine", "m-1")
        assert "when it is Failed and drained" in page
        assert "by alice" in page
    else:
        await eventually(
            lambda: stack.state("m-1"), lambda s: s.status.preserve.node_value == "when-failed", "the annotation"
        )
    assert await operator.node("m-1") == ({} if operator.way == "hostler" else {PRESERVE_ANNOTATION: "when-failed"})
    knobs(stack, "m-1", dies_after=0.0)
    kept = await operator.shown("m-1", "Failed:Preserved")
    await operator.protected("m-1")
    story = reasons(kept)
    assert story.index("Drained") < story.index("Preserved")
    assert vm_is(stack, kept) == "running"
    assert "m-1" in await hostler(stack, "get", "machine", "m-1", "-o", "name")

    await operator.end("m-1")
    await hostler(stack, "wait", "machine", "m-1", "--for=deleted", *LIMIT)
    assert stack.leftovers(kept.uid) == {}
    assert len(stack.launched()) == 1


@pytest.mark.exhaustive  # of the fault matrix's "preserved by annotation": how it is shown and asked
@asking("hostler-simulator")
async def test_a_timeout_of_seconds(operator: Operator) -> None:
    """Point 4, by the machine's own machinePreserveTimeout: to the second, whenever anybody looks."""
    stack, timeout = operator.stack, timedelta(seconds=3)
    await stack.create("m-1", machine_preserve_timeout=timeout)
    await operator.shown("m-1", "Running")
    await operator.ask("m-1", "now")
    over = await eventually(lambda: stack.state("m-1"), lambda s: "PreserveExpired" in reasons(s), "its time is over")
    assert over.status.shown_phase == "Running"
    begin, end = (next(h.time for h in over.journal if h.reason == r) for r in ("Preserved", "PreserveExpired"))
    assert end - begin >= timeout
    await operator.bare("m-1")


@asking("kubectl-simulator")
async def test_use_cases_3_and_4_in_a_pool(operator: Operator) -> None:
    """Seed, use cases 3 and 4, point 6: one slot. The first to fail is kept, the next is replaced; a release gives the
    slot back at once."""
    stack = operator.stack
    pool = Pool(stack, "p1")
    repair = {"pauseAboveUnhealthy": "100%"}
    await pool.start(pool_spec(2, autoPreserveFailedMax=1, machinePreserveTimeout="1h", repair=repair))
    await pool.rolled_out(2)
    first, second = sorted(await pool.machines())

    knobs(stack, first, dies_after=0.0)
    kept = await operator.shown(first, "Failed:Preserved")
    assert kept.status.preserve.source is PreservedBy.AUTO
    await operator.protected(first)
    assert "a slot of pool p1" in await hostler(stack, "describe", "machine", first)

    knobs(stack, second, dies_after=0.0)
    third = await _another(pool, {first, second})
    await hostler(stack, "wait", "machine", second, "--for=deleted", *LIMIT)
    assert (await operator.state(first)).status.shown_phase == "Failed:Preserved"
    assert len(stack.launched()) == 3

    await operator.ask(first, "false")
    fourth = await _another(pool, {first, second, third})
    await hostler(stack, "wait", "machine", first, "--for=deleted", *LIMIT)
    assert stack.leftovers(kept.uid) == {}

    knobs(stack, third, dies_after=0.0)
    again = await operator.shown(third, "Failed:Preserved")
    assert again.status.preserve.source is PreservedBy.AUTO
    assert (await operator.state(fourth)).status.phase is Phase.RUNNING
    await pool.delete()
    assert pool.vms() == {}


async def _another(pool: Pool, former: set[str]) -> str:
    """The machine that is made in place of one of these, once it is Running."""

    async def running() -> list[str]:
        machines: dict[str, Any] = await pool.machines()
        return [n for n, s in machines.items() if n not in former and s.status.phase is Phase.RUNNING]

    (name,) = await eventually(running, lambda found: len(found) == 1, "a new machine")
    return name
