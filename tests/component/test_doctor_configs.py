"""`hostler doctor` on machine configs: each thing that may be wrong, made right one after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from apiserver.simulated import NODES, simulated
from machine_configs.kinds import config_pool, create, examples, install_kinds
from machine_configs.life import ConfigLife, config_life
from temporalio.testing import WorkflowEnvironment

from resources.machine_config.keys import CONTROLLER_CONFIG
from resources.machine_config.node import ConfigNode, DaemonState
from resources.machine_config.state import MachineConfigPoolState, Reservation
from resources.rights import CONFIG_NEEDS
from starter.doctor.clusters import FOR_CONFIGS
from starter.doctor.configs import INSTALL, SILENT_AFTER, _late, examine
from starter.doctor.findings import Finding, Level
from starter.sdk.client import HostlerClient

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


async def found_by(life: ConfigLife, served: bool = False) -> dict[Level, list[Finding]]:
    found: dict[Level, list[Finding]] = {}
    async with HostlerClient.connect(life.settings) as client:
        for finding in await examine(life.settings, life.cluster, client, served):
            found.setdefault(finding.level, []).append(finding)
    return found


async def test_what_is_missing_is_said_one_thing_after_the_other(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.client.service_client.config.target_host)
    async with simulated() as kube, config_life(temporal.client, kube) as life:
        life.daemons.usual.silent = True
        (said,) = (await found_by(life))[Level.PROBLEM]
        assert said.remedy == INSTALL
        assert "does not serve machineconfigs, machineconfigpools, kubeletconfigs, controllerconfigs" in said.message
        await install_kinds(kube)
        assert Level.PROBLEM not in await found_by(life)  # nobody has a pool yet
        await create(kube, config_pool("worker"))
        (said,) = (await found_by(life))[Level.PROBLEM]
        assert "there is no ControllerConfig machine-config-controller" in said.message
        assert "nothing is rendered for pool worker" in said.message
        (unattended,) = (await found_by(life))[Level.WARNING]
        assert unattended.message.startswith("no workflow looks after them")
        await create(kube, *(o for o in examples() if o["kind"] == CONTROLLER_CONFIG.kind))
        (said,) = (await found_by(life, served=True))[Level.PROBLEM]  # a worker is there, and still nobody begins
        assert said.message.startswith("no workflow looks after them")
        await life.join("worker-1", "worker-2")
        silent = (await found_by(life))[Level.WARNING][-1]
        assert silent.message.startswith("2 nodes of pools without a daemon, each of which takes a place")
        assert "node worker-1: no daemon has ever written which config it has" in silent.message
        life.daemons.knob("worker-1", "worker-2", silent=False)
        async with life.worker():
            await life.all_have(await life.target())
            found = await found_by(life, served=True)
            assert found.keys() == {Level.OK}
        await kube.delete(f"{NODES}/worker-1")


async def test_a_cluster_that_has_them_off_is_not_asked(temporal: WorkflowEnvironment) -> None:
    async with simulated() as kube, config_life(temporal.client, kube, enabled=False) as life:
        assert await examine(life.settings, life.cluster, None, served=False) == []


def _node(current: str, desired: str, state: DaemonState) -> ConfigNode:
    return ConfigNode(name="n-1", labels={}, uid="u", current=current, desired=desired, state=state)


@pytest.mark.parametrize(
    ("node", "age", "late"),
    [
        (_node("a", "b", DaemonState.DONE), SILENT_AFTER, True),
        (_node("a", "b", DaemonState.DONE), SILENT_AFTER - timedelta(seconds=1), False),
        (_node("a", "b", DaemonState.WORKING), SILENT_AFTER, False),
        (_node("b", "b", DaemonState.DONE), SILENT_AFTER, False),
        (_node("", "b", DaemonState.UNKNOWN), SILENT_AFTER, False),
    ],
    ids=["silent", "not long", "works", "has it", "never reported"],
)
def test_a_daemon_that_has_not_begun(node: ConfigNode, age: timedelta, late: bool) -> None:
    state = MachineConfigPoolState(name="worker", reservations={"n-1": Reservation("u", "b", NOW - age)})
    assert bool(_late(state, [node], NOW)) is late


def test_rights_of_configs_have_a_remedy_of_their_own() -> None:
    assert (
        {need.granted_by for need in CONFIG_NEEDS}
        == FOR_CONFIGS
        == {"hostler-cluster-configs", "hostler-watch-configs"}
    )
