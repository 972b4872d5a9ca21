"""What happens to single machines on a stack, and what is seen of them: at the cloud, at their Node, by `hostler`."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import CLUSTER, Stack, examples, examples_of, write_secret
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from resources.machine.state import ApplyIntent, MachineState, Phase
from resources.manifests import MachineClass
from resources.names import machine_id
from simulator.frame import Call, FaultRule
from simulator.kubelet import KnobRule
from starter.commands.machine_page import page
from starter.sdk.client import HostlerClient
from starter.sdk.results import Event
from workflows.machine import MachineWorkflow


def knobs(stack: Stack, name: str = "m-1*", **knobs: object) -> None:
    rule = KnobRule.model_validate({"match": name, "knobs": knobs})
    kubelets = stack.simulator.simulator.kubelets
    stack.simulator.call(lambda: kubelets.set_knobs([*kubelets.knobs, rule]))


def fault(stack: Stack, **rule: object) -> FaultRule:
    made = FaultRule.model_validate(rule)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(made))
    return made


def mend(stack: Stack) -> None:
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.clear())


async def running(stack: Stack, name: str = "m-1") -> MachineState:
    """A new machine, or a new life of one."""
    await stack.create(name)
    return await stack.phase(Phase.RUNNING, name)


async def time_is_up(stack: Stack, name: str = "m-1", **timeouts: timedelta) -> MachineState:
    """Changes timeouts, which counts at once, and returns the machine as it was before. So what a machine shows until
    then can be looked at for as long as a busy computer takes: start it with hours, and not with seconds."""
    state = await stack.state(name)
    assert state.machine_class is not None
    spec = state.spec.model_copy(update=timeouts)
    intent = ApplyIntent(id=str(uuid.uuid4()), requested_by="test", spec=spec, machine_class=state.machine_class)
    await stack.started[name].execute_update(MachineWorkflow.apply, intent, id=intent.id)
    return state


async def terminate(stack: Stack, name: str = "m-1") -> None:
    """Somebody ends its workflow; a later one of the same name is for the test to end, too."""
    handle = stack.client.get_workflow_handle_for(MachineWorkflow.run, machine_id(CLUSTER, name))
    await handle.terminate("by mistake")
    stack.started[name] = handle


def node(stack: Stack, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stack.kubectl("get", "node", name, "-o", "json"))
    return found


def provider_id(state: MachineState) -> str:
    assert state.status.provider_id is not None
    return state.status.provider_id


def instance(state: MachineState) -> str:
    return str(state.status.provider_id).rsplit("/", 1)[-1]


def reasons(state: MachineState) -> list[str]:
    return [h.reason for h in state.journal]


def client_of(stack: Stack) -> HostlerClient:
    return HostlerClient(stack.client, stack.settings, requested_by="tester")


async def described(stack: Stack, name: str = "m-1") -> str:
    """What `hostler describe` prints."""
    return "\n".join(page(await client_of(stack).describe(name), datetime.now(UTC)))


async def details(handle: WorkflowHandle[Any, Any]) -> str:
    """What the web UI shows of it."""
    return str((await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)).current_details)


async def story(stack: Stack, name: str = "m-1") -> list[Event]:
    """What `hostler events` prints."""
    return await client_of(stack).events(name)


async def told(stack: Stack, node_name: str) -> dict[str, str]:
    """The Events on the Node, as `kubectl describe node` shows them: reason and type."""
    found = json.loads(stack.kubectl("get", "events", "-o", "json"))["items"]
    ours = [e for e in found if e["source"].get("component") == "hostler" and e["involvedObject"]["name"] == node_name]
    return {e["reason"]: e["type"] for e in ours}


async def nothing_is_left(stack: Stack, state: MachineState, name: str = "m-1") -> None:
    """Checks that nothing is left after its deletion."""
    result = await stack.delete(name)
    assert [h.reason for h in result.journal][-1] == "Gone"
    assert stack.leftovers(state.uid) == {}
    assert stack.kubectl("get", "nodes", "-o", "name") == ""
    assert "bootstrap-token" not in stack.kubectl("get", "secrets", "-n", "kube-system")


def user_data(edit: tuple[str, str]) -> dict[str, bytes]:
    """The examples' Secret with its user data edited."""
    (secret,) = examples().secrets
    values = secret.plain()
    former = values["userData"].decode()
    assert edit[0] in former
    return {**values, "userData": former.replace(*edit).encode()}


# -- on another cloud -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elsewhere:
    """A cloud with its example, and what its simulator says of the calls and of what is there."""

    cloud: str
    """Its name in the settings."""
    service: str
    unchanging: tuple[str, ...] = ()
    """Operations that the journal counts as changes and that change no resource."""

    @property
    def clouds(self) -> tuple[str, str]:
        """Those of a stack: the first one, to see that nobody asks it."""
        return "aws", self.cloud

    @property
    def machine_class(self) -> MachineClass:
        (only,) = examples_of(self.cloud).classes
        return only

    async def with_secret(self, stack: Stack) -> None:
        secret = examples_of(self.cloud).secrets[0]
        await write_secret(stack, secret.metadata.name, secret.plain())

    def simulated(self, stack: Stack) -> Any:
        return stack.simulator.simulator.clouds[self.cloud]

    def left(self, stack: Stack) -> list[str]:
        return [r.id for r in stack.simulator.call(lambda: self.simulated(stack).resources()) if not r.gone]

    def calls(self, stack: Stack, since: int = 0) -> list[Call]:
        return [c for c in stack.calls("*", service=self.service) if c.n > since]

    def made(self, stack: Stack) -> list[str]:
        """The changing calls, in order."""
        return [c.operation for c in self.calls(stack) if c.mutating and c.operation not in self.unchanging]
