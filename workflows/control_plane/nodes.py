"""The machines that a control plane finds by their Nodes, takes over, gives their place, and lets go at its end."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from temporalio import workflow

from workflows.control_plane.entity import ControlPlaneEntity
from workflows.fleet import members

with workflow.unsafe.imports_passed_through():
    from activities.cluster.control_plane import ControlPlaneActivities
    from resources.calls.cluster import ControlPlaneNodes, ControlPlaneNodesInput
    from resources.fleet.membership import OwnerNews
    from resources.names import cluster_queue

LOOKS = timedelta(minutes=30)
"""The time between two looks at the control plane's Nodes where nothing else asks for one."""
LOOKS_AGAIN = timedelta(minutes=2)
"""The same while there is one that belongs to no machine of it, or no machine at all."""


def look(cp: ControlPlaneEntity) -> None:
    """Looks at the Nodes where a plan wants it, and from time to time."""
    if cp.due("nodes"):
        del cp.deadlines["nodes"]
        cp.must_look = True
    if not cp.must_look or cp.s.deleted or cp.looking or "check" in cp.deadlines:
        return
    cp.looking, cp.must_look = True, False
    cp.deadlines["nodes"] = workflow.now() + LOOKS
    cp.start(
        ControlPlaneActivities.find_control_plane_nodes,
        ControlPlaneNodesInput(cluster=cp.s.cluster),
        queue=cluster_queue(cp.s.cluster, cp.s.queue_prefix),
        summary="look at the Nodes of the control plane",
        done=partial(_seen, cp),
        failed=partial(_not_seen, cp),
        may_be_lost=True,
    )


def _seen(cp: ControlPlaneEntity, found: ControlPlaneNodes) -> None:
    s = cp.s
    cp.looking, s.nodes_seen = False, workflow.now()
    s.unmanaged = {n.name: n.machine for n in found.nodes if n.machine not in s.members and n.machine not in cp.ended}
    if s.unmanaged or not s.members:
        cp.deadlines["nodes"] = workflow.now() + LOOKS_AGAIN
    if strangers := sorted({machine for machine in s.unmanaged.values() if machine}):
        members.own(cp, strangers, OwnerNews(owner=cp.owner))


def _not_seen(cp: ControlPlaneEntity) -> None:
    cp.looking, cp.must_look = False, True


def place(cp: ControlPlaneEntity) -> None:
    """Tells machines that were found their place, and the class that they are as if made from."""
    s = cp.s
    s.hosts = {name: news for name, news in s.hosts.items() if name in s.members}
    for name, news in s.hosts.items():
        member = s.members[name]
        there = s.fields_of(member.placement)
        known = news.placement == member.placement and bool(news.place.domain) == bool(there)
        if known or name in cp.placing or name in s.lost:
            cp.placing -= {name} if known else set()
            continue
        cp.placing.add(name)
        newest = s.revisions[-1].machine_class
        alike = member.revision == s.revision and news.machine_class not in ("", newest.name)
        members.own(
            cp,
            [name],
            OwnerNews(
                owner=cp.owner, placement=member.placement, domain=there, machine_class=newest if alike else None
            ),
        )


def let_go(cp: ControlPlaneEntity) -> None:
    """Lets all machines go once it is deleted. One whose start is not confirmed is let go when it is."""
    s = cp.s
    if not s.deleted or cp.calls or "check" in cp.deadlines:
        return
    for name, status in s.lost.items():
        cp.note("MemberLost", f"machine {name} stays without a workflow, which somebody ended ({status})")
        members.forget(cp, name)
    if names := [n for n in s.members if n not in s.unstarted]:
        members.own(cp, names, OwnerNews(owner=cp.owner, released=True))
