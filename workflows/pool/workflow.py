"""MachineDeploymentWorkflow: the handlers of a pool. They only record; the loop in life.py acts.

Identity: `machinedeployment/<cluster>/<name>`. Started by `hostler apply`, or by a person with plain JSON. Ends when it
is deleted and each of its machines is confirmed gone. It alone plans, makes and deletes its machines.
"""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.entity import ORDERS, intent
from workflows.fleet.members import forget
from workflows.pool import intents, story, views
from workflows.pool.entity import PoolEntity
from workflows.pool.life import live
from workflows.pool.revise import take_class

with workflow.unsafe.imports_passed_through():
    from planners.pool import hearing, pace
    from planners.words import some
    from resources.cluster.news import ClusterNews
    from resources.fleet.member import Keep
    from resources.fleet.membership import MemberReport, MembersFound
    from resources.intents import Answer, Intent
    from resources.machine.intents import DeleteIntent
    from resources.machine.state import ClassSnapshot
    from resources.machine_class.state import ClassNews
    from resources.names import is_name
    from resources.pool.intents import PoolIntent, PoolQuestion, PoolSummary, Rehearsal, ScaleIntent, UndoIntent
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
            ):  # it was asked, so it is ours, of a former workflow of this pool
                self._meet(report)
            elif report.machine not in (*self.ended, *s.expected) and workflow.patched("pool-strangers"):
                # As far as anybody knows, a run of this pool that a reset cut off made it: it is asked how it is.
                s.expected.append(report.machine)
                self.deadlines.pop("expected", None)
            return
        if not self.is_newer(report.seq, member.seq) and report.machine not in s.lost:
            return
        if report.template > s.template and workflow.patched(ORDERS):
            self._outbid(report.template)
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
            words = "to be preserved" if preserved else f"{heard.phase} again"
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
        if report.template >= s.template:
            self._outbid(report.template)
        self.note("MemberFound", f"machine {report.machine} existed before this workflow, and belongs to the pool")

    def _outbid(self, generation: int) -> None:
        """Raises the template's generation: a machine has one from a former workflow, or from nobody, and ours must be
        newer to be taken."""
        self.s.template, self.s.told = generation + 1, {}

    @workflow.signal
    def member_ended(self, name: str) -> None:
        """A worker has seen that a machine's workflow did not come to its own end, which the machine cannot tell."""
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
        s.class_told = ""  # the sender has not heard that it is known

    @workflow.signal
    def cluster_news(self, news: ClusterNews) -> None:
        self._heard()
        if self.s.news is None or not self.is_older(news.time, self.s.news.time):
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
        """The pool in numbers, small whatever its size."""
        return views.summary(self.s, self.view())

    @workflow.query
    def rehearse(self, question: PoolQuestion) -> Rehearsal:
        """What the pool would do, by its own planner. A query leaves no history."""
        return views.rehearse(self.s, question, workflow.now(), self.hashing)

    # -- intents: each by update and by signal ------------------------------------------------------------------------

    def once(self, intent: Intent, act: Callable[[], str]) -> Answer:
        self._heard()
        return super().once(intent, act)

    apply = intent(PoolIntent, intents.apply, intents.refuse_apply)
    scale = intent(ScaleIntent, intents.scale, intents.refuse_scale)
    undo = intent(UndoIntent, intents.undo, intents.refuse_undo)
    pause = intent(Intent, intents.pause, intents.refuse_change)
    resume = intent(Intent, intents.resume, intents.refuse_change)
    abort = intent(Intent, intents.abort, intents.refuse_abort)
    restart = intent(Intent, intents.restart, intents.refuse_change)
    hibernate = intent(Intent, intents.hibernate, intents.refuse_change)
    wake = intent(Intent, intents.wake, intents.refuse_change)
    delete = intent(DeleteIntent, intents.delete)
