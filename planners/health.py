"""Whether a node is healthy, and what phase that makes of its machine.

Sources: machine-controller-manager, isHealthy and reconcileMachineHealth (machine_util.go); design *Running and its
troubles*: Ready must be True, each listed condition exactly False.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from resources.machine import Phase
from resources.messages import NodeFacts, VmFacts


@dataclass(frozen=True)
class Health:
    healthy: bool
    reason: str
    message: str


WELL = ("pending", "running")


def judge(node: NodeFacts | None, listed: list[str], vm: VmFacts | None = None) -> Health:
    """`listed`: condition types that must be False. An absent one is no trouble; Unknown is (MCM H14).

    `vm`: what the watch of the cloud account said last. A VM that does not run explains a silent node, so it comes
    first; without news of it the node decides alone.
    """
    if vm is not None and vm.state not in WELL:
        reason = "VMGone" if vm.state == "gone" else "VMNotRunning"
        return Health(False, reason, f"{vm.provider_id} is {vm.state} at the cloud")
    if node is None:
        return Health(False, "NodeNotSeen", "no node has joined")
    if not node.exists:
        return Health(False, "NodeMissing", f"node {node.name} was deleted by somebody")
    if not node.ready:
        return Health(False, "NodeNotReady", f"node {node.name} is not Ready: {node.reason}")
    bad = [f"{kind} is {node.conditions[kind]}" for kind in listed if kind in node.conditions]
    if bad:
        return Health(False, "NodeUnhealthy", f"node {node.name}: {', '.join(bad)}")
    return Health(True, "NodeHealthy", f"node {node.name} is Ready")


@dataclass(frozen=True)
class Verdict:
    phase: Phase
    healthy_since: datetime | None
    settles_at: datetime | None
    """When a node that is healthy again will have been so for long enough."""


def plan_health(
    phase: Phase, health: Health, healthy_since: datetime | None, now: datetime, settle: timedelta
) -> Verdict:
    """For a machine that was Running: Running or Unknown, and when to look again.

    A node that flaps does not come back by being healthy for a moment: it must settle first.
    """
    if not health.healthy:
        return Verdict(Phase.UNKNOWN, None, None)
    if phase == Phase.RUNNING:
        return Verdict(Phase.RUNNING, healthy_since, None)
    since = healthy_since or now
    if now >= since + settle:
        return Verdict(Phase.RUNNING, since, None)
    return Verdict(Phase.UNKNOWN, since, since + settle)
