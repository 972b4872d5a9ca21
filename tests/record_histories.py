"""Records one history of every flow, for the replay test: `python tests/record_histories.py`.

Run it when a workflow gets a new flow, or a change that a patch marker guards: then the old recordings stay and a new
one is added beside them. What names the recording machine is taken out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from lifekit import Stack, eventually, new_stack
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from resources.attributes import ALL
from resources.converter import data_converter
from resources.machine import Phase
from resources.messages import RecreateIntent
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule
from workflows.machine import MachineWorkflow

HISTORIES = Path(__file__).parent / "histories"
IDENTITY = "recorder"


async def a_whole_life(stack: Stack) -> None:
    await stack.create()
    await stack.phase(Phase.RUNNING)
    await stack.delete()


async def a_hard_life(stack: Stack) -> None:
    """The waits and ways back that a machine has: capacity, a failed post-start update, Unknown, a forced drain."""
    frame, kubelets = stack.simulator.simulator.frame, stack.simulator.simulator.kubelets
    faults = [
        FaultRule(service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity"),
        FaultRule(service="ec2", operation="ModifyInstanceAttribute", code="UnauthorizedOperation"),
    ]
    stack.simulator.call(lambda: frame.faults.extend(faults))
    await stack.create(drain_timeout=timedelta(seconds=1))
    await stack.phase(Phase.RUNNING)
    for unready, phase in ((True, Phase.UNKNOWN), (False, Phase.RUNNING)):
        rule = KnobRule.model_validate({"match": "m-1*", "knobs": {"unready": unready}})
        stack.simulator.call(lambda rule=rule: kubelets.set_knobs([rule]))
        await stack.phase(phase)
    await stack.started["m-1"].cancel()
    await stack.delete(force=True)


async def a_failed_life(stack: Stack) -> None:
    """The node stays sick: two looks, Failed, drained in Failed; then the machine is made anew."""
    await stack.create(health_timeout=timedelta(seconds=4))
    uid = (await stack.phase(Phase.RUNNING)).uid
    rule = KnobRule.model_validate({"match": "m-1*", "knobs": {"unready": True}})
    stack.simulator.call(lambda: stack.simulator.simulator.kubelets.set_knobs([rule]))
    await stack.phase(Phase.FAILED)
    await stack.reason("HealthTimeout")
    stack.simulator.call(lambda: stack.simulator.simulator.kubelets.set_knobs([]))
    await stack.started["m-1"].execute_update(MachineWorkflow.recreate, RecreateIntent(id="r"), id="r")
    await eventually(stack.state, lambda s: s.uid not in ("", uid) and s.status.phase == Phase.RUNNING)
    await stack.delete()


FLOWS: dict[str, Callable[[Stack], Awaitable[None]]] = {
    "whole-life": a_whole_life,
    "hard-life": a_hard_life,
    "failed-life": a_failed_life,
}


def anonymous(value: Any) -> Any:
    """Without stack traces: they name the paths of the machine that recorded."""
    if isinstance(value, dict):
        return {k: "" if k == "stackTrace" else anonymous(v) for k, v in value.items()}
    return [anonymous(v) for v in value] if isinstance(value, list) else value


async def record(client: Client, name: str) -> None:
    async with new_stack(client) as stack:
        async with stack.worker():
            await FLOWS[name](stack)
        first = stack.started["m-1"].first_execution_run_id
        for workflow_id, run, file in (("machine/demo/m-1", first, "machine"), ("cluster/demo", None, "cluster")):
            history = await client.get_workflow_handle(workflow_id, run_id=run).fetch_history()
            content = {"workflowId": workflow_id, **anonymous(json.loads(history.to_json()))}
            (HISTORIES / f"{file}-{name}.json").write_text(json.dumps(content, indent=1) + "\n")
            print(f"{file}-{name}: {len(history.events)} events")


async def main() -> None:
    async with await WorkflowEnvironment.start_local(
        data_converter=data_converter,
        search_attributes=list(ALL),
        identity=IDENTITY,
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_extra_args=["--dynamic-config-value", 'history.timerProcessorMaxTimeShift="20ms"'],
    ) as env:
        for name in FLOWS:
            await record(env.client, name)
    await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
