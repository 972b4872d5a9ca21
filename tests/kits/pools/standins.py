"""Stand-ins for a pool's workflow: machines that obey and say what the test wants, and what gets in the way of its
activities.

A machine's class says how it behaves (`habits` of the provider spec), or the test does later (signal `be`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from machine.stubs import not_yet
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from planners.machine.hot_update import rolling_hash
from resources.cluster.news import ClusterNews
from resources.fleet.member import PreserveWish, Trouble, Vm
from resources.fleet.membership import (
    MarkNodesInput,
    MemberReport,
    PermitGranted,
    PreserveGrant,
    SlotTaken,
    TemplateNews,
)
from resources.machine.intents import DeleteIntent, RepairIntent
from resources.machine.preservation import PreservedBy
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassId, ReportInput
from resources.owner import OwnerRef

MUTE, UNBORN, SLOW, NEVER_JOINS = "mute", "unborn", "slow", "never joins"
"""Says nothing at all · says that it is there · gets a VM and waits · gets a VM, and is then Failed. With none of these
it joins."""
LINGERS, DEAF = "lingers", "deaf"
"""Is Terminating, or Failed and not drained, until the test lets it go on · does not take a changed template."""
ASKED_LATE, SLOW_TO_KEEP = "asked late", "slow to keep"
"""Somebody has asked for its preservation, which its pool has not heard · it was granted that, and does not say yet
that it is preserved."""


# -- machines ---------------------------------------------------------------------------------------------------------


@workflow.defn(name="MachineWorkflow", sandboxed=False)
class PlayedMachine:
    """Sends its reports one after the other, so that none overtakes another."""

    @workflow.init
    def __init__(self, state: MachineState) -> None:
        assert state.machine_class
        assert state.owner
        self.s = state
        self.habits = list(state.machine_class.provider_spec.get("habits", ()))
        self.heard: list[tuple[str, Any]] = []
        self.untold: list[MemberReport] = []
        self.over = False
        self.now: dict[str, Any] = {"seq": 0, "phase": Phase.PENDING, "vm": Vm.UNBORN, "template": state.template}
        self.now |= {"since": workflow.now(), "placement": state.placement}

    @workflow.run
    async def run(self, state: MachineState) -> None:
        if MUTE not in self.habits:
            self.be_born()
        while not self.over or self.untold:
            await workflow.wait_condition(lambda: self.over or bool(self.untold))
            while self.untold:
                pool = workflow.get_external_workflow_handle(self.s.owner.workflow_id(self.s.cluster))
                with contextlib.suppress(Exception):
                    await pool.signal("report", self.untold.pop(0))

    def be_born(self) -> None:
        """Who comes to life without trouble says so once: each report costs all of them several workflow tasks."""
        if UNBORN in self.habits:
            self.say()
        elif NEVER_JOINS in self.habits:
            self.say(vm=Vm.LIVES)
            self.say(phase=Phase.FAILED, trouble=Trouble.JOIN, drained=True, message="no Node came")
        elif SLOW in self.habits:
            self.say(vm=Vm.LIVES)
        else:
            self.say(vm=Vm.LIVES, phase=Phase.RUNNING)

    def say(self, **changes: Any) -> None:
        if changes.get("phase", self.now["phase"]) != self.now["phase"]:
            self.now["since"] = workflow.now()
        once = {k: changes.pop(k) for k in ("failure", "machine_class", "hash") if k in changes}
        self.now |= {"seq": self.now["seq"] + 1, **changes}
        self.untold.append(MemberReport.model_validate({"machine": self.s.name, **self.now, **once}))

    @workflow.signal
    def be(self, changes: dict[str, Any]) -> None:
        """`habits` are for the test to change, too."""
        self.habits = changes.pop("habits", self.habits)
        self.over = self.over or bool(changes.get("ended"))
        if changes:
            self.say(**changes)

    @workflow.signal
    def delete(self, intent: DeleteIntent) -> None:
        self.heard.append(("delete", intent))
        if LINGERS not in self.habits and not self.over:
            self.over = True
            self.say(phase=Phase.TERMINATING, vm=Vm.GONE, ended=True)
        elif self.now["phase"] is not Phase.TERMINATING:
            self.say(phase=Phase.TERMINATING)

    @workflow.signal
    def repair(self, intent: RepairIntent) -> None:
        self.heard.append(("repair", intent))
        if ASKED_LATE in self.habits:
            self.say(keep=PreserveWish.ASKED)
        elif self.now["phase"] == Phase.FAILED and not self.now.get("preserved_until"):
            self._go()

    @workflow.signal
    def preserve_granted(self, grant: PreserveGrant) -> None:
        self.heard.append(("preserve_granted", grant))
        if SLOW_TO_KEEP not in self.habits and self.now["phase"] == Phase.FAILED:
            until = workflow.now() + timedelta(hours=72)
            self.say(preserved_until=until, preserved_by=grant.by, keep=PreserveWish.UNDECIDED)

    @workflow.signal
    def slot_taken(self, news: SlotTaken) -> None:
        self.heard.append(("slot_taken", news))
        if self.now.get("preserved_by") == PreservedBy.AUTO:
            self._go()

    def _go(self) -> None:
        self.over = True
        kept = {"preserved_until": None, "preserved_by": PreservedBy.NOBODY, "keep": PreserveWish.UNDECIDED}
        self.say(phase=Phase.TERMINATING, vm=Vm.GONE, ended=True, **kept)

    @workflow.signal
    def permit(self, permit: PermitGranted) -> None:
        self.heard.append(("permit", permit))
        if self.now["phase"] == Phase.UNKNOWN and self.now.get("asks"):
            self.say(phase=Phase.FAILED, trouble=Trouble.HEALTH, drained=LINGERS not in self.habits)

    @workflow.signal
    def template_changed(self, news: TemplateNews) -> None:
        self.heard.append(("template_changed", news))
        if DEAF not in self.habits:
            self.say(template=news.generation)

    @workflow.signal
    def report_again(self) -> None:
        self.heard.append(("report_again", None))
        made_from = self.s.machine_class
        if MUTE not in self.habits and made_from:
            self.say(machine_class=made_from.name, hash=rolling_hash(made_from.provider, made_from.provider_spec))

    @workflow.query
    def what(self) -> list[str]:
        return [name for name, _ in self.heard]

    @workflow.query
    def deletions(self) -> list[DeleteIntent]:
        return [said for name, said in self.heard if name == "delete"]

    @workflow.query
    def describe(self) -> MachineState:
        return self.s


# -- activities -------------------------------------------------------------------------------------------------------


@dataclass
class Calls(Interceptor):
    """Writes down what the pool's activities do, and gets in their way. By activity type: errors to raise `before` or
    `after` the activity, one for each attempt, and `holds`: the activity waits until the event is set."""

    client: Client
    done: list[tuple[str, Any]] = field(default_factory=list)
    """Attempts that have begun."""
    before: dict[str, deque[Exception]] = field(default_factory=dict)
    after: dict[str, deque[Exception]] = field(default_factory=dict)
    instead: dict[str, deque[Any]] = field(default_factory=dict)
    """Answers instead of running the activity."""
    holds: dict[str, asyncio.Event] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds that such an activity takes."""
    classes: dict[str, ClassSnapshot] = field(default_factory=dict)
    """Classes that can be asked."""
    first_news: ClusterNews | None = field(default_factory=lambda: ClusterNews(time=datetime(2026, 1, 1, tzinfo=UTC)))
    """What the cluster answers when the pool makes itself known."""

    def of(self, name: str) -> list[Any]:
        return [input for n, input in self.done if n == name]

    def fail(self, name: str, *errors: Exception, after: bool = False) -> None:
        (self.after if after else self.before).setdefault(name, deque()).extend(errors)

    def hold(self, name: str) -> asyncio.Event:
        self.holds[name] = asyncio.Event()
        return self.holds[name]

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Call(next, self)

    @activity.defn(name="mark_nodes")
    async def mark(self, input: MarkNodesInput) -> None: ...

    @activity.defn(name="register_pool")
    async def register(self, input: OwnerRef) -> None:
        if self.first_news is not None:
            owner = self.client.get_workflow_handle(input.workflow_id(input.cluster))
            await owner.signal("cluster_news", self.first_news)

    @activity.defn(name="report_to_class")
    async def report(self, input: ReportInput) -> bool:
        return True

    @activity.defn(name="ask_class")
    async def ask(self, input: ClassId) -> ClassSnapshot:
        if input.name not in self.classes:
            raise not_yet(f"class {input.name} is not there", timedelta(seconds=0.2))
        return self.classes[input.name]


class _Call(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, calls: Calls) -> None:
        super().__init__(next)
        self.calls = calls

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name, calls = activity.info().activity_type, self.calls
        calls.done.append((name, input.args[0]))
        if name in calls.holds:
            await calls.holds[name].wait()
        await asyncio.sleep(calls.slow.get(name, 0))
        if errors := calls.before.get(name):
            raise errors.popleft()
        if answers := calls.instead.get(name):
            return answers.popleft()
        answer = await super().execute_activity(input)
        if errors := calls.after.get(name):
            raise errors.popleft()
        return answer
