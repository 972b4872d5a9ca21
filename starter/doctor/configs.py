"""The doctor's questions about a cluster's machine configs, where its settings have them on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain

from activities.kube.client import Kube, KubeError
from planners.machine_config import membership
from resources.machine_config.keys import (
    API,
    CONFIG_KINDS,
    CONTROLLER,
    CONTROLLER_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.machine_config.node import ConfigNode
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.state import MachineConfigPoolState
from resources.settings import Settings
from resources.words import utc_clock
from starter.doctor.findings import Check, Finding, attempt, few, ok, problem, warning
from starter.sdk.client import HostlerClient
from starter.sdk.errors import Unreachable
from starter.sdk.kube import connect_cluster, soon
from starter.sdk.machine_config.description import target_of
from starter.sdk.machine_config.objects import config_objects, path_of

SILENT_AFTER = timedelta(minutes=10)
"""How long a daemon may take to begin with the config that its Node is to have."""
DAEMON = "let the machine-config-daemon run there: kubectl get pods -A -o wide, kubectl describe node"
INSTALL = "kubectl apply -f deploy/crds (docs/machine-configs.md)"
EXAMPLE = "apply one like examples/machine-configs/controllerconfig.yaml"


async def examine(settings: Settings, name: str, client: HostlerClient | None, served: bool) -> list[Finding]:
    """Examines what machine configs need in the cluster, who looks after them, and which daemons are silent. `client`
    is None where Temporal cannot be asked; `served`: whether a worker runs workflows."""
    if name not in settings.clusters or not settings.cluster(name).machine_configs.enabled:
        return []
    subject = f"machine configs of {name}"
    checks = [partial(_kinds, settings, name, subject), partial(_daemons, settings, name, client, subject)]
    if client is not None:
        checks.insert(1, partial(_attended, client, name, subject, served))
    kinds, *others = await asyncio.gather(*(attempt(subject, partial(_seen, check, name, subject)) for check in checks))
    if any(f.remedy == INSTALL for f in kinds):
        return kinds
    return list(dict.fromkeys(chain(kinds, *others)))  # an API server that does not answer is said once


async def _seen(check: Check, name: str, subject: str) -> list[Finding]:
    """What the check finds. That the API server does not answer is told under its cluster."""
    try:
        return await check()
    except Unreachable:
        return [warning(subject, f"they cannot be looked at while the API of cluster {name} does not answer")]


async def _kinds(settings: Settings, name: str, subject: str) -> list[Finding]:
    """Whether the API server knows the kinds, and has what the templates are filled in with."""
    async with connect_cluster(settings, name) as kube:
        served = await soon(kube, asyncio.gather(*(_serves(kube, kind) for kind in CONFIG_KINDS)))
        if missing := [kind.plural for kind, there in zip(CONFIG_KINDS, served, strict=True) if not there]:
            return [problem(subject, f"the API server does not serve {', '.join(missing)} ({API})", INSTALL)]
        if await soon(kube, kube.find(path_of(CONTROLLER_CONFIG, CONTROLLER))) is None:
            pools = (await soon(kube, kube.get(path_of(MACHINE_CONFIG_POOL))))["items"]
            words = f"there is no {CONTROLLER_CONFIG.kind} {CONTROLLER}: no template is filled in"
            if bare := [pool["metadata"]["name"] for pool in pools if not target_of(pool)]:
                return [problem(subject, f"{words}, and nothing is rendered for pool {', '.join(bare)}", EXAMPLE)]
            return [ok(subject, f"the API server knows their kinds; {words}, pools have what people write")]
    return [ok(subject, "the API server knows their kinds, and has the ControllerConfig")]


async def _serves(kube: Kube, kind: ConfigKind) -> bool:
    try:
        await kube.get(path_of(kind), limit="1")
    except KubeError as e:
        if e.status != 404:
            raise
        return False
    return True


async def _attended(client: HostlerClient, name: str, subject: str, served: bool) -> list[Finding]:
    """Whether somebody looks after them."""
    if await client.clusters.renders_configs(name):
        return [ok(subject, "a workflow renders them and keeps those of their pools")]
    words = "no workflow looks after them: nothing is rendered, and no node is given another config"
    if not served:
        return [warning(subject, words, "run a worker with the roles workflows and watch: it begins the workflow")]
    return [problem(subject, words, "run a worker with the role watch, which begins it within a minute; read its log")]


async def _daemons(settings: Settings, name: str, client: HostlerClient | None, subject: str) -> list[Finding]:
    """Nodes of pools on which no daemon answers."""
    async with config_objects(settings, name) as objects:
        pools = await objects.pools()
        nodes = await objects.nodes(set(membership.label_keys(pools)))
    states = {}
    if client is not None:
        states = {shown.name: shown.state for shown in await client.config_pools.states(cluster=name)}
    now = datetime.now(UTC)
    mute = [f"node {n.name}: no daemon has ever written which config it has" for n in _mute(nodes, pools, states)]
    late = [line for state in states.values() if state is not None for line in _late(state, nodes, now)]
    found = []
    if mute:
        words = f"{_nodes(mute)} of pools without a daemon, each of which takes a place of maxUnavailable"
        found.append(warning(subject, "\n".join([words, *few(mute)]), DAEMON))
    if late:
        words = f"{_nodes(late)} whose daemon has not begun with what it is to do"
        found.append(problem(subject, "\n".join([words, *few(late)]), DAEMON))
    return found


def _nodes(lines: Sequence[str]) -> str:
    return f"{len(lines)} node{'s' if len(lines) != 1 else ''}"


def _mute(
    nodes: Sequence[ConfigNode],
    pools: Sequence[MachineConfigPool],
    states: dict[str, MachineConfigPoolState | None],
) -> list[ConfigNode]:
    machines: dict[str, str] = {}
    for state in states.values():
        machines |= dict(state.machines) if state is not None else {}
    return [n for n in nodes if not n.current and membership.pool_of(n, pools, machines)[0]]


def _late(state: MachineConfigPoolState, nodes: Sequence[ConfigNode], now: datetime) -> list[str]:
    """Nodes that were given a config long ago, and whose daemons still say that they are done with another one."""
    there = {n.name: n for n in nodes}
    found = []
    for name, reservation in sorted(state.reservations.items()):
        node = there.get(name)
        if node is None or not node.current or now - reservation.at < SILENT_AFTER:
            continue
        if node.desired == reservation.config != node.current and node.state == "done":
            since = utc_clock(reservation.at)
            found.append(f"node {name} of pool {state.name} is to have {reservation.config} since {since}")
    return found
