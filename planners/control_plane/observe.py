"""A control plane as its plan sees it, from what its workflow has heard."""

from __future__ import annotations

from datetime import datetime

from planners.control_plane.alike import differing
from planners.control_plane.domains import Placed, assign
from planners.control_plane.status import GRACE, is_ready
from planners.control_plane.view import Host, Observed
from planners.fleet.pace import of
from planners.machine.domain import domain_digest
from resources.base import later
from resources.control_plane.state import ControlPlaneState, HostNews
from resources.fleet.member import Member, Permit, PreserveWish, Vm
from resources.machine.state import Phase

FIELDS = 5
"""How many differing fields are named."""


def observe(state: ControlPlaneState, now: datetime, worst_first: bool = True) -> Observed:
    domains = domains_of(state)
    failed = sorted(name for name, member in state.members.items() if member.drained and state.kept(name))
    granting = [
        name for name in failed if not state.members[name].stays and state.members[name].keep is PreserveWish.ASKED
    ]
    there = [(name, member) for name, member in sorted(state.members.items()) if name not in failed]
    hosts = [_host(state, name, member, domains, now) for name, member in there]
    return Observed(
        replicas=state.spec.replicas,
        strategy=state.spec.strategy,
        hosts=tuple(hosts),
        domains=domains,
        unmanaged=tuple(sorted(node for node, machine in state.unmanaged.items() if machine not in state.members)),
        state=state.spec.state,
        paused=_paused(state),
        frozen=freeze.words if (freeze := state.news.freeze if state.news else None) and freeze.holds(now) else "",
        paused_alone=state.news is None or not state.news.paused,
        deleted=state.deleted,
        pace=of(state.pace, state.revision),
        revision=state.revision,
        unseen=state.unseen,
        granting=tuple(granting),
        preserved=tuple(failed),
        lent=tuple(sorted(state.lent)),
        guarded=state.spec.etcd_guard,
        etcd=state.etcd if state.etcd_is_fresh else None,
        etcd_trouble=state.etcd_trouble,
        worst_first=worst_first,
    )


def _paused(s: ControlPlaneState) -> str:
    if s.news is not None and s.news.paused:
        why = f" ({s.news.reason})" if s.news.reason else ""
        return f"{s.news.paused_by or 'somebody'} paused the cluster{why}"
    return f"{s.paused_by or 'somebody'} paused it" if s.paused else ""


def domains_of(s: ControlPlaneState) -> dict[int, str]:
    """The failure domain of each index."""
    placed = [
        Placed(m.placement.index, m.placement.failure_domain, m.created, m.leaving)
        for m in s.members.values()
        if m.placement is not None and m.placement.index is not None
    ]
    return assign(placed, s.spec.replicas, list(s.spec.failure_domains))


def index_of(member: Member) -> int:
    """The index of a machine. The workflow gives one to every machine that it meets."""
    place = member.placement
    return place.index if place is not None and place.index is not None else 0


def _host(state: ControlPlaneState, name: str, member: Member, domains: dict[int, str], now: datetime) -> Host:
    """A machine that is lent to a config pool counts as one that is not ready: it may be restarted at any moment, so
    that nothing else of the control plane may go."""
    news, lost = state.hosts.get(name, HostNews()), name in state.lost
    leaving = member.leaving or state.kept(name)
    since = member.since if member.phase is Phase.UNKNOWN else None
    ready = name not in state.lent and not lost and is_ready(member.phase, _node_ready(member, news), since, now)
    return Host(
        name=name,
        index=index_of(member),
        created=member.created,
        ready=ready,
        ready_until=later(member.since, GRACE) if ready and since is not None else None,
        outdated=_outdated(state, member, news, domains),
        leaving=leaving,
        held=leaving and not news.lifted and (_has_not_begun(member) or news.place.held),
        joined=news.place.joined or member.phase in (Phase.RUNNING, Phase.UNKNOWN),
        failure=f"its workflow was ended from outside ({state.lost[name]})" if lost else _failure(member, news),
        trouble=news.trouble,
        asks=not lost and _asks(member, state.wanted(name)),
        wanted=not member.leaving and state.wanted(name),
        forced=news.place.forced,
    )


def _node_ready(member: Member, news: HostNews) -> bool:
    """A machine that is Running has a Node that is Ready; of others its own word counts."""
    return member.phase is Phase.RUNNING or (news.place.node_ready and member.vm is not Vm.GONE)


def _has_not_begun(member: Member) -> bool:
    """Whether it has been told to go, and has not said that it goes: it will be held."""
    return member.phase not in (Phase.TERMINATING, Phase.FAILED)


def _failure(member: Member, news: HostNews) -> str:
    return news.trouble if member.phase is Phase.FAILED or member.vm is Vm.GONE else ""


def _asks(member: Member, wanted: bool) -> bool:
    """Whether it is to be replaced because it is ill, or asks to be Failed. One that is kept for a look has been given
    that already."""
    if wanted:
        return member.permit is Permit.ASKED and member.phase is not Phase.FAILED
    return member.permit is not Permit.NONE or member.phase is Phase.FAILED


def _outdated(state: ControlPlaneState, member: Member, news: HostNews, domains: dict[int, str]) -> str:
    """What differs from what its index asks for, in words; "" where nothing does."""
    place, wanted = member.placement, domains.get(index_of(member), "")
    there = place.failure_domain if place is not None else ""
    if member.revision != state.revision:
        return _differences(state, member, there)
    if there != wanted and (wanted or there):
        return f"failure domain {there or 'of its own'} instead of {wanted or 'none'}"
    fields = state.spec.failure_domains.get(there, {})
    if news.place.domain and news.place.domain != domain_digest(fields):
        return f"failure domain {there} has other fields now"
    return ""


def _differences(s: ControlPlaneState, member: Member, domain: str) -> str:
    made_from, newest = s.find(member.revision), s.revisions[-1]
    if made_from is None:
        return "not made from this template"
    former, wanted = made_from.machine_class, newest.machine_class
    if former.name != wanted.name:
        return f"class {former.name} instead of {wanted.name}"
    if fields := differing(former, wanted, s.spec.failure_domains.get(domain, {})):
        more = f" and {len(fields) - FIELDS} more" if len(fields) > FIELDS else ""
        return f"{', '.join(fields[:FIELDS])}{more}"
    return f"revision {member.revision} instead of {s.revision}"
