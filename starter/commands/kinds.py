"""The kinds of things that commands are about, and the words for them."""

from __future__ import annotations

MACHINE = "machine"
NODE = "node"
CLUSTER = "cluster"
CLASS = "machineclass"
POOL = "machinedeployment"
ROLLOUT = "rollout"
ORPHAN = "orphan"
ALIASES = {
    **dict.fromkeys(("machine", "machines", "mc"), MACHINE),
    **dict.fromkeys(("node", "nodes", "no"), NODE),
    **dict.fromkeys(("cluster", "clusters"), CLUSTER),
    **dict.fromkeys(("class", "classes", "machineclass", "machineclasses", "mcc"), CLASS),
    **dict.fromkeys(("pool", "pools", "mcd", "machinedeployment", "machinedeployments"), POOL),
    **dict.fromkeys(("rollout", "rollouts"), ROLLOUT),
    **dict.fromkeys(("orphan", "orphans"), ORPHAN),
}
SHORT = {POOL: "pool", CLASS: "class"}
"""The words that people type for kinds whose names are those of manifests."""
