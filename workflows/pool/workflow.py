"""MachineDeploymentWorkflow: the handlers of a pool. They only record; the loop of all owners
(workflows/fleet/life.py) acts.

Identity: `machinedeployment/<cluster>/<name>`. Started by `hostler apply`, or by a person with plain JSON. Ends when it
is deleted and each of its machines is confirmed gone. It alone plans, makes and deletes its machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.entity import intent
from workflows.fleet.life import live
from workflows.pool import intents, story, views
from workflows.pool.entity import PoolEntity
from workflows.pool.gates import find_out
from workflows.pool.marks import mark
from workflows.pool.revise import take_class

with workflow.unsafe.imports_passed_through():
    from planners.fleet.steps import Step
    from planners.words import some
    from resources.fleet.membership import MembersFound
    from resources.fleet.rehearsal import Rehearsal
    from resources.intents import Intent
    from resources.machine.intents import DeleteIntent
    from resources.machine.state import ClassSnapshot
    from resources.maintenance import FreezeIntent
    from resources.names import is_name
    from resources.pool.intents import (
        PoolIntent,
        PoolQuestion,
        PoolSummary,
        ResumeIntent,
        ScaleIntent,
        UndoIntent,
        VerdictIntent,
    )
    from resources.pool.manifest import NAME_LENGTH
    from resources.pool.state import PoolState


@workflow.defn
class MachineDeploymentWorkflow(PoolEntity):
    @workflow.init
    def __init__(self, state: PoolState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: PoolState) -> None:
        if self.s.created is None:
            self._refuse_what_cannot_be()
            self.s.created = workflow.now()
            spec = self.s.spec
            self.note("Created", f"pool of {some(spec.replicas)} of class {spec.template.spec.class_.name}")
        await self.keep(self._live)

    def _refuse_what_cannot_be(self) -> None:
        """Refuses impossible input: before anything is owned, that is the honest end of a workflow started by hand."""
        s = self.s
        wrong = [
            f"{field}: {value!r} is not a Kubernetes name: use lower-case letters, digits, '-' and '.'"
            for field, value in (("name", s.name), ("cluster", s.cluster))
            if not is_name(value)
        ]
        if len(s.name) > NAME_LENGTH:
            wrong.append(f"name: {len(s.name)} characters; its machines' names are 12 longer, so at most {NAME_LENGTH}")
        if refusal := intents.refuse_annotations(s.annotations, s.name):
            wrong.append(refusal)
        if wrong:
            raise ApplicationError("; ".join(wrong), type="InvalidPool", non_retryable=True)

    async def _live(self) -> None:
        # A deletion must be carried out by the same code that failed, so it waits for a fixed worker too.
        await self.stand_still()
        await live(self)

    # -- FleetEntity --------------------------------------------------------------------------------------------------

    def found(self, found: MembersFound) -> None:
        story.end_former(self, [n for n in found.rollouts if n not in self.s.stories])

    def take_class(self, machine_class: ClassSnapshot, by: str, reason: str) -> None:
        take_class(self, machine_class, by, reason)

    def planned(self, steps: Sequence[Step]) -> None:
        story.follow(self, steps)

    def decided(self) -> None:
        mark(self)
        find_out(self)

    def last_words(self) -> None:
        story.tell(self, self.view())

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> PoolState:
        return self.s

    @workflow.query
    def summary(self) -> PoolSummary:
        """The pool in numbers, small whatever its size."""
        return views.summary(self.s, self.view())

    @workflow.query
    def rehearse(self, question: PoolQuestion) -> Rehearsal:
        """What the pool would do, by its own planner. A query leaves no history."""
        return views.rehearse(self.s, question, max(workflow.now(), question.at or workflow.now()), self.hashing)

    # -- intents: each by update and by signal ------------------------------------------------------------------------

    apply = intent(PoolIntent, intents.apply, intents.refuse_apply)
    scale = intent(ScaleIntent, intents.scale, intents.refuse_scale)
    undo = intent(UndoIntent, intents.undo, intents.refuse_undo)
    pause = intent(Intent, intents.pause, intents.refuse_change)
    resume = intent(ResumeIntent, intents.resume, intents.refuse_change)
    abort = intent(Intent, intents.abort, intents.refuse_abort)
    approve = intent(VerdictIntent, intents.approve, intents.refuse_approve)
    reject = intent(VerdictIntent, intents.reject, intents.refuse_verdict)
    freeze = intent(FreezeIntent, intents.freeze, intents.refuse_change)
    unfreeze = intent(Intent, intents.unfreeze, intents.refuse_change)
    restart = intent(Intent, intents.restart, intents.refuse_change)
    hibernate = intent(Intent, intents.hibernate, intents.refuse_change)
    wake = intent(Intent, intents.wake, intents.refuse_change)
    delete = intent(DeleteIntent, intents.delete)
