"""The kinds of things that commands are about, and the words for them."""

from __future__ import annotations

MACHINE = "machine"
NODE = "node"
CLUSTER = "cluster"
CLASS = "machineclass"
CONTROL_PLANE = "controlplanemachineset"
POOL = "machinedeployment"
ROLLOUT = "rollout"
WORKER_POOL = "workerpool"
ORPHAN = "orphan"
CONFIG_POOL = "machineconfigpool"
MACHINE_CONFIG = "machineconfig"
KUBELET_CONFIG = "kubeletconfig"
CONTROLLER_CONFIG = "controllerconfig"
CONFIG_OBJECTS = (MACHINE_CONFIG, KUBELET_CONFIG, CONTROLLER_CONFIG)
"""Kinds that the cluster's API alone is asked for."""
RENDERING = "machineconfigs"
"""What a cluster's machine configs are rendered by: a workflow with the name of the cluster."""
ALIASES = {
    **dict.fromkeys(("machine", "machines"), MACHINE),
    **dict.fromkeys(("node", "nodes", "no"), NODE),
    **dict.fromkeys(("cluster", "clusters"), CLUSTER),
    **dict.fromkeys(("class", "classes", "machineclass", "machineclasses", "mcc"), CLASS),
    **dict.fromkeys(("pool", "pools", "mcd", "machinedeployment", "machinedeployments"), POOL),
    **dict.fromkeys(
        ("controlplane", "controlplanes", "cp", "cpms", "controlplanemachineset", "controlplanemachinesets"),
        CONTROL_PLANE,
    ),
    **dict.fromkeys(("rollout", "rollouts"), ROLLOUT),
    **dict.fromkeys(("workerpool", "workerpools", "wp"), WORKER_POOL),
    **dict.fromkeys(("orphan", "orphans"), ORPHAN),
    **dict.fromkeys(("mcp", "machineconfigpool", "machineconfigpools"), CONFIG_POOL),
    **dict.fromkeys(("mc", "machineconfig", "machineconfigs"), MACHINE_CONFIG),
    **dict.fromkeys(("kubeletconfig", "kubeletconfigs"), KUBELET_CONFIG),
    **dict.fromkeys(("controllerconfig", "controllerconfigs"), CONTROLLER_CONFIG),
}
ALL = "all"
"""Several kinds, where a command takes it for a kind."""
SHORT = {POOL: "pool", CLASS: "class", CONTROL_PLANE: "controlplane", CONFIG_POOL: "mcp", MACHINE_CONFIG: "mc"}
"""The words that people type for kinds whose names are those of manifests."""
ONLY = {CONTROL_PLANE: "cluster"}
"""The name of a kind of which a cluster has only one: nobody has to type it."""


def is_plural(word: str) -> bool:
    """Whether a word is for all of a kind, such as pools; of some kinds a cluster has but one."""
    return word.endswith("s") and ALIASES.get(word) == ALIASES.get(word[:-1])
