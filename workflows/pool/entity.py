"""What the parts of a pool's workflow share: its state as planners see it, and its words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from temporalio import workflow

from workflows.fleet.workflow import FleetWorkflow
from workflows.page import show
from workflows.pool.details import details

with workflow.unsafe.imports_passed_through():
    from planners.fleet import template as hot
    from planners.fleet.revisions import Revised, Wanted
    from planners.fleet.steps import HELD, STOPPED, Plan
    from planners.machine.hot_update import HASH_VERSION
    from planners.pool import brake, gates, progress
    from planners.pool.lending import refusal_to_lend
    from planners.pool.plan import complete, plan
    from planners.pool.view import ObservedPool, UpdateTurn, View
    from resources import attributes as at
    from resources.fleet.member import Member
    from resources.fleet.membership import MemberReport
    from resources.maintenance import Opening
    from resources.owner import Owner
    from resources.pool.manifest import MachineDeploymentSpec
    from resources.pool.rollout import RolloutNews
    from resources.pool.state import Gate, PoolState, Rollout

ORDINARY = (
    "RolledOut",
    "Replaced",
    "ReplacedUnavailable",
    "RolloutMarks",
    "ReplicasMissing",
    "NewMachinesNotReady",
    "NewMachinesFail",
    "WaitsForVMsToGo",
    "SlowStart",
)
ORDINARY_KEPT = 4
"""How many of each the journal keeps, the newest."""


class PoolEntity(FleetWorkflow):
    s: PoolState

    def __init__(self, state: PoolState) -> None:
        super().__init__(state)
        self.braked = workflow.patched("pool-brakes")
        """Whether planners.pool.brake holds the pool; it does not hold a run that began before there were brakes. Asked
        here, before any report."""
        self.telling = workflow.patched("pool-says-causes")
        """Whether waits last as long as their cause, and name it; not in a run that began before."""
        self.lasting = workflow.patched("pool-outage-hides-nothing")
        """Whether an outage leaves the wait of what had stopped before it; not in a run that began before."""
        self.hashing = HASH_VERSION if workflow.patched("lasting-hashes") else 1
        # A run that began with version 1 ends with it.
        self.approving = False
        """Whether nothing is made of a revision that no person has approved; not in a run that began before that."""
        self.marking = False
        """Whether Nodes are being marked."""
        self.beginning: set[int] = set()
        """Rollouts whose stories are being started."""
        self.told_news: RolloutNews | None = None
        """What the story of the rollout was told last."""
        self.working_out = False
        """Whether it is being worked out what the maintenance windows come to."""
        self.asking: Any = None
        """The question about the pool before that is under way (workflows/pool/gates.py)."""
        self.in_turn = False
        """Whether machines take a changed template after those of the pool that their annotation names; not in a run
        that began before that."""
        self.awaiting_turn: Any = None
        """The wait for that pool that is under way, likewise."""

    def note(self, reason: str, message: str) -> None:
        """Keeps ordinary lines of a rollout from pushing out what people did: its own story has each step."""
        if reason in ORDINARY:
            own = [h for h in self.journal if h.reason == reason]
            self.journal[:] = [h for h in self.journal if h not in own[: len(own) - ORDINARY_KEPT + 1]]
        super().note(reason, message)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> MachineDeploymentSpec:
        """The spec that counts: a person's pause adds to the manifest's."""
        spec = self.s.spec
        return spec.model_copy(update={"paused": True}) if self.s.paused and not spec.paused else spec

    def observed(self) -> ObservedPool:
        s, known = self.s, gates.of(self.s)
        if self.openings() is not None:
            untold = s.held.machines if s.held is not None and s.held.machine_class == self.class_name else 0
            known = replace(known, updates=max(len(hot.pending(s.members, s.template)), untold))
        known = replace(known, turn=self.turn)
        return ObservedPool(
            members=s.members,
            revision=s.revision,
            rollout=s.rollout,
            back=bool(s.revisions) and s.revisions[-1].back,
            gates=known,
            unfinished=s.rolling_out,
            pace=s.pace,
            deleted=s.deleted,
            cluster_paused=s.news is not None and s.news.paused,
            reachable=not s.unseen,
            braked=self.braked,
            approved=s.approved if self.approving else 0,
            lent=frozenset(s.lent),
            telling=self.telling,
            lasting=self.lasting,
        )

    def openings(self) -> Sequence[Opening] | None:
        return gates.openings(self.s.spec, gates.of(self.s), workflow.now())

    @property
    def turn(self) -> UpdateTurn | None:
        """Whose machines take a changed template before its own."""
        return gates.turn(self.s) if self.in_turn else None

    @property
    def tells_template(self) -> bool:
        return super().tells_template and self._learn_turn() is None

    def _learn_turn(self) -> UpdateTurn | None:
        if not self.in_turn and gates.turn(self.s) is not None:
            self.in_turn = workflow.patched("pool-updates-in-turn")
        return self.turn

    def view(self) -> View:
        return View(self.observed(), self.spec, workflow.now())

    # -- FleetEntity --------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        return Owner(name=self.s.name)

    @property
    def class_name(self) -> str:
        return self.s.spec.template.spec.class_.name

    @property
    def replicas(self) -> int:
        return self.s.spec.replicas

    @property
    def history_limit(self) -> int:
        return self.s.spec.revision_history_limit

    @property
    def making(self) -> int:
        rollout = self.s.rollout
        return self.view().making if rollout is not None and rollout.consent is not None else self.s.revision

    @property
    def needed(self) -> int:
        return (self.s.approved or self.s.revision) if self.s.spec.approval.required else 0

    def comparing(self, wanted: Wanted) -> Wanted:
        goes_back = workflow.patched("pool-goes-back")
        return replace(super().comparing(wanted), enough=self.replicas if goes_back else None)

    def revised(self, revised: Revised) -> None:
        if self.s.approved in revised.twins:
            self.s.approved = revised.revisions[-1].counter

    def plan(self, now: datetime) -> Plan:
        s = self.s
        self._learn_turn()
        if self.spec.approval.required and not self.approving:
            self.approving = workflow.patched("pool-approved-only")
        if self.approving:
            self._settle_approved()
            s.rollout = self._followed(now)  # what is made decides whose pace counts
        s.pace = brake.follow(self.observed(), self.spec, now)
        s.rollout = self._followed(now)
        if not self.view().unapproved:
            s.approved = s.revision
        made = plan(self.observed(), self.spec, now)
        s.rollout = progress.lose(s.rollout, made.steps, s.members, self.braked)
        return made

    def _settle_approved(self) -> None:
        """Finds out what an older worker did not keep: while an approval was asked for, machines were of what was
        approved before."""
        s = self.s
        consent = s.rollout.consent if s.rollout is not None else None
        if not s.approved and consent is not None and consent.given is None:
            s.approved = max((m.revision for m in s.members.values() if m.revision < s.revision), default=0)

    def may_lend(self, machine: str) -> str:
        return refusal_to_lend(self.view(), machine)

    def _followed(self, now: datetime) -> Rollout | None:
        former = self.s.rollout
        found = progress.follow(self.observed(), self.spec, now)
        if former is not None and found is not None and former.gate is not found.gate is Gate.ABORTED:
            words = f"nobody approved revision {found.revision} in time: its rollout is aborted"
            self.tell_story("ApprovalExpired", words)
        return found

    def tell_story(self, reason: str, message: str) -> None:
        """Notes it, also as a step of the newest rollout."""
        self.note(reason, message)
        if (story := self.s.stories.get(self.s.revision)) is not None:
            told = [*story.untold, self.journal[-1]]
            self.s.stories[self.s.revision] = story.model_copy(update={"untold": told})

    def met(self, report: MemberReport) -> Member:
        """Besides, a rollout of the former workflow may have left its marks."""
        return super().met(report)._replace(marks_due=True)

    def signalled(self, task: asyncio.Task[None]) -> None:
        super().signalled(task)
        if any(story.outcome for story in self.s.stories.values()):
            self.news = True  # its end waits until all else is taken

    # -- Entity -------------------------------------------------------------------------------------------------------

    def _phase(self, view: View) -> str:
        s = self.s
        reasons = {w.reason for w in s.waits}
        if s.parked:
            return "Parked"
        if s.deleted:
            return "Deleting"
        if s.spec.hibernated:
            return "Hibernated"
        if reasons.intersection(STOPPED):
            return "Stopped"
        if reasons.intersection(HELD):
            return "Paused"
        if s.rollout is not None:
            return "Rolling"
        return "Ready" if complete(view) else "Scaling"

    def publish(self) -> None:
        s, view = self.s, self.view()
        values = {
            at.CLUSTER: s.cluster,
            at.POOL: s.name,
            at.CLASS: s.spec.template.spec.class_.name,
            at.PHASE: self._phase(view),
            at.REASON: "InternalError" if s.parked else s.waits[0].reason if s.waits else None,
        }
        self.upsert(values)
        show(details(s, view))

    @property
    def to_end(self) -> str:
        return "use `hostler delete pool` to end it"
