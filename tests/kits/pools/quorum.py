"""A second kind of owner, made up, which keeps the seam for owners honest: it is as unlike a pool as it can be.

There is one per cluster, without a manifest. It has two machines, each in a place of its own; it repairs one at a time,
and rolls nothing. What it does not write itself, a control plane need not write either.
"""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

from workflows.entity import intent
from workflows.fleet.life import live
from workflows.fleet.workflow import FleetWorkflow
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from planners.fleet import permits
    from planners.fleet.steps import Create, Delete, GrantPermit, Plan, Step, Wait
    from planners.machine.hot_update import rolling_hash
    from planners.words import named
    from resources import attributes as at
    from resources.fleet.revision import Revision
    from resources.fleet.state import FleetState
    from resources.intents import Intent
    from resources.machine.intents import DeleteIntent
    from resources.machine.manifest import MachineTemplate
    from resources.machine.placement import Placement
    from resources.machine.state import ClassSnapshot, Phase
    from resources.markdown import plain
    from resources.owner import Owner, OwnerKind

QUORUM = OwnerKind("Quorum", "quorum", "QuorumWorkflow", "quorum", only="main")
PLACES = (Placement(index=0, zone="a"), Placement(index=1, zone="b", failure_domain="rack-7"))


class QuorumState(FleetState):
    made_from: MachineTemplate


class TemplateIntent(Intent):
    made_from: MachineTemplate


def plan(s: QuorumState) -> Plan:
    """One machine for each place, one repair at a time, nothing in a paused cluster."""
    steps: list[Step] = []
    staying = {n: m for n, m in s.members.items() if not m.leaving}
    if s.deleted:
        steps += [Delete(tuple(staying), "Deleted", "it is deleted")] if staying else []
        return Plan(tuple(steps))
    failed = tuple(n for n, m in staying.items() if m.phase is Phase.FAILED and m.drained)
    steps += [Delete(failed, "Unhealthy", f"{named(failed)} failed")] if failed else []
    under_way = sum(permits.repaired(m) for m in s.members.values())
    granted, _ = permits.in_turn(staying, permits.asking(staying), under_way, 1)
    steps += [GrantPermit(tuple(granted), "RepairGranted", f"{named(granted)} may be repaired")] if granted else []
    taken = {m.placement for n, m in staying.items() if n not in failed}
    steps += [Create(1, s.revision, "Missing", "a place is empty", place) for place in PLACES if place not in taken]
    if s.news is not None and s.news.paused and steps:
        return Plan((), (Wait("ClusterPaused", "the cluster is paused"),))
    return Plan(tuple(steps))


def change(q: QuorumWorkflow, intent: TemplateIntent) -> str:
    s = q.s
    s.made_from, s.template, s.told = intent.made_from, s.template + 1, {}
    s.revisions[-1] = s.revisions[-1].model_copy(update={"template": s.made_from})
    return "changed"


def delete(q: QuorumWorkflow, intent: DeleteIntent) -> str:
    q.s.deleted = True
    return "being deleted"


@workflow.defn
class QuorumWorkflow(FleetWorkflow):
    s: QuorumState

    @workflow.init
    def __init__(self, state: QuorumState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: QuorumState) -> None:
        await self.keep(self._live)

    async def _live(self) -> None:
        await self.stand_still()
        await live(self)

    @property
    def owner(self) -> Owner:
        return Owner(kind=QUORUM.manifest, name=self.s.name)

    @property
    def class_name(self) -> str:
        return self.s.made_from.spec.class_.name

    @property
    def replicas(self) -> int:
        return len(PLACES)

    def plan(self, now: datetime) -> Plan:
        return plan(self.s)

    def take_class(self, machine_class: ClassSnapshot, by: str, reason: str) -> None:
        s = self.s
        s.machine_class, made = machine_class, rolling_hash(machine_class.provider, machine_class.provider_spec)
        if not s.revisions:
            first = Revision(
                counter=1, machine_class=machine_class, hash=made, template=s.made_from, created=workflow.now()
            )
            s.revisions.append(first)

    @workflow.query
    def describe(self) -> QuorumState:
        return self.s

    change = intent(TemplateIntent, change)
    delete = intent(DeleteIntent, delete)

    def publish(self) -> None:
        self.upsert({at.CLUSTER: self.s.cluster, at.CLASS: self.class_name, at.PHASE: "Ready"})
        show(plain(str(self.owner)))

    @property
    def to_end(self) -> str:
        return "delete it to end it"
