"""The least that brings a machine to a Ready node on Temporal: three activities, one signal, one search attribute.

The activities call Hostler's own (activities/), so that driver and Kubernetes API get exactly the same requests; what
is left out is the life around them: phases, deadlines, journal, details, the watch of the VM, deletion. It has the name
of Hostler's machines and publishes its VM, since the watch of the nodes finds the workflow to tell that way.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from activities.cluster.node import NodeActivities
    from activities.deps import Deps
    from resources import attributes
    from resources.base import Value
    from resources.calls.cloud import CreateInput, CreateOutput, UpdateInput, UpdateOutput
    from resources.calls.cluster import JoinInput, ReadyInput
    from resources.calls.machine import MachineRef, Target
    from resources.clouds import indexed
    from resources.machine.facts import NodeFacts
    from resources.machine.manifest import MachineSpec
    from resources.machine.state import ClassSnapshot
    from resources.timings import Timings
    from workflows.calls import SHORT


DEEDS_QUEUE = "bench-deeds"


class BareInput(Value):
    name: str
    cluster: str
    spec: MachineSpec
    machine_class: ClassSnapshot


class BareActivities:
    """One activity for each of Hostler's steps, except that template and ready taint are one."""

    def __init__(self, deps: Deps) -> None:
        self._machine = MachineActivities(deps)
        self._node = NodeActivities(deps)

    @activity.defn
    async def create(self, input: CreateInput) -> CreateOutput:
        return await self._machine.create_machine(input)

    @activity.defn
    async def post_start(self, input: UpdateInput) -> UpdateOutput:
        return await self._machine.update_machine(input)

    @activity.defn
    async def join_and_ready(self, input: JoinInput) -> None:
        await self._node.join_node(input)
        ready = ReadyInput(machine=input.machine, node_name=input.node_name, provider_id=input.provider_id)
        await self._node.remove_ready_taint(ready)


@workflow.defn(name="MachineWorkflow")
class BareMachine:
    """A workflow with a machine's id, because the watch signals by it. It completes when its node is Ready and takes
    work."""

    @workflow.init
    def __init__(self, input: BareInput) -> None:
        self.node: NodeFacts | None = None

    @workflow.signal
    def observe(self, facts: NodeFacts) -> None:
        self.node = facts

    @workflow.run
    async def run(self, input: BareInput) -> str:
        machine = MachineRef(cluster=input.cluster, name=input.name, uid=str(workflow.uuid4()))
        timings = Timings()
        target = Target(
            machine=machine,
            provider=input.machine_class.provider,
            provider_spec=input.machine_class.provider_spec,
            secret_ref=input.machine_class.secret_ref,
            token=str(workflow.uuid4()),
            consistency=timings.consistency,
            poll=timings.poll,
        )
        call = workflow.ActivityConfig(
            task_queue=DEEDS_QUEUE,
            start_to_close_timeout=timings.call_timeout,
            heartbeat_timeout=timings.heartbeat,
            retry_policy=SHORT,
        )
        now = workflow.now()
        create = CreateInput(target=target, attempt=1, started=now, deadline=now + timedelta(minutes=20))
        made = await workflow.execute_activity_method(BareActivities.create, create, **call)
        workflow.upsert_search_attributes([attributes.PROVIDER_ID.value_set(indexed(made.provider_id))])
        update = UpdateInput(target=target.model_copy(update={"provider_id": made.provider_id}), tagged=made.tagged)
        await workflow.execute_activity_method(BareActivities.post_start, update, **call)
        await workflow.wait_condition(lambda: self.node is not None and self.node.ready)
        assert self.node is not None
        join = JoinInput(
            machine=machine,
            attempt=1,
            node_name=self.node.name,
            provider_id=made.provider_id,
            node_template=input.spec.node_template,
        )
        await workflow.execute_activity_method(BareActivities.join_and_ready, join, **call)
        return made.provider_id
