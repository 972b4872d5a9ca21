"""ControlPlaneWorkflow: the handlers of a cluster's control plane. They only record; the loop of all owners
(workflows/fleet/life.py) acts.

Identity: `controlplane/<cluster>`. Started by `hostler apply`, or by a person with plain JSON. Ends when it is deleted;
its machines stay, and belong to nobody.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.control_plane import etcd, intents, nodes, views
from workflows.control_plane.entity import ControlPlaneEntity
from workflows.entity import intent
from workflows.fleet.life import live

with workflow.unsafe.imports_passed_through():
    from planners.control_plane.summary import summarize
    from planners.words import some
    from resources.control_plane.intents import ApplyControlPlane
    from resources.control_plane.spec import hold_of
    from resources.control_plane.state import ControlPlaneState
    from resources.control_plane.summary import ControlPlaneQuestion, ControlPlaneSummary
    from resources.fleet.rehearsal import Rehearsal
    from resources.intents import Intent
    from resources.names import is_name
    from resources.owner import CONTROL_PLANE
    from resources.pool.intents import UndoIntent


@workflow.defn
class ControlPlaneWorkflow(ControlPlaneEntity):
    @workflow.init
    def __init__(self, state: ControlPlaneState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: ControlPlaneState) -> None:
        if self.s.created is None:
            self._refuse_what_cannot_be()
            self.s.created = workflow.now()
            spec = self.s.spec
            self.note("Created", f"control plane of {some(spec.replicas)} of class {self.class_name}, {spec.state}")
        await self.keep(self._live)

    def _refuse_what_cannot_be(self) -> None:
        """Refuses impossible input: before anything is owned, that is the honest end of a workflow started by hand."""
        s = self.s
        wrong = []
        if s.name != CONTROL_PLANE.only:
            wrong.append(f"name: a cluster has one control plane, whose name is {CONTROL_PLANE.only!r}, not {s.name!r}")
        if not is_name(s.cluster):
            wrong.append(f"cluster: {s.cluster!r} is not a name: use lower-case letters, digits, '-' and '.'")
        if wrong:
            raise ApplicationError("; ".join(wrong), type="InvalidControlPlane", non_retryable=True)

    async def _live(self) -> None:
        # A deletion must be carried out by the same code that failed, so it waits for a fixed worker too.
        await self.stand_still()
        await live(self)

    def decided(self) -> None:
        nodes.look(self)
        nodes.place(self)
        nodes.let_go(self)
        etcd.follow(self)
        self.follow_conditions()

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> ControlPlaneState:
        return self.s

    @workflow.query
    def summary(self) -> ControlPlaneSummary:
        """The control plane in numbers, and by index."""
        return summarize(self.s, self.observed())

    @workflow.query
    def rehearse(self, question: ControlPlaneQuestion) -> Rehearsal:
        """What it would do, by its own planner. A query leaves no history."""
        now = max(workflow.now(), question.at or workflow.now())
        return views.rehearse(self.s, question, hold_of(self.owner.user), now)

    # -- intents: each by update and by signal ------------------------------------------------------------------------

    apply = intent(ApplyControlPlane, intents.apply, intents.refuse_apply)
    undo = intent(UndoIntent, intents.undo, intents.refuse_undo)
    pause = intent(Intent, intents.pause, intents.refuse_change)
    resume = intent(Intent, intents.resume, intents.refuse_change)
    delete = intent(Intent, intents.delete, intents.refuse_delete)
