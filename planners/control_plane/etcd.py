"""The guard of an etcd that nobody else looks after, as kubeadm makes it: whose member leaves when, so that the control
plane's machines can be replaced and etcd keeps its quorum.

Source: etcd's runtime reconfiguration ("remove a failed member before adding a new one"; the server refuses to add one
while another does not answer, mayAddMember in server/etcdserver/server.go); OpenShift's cluster-etcd-operator
(clustermemberremovalcontroller: a member that is down first, one at a time, the replacement votes before); kubeadm
control plane provider of Cluster API (the leader moves before its member is removed).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planners.control_plane.view import Host, Observed
from planners.fleet.steps import Wait
from planners.words import named, some
from resources.control_plane.etcd import EtcdAct, EtcdMember, EtcdView


@dataclass(frozen=True)
class Act:
    """One change of etcd."""

    act: EtcdAct
    member: EtcdMember
    reason: str
    message: str

    @property
    def wait(self) -> Wait:
        return Wait("EtcdChanging", self.message)


def clear(observed: Observed) -> Act | None:
    """What is to be done about members that are down, whoever's turn it is: while one of them is a member, etcd takes
    no new one, so no replacement can join."""
    view = observed.etcd
    if view is None or not view.quorate:
        return None
    return _left_behind(observed, view) or _down(observed, view)


def judge(observed: Observed, host: Host) -> Act | Wait | None:
    """What is to be done before a machine whose index has a ready replacement may go, or what it waits for; None once
    it has no member of etcd."""
    view = observed.etcd
    if (words := _unseen(observed)) or view is None:
        return Wait("EtcdTrouble", f"{host.name} stays while etcd cannot be looked after: {words}")
    if not view.quorate:
        return Wait("EtcdQuorumLost", f"{host.name} stays: {quorum_lost(view)}")
    own = [m for m in view.members if m.machine == host.name]
    if not own:
        return _nobody_elses(host, view)
    member = own[0]
    if member.learner:
        return _remove(member, f"it runs on {host.name}, which leaves, and does not vote yet")
    others = [h.name for h in observed.indexes[host.index] if h is not host and h.ready and not h.leaving]
    new = next((m for m in view.voters if m.healthy and m.machine in others), None)
    if new is None:
        return Wait("EtcdReplacementNotVoting", _not_voting(host, view, others))
    if (risk := _at_risk(observed, view, member)) is not None:
        return Wait("EtcdQuorumAtRisk", risk)
    if member.leader:
        message = f"etcd's leader moves from {member.called} to {new.called}: {host.name} leaves"
        return Act(EtcdAct.MOVE_LEADER, new, "EtcdLeaderMoved", message)
    return _remove(member, f"{host.name} leaves, and {new.called} votes in its place")


def refusal_to_restart(observed: Observed, machine: str) -> str:
    """Why the machine may not restart now, in words; "" where it may: the members of the others are a quorum without
    its own, which is away for a while."""
    view = observed.etcd
    if (words := _unseen(observed)) or view is None:
        return f"etcd cannot be looked at: {words}"
    if not view.quorate:
        return quorum_lost(view)
    left, quorum = [m for m in view.voters if m.machine != machine], needed(len(view.voters))
    healthy = sum(m.healthy for m in left)
    if len(left) == len(view.voters) or healthy >= quorum:
        return ""
    ill = [f"{m.called} ({m.trouble})" for m in left if not m.healthy]
    return (
        f"without its member {healthy} of {some(len(view.voters), 'voting member')} of etcd would be healthy, and "
        f"{quorum} are a quorum" + (f"; not healthy: {named(ill)}" if ill else "")
    )


def _unseen(observed: Observed) -> str:
    """Why it is not known how etcd is, in words; "" where it is."""
    view = observed.etcd
    return observed.etcd_trouble or (view.trouble if view else "it has not been looked at since")


def quorum_lost(view: EtcdView) -> str:
    """What an etcd without a quorum is, in words."""
    down = sorted(m.called for m in view.voters if not m.healthy)
    count = len(view.voters)
    return (
        f"etcd has no quorum: {count - len(down)} of {some(count, 'voting member')} answer, and {needed(count)} are "
        f"needed: start {named(down) or 'the others'}, or restore etcd from a snapshot"
    )


def needed(voters: int) -> int:
    """How many of so many members are a quorum."""
    return voters // 2 + 1


def spare(voters: Iterable[EtcdMember]) -> int:
    """How many healthy members may still fail before the quorum is lost; negative where it is."""
    voting = list(voters)
    return sum(m.healthy for m in voting) - needed(len(voting))


# -- members that are down --------------------------------------------------------------------------------------------


def _left_behind(observed: Observed, view: EtcdView) -> Act | None:
    """The member of a machine that is gone, with its Node."""
    there = {h.name for h in observed.hosts} | {""}
    for member in view.members:
        gone = member.machine not in there and not member.node and not member.healthy
        if gone and _harmless(observed, view, member):
            return _remove(member, f"its machine {member.machine} is gone")
    return None


def _down(observed: Observed, view: EtcdView) -> Act | None:
    """The member of a machine that leaves and is not ready, before its replacement votes: until then that one cannot
    even be added. It takes nothing away, as it does not answer."""
    leaving = {h.name for h in observed.hosts if h.leaving and not h.ready}
    for member in view.members:
        if member.machine in leaving and not member.healthy and _harmless(observed, view, member):
            return _remove(member, f"it does not answer, and its machine {member.machine} is not ready and leaves")
    return None


def _harmless(observed: Observed, view: EtcdView, member: EtcdMember) -> bool:
    return member.learner or _at_risk(observed, view, member) is None


# -- rules and words --------------------------------------------------------------------------------------------------


def _remove(member: EtcdMember, why: str) -> Act:
    return Act(EtcdAct.REMOVE, member, "EtcdMemberRemoved", f"member {member.called} is removed from etcd: {why}")


def _at_risk(observed: Observed, view: EtcdView, member: EtcdMember) -> str | None:
    """Why etcd cannot do without a voting member now; None where it can: afterwards it must survive as many failures as
    before, or as many as a whole control plane does."""
    before, left = spare(view.voters), [m for m in view.voters if m is not member]
    after = spare(left)
    whole = observed.replicas - needed(observed.replicas)
    if left and after >= 0 and after >= min(before, whole):
        return None
    ill = [f"{m.called} ({m.trouble})" for m in left if not m.healthy]
    return (
        f"member {member.called} stays: without it {sum(m.healthy for m in left)} of "
        f"{some(len(left), 'voting member')} would be healthy, and {needed(len(left))} are a quorum"
        + (f"; not healthy: {named(ill)}" if ill else "")
    )


def _nobody_elses(host: Host, view: EtcdView) -> Wait | None:
    """A member that is down and belongs to no machine may be this one's: it would stay for ever, and count."""
    stray = next((m for m in view.members if not m.machine and not m.healthy), None)
    if stray is None:
        return None
    words = (
        f"{host.name} stays: it has no member of etcd, and member {stray.called} ({stray.trouble}) belongs to no "
        f"machine that is known: if it is this one's, or nobody's, remove it: etcdctl member remove {int(stray.id):x}"
    )
    return Wait("EtcdMemberUnknown", words)


def _not_voting(host: Host, view: EtcdView, others: Sequence[str]) -> str:
    theirs = [m for m in view.members if m.machine in others]
    if not theirs:
        return f"{host.name} stays: its replacement {named(list(others))} has no member of etcd yet"
    why = "is a learner without a vote" if theirs[0].learner else f"is not healthy: {theirs[0].trouble}"
    return f"{host.name} stays: {theirs[0].called}, the member of its replacement {theirs[0].machine}, {why}"
