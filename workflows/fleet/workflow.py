"""What whoever owns machines hears: its machines' reports, its class and its cluster. Handlers only record; the loop in
life.py acts."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow

from workflows.entity import ORDERS
from workflows.fleet import lending
from workflows.fleet.entity import FleetEntity
from workflows.fleet.members import forget
from workflows.fleet.revise import supersede

with workflow.unsafe.imports_passed_through():
    from planners.fleet import hearing, pace
    from resources.cluster.news import ClusterNews
    from resources.fleet.lending import Borrowing
    from resources.fleet.member import Member, PreserveWish
    from resources.fleet.membership import MemberReport
    from resources.intents import Answer, Intent
    from resources.machine_class.state import ClassNews, UpdatesHeld


class FleetWorkflow(FleetEntity):
    def met(self, report: MemberReport) -> Member:
        """The member for a machine that is older than this workflow, from its first report."""
        return hearing.first_heard(report, self.s.revisions)

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
            if report.hash and report.machine not in self.ended:  # it was asked, so it is ours, of a former workflow
                self._meet(report)
            elif report.machine not in (*self.ended, *s.expected) and workflow.patched("pool-strangers"):
                # As far as anybody knows, a run that a reset cut off made it: it is asked how it is.
                s.expected.append(report.machine)
                self.deadlines.pop("expected", None)
            return
        if not self.is_newer(report.seq, member.seq) and report.machine not in s.lost:
            return
        if report.template > s.template and workflow.patched(ORDERS):
            self._outbid(report.template)
        heard = hearing.hear(member, report, s.revisions, s.template)
        if member.revision == self.making:
            speed = pace.of(s.pace, member.revision)
            now, jitter = workflow.now(), workflow.random().random()
            s.pace = hearing.pace_after(
                speed, member, heard, report, self.replicas, s.timings, now, jitter, self.braked
            )
        s.members[report.machine] = heard
        if heard.template > member.template:
            s.superseded.pop(report.machine, None)
        self.heard(report)
        if member.repair and not heard.deleting:
            preserved = heard.keep is PreserveWish.ASKED or heard.preserved_until is not None
            words = "to be preserved" if preserved else f"{heard.phase} again"
            self.note("RepairRefused", f"machine {report.machine} is {words}, and is not deleted")
        if s.lost.pop(report.machine, None) is not None:
            # What it was told meanwhile did not reach it: template, delete, permit.
            s.told.pop(report.machine, None)
            self.deadlines["check"] = workflow.now()

    def _meet(self, report: MemberReport) -> None:
        s, word = self.s, self.owner.word
        s.members[report.machine] = self.met(report)
        self.heard(report)
        s.expected = [n for n in s.expected if n != report.machine]
        if report.template >= s.template:
            self._outbid(report.template)
        self.note("MemberFound", f"machine {report.machine} existed before this workflow, and belongs to the {word}")

    def _outbid(self, generation: int) -> None:
        """Raises the template's generation: a machine has one from a former workflow, or from nobody, and ours must be
        newer to be taken."""
        supersede(self, generation + 1)

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
        if wanted.name == self.class_name and not s.deleted:
            self.take_class(wanted, news.requested_by, news.reason)
        s.classes = list(dict.fromkeys([*s.classes, wanted.name]))
        s.class_told = ""  # the sender has not heard that it is known

    @workflow.signal
    def updates_held(self, news: UpdatesHeld) -> None:
        """Some of its machines wait for a window until its class tells them of a change, or no longer do."""
        self._heard()
        held = self.s.held
        if held is None or not self.is_older(news.time, held.time):
            self.s.held = news

    @workflow.signal
    def cluster_news(self, news: ClusterNews) -> None:
        self._heard()
        if self.s.news is None or not self.is_older(news.time, self.s.news.time):
            self.s.news = news

    @workflow.signal
    def lend(self, asked: Borrowing) -> None:
        """A config pool asks for a machine, or says that it still has it."""
        self._heard()
        lending.ask(self, asked)

    @workflow.signal
    def give_back(self, given: Borrowing) -> None:
        """A config pool is done with a machine."""
        self._heard()
        lending.back(self, given)

    def _heard(self) -> None:
        self.s.messages += 1
        self.news = True

    # -- intents -------------------------------------------------------------------------------------------------------

    def once(self, intent: Intent, act: Callable[[], str | None]) -> Answer:
        self._heard()
        return super().once(intent, act)
