"""The workflows that render machine configs, one for each cluster, as HostlerClient sees them.

await hostler.machine_configs.renew("prod")
"""

from __future__ import annotations

from resources import names
from resources.machine_config.state import MachineConfigsState
from resources.starts import FROM_OUTSIDE
from starter.sdk import live
from starter.sdk.entity import EntityClient
from starter.sdk.errors import NotFound, translated
from starter.sdk.results import Sent
from starter.sdk.spelling import did_you_mean
from starter.sdk.starts import start_machine_configs


class MachineConfigs(EntityClient[MachineConfigsState]):
    """`HostlerClient.machine_configs`: each has the name of its cluster, so `cluster` is not given."""

    noun, plural, workflow = "machine configs", "machineconfigs", "MachineConfigsWorkflow"
    model = MachineConfigsState
    id_of = staticmethod(lambda cluster, name: names.machine_configs_id(name))

    async def known(self) -> list[str]:
        """The clusters whose machine configs have a workflow; from visibility."""
        with translated():
            found = self.temporal.list_workflows(live.running(self.workflow))
            return sorted([e.id.removeprefix(names.machine_configs_id("")) async for e in found])

    async def renew(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks it to go on with the newest code, and to render everything anew. One that somebody has ended from
        outside is begun again."""
        found = await self._described(name, None)
        if found is not None and found.status in FROM_OUTSIDE and name in self.settings.clusters:
            with translated():
                await start_machine_configs(self.temporal, self.settings, name)
            return Sent(message="its workflow, which somebody had ended, is started again")
        return await super().renew(name, reason=reason)

    async def unknown(self, name: str, cluster: str | None = None) -> NotFound:
        if name in self.settings.clusters:
            return NotFound(
                f"nothing renders the machine configs of cluster {name}: set clusters.{name}.machineConfigs.enabled in "
                "the settings of its workers, and let one with the role watch run (docs/machine-configs.md)"
            )
        known = await self.known()
        there = f"those of {', '.join(known)} are" if known else "those of no cluster are"
        return NotFound(
            f"the machine configs of cluster {name!r} are not known; {there} (write machineconfigs/CLUSTER)"
            f"{did_you_mean(name, known)}"
        )

    async def _recorded(self, workflow_id: str, run_id: str) -> MachineConfigsState:
        return await live.folded(self.temporal, workflow_id, run_id, MachineConfigsState, _as_it_began)


async def _as_it_began(state: MachineConfigsState, *_: object) -> MachineConfigsState:
    """Nobody asks it for anything but its end: the cluster's objects say what is wanted."""
    return state
