"""Each breaks one invariant inside a worker's process, and that invariant's check must turn red.

Workflows see what a saboteur changes in our modules: the sandbox that users have passes those modules through.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.worker import WorkflowInboundInterceptor

from activities.accounts import Cloud
from activities.cloud.machine import MachineActivities
from activities.cluster import marks, merge
from activities.cluster.node import NodeActivities
from activities.deps import Deps
from activities.kube.client import Kube, node_path
from activities.watch import nodes as watch
from drivers import tags
from drivers.aws import instances
from drivers.base import CreateMachineRequest, DeleteMachineRequest, Driver
from drivers.errors import DriverError
from drivers.tags import TagPlan, Tags, plan_tags
from faults.invariants import LATE, USER_KEY
from planners.control_plane import holds
from planners.fleet import pace
from planners.machine.claims import Belief, Weighed
from planners.machine.preservation import Decision, ObservedMachine
from planners.machine_config import nodes as config_nodes
from planners.pool import repair
from planners.pool.budget import Limits
from resources.calls.cloud import DeleteInput, DeleteOutput, UpdateInput, UpdateOutput
from resources.calls.cluster import LookInput, NodeLook
from resources.calls.drain import DrainInput, DrainOutput
from resources.errors import ErrorClass
from resources.machine.advice import GONE
from resources.machine.facts import NodeFacts
from resources.machine.manifest import NodeTemplate
from resources.machine.state import Look, OperationType, Phase
from resources.names import MARKED_ANNOTATION
from resources.timings import Timings
from workflows import inbound, runner
from workflows.entity import Entity
from workflows.machine import MachineWorkflow, claim, confirm, preserve, terminate
from workflows.machine import workflow as life
from workflows.machine.entity import MachineEntity

SLOW = LATE * 0.7
"""Each of the two looks that must find a machine ill comes this late: together they are later than allowed."""


def break_i1() -> None:
    """A create that neither looks first nor keeps its token."""
    _blind_create(lambda: True)


def _blind_create(now: Callable[[], bool]) -> None:
    find = MachineActivities._find

    async def blind(self: MachineActivities, target: Any, takes: str) -> Any:
        return None if now() else await find(self, target, takes)

    renewed: dict[str, str] = {}
    """What the tokens are to this process: a creation of several calls is one creation all the same."""

    def renew(request: CreateMachineRequest) -> CreateMachineRequest:
        token = renewed.setdefault(request.token, str(uuid.uuid4())) if now() else request.token
        return request.model_copy(update={"token": token})

    MachineActivities._find = blind  # type: ignore[method-assign]
    _wrap_driver("create_machine", renew)


def break_i1_recreate() -> None:
    """A new life that neither waits for the end of the former one nor looks for a VM of its name."""
    _look_by_uid_alone()
    deleted = terminate.delete

    async def impatient(m: MachineEntity) -> None:
        if m.s.deletion and m.s.deletion.recreate:
            m.s.vm_gone = True
        await deleted(m)

    _replace_phase(deleted, impatient)


def break_i1_reset() -> None:
    """A random uid, which a reset changes, and no look for a VM of the name."""

    def by_chance(self: MachineWorkflow) -> str:
        from temporalio import workflow

        return str(workflow.uuid4())

    MachineWorkflow._own_uid = by_chance  # type: ignore[method-assign]
    _look_by_uid_alone()


def _look_by_uid_alone() -> None:
    instances.by_name = lambda ec2, machine: instances.by_uid(ec2, machine.uid)


def break_i1_adopt() -> None:
    """An adoption that forgets whose VM it was, and whose create is then blind too."""
    adopted: list[str] = []
    _blind_create(lambda: bool(adopted))
    began = MachineWorkflow._begin

    def forgetful(self: MachineWorkflow) -> None:
        began(self)
        if self.s.adopted:
            adopted.append(self.s.name)
            self.s.adopted, self.s.status.provider_id = False, None

    MachineWorkflow._begin = forgetful  # type: ignore[method-assign]


def break_i5() -> None:
    """A look that takes an error for death."""
    looked = MachineActivities._look

    async def hasty(self: MachineActivities, target: Any, diagnose: bool = False) -> Any:
        try:
            return await looked(self, target, diagnose)
        except DriverError:
            request = await self.deps.request(DeleteMachineRequest, target, provider_id=target.provider_id)
            await asyncio.to_thread(self.deps.driver(target.provider).delete_machine, request)
            raise

    updated = MachineActivities.update_machine

    @activity.defn(name="update_machine")
    async def looking(self, input: UpdateInput) -> UpdateOutput:
        """Looks at the VM first, whatever is known of it: the look that meets the error."""
        return await updated(self, input.model_copy(update={"tagged": False}))

    MachineActivities._look = hasty  # type: ignore[method-assign]
    MachineActivities.update_machine = looking  # type: ignore[assignment]


def break_i5_timer() -> None:
    """Failed on the word of the timer."""

    async def hasty(m: MachineEntity) -> None:
        if m.due("health"):
            m.fail(OperationType.HEALTH_CHECK, "HealthTimeout", "the timer has rung")
        else:
            m.deadlines["confirm"] = m.deadlines["health"]

    confirm.health = hasty


def break_i5_account() -> None:
    """A look that believes any account."""

    async def credulous(self: Cloud, request: Any) -> None:
        pass

    Cloud.prove = credulous  # type: ignore[method-assign]


def break_i5_look() -> None:
    """Looks that see what was known before."""
    looked = NodeActivities.look_at_node

    @activity.defn(name="look_at_node")
    async def prejudiced(self, input: LookInput) -> NodeLook:
        look = await looked(self, input)
        ill = look.node.model_copy(update={"ready": False, "reason": "as was known before"})
        return look.model_copy(update={"node": ill, "ready": "False"})

    NodeActivities.look_at_node = prejudiced  # type: ignore[assignment]


def break_i5_gone() -> None:
    """A "not found" that is believed, whatever the kubelet says."""
    weigh = claim.weigh

    def gullible(before: Look | None, look: Look, moved: int, timings: Timings) -> Weighed:
        believed = look.vm.state == GONE
        return Weighed(Belief.BELIEVED) if believed else weigh(before, look, moved, timings)

    claim.weigh = gullible


def break_i6() -> None:
    """A delete that believes itself."""

    @activity.defn(name="delete_machine")
    async def trusting(self, input: DeleteInput) -> DeleteOutput:
        return DeleteOutput()

    MachineActivities.delete_machine = trusting  # type: ignore[assignment]


def break_i7() -> None:
    """A clock that is slow."""
    ring = Entity._ring

    async def slow(self: Entity, at: datetime, name: str) -> None:
        await ring(self, at + SLOW, name)

    def due(self: Entity, name: str) -> bool:
        from temporalio import workflow

        deadline = self.deadlines.get(name)
        return deadline is not None and deadline + SLOW <= workflow.now()

    Entity._ring, Entity.due = slow, due  # type: ignore[method-assign]


def break_i8() -> None:
    """A hot update that treats every tag as its own."""

    def own(last: Tags, desired: Tags, actual: Tags, protected: Collection[str], limit: int) -> TagPlan:
        return plan_tags({**actual, **last}, desired, actual, protected, limit)

    tags.plan_tags = own


def break_i8_must() -> None:
    """A hot update that gives a must-tag another value."""

    def careless(last: Tags, desired: Tags, actual: Tags, protected: Collection[str], limit: int) -> TagPlan:
        must = min(k for k in actual if k in protected)
        return plan_tags(last, {**desired, must: "renamed"}, actual, {k for k in protected if k != must}, limit)

    tags.plan_tags = careless


def break_i9() -> None:
    """A Failed machine is kept for half its time."""
    decide, stay = preserve.decide, preserve._stay

    def impatient(o: ObservedMachine) -> Decision:
        if o.phase is Phase.FAILED and o.expiry is not None:
            o = replace(o, now=o.now + o.timeout / 2)
        return decide(o)

    def early(m: MachineEntity, decision: Any) -> None:
        stay(m, decision)
        if m.status.phase is Phase.FAILED and "preserve" in m.deadlines:
            m.deadlines["preserve"] -= m.s.spec.machine_preserve_timeout / 2

    preserve.decide, preserve._stay = impatient, early


def break_i10() -> None:
    """A drain that makes the node its own."""

    # No annotation of self: temporalio takes an annotated one for the input.
    @activity.defn(name="drain_node")
    async def rude(self, input: DrainInput) -> DrainOutput:
        kube = await self.deps.clusters.get(input.machine.cluster)
        await kube.merge_patch(node_path(input.node_name), {"metadata": {"annotations": {USER_KEY: None}}})
        return DrainOutput()

    from activities.drain.nodes import DrainActivities

    DrainActivities.drain_node = rude  # type: ignore[assignment]


def break_i10_template() -> None:
    """A template that treats the list of taints as its own."""

    def own(node: dict[str, Any], last: NodeTemplate | None, wanted: NodeTemplate, given: str = "") -> dict[str, Any]:
        patch = merge.template_patch(node, last, wanted, given)
        return {**patch, "spec": {"taints": [t.model_dump(exclude_none=True) for t in wanted.spec.taints]}}

    import activities.cluster.node

    activities.cluster.node.template_patch = own


def break_i11() -> None:
    """A create that talks about what it sent."""

    def talk(request: CreateMachineRequest) -> CreateMachineRequest:
        raise DriverError(ErrorClass.INVALID, f"refused: {request.user_data.get_secret_value()}")

    _wrap_driver("create_machine", talk)


def break_i12() -> None:
    """A drain that deletes instead of evicting."""
    import activities.drain.calls

    async def kill(kube: Kube, pod: dict[str, Any], grace: int | None) -> None:
        await activities.drain.calls.kill(kube, pod)

    activities.drain.calls.evict = kill


def drain_again() -> None:
    """A deletion that drains what was drained in Failed."""
    began = terminate.begin

    def forgetful(m: MachineEntity) -> None:
        if m.s.deletion and m.status.phase != Phase.TERMINATING:
            m.s.drained = False
        began(m)

    terminate.begin = forgetful


def break_i2() -> None:
    """A pool that allows itself one VM more than it has said."""
    Limits.ceiling = property(lambda self: self.replicas + self.surge + 1)  # type: ignore[method-assign, assignment]


def break_i3() -> None:
    """A rollout that deletes the old machines at once."""
    Limits.floor = property(lambda self: 0)  # type: ignore[method-assign, assignment]


def break_i4() -> None:
    """A pool that forgets the repairs that it has begun."""
    repair.in_flight = lambda view: []


def break_i13() -> None:
    """A config pool to which no node is unavailable, whatever it is doing."""
    config_nodes.busy = lambda node: False


def break_i14() -> None:
    """A control plane that lets go at once whatever is deleted."""
    holds.lift = lambda observed: ([(host, "it is deleted") for host in observed.hosts if host.held], [])


def break_i15() -> None:
    """A pool to which a machine's early death says nothing of the next one."""
    pace.failed_young = lambda speed, *_: speed


def break_i16() -> None:
    """A door that is open: what arrives goes to its handler."""
    runner.admit = lambda defn, act: None
    inbound.Inbound.handle_signal = WorkflowInboundInterceptor.handle_signal  # type: ignore[method-assign]


def break_i17() -> None:
    """A watch that one Node takes down."""
    project = watch.project

    def proud(node: dict[str, Any], epoch: int, seq: int, twins: Iterable[str] = ()) -> NodeFacts:
        if MARKED_ANNOTATION in (node["metadata"].get("annotations") or {}):
            raise RuntimeError("what is this")
        return project(node, epoch, seq, twins)

    watch.project = proud


def leave_marks() -> None:
    """A rollout that takes no mark off a Node."""
    patch = marks.marks_patch
    marks.marks_patch = lambda node, pool, *, on: patch(node, pool, on=True) if on else {}


def _replace_phase(phase: Any, broken: Any) -> None:
    for part in ("BIRTH", "LIFE", "END"):
        setattr(life, part, tuple(broken if p is phase else p for p in getattr(life, part)))


def _wrap_driver(method: str, change: Callable[[Any], Any]) -> None:
    real = Deps.driver

    def driver(self: Deps, provider: str) -> Driver:
        inner = real(self, provider)

        class Wrapped:
            def __getattr__(self, name: str) -> Any:
                attribute = getattr(inner, name)
                return (lambda request: attribute(change(request))) if name == method else attribute

        return Wrapped()  # type: ignore[return-value]

    Deps.driver = driver  # type: ignore[method-assign]


SABOTEURS: dict[str, Callable[[], None]] = {
    "I1": break_i1,
    "I1 recreate": break_i1_recreate,
    "I1 adopt": break_i1_adopt,
    "I1 reset": break_i1_reset,
    "I2": break_i2,
    "I3": break_i3,
    "I4": break_i4,
    "I5": break_i5,
    "I5 timer": break_i5_timer,
    "I5 look": break_i5_look,
    "I5 account": break_i5_account,
    "I5 gone": break_i5_gone,
    "I6": break_i6,
    "I7": break_i7,
    "I8": break_i8,
    "I8 must": break_i8_must,
    "I9": break_i9,
    "I10": break_i10,
    "I10 template": break_i10_template,
    "I11": break_i11,
    "I12": break_i12,
    "I13": break_i13,
    "I14": break_i14,
    "I15": break_i15,
    "I16": break_i16,
    "I17": break_i17,
    "drained once": drain_again,
    "marks": leave_marks,
}
