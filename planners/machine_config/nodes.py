"""What a Node is to a config pool. The strict words decide; the seed's count (`planners/machine_config/status.py`).

Source: seed 004 (UpdateController); OpenShift's machine-config-operator (pkg/controller/common/layered_node_state.go,
pkg/controller/node/node_controller.go) for what the seed leaves open.
"""

from __future__ import annotations

from datetime import datetime

from resources.base import LATEST
from resources.machine_config.node import ConfigNode, DaemonState


def managed(node: ConfigNode) -> bool:
    """Whether a daemon has ever said which config it has."""
    return bool(node.current)


def same(node: ConfigNode) -> bool:
    """Whether it has the config that it is to have (the seed's case a)."""
    return managed(node) and node.current == node.desired


def done(node: ConfigNode) -> bool:
    """Whether its daemon is done with the config that it is to have."""
    return same(node) and node.state is DaemonState.DONE


def updating(node: ConfigNode) -> bool:
    """Whether its daemon is on its way to the config that it is to have (the seed's case b)."""
    return not same(node) and node.state in (DaemonState.WORKING, DaemonState.REBOOTING)


def failing(node: ConfigNode) -> bool:
    """Whether its daemon cannot apply what it is to have (the seed's case c)."""
    return node.current != node.desired and node.state.failed


def fit(node: ConfigNode) -> bool:
    """Whether it takes pods."""
    return not node.ailing and not node.unschedulable


def busy(node: ConfigNode) -> bool:
    """Whether it is unavailable as maxUnavailable counts: it takes no pods, or is neither finished with its config nor
    failing with it. One that fails and takes pods is not: it may be given another config."""
    return not fit(node) or not (done(node) or failing(node))


def failing_here(node: ConfigNode, target: str) -> bool:
    """Whether it fails with the pool's config, and so takes a place of maxUnavailable although it takes pods."""
    return node.desired == target and failing(node) and fit(node)


def candidate(node: ConfigNode, target: str) -> bool:
    """Whether it could be given the pool's config: it has another one, and takes pods."""
    return node.desired != target and fit(node) and not node.deleting


def stuck(node: ConfigNode, target: str) -> bool:
    """Whether it needs the pool's config and cannot be given it, because it takes no pods."""
    return node.desired != target and not candidate(node, target)


def settled(node: ConfigNode, target: str) -> bool:
    """Whether there is nothing left to do for it."""
    return node.desired == target and done(node) and fit(node) and not node.tainted and node.asks == ("", "")


def turn(node: ConfigNode) -> tuple[bool, bool, str, datetime, str]:
    """Its place among the candidates: those that fail already come first; then zone by zone, those without one last,
    and in a zone the oldest first (OpenShift's order; that failing ones come first is ours: they lose nothing)."""
    return not failing(node), not node.zone, node.zone, node.created or LATEST, node.name


def trouble(node: ConfigNode) -> str:
    """Why it takes a place of maxUnavailable, in words for a person; "" where it takes none."""
    if node.ailing:
        return "is not Ready" if node.ailing == "Ready" else f"reports {node.ailing}"
    if not managed(node):
        return "has no annotation currentConfig: no daemon has reported there"
    verb, _ = node.asks
    if verb == "drain":
        return "is being drained for its new config"
    if node.state.failed:
        return f"is {node.state}{f': {node.reason}' if node.reason else ''}"
    if not same(node):
        return f"is {'applying' if updating(node) else 'to begin with'} {node.desired}"
    if node.unschedulable:
        return "is cordoned" if done(node) else "is finishing with its config"
    return "" if done(node) else f"says {node.state or 'nothing'} about its config"
