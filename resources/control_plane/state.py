"""The state of a cluster's control plane: besides what every owner of machines knows, its spec, and what it hears of
its machines beyond what other owners need."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from resources.base import Count, Instant, Key, Name, Text, Value, Word
from resources.control_plane.etcd import EtcdView
from resources.control_plane.spec import ControlPlaneSpec
from resources.fleet.member import Permit, PreserveWish, Vm
from resources.fleet.membership import PlaceNews
from resources.fleet.state import FleetState
from resources.machine.placement import Placement
from resources.machine.state import Phase


class HostNews(Value):
    """What is known of a machine of the control plane, besides what is in its `Member`."""

    place: PlaceNews = Field(default_factory=PlaceNews)
    """What it reported."""
    placement: Placement | None = None
    """The place that it reported; it is told when it is not its own."""
    trouble: Text = ""
    """What keeps it from Running, in words; "" where nothing does."""
    machine_class: Name = ""
    """The class that it was made from, where it was found and not made here."""
    lifted: bool = False
    """Whether it was told that it need not stay."""


class SetCondition(Value):
    """A condition of the control plane, as in OpenShift's status."""

    type: Word
    """Available, Progressing, Degraded."""
    status: bool
    reason: Word
    message: Text = ""
    since: Instant | None = None
    """Since when it has this status; a planner does not know."""


class ControlPlaneState(FleetState):
    """The only argument of a control plane's workflow. A person may start one with plain JSON:

    {"cluster": "demo", "name": "cluster", "spec": {"template": {…}}}
    """

    spec: ControlPlaneSpec
    paused: bool = False
    """Whether a person has paused it: nothing is created and nothing marked for deletion."""
    paused_by: Text = ""
    hosts: dict[Key, HostNews] = Field(default_factory=dict)
    """What its machines have said, by name."""
    domains: dict[Count, Name] = Field(default_factory=dict)
    """The failure domain of each index."""
    unmanaged: dict[Name, Name] = Field(default_factory=dict)
    """Nodes of the control plane that belong to no machine of it, with the machine whose they are; "": nobody's."""
    nodes_seen: Instant | None = None
    """When the Nodes of the control plane were last looked at."""
    conditions: list[SetCondition] = Field(default_factory=list)
    etcd: EtcdView | None = None
    """What its guard saw of etcd last; None where etcd is not guarded, or was not seen yet."""
    etcd_for: list[Name] = Field(default_factory=list)
    """The machines that were leaving when it began to look."""
    etcd_trouble: Text = ""
    """Why etcd could not be looked at or changed, in words."""

    @property
    def leaving(self) -> list[str]:
        """Machines that leave, and those that Failed and are replaced, though they stay for a look: until they are
        drained, they leave etcd as well."""
        failing = (name for name, member in self.members.items() if not member.drained and self.kept(name))
        return sorted({*failing, *(name for name, member in self.members.items() if member.leaving)})

    def wanted(self, name: str) -> bool:
        """Whether somebody wants to keep this machine when it fails."""
        member, place = self.members[name], self.hosts.get(name, HostNews()).place
        undecided = member.phase is not Phase.FAILED or not member.drained
        asked = member.keep is PreserveWish.ASKED or (undecided and place.wanted)
        return asked or member.stays or member.preserved_until is not None

    def kept(self, name: str) -> bool:
        """Whether it is Failed, or may be, and is kept for a look: it is replaced, and stays."""
        member = self.members[name]
        failing = member.phase is Phase.FAILED or member.permit is Permit.GRANTED
        return failing and not member.leaving and member.vm is not Vm.GONE and self.wanted(name)

    @property
    def etcd_is_fresh(self) -> bool:
        """Whether etcd was seen since the last machine began to leave: an older look may not know its member."""
        return self.etcd is not None and set(self.leaving) <= set(self.etcd_for)

    def fields_of(self, placement: Placement | None) -> dict[str, Any]:
        """The fields of a machine's failure domain."""
        return self.spec.failure_domains.get(placement.failure_domain, {}) if placement is not None else {}

    @property
    def class_name(self) -> str:
        return self.spec.template.spec.class_.name

    @property
    def unseen(self) -> str:
        """Why its machines cannot be seen; "" if they can."""
        return self.unseen_of(self.class_name)
