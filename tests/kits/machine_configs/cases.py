"""Nodes and config pools for tests, written as the cases are: `V0=V0`, `V0>V1 degraded`, `V1=V1 NotReady`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from planners.machine_config.view import view_of
from resources.machine_config.node import ConfigNode, DaemonState
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.view import ConfigPoolView

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LABEL = "node-role.kubernetes.io/worker"
FLAGS = {"NotReady", "cordoned", "tainted", "windows"}


def config_node(name: str, says: str = "V1=V1", **fields: Any) -> ConfigNode:
    """A Node of the pool worker. `says`: its current and desired config (`V0=V0`, `V0>V1`, or nothing), then what its
    daemon says, where that is not `done`, or `working` for one that changes; then flags."""
    configs, *words = says.split() or [""]
    current, _, desired = configs.partition(">") if ">" in configs else configs.partition("=")
    said = [word for word in words if word not in FLAGS]
    assumed = "" if not current else "done" if current == desired else "working"
    ready = "NotReady" not in words
    known: dict[str, Any] = {
        "uid": f"uid-{name}",
        "created": NOW - timedelta(days=30),
        "labels": {LABEL: ""},
        "ready": ready,
        "ailing": "" if ready else "Ready",
        "unschedulable": "cordoned" in words,
        "tainted": "tainted" in words,
        "windows": "windows" in words,
        "current": current,
        "desired": desired,
        "state": DaemonState(said[0] if said else assumed),
    }
    return ConfigNode(name=name, **{**known, **fields})


def config_nodes(*says: str, **fields: Any) -> list[ConfigNode]:
    """Nodes n0, n1, …, the first one the oldest."""
    ages = [NOW - timedelta(days=30) + timedelta(hours=i) for i in range(len(says))]
    return [config_node(f"n{i}", text, created=ages[i], **fields) for i, text in enumerate(says)]


def config_pool(name: str = "worker", target: str = "V1", **spec: Any) -> MachineConfigPool:
    """A MachineConfigPool that selects Nodes by a label, and is to have `target`."""
    given = {"nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{name}": ""}}, **spec}
    return MachineConfigPool.of_dict(
        {
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": name, "uid": f"uid-{name}", "generation": 3},
            "spec": {k: v for k, v in given.items() if v is not None},
            "status": {"currentMachineConfig": target},
        }
    )


def look(nodes: Sequence[ConfigNode], most: int | str | None = None, target: str = "V1", **more: Any) -> ConfigPoolView:
    """A look at the pool worker."""
    named = {key: more.pop(key) for key in ("keep", "machines", "version") if key in more}
    spec = {"maxUnavailable": most, **more}
    return view_of("worker", [config_pool(target=target, **spec)], nodes, **named)
