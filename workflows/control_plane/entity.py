"""What the parts of a control plane's workflow share: its state as the planner sees it, its machines' names and holds,
and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.control_plane.details import details
from workflows.fleet import members, revise
from workflows.fleet.workflow import FleetWorkflow
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from planners.control_plane.adoption import place_of, revision_of
    from planners.control_plane.alike import SetWanted
    from planners.control_plane.etcd import Act
    from planners.control_plane.holding import with_hold
    from planners.control_plane.lending import refusal_to_lend
    from planners.control_plane.observe import domains_of, index_of, observe
    from planners.control_plane.plan import plan
    from planners.control_plane.status import status
    from planners.control_plane.view import Observed
    from planners.fleet import hearing
    from planners.fleet.revisions import Wanted
    from planners.fleet.steps import Create, Delete, Plan
    from resources import attributes as at
    from resources.control_plane.etcd import EtcdView
    from resources.control_plane.spec import State, hold_of
    from resources.control_plane.state import ControlPlaneState, HostNews
    from resources.fleet.member import Member
    from resources.fleet.membership import MemberReport, PlaceNews
    from resources.fleet.revision import Revision
    from resources.machine.manifest import MachineTemplate
    from resources.machine.placement import Placement
    from resources.machine.state import ClassSnapshot, MachineState
    from resources.owner import CONTROL_PLANE, Owner

RENEW_AFTER = 150
"""The messages in one run: some 1,000 events, which a worker that has lost the run reads again within a second. An
update of three machines takes 25 messages."""
FRESH = timedelta(minutes=1)
"""How old a look at the control plane's Nodes may be when a machine is created or deleted."""


@dataclass
class EtcdCall:
    handle: workflow.ActivityHandle[EtcdView]
    act: Act | None
    """What it changes; None: it watches."""
    leaving: list[str]
    """The machines that were leaving when it began."""


class ControlPlaneEntity(FleetWorkflow):
    s: ControlPlaneState

    def __init__(self, state: ControlPlaneState) -> None:
        super().__init__(state)
        self.must_look = True
        """Whether the Nodes of the control plane are to be looked at now."""
        self.looking = False
        self.worst_first = workflow.patched("controlplane-worst-first")
        """Whether lists show the worst of its waits while it is paused; not in a run that began before."""
        self.placing: set[str] = set()
        """Machines that are being told their place."""
        self.etcd_call: EtcdCall | None = None
        """What is being asked of the etcd that is guarded."""

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        return Owner(kind=CONTROL_PLANE.manifest, name=self.s.name)

    @property
    def class_name(self) -> str:
        return self.s.class_name

    @property
    def replicas(self) -> int:
        return self.s.spec.replicas

    @property
    def template(self) -> MachineTemplate:
        """The template of its machines, with the hold: one that only looks on holds nobody."""
        spec = self.s.spec
        return with_hold(spec.template, hold_of(self.owner.user)) if spec.state is State.ACTIVE else spec.template

    def comparing(self, wanted: Wanted) -> Wanted:
        domains = self.s.spec.failure_domains
        return SetWanted(**{**vars(super().comparing(wanted)), "domains": domains})

    def take_class(self, machine_class: ClassSnapshot, by: str, reason: str) -> None:
        revise.take_class(self, self.template, machine_class, by, reason)

    # -- planning -----------------------------------------------------------------------------------------------------

    def observed(self) -> Observed:
        return observe(self.s, workflow.now(), self.worst_first)

    def plan(self, now: datetime) -> Plan:
        """The plan, whose changes wait for a fresh look at the Nodes: one that nobody knows closes a gate."""
        self.s.domains = domains_of(self.s)
        made = plan(observe(self.s, now, self.worst_first), now)
        changes = [s for s in made.steps if isinstance(s, Create | Delete)]
        seen = self.s.nodes_seen
        if not changes or (seen is not None and now - seen < FRESH):
            return made
        self.must_look = True
        return Plan(tuple(s for s in made.steps if s not in changes), made.waits, made.next_look)

    def may_lend(self, machine: str) -> str:
        return refusal_to_lend(self.observed(), machine)

    def follow_conditions(self) -> None:
        """Keeps the conditions, with the time from which each has its status."""
        s, now = self.s, workflow.now()
        known = {c.type: c for c in s.conditions}
        found = []
        for condition in status(self.observed()).conditions:
            former = known.get(condition.type)
            since = former.since if former is not None and former.status == condition.status else now
            found.append(condition.model_copy(update={"since": since}))
            over = former is not None and former.status and condition.reason == "AllReplicasUpdated"
            if over:
                self.note("ControlPlaneUpdated", f"every index has one machine, of revision {s.revision}")
        s.conditions = found

    # -- its machines -------------------------------------------------------------------------------------------------

    def new_name(self, revision: Revision, placement: Placement | None, letters: str) -> str:
        """`<prefix>-<letters>-<index>`, as OpenShift has it."""
        index = placement.index if placement is not None else 0
        return f"{self.s.spec.name_prefix or f'{self.s.cluster}-master'}-{letters}-{index}"

    def machine_of(self, name: str) -> MachineState:
        fields = self.s.fields_of(self.s.members[name].placement)
        return super().machine_of(name).model_copy(update={"domain": fields})

    @property
    def messages_most(self) -> int:
        early = self.s.messages >= RENEW_AFTER and workflow.patched("controlplane-short-runs")
        return RENEW_AFTER if early else super().messages_most

    @property
    def tells_template(self) -> bool:
        return super().tells_template and self.s.spec.state is State.ACTIVE

    def heard(self, report: MemberReport) -> None:
        s = self.s
        known = s.hosts.get(report.machine, HostNews())
        name = report.made_from.name if report.made_from is not None else known.machine_class
        s.hosts[report.machine] = HostNews(
            place=report.place or PlaceNews(),
            placement=report.placement,
            trouble=report.message,
            machine_class=name,
            lifted=known.lifted,
        )
        s.unmanaged = {node: machine for node, machine in s.unmanaged.items() if machine != report.machine}

    def met(self, report: MemberReport) -> Member:
        """A machine that it did not make: its index and failure domain are found, and what it was made from."""
        s = self.s
        taken = {index_of(m) for m in s.members.values()}
        place = report.placement
        if place is None or place.index is None:
            place = place_of(report.machine, report.made_from, taken, domains_of(s), s.spec.failure_domains)
        made_like = revision_of(report.made_from, s.revisions, s.fields_of(place))
        member = Member(made_like, report.since, report.since, placement=place)
        return hearing.hear(member, report.model_copy(update={"placement": place}), s.revisions)

    def lift(self, names: Sequence[str]) -> None:
        for name in names:
            known = self.s.hosts.get(name, HostNews())
            self.s.hosts[name] = known.model_copy(update={"lifted": True})
        members.lift_hold(self, names, hold_of(self.owner.user))

    def repeat(self) -> None:
        self.placing.clear()
        if lifted := [n for n, news in self.s.hosts.items() if news.lifted and news.place.held and n in self.s.members]:
            members.lift_hold(self, lifted, hold_of(self.owner.user))

    # -- Entity -------------------------------------------------------------------------------------------------------

    def _phase(self, seen: Observed) -> str:
        s = self.s
        conditions = {c.type: c for c in status(seen).conditions}
        if s.parked:
            return "Parked"
        if s.deleted:
            return "Deleting"
        if s.spec.state is State.INACTIVE:
            return "Inactive"
        if conditions["Degraded"].status:
            return "Stopped"
        if seen.paused:
            return "Paused"
        return "Rolling" if conditions["Progressing"].status else "Ready"

    def publish(self) -> None:
        s, seen = self.s, self.observed()
        values = {
            at.CLUSTER: s.cluster,
            at.POOL: self.owner.listed,
            at.CLASS: s.class_name,
            at.PHASE: self._phase(seen),
            at.REASON: "InternalError" if s.parked else s.waits[0].reason if s.waits else None,
        }
        self.upsert(values)
        show(details(s, seen))

    @property
    def to_end(self) -> str:
        return "use `hostler delete controlplane` to end it; its machines stay"
