"""A config pool in numbers, and its status as the API has it.

Source: seed 004 (MachinePoolStatus) for the counts and their names; OpenShift (pkg/controller/node/status.go) for
today's names beside them, and for the conditions. Its stricter counts choose candidates only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planners.machine_config import nodes as of
from planners.words import named, some
from resources.machine_config.keys import API, MACHINE_CONFIG
from resources.machine_config.node import ConfigNode
from resources.machine_config.view import ConfigCounts, ConfigPoolFacts, ConfigPoolView


def count(nodes: Iterable[ConfigNode], target: str) -> ConfigCounts:
    """The counts of these nodes, for a pool that is to have this config."""
    found = dict.fromkeys(ConfigCounts.model_fields, 0)
    for n in nodes:
        finished = of.done(n) and n.desired == target
        for field, holds in (
            ("machines", True),
            ("updated", of.same(n) and n.current == target and n.ready),
            ("ready", n.ready),
            ("unavailable", of.updating(n) or not n.ready),
            ("degraded", n.state.failed),
            ("done", finished),
            ("busy", of.busy(n)),
            ("failing", of.failing_here(n, target)),
            ("candidates", of.candidate(n, target)),
        ):
            found[field] += holds
    return ConfigCounts(**found)


def complete(facts: ConfigPoolFacts, counts: ConfigCounts) -> bool:
    """Whether every node has finished with the config, and is Ready. A pool without nodes is complete; a node that a
    person has cordoned is none the less updated (seed 004)."""
    return bool(facts.target and not facts.refused) and counts.done == counts.ready == counts.machines


def status_of(view: ConfigPoolView, held: str = "", stalled: str = "") -> dict[str, Any]:
    """The fields of the status that are not rendering's. `held`: who holds the rollout, in words, besides
    spec.paused. `stalled`: since when no node has finished, and who is in the way: OpenShift's pool is degraded then
    too, for its daemon gives a drain up after an hour."""
    facts, c = view.pool, view.counts
    assert facts is not None
    status: dict[str, Any] = {
        "observedGeneration": facts.generation,
        "machineCount": c.machines,
        "updatingMachines": c.updated,
        "readyMachines": c.ready,
        "unavailableMachines": c.unavailable,
        "updatedMachineCount": c.updated,
        "readyMachineCount": c.ready,
        "unavailableMachineCount": c.unavailable,
        "degradedMachineCount": c.degraded,
        "conditions": _conditions(view, held, stalled),
    }
    if complete(facts, c):
        source = [{"apiVersion": API, "kind": MACHINE_CONFIG.kind, "name": name} for name in facts.source]
        status["configuration"] = {"name": facts.target, "source": source}
    return status


def _conditions(view: ConfigPoolView, held: str, stalled: str) -> list[dict[str, str]]:
    facts, c = view.pool, view.counts
    assert facts is not None
    done = complete(facts, c)
    who = [f"node {n.name} reports: {n.reason or n.state}" for n in view.nodes if n.state.failed]
    bad = f"{some(c.degraded, 'node')} cannot apply the config; {named(who)}" if c.degraded else ""
    trouble = "; ".join(filter(None, [bad, facts.render_trouble, stalled]))
    why = "ConfigRolloutStalled" if trouble == stalled else "SeeMessage"
    going = not (done or facts.paused or held or facts.refused or not facts.target)
    updated = f"All nodes are updated with MachineConfig {facts.target}" if done else ""
    return [
        _condition("Updated", done, "AllNodesUpdated" if done else "", updated),
        _condition("Updating", going, "NodesUpdating" if going else "", _going(facts, done, held)),
        _condition("NodeDegraded", bool(bad), "NodesDegraded" if bad else "", bad),
        _condition("Degraded", bool(trouble), why if trouble else "", trouble),
    ]


def _going(facts: ConfigPoolFacts, done: bool, held: str) -> str:
    if done:
        return ""
    if not facts.target:
        return "No config has been rendered yet"
    if facts.refused:
        return facts.refused
    if facts.paused:
        return f"Pool is paused; will not update to {facts.target}"
    return f"{held}; will not update to {facts.target}" if held else f"All nodes are updating to {facts.target}"


def _condition(type: str, status: bool, reason: str, message: str) -> dict[str, str]:
    return {"type": type, "status": str(status), "reason": reason, "message": message}
