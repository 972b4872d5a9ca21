"""A control plane in numbers and by index, with what each index waits for in a few words: for `hostler get`, `describe`
and `tree`, for waits and for metrics.
"""

from __future__ import annotations

from planners.control_plane import gates
from planners.control_plane.status import complete, done, status
from planners.control_plane.view import Host, Observed, replacement, stays_ready
from planners.fleet import template
from planners.fleet.revisions import summaries
from resources.control_plane.spec import State, UpdateStrategy
from resources.control_plane.state import ControlPlaneState, SetCondition
from resources.control_plane.summary import ControlPlaneSummary, HostSummary, IndexSummary


def summarize(state: ControlPlaneState, observed: Observed) -> ControlPlaneSummary:
    """`observed`: the state as the plan sees it."""
    count, machine_class = status(observed), state.machine_class
    known = machine_class is not None and machine_class.name == state.class_name
    return ControlPlaneSummary(
        name=state.name,
        cluster=state.cluster,
        created=state.created,
        machine_class=state.class_name,
        generation=machine_class.generation if machine_class is not None and known else 0,
        state=state.spec.state,
        strategy=state.spec.strategy,
        paused=state.paused,
        paused_by=state.paused_by,
        deleted=state.deleted,
        revision=state.revision,
        replicas=observed.replicas,
        machines=count.replicas,
        ready=count.ready,
        updated=count.updated,
        unavailable=count.unavailable,
        quorum=observed.quorum,
        serving=observed.serving,
        rolled_out=complete(observed),
        template_pending=len(template.pending(state.members, state.template)),
        indexes=[_index(state, observed, number) for number in observed.indexes],
        conditions=[_since(condition, state) for condition in count.conditions],
        unmanaged=list(observed.unmanaged),
        revisions=summaries(state),
        waits=state.waits,
        parked=state.parked,
    )


def _since(condition: SetCondition, s: ControlPlaneState) -> SetCondition:
    """The condition with its time, which the state keeps."""
    known = next((c for c in s.conditions if (c.type, c.status) == (condition.type, condition.status)), None)
    return condition.model_copy(update={"since": known.since if known else None})


# -- by index ---------------------------------------------------------------------------------------------------------


def _index(s: ControlPlaneState, observed: Observed, number: int) -> IndexSummary:
    hosts = observed.indexes[number]
    return IndexSummary(
        index=number,
        failure_domain=observed.domains.get(number, ""),
        hosts=[_host(s, host) for host in hosts],
        done=done(hosts),
        waits=awaited(observed, number),
    )


def _host(state: ControlPlaneState, host: Host) -> HostSummary:
    member = state.members[host.name]
    return HostSummary(
        name=host.name,
        phase=member.phase,
        since=member.since,
        ready=host.ready,
        outdated=host.outdated,
        leaving=host.leaving,
        held=host.held,
        failure=host.failure,
        failure_domain=member.placement.failure_domain if member.placement else "",
        revision=member.revision,
    )


def awaited(observed: Observed, number: int) -> str:
    """What an index waits for, in a few words; "" where it is done. What holds up the whole set is said of an index
    that it holds up."""
    hosts = observed.indexes[number]
    if done(hosts):
        return ""
    coming = replacement(hosts)
    if coming is not None and not coming.ready:
        return _of_one_that_comes(hosts, coming)
    leaving = next((h for h in hosts if h.leaving), None)
    if leaving is not None and not leaving.held:
        return f"{leaving.name} to be drained and gone"
    if leaving is not None and stays_ready(hosts, leaving):
        return f"its turn: {leaving.name} is held until then"
    if coming is not None:  # ready, and beside one that nobody has marked for deletion yet
        return _held_up(observed) or "its turn to lose the machine that is no longer needed"
    if not hosts:
        return _held_up(observed) or "its turn to get a machine"
    if leaving is None and observed.strategy is UpdateStrategy.ON_DELETE:
        return _held_up(observed) or f"a person: hostler delete machine {hosts[0].name}"
    return _held_up(observed) or "its turn to get a replacement"


def _of_one_that_comes(hosts: tuple[Host, ...], coming: Host) -> str:
    if coming.failure:
        return f"{coming.name}, which cannot become ready: {coming.failure}"
    if coming.asks:
        return f"its turn: {coming.name} is unhealthy, and is replaced"
    again = " again" if coming.joined and len(hosts) == 1 else ""
    return f"{coming.name} to become ready{again}" + (f": {coming.trouble}" if coming.trouble else "")


def _held_up(observed: Observed) -> str:
    """What keeps the set from making and deleting machines."""
    if observed.state is State.INACTIVE:
        return "a person: the control plane is Inactive"
    if (gate := gates.closed(observed)) is not None:
        return f"a person: {gate.reason}"
    if observed.unseen:
        return "an answer: its machines cannot be seen"
    return "a person: it is paused" if observed.paused else ""
