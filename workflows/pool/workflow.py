"""MachineDeploymentWorkflow: the handlers of a pool. They only record; the loop in life.py acts.

Identity: `machinedeployment/<cluster>/<name>`. Started by `hostler apply`, or by a person with plain JSON. Ends when it
is deleted and each of its machines is confirmed gone. It alone plans, makes and deletes its machines.
"""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.fleet.members import forget
from workflows.pool import intents, story, views
from workflows.pool.entity import PoolEntity
from workflows.pool.life import live
from workflows.pool.revise import take_class

with workflow.unsafe.imports_passed_through():
    from planners.pool import hearing, pace
    from planners.words import some
    from resources.machine import ClassSnapshot
    from resources.machine_class import ClassNews
    from resources.machine_deployment import NAME_LENGTH
    from resources.member import Keep
    from resources.membership import MemberReport, MembersFound
    from resources.messages import Answer, ClusterNews, DeleteIntent, Intent
    from resources.names import is_name
    from resources.pool import PoolState
    from resources.pool_intents import PoolIntent, PoolQuestion, PoolSummary, Rehearsal, ScaleIntent, UndoIntent


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
        """Before anything is owned, a refusal is the honest end of a workflow started by hand."""
        s = self.s
        wrong = [
            f"{field}: {value!r} is no Kubernetes name: use lower-case letters, digits, '-' and '.'"
            for field, value in (("name", s.name), ("cluster", s.cluster))
            if not is_name(value)
        ]
        if len(s.name) > NAME_LENGTH:
            wrong.append(f"name: {len(s.name)} characters; its machines' names are 12 longer, so at most {NAME_LENGTH}")
        if refusal := intents.refuse_annotations(s.annotations):
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

    # -- facts --------------------------------------------------------------------------------------------------------

    @workflow.signal
    def report(self, report: MemberReport) -> None:
        """What a machine says of itself: a whole snapshot."""
        s = self.s
        self._heard()
        if report.contradicted and not workflow.patched("contradictions"):
            report = report.model_copy(update={"contradicted": False})
        member = s.members.get(report.machine)
        if report.ended:
            self.ended.append(report.machine)
            forget(self, report.machine)
            return
        if member is None:
            if (
                report.hash and report.machine not in self.ended
            ):  # it was asked: it is ours, of a former workflow of this pool
                self._meet(report)
            elif report.machine not in (*self.ended, *s.expected) and workflow.patched("pool-strangers"):
                # Made by a run of this pool that a reset cut off, as far as anybody knows: it is asked how it is.
                s.expected.append(report.machine)
                self.deadlines.pop("expected", None)
            return
        if report.seq <= member.seq and report.machine not in s.lost:
            return
        heard = hearing.hear(member, report, s.revisions, s.template)
        if member.revision == s.revision:
            speed = pace.of(s.pace, s.revision)
            now, jitter = workflow.now(), workflow.random().random()
            s.pace = hearing.pace_after(
                speed, member, heard, report, s.spec.replicas, s.timings, now, jitter, self.braked
            )
        s.members[report.machine] = heard
        if member.repair and not heard.deleting:
            preserved = heard.keep is Keep.ASKED or heard.preserved_until is not None
            words = "to be preserved by now" if preserved else f"{heard.phase} again"
            self.note("RepairRefused", f"machine {report.machine} is {words}, and is not deleted")
        if s.lost.pop(report.machine, None) is not None:
            # What it was told meanwhile did not reach it: template, delete, permit.
            s.told.pop(report.machine, None)
            self.deadlines["check"] = workflow.now()

    def _meet(self, report: MemberReport) -> None:
        s = self.s
        # A rollout of that workflow may have left its marks.
        s.members[report.machine] = hearing.first_heard(report, s.revisions)._replace(marks_due=True)
        s.expected = [n for n in s.expected if n != report.machine]
        if report.template >= s.template:  # generations of a former workflow: ours must be newer to be taken
            s.template, s.told = report.template + 1, {}
        self.note("MemberFound", f"machine {report.machine} was there before this workflow, and is the pool's")

    @workflow.signal
    def member_ended(self, name: str) -> None:
        """A worker has seen that the workflow of a machine did not come to its own end: it cannot tell it."""
        self._heard()
        if name in self.s.members and name not in self.s.lost:
            self.deadlines["census"] = workflow.now()

    @workflow.signal
    def class_changed(self, news: ClassNews) -> None:
        """The class has a new generation, which may make a new revision."""
        self._heard()
        s, wanted = self.s, news.machine_class
        if wanted.name == s.spec.template.spec.class_.name and not s.deleted:
            take_class(self, wanted, news.requested_by, news.reason)
        s.classes = list(dict.fromkeys([*s.classes, wanted.name]))
        s.class_told = ""  # who tells it has not heard that it is known

    @workflow.signal
    def cluster_news(self, news: ClusterNews) -> None:
        self._heard()
        if self.s.news is None or news.time >= self.s.news.time:
            self.s.news = news

    def _heard(self) -> None:
        self.s.messages += 1
        self.news = True

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> PoolState:
        return self.s

    @workflow.query
    def summary(self) -> PoolSummary:
        """In numbers, small whatever the pool's size."""
        return views.summary(self.s, self.view())

    @workflow.query
    def rehearse(self, question: PoolQuestion) -> Rehearsal:
        """What the pool would do, by its own planner. A query leaves no history."""
        return views.rehearse(self.s, question, workflow.now())

    # -- intents: each by update and by signal ------------------------------------------------------------------------

    def _once(self, intent: Intent, act: Callable[[], str]) -> Answer:
        self._heard()
        return self.once(intent, act)

    def _by_signal(self, intent: Intent, refusal: str | None, act: Callable[[], str]) -> None:
        if refusal and intent.id not in self.s.intents:
            self.note("Refused", refusal)
        else:
            self._once(intent, act)

    def _check(self, intent: Intent, refusal: str | None) -> None:
        if refusal and intent.id not in self.s.intents:
            raise ApplicationError(refusal, type="Refused", non_retryable=True)

    @workflow.update(name="apply")
    def apply(self, intent: PoolIntent) -> Answer:
        return self._once(intent, lambda: intents.apply(self, intent))

    @apply.validator
    def check_apply(self, intent: PoolIntent) -> None:
        self._check(intent, intents.refuse_apply(self, intent))

    @workflow.signal(name="apply")
    def apply_by_signal(self, intent: PoolIntent) -> None:
        self._by_signal(intent, intents.refuse_apply(self, intent), lambda: intents.apply(self, intent))

    @workflow.update(name="scale")
    def scale(self, intent: ScaleIntent) -> Answer:
        return self._once(intent, lambda: intents.scale(self, intent))

    @scale.validator
    def check_scale(self, intent: ScaleIntent) -> None:
        self._check(intent, intents.refuse_scale(self, intent))

    @workflow.signal(name="scale")
    def scale_by_signal(self, intent: ScaleIntent) -> None:
        self._by_signal(intent, intents.refuse_scale(self, intent), lambda: intents.scale(self, intent))

    @workflow.update(name="undo")
    def undo(self, intent: UndoIntent) -> Answer:
        return self._once(intent, lambda: intents.undo(self, intent))

    @undo.validator
    def check_undo(self, intent: UndoIntent) -> None:
        self._check(intent, intents.refuse_undo(self, intent))

    @workflow.signal(name="undo")
    def undo_by_signal(self, intent: UndoIntent) -> None:
        self._by_signal(intent, intents.refuse_undo(self, intent), lambda: intents.undo(self, intent))

    @workflow.update(name="pause")
    def pause(self, intent: Intent) -> Answer:
        return self._once(intent, lambda: intents.pause(self, intent))

    @pause.validator
    def check_pause(self, intent: Intent) -> None:
        self._check(intent, intents.refuse_change(self))

    @workflow.signal(name="pause")
    def pause_by_signal(self, intent: Intent) -> None:
        self._by_signal(intent, intents.refuse_change(self), lambda: intents.pause(self, intent))

    @workflow.update(name="resume")
    def resume(self, intent: Intent) -> Answer:
        return self._once(intent, lambda: intents.resume(self, intent))

    @resume.validator
    def check_resume(self, intent: Intent) -> None:
        self._check(intent, intents.refuse_change(self))

    @workflow.signal(name="resume")
    def resume_by_signal(self, intent: Intent) -> None:
        self._by_signal(intent, intents.refuse_change(self), lambda: intents.resume(self, intent))

    @workflow.update(name="abort")
    def abort(self, intent: Intent) -> Answer:
        return self._once(intent, lambda: intents.abort(self, intent))

    @abort.validator
    def check_abort(self, intent: Intent) -> None:
        self._check(intent, intents.refuse_abort(self))

    @workflow.signal(name="abort")
    def abort_by_signal(self, intent: Intent) -> None:
        self._by_signal(intent, intents.refuse_abort(self), lambda: intents.abort(self, intent))

    @workflow.update(name="restart")
    def restart(self, intent: Intent) -> Answer:
        return self._once(intent, lambda: intents.restart(self, intent))

    @restart.validator
    def check_restart(self, intent: Intent) -> None:
        self._check(intent, intents.refuse_change(self))

    @workflow.signal(name="restart")
    def restart_by_signal(self, intent: Intent) -> None:
        self._by_signal(intent, intents.refuse_change(self), lambda: intents.restart(self, intent))

    @workflow.update(name="hibernate")
    def hibernate(self, intent: Intent) -> Answer:
        return self._once(intent, lambda: intents.hibernate(self, intent))

    @hibernate.validator
    def check_hibernate(self, intent: Intent) -> None:
        self._check(intent, intents.refuse_change(self))

    @workflow.signal(name="hibernate")
    def hibernate_by_signal(self, intent: Intent) -> None:
        self._by_signal(intent, intents.refuse_change(self), lambda: intents.hibernate(self, intent))

    @workflow.update(name="wake")
    def wake(self, intent: Intent) -> Answer:
        return self._once(intent, lambda: intents.wake(self, intent))

    @wake.validator
    def check_wake(self, intent: Intent) -> None:
        self._check(intent, intents.refuse_change(self))

    @workflow.signal(name="wake")
    def wake_by_signal(self, intent: Intent) -> None:
        self._by_signal(intent, intents.refuse_change(self), lambda: intents.wake(self, intent))

    @workflow.update(name="delete")
    def delete(self, intent: DeleteIntent) -> Answer:
        return self._once(intent, lambda: intents.delete(self, intent))

    @workflow.signal(name="delete")
    def delete_by_signal(self, intent: DeleteIntent) -> None:
        self._once(intent, lambda: intents.delete(self, intent))
