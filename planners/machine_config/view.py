"""One look at a pool, of all pools and all Nodes of a cluster: whose each Node is, the counts, and the nodes of which
there is something to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from planners.machine_config import nodes as of
from planners.machine_config.membership import ARBITER, CONTROL_PLANE, MASTERS, facts_of, pool_of, selections
from planners.machine_config.status import count
from planners.words import named
from resources.machine_config.node import ConfigNode
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.view import LISTED, ConfigPoolFacts, ConfigPoolView, StrayNodes


def view_of(
    name: str,
    pools: Sequence[MachineConfigPool],
    nodes: Iterable[ConfigNode],
    keep: Iterable[str] = (),
    machines: Mapping[str, str] | None = None,
    version: int = 0,
) -> ConfigPoolView:
    """The look at the pool of this name. `keep`: nodes to name whatever they are like. `machines`: which pools select a
    machine, by its name, with commas. `version`: the resourceVersion of the list of Nodes."""
    own = next((pool for pool in pools if pool.name == name), None)
    if own is None:
        return ConfigPoolView(version=version)
    homes: dict[str, list[ConfigNode]] = {}
    contested = []
    for node in nodes:
        home, contenders = pool_of(node, pools, machines or {})
        homes.setdefault(home, []).append(node)
        if name in contenders:
            contested.append(f"{node.name} ({', '.join(contenders)})")
    mine, facts = homes.get(name, []), facts_of(own)
    return ConfigPoolView(
        pool=facts,
        version=version,
        counts=count(mine, facts.target),
        nodes=_listed(mine, facts.target, set(keep)),
        contested=sorted(contested),
        beside=_beside(facts, pools, homes),
        selections=selections(pools),
    )


def strays_of(
    pools: Sequence[MachineConfigPool], nodes: Iterable[ConfigNode], machines: Mapping[str, str]
) -> StrayNodes:
    """The nodes of no pool that ask for a drain (upstream's drain controller serves every node)."""
    asking = [n for n in nodes if n.asks[0] and not pool_of(n, pools, machines)[0]]
    return StrayNodes(nodes=sorted(asking, key=of.turn)[:LISTED], selections=selections(pools))


def tainted_of(
    name: str, pools: Sequence[MachineConfigPool], nodes: Iterable[ConfigNode], machines: Mapping[str, str]
) -> list[ConfigNode]:
    """The nodes with the taint of a rollout that are this pool's or nobody's: when the pool ends, nobody else takes it
    off them. Those that have come to another pool are that one's."""
    return [n for n in nodes if n.tainted and pool_of(n, pools, machines)[0] in ("", name)]


def _listed(nodes: Sequence[ConfigNode], target: str, keep: set[str]) -> list[ConfigNode]:
    sorts: list[Callable[[ConfigNode], bool]] = [
        lambda n: of.candidate(n, target),
        of.busy,
        lambda n: n.state.failed,
        lambda n: bool(n.asks[0]),
        lambda n: n.desired != target and not n.tainted,
        lambda n: n.desired == target and n.tainted,
    ]
    ordered = sorted(nodes, key=of.turn)
    found = {n.name: n for n in ordered if n.name in keep}
    for belongs in sorts:
        found |= {n.name: n for n in [n for n in ordered if belongs(n)][:LISTED]}
    return sorted(found.values(), key=of.turn)


def _beside(
    facts: ConfigPoolFacts, pools: Sequence[MachineConfigPool], homes: Mapping[str, Sequence[ConfigNode]]
) -> str:
    """What another pool of the control plane does: only one of them has a node unavailable at a time, and arbiters go
    after the others (OCPBUGS-64681). A paused one is not waited for, unless one of its nodes is unavailable."""
    if facts.name not in CONTROL_PLANE:
        return ""
    for other in (facts_of(p) for p in pools if p.name in CONTROL_PLANE and p.name != facts.name):
        theirs = homes.get(other.name, ())
        if down := sorted(n.name for n in theirs if of.busy(n)):
            return f"pool {other.name} has {named(down)} unavailable"
        first = other.name in MASTERS and facts.name == ARBITER
        if first and not other.paused and any(of.candidate(n, other.target) for n in theirs):
            return f"pool {other.name} goes first"
    return ""
