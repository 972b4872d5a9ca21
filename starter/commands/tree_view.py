"""The tree of a cluster as lines: cluster → control plane → indexes → machines, and pools → revisions → machines, each
with its phase and the first thing that is wrong with it. From what has been read, and from nothing else.

As `clusterctl describe cluster` and argo's `kubectl argo rollouts get rollout` show theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from starter.commands.rows import phase_style

if TYPE_CHECKING:
    from resources.control_plane.summary import HostSummary, IndexSummary
    from resources.fleet.member import Member
    from resources.machine.state import MachineState
    from resources.machine_config.state import ConfigDrain, Reservation
    from resources.pool.intents import PoolSummary
    from starter.outlet import Piece
    from starter.sdk.control_plane.results import ControlPlaneListed
    from starter.sdk.fleet.results import FleetListed
    from starter.sdk.machine_config.results import ConfigPoolShown
    from starter.sdk.pools.results import PoolListed
    from starter.sdk.results import ClusterDescription, MachineSummary

RUNNING = "Running"
CONTROL_PLANE = "controlplane/cluster"
"""The control plane's name among the owners of machines, and in the tree."""
ILL = 10
"""Machines of one revision that are named because they are not well; the others are counted."""
ROOM = 30
"""Characters that a message needs beside the other columns."""
HEADER = ("NAME", "PHASE", "READY", "SINCE", "REASON", "MESSAGE")


class Ailment(NamedTuple):
    """What is wrong, or waited for."""

    reason: str
    message: str = ""
    since: datetime | None = None


NONE = Ailment("")
UNHEARD = "it did not answer in time, so this is what lists know of it; look again, then see hostler doctor"


@dataclass(frozen=True)
class PoolFacts:
    listed: PoolListed
    members: Mapping[str, Member] = field(default_factory=dict)
    """What the pool knows of its machines, by name; nothing where no worker answers."""
    no_answer: str = ""
    """Why not, where that is known."""


@dataclass(frozen=True)
class ControlPlaneFacts:
    listed: ControlPlaneListed
    no_answer: str = ""
    """Why it has no numbers, where that is known."""


@dataclass(frozen=True)
class TreeFacts:
    """What has been read of a cluster, of one of its pools, or of its control plane."""

    cluster: ClusterDescription
    pools: Sequence[PoolFacts] = ()
    machines: Sequence[MachineSummary] = ()
    ailments: Mapping[str, Ailment] = field(default_factory=dict)
    """What machines say themselves, by name."""
    only: str = ""
    """The one pool, or the control plane, that is shown."""
    control_plane: ControlPlaneFacts | None = None
    worker_pool: str = ""
    """The worker pool whose zones alone are shown."""
    config_pools: Sequence[ConfigPoolShown] = ()


@dataclass(frozen=True)
class Twig:
    """One line of the tree, and those below it."""

    name: str
    phase: str = ""
    ready: str = ""
    ailment: Ailment = NONE
    twigs: Sequence[Twig] = ()


def well(m: MachineSummary) -> bool:
    return m.phase == RUNNING and not m.reason


def named(machines: Sequence[MachineSummary], everything: bool) -> list[MachineSummary]:
    """Those of a revision that have a line of their own: all, or the first of those that are not well."""
    return list(machines) if everything else [m for m in machines if not well(m)][:ILL]


def ailment_of(state: MachineState) -> Ailment:
    """What a machine waits for, or else the first condition that it reports: it reports only bad ones."""
    if (wait := state.status.waiting_for) is not None:
        return Ailment(wait.reason, wait.message, wait.since)
    if state.status.conditions:
        first = state.status.conditions[0]
        return Ailment(first.reason, first.message, first.since)
    return NONE


# -- the tree ---------------------------------------------------------------------------------------------------------


def tree(seen: TreeFacts, everything: bool = False) -> Twig:
    """`everything`: machines that are well have lines of their own too."""
    pools = [_pool(seen, pool, everything) for pool in seen.pools]
    sets = [_control_plane(seen, seen.control_plane)] if seen.control_plane else []
    if seen.only:
        return [*sets, *pools][0]
    if seen.worker_pool:
        return Twig(f"workerpool/{seen.worker_pool}", twigs=pools)
    known = {pool.listed.name for pool in seen.pools} | ({CONTROL_PLANE} if sets else set())
    lost: dict[str, list[MachineSummary]] = defaultdict(list)
    for machine in seen.machines:
        if machine.pool not in known:
            lost[machine.pool].append(machine)
    gone = [
        Twig(name if "/" in name else f"pool/{name}", "Gone", twigs=_machines(seen, machines, {}, everything))
        for name, machines in sorted(lost.items())
        if name
    ]
    alone = _machines(seen, lost.get("", []), {}, everything)
    return Twig(_cluster_name(seen), seen.cluster.summary.phase, _cluster_ready(seen), _of_cluster(seen.cluster),
                [*sets, *pools, *gone, *alone, *map(_config_pool, seen.config_pools)])  # fmt: skip


def _cluster_name(seen: TreeFacts) -> str:
    return f"cluster/{seen.cluster.summary.name}"


def _cluster_ready(seen: TreeFacts) -> str:
    return f"{sum(m.phase.startswith(RUNNING) for m in seen.machines)}/{len(seen.machines)}"


def _of_cluster(found: ClusterDescription) -> Ailment:
    """A pause, an API or a cloud that does not answer; or that nobody can be asked."""
    state = found.state
    if found.no_answer:
        return Ailment("NoAnswer", found.no_answer)
    if state is None:
        return NONE
    if state.parked:
        return Ailment("InternalError", state.parked)
    news = [("APIRefused" if state.api and state.api.refused else "APIUnreachable", state.api)]
    news += [(cloud.cloud_reason, cloud) for _, cloud in sorted(state.clouds.items())]
    for reason, said in news:
        if said is not None and not said.reachable:
            return Ailment(reason, said.words, said.began)
    if state.pause is not None:
        return Ailment("ClusterPaused", state.pause.reason, state.pause.time)
    return NONE


def _pool(seen: TreeFacts, pool: PoolFacts, everything: bool) -> Twig:
    listed, s = pool.listed, pool.listed.summary
    machines = _of(seen, pool)
    ready = f"{s.available}/{s.replicas}" if s else ""
    by_revision: dict[int, list[MachineSummary]] = defaultdict(list)
    for machine in machines:
        member = pool.members.get(machine.name)
        by_revision[member.revision if member else 0].append(machine)
    twigs: list[Twig] = []
    for revision in sorted(by_revision, reverse=True):
        below = _machines(seen, by_revision[revision], pool.members, everything)
        if revision:
            running = sum(m.phase.startswith(RUNNING) for m in by_revision[revision])
            twigs.append(Twig(_revision(revision, s), ready=f"{running}/{len(by_revision[revision])}", twigs=below))
        else:  # the pool has not said of which revision they are
            twigs += below
    return Twig(f"pool/{listed.name}", listed.phase, ready, _of_owner(listed, _silence(seen, pool)), twigs)


def _config_pool(of: ConfigPoolShown) -> Twig:
    """A config pool, and its nodes that are on their way to its config."""
    name, s = f"mcp/{of.name}", of.state
    if s is None:
        return Twig(name, of.phase, ailment=Ailment(of.reason))
    first = next((Ailment(w.reason, w.message, w.since) for w in s.waits), NONE)
    ailment = Ailment("InternalError", s.parked) if s.parked else first
    under_way = sorted(s.reservations.items())
    nodes = [_node(name, r, s.drains.get(name)) for name, r in under_way[:ILL]]
    more = [Twig(f"{len(under_way) - ILL} more nodes")] if len(under_way) > ILL else []
    return Twig(name, of.phase, f"{s.counts.done}/{s.counts.machines}", ailment, [*nodes, *more])


def _node(name: str, given: Reservation, drain: ConfigDrain | None) -> Twig:
    phase = "Failed" if given.failed else "Updating"
    message = f"drain: {drain.blocker}" if drain is not None and drain.blocker else given.config
    return Twig(f"node/{name}", phase, ailment=Ailment("", message, given.at))


def _control_plane(seen: TreeFacts, found: ControlPlaneFacts) -> Twig:
    """The control plane, its indexes, and each of its machines: there are few, and all matter."""
    listed, s = found.listed, found.listed.summary
    of = {m.name: m for m in seen.machines if m.pool == CONTROL_PLANE}
    if s is None:
        twigs = _machines(seen, list(of.values()), {}, everything=True)
        return Twig(CONTROL_PLANE, listed.phase, ailment=_of_owner(listed, _silence(seen, found)), twigs=twigs)
    indexes = [_index(seen, index, of) for index in s.indexes]
    return Twig(CONTROL_PLANE, listed.phase, f"{s.ready}/{s.replicas}", _of_owner(listed, ""), indexes)


def _index(seen: TreeFacts, index: IndexSummary, machines: Mapping[str, MachineSummary]) -> Twig:
    domain = f" ({index.failure_domain})" if index.failure_domain else ""
    ready = f"{sum(h.ready for h in index.hosts)}/{max(1, len(index.hosts))}"
    ailment = Ailment("", f"waits for {index.waits}") if index.waits else NONE
    return Twig(
        f"index {index.index}{domain}", "", ready, ailment, [_host(seen, h, machines.get(h.name)) for h in index.hosts]
    )


def _host(seen: TreeFacts, h: HostSummary, machine: MachineSummary | None) -> Twig:
    """What the machine says itself, else what its control plane says of it."""
    said = seen.ailments.get(h.name) or (Ailment(machine.reason) if machine and machine.reason else NONE)
    if said == NONE and h.outdated:
        said = Ailment("Outdated", h.outdated)
    elif said == NONE and h.failure:
        said = Ailment("NotReady", h.failure)
    phase = f"{h.phase}, held" if h.held else machine.phase if machine else str(h.phase)
    return Twig(f"machine/{h.name}", phase, ailment=Ailment(said.reason, said.message, said.since or h.since))


def _of(seen: TreeFacts, pool: PoolFacts) -> list[MachineSummary]:
    """The pool's machines; those that no list shows yet, as the pool knows them."""
    from starter.sdk.results import MachineSummary

    of = pool.listed
    listed = [m for m in seen.machines if m.pool == of.name]
    names = {m.name for m in listed}
    return listed + [
        MachineSummary(name, of.cluster, member.created, str(member.phase), pool=of.name)
        for name, member in pool.members.items()
        if name not in names
    ]


def _revision(revision: int, s: PoolSummary | None) -> str:
    newest = " (newest)" if s and revision == s.revision else ""
    return f"revision {revision}{newest}"


def _silence(seen: TreeFacts, owner: PoolFacts | ControlPlaneFacts) -> str:
    """Why an owner of machines has no numbers. Where its cluster's workflow does not answer either, that says why."""
    return owner.no_answer or ("" if seen.cluster.no_answer else UNHEARD)


def _of_owner(listed: FleetListed[Any], no_answer: str) -> Ailment:
    s = listed.summary
    if s is None:
        return Ailment("NoAnswer", no_answer) if no_answer else Ailment(listed.reason)
    if s.parked:
        return Ailment("InternalError", s.parked)
    if s.waits:
        return Ailment(s.waits[0].reason, s.waits[0].message, s.waits[0].since)
    return NONE


def _machines(
    seen: TreeFacts, machines: Sequence[MachineSummary], members: Mapping[str, Member], everything: bool
) -> list[Twig]:
    """Lines for machines of one revision: first those that are not well, then how many there are of the others."""
    shown = sorted(named(machines, everything), key=lambda m: (well(m), m.name))
    left = set(machines) - set(shown)
    folded = Counter((m.phase, m.reason) for m in left)
    return [_machine(seen, m, members.get(m.name)) for m in shown] + [
        Twig(f"{count} machine{'s' if count > 1 else ''}", phase, ailment=Ailment(reason))
        for (phase, reason), count in sorted(folded.items(), key=lambda f: (f[0][0] == RUNNING, -f[1], f[0]))
    ]


def _machine(seen: TreeFacts, m: MachineSummary, member: Member | None) -> Twig:
    since = member.since if member else None
    said = seen.ailments.get(m.name, Ailment(m.reason))
    return Twig(f"machine/{m.name}", m.phase, ailment=Ailment(said.reason, said.message, said.since or since))


# -- lines ------------------------------------------------------------------------------------------------------------


def lines(root: Twig, now: datetime, width: int | None = None) -> list[list[Piece]]:
    """The tree as lines with a header. `width`: no line is longer, and what is cut ends with `…`; where the table
    leaves no room for messages, or for reasons, each stands below its line."""
    from resources.visible import visible, visible_lines
    from starter.output import GAP, age

    rows = list(_walk(root))
    cells = [HEADER]
    for before, twig in rows:
        t = twig.ailment
        since = age(now - t.since) if t.since else ""
        message = " ".join(visible_lines(t.message))
        cells.append((before + visible(twig.name), visible(twig.phase), twig.ready, since, visible(t.reason), message))
    wide = [max(len(row[i]) for row in cells) for i in range(len(HEADER))]
    left = len(HEADER) if width is None else _fitting(wide, width)
    styles = [("",) * len(HEADER), *(("", phase_style(t.phase), "", "", _reason_style(t), "dim") for _, t in rows)]
    befores = ["", *(before for before, _ in rows)]
    made = []
    for row, style, before in zip(cells, styles, befores, strict=True):
        last = max(i for i, cell in enumerate(row[:left]) if cell)
        made.append([(c.ljust(wide[i] + GAP) if i < last else c, style[i]) for i, c in enumerate(row[: last + 1])])
        if row is not HEADER and (more := ": ".join(cell for cell in row[left:] if cell)):
            made.append([(_beside(before) + "    ", ""), (more, "dim")])
    return made if width is None else [_cut(line, width) for line in made]


def _fitting(wide: Sequence[int], width: int) -> int:
    """How many columns stay: the message needs some room, and the reason all of its own."""
    from starter.output import GAP

    *columns, message = wide
    taken = sum(w + GAP for w in columns)
    if width - taken >= min(ROOM, message):
        return len(wide)
    return len(columns) if taken - GAP <= width else len(columns) - 1


def _beside(before: str) -> str:
    """The strokes beside a second line."""
    return before.replace("├─", "│ ").replace("└─", "  ")


def _reason_style(twig: Twig) -> str:
    return phase_style(twig.phase) if twig.phase and phase_style(twig.phase) != "green" else "yellow"


def _walk(root: Twig) -> Iterator[tuple[str, Twig]]:
    """Each line with the strokes that lead to it."""
    yield "", root
    yield from _below(root, "")


def _below(twig: Twig, before: str) -> Iterator[tuple[str, Twig]]:
    for i, each in enumerate(twig.twigs):
        last = i == len(twig.twigs) - 1
        yield f"{before}{'└─' if last else '├─'}", each
        yield from _below(each, before + ("  " if last else "│ "))


def _cut(line: list[Piece], width: int) -> list[Piece]:
    if sum(len(text) for text, _ in line) <= width:
        return line
    made: list[Piece] = []
    left = max(width - 1, 0)
    for text, style in line:
        made.append((text[:left], style))
        left -= len(made[-1][0])
    return [*made, ("…", "")]
