"""The plan of a config pool: which nodes are given the pool's config now, and what is waited for. One pure function,
used by its workflow and by tests.

Source: seed 004 (UpdateController); OpenShift (pkg/controller/node/node_controller.go: getAllCandidateMachines,
updateCandidateMachines) for the arithmetic. A plan that is carried out and made again comes to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from planners.fleet.steps import Wait
from planners.machine_config import follow, lending
from planners.machine_config import nodes as of
from planners.machine_config.budget import max_unavailable
from planners.machine_config.status import complete
from planners.machine_config.steps import ConfigPlan, ConfigStep, GiveConfig, SetUpdateTaint
from planners.words import named, some
from resources.base import format_duration
from resources.machine_config.node import ConfigNode
from resources.machine_config.state import Loan, Reservation
from resources.machine_config.view import ConfigPoolFacts, ConfigPoolView
from resources.words import utc

STALLED = timedelta(hours=1)
"""A rollout of which no node has finished for so long says that it stands still (OpenShift says so of a drain)."""


@dataclass(frozen=True)
class ObservedConfigPool:
    """What a plan is made from, besides the time. `follow` has made the reservations of the same view."""

    view: ConfigPoolView
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    loans: Mapping[str, Loan] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    """Owners of machines, as far as they are known; "" for one that belongs to nobody."""
    held: Wait | None = None
    """Why no node begins: the cluster is paused, or frozen; None where nobody holds it."""
    progress_at: datetime | None = None
    """When the rollout last got further; None: none is going on, or it is held."""

    returning: bool = True
    """False in a run that began before a pool whose maxUnavailable cannot be read gave back what it has borrowed: a
    replay must decide again by the rules it decided by."""

    @property
    def facts(self) -> ConfigPoolFacts:
        assert self.view.pool is not None
        return self.view.pool


def plan(observed: ObservedConfigPool, now: datetime) -> ConfigPlan:
    """What to do now, why, and what is waited for. Total: every state of a pool has a plan."""
    waits = _always(observed)
    if (closed := _closed(observed)) is not None:
        return ConfigPlan(waits=(*closed, *waits), steps=lending.give_back(observed.view, observed))
    facts, view = observed.facts, observed.view
    try:
        most = max_unavailable(facts.max_unavailable, view.counts.machines, facts.control_plane)
    except ValueError as e:
        back = lending.give_back(view, observed) if observed.returning else ()
        return ConfigPlan(waits=(Wait("MaxUnavailableInvalid", str(e)), *waits), steps=back)
    unseen = follow.unseen(observed.reservations, view)
    free = max(0, most - view.counts.busy - view.counts.failing - len(unseen))
    steps: list[ConfigStep] = [*_taints(view), *_again(observed)]
    candidates = [n for n in view.nodes if of.candidate(n, facts.target) and n.name not in observed.reservations]
    candidates += [n for n in view.nodes if _retargeted(n, observed)]
    if view.beside and candidates:
        waits.insert(0, Wait("ControlPlaneBeside", f"{view.beside}, and one control-plane node updates at a time"))
        free = 0
    chosen = lending.choose(sorted(candidates, key=of.turn), free, observed, now)
    if chosen.nodes:
        steps.append(_give(observed, chosen.nodes, most))
    steps += [*chosen.steps, *lending.give_back(view, observed)]
    return ConfigPlan(
        steps=tuple(steps),
        waits=tuple(_in_order(observed, [*_going(observed, most, free, candidates, now), *chosen.waits], waits)),
        most=most,
        free=free - len(chosen.nodes),
        next_look=_next_look(observed, chosen.next_look, now),
    )


def _retargeted(node: ConfigNode, observed: ObservedConfigPool) -> bool:
    """Whether a node that was given another config by us, and has shown it, is now to have the pool's newest."""
    reservation = observed.reservations.get(node.name)
    if reservation is None or not reservation.seen:
        return False
    return reservation.config != observed.facts.target and of.candidate(node, observed.facts.target)


def _give(observed: ObservedConfigPool, nodes: tuple[ConfigNode, ...], most: int) -> GiveConfig:
    facts = observed.facts
    names = named([n.name for n in nodes])
    rest = observed.view.counts.candidates - len(nodes)
    words = f"{some(len(nodes), 'node')} ({names}) of {observed.view.counts.machines} begin with {facts.target}"
    left = f", {rest} more to come" if rest > 0 else ""
    return GiveConfig(nodes, facts.target, "ConfigNodesTargeted", f"{words}; {most} may be unavailable{left}")


def _again(observed: ObservedConfigPool) -> list[ConfigStep]:
    """Nodes that were given a config which no look has shown: they are given the newest one, and need no new place."""
    target = observed.facts.target
    nodes = {n.name: n for n in observed.view.nodes}
    names = [n for n, r in observed.reservations.items() if not r.seen and n in nodes and nodes[n].desired != target]
    if not names:
        return []
    words = f"{named(names)}: whether the config was written is not known, so it is written again"
    return [GiveConfig(tuple(nodes[n] for n in names), target, "ConfigNodesTargeted", words, again=True)]


def _taints(view: ConfigPoolView) -> list[ConfigStep]:
    """OpenShift's UpdateInProgress: evicted pods go to nodes that need not update again (2976dc657)."""
    assert view.pool is not None
    target = view.pool.target
    on = tuple(n for n in view.nodes if n.desired != target and not n.tainted)
    off = tuple(n for n in view.nodes if n.desired == target and n.tainted)
    return [SetUpdateTaint(nodes, to) for nodes, to in ((on, True), (off, False)) if nodes]


# -- waits ------------------------------------------------------------------------------------------------------------


def _closed(observed: ObservedConfigPool) -> list[Wait] | None:
    """Why no node is touched at all; None where nodes may be."""
    facts, counts = observed.facts, observed.view.counts
    left = counts.machines - counts.done
    to_do = f"{some(left, 'node')} of {counts.machines} would get {facts.target}"
    if facts.refused:
        return [Wait("ConfigPoolRefused", f"no node is touched: {facts.refused}")]
    if not facts.target:
        return [Wait("NothingRendered", "no config has been rendered for it yet")]
    if facts.paused:
        return [Wait("ConfigPoolPaused", f"spec.paused is true. Otherwise: {to_do}")] if left else []
    held = observed.held
    if held is not None:
        return [Wait(held.reason, f"{held.message}. Otherwise: {to_do}")] if left else []
    return None


def _always(observed: ObservedConfigPool) -> list[Wait]:
    """What somebody has to look after, whatever else is done."""
    facts, view, waits = observed.facts, observed.view, []
    bad = [f"{n.name} ({n.reason or n.state})" for n in view.nodes if n.state.failed]
    if bad:
        words = f"{some(view.counts.degraded, 'node')} cannot apply the config: {named(bad)}"
        waits.append(Wait("ConfigNodesDegraded", words))
    if facts.render_trouble:
        waits.append(Wait("RenderDegraded", f"the newest config cannot be rendered: {facts.render_trouble}"))
    if view.contested:
        words = f"nodes that several pools select belong to none, and are not updated: {named(view.contested)}"
        waits.append(Wait("NodesContested", words))
    silent = [n.name for n in view.nodes if not of.managed(n)]
    if silent:
        words = f"no daemon has said which config these nodes have, so each takes a place: {named(silent)}"
        waits.append(Wait("ConfigNodesSilent", words))
    return waits


def _going(
    observed: ObservedConfigPool, most: int, free: int, candidates: list[ConfigNode], now: datetime
) -> list[Wait]:
    """What keeps a rollout from going on, the one that a person must look at first."""
    facts, view = observed.facts, observed.view
    if complete(facts, view.counts):
        return []
    waits: list[Wait] = []
    since = observed.progress_at
    if since is not None and now >= since + STALLED:
        words = f"no node has finished for {format_duration(STALLED)}, since {utc(since)}: {_who(observed)}"
        waits.append(Wait("ConfigRolloutStalled", words))
    if _taken(observed):
        more = f"; {view.counts.candidates} more to come" if view.counts.candidates else ""
        waits.append(Wait("NodesUpdating", f"{most - free} of {most} places are taken: {_who(observed)}{more}"))
    unfit = [f"{n.name} {of.trouble(n)}" for n in view.nodes if of.stuck(n, facts.target)]
    if unfit and not candidates:
        words = f"nodes are to have {facts.target}, and cannot begin: {named(unfit)}"
        waits.append(Wait("ConfigNodesUnfit", words))
    return waits


def _taken(observed: ObservedConfigPool) -> bool:
    counts = observed.view.counts
    return bool(counts.busy or counts.failing or observed.reservations)


def _in_order(observed: ObservedConfigPool, going: list[Wait], always: list[Wait]) -> list[Wait]:
    """The one that a person must look at first: while no node makes progress, what somebody has to look after.
    A node without a daemon takes a place and makes none, as does one that has failed after its drain."""
    busy = any(of.busy(n) and of.managed(n) and not of.failing(n) for n in observed.view.nodes)
    progress = busy or any(not r.failed for r in observed.reservations.values())
    return [*going, *always] if progress else [*always, *going]


def _who(observed: ObservedConfigPool) -> str:
    """The nodes that take places, each with what it does."""
    view, found = observed.view, []
    for node in view.nodes:
        if follow.counted(node, view):
            found.append(f"{node.name} {of.trouble(node)}")
    found += [f"{n.name} is being given its config" for n in follow.unseen(observed.reservations, view)]
    return named(found) or "none takes a place any longer"


def _next_look(observed: ObservedConfigPool, lent: datetime | None, now: datetime) -> datetime | None:
    times = [lent, follow.next_look(observed.reservations, now)]
    if observed.progress_at is not None:
        times.append(observed.progress_at + STALLED)
    return min((t for t in times if t is not None and t > now), default=None)
