"""What a Node is to a config pool. The strict words decide; the seed's count (`planners/machine_config/status.py`).

Source: seed 004 (UpdateController); OpenShift's machine-config-operator (pkg/controller/common/layered_node_state.go,
pkg/controller/node/node_controller.go) for what the seed leaves open.
"""

from __future__ import annotations

from datetime import datetime

from resources.base import LATEST
from resources.machine_config.node import ConfigNode, DaemonState


def busy(node: ConfigNode) -> bool:
    """Whether it is unavailable as maxUnavailable counts: it takes no pods, or is neither finished with its config nor
    failing with it. One that fails and takes pods is not: it may be given another config."""
    return not node.fit or not (node.done or node.failing)


def failing_here(node: ConfigNode, target: str) -> bool:
    """Whether it fails with the pool's config, and so takes a place of maxUnavailable although it takes pods."""
    return node.desired == target and node.failing and node.fit


def candidate(node: ConfigNode, target: str) -> bool:
    """Whether it could be given the pool's config: it has another one, and takes pods."""
    return node.desired != target and node.fit and not node.deleting


def stuck(node: ConfigNode, target: str) -> bool:
    """Whether it needs the pool's config and cannot be given it, because it takes no pods."""
    return node.desired != target and not candidate(node, target)


def settled(node: ConfigNode, target: str) -> bool:
    """Whether there is nothing left to do for it."""
    return node.desired == target and node.done and node.fit and not node.tainted and node.asks == ("", "")


def turn(node: ConfigNode) -> tuple[bool, bool, str, datetime, str]:
    """Its place among the candidates: first those that fail already, then by zone, those without one last, and in a zone
    the oldest first (OpenShift's order; that failing ones come first is ours: they lose nothing)."""
    return not node.failing, not node.zone, node.zone, node.created or LATEST, node.name


def trouble(node: ConfigNode) -> str:
    """Why it takes a place of maxUnavailable, in words for a person; "" where it takes none."""
    if node.ailing:
        return "is not Ready" if node.ailing == "Ready" else f"reports {node.ailing}"
    if not node.managed:
        return "has no annotation currentConfig: no daemon has reported there"
    verb, _ = node.asks
    if verb == "drain":
        return "is being drained for its new config"
    if node.state.failed:
        return f"is {node.state}{f': {node.reason}' if node.reason else ''}"
    if not node.same:
        begun = node.state in (DaemonState.WORKING, DaemonState.REBOOTING)
        return f"is {'applying' if begun else 'to begin with'} {node.desired}"
    if node.unschedulable:
        return "is cordoned" if node.done else "is finishing with its config"
    return "" if node.done else f"says {node.state or 'nothing'} about its config"
