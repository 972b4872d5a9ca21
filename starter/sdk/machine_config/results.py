"""What the SDK answers with about config pools, and how their rollouts stand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from planners.machine_config import membership
from planners.machine_config import nodes as of
from planners.machine_config.status import count
from resources.fleet.state import FleetWait
from resources.machine_config.node import ConfigNode
from resources.machine_config.objects import (
    ConfigMeta,
    MachineConfigPool,
    MachineConfigPoolSpec,
    MachineConfigPoolStatus,
    PoolConfiguration,
)
from resources.machine_config.state import ConfigRolloutResult, ConfigRolloutState, MachineConfigPoolState
from resources.machine_config.view import ConfigCounts
from resources.reasons import next_step
from starter.sdk.fleet.waiting import RolloutVerdict, Stand
from starter.sdk.results import PendingActivity, since

A_PERSON = frozenset(
    {
        *("ConfigPoolPaused", "ClusterPaused", "Frozen", "ConfigPoolRefused", "MaxUnavailableInvalid"),
        *("NodesContested", "ConfigNodesSilent", "ConfigRolloutStalled", "MachinesNotFound"),
    }
)
"""Waits that only a person ends."""


@dataclass(frozen=True)
class ConfigPoolListed:
    """A MachineConfigPool, and what its workflow shows in lists."""

    cluster: str
    pool: MachineConfigPool
    """The object; as far as its workflow knows it, where the API server was not asked."""
    whole: dict[str, object] | None
    """The object as the API server has it; None: it was not asked."""
    phase: str = ""
    """Its workflow's phase, as visibility has it; "": there is none."""
    reason: str = ""
    counted: bool = True
    """Whether the numbers of its status are known."""

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def created(self) -> datetime | None:
        return self.pool.metadata.creation_timestamp

    @property
    def target(self) -> str:
        return membership.facts_of(self.pool).target


@dataclass(frozen=True)
class ConfigPoolShown:
    """A config pool's workflow, as lists show it, and what it says."""

    name: str
    phase: str
    reason: str
    state: MachineConfigPoolState | None
    """None where no worker answers."""
    cluster: str = ""

    def listed(self) -> ConfigPoolListed:
        """The row of a list, by what its workflow knows of the object and of its nodes."""
        known = self.state or MachineConfigPoolState(name=self.name)
        counts = known.counts
        pool = MachineConfigPool(
            metadata=ConfigMeta(name=self.name, creation_timestamp=known.created),
            spec=MachineConfigPoolSpec(paused=known.paused, max_unavailable=known.most or None),
            status=MachineConfigPoolStatus(
                current_machine_config=known.target,
                configuration=PoolConfiguration(name=known.completed),
                machine_count=counts.machines,
                updated_machine_count=counts.updated,
                ready_machine_count=counts.ready,
                unavailable_machine_count=counts.unavailable,
                degraded_machine_count=counts.degraded,
            ),
        )
        return ConfigPoolListed(self.cluster, pool, None, self.phase, self.reason, self.state is not None)

    def description(self, unseen: str, **more: Any) -> ConfigPoolDescription:
        """What it knows, where the cluster's API could not be asked, which `unseen` says."""
        pool = self.listed().pool
        return ConfigPoolDescription(self.cluster, pool, (), state=self.state, running=True, unseen=unseen, **more)


@dataclass(frozen=True)
class ConfigPoolDescription:
    """All about a config pool: the object and its nodes from the cluster, the rest from its workflow."""

    cluster: str
    pool: MachineConfigPool
    nodes: tuple[ConfigNode, ...]
    """Its nodes, in the order in which they would get a config."""
    contested: tuple[str, ...] = ()
    """Nodes that it and another pool select, and which therefore belong to none."""
    state: MachineConfigPoolState | None = None
    """What its workflow says; None where it does not answer."""
    no_answer: str = ""
    """Why it does not."""
    running: bool = False
    """Whether it has a workflow."""
    attended: bool = False
    """Whether the cluster's machine configs have one, which starts those of pools."""
    renders: str = ""
    """What is not rendered yet, or why it cannot be."""
    pending: tuple[PendingActivity, ...] = ()
    web: str | None = None
    unseen: str = ""
    """Why the cluster's API could not be asked. The object is then as far as the workflow knows it, without nodes."""

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def target(self) -> str:
        """The rendered config that its nodes are to have; "": none."""
        return membership.facts_of(self.pool).target

    @property
    def counts(self) -> ConfigCounts:
        return self.state.counts if self.unseen and self.state is not None else count(self.nodes, self.target)

    @property
    def waits(self) -> list[FleetWait]:
        return self.state.waits if self.state is not None else []

    @property
    def done(self) -> bool:
        """Whether every node has the config and works."""
        settled = not self.unseen and all(of.settled(node, self.target) for node in self.nodes)
        return bool(self.target) and not self.renders and settled


@dataclass(frozen=True)
class ConfigRolloutListed:
    """The rollout of one rendered config over a pool."""

    pool: str
    cluster: str
    config: str
    phase: str
    began: datetime
    ended: datetime | None = None
    state: ConfigRolloutState | None = None
    """While it runs, where a worker answers."""
    result: ConfigRolloutResult | None = None

    @property
    def counts(self) -> ConfigCounts | None:
        story = self.result or self.state
        return story.counts if story is not None else None

    @property
    def message(self) -> str:
        return self.result.message if self.result is not None else ""


def judge(found: ConfigPoolDescription) -> RolloutVerdict:
    """Done, continuing on its own, or stopped until a person acts."""
    name = f"mcp/{found.name}"
    if found.pool.metadata.deletion_timestamp is not None:
        return RolloutVerdict(Stand.STANDS, f"{name} is being deleted{since(found.pool.metadata.deletion_timestamp)}")
    if trouble := _rendering(found):
        return RolloutVerdict(Stand.STANDS, f"{name}: nothing new is rendered: {trouble}")
    if found.done:
        return RolloutVerdict(Stand.DONE, f"{name} is updated: {_of_all(found)}")
    if found.state is not None and found.state.parked:
        return RolloutVerdict(Stand.STANDS, _blocked(found, "InternalError", found.state.parked))
    if not found.running and not found.attended:
        return RolloutVerdict(Stand.STANDS, _unattended(found))
    held = next((w for w in found.waits if w.reason in A_PERSON), None)
    if found.pool.spec.paused and held is None:
        return RolloutVerdict(Stand.STANDS, _blocked(found, "ConfigPoolPaused", "spec.paused is true"))
    if held is not None:
        return RolloutVerdict(Stand.STANDS, _blocked(found, held.reason, held.message))
    if failed := _in_the_way(found):
        words = "; ".join(f"{n.name} {of.trouble(n)}" for n in failed[:3])
        return RolloutVerdict(Stand.STANDS, _blocked(found, "ConfigNodesDegraded", words))
    return RolloutVerdict(Stand.GOING, "")


def _in_the_way(found: ConfigPoolDescription) -> list[ConfigNode]:
    """The nodes that fail with the pool's config, once nothing else is under way or could begin beside them."""
    failed = [n for n in found.nodes if n.desired == found.target and n.state.failed]
    moving = any(of.busy(n) and not n.state.failed for n in found.nodes)
    room = found.state is None or found.state.most > len(failed)
    waiting = any(of.candidate(n, found.target) for n in found.nodes)
    return [] if moving or (waiting and room) else failed


def words_of(node: ConfigNode, target: str) -> str:
    """What there is to say of a node; "" where it has the config and works."""
    if said := of.trouble(node):
        return said
    if node.deleting:
        return "is being deleted"
    return "has another config" if target and node.desired != target else ""


def busy_nodes(found: ConfigPoolDescription) -> list[tuple[str, str]]:
    """The nodes that are unavailable, and why."""
    return [(n.name, of.trouble(n)) for n in found.nodes if of.busy(n) or n.state.failed]


def render_trouble(found: ConfigPoolDescription) -> str:
    """Why nothing new is rendered; "" where it is."""
    return membership.facts_of(found.pool).render_trouble


def _rendering(found: ConfigPoolDescription) -> str:
    trouble = render_trouble(found)
    return trouble.splitlines()[0] if trouble else ""


def _of_all(found: ConfigPoolDescription) -> str:
    if not found.nodes:
        return "it has no nodes"
    return (
        f"its node has {found.target}" if len(found.nodes) == 1 else f"all {len(found.nodes)} nodes have {found.target}"
    )


def _unattended(found: ConfigPoolDescription) -> str:
    return (
        f"mcp/{found.name} has no workflow, so nobody gives its nodes a config: set "
        f"clusters.{found.cluster}.machineConfigs.enabled in the settings of its workers, and let one with the role "
        "watch run (docs/machine-configs.md)"
    )


def _blocked(found: ConfigPoolDescription, reason: str, message: str) -> str:
    todo = next_step(reason, found.cluster, found.name, kind="mcp")
    return f"mcp/{found.name} is blocked: {reason}: {message}\nwhat can be done: {todo}"


def numbers(found: ConfigPoolDescription) -> str:
    """`2 of 3 nodes have rendered-worker-…, 1 unavailable, none degraded`."""
    c = found.counts
    if not found.target:
        return f"{c.machines} nodes; nothing is rendered yet"
    return f"{c.done} of {c.machines} nodes have {found.target}, {c.busy} unavailable, {c.degraded or 'none'} degraded"


def where(found: ConfigPoolDescription) -> str:
    """How far it is and what it waits for, in one line."""
    return "; ".join([numbers(found), *(f"{w.reason}: {w.message}" for w in found.waits)])
