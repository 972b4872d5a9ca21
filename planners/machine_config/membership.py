"""Which config pool a Node belongs to: one, or none.

Source: OpenShift (pkg/helpers/helpers.go, GetPrimaryPoolForNode); seed 004 for the selectors: machineSelector by labels
of machines, nodeSelector by labels of Nodes, machineSetRef by the name of a pool of machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resources.machine_config.node import ConfigNode
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.view import ConfigPoolFacts, MachineSelection
from resources.selectors import LabelSelector

MASTERS = ("master", "control-plane")
"""Names of the pool of the control plane; its nodes belong to it whatever else selects them."""
WORKER = "worker"
"""The pool of all nodes that no custom pool has."""
ARBITER = "arbiter"
"""The pool of a control plane's arbiters, which hold no more than a vote. It counts as a custom one."""
CONTROL_PLANE = (*MASTERS, ARBITER)


def is_empty(selector: LabelSelector | None) -> bool:
    """Whether it is there, and names nothing."""
    return selector is not None and not (selector.match_labels or selector.match_expressions)


def refusal(pool: MachineConfigPool) -> str:
    """Why a pool's selectors select nothing that may be touched, and what to write instead; "" where they may."""
    spec, given = pool.spec, pool.spec.chosen_by
    if len(given) > 1:
        fields = " and ".join(f"spec.{field}" for field in given)
        return f"{fields} are given, and only one of them may be: remove the others"
    for field, selector in (("nodeSelector", spec.node_selector), ("machineSelector", spec.machine_selector)):
        if is_empty(selector):
            return f"spec.{field} is empty, which would select everything: name a label in it"
    return ""


def selects(pool: MachineConfigPool, node: ConfigNode, machines: Mapping[str, str]) -> bool:
    """Whether a pool's selectors select a Node. `machines`: which pools select a machine, by its name, with commas."""
    if refusal(pool):
        return False
    if pool.spec.node_selector is not None:
        return pool.spec.node_selector.matches(node.labels)
    return bool(node.machine) and pool.name in machines.get(node.machine, "").split(",")


def pool_of(node: ConfigNode, pools: Iterable[MachineConfigPool], machines: Mapping[str, str]) -> tuple[str, list[str]]:
    """The name of the Node's pool, "" where it has none; and the pools that contend for it, which therefore do not have
    it."""
    if node.windows:
        return "", []
    found = [pool.name for pool in pools if selects(pool, node, machines)]
    custom = sorted(name for name in found if name not in (*MASTERS, WORKER))
    if len(custom) > 1:
        return "", custom
    masters = [name for name in MASTERS if name in found]
    return next(iter([*masters, *custom, *(name for name in found if name == WORKER)]), ""), []


def surely_in_one(selecting: Iterable[str], perhaps: Iterable[str]) -> bool:
    """Whether a Node belongs to a pool whatever machines its machine is one of. `selecting`: the pools that select it
    by its labels; `perhaps`: those that may, by its machine."""
    sure = {*selecting}
    return bool(sure) and len({*sure, *perhaps} - {*MASTERS, WORKER}) <= 1


def selections(pools: Iterable[MachineConfigPool]) -> list[MachineSelection]:
    """What pools select by machines, by name."""
    found = []
    for pool in sorted(pools, key=lambda p: p.name):
        spec = pool.spec
        if refusal(pool) or spec.node_selector is not None:
            continue
        if spec.machine_selector is not None:
            selector = spec.machine_selector.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            found.append(MachineSelection(pool=pool.name, selector=selector))
        elif spec.machine_set_ref is not None:
            found.append(MachineSelection(pool=pool.name, machine_set=spec.machine_set_ref.name))
    return found


def label_keys(pools: Iterable[MachineConfigPool]) -> list[str]:
    """The labels of Nodes that the pools' selectors name: others need not be read."""
    keys: set[str] = set()
    for pool in pools:
        selector = pool.spec.node_selector
        if selector is not None:
            keys |= {*selector.match_labels, *(e.key for e in selector.match_expressions)}
    return sorted(keys)


def facts_of(pool: MachineConfigPool) -> ConfigPoolFacts:
    """What a pool's own workflow must know of the object."""
    spec, status, meta = pool.spec, pool.status, pool.metadata
    wrong = "it is being deleted" if meta.deletion_timestamp is not None else refusal(pool)
    rendering = next((c for c in status.conditions if c.type == "RenderDegraded" and c.status == "True"), None)
    return ConfigPoolFacts(
        name=pool.name,
        uid=meta.uid,
        generation=meta.generation,
        paused=spec.paused,
        max_unavailable=spec.max_unavailable,
        target=status.current_machine_config or spec.configuration.name,
        source=_names(pool),
        completed=status.configuration.name,
        refused=wrong,
        render_trouble=(rendering.message or rendering.reason) if rendering is not None else "",
        control_plane=pool.name in CONTROL_PLANE,
    )


def _names(pool: MachineConfigPool) -> Sequence[str]:
    return [source.name for source in pool.spec.configuration.source][:1000]
