"""A class and its machines on a stack: started, changed and asked as the command line does."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lifekit import Stack, asked, eventually, examples
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from resources.errors import ErrorClass
from resources.intents import Answer, Intent
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import SILENCE, ClassIntent, ClassState
from resources.manifests import MachineClass
from resources.names import class_id, machine_id
from resources.timings import Timings
from simulator.frame import FaultRule
from starter.sdk.starts import start_class
from workflows.machine import MachineWorkflow
from workflows.machine_class import MachineClassWorkflow

MUST = {"kubernetes.io/cluster/shoot--hostler--demo": "1", "kubernetes.io/role/node": "1"}


def tagged(tags: dict[str, str], hops: int = 2) -> dict[str, Any]:
    """Fields of a provider spec: the same tags on VM, NIC and disk, and a metadata option."""
    options = {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": hops}
    kinds = {"vmTags": {**MUST, **tags}, "nicTags": tags, "diskTags": tags}
    return {**kinds, "instanceMetadataOptions": options}


class LiveClass:
    """The examples' class, with fields of its provider spec replaced."""

    def __init__(self, stack: Stack, silence: timedelta = SILENCE, **provider_spec: Any) -> None:
        self.stack, self.silence = stack, silence
        self.manifest: MachineClass = examples().classes[0]
        self.name = self.manifest.metadata.name
        self.wanted = self.snapshot(**provider_spec)
        self.handle: WorkflowHandle[Any, Any] = stack.client.get_workflow_handle(class_id(stack.cluster, self.name))

    def snapshot(self, **provider_spec: Any) -> ClassSnapshot:
        made = ClassSnapshot.of(self.manifest)
        return made.model_copy(update={"provider_spec": {**made.provider_spec, **provider_spec}})

    async def start(self) -> None:
        state = ClassState(
            name=self.name,
            cluster=self.stack.cluster,
            machine_class=self.wanted,
            silence=self.silence,
            queue_prefix=self.stack.settings.queue_prefix,
            timings=self.stack.settings.timings,
        )
        await start_class(self.stack.client, state)

    async def apply(self, **provider_spec: Any) -> str:
        intent = ClassIntent(id=uuid.uuid4().hex, machine_class=self.snapshot(**provider_spec), requested_by="test")
        answer: Answer = await self.handle.execute_update(MachineClassWorkflow.apply, intent, id=intent.id)
        return answer.message

    async def delete(self) -> str:
        """Deletes the class; it fails while the class is used."""
        intent = Intent(id=uuid.uuid4().hex, requested_by="test")
        answer: Answer = await self.handle.execute_update(MachineClassWorkflow.delete, intent, id=intent.id)
        return answer.message

    async def refusal(self) -> str:
        """Why it cannot be deleted."""
        try:
            return f"not refused: {await self.delete()}"
        except WorkflowUpdateFailedError as e:
            return str(e.cause)

    async def state(self) -> ClassState:
        return await asked(self.handle, MachineClassWorkflow.describe)

    async def known(self, machine: str) -> ClassState:
        """Waits until the class has heard that a machine was made from it."""
        return await eventually(self.state, lambda s: machine in s.users and s.users[machine].applied, "the user")

    async def updated(self, generation: int) -> ClassState:
        """Waits until every user is done with a generation."""
        return await eventually(
            self.state, lambda s: s.generation == generation and s.users and s.updated, f"generation {generation}"
        )


async def start_by_hand(
    stack: Stack, name: str, of: LiveClass, waits: Mapping[ErrorClass, timedelta] | None = None
) -> None:
    """Starts a machine with the few words that a person types in Temporal's web UI, and the tests' short waits."""
    id = machine_id(stack.cluster, name)
    await stack.client.start_workflow(
        "MachineWorkflow",
        {
            "name": name,
            "cluster": stack.cluster,
            "spec": {"class": {"name": of.name}},
            "queuePrefix": stack.settings.queue_prefix,
            "timings": waiting(stack, waits or {}).model_dump(mode="json", by_alias=True),
        },
        id=id,
        task_queue=stack.settings.queue_prefix,
    )
    stack.started[name] = stack.client.get_workflow_handle_for(MachineWorkflow.run, id)


def waiting(stack: Stack, waits: Mapping[ErrorClass, timedelta]) -> Timings:
    """The tests' timings, with other waits after failures."""
    usual = stack.settings.timings
    return usual.model_copy(update={"retry": {**usual.retry, **waits}})


def refuse(stack: Stack, uid: str, code: str, times: int | None = None) -> FaultRule:
    """The machine's volume takes no new tags; a call that names other resources too tags none of them."""
    (volume,) = stack.leftovers(uid)["volumes"]
    rule = FaultRule(service="ec2", operation="CreateTags", code=code, match=volume, times=times)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(rule))
    return rule


def relent(stack: Stack, rule: FaultRule) -> None:
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.remove(rule))
